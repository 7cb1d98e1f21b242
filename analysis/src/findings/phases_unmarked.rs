//! A model of candle ran, and no step says its phase.

use crate::passes::Analysis;
use candlescope_core::run::{Code, Finding};

/// Without a phase each outermost span of the model is a step of its own, often a single layer: there are no tokens, no
/// FLOPs of a forward pass, no MFU and no MBU.
pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let steps: u64 = run.phases.rows.iter().map(|row| row.steps).sum();
    let is_marked = run.phases.rows.iter().any(|row| row.is_phase);
    let is_candle = run.intervals.paths.iter().any(|path| path.target.starts_with("candle_transformers::models"));
    if steps == 0 || is_marked || !is_candle {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::PhasesUnmarked,
        "a model of candle ran in {steps} steps without a phase: each span around which nothing is open is a step",
        "Put `let _step = candlescope::llm::decode(Tokens::new(1).context(n));` before each forward pass (`prefill` for \
         the prompt, `encode` for a model that generates nothing): that gives steps of whole passes, tokens per second, \
         and with observe() FLOPs, MFU and MBU",
    );
    vec![finding.count("steps", steps)]
}
