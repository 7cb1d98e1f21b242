//! Attention over a few positions only: which layers of a model have a window, and how long it is.
//!
//! What counts is the model as its configuration describes it. candle's own implementations differ from that and from
//! each other: most mask a prompt by one position more than the window, and keep the keys and values of the whole text
//! and multiply by them, windows or not; gemma3 keeps those of the window only.

use super::Weight;
use super::hf_config::HfConfig;
use serde_json::Value;

/// A window of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Positions that a token attends to at most, itself included.
    pub positions: u64,
    /// Whether candle's implementation keeps no more keys and values than these. The others keep all, and a token's
    /// query is multiplied by all of them.
    pub kept: bool,
}

/// What a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    All,
    Within(Window),
    /// There is a window, and it is not known whether this layer has it.
    Unknown,
}

/// The window that a configuration names, and the layers that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Windows {
    window: Window,
    layers: Layers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Layers {
    All,
    /// All but every n-th, counted from 1.
    AllBut(u64),
    /// From this one on, counted from 0.
    From(u64),
    /// Each by itself.
    Listed(Vec<bool>),
    Unknown,
}

impl Windows {
    /// As Hugging Face's transformers read a `config.json`; `None` where it names no window.
    pub(super) fn of_config(config: &HfConfig) -> Option<Self> {
        let architecture = config.model_type.as_str();
        let positions = config.number(&["sliding_window"]).filter(|positions| *positions > 0)?;
        // Where the switch is missing, it is off in those models that have one.
        let has_switch = architecture.starts_with("qwen") || architecture == "smollm3";
        let on = config.rest.get("use_sliding_window").and_then(Value::as_bool).unwrap_or(!has_switch);
        let layers = match config.rest.get("layer_types").and_then(Value::as_array) {
            Some(kinds) => listed(kinds),
            None => match architecture {
                "mistral" | "mixtral" | "phi3" | "starcoder2" => Layers::All,
                "gemma2" => Layers::AllBut(2),
                "gemma3_text" => {
                    let pattern = config.number(&["sliding_window_pattern", "_sliding_window_pattern"]).unwrap_or(6);
                    if pattern > 0 { Layers::AllBut(pattern) } else { Layers::Unknown }
                }
                "qwen2" | "qwen3" => config.number(&["max_window_layers"]).map_or(Layers::Unknown, Layers::From),
                _ => Layers::Unknown,
            },
        };
        let kept = architecture == "gemma3_text";
        on.then_some(Self { window: Window { positions, kept }, layers })
    }

    /// As the metadata of a GGUF file have it.
    pub(super) fn of_gguf(architecture: &str, positions: u64) -> Option<Self> {
        let layers = match architecture {
            "phi3" | "starcoder2" => Layers::All,
            "gemma2" => Layers::AllBut(2),
            _ => Layers::Unknown,
        };
        (positions > 0).then_some(Self { window: Window { positions, kept: false }, layers })
    }

    /// What the module of this name attends to.
    pub(super) fn reach(&self, module: &str) -> Reach {
        let number = |part: &str| Weight::is_number(part).then(|| part.parse::<u64>().ok()).flatten();
        let layer = module.split('.').find_map(number);
        let has = match (&self.layers, layer) {
            (Layers::All, _) => Some(true),
            (Layers::AllBut(n), Some(layer)) => Some((layer + 1) % n != 0),
            (Layers::From(first), Some(layer)) => Some(layer >= *first),
            (Layers::Listed(has), Some(layer)) => usize::try_from(layer).ok().and_then(|at| has.get(at)).copied(),
            (Layers::Unknown, _) | (_, None) => None,
        };
        match has {
            Some(true) => Reach::Within(self.window),
            Some(false) => Reach::All,
            None => Reach::Unknown,
        }
    }
}

fn listed(kinds: &[Value]) -> Layers {
    let windowed = |kind: &Value| match kind.as_str()? {
        "sliding_attention" => Some(true),
        "full_attention" => Some(false),
        _ => None,
    };
    kinds.iter().map(windowed).collect::<Option<Vec<bool>>>().map_or(Layers::Unknown, Layers::Listed)
}

