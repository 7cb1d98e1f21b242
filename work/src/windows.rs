//! Attention over a few positions only: which layers of a model have a window, how long it is, and what it leaves of
//! attention.
//!
//! What counts is the model as its configuration describes it. candle's own implementations differ from that and from
//! each other: most mask a prompt by one position more than the window, and keep the keys and values of the whole text
//! and multiply by them, windows or not; gemma3 keeps those of the window only.

use crate::config::{Config, Dimensions};
use serde::Serialize;
use serde_json::Value;

/// A window of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Window {
    /// Positions that a token attends to at most, itself included: W.
    #[serde(rename = "size")]
    pub positions: u64,
    /// Whether candle's implementation keeps no more keys and values than these. The others keep all, and a token's
    /// query is multiplied by all of them.
    #[serde(skip)]
    pub kept: bool,
}

impl Window {
    /// Of an architecture (`model_type` of `config.json`).
    pub fn of(architecture: &str, positions: u64) -> Self {
        Self { positions, kept: matches!(architecture, "gemma3" | "gemma3_text") }
    }
}

/// Positions that so many new tokens of one sequence attend to, all together: Σ(min(c, W)), c from C − T + 1 to C, with
/// T new tokens, C after them and a window of W; T·C − T(T−1)/2 without one.
pub fn attended(tokens: u64, context: u64, window: Option<Window>) -> f64 {
    let reach = window.map_or(context, |window| window.positions.min(context));
    // Those that would see more than the window see the window.
    let cut = tokens.min(context - reach);
    let whole = tokens - cut;
    let before = context.saturating_sub(tokens) as f64;
    let whole = whole as f64;
    whole * before + whole * (whole + 1.0) / 2.0 + cut as f64 * reach as f64
}

/// Positions of a sequence that any of its new tokens attends to, whose keys and values have to be read:
/// min(C, W + T − 1).
pub fn needed(tokens: u64, context: u64, window: Option<Window>) -> u64 {
    let reach = window.map_or(u64::MAX, |window| window.positions);
    context.min(reach.saturating_add(tokens).saturating_sub(1))
}

/// Positions that candle multiplies each of so many new tokens with: all that it keeps, masked afterwards.
pub fn multiplied(tokens: u64, context: u64, window: Option<Window>) -> u64 {
    match window {
        // A prompt longer than the window is multiplied with itself.
        Some(Window { positions, kept: true }) if tokens >= positions => tokens,
        Some(Window { positions, kept: true }) => context.min(positions),
        _ => context,
    }
}

/// What a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The whole context: this layer has no window.
    All,
    /// No further back than this window.
    Within(Window),
    /// There is a window, and it is not known whether this layer has it.
    Unknown,
}

/// The window that a configuration names, and the layers that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
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
    /// Whether each layer has the window, as `layer_types` of the configuration says.
    Listed(Vec<bool>),
    Unknown,
}

impl Windows {
    /// As Hugging Face's transformers read a `config.json`; `None` where it names no window.
    pub fn of_config(architecture: &str, config: &Config<'_>) -> Option<Self> {
        let positions = Dimensions::of(config).window.filter(|positions| *positions > 0)?;
        // Where the switch is missing, it is off in those models that have one.
        let has_switch = architecture.starts_with("qwen") || architecture == "smollm3";
        let on = config.flag("use_sliding_window").unwrap_or(!has_switch);
        let layers = match config.get("layer_types").and_then(Value::as_array) {
            Some(kinds) => listed(kinds),
            None => match architecture {
                "mistral" | "mixtral" | "phi3" | "qwen3_moe" | "starcoder2" => Layers::All,
                "gemma2" => Layers::AllBut(2),
                "gemma3" | "gemma3_text" => {
                    let pattern = config.number(&["sliding_window_pattern", "_sliding_window_pattern"]).unwrap_or(6);
                    if pattern > 0 { Layers::AllBut(pattern) } else { Layers::Unknown }
                }
                // The first layers attend to all.
                "qwen2" | "qwen3" => config.number(&["max_window_layers"]).map_or(Layers::Unknown, Layers::From),
                _ => Layers::Unknown,
            },
        };
        on.then_some(Self { window: Window::of(architecture, positions), layers })
    }

    /// As the metadata of a GGUF file have it.
    pub fn of_gguf(architecture: &str, positions: u64) -> Option<Self> {
        let layers = match architecture {
            "phi3" | "starcoder2" => Layers::All,
            "gemma2" => Layers::AllBut(2),
            _ => Layers::Unknown,
        };
        (positions > 0).then_some(Self { window: Window { positions, kept: false }, layers })
    }

