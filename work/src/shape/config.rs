//! A model's dimensions from its `config.json`, with the fields of Hugging Face's transformers.

use super::{ARCHITECTURES, FeedForward, ModelShape, WindowedLayers};
use crate::windows::Windows;
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
pub const MOST_PARAMETERS: u128 = 1_000_000_000_000_000;

/// No dimension of a real model is larger.
pub const LARGEST: u64 = 100_000_000;

// What architectures call a dimension.
const VOCAB: &[&str] = &["vocab_size"];
const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "num_heads", "n_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "multi_query_group_num"];
const HEAD_DIM: &[&str] = &["head_dim", "d_kv"];
const INTERMEDIATE: &[&str] = &["intermediate_size", "d_ff", "n_inner"];
const CONTEXT: &[&str] = &["max_position_embeddings", "n_positions", "n_ctx"];

/// The fields of a `config.json`.
#[derive(Debug, Clone, Copy)]
pub struct Config<'a> {
    fields: &'a Map<String, Value>,
    /// Where else a field may stand.
    outer: Option<&'a Map<String, Value>>,
}

impl<'a> Config<'a> {
    /// The fields themselves.
    pub fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields, outer: None }
    }

    /// The fields of the language model, which models that also see or hear keep apart.
    pub fn of_language_model(whole: &'a Map<String, Value>) -> Self {
        match whole.get("text_config").and_then(Value::as_object) {
            Some(fields) if fields.contains_key("hidden_size") => Self { fields, outer: Some(whole) },
            _ => Self::new(whole),
        }
    }

    /// The value of a field; what is null is not there.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A field that is text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.either(name, Value::as_str)
    }

    /// A field that is true or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.either(name, Value::as_bool)
    }

    fn either<T>(&self, name: &str, read: fn(&'a Value) -> Option<T>) -> Option<T> {
        let of = |fields: &'a Map<String, Value>| fields.get(name).and_then(read);
        of(self.fields).or_else(|| of(self.outer?))
    }

    /// The first of these that is a number: some models have lists under the names that others have numbers.
    pub fn number(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.fields.get(*name)?.as_u64())
    }

    /// The first of these that is there, which has to be a whole number above 0.
    fn maybe(&self, names: &[&str]) -> Result<Option<u64>, ConfigError> {
        let Some((name, value)) = names.iter().find_map(|name| Some((*name, self.get(name)?))) else { return Ok(None) };
        match value.as_u64() {
            Some(value) if value > LARGEST => Err(ConfigError::TooLarge { field: name.to_string(), value }),
            Some(value) if value > 0 => Ok(Some(value)),
            _ => Err(missing(&[name], "a whole number above 0")),
        }
    }

    /// The same of what has to be there.
    fn size(&self, names: &[&str]) -> Result<u64, ConfigError> {
        self.maybe(names)?.ok_or_else(|| missing(names, "a whole number above 0"))
    }
}

fn missing(names: &[&str], expected: &'static str) -> ConfigError {
    ConfigError::Field { field: names.join("` or `"), expected }
}

/// What a configuration says of dimensions, whatever the architecture calls them and however much that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dimensions {
    /// Entries of the vocabulary.
    pub vocab: Option<u64>,
    /// Features of the residual stream.
    pub hidden: Option<u64>,
    /// Layers.
    pub layers: Option<u64>,
    /// Query heads.
    pub heads: Option<u64>,
    /// Key and value heads: as many as of queries where nothing is said of them.
    pub kv_heads: Option<u64>,
    /// Features of a head: the hidden size divided among the heads where nothing is said of them.
    pub head_dim: Option<u64>,
    /// Width of the feed-forward network.
    pub intermediate: Option<u64>,
    /// Longest context in tokens.
    pub context: Option<u64>,
}

impl Dimensions {
    /// As far as these fields say.
    pub fn of(config: &Config<'_>) -> Self {
        let (hidden, heads) = (config.number(HIDDEN), config.number(HEADS));
        let some = heads.filter(|heads| *heads > 0);
        // What is a list in the file, one for each layer, is no number of all.
        let alike = some.filter(|_| config.get(KV_HEADS[0]).is_none());
        let divided =
            hidden.zip(some).filter(|(hidden, heads)| hidden % heads == 0).map(|(hidden, heads)| hidden / heads);
        Self {
            vocab: config.number(VOCAB),
            hidden,
            layers: config.number(LAYERS),
            heads,
            kv_heads: config.number(KV_HEADS).or(alike),
            head_dim: config.number(HEAD_DIM).or(divided),
            intermediate: config.number(INTERMEDIATE),
            context: config.number(CONTEXT),
        }
    }
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
        let (hidden, layers, heads) = (config.size(HIDDEN)?, config.size(LAYERS)?, config.size(HEADS)?);
        let head_dim = match config.maybe(HEAD_DIM)? {
            Some(size) => size,
            None if hidden % heads == 0 => hidden / heads,
            None => return Err(missing(&["head_dim"], "given, where heads do not divide the hidden size")),
        };
        let intermediate = match (architecture, config.maybe(&["moe_intermediate_size"])?) {
            ("qwen3_moe", Some(width)) => width,
            ("gpt2", _) => config.maybe(&["n_inner"])?.unwrap_or(4 * hidden),
            _ => config.size(INTERMEDIATE)?,
        };
        let heads = (heads, config.maybe(KV_HEADS)?.unwrap_or(heads), head_dim);
        let mut shape = Self::decoder(name, (config.size(VOCAB)?, hidden, layers), heads, intermediate);
        shape.max_context = config.maybe(CONTEXT)?;
        if ["mixtral", "qwen3_moe"].contains(&architecture) {
            let experts = config.size(&["num_local_experts", "num_experts"])?;
            shape.feed_forward =
                FeedForward::Experts { intermediate, experts, active: config.size(&["num_experts_per_tok"])? };
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
            shape.layers = config.maybe(&["num_decoder_layers"])?.unwrap_or(layers);
            shape.position_buckets = config.maybe(&["relative_attention_num_buckets"])?.unwrap_or(32);
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
