//! Which spans are sent, and when: a state machine without I/O between batches and the transport.
//!
//! A request's steps are kept until the request has ended, because only its record says how long it took and only
//! then is it known how many spans its trace has. Steps outside of requests are traces of their own and go out at
//! once.

use super::config::{OtlpLimits, OtlpSampler};
use super::convert::{self, MAX_ENTRIES, Totals};
use super::decodes::Decodes;
use super::volume::Allowance;
use candlescope_core::{
    Batch, DropReason, Ledger, Phase, RecordKind, RequestRecord, SpanId, SpanRecord, StepRecord, TraceId,
};
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::SpanData;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::AddAssign;

/// Requests remembered after their end, for steps that come late.
const REMEMBERED: usize = 1_024;

/// Records by kind, as the ledger wants them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) spans: u64,
    pub(super) steps: u64,
    pub(super) requests: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.spans += other.spans;
        self.steps += other.steps;
        self.requests += other.requests;
    }
}

impl Counts {
    pub(super) fn exported(self, ledger: &Ledger) {
        ledger.exported(RecordKind::Span, self.spans);
        ledger.exported(RecordKind::Step, self.steps);
        ledger.exported(RecordKind::Request, self.requests);
    }

    pub(super) fn dropped(self, ledger: &Ledger, reason: DropReason) {
        ledger.dropped(RecordKind::Span, reason, self.spans);
        ledger.dropped(RecordKind::Step, reason, self.steps);
        ledger.dropped(RecordKind::Request, reason, self.requests);
    }
}

/// A span ready to be sent, and the records that are settled with it.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) span: SpanData,
    pub(super) records: Counts,
}

/// A step that ended, with what is kept of its intervals.
#[derive(Debug)]
struct Held {
    step: StepRecord,
    /// Whether it is one of those sent in full.
    detail: bool,
    spans: Vec<SpanRecord>,
}

impl Held {
    /// Forgets all but the step's own interval.
    fn strip(&mut self) -> u64 {
        let before = self.spans.len();
        self.spans.retain(|s| s.seq == self.step.seq);
        (before - self.spans.len()) as u64
    }
}

/// A request that has not ended.
#[derive(Debug, Default)]
struct Open {
    trace: Option<TraceId>,
    /// Intervals that its steps stand in: the threads' entries into the request.
    parents: HashSet<u64>,
    /// Whether its steps are only summed up: there was no room for more when it began, or its trace is not sent.
    sums_only: bool,
    steps: Vec<Held>,
    totals: Totals,
    /// All decode steps, in groups.
    course: Decodes,
    decodes: u64,
    /// Spans in `steps`.
    held: usize,
    /// Left out so far, to be said on the request's span.
    omitted: u64,
    /// When the latest step came, by the count of batches.
    touched: u64,
}

#[derive(Debug)]
pub(super) struct Traces {
    limits: OtlpLimits,
    sampler: OtlpSampler,
    allowance: Allowance,
    scope: InstrumentationScope,
    open: HashMap<u64, Open>,
    /// Intervals whose step has not ended.
    loose: HashMap<u64, Vec<SpanRecord>>,
    /// Intervals of requests' own spans.
    entries: HashMap<TraceId, Vec<SpanRecord>>,
    /// With the span, where one was sent, that late steps stand below.
    ended: VecDeque<(u64, TraceId, Option<SpanId>)>,
    /// Decode steps outside of requests.
    decodes: u64,
    held: usize,
    batches: u64,
    out: Vec<Outgoing>,
    omitted: Counts,
}

impl Traces {
    pub(super) fn new(limits: OtlpLimits, sampler: OtlpSampler) -> Self {
        Self {
            limits,
            sampler,
            allowance: Allowance::new(limits.spans_per_second),
            scope: convert::scope(),
            open: HashMap::new(),
            loose: HashMap::new(),
            entries: HashMap::new(),
            ended: VecDeque::new(),
            decodes: 0,
            held: 0,
            batches: 0,
            out: Vec::new(),
            omitted: Counts::default(),
        }
    }

    /// Spans kept in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// What is ready, and what was left out since the last call.
    pub(super) fn drain(&mut self) -> (Vec<Outgoing>, Counts) {
        (std::mem::take(&mut self.out), std::mem::take(&mut self.omitted))
    }