    /// The window, whichever layers have it.
    pub fn window(&self) -> Window {
        self.window
    }

    /// What a layer attends to, counted from 0; `None` for a module that is part of no layer.
    pub fn reach(&self, layer: Option<u64>) -> Reach {
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

    /// How many of the first so many layers have the window; `None` where that is not known.
    pub fn count(&self, layers: u64) -> Option<u64> {
        match &self.layers {
            Layers::All => Some(layers),
            Layers::AllBut(n) => Some(layers - layers / n),
            Layers::From(first) => Some(layers.saturating_sub(*first)),
            Layers::Listed(has) => Some(has.iter().zip(0..layers).filter(|(has, _)| **has).count() as u64),
            Layers::Unknown => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &Value) -> Option<Windows> {
        let config = Config::new(json.as_object().unwrap());
        Windows::of_config(config.text("model_type").unwrap(), &config)
    }

    fn windowed(windows: &Windows, layers: u64) -> Vec<u64> {
        let has = |layer: &u64| match windows.reach(Some(*layer)) {
            Reach::Within(_) => true,
            Reach::All => false,
            Reach::Unknown => panic!("layer {layer} is not known"),
        };
        let with: Vec<u64> = (0..layers).filter(has).collect();
        assert_eq!(windows.count(layers), Some(with.len() as u64));
        with
    }

    #[test]
    fn which_layers_have_a_window() {
        use serde_json::json;
        let mistral = of(&json!({"model_type": "mistral", "sliding_window": 4096})).unwrap();
        assert_eq!(mistral.reach(Some(3)), Reach::Within(Window { positions: 4096, kept: false }));
        assert_eq!(of(&json!({"model_type": "mistral", "sliding_window": null})), None);
        assert_eq!(of(&json!({"model_type": "llama"})), None);
        let gemma2 = of(&json!({"model_type": "gemma2", "sliding_window": 8})).unwrap();
        assert_eq!(windowed(&gemma2, 5), [0, 2, 4]);
        let gemma3 = of(&json!({"model_type": "gemma3_text", "sliding_window": 8})).unwrap();
        assert_eq!(windowed(&gemma3, 13), [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12], "every sixth attends to all");
        let third = json!({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 3});
        assert_eq!(windowed(&of(&third).unwrap(), 4), [0, 1, 3]);
        let qwen =
            |on| json!({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": on, "max_window_layers": 2});
        assert_eq!(windowed(&of(&qwen(true)).unwrap(), 4), [2, 3]);
        assert_eq!(of(&qwen(false)), None);
        assert_eq!(of(&json!({"model_type": "qwen2", "sliding_window": 8})), None, "it is off unless it is on");
        let listed = of(&json!({"model_type": "olmo3", "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}));
        assert_eq!(windowed(&listed.unwrap(), 3), [1, 2]);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        use serde_json::json;
        let unknown = of(&json!({"model_type": "new", "sliding_window": 8})).unwrap();
        assert_eq!((unknown.reach(Some(0)), unknown.count(4)), (Reach::Unknown, None));
        let odd = of(&json!({"model_type": "gemma3_text", "sliding_window": 8, "layer_types": ["linear_attention"]}));
        assert_eq!(odd.unwrap().reach(Some(0)), Reach::Unknown);
        let zero = of(&json!({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 0}));
        assert_eq!(zero.unwrap().reach(Some(0)), Reach::Unknown);
        let gemma2 = of(&json!({"model_type": "gemma2", "sliding_window": 8})).unwrap();
        assert_eq!(gemma2.reach(None), Reach::Unknown, "of no layer");
    }

    #[test]
    fn positions_are_those_that_each_token_sees() {
        for (tokens, context) in [(1, 5), (1, 50), (7, 7), (20, 20), (6, 13), (30, 100)] {
            for reach in [1, 10, u64::MAX] {
                let window = Some(Window { positions: reach, kept: false });
                let sum: u64 = (context - tokens + 1..=context).map(|seen| seen.min(reach)).sum();
                assert_eq!(attended(tokens, context, window), sum as f64, "{tokens} of {context} within {reach}");
                let first = (context - tokens + 1).saturating_sub(reach);
                assert_eq!(needed(tokens, context, window), context - first, "{tokens} of {context} within {reach}");
                assert_eq!(multiplied(tokens, context, window), context, "all are kept");
            }
        }
        let kept = Some(Window { positions: 10, kept: true });
        assert_eq!([(1, 5), (1, 50), (20, 50)].map(|(t, c)| multiplied(t, c, kept)), [5, 10, 20]);
    }
}
