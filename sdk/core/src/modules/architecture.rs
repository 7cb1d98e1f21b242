//! What a model's configuration says beyond its weights: how many rows its layers compute, and how it attends, by the
//! rules of its family.

use super::hf_config::{ConfigUnreadable, HfConfig};
use super::module::{Attention, Module, Operation, Weight};
use candlescope_work::config::{Config, Dimensions};
use candlescope_work::family::{AttentionScope, Family, Projection, Rows, is_number};
use candlescope_work::signs::KnownArchitecture;
use candlescope_work::windows::{Reach, Windows};
use std::sync::Arc;

/// The model being loaded, as far as its configuration says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Architecture {
    family: Option<Family>,
    /// Words that it knows.
    pub(crate) vocabulary: Option<usize>,
    /// Heads of queries and of keys.
    heads: Option<(u64, u64)>,
    /// Features of the residual stream.
    hidden: Option<usize>,
    windows: Option<Windows>,
    /// If nobody described the model: what was recognised.
    recognised: Option<KnownArchitecture>,
}

impl Architecture {
    pub(super) fn of_config(json: &str) -> Result<Self, ConfigUnreadable> {
        let config: HfConfig = serde_json::from_str(json)?;
        let dimensions = Dimensions::of(&Config::new(&config.rest));
        Ok(Self {
            windows: Windows::of_config(&config.model_type, &Config::new(&config.rest)),
            family: Family::of(&config.model_type),
            vocabulary: dimensions.vocab.and_then(|words| words.try_into().ok()),
            hidden: dimensions.hidden.and_then(|n| n.try_into().ok()),
            heads: dimensions.heads.filter(|n| *n > 0).zip(dimensions.kv_heads),
            recognised: None,
        })
    }

    /// Whether nothing is known of it.
    pub(super) fn is_blank(&self) -> bool {
        self.family.is_none() && self.vocabulary.is_none()
    }

    /// As it follows from the weights themselves.
    pub(super) fn recognised(what: KnownArchitecture) -> Self {
        Self { family: Family::of(what.name), recognised: Some(what), ..Self::default() }
    }

    /// By its name, heads and window, as a GGUF file has them.
    pub(super) fn named(name: &str, heads: Option<(u64, u64)>, window: Option<u64>) -> Self {
        Self {
            family: Family::of(name),
            heads: heads.filter(|(queries, _)| *queries > 0),
            windows: window.and_then(|positions| Windows::of_gguf(name, positions)),
            ..Self::default()
        }
    }

    /// Where it contradicts a weight of a head, which is a matrix `[vocabulary, hidden]`.
    pub(super) fn contradiction(&self, head: &Weight) -> Option<String> {
        let &[words, features] = &*head.dims else { return None };
        let differs = |known: Option<usize>, found| known.filter(|known| *known != found);
        if let Some(known) = differs(self.vocabulary, words) {
            return Some(format!("vocab_size is {known}, and {} has {words} rows", head.name));
        }
        differs(self.hidden, features)
            .map(|known| format!("hidden_size is {known}, and {} has {features} columns", head.name))
    }

    /// A module of it, with its rows and its attention.
    pub(super) fn module(&self, name: Arc<str>, operation: Operation, weights: Vec<Weight>) -> Module {
        let rows = self.rows(&name);
        let attention = match weights.first().map(|weight| &*weight.dims) {
            Some(&[out, _]) if operation == Operation::Linear => self.attention(&name, out as u64),
            _ => None,
        };
        Module { name, operation, weights, rows, attention }
    }

    /// The rows of the module of this name.
    pub(super) fn rows(&self, module: &str) -> Rows {
        let family = self.family.filter(|_| !self.is_foreign(module));
        family.map_or(Rows::Unknown, |family| family.rows(module))
    }