    /// Takes the spans, steps and requests of a batch.
    pub(super) fn take(&mut self, batch: &Batch) {
        self.batches += 1;
        let mut runs: HashMap<u64, Option<&[SpanRecord]>> = HashMap::new();
        for run in batch.spans.chunk_by(|a, b| a.step == b.step) {
            match run[0].step {
                None => run.iter().for_each(|entry| self.enter(entry)),
                Some(n) => match runs.entry(n) {
                    Entry::Vacant(first) => {
                        first.insert(Some(run));
                    }
                    Entry::Occupied(mut more) => {
                        if let Some(first) = more.insert(None) {
                            self.keep_loose(n, first);
                        }
                        self.keep_loose(n, run);
                    }
                },
            }
        }
        for step in &batch.steps {
            // Nearly always the step is whole in this batch; a very long one comes in parts, of which this is the last.
            let run = runs.remove(&step.step).flatten().unwrap_or_default();
            let before = self.loose.remove(&step.step).unwrap_or_default();
            self.held -= before.len();
            self.step(step, before, run);
        }
        for (n, run) in runs {
            self.keep_loose(n, run.unwrap_or_default());
        }
        for request in &batch.requests {
            self.end(request);
        }
        self.make_room();
    }

    /// No more records come: whatever is kept goes out as it is.
    pub(super) fn finish(&mut self) {
        // Of requests that never ended there is no span; the intervals during which threads worked for them stand for
        // it.
        let mut entries = std::mem::take(&mut self.entries);
        let mut roots = HashMap::new();
        for entry in entries.values_mut().flat_map(std::mem::take) {
            roots.insert(entry.seq, entry.span_id);
            self.send_alone(&entry);
        }
        let mut open: Vec<(u64, Open)> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_unstable_by_key(|(number, _)| *number);
        for (_, mut open) in open {
            self.strip_all(&mut open);
            let steps = std::mem::take(&mut open.steps);
            if open.trace.is_some_and(|trace| self.sampler.takes(trace, None)) {
                self.emit(steps, None, roots.clone(), self.limits.max_spans);
            } else {
                self.omit(steps);
            }
        }
        // Intervals whose step had ended before them, or never did.
        for record in std::mem::take(&mut self.loose).into_values().flatten() {
            self.send_alone(&record);
        }
        self.held = 0;
    }

    fn enter(&mut self, entry: &SpanRecord) {
        let entries = self.entries.entry(entry.trace_id).or_default();
        // A future that is polled a million times enters its request as often.
        if entries.len() < MAX_ENTRIES {
            entries.push(entry.clone());
            self.held += 1;
        } else {
            self.omitted.spans += 1;
        }
    }

    fn keep_loose(&mut self, step: u64, run: &[SpanRecord]) {
        let max_depth = self.limits.max_depth;
        let kept = self.loose.entry(step).or_default();
        let before = kept.len();
        kept.extend(run.iter().filter(|s| depth(s) <= max_depth).cloned());
        self.held += kept.len() - before;
        self.omitted.spans += (run.len() - (kept.len() - before)) as u64;
    }

    /// A step ended: `loose` are intervals that came before, `run` those that came with it.
    fn step(&mut self, step: &StepRecord, loose: Vec<SpanRecord>, run: &[SpanRecord]) {
        let total = loose.len() + run.len();
        let inside = loose.iter().chain(run).find(|s| s.seq == step.seq).and_then(|s| s.parent_seq);
        let late = step.request.and_then(|r| self.ended.iter().find(|(n, ..)| *n == r)).map(|(.., id)| *id);
        let waits = step.request.is_some() && late.is_none();
        let room = self.allowance.is_left(step.host_start);
        let (decodes, sums_only) = match step.request.filter(|_| waits) {
            Some(number) => {
                let open = self.open.entry(number).or_insert_with(|| Open {
                    sums_only: !self.sampler.may_take(step.trace_id) || (!room && self.limits.slow_request.is_none()),
                    ..Open::default()
                });
                (&mut open.decodes, open.sums_only)
            }
            None => {
                let sent = late.map_or_else(|| self.sampler.takes(step.trace_id, None), |span| span.is_some());
                (&mut self.decodes, !(room && sent))
            }
        };
        let detail = match step.phase {
            Some(Phase::Decode) => {
                let every = self.limits.detail_every;
                *decodes += 1;
                every > 0 && (*decodes - 1) % every == 0
            }
            _ => true,
        };
        // Without a threshold nothing can make a step interesting later.
        let whole = detail || (waits && self.limits.slow_request.is_some());
        let max_depth = if whole { self.limits.max_depth } else { 0 };
        let keep = |s: &SpanRecord| !sums_only && if whole { depth(s) <= max_depth } else { s.seq == step.seq };
        let mut spans: Vec<SpanRecord> = loose.into_iter().filter(|s| keep(s)).collect();
        spans.extend(run.iter().filter(|s| keep(s)).cloned());
        let left_out = (total - spans.len()) as u64;
        self.omitted.spans += left_out;
        self.omitted.steps += u64::from(sums_only);
        let held = || Held { step: step.clone(), detail, spans };
        let Some(number) = step.request.filter(|_| waits) else {
            if !sums_only {
                let parent = late.flatten().map(|id| (id, step.trace_id));
                self.emit(vec![held()], parent, HashMap::new(), self.limits.max_spans);
            }
            return;
        };
        let limit = match self.limits.slow_request {
            Some(_) => self.limits.slow_max_spans.max(self.limits.max_spans),
            None => self.limits.max_spans,
        };
        let open = self.open.entry(number).or_default();
        open.trace = Some(step.trace_id);
        if open.parents.len() < MAX_ENTRIES {
            open.parents.extend(inside);
        }
        open.totals.add(step);
        if step.phase == Some(Phase::Decode) {
            open.course.add(step);
        }
        open.touched = self.batches;
        open.omitted += left_out;
        if sums_only {
            return;
        }
        let held = held();
        open.held += held.spans.len();
        self.held += held.spans.len();
        open.steps.push(held);
        // Rarely, so that the work stays in proportion: twice what can be sent is kept before it is cut to that.
        if open.held <= limit.saturating_mul(2) {
            return;
        }
        let mut gone = Counts::default();
        // Every step of a request that may turn out slow is of the same interest, so levels go; of others, steps not
        // sent in full do.
        if self.limits.slow_request.is_none() {
            gone.spans += open.steps.iter_mut().filter(|s| !s.detail).map(Held::strip).sum::<u64>();
        }
        let mut fits = Fits::new(open.steps.iter().flat_map(|s| &s.spans), limit);
        for held in &mut open.steps {
            let before = held.spans.len();
            held.spans.retain(|record| fits.takes(record));
            gone.spans += (before - held.spans.len()) as u64;
        }
        let steps = open.steps.len();
        open.steps.retain(|held| !held.spans.is_empty());
        gone.steps += (steps - open.steps.len()) as u64;
        open.held -= gone.spans as usize;
        open.omitted += gone.spans;
        self.held -= gone.spans as usize;
        self.omitted += gone;
    }