/// Positions that so many new tokens of one sequence attend to, all together, where it has `context` after them and
/// none reaches further back than `reach`: T·C − T(T−1)/2 if that is enough for all.
pub(super) fn attended(tokens: u64, context: u64, reach: u64) -> Option<u64> {
    let before = context.checked_sub(tokens)?;
    // They see C − T + 1, …, C positions; those that would see more than the window see the window.
    let cut = tokens.min(context.saturating_sub(reach));
    let whole = tokens - cut;
    let grown = whole.checked_mul(before)?.checked_add(whole.checked_mul(whole + 1)? / 2)?;
    grown.checked_add(cut.checked_mul(reach.min(context))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: serde_json::Value) -> Option<Windows> {
        Windows::of_config(&serde_json::from_value(json).unwrap())
    }

    fn windowed(windows: &Windows, layers: u64) -> Vec<u64> {
        let has = |layer: &u64| match windows.reach(&format!("model.layers.{layer}.self_attn.q_proj")) {
            Reach::Within(_) => true,
            Reach::All => false,
            Reach::Unknown => panic!("layer {layer} is not known"),
        };
        (0..layers).filter(has).collect()
    }

    #[test]
    fn which_layers_have_a_window() {
        use serde_json::json;
        let mistral = of(json!({"model_type": "mistral", "sliding_window": 4096})).unwrap();
        assert_eq!(mistral.reach("m.layers.3.q_proj"), Reach::Within(Window { positions: 4096, kept: false }));
        assert_eq!(of(json!({"model_type": "mistral", "sliding_window": null})), None);
        assert_eq!(of(json!({"model_type": "llama"})), None);
        let gemma2 = of(json!({"model_type": "gemma2", "sliding_window": 8})).unwrap();
        assert_eq!(windowed(&gemma2, 5), [0, 2, 4]);
        let gemma3 = of(json!({"model_type": "gemma3_text", "sliding_window": 8})).unwrap();
        assert_eq!(windowed(&gemma3, 13), [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12], "every sixth attends to all");
        let third = of(json!({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 3})).unwrap();
        assert_eq!(windowed(&third, 4), [0, 1, 3]);
        let qwen =
            |on| json!({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": on, "max_window_layers": 2});
        assert_eq!(windowed(&of(qwen(true)).unwrap(), 4), [2, 3]);
        assert_eq!(of(qwen(false)), None);
        assert_eq!(of(json!({"model_type": "qwen2", "sliding_window": 8})), None, "it is off unless it is on");
        let listed = of(json!({"model_type": "olmo3", "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}));
        assert_eq!(windowed(&listed.unwrap(), 3), [1, 2]);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        use serde_json::json;
        let unknown = of(json!({"model_type": "new", "sliding_window": 8})).unwrap();
        assert_eq!(unknown.reach("model.layers.0.q_proj"), Reach::Unknown);
        let odd = of(json!({"model_type": "gemma3_text", "sliding_window": 8, "layer_types": ["linear_attention"]}));
        assert_eq!(odd.unwrap().reach("model.layers.0.q_proj"), Reach::Unknown);
        let zero = of(json!({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 0})).unwrap();
        assert_eq!(zero.reach("model.layers.0.q_proj"), Reach::Unknown);
        let gemma2 = of(json!({"model_type": "gemma2", "sliding_window": 8})).unwrap();
        assert_eq!(gemma2.reach("q_proj"), Reach::Unknown, "of no layer");
    }

    #[test]
    fn positions_are_those_that_each_token_sees() {
        for (tokens, context) in [(1, 5), (1, 50), (7, 7), (20, 20), (6, 13), (30, 100)] {
            for reach in [1, 10, u64::MAX] {
                let sum = (context - tokens + 1..=context).map(|seen| seen.min(reach)).sum();
                assert_eq!(attended(tokens, context, reach), Some(sum), "{tokens} of {context} within {reach}");
            }
        }
        assert_eq!(attended(3, 2, 9), None, "more tokens than there are");
    }
}
