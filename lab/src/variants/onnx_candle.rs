//! Runs a model's ONNX graph with candle-onnx, on the CPU.

use super::runner::{Runner, TextActivations, TimedContinuation, greedy};
use crate::hardware::case_error;
use crate::method::{Cancel, CaseError};
use candle_core::Tensor;
use candlescope_core::run::CANDLE_VERSION;
use candlescope_models::onnx::{Evaluator, OnnxFiles};

/// A graph in candle-onnx.
pub(super) struct CandleOnnxRunner {
    graph: Evaluator,
    weight_bytes: u64,
}

impl CandleOnnxRunner {
    /// The graph in `files`.
    pub(super) fn open(files: &OnnxFiles) -> Result<Self, CaseError> {
        let graph = Evaluator::open(files).map_err(|error| CaseError::Failed(error.to_string()))?;
        Ok(Self { weight_bytes: graph.weight_bytes(), graph })
    }
}

fn values(tensor: &Tensor) -> candle_core::Result<Vec<f32>> {
    tensor.flatten_all()?.to_vec1()
}

impl Runner for CandleOnnxRunner {
    fn generate(&mut self, prompt: &[u32], count: usize, cancel: &Cancel) -> Result<TimedContinuation, CaseError> {
        self.graph.reset();
        greedy(prompt, count, cancel, |next| {
            let logits = self.graph.forward(next, &[next.len() - 1]).and_then(|logits| values(&logits));
            logits.map_err(|error| case_error(&error))
        })
    }

    fn inspect(&mut self, tokens: &[u32], from: usize) -> Result<TextActivations, CaseError> {
        let at: Vec<usize> = (from..tokens.len()).collect();
        let made = self.graph.inspect(tokens, &at).and_then(|(logits, blocks)| {
            let blocks = blocks.iter().map(values).collect::<candle_core::Result<_>>()?;
            Ok(TextActivations { logits: values(&logits)?, blocks })
        });
        made.map_err(|error| case_error(&error))
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    fn kv_bytes(&self) -> Option<u64> {
        Some(self.graph.kv_bytes()).filter(|bytes| *bytes > 0)
    }

    fn runs_on(&self) -> Option<String> {
        Some(format!("candle-onnx {CANDLE_VERSION}"))
    }
}
