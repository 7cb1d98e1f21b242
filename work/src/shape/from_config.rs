//! A model's shape from its `config.json`, for the architectures whose layers are known.

use super::{ARCHITECTURES, FeedForward, ModelShape, WindowedLayers};
use crate::config::{CONTEXT, Config, HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, LAYERS, VOCAB};
use crate::windows::Windows;
use serde_json::{Map, Value};

/// The dimensions of a model cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
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
pub const MOST_PARAMETERS: u128 = 1_000_000_000_000_000;

/// No dimension of a real model is larger.
pub const LARGEST: u64 = 100_000_000;

fn missing(names: &[&str], expected: &'static str) -> ConfigError {
    ConfigError::Field { field: names.join("` or `"), expected }
}

/// The first of these that is there, which has to be a whole number above 0.
fn maybe(config: &Config<'_>, names: &[&str]) -> Result<Option<u64>, ConfigError> {
    let Some((name, value)) = names.iter().find_map(|name| Some((*name, config.get(name)?))) else { return Ok(None) };
    match value.as_u64() {
        Some(value) if value > LARGEST => Err(ConfigError::TooLarge { field: name.to_string(), value }),
        Some(value) if value > 0 => Ok(Some(value)),
        _ => Err(missing(&[name], "a whole number above 0")),
    }
}

/// The same of what has to be there.
fn size(config: &Config<'_>, names: &[&str]) -> Result<u64, ConfigError> {
    maybe(config, names)?.ok_or_else(|| missing(names, "a whole number above 0"))
}

impl ModelShape {
    /// The dimensions that the text of a `config.json` gives; `name` is for people.
    ///
    /// # Errors
    /// If it is not JSON, its architecture is not known, or a field is missing, which the error names.
    pub fn from_config_text(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_config(name, &serde_json::from_str(text)?)
    }

    /// The same of its fields.
    ///
    /// # Errors
    /// If its architecture is not known, or a field is missing, which the error names.
    pub fn from_config(name: &str, fields: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Config::of_language_model(fields);
        let architecture =
            config.text("model_type").ok_or_else(|| missing(&["model_type"], "the name of an architecture"))?;
        if !ARCHITECTURES.contains(&architecture) {
            return Err(ConfigError::Architecture { found: architecture.to_string() });
        }
        let (hidden, layers, heads) = (size(&config, HIDDEN)?, size(&config, LAYERS)?, size(&config, HEADS)?);
        let head_dim = match maybe(&config, HEAD_DIM)? {
            Some(size) => size,
            None if hidden % heads == 0 => hidden / heads,
            None => return Err(missing(&["head_dim"], "given, where heads do not divide the hidden size")),
        };
        let intermediate = match (architecture, maybe(&config, &["moe_intermediate_size"])?) {
            ("qwen3_moe", Some(width)) => width,
            ("gpt2", _) => maybe(&config, &["n_inner"])?.unwrap_or(4 * hidden),
            _ => size(&config, INTERMEDIATE)?,
        };
        let heads = (heads, maybe(&config, KV_HEADS)?.unwrap_or(heads), head_dim);
        let mut shape = Self::decoder(name, (size(&config, VOCAB)?, hidden, layers), heads, intermediate);
        shape.max_context = maybe(&config, CONTEXT)?;
        if ["mixtral", "qwen3_moe"].contains(&architecture) {
            let experts = size(&config, &["num_local_experts", "num_experts"])?;
            shape.feed_forward =
                FeedForward::Experts { intermediate, experts, active: size(&config, &["num_experts_per_tok"])? };
        }
        let mut shape = shape.built_as(architecture);
        // Defaults of transformers where the file says nothing.
        let tied_unless_told = ["gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "t5"].contains(&architecture);
        shape.tied = config.flag("tie_word_embeddings").unwrap_or(tied_unless_told);
        let says_all = ["llama", "qwen3", "qwen3_moe"].contains(&architecture);
        if let Some(all) = config.flag("attention_bias").filter(|_| says_all) {
            (shape.biases.qkv, shape.biases.output) = (all, all);
        }
        if architecture == "t5" {
            shape.layers = maybe(&config, &["num_decoder_layers"])?.unwrap_or(layers);
            shape.position_buckets = maybe(&config, &["relative_attention_num_buckets"])?.unwrap_or(32);
            if config.text("feed_forward_proj").is_some_and(|kind| kind.starts_with("gated")) {
                shape.feed_forward = FeedForward::Gated { intermediate };
            }
        }
        if let Some(windows) = Windows::of_config(architecture, &config) {
            if ["qwen2", "qwen3"].contains(&architecture) && windows.count(layers).is_none() {
                return Err(missing(&["max_window_layers"], "a number, where a window is used"));
            }
            // Architectures that are not known to have windows have none, whatever the file says.
            shape.window = windows.count(layers).map(|layers| WindowedLayers { window: windows.window(), layers });
        }
        match shape.parameters_at_most() {
            parameters if parameters > MOST_PARAMETERS => Err(ConfigError::TooMany { parameters }),
            _ => Ok(shape),
        }
    }
}
