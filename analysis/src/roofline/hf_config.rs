//! A model's dimensions from its `config.json`, with the fields of Hugging Face's transformers.

use super::shape::{ARCHITECTURES, FeedForward, ModelShape, Window};
use serde_json::{Map, Value};

/// The dimensions of a model cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is not JSON.
    #[error("config.json is not JSON: {0}. Take config.json from the model's own directory")]
    NotJson(#[from] serde_json::Error),
    /// A field is missing or has a wrong value.
    #[error("config.json lacks `{field}`, or it is not {expected}. Take config.json from the model's own directory")]
    Field {
        /// Name of the field.
        field: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The layers of this architecture are not known.
    #[error("architecture `{found}` is not known; known are {}", ARCHITECTURES.join(", "))]
    Architecture {
        /// `model_type` of the file.
        found: String,
    },
    /// A dimension is larger than in any real model.
    #[error("`{field}` of config.json is {value}, more than the limit of {LARGEST}; the file is damaged")]
    TooLarge {
        /// Name of the field.
        field: String,
        /// Its value.
        value: u64,
    },
    /// The dimensions make more parameters than any real model has.
    #[error(
        "the dimensions in config.json make {parameters} parameters, more than the limit of 10^15; the file is damaged"
    )]
    TooMany {
        /// An upper bound of the number.
        parameters: u128,
    },
}

/// No real model has more parameters: beyond this, sums in 64 bits would no longer hold.
pub(super) const MOST_PARAMETERS: u128 = 1_000_000_000_000_000;

/// No dimension of a real model is larger.
pub(super) const LARGEST: u64 = 100_000_000;

