//! Requests as their steps come by: gaps between tokens, and what is in flight. Pure.

use candlescope_core::{Phase, RequestRecord, StepRecord};
use std::collections::HashMap;

/// Requests followed at once. A request that is never closed must not cost memory for ever; the one without a step for the longest
/// time makes room.
const MAX_OPEN: usize = 4096;

#[derive(Debug, Default, Clone, Copy)]
struct Open {
    /// When its latest step ended.
    latest_ns: i64,
    /// End of the step that yielded the latest token.
    token_ns: Option<i64>,
    /// Steps that yielded a token.
    tokens: u64,
    /// Sampling is a step of its own here, and so the one that yields the token.
    samples: bool,
    /// Context over all sequences.
    context: u64,
}

/// The requests that had a step and have not ended.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: HashMap<u64, Open>,
}

impl Requests {
    /// Takes a step; says the gap to the request's token before, in nanoseconds, where this step yields one.
    ///
    /// As in the analysis: sampling marked as a step of its own yields the token, otherwise the last prefill step and each decode
    /// step do.
    pub(crate) fn step(&mut self, step: &StepRecord) -> Option<u64> {
        let request = step.request?;
        let end = step.host_start.plus_ns(step.host_dur_ns).0;
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&request) {
            let idle = self.open.iter().min_by_key(|(_, open)| open.latest_ns).map(|(&request, _)| request);
            idle.map(|idle| self.open.remove(&idle));
        }
        let open = self.open.entry(request).or_default();
        open.latest_ns = open.latest_ns.max(end);
        if let Some(context) = step.context_len {
            open.context = u64::from(context) * u64::from(step.batch.unwrap_or(1).max(1));
        }
        let before = open.token_ns;
        match step.phase {
            Some(Phase::Sample) if !open.samples => {
                // What came before were forward passes, not tokens.
                (open.samples, open.tokens, open.token_ns) = (true, 1, Some(end));
                None
            }
            // Of a prompt in chunks only the last yields a token.
            Some(Phase::Prefill) if !open.samples => {
                (open.tokens, open.token_ns) = (1, Some(end));
                None
            }
            Some(Phase::Sample) => open.token(end, before),
            Some(Phase::Decode) if !open.samples => open.token(end, before),
            _ => None,
        }
    }

    /// Takes the end of a request; says the time for each output token after the first, in nanoseconds.
    pub(crate) fn end(&mut self, request: &RequestRecord) -> Option<f64> {
        let open = self.open.remove(&request.request).unwrap_or_default();
        let sequences = u64::from(request.batch.unwrap_or(1).max(1));
        // Along the longest sequence: steps count its tokens where others stop early, the tokens do where a step yields several.
        let longest = request.output_tokens.map_or(open.tokens, |n| (n / sequences).max(open.tokens));
        let gaps = longest.checked_sub(1).filter(|&n| n > 0)?;
        // Without steps the request's end is the closest thing known to its last token.
        let e2e = match open.token_ns {
            Some(end) => u64::try_from(end - request.host_start.0).ok()?,
            None => request.host_dur_ns,
        };
        let decoding = e2e.checked_sub(request.ttft_ns?).filter(|&ns| ns > 0)?;
        Some(decoding as f64 / gaps as f64)
    }

    /// Number of open requests.
    pub(crate) fn active(&self) -> usize {
        self.open.len()
    }

    /// Context of all open requests together, in tokens.
    pub(crate) fn context(&self) -> u64 {
        self.open.values().map(|open| open.context).sum()
    }
}

impl Open {
    fn token(&mut self, end: i64, before: Option<i64>) -> Option<u64> {
        self.tokens += 1;
        self.token_ns = Some(end);
        before.and_then(|before| u64::try_from(end - before).ok())
    }
}
