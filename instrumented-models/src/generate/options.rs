//! How to generate.

use crate::info::ModelInfo;
use crate::sampling::SamplingOptions;
use crate::tokenizer::Tokenizer;

/// How to generate: how many tokens, how they are chosen, and what ends a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens to generate for each sequence.
    pub max_new_tokens: usize,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Seed of sampled generation.
    pub seed: u64,
    /// Go on past the model's end tokens: for measurements of a given length.
    pub ignore_eos: bool,
    /// Tokens that end a sequence besides the model's own.
    pub stop_tokens: Vec<u32>,
    /// Keep keys and values. Without them, every step processes the whole text again.
    pub kv_cache: bool,
    /// Most tokens that are looked up in the text itself and checked in one pass, where its last tokens stood in it
    /// before (n-gram speculation); 0 passes each token by itself. For one sequence whose tokens are the most likely
    /// ones, with the cache; needs a model that [checks](crate::CausalLm::checks_tokens) tokens.
    pub lookahead: usize,
    /// `gen_ai.operation.name` of the request: `text_completion` or `chat`.
    pub operation: String,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_new_tokens: 64,
            sampling: SamplingOptions::default(),
            seed: 42,
            ignore_eos: false,
            stop_tokens: Vec::new(),
            kv_cache: true,
            lookahead: 0,
            operation: "text_completion".into(),
        }
    }
}

/// What the loop needs to know besides the model.
#[derive(Debug)]
pub struct Context<'a> {
    /// The model's name in the request.
    pub name: &'a str,
    /// Tokens that end a sequence.
    pub stop: Vec<u32>,
    /// Decodes tokens to text.
    pub tokenizer: Option<&'a Tokenizer>,
}

impl<'a> Context<'a> {
    pub(crate) fn of(info: &'a ModelInfo, tokenizer: Option<&'a Tokenizer>, options: &GenerateOptions) -> Self {
        let mut stop = options.stop_tokens.clone();
        if !options.ignore_eos {
            stop.extend(&info.eos_tokens);
        }
        Self { name: &info.name, stop, tokenizer }
    }
}