/// The dimensions that a `config.json` gives; `name` is for people.
///
/// # Errors
/// If it is not JSON, its architecture is not known, or a field is missing, which the error names.
pub fn config_shape(name: &str, text: &str) -> Result<ModelShape, ConfigError> {
    let whole: Map<String, Value> = serde_json::from_str(text)?;
    // Models that also see or hear keep the language model's fields apart.
    let fields = match whole.get("text_config").and_then(Value::as_object) {
        Some(inner) if inner.contains_key("hidden_size") => inner,
        _ => &whole,
    };
    let config = Config { fields };
    let architecture = config.text("model_type").or_else(|| Config { fields: &whole }.text("model_type"));
    let architecture = architecture.ok_or_else(|| missing(&["model_type"], "the name of an architecture"))?;
    if !ARCHITECTURES.contains(&architecture) {
        return Err(ConfigError::Architecture { found: architecture.to_string() });
    }
    let hidden = config.size(&["hidden_size", "n_embd", "d_model"])?;
    let layers = config.size(&["num_hidden_layers", "n_layer", "num_layers"])?;
    let heads = config.size(&["num_attention_heads", "n_head", "num_heads"])?;
    let kv_heads = config.maybe(&["num_key_value_heads"])?.unwrap_or(heads);
    let head_dim = match config.maybe(&["head_dim", "d_kv"])? {
        Some(size) => size,
        None if hidden % heads == 0 => hidden / heads,
        None => return Err(missing(&["head_dim"], "given, where heads do not divide the hidden size")),
    };
    let intermediate = match (architecture, config.maybe(&["moe_intermediate_size"])?) {
        ("qwen3_moe", Some(width)) => width,
        ("gpt2", _) => config.maybe(&["n_inner"])?.unwrap_or(4 * hidden),
        _ => config.size(&["intermediate_size", "d_ff"])?,
    };
    let size = (config.size(&["vocab_size"])?, hidden, layers);
    let mut shape = ModelShape::decoder(name, size, (heads, kv_heads, head_dim), intermediate);
    shape.max_context = config.maybe(&["max_position_embeddings", "n_positions"])?;
    if ["mixtral", "qwen3_moe"].contains(&architecture) {
        let experts = config.size(&["num_local_experts", "num_experts"])?;
        shape.feed_forward =
            FeedForward::Experts { intermediate, experts, active: config.size(&["num_experts_per_tok"])? };
    }
    let mut shape = shape.built_as(architecture);
    // Defaults of transformers where the file says nothing.
    let tied_unless_told = ["gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "t5"].contains(&architecture);
    shape.tied = config
        .flag("tie_word_embeddings")
        .or_else(|| Config { fields: &whole }.flag("tie_word_embeddings"))
        .unwrap_or(tied_unless_told);
    if let Some(all) = config.flag("attention_bias").filter(|_| ["llama", "qwen3", "qwen3_moe"].contains(&architecture))
    {
        (shape.biases.qkv, shape.biases.output) = (all, all);
    }
    if architecture == "t5" {
        shape.layers = config.maybe(&["num_decoder_layers"])?.unwrap_or(layers);
        shape.position_buckets = config.maybe(&["relative_attention_num_buckets"])?.unwrap_or(32);
        if config.text("feed_forward_proj").is_some_and(|kind| kind.starts_with("gated")) {
            shape.feed_forward = FeedForward::Gated { intermediate };
        }
    }
    shape.window = window(architecture, layers, &config)?;
    match parameters_at_most(&shape) {
        parameters if parameters > MOST_PARAMETERS => Err(ConfigError::TooMany { parameters }),
        _ => Ok(shape),
    }
}

/// The window of attention and how many layers have it, as transformers read the file; where the switch is missing, it
/// is off in those models that have one.
fn window(architecture: &str, layers: u64, config: &Config<'_>) -> Result<Option<Window>, ConfigError> {
    let is_on = config.flag("use_sliding_window").unwrap_or(!architecture.starts_with("qwen"));
    let Some(size) = config.maybe(&["sliding_window"])?.filter(|_| is_on) else { return Ok(None) };
    if let Some(kinds) = config.fields.get("layer_types").and_then(Value::as_array) {
        let with = kinds.iter().take(layers as usize).filter(|kind| kind.as_str() == Some("sliding_attention"));
        return Ok(Some(Window { size, layers: with.count() as u64 }));
    }
    Ok(Some(match architecture {
        "gemma2" => Window::but_one_in(size, 2, layers),
        "gemma3" | "gemma3_text" => {
            let pattern = config.maybe(&["sliding_window_pattern", "_sliding_window_pattern"])?.unwrap_or(6);
            Window::but_one_in(size, pattern, layers)
        }
        // The first layers attend to all.
        "qwen2" | "qwen3" => {
            let first = config.fields.get("max_window_layers").and_then(Value::as_u64);
            let first = first.ok_or_else(|| missing(&["max_window_layers"], "a number, where a window is used"))?;
            Window { size, layers: layers.saturating_sub(first) }
        }
        "mistral" | "mixtral" | "phi3" | "qwen3_moe" => Window { size, layers },
        // The others have none, whatever the file says.
        _ => return Ok(None),
    }))
}

/// An upper bound of the parameters, in numbers that cannot overflow: every dimension is at most [`LARGEST`], below
/// 2²⁷.
pub(super) fn parameters_at_most(shape: &ModelShape) -> u128 {
    let wide = |value: u64| u128::from(value);
    let (d, heads, head_dim) = (wide(shape.hidden), wide(shape.heads) + wide(shape.kv_heads), wide(shape.head_dim));
    let attention = 2 * (d + 1) * heads * head_dim;
    let feed_forward = match shape.feed_forward {
        FeedForward::Gated { intermediate } | FeedForward::Plain { intermediate } => 3 * (d + 1) * wide(intermediate),
        FeedForward::Experts { intermediate, experts, .. } => (3 * d * wide(intermediate) + d) * wide(experts),
    };
    let norms = (wide(shape.norms_a_layer) + 3) * 2 * d + 2 * head_dim;
    // With an encoder, its layers and the decoder's cross-attention.
    let layers = wide(shape.layers) * 2 + wide(shape.encoder_layers);
    let tables = 2 * wide(shape.vocab) + wide(shape.learned_positions);
    layers * (attention + feed_forward + norms) + tables * (d + 1) + 2 * wide(shape.position_buckets) * heads
}

struct Config<'a> {
    fields: &'a Map<String, Value>,
}

fn missing(names: &[&str], expected: &'static str) -> ConfigError {
    ConfigError::Field { field: names.join("` or `"), expected }
}

impl<'a> Config<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.fields.get(name)?.as_str()
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.fields.get(name)?.as_bool()
    }

    /// The first of these fields that is there and not null.
    fn maybe(&self, names: &[&str]) -> Result<Option<u64>, ConfigError> {
        let Some((name, value)) =
            names.iter().filter_map(|name| Some((*name, self.fields.get(*name)?))).find(|(_, value)| !value.is_null())
        else {
            return Ok(None);
        };
        match value.as_u64() {
            Some(value) if value > LARGEST => Err(ConfigError::TooLarge { field: name.to_string(), value }),
            Some(value) if value > 0 => Ok(Some(value)),
            _ => Err(missing(&[name], "a whole number above 0")),
        }
    }

    fn size(&self, names: &[&str]) -> Result<u64, ConfigError> {
        self.maybe(names)?.ok_or_else(|| missing(names, "a whole number above 0"))
    }
}
