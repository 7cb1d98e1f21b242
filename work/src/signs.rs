//! Which architecture a model is that nobody described, where names of weights and places in candle's source leave no
//! doubt.
//!
//! Two signs count. A span made in candle's own file of an architecture is of that architecture. And of models that make
//! all their spans with layers that they share, the names of the weights tell: `qwen2` has biases of queries and keys,
//! `qwen3` norms of them. A model is a decoder only if it has a head: some embedding models are decoders by every other
//! name, and attend in both directions. What has any weight besides those of the architecture stays unknown.

/// An architecture that is known without a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownArchitecture {
    /// As `config.json` calls it.
    pub name: &'static str,
    /// How the names of its modules begin; of others nothing is known.
    pub within: &'static [&'static str],
    /// Whether every layer attends to the whole context. Otherwise the weights do not say: a window is in the
    /// configuration alone.
    pub attends_to_all: bool,
}

impl KnownArchitecture {
    /// Whether a module is one of the architecture's.
    pub fn has(&self, module: &str) -> bool {
        self.within.iter().any(|start| module.strip_prefix(start).is_some_and(|r| r.is_empty() || r.starts_with('.')))
    }
}

const DECODER: &[&str] = &["model.embed_tokens", "model.layers", "model.norm", "lm_head"];
const BERT: &[&str] = &["embeddings", "encoder.layer", "bert", "roberta"];

/// Files of candle-transformers that make spans of their own, and what they are.
const FILES: &[(&str, KnownArchitecture)] = &[
    ("models::llama", whole("llama", DECODER)),
    ("models::granite", whole("granite", DECODER)),
    ("models::bert", whole("bert", BERT)),
    ("models::distilbert", whole("distilbert", &["embeddings", "transformer.layer", "distilbert"])),
    ("models::t5", whole("t5", &["shared", "encoder.block", "encoder.final_layer_norm", "decoder", "lm_head"])),
    ("models::whisper::model", whole("whisper", &["model.encoder", "model.decoder"])),
];

/// Files whose layers all models use.
const SHARED: &str = "models::with_tracing";

