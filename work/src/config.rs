//! What the files of a model say of its dimensions: `config.json` of Hugging Face's transformers, and the metadata of
//! GGUF.

use serde_json::{Map, Value};

// What architectures call a dimension.
pub(crate) const VOCAB: &[&str] = &["vocab_size"];
pub(crate) const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
pub(crate) const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
pub(crate) const HEADS: &[&str] = &["num_attention_heads", "n_head", "num_heads", "n_heads"];
pub(crate) const KV_HEADS: &[&str] = &["num_key_value_heads", "multi_query_group_num"];
pub(crate) const HEAD_DIM: &[&str] = &["head_dim", "d_kv"];
pub(crate) const INTERMEDIATE: &[&str] = &["intermediate_size", "d_ff", "n_inner"];
pub(crate) const WINDOW: &[&str] = &["sliding_window"];
pub(crate) const CONTEXT: &[&str] = &["max_position_embeddings", "n_positions", "n_ctx"];

/// The fields of a `config.json`.
#[derive(Debug, Clone, Copy)]
pub struct Config<'a> {
    fields: &'a Map<String, Value>,
    /// Where else a field may stand.
    outer: Option<&'a Map<String, Value>>,
}

impl<'a> Config<'a> {
    /// The fields of a `config.json`; nothing is copied.
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
}

/// What a configuration says of dimensions, whatever the architecture calls them and however much that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dimensions {
    /// Entries of the vocabulary.
    pub vocab: Option<u64>,
    /// Features of the residual stream.
    pub hidden: Option<u64>,
    /// Layers of the decoder.
    pub layers: Option<u64>,
    /// Query heads of a layer.
    pub heads: Option<u64>,
    /// Key and value heads: as many as of queries where nothing is said of them.
    pub kv_heads: Option<u64>,
    /// Features of a head: the hidden size divided among the heads where nothing is said of them.
    pub head_dim: Option<u64>,
    /// Width of the feed-forward network.
    pub intermediate: Option<u64>,
    /// Longest context in tokens.
    pub context: Option<u64>,
    /// Positions of the window of attention that is named, whichever layers have it.
    pub window: Option<u64>,
}

impl Dimensions {
    /// As far as these fields say.
    pub fn of(config: &Config<'_>) -> Self {
        let (hidden, heads) = (config.number(HIDDEN), config.number(HEADS));
        // What is a list in the file, one for each layer, is no number of all.
        let unless_told = |value: Option<u64>, name| value.filter(|_| config.get(name).is_none());
        let some = heads.filter(|heads| *heads > 0);
        let divides = hidden.zip(some).filter(|(hidden, heads)| hidden % heads == 0);
        let divided = divides.map(|(hidden, heads)| hidden / heads);
        Self {
            vocab: config.number(VOCAB),
            hidden,
            layers: config.number(LAYERS),
            heads,
            kv_heads: config.number(KV_HEADS).or(unless_told(some, KV_HEADS[0])),
            head_dim: config.number(HEAD_DIM).or(unless_told(divided, HEAD_DIM[0])),
            intermediate: config.number(INTERMEDIATE),
            context: config.number(CONTEXT),
            window: config.number(WINDOW),
        }
    }

    /// As the metadata of a GGUF file have them, under the keys of llama.cpp. `number` looks up a key such as
    /// `llama.attention.head_count`: `None` where it is missing, `Some(None)` where it is not one number.
    pub fn of_gguf(architecture: &str, number: impl Fn(&str) -> Option<Option<u64>>) -> Self {
        let get = |name: &str| number(&format!("{architecture}.{name}"));
        let [hidden, heads] = ["embedding_length", "attention.head_count"].map(|name| get(name).flatten());
        let divides = hidden.zip(heads).filter(|(hidden, heads)| *heads > 0 && hidden % heads == 0);
        Self {
            // The embedding table has as many rows.
            vocab: None,
            hidden,
            heads,
            layers: get("block_count").flatten(),
            kv_heads: get("attention.head_count_kv").unwrap_or(heads),
            head_dim: get("attention.key_length").unwrap_or(divides.map(|(hidden, heads)| hidden / heads)),
            intermediate: get("feed_forward_length").flatten(),
            context: get("context_length").flatten(),
            window: get("attention.sliding_window").flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(config: &Value) -> Dimensions {
        Dimensions::of(&Config::new(config.as_object().unwrap()))
    }

    #[test]
    fn what_is_not_said_follows_from_the_rest_and_lists_are_no_numbers() {
        let gpt2 = of(&json!({"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": null, "n_ctx": 64}));
        assert_eq!((gpt2.kv_heads, gpt2.head_dim, gpt2.intermediate), (Some(4), Some(8), None));
        assert_eq!((gpt2.layers, gpt2.context), (Some(2), Some(64)));
        let lists = of(&json!({"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": [1, 2],
            "head_dim": [8, 4]}));
        assert_eq!((lists.heads, lists.kv_heads, lists.head_dim), (Some(4), None, None));
        assert_eq!(of(&json!({"hidden_size": 32, "num_attention_heads": 0})).kv_heads, None);
    }

    #[test]
    fn a_gguf_file_has_the_keys_of_llama_cpp() {
        let number = |key: &str| match key {
            "llama.embedding_length" => Some(Some(64)),
            "llama.attention.head_count" => Some(Some(4)),
            "llama.attention.head_count_kv" => Some(None),
            "llama.attention.sliding_window" => Some(Some(512)),
            _ => None,
        };
        let known = Dimensions::of_gguf("llama", number);
        assert_eq!((known.hidden, known.heads, known.head_dim), (Some(64), Some(4), Some(16)));
        assert_eq!((known.kv_heads, known.window), (None, Some(512)), "a number for each layer is none of all");
        assert_eq!(Dimensions::of_gguf("other", number), Dimensions::default());
    }
}
