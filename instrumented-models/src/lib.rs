//! Instrumented candle models: wrapped layers, models made of them, weights, tokenizers and a generation loop.
//!
//! What is documented is promised: decoders, which are loaded and generate, at the root, [`layers`], [`slots`],
//! [`weights`] and [`chat`]. Models that encode or look at pictures, and what only the command line needs, are hidden.
//!
//! ```
//! use candlescope_models::{GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
//! let source = ModelSource::parse("embedded")?;
//! let mut loaded = LoadedModel::load(&source, &LoadOptions::default())?;
//! let prompt = loaded.encode_prompt("Hello")?;
//! let options = GenerateOptions { max_new_tokens: 4, ..GenerateOptions::default() };
//! let output = generate(&mut loaded, &[prompt], &options, &mut |_| {})?;
//! assert_eq!(output.sequences[0].tokens.len(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod blocks;
mod candle_error;
#[doc(hidden)]
pub mod candle_models;
#[doc(hidden)]
pub mod causal_lm;
pub mod chat;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod encoder_decoder;
#[doc(hidden)]
pub mod free_memory;
#[doc(hidden)]
pub mod generate;
#[doc(hidden)]
pub mod gpt2;
mod hub;
#[doc(hidden)]
pub mod image;
#[doc(hidden)]
pub mod info;
pub mod layers;
#[doc(hidden)]
pub mod llama;
#[doc(hidden)]
pub mod load;
#[doc(hidden)]
#[cfg(feature = "onnx")]
pub mod onnx;
mod paddleocr_vl;
mod sampling;
mod slot_model;
pub mod slots;
#[doc(hidden)]
pub mod source;
#[doc(hidden)]
pub mod threads;
#[doc(hidden)]
pub mod tokenizer;
mod untrusted;
pub mod weights;

#[doc(hidden)]
pub use candle_error::candle_message;
#[doc(hidden)]
pub use causal_lm::{CausalLm, Inspect};
pub use config::{ConfigError, ModelConfig};
#[doc(hidden)]
pub use encoder_decoder::{EncoderDecoder, Source};
#[doc(hidden)]
pub use generate::{Encoding, encode, generate_from, generate_seen, see};
pub use generate::{
    FinishReason, GenerateError, GenerateOptions, GenerationOutput, Sequence, TokenEvent, generate, generate_for,
};
#[doc(hidden)]
pub use gpt2::Gpt2;
pub use hub::HubError;
#[doc(hidden)]
pub use image::{Image, ImageError, Picture};
pub use info::ModelInfo;
pub use layers::kv_store::KvCacheDType;
pub use llama::Llama;
#[doc(hidden)]
pub use load::{AnyModel, HeldModel, LoadedEncoder, LoadedEncoderDecoder, LoadedVision, SourceTooLong, TextModel};
pub use load::{Engine, LoadError, LoadOptions, LoadedModel, PromptError, PromptTooLong};
#[doc(hidden)]
pub use sampling::Sampler;
pub use sampling::SamplingOptions;
pub use source::{ModelSource, SourceError};
pub use tokenizer::{Tokenizer, TokenizerError};
