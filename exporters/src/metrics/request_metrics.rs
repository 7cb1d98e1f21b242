//! Follows requests by their steps: gaps between tokens, and requests in flight. Pure.

use candlescope_core::{Phase, RequestRecord, Schedule, StepAction, StepRecord};
use std::collections::HashMap;

/// Requests followed at once. A request that is never closed must not cost memory for ever; the one without a step for
/// the longest time is dropped.
const MAX_OPEN: usize = 4096;

#[derive(Debug, Default, Clone, Copy)]
struct Open {
    /// When its latest step ended.
    latest_ns: i64,
    /// The step that yielded the latest token.
    token: Option<Token>,
    /// Steps that yielded a token.
    tokens: u64,
    /// Whether sampling is a step of its own here, and so the step that yields the token.
    samples: bool,
    /// Context over all sequences.
    context: u64,
}

/// A step that yields a token.
#[derive(Debug, Clone, Copy)]
struct Token {
    step: u64,
    end_ns: i64,
    /// Context of one sequence after it, and tokens of one sequence in it.
    context: Option<(u64, u64)>,
}

/// The requests that had a step and have not ended.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: HashMap<u64, Open>,
    /// Whether steps may be missing.
    sampled: bool,
    /// The schedule that decides which, if nothing else leaves out steps.
    schedule: Option<Schedule>,
}

impl Requests {
    /// Notes that steps may be missing: only those that `schedule` leaves out, if it is given.
    pub(crate) fn sampled(&mut self, schedule: Option<Schedule>) {
        (self.sampled, self.schedule) = (true, schedule);
    }

    /// Whether the request can have no other token step between these two.
    ///
    /// If steps may be missing, the context tells: it grows by what the later step adds. If it does not grow, or is not
    /// stated, two steps are adjacent if all steps with numbers in between were recorded.
    fn adjacent(&self, before: &Token, after: &Token) -> bool {
        if !self.sampled {
            return true;
        }
        if let (Some((earlier, _)), Some((later, added))) = (before.context, after.context)
            && later > earlier
        {
            return later == earlier + added;
        }
        let mut between = before.step.saturating_add(1)..after.step;
        let recorded = |n| self.schedule.is_some_and(|s| s.action(n) == StepAction::Record);
        // A window of a schedule may be long, but tokens of one request are never this many steps apart.
        between.is_empty() || (between.end - between.start <= 4_096 && between.all(recorded))
    }

    /// Takes a step; returns the gap to the request's previous token in nanoseconds, if this step yields one.
    ///
    /// As in the analysis: sampling marked as a step of its own yields the token, otherwise the last prefill step and
    /// each decode step do.
    pub(crate) fn step(&mut self, step: &StepRecord) -> Option<u64> {
        let request = step.request?;
        let sequences = u64::from(step.batch.unwrap_or(1).max(1));
        let end_ns = step.host_start.plus_ns(step.host_dur_ns).0;
        let tokens = step.tokens.map_or(1, |n| u64::from(n) / sequences);
        let context = step.context_len.map(|context| (u64::from(context), tokens));
        let token = Token { step: step.step, end_ns, context };
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&request) {
            let idle = self.open.iter().min_by_key(|(_, open)| open.latest_ns).map(|(&request, _)| request);
            idle.map(|idle| self.open.remove(&idle));
        }
        let open = self.open.entry(request).or_default();
        open.latest_ns = open.latest_ns.max(end_ns);
        if let Some((context, _)) = context {
            open.context = context * sequences;
        }
        let before = match step.phase {
            Some(Phase::Sample) if !open.samples => {
                // The steps before were forward passes, not tokens.
                (open.samples, open.tokens, open.token) = (true, 1, Some(token));
                None
            }
            // If a prompt is processed in chunks, only the last one yields a token.
            Some(Phase::Prefill) if !open.samples => {
                (open.tokens, open.token) = (1, Some(token));
                None
            }
            Some(Phase::Sample) => open.token(token),
            Some(Phase::Decode) if !open.samples => open.token(token),
            _ => None,
        };
        let before = before.filter(|before| self.adjacent(before, &token))?;
        u64::try_from(end_ns - before.end_ns).ok()
    }

    /// Takes the end of a request; returns the time per output token after the first, in nanoseconds.
    pub(crate) fn end(&mut self, request: &RequestRecord) -> Option<f64> {
        let open = self.open.remove(&request.request).unwrap_or_default();
        let sequences = u64::from(request.batch.unwrap_or(1).max(1));
        let of_each = request.output_tokens.map(|n| n / sequences);
        // Along the longest sequence: if others stop early, the steps give its number of tokens; if a step yields
        // several tokens, the number of tokens does.
        let longest = match of_each {
            Some(n) => n.max(open.tokens),
            // If steps are missing, the others do not give the number of tokens.
            None if self.sampled => return None,
            None => open.tokens,
        };
        let gaps = longest.checked_sub(1).filter(|&n| n > 0)?;
        let all_came = !self.sampled || of_each.is_some_and(|n| open.tokens >= n);
        let last_step = open.token.filter(|_| all_came).map(|token| token.end_ns - request.host_start.0);
        let e2e = match (request.last_token_ns, last_step) {
            (Some(last), _) => last,
            (None, Some(end)) => u64::try_from(end).ok()?,
            // The request's end is the best estimate of its last token's time.
            (None, None) => request.host_dur_ns,
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
    /// Adds a token; returns the one before.
    fn token(&mut self, token: Token) -> Option<Token> {
        self.tokens += 1;
        self.token.replace(token)
    }
}
