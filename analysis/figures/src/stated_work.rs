//! FLOPs and bytes as intervals and steps state them.

use candlescope_schema::{SpanRecord, StepRecord};

/// Work that is stated on an interval or a step, or summed over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatedWork {
    /// Analytic FLOPs that the model needs, without masked ones; `None` if nothing that was added states them.
    pub flops: Option<u64>,
    /// FLOPs that are executed, masked ones included; of intervals that do not say, those of `flops`.
    pub flops_executed: Option<u64>,
    /// Analytic bytes of weights and KV cache.
    pub bytes: Option<u64>,
    /// The same with activations in and out of operations.
    pub io_bytes: Option<u64>,
}

impl StatedWork {
    /// What one interval states of itself, without those inside it; executed FLOPs are `flops` if it gives none.
    #[inline]
    pub fn of_span(span: &SpanRecord) -> Self {
        let SpanRecord { flops, flops_executed, bytes, io_bytes, .. } = *span;
        Self { flops, flops_executed: flops_executed.or(flops), bytes, io_bytes }
    }

    /// What a step's record states: sums over the intervals in it.
    pub fn of_step(step: &StepRecord) -> Self {
        let StepRecord { flops, flops_executed, bytes, io_bytes, .. } = *step;
        Self { flops, flops_executed, bytes, io_bytes }
    }

    /// Adds what is stated: a figure is `None` until one of those that are added has it.
    pub fn add(&mut self, more: Self) {
        for (into, more) in [
            (&mut self.flops, more.flops),
            (&mut self.flops_executed, more.flops_executed),
            (&mut self.bytes, more.bytes),
            (&mut self.io_bytes, more.io_bytes),
        ] {
            *into = more.map(|more| into.unwrap_or(0).saturating_add(more)).or(*into);
        }
    }

    /// Whether FLOPs or bytes are stated.
    pub fn is_stated(&self) -> bool {
        self.flops.or(self.bytes).or(self.io_bytes).is_some()
    }

    /// FLOPs ÷ bytes with activations; `None` if activations are not stated, because without them it is only an upper bound.
    pub fn intensity(&self) -> Option<f64> {
        let (flops, bytes) = self.flops.zip(self.io_bytes).filter(|(_, bytes)| *bytes > 0)?;
        Some(flops as f64 / bytes as f64)
    }
}