    /// What the module of this name, with so many features coming out, has to do with attention.
    pub(super) fn attention(&self, module: &str, out: u64) -> Option<Attention> {
        if self.is_foreign(module) {
            return None;
        }
        let over = self.family?.attention_scope(module);
        let (queries, keys) = match self.family?.projection(module)? {
            Projection::Queries => (out, 0),
            Projection::Keys => (0, out),
            Projection::Merged if self.recognised.is_some() => (0, 0),
            Projection::Merged => {
                let (queries, keys) = self.heads?;
                let each = out.checked_div(queries.checked_add(keys.checked_mul(2)?)?)?;
                (each.checked_mul(queries)?, each.checked_mul(keys)?)
            }
        };
        let reach = match &self.windows {
            _ if self.recognised.is_some_and(|what| !what.attends_to_all) => Reach::Unknown,
            Some(windows) if over == AttentionScope::Before => windows.reach(layer_of(module)),
            _ => Reach::All,
        };
        Some(match reach {
            Reach::All => Attention { queries, keys, over, window: None },
            Reach::Within(window) => Attention { queries, keys, over, window: Some(window) },
            Reach::Unknown => Attention { queries, keys, over: AttentionScope::Unknown, window: None },
        })
    }
}

impl Architecture {
    /// Whether a module is none of the architecture that was recognised.
    fn is_foreign(&self, module: &str) -> bool {
        self.recognised.is_some_and(|what| !what.has(module))
    }
}

/// The number of the layer that a module is part of.
fn layer_of(module: &str) -> Option<u64> {
    module.split('.').filter(|part| is_number(part)).find_map(|part| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::StepWork;
    use super::*;
    use crate::annotation::Annotation;
    use crate::vocabulary::Phase;
    use candlescope_work::windows::Window;

    #[test]
    fn an_architecture_that_nobody_named_has_no_rows() {
        assert_eq!(Architecture::default().rows("model.layers.0.self_attn.q_proj"), Rows::Unknown);
        let qwen = Architecture::of_config(r#"{"model_type": "qwen3_moe", "vocab_size": 9, "num_attention_heads": 4}"#);
        assert_eq!(qwen.unwrap().rows("lm_head"), Rows::EachSequence);
    }

    #[test]
    fn attention_follows_from_the_projections() {
        let phi = r#"{"model_type": "phi3", "num_attention_heads": 4, "num_key_value_heads": 2}"#;
        let phi = Architecture::of_config(phi).unwrap();
        let merged = phi.attention("model.layers.0.self_attn.qkv_proj", 64).unwrap();
        assert_eq!((merged.queries, merged.keys, merged.over), (32, 16, AttentionScope::Before));
        let stages = Architecture::of_config(r#"{"model_type": "phi3", "num_attention_heads": [1, 2], "n_head": 2}"#);
        assert_eq!(stages.unwrap().heads, Some((2, 2)), "a list is no number of heads, and no error");
        let separate = phi.attention("m.q_proj", 32).unwrap();
        assert_eq!((separate.queries, separate.keys), (32, 0));
        assert_eq!(phi.attention("m.o_proj", 32), None);
        let window = r#"{"model_type": "phi3", "num_attention_heads": 4, "sliding_window": 7}"#;
        let window = Architecture::of_config(window).unwrap().attention("model.layers.1.self_attn.qkv_proj", 96);
        assert_eq!(window.unwrap().window, Some(Window { positions: 7, kept: false }));
        assert_eq!(Architecture::named("phi3", None, None).attention("m.qkv_proj", 64), None, "heads are not known");
        assert!(Architecture::of_config("{}").unwrap_err().to_string().contains("model_type"));
    }
    /// gemma-3-1b: 26 layers, of which 4 attend to all and 22 to 512 positions; keys of 256 features in bf16.
    #[test]
    fn gemma_reads_less_than_its_context() {
        let gemma = r#"{"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}"#;
        let gemma = Architecture::of_config(gemma).unwrap();
        let step = Annotation::new().tokens(1).context_len(8192);
        let step = StepWork::of(&step, Some(Phase::Decode)).unwrap();
        let of_layer = |layer: u64| {
            let keys = gemma.attention(&format!("model.layers.{layer}.self_attn.k_proj"), 256).unwrap();
            let queries = gemma.attention(&format!("model.layers.{layer}.self_attn.q_proj"), 1024).unwrap();
            let (keys, queries) = (keys.annotation(step, 2).unwrap(), queries.annotation(step, 2).unwrap());
            [keys.get_bytes(), queries.get_flops(), queries.get_flops_executed()].map(Option::unwrap)
        };
        let sum = (0..26).map(of_layer).fold([0; 3], |sum, of| [sum[0] + of[0], sum[1] + of[1], sum[2] + of[2]]);
        let positions = 4 * 8192 + 22 * 512;
        assert_eq!(sum, [2 * 256 * 2 * (positions + 26), 4 * 1024 * positions, 4 * 1024 * positions]);
    }
}
