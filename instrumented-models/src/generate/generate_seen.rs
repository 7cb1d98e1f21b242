//! The loop of models that look at an image.
//!
//! candle passes image and prompt through the model in one call, and takes nothing that was made of the image before. So
//! the first step of a request is a `prefill` that contains the tower's pass, as it is in a program that calls candle:
//! time to first token is that program's. How much of it is the tower's is told by a pass of the image through the tower
//! alone, [`see`], a step `vision` before the request.

use super::{Context, GenerateError, GenerateOptions, GenerationOutput, TokenEvent, generate_with, wanted_of};
use crate::causal_lm::CausalLm;
use crate::load::LoadedVision;
use candlescope_core::annotate;
use candlescope_core::llm;

/// Passes the image that was shown to the model through its tower alone, as a step `vision` whose tokens are patches.
///
/// # Errors
/// If no image was shown, or the pass fails.
pub fn see(loaded: &LoadedVision) -> Result<(), GenerateError> {
    let model = &loaded.model;
    let (batch, patches) = model.shown().unwrap_or((1, 1));
    let _step = llm::vision(llm::Tokens::new(batch * patches).context(patches).batch(batch));
    annotate(wanted_of(batch, patches, patches));
    // Until the device has finished, so that the phase does not end before its work.
    let looked = model.look().and_then(|_| model.device().synchronize());
    looked.map_err(|cause| GenerateError::Step { step: "the tower's pass".into(), cause })
}

/// Writes a text about the image that was shown, after `prompts`, tokens of equal length among which are those that
/// stand for the image. Calls `on_token` for each new token.
///
/// # Errors
/// If no image was shown to as many sequences, the prompts do not fit the model, an option is invalid, or a step fails.
pub fn generate_seen(
    loaded: &mut LoadedVision,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(TokenEvent<'_>),
) -> Result<GenerationOutput, GenerateError> {
    let LoadedVision { model, tokenizer, info, .. } = loaded;
    let context = Context::of(info, tokenizer.as_ref(), options);
    generate_with(model, &context, prompts, options, on_token)
}
