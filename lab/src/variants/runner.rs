//! What runs a variant.

use super::variant::Variant;
use crate::hardware::case_error;
use crate::method::{Cancel, CaseError, Measurement};
use candle_core::Tensor;
use candlescope_models::generate::{Context, generate_with};
use candlescope_models::weights::HeldModel;
use candlescope_models::{GenerateOptions, Inspect};
use std::time::Instant;

/// A greedy continuation with its times.
#[derive(Debug, Clone)]
pub struct TimedContinuation {
    /// The tokens that were generated, without those of the prompt.
    pub tokens: Vec<u32>,
    /// When the request began on the host, before its prompt was processed.
    pub started: Instant,
    /// When each token was known on the host.
    pub times: Vec<Instant>,
    /// When the request ended on the host, after its last token.
    pub ended: Instant,
}

impl TimedContinuation {
    /// The figures of a request: `docs/definitions.md` says what each means.
    pub fn measurement(&self) -> Measurement {
        let ns = |from: Instant, to: Instant| (to - from).as_nanos() as f64;
        let e2e = self.ended - self.started;
        let first = self.times.first().copied();
        let steps = self.times.len().saturating_sub(1) as f64;
        let tpot = first.filter(|_| steps > 0.0).map(|first| ns(first, self.ended) / steps);
        Measurement::new(u64::try_from(e2e.as_nanos()).unwrap_or(u64::MAX))
            .figure("ttft_ns", first.map(|first| ns(self.started, first)))
            .figure("tpot_ns", tpot)
            .figure("output_tps", Some(self.tokens.len() as f64 / e2e.as_secs_f64()))
    }
}

/// What a variant makes of a text that is passed whole.
#[derive(Debug, Clone, Default)]
pub struct TextActivations {
    /// Logits, a row of the vocabulary for each position.
    pub logits: Vec<f32>,
    /// The output of each block, all positions one after another.
    pub blocks: Vec<Vec<f32>>,
}

/// A variant that is ready to run.
pub trait Runner {
    /// The greedy continuation of `prompt` by `count` tokens, whatever ends a text.
    ///
    /// # Errors
    /// When it fails, or is cancelled.
    fn generate(&mut self, prompt: &[u32], count: usize, cancel: &Cancel) -> Result<TimedContinuation, CaseError>;

    /// Logits of the positions from `from` on of a new text, and each block's output at all of them.
    ///
    /// # Errors
    /// When it fails.
    fn inspect(&mut self, tokens: &[u32], from: usize) -> Result<TextActivations, CaseError>;

    /// Bytes of the weights that are held.
    fn weight_bytes(&self) -> u64;

    /// Bytes of keys and values that are held; `None` where somebody else holds them.
    fn kv_bytes(&self) -> Option<u64>;

    /// What runs it, where that is not candle: a library with its version and providers.
    fn runs_on(&self) -> Option<String> {
        None
    }
}

/// The greedy continuation of `prompt` by a graph: `step` takes the next tokens of a text, and gives the logits after
/// the last one.
#[cfg(feature = "onnx")]
pub(super) fn greedy(
    prompt: &[u32],
    count: usize,
    cancel: &Cancel,
    mut step: impl FnMut(&[u32]) -> Result<Vec<f32>, CaseError>,
) -> Result<TimedContinuation, CaseError> {
    let started = Instant::now();
    let (mut tokens, mut times) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut next = prompt.to_vec();
    for _ in 0..count {
        if cancel.is_cancelled() {
            return Err(CaseError::Cancelled);
        }
        let token = super::quality::top(&step(&next)?).and_then(|token| u32::try_from(token).ok());
        let token = token.ok_or_else(|| CaseError::Failed("the graph gave no logits".into()))?;
        tokens.push(token);
        times.push(Instant::now());
        next = vec![token];
    }
    Ok(TimedContinuation { tokens, started, times, ended: Instant::now() })
}

/// A variant that candle runs.
pub(super) struct CandleRunner {
    model: Box<dyn Inspect + Send>,
    weight_bytes: u64,
    kv_cache: bool,
    name: String,
}

impl CandleRunner {
    pub(super) fn new(held: HeldModel, variant: Variant, name: &str) -> Self {
        let HeldModel { model, weight_bytes, .. } = held;
        Self { model, weight_bytes, kv_cache: variant != Variant::NoCache, name: name.to_string() }
    }
}

impl Runner for CandleRunner {
    fn generate(&mut self, prompt: &[u32], count: usize, cancel: &Cancel) -> Result<TimedContinuation, CaseError> {
        if cancel.is_cancelled() {
            return Err(CaseError::Cancelled);
        }
        let options = GenerateOptions {
            max_new_tokens: count,
            ignore_eos: true,
            kv_cache: self.kv_cache,
            ..GenerateOptions::default()
        };
        let context = Context { name: &self.name, stop: Vec::new(), tokenizer: None };
        let prompts = [prompt.to_vec()];
        let output = generate_with(self.model.as_mut(), &context, &prompts, &options, &mut |_| {})
            .map_err(|error| crate::suites::case_error(&error))?;
        let tokens = output.sequences.into_iter().next().map(|sequence| sequence.tokens).unwrap_or_default();
        Ok(TimedContinuation { tokens, started: output.started, times: output.token_times, ended: output.ended })
    }

    fn inspect(&mut self, tokens: &[u32], from: usize) -> Result<TextActivations, CaseError> {
        let mut blocks = Vec::new();
        let mut pass = || -> candle_core::Result<Vec<f32>> {
            self.model.reset();
            let tokens = Tensor::new(tokens, self.model.device())?.unsqueeze(0)?;
            let logits = self.model.inspect(&tokens, &mut |_, xs| {
                blocks.push(xs.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1()?);
                Ok(())
            })?;
            let count = logits.dim(1)?;
            logits.narrow(1, from, count - from)?.flatten_all()?.to_vec1()
        };
        let logits = pass().map_err(|error| case_error(&error))?;
        Ok(TextActivations { logits, blocks })
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    fn kv_bytes(&self) -> Option<u64> {
        Some(self.model.kv_bytes())
    }
}
