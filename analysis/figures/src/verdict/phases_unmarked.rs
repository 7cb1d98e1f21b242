//! A model of candle ran, and no step says its phase.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

/// What the head of a decoder is called, in safetensors and in GGUF files.
const HEADS: &[&str] = &["lm_head", "output", "output_layer"];

/// Without a phase each outermost span of the model is a step of its own, often a single layer: there are no tokens, no
/// FLOPs of a forward pass, no MFU and no MBU.
///
/// Tokens and context cannot be worked out from what is loaded and entered: spans tell of no tensor, so that the pass of
/// a prompt, of a part of one and of a single token enter the same layers in the same order, and times are no proof.
/// What is certain is how many passes there were: each goes through the head once.
pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let steps: u64 = run.phases.rows.iter().map(|row| row.steps).sum();
    let is_marked = run.phases.rows.iter().any(|row| row.is_phase);
    let is_candle = run.intervals.paths.iter().any(|path| path.target.starts_with("candle_transformers::models"));
    if steps == 0 || is_marked || !is_candle {
        return Vec::new();
    }
    let passes = passes(run);
    let message = match passes {
        Some(_) => {
            "a model of candle ran in {steps} steps without a phase: each span around which nothing is open is a step. \
             Its head ran {passes} times, once for each pass; how many tokens a pass had, and after how many others, \
             cannot be seen from outside"
        }
        None => {
            "a model of candle ran in {steps} steps without a phase: each span around which nothing is open is a step, and \
             how many tokens a pass had cannot be seen from outside"
        }
    };
    let finding = Finding::new(
        Code::PhasesUnmarked,
        message,
        "Put `let _step = candlescope::llm::decode(Tokens::new(1).context(n));` before each forward pass (`prefill` for \
         the prompt, `encode` for a model that generates nothing): that gives steps of whole passes, tokens per second, \
         and with observe() FLOPs, MFU and MBU",
    );
    let finding = finding.count("steps", steps);
    vec![match passes {
        Some(passes) => finding.count("passes", passes),
        None => finding,
    }]
}

/// How often the head ran, if there is one, and one only.
fn passes(run: &Analysis) -> Option<u64> {
    let is_head = |rollup: &str| HEADS.contains(&rollup.rsplit('/').next().unwrap_or(rollup));
    let mut heads = run.intervals.paths.iter().filter(|path| path.is_module && is_head(&path.rollup));
    let (Some(head), None) = (heads.next(), heads.next()) else { return None };
    Some(head.calls).filter(|calls| *calls > 0)
}
