//! Steps for several requests, as each of their requests sees them.

use super::step_rows::StepRow;
use candlescope_schema::{Phase, Served};
use std::borrow::Cow;

/// The steps of a request, in order of start, with what each says of it. A step that serves several requests becomes
/// the request's own part of it: its tokens, its time, and its phase, which is the request's, whatever the step is
/// called. What the program says of the batch as a whole is left out.
pub(super) fn of_request<'a>(request: u64, steps: &[(&'a StepRow, Option<Served>)]) -> Vec<Cow<'a, StepRow>> {
    let first_output = steps.iter().position(|(_, served)| served.is_some_and(|served| served.output_tokens > 0));
    let part = |(at, (step, served)): (usize, &(&'a StepRow, Option<Served>))| {
        let Some(served) = served else { return Cow::Borrowed(*step) };
        // A prompt's chunks, the last of which yields the first token, and after that one step for each time that tokens
        // come. A prompt that is computed again later, or never to its end, is neither.
        let phase = match first_output {
            Some(first) if at <= first => Some(Phase::Prefill),
            Some(_) if served.output_tokens > 0 => Some(Phase::Decode),
            _ => None,
        };
        Cow::Owned(StepRow {
            phase,
            request: Some(request),
            serves: Vec::new(),
            tokens: Some(served.tokens),
            context_len: None,
            batch: Some(1),
            new_tokens: None,
            context_sum: None,
            sequences: None,
            ..(*step).clone()
        })
    };
    steps.iter().enumerate().map(part).collect()
}
