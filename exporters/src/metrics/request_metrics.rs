//! Follows requests by their steps: gaps between tokens, and requests in flight. Pure.
//!
//! Steps come thread by thread, and those of one request may run on any thread, so their order is not that of time.
//! Each request therefore holds its latest steps back, ordered by their ends, and gaps are taken when no earlier step
//! can come any more.

use candlescope_core::{HostNs, Phase, RequestRecord, Schedule, StepAction, StepRecord};
use std::collections::{HashMap, VecDeque};

/// Requests followed at once. A request that is never closed must not cost memory for ever; the one without a step for
/// the longest time is dropped.
const MAX_OPEN: usize = 4096;

/// How long a step is held back for one that ended before it and comes later: far longer than the pipeline takes to
/// look at every thread.
const HELD_NS: i64 = 2_000_000_000;

/// Steps that a request holds back at once.
///
/// Overload policy: the earliest is released before its time is over.
const MAX_HELD: usize = 64;

#[derive(Debug, Default)]
struct OpenRequest {
    /// When its latest step ended.
    latest_ns: i64,
    /// Steps that have come and whose gaps are not taken yet, ordered by their ends.
    held: VecDeque<HeldStep>,
    /// The step that yielded the latest token.
    token: Option<Token>,
    /// Steps that yielded a token.
    tokens: u64,
    /// Whether sampling is a step of its own here, and so the step that yields the token.
    samples: bool,
    /// Context over all sequences.
    context: u64,
}

/// A step of a request, held back.
#[derive(Debug, Clone, Copy)]
struct HeldStep {
    token: Token,
    kind: Kind,
}

/// What a step means for a request's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It works for this request alone, and its phase tells.
    Alone(Option<Phase>),
    /// It serves several requests, and yields a token of this one.
    Served,
}

/// A step that yields a token.
#[derive(Debug, Clone, Copy)]
struct Token {
    step: u64,
    end_ns: i64,
    /// Context of one sequence after it, and tokens of one sequence in it.
    context: Option<(u64, u64)>,
}

/// Time between two consecutive tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) request: u64,
    pub(crate) ns: u64,
}

/// The requests that had a step and have not ended.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: HashMap<u64, OpenRequest>,
    missing: MissingSteps,
    /// When the latest step of any request ended.
    latest_ns: i64,
    gaps: Vec<Gap>,
}

/// Which steps may be missing.
#[derive(Debug, Default, Clone, Copy)]
struct MissingSteps {
    /// Whether any may be.
    sampled: bool,
    /// The schedule that decides which, if nothing else leaves out steps.
    schedule: Option<Schedule>,
}

impl MissingSteps {
    /// Whether the request can have no other token step between these two.
    ///
    /// If steps may be missing, the context tells: it grows by what the later step adds. If it does not grow, or is not
    /// stated, two steps are adjacent if all steps with numbers in between were recorded.
    fn adjacent(self, before: &Token, after: &Token) -> bool {
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
}

impl Requests {
    /// Notes that steps may be missing: only those that `schedule` leaves out, if it is given.
    pub(crate) fn sampled(&mut self, schedule: Option<Schedule>) {
        self.missing = MissingSteps { sampled: true, schedule };
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, step: &StepRecord) {
        let end_ns = step.host_start.plus_ns(step.host_dur_ns).0;
        self.latest_ns = self.latest_ns.max(end_ns);
        if let Some(request) = step.request.filter(|_| step.serves.is_empty()) {
            let sequences = u64::from(step.batch.unwrap_or(1).max(1));
            let tokens = step.tokens.map_or(1, |n| u64::from(n) / sequences);
            let context = step.context_len.map(|context| (u64::from(context), tokens));
            let token = Token { step: step.step, end_ns, context };
            let all = context.map(|(context, _)| context * sequences);
            self.hold(request, HeldStep { token, kind: Kind::Alone(step.phase) }, all);
        }
        // The program says which requests get a token.
        for served in &step.serves {
            let token = Token { step: step.step, end_ns, context: None };
            if served.output_tokens > 0 {
                self.hold(served.request, HeldStep { token, kind: Kind::Served }, None);
            }
        }
    }

