//! One pass of a model that generates nothing.
//!
//! A request covers one call of [`encode`], and has one `encode` step: the pass and the fetching of its result. There
//! are no output tokens, and no time to the first of them.

use super::{GenerateError, check_tokens, common_length, wanted_of};
use crate::load::{LoadedEncoder, SourceTooLong};
use candle_core::{DType, Tensor};
use candlescope_core::llm::{self, Request};
use candlescope_core::{Outcome, annotate};
use std::time::Instant;

/// The result of [`encode`].
#[derive(Debug, Clone)]
pub struct Encoding {
    /// For each text the mean of its tokens' hidden states after the last layer.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of each text.
    pub tokens: usize,
    /// When the request began.
    pub started: Instant,
    /// When the vectors existed on the host.
    pub ended: Instant,
}

/// Passes `texts`, tokens of equal length, through the encoder.
///
/// # Errors
/// If the texts are empty, too long, of different lengths or of another vocabulary, or the pass fails.
pub fn encode(loaded: &LoadedEncoder, texts: &[Vec<u32>]) -> Result<Encoding, GenerateError> {
    let dimensions = loaded.model.dimensions();
    let tokens = common_length(texts)?;
    SourceTooLong::check(tokens, dimensions.source_positions)?;
    check_tokens(texts.iter().flatten(), dimensions.vocab_size)?;
    let batch = texts.len();
    let started = Instant::now();
    let request = Request::new("embeddings", &loaded.info.name).prompt_tokens(tokens).batch(batch);
    // What holds wherever this ends with an error.
    request.outcome(Outcome::Failed);
    let in_request = request.enter();
    let vectors = {
        let _step = llm::encode(llm::Tokens::new(batch * tokens).context(tokens).batch(batch));
        annotate(wanted_of(batch, tokens, tokens));
        let flat: Vec<u32> = texts.iter().flatten().copied().collect();
        let pass = || {
            let ids = Tensor::from_vec(flat, (batch, tokens), loaded.model.device())?;
            let hidden = loaded.model.forward(&ids)?;
            // To the host, so that the step ends when the device has finished.
            hidden.to_dtype(DType::F32)?.mean(1)?.to_vec2::<f32>()
        };
        pass().map_err(|cause| GenerateError::Step { step: "the encoder's pass".into(), cause })?
    };
    request.outcome(Outcome::Done);
    drop(in_request);
    Ok(Encoding { vectors, tokens, started, ended: Instant::now() })
}