const fn whole(name: &'static str, within: &'static [&'static str]) -> KnownArchitecture {
    KnownArchitecture { name, within, attends_to_all: true }
}

/// What was seen of one model while it was loaded.
#[derive(Debug, Default)]
pub struct ArchitectureSigns {
    /// What one of candle's files is.
    file: Option<KnownArchitecture>,
    /// Spans of two files, or of one that is not in the list.
    mixed: bool,
    /// A weight that no decoder of this form has.
    foreign: bool,
    embedding: bool,
    head: bool,
    /// Whether layers were read after the head's weight, and more than the first of them.
    complete: bool,
    layer: bool,
    queries: bool,
    /// Queries, keys and values, and gate and up, are one matrix each.
    merged: bool,
    dense: bool,
    biases: bool,
    query_norm: bool,
    feed_forward_norm: bool,
    input_norm: bool,
    experts: bool,
    block_experts: bool,
}

impl ArchitectureSigns {
    /// A span was made at a place below `candle_transformers::`.
    pub fn span(&mut self, file: &str) {
        if file == SHARED || self.mixed {
            return;
        }
        match FILES.iter().find(|(known, _)| *known == file).map(|(_, what)| *what) {
            Some(what) if self.file.is_none_or(|before| before == what) => self.file = Some(what),
            _ => self.mixed = true,
        }
    }

    /// A span stands for the head, by whatever table.
    pub fn has_head(&mut self) {
        self.head = true;
        self.complete |= self.layer;
    }

    /// A weight was read.
    pub fn weight(&mut self, name: &str) {
        if name.starts_with("lm_head.") {
            return self.has_head();
        }
        match name.strip_prefix("model.") {
            Some("embed_tokens.weight") => self.embedding = true,
            Some("norm.weight") => {}
            Some(inside) => match inside.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
                Some((layer, part)) => {
                    self.layer = true;
                    self.complete |= self.head && layer != "0";
                    self.part(part);
                }
                None => self.foreign = true,
            },
            None => self.foreign = true,
        }
    }

    fn part(&mut self, part: &str) {
        match part {
            "self_attn.q_proj.weight" => self.queries = true,
            "self_attn.k_proj.weight" | "self_attn.v_proj.weight" | "self_attn.o_proj.weight" => {}
            "self_attn.q_proj.bias" | "self_attn.k_proj.bias" | "self_attn.v_proj.bias" => self.biases = true,
            "self_attn.q_norm.weight" | "self_attn.k_norm.weight" => self.query_norm = true,
            "self_attn.qkv_proj.weight" | "mlp.gate_up_proj.weight" => self.merged = true,
            "mlp.gate_proj.weight" | "mlp.up_proj.weight" | "mlp.down_proj.weight" => self.dense = true,
            "input_layernorm.weight" => self.input_norm = true,
            "post_attention_layernorm.weight" => {}
            "pre_feedforward_layernorm.weight" | "post_feedforward_layernorm.weight" => self.feed_forward_norm = true,
            "mlp.gate.weight" | "mlp.shared_expert_gate.weight" => self.experts = true,
            _ if part.starts_with("mlp.experts.") || part.starts_with("mlp.shared_expert.") => self.experts = true,
            _ if part.starts_with("block_sparse_moe.") => self.block_experts = true,
            _ => self.foreign = true,
        }
    }

    /// The architecture, once there is no doubt.
    pub fn told(&self) -> Option<KnownArchitecture> {
        if self.mixed {
            return None;
        }
        self.file.or_else(|| self.by_weights())
    }

    fn by_weights(&self) -> Option<KnownArchitecture> {
        if self.foreign || !self.embedding || !self.complete || !self.input_norm || !(self.queries ^ self.merged) {
            return None;
        }
        let unlike = |name| KnownArchitecture { name, within: DECODER, attends_to_all: false };
        if self.block_experts {
            return (self.queries && !self.biases && !self.query_norm).then_some(unlike("mixtral"));
        }
        if self.merged {
            return Some(unlike("phi3"));
        }
        match (self.biases, self.query_norm, self.feed_forward_norm, self.experts) {
            (true, false, false, false) if self.dense => Some(whole("qwen2", DECODER)),
            (true, false, false, true) => Some(whole("qwen2_moe", DECODER)),
            (false, true, false, false) if self.dense => Some(whole("qwen3", DECODER)),
            (false, true, false, true) => Some(whole("qwen3_moe", DECODER)),
            (false, false, true, false) if self.dense => Some(unlike("gemma2")),
            (false, true, true, false) if self.dense => Some(unlike("gemma3_text")),
            // Several have this form, and differ in what they attend to.
            (false, false, false, false) if self.dense => Some(unlike("mistral")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: [&str; 9] = [
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    ];

    fn signs(more: &[&str], after: &[&str]) -> Option<&'static str> {
        let mut signs = ArchitectureSigns::default();
        signs.weight("model.embed_tokens.weight");
        for part in LAYER.iter().chain(more) {
            signs.weight(&format!("model.layers.0.{part}"));
            assert_eq!(signs.told(), None, "not before there is a head");
        }
        after.iter().for_each(|name| signs.weight(name));
        signs.told().map(|what| what.name)
    }

    #[test]
    fn decoders_are_told_apart_by_what_only_they_have() {
        let head = ["model.norm.weight", "lm_head.weight"];
        assert_eq!(signs(&["self_attn.q_proj.bias"], &head), Some("qwen2"));
        assert_eq!(signs(&["self_attn.q_norm.weight"], &head), Some("qwen3"));
        assert_eq!(signs(&["pre_feedforward_layernorm.weight"], &head), Some("gemma2"));
        assert_eq!(signs(&[], &head), Some("mistral"));
        assert_eq!(signs(&["self_attn.q_proj.bias", "self_attn.q_norm.weight"], &head), None, "no model read here");
        assert_eq!(signs(&["self_attn.q_proj.bias"], &head[..1]), None, "an embedding model may be of this form");
        assert_eq!(signs(&["self_attn.rotary.weight"], &head), None);
        assert_eq!(signs(&["self_attn.q_proj.bias"], &["visual.patch.weight", "lm_head.weight"]), None);
    }

    #[test]
    fn a_place_in_candles_source_tells_at_once() {
        let mut signs = ArchitectureSigns::default();
        signs.span("models::with_tracing");
        assert_eq!(signs.told(), None);
        signs.span("models::llama");
        let llama = signs.told().unwrap();
        assert!(llama.name == "llama" && llama.has("model.layers.3.mlp") && llama.has("lm_head"));
        assert!(!llama.has("model.layersnorm") && !llama.has("vision_tower.model.layers.0"));
        signs.span("models::clip");
        assert_eq!(signs.told(), None, "a model of several");
    }
}