    fn hold(&mut self, request: u64, held: HeldStep, context: Option<u64>) {
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&request) {
            let idle = self.open.iter().min_by_key(|(_, open)| open.latest_ns).map(|(&request, _)| request);
            if let Some((request, mut open)) = idle.and_then(|idle| Some((idle, self.open.remove(&idle)?))) {
                open.release(request, self.missing, i64::MAX, &mut self.gaps);
            }
        }
        let open = self.open.entry(request).or_default();
        let end_ns = held.token.end_ns;
        if end_ns >= open.latest_ns {
            open.latest_ns = end_ns;
            open.context = context.unwrap_or(open.context);
        }
        let at = open.held.partition_point(|before| before.token.end_ns <= end_ns);
        open.held.insert(at, held);
        if open.held.len() > MAX_HELD {
            open.release_first(request, self.missing, &mut self.gaps);
        }
    }

    /// The gaps that are certain since the last call: no step can come any more that ended before `now` less what steps
    /// are held back.
    pub(crate) fn gaps(&mut self, now: HostNs) -> Vec<Gap> {
        self.gaps_until(now.0.max(self.latest_ns).saturating_sub(HELD_NS))
    }

    /// All gaps since the last call, as far as the steps that have come tell them.
    pub(crate) fn all_gaps(&mut self) -> Vec<Gap> {
        self.gaps_until(i64::MAX)
    }

    fn gaps_until(&mut self, until_ns: i64) -> Vec<Gap> {
        for (request, open) in &mut self.open {
            open.release(*request, self.missing, until_ns, &mut self.gaps);
        }
        std::mem::take(&mut self.gaps)
    }

    /// Takes the end of a request; returns the time per output token after the first, in nanoseconds.
    pub(crate) fn end(&mut self, request: &RequestRecord) -> Option<f64> {
        let mut open = self.open.remove(&request.request).unwrap_or_default();
        // A request's record comes after those of its steps.
        open.release(request.request, self.missing, i64::MAX, &mut self.gaps);
        let sequences = u64::from(request.batch.unwrap_or(1).max(1));
        let of_each = request.output_tokens.map(|n| n / sequences);
        // Along the longest sequence: if others stop early, the steps give its number of tokens; if a step yields
        // several tokens, the number of tokens does.
        let longest = match of_each {
            Some(n) => n.max(open.tokens),
            // If steps are missing, the others do not give the number of tokens.
            None if self.missing.sampled => return None,
            None => open.tokens,
        };
        let gaps = longest.checked_sub(1).filter(|&n| n > 0)?;
        let all_came = !self.missing.sampled || of_each.is_some_and(|n| open.tokens >= n);
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

impl OpenRequest {
    /// Takes the gaps of the steps that ended until then.
    fn release(&mut self, request: u64, missing: MissingSteps, until_ns: i64, gaps: &mut Vec<Gap>) {
        while self.held.front().is_some_and(|held| held.token.end_ns <= until_ns) {
            self.release_first(request, missing, gaps);
        }
    }

    /// Takes the gap before the earliest step that is held back, if it yields a token.
    ///
    /// As in the analysis: sampling marked as a step of its own yields the token, otherwise the last prefill step and
    /// each decode step do; of a step for several requests, the program says.
    fn release_first(&mut self, request: u64, missing: MissingSteps, gaps: &mut Vec<Gap>) {
        let Some(HeldStep { token, kind }) = self.held.pop_front() else { return };
        let before = match kind {
            Kind::Alone(Some(Phase::Sample)) if !self.samples => {
                // The steps before were forward passes, not tokens.
                (self.samples, self.tokens, self.token) = (true, 1, Some(token));
                None
            }
            // If a prompt is processed in chunks, only the last one yields a token.
            Kind::Alone(Some(Phase::Prefill)) if !self.samples => {
                (self.tokens, self.token) = (1, Some(token));
                None
            }
            Kind::Alone(Some(Phase::Sample)) | Kind::Served => self.token(token),
            Kind::Alone(Some(Phase::Decode)) if !self.samples => self.token(token),
            Kind::Alone(_) => None,
        };
        // A step that came after its time would give a gap that is part of one that was counted.
        if let Some(before) = before.filter(|before| missing.adjacent(before, &token))
            && let Ok(ns) = u64::try_from(token.end_ns - before.end_ns)
        {
            gaps.push(Gap { request, ns });
        }
    }

    /// Adds a token; returns the one before.
    fn token(&mut self, token: Token) -> Option<Token> {
        self.tokens += 1;
        match self.token {
            Some(latest) if latest.end_ns > token.end_ns => None,
            _ => self.token.replace(token),
        }
    }
}