    /// A request ended: its trace goes out.
    fn end(&mut self, request: &RequestRecord) {
        let mut open = self.open.remove(&request.request).unwrap_or_default();
        self.held -= open.held;
        // A caller's trace may have several requests in it.
        let alone = !self.open.values().any(|o| o.trace == Some(request.trace_id));
        let entries = self.entries.remove(&request.trace_id).unwrap_or_default();
        let (mine, others): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|e| alone || open.parents.contains(&e.seq));
        self.held -= mine.len();
        if !others.is_empty() {
            self.entries.insert(request.trace_id, others);
        }
        if self.ended.len() >= REMEMBERED {
            self.ended.pop_front();
        }
        let sampled = self.sampler.takes(request.trace_id, request.caller_sampled);
        self.ended.push_back((request.request, request.trace_id, sampled.then_some(request.span_id)));
        if !sampled {
            self.omit(std::mem::take(&mut open.steps));
            self.omitted += Counts { spans: mine.len() as u64, steps: 0, requests: 1 };
            return;
        }
        let slow = self.limits.slow_request.is_some_and(|t| u128::from(request.host_dur_ns) >= t.as_nanos());
        if !slow && self.limits.slow_request.is_some() && !self.allowance.is_left(request.host_start) {
            open.omitted += open.held as u64;
            self.omit(std::mem::take(&mut open.steps));
        }
        let limit = if slow {
            self.limits.slow_max_spans
        } else {
            let before = self.omitted.spans;
            self.strip_all(&mut open);
            open.omitted += self.omitted.spans - before;
            self.limits.max_spans
        };
        let before = (self.out.len(), self.omitted.spans);
        let steps = std::mem::take(&mut open.steps);
        // The request's own span counts too.
        self.emit(steps, Some((request.span_id, request.trace_id)), HashMap::new(), limit.saturating_sub(1));
        open.omitted += self.omitted.spans - before.1;
        // Where the steps are there in full, their sums would only say it twice.
        let course = if open.omitted > 0 { open.course.groups() } else { &[] };
        let span = convert::request(request, &open.totals, course, &mine, open.omitted, &self.scope);
        let records = Counts { spans: mine.len() as u64, steps: 0, requests: 1 };
        // Parents first reads better in every tool that shows traces while they arrive.
        self.out.insert(before.0, Outgoing { span, records });
        self.allowance.spend_one();
    }

    fn omit(&mut self, steps: Vec<Held>) {
        self.omitted.steps += steps.len() as u64;
        self.omitted.spans += steps.iter().map(|held| held.spans.len() as u64).sum::<u64>();
    }

    fn strip_all(&mut self, open: &mut Open) {
        let gone = open.steps.iter_mut().filter(|s| !s.detail).map(Held::strip).sum::<u64>();
        self.omitted.spans += gone;
    }

    /// Sends what of `steps` fits into `limit`, below the request's span if there is one. `sent` are spans that went
    /// out before and may be parents.
    fn emit(
        &mut self,
        mut steps: Vec<Held>,
        request: Option<(SpanId, TraceId)>,
        mut sent: HashMap<u64, SpanId>,
        limit: usize,
    ) {
        let mut fits = Fits::new(steps.iter().flat_map(|s| &s.spans), limit);
        let parents: HashMap<u64, Option<u64>> =
            steps.iter().flat_map(|s| &s.spans).map(|s| (s.seq, s.parent_seq)).collect();
        for held in &mut steps {
            let before = held.spans.len();
            held.spans.retain(|record| fits.takes(record));
            self.omitted.spans += (before - held.spans.len()) as u64;
            sent.extend(held.spans.iter().map(|s| (s.seq, s.span_id)));
        }
        for held in &steps {
            let mut step_sent = false;
            for record in &held.spans {
                // The nearest ancestor that is sent. A request's own interval is not among them: its span stands for
                // it.
                let mut above = record.parent_seq;
                let parent = loop {
                    match above {
                        None => break None,
                        Some(seq) => match sent.get(&seq) {
                            Some(id) => break Some(*id),
                            None => above = parents.get(&seq).copied().flatten(),
                        },
                    }
                };
                let above = request.filter(|(_, trace)| *trace == record.trace_id).map(|(id, _)| id);
                let step = (record.seq == held.step.seq).then_some(&held.step);
                step_sent |= step.is_some();
                self.send(record, parent.or(above), step);
            }
            self.omitted.steps += u64::from(!step_sent);
        }
    }

    /// Sends an interval that belongs to nothing else that is sent, if its trace is one of those that are. What the
    /// caller of a request that never ended decided is not known.
    fn send_alone(&mut self, record: &SpanRecord) {
        let left_out = self.ended.iter().any(|(_, trace, span)| *trace == record.trace_id && span.is_none());
        if !left_out && self.sampler.takes(record.trace_id, None) {
            self.send(record, None, None);
        } else {
            self.omitted.spans += 1;
        }
    }

    fn send(&mut self, record: &SpanRecord, parent: Option<SpanId>, step: Option<&StepRecord>) {
        let span = convert::span(record, parent, step, &self.scope);
        self.out.push(Outgoing { span, records: Counts { spans: 1, steps: u64::from(step.is_some()), requests: 0 } });
        self.allowance.spend_one();
    }

    /// Keeps memory within its bound, whatever requests never end.
    fn make_room(&mut self) {
        while self.held > self.limits.max_held {
            let quietest = self.open.iter().filter(|(_, o)| o.held > 0).min_by_key(|(_, o)| o.touched).map(|(n, _)| *n);
            let Some(open) = quietest.and_then(|number| self.open.get_mut(&number)) else { break };
            let mut gone = Counts { spans: open.steps.iter_mut().map(Held::strip).sum(), ..Counts::default() };
            if gone.spans == 0 {
                gone.steps = open.steps.len() as u64;
                gone.spans = open.held as u64;
                open.steps.clear();
            }
            open.held -= gone.spans as usize;
            open.omitted += gone.spans;
            self.held -= gone.spans as usize;
            self.omitted += gone;
        }
        if self.held > self.limits.max_held {
            // Only intervals whose step or request never ended are left.
            let loose = std::mem::take(&mut self.loose).into_values();
            let gone = loose.chain(std::mem::take(&mut self.entries).into_values()).map(|v| v.len()).sum::<usize>();
            self.held -= gone;
            self.omitted.spans += gone as u64;
        }
        // A request that is known by name only costs little, but not nothing.
        if self.open.len() > self.limits.max_held {
            self.open.retain(|_, o| o.held > 0);
        }
    }
}

/// Levels below the step, which is what the path is written from.
fn depth(span: &SpanRecord) -> u32 {
    span.path.path.bytes().filter(|b| *b == b'/').count() as u32
}

/// Which spans of a trace fit its limit: by level, and within the last level that fits in part, the first ones.
struct Fits {
    whole_below: u32,
    rest: usize,
}

impl Fits {
    fn new<'a>(spans: impl Iterator<Item = &'a SpanRecord>, limit: usize) -> Self {
        let mut levels: Vec<usize> = Vec::new();
        for span in spans {
            let depth = depth(span) as usize;
            if levels.len() <= depth {
                levels.resize(depth + 1, 0);
            }
            levels[depth] += 1;
        }
        let mut rest = limit;
        for (depth, &n) in levels.iter().enumerate() {
            if n > rest {
                return Self { whole_below: depth as u32, rest };
            }
            rest -= n;
        }
        Self { whole_below: u32::MAX, rest }
    }

    fn takes(&mut self, span: &SpanRecord) -> bool {
        let depth = depth(span);
        if depth == self.whole_below && self.rest > 0 {
            self.rest -= 1;
            return true;
        }
        depth < self.whole_below
    }
}
