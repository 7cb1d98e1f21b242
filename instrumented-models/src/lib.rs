//! Instrumented candle models: wrapped layers, models made of them, weights, tokenizers and a generation loop.
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

pub use candlescope_core::run::CANDLE_VERSION;

mod blocks;
mod candle_error;
pub mod candle_models;
pub mod causal_lm;
pub mod chat;
pub mod config;
pub mod encoder_decoder;
pub mod free_memory;
pub mod generate;
pub mod gpt2;
mod hub;
pub mod image;
pub mod info;
pub mod layers;
pub mod llama;
pub mod load;
#[cfg(feature = "onnx")]
pub mod onnx;
mod paddleocr_vl;
mod sampling;
mod slot_model;
pub mod slots;
pub mod source;
mod splitmix;
pub mod threads;
pub mod tokenizer;
mod untrusted;
pub mod weights;

pub use candle_error::candle_message;
pub use causal_lm::{CausalLm, Inspect};
pub use config::ModelConfig;
pub use encoder_decoder::{EncoderDecoder, Source};
pub use generate::{
    Encoding, FinishReason, GenerateError, GenerateOptions, GenerationOutput, TokenEvent, encode, generate,
    generate_for, generate_from, generate_seen, see,
};
pub use gpt2::Gpt2;
pub use hub::HubError;
pub use image::{Image, ImageError, Picture};
pub use info::ModelInfo;
pub use llama::Llama;
pub use load::{
    AnyModel, Engine, HeldModel, LoadError, LoadOptions, LoadedEncoder, LoadedEncoderDecoder, LoadedModel,
    LoadedVision, PromptError, PromptTooLong, SourceTooLong, TextModel,
};
pub use sampling::{Sampler, SamplingOptions};
pub use source::ModelSource;
pub use tokenizer::Tokenizer;
