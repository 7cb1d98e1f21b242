//! Which spans are sent, and when: a state machine without I/O between batches and the transport.
//!
//! A request's steps are kept until the request has ended, because only its record says how long it took, and only then
//! the number of spans in its trace is known. Steps outside of requests are traces of their own and go out at once.

use super::counts::Counts;
use super::held::{HeldRequest, HeldStep, LevelFit, depth};
use super::otlp_config::{OtlpLimits, OtlpSampler};
use super::otlp_spans::{self, MAX_ENTRIES};
use super::shared_steps;
use super::step_plan::{Keep, Plan, StepOwner};
use super::volume::Allowance;
use candlescope_core::injected::is_start_end;
use candlescope_core::{Batch, Phase, RequestRecord, SpanId, SpanRecord, StepRecord, TraceId};
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::SpanData;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Requests remembered after their end, for steps that come late.
const REMEMBERED: usize = 1_024;

/// A span ready to be sent, and the records that are settled with it.
#[derive(Debug, Clone)]
pub(super) struct OutgoingSpan {
    pub(super) span: SpanData,
    pub(super) records: Counts,
}

#[derive(Debug)]
pub(super) struct Traces {
    limits: OtlpLimits,
    sampler: OtlpSampler,
    allowance: Allowance,
    scope: InstrumentationScope,
    open: HashMap<u64, HeldRequest>,
    /// Intervals whose step has not ended.
    loose: HashMap<u64, Vec<SpanRecord>>,
    /// Intervals of requests' own spans.
    entries: HashMap<TraceId, Vec<SpanRecord>>,
    /// Each with its span, if one was sent, as the parent of late steps.
    ended: VecDeque<(u64, TraceId, Option<SpanId>)>,
    /// Decode steps outside of requests.
    decodes: u64,
    held: usize,
    batches: u64,
    out: Vec<OutgoingSpan>,
    omitted: Counts,
}

impl Traces {
    pub(super) fn new(limits: OtlpLimits, sampler: OtlpSampler) -> Self {
        Self {
            limits,
            sampler,
            allowance: Allowance::new(limits.spans_per_second),
            scope: otlp_spans::scope(),
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

    /// The spans that are ready, and what was left out since the last call.
    pub(super) fn drain(&mut self) -> (Vec<OutgoingSpan>, Counts) {
        (std::mem::take(&mut self.out), std::mem::take(&mut self.omitted))
    }

    /// Takes the spans, steps and requests of a batch.
    pub(super) fn take(&mut self, batch: &Batch) {
        self.batches += 1;
        let mut runs: HashMap<u64, Option<&[SpanRecord]>> = HashMap::new();
        for run in batch.spans.chunk_by(|a, b| a.step == b.step) {
            match run[0].step {
                None => run.iter().for_each(|entry| match is_start_end(&entry.path.target) {
                    true => self.range(entry),
                    false => self.enter(entry),
                }),
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
            // Nearly always the whole step is in this batch; a very long one comes in parts, of which this is the last.
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

    /// No more records come: everything that is kept is sent as it is.
    pub(super) fn finish(&mut self) {
        // Requests that never ended have no span; the intervals during which threads worked for them are sent instead.
        let mut entries = std::mem::take(&mut self.entries);
        let mut roots = HashMap::new();
        for entry in entries.values_mut().flat_map(std::mem::take) {
            roots.insert(entry.seq, entry.span_id);
            self.send_alone(&entry);
        }
        let mut open: Vec<(u64, HeldRequest)> = std::mem::take(&mut self.open).into_iter().collect();
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

    /// A range of a recorded program that is part of no step and no request: a trace of its own.
    fn range(&mut self, range: &SpanRecord) {
        match self.allowance.is_left(range.host_start) {
            true => self.send_alone(range),
            false => self.omitted.spans += 1,
        }
    }

    fn enter(&mut self, entry: &SpanRecord) {
        let entries = self.entries.entry(entry.trace_id).or_default();
        // A future that is polled a million times enters its request a million times.
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
        let plan = self.plan(step);
        let mut spans: Vec<SpanRecord> = loose.into_iter().filter(|s| plan.keeps(step, s)).collect();
        spans.extend(run.iter().filter(|s| plan.keeps(step, s)).cloned());
        let left_out = (total - spans.len()) as u64;
        self.omitted.spans += left_out;
        let held = match plan.keep {
            Keep::Nothing => {
                self.omitted.steps += 1;
                None
            }
            _ => Some(HeldStep { step: step.clone(), detail: plan.detail, spans }),
        };
        let before = self.out.len();
        match (plan.whose, held) {
            (StepOwner::Open(number), held) => self.hold(number, step, inside, left_out, held),
            (StepOwner::Nobody | StepOwner::Ended(None), Some(held)) => self.send_step(held, None),
            (StepOwner::Ended(Some(request)), Some(held)) => self.send_step(held, Some((request, step.trace_id))),
            (_, None) => {}
        }
        self.share(step, before);
    }

    /// Adds a step that serves several requests to each of them. If it was sent, that was after the first `before` of
    /// what is to go out.
    fn share(&mut self, step: &StepRecord, before: usize) {
        if step.serves.is_empty() {
            return;
        }
        let sent =
            self.out[before..].iter().find(|sent| sent.records.steps > 0).map(|sent| sent.span.span_context.clone());
        for served in &step.serves {
            // A request that has ended has been sent.
            if !self.ended.iter().any(|(number, ..)| *number == served.request) {
                self.open.entry(served.request).or_default().shared.add(step, *served, sent.as_ref());
            }
        }
    }

    /// Decides about a step from what is known about it.
    fn plan(&mut self, step: &StepRecord) -> Plan {
        let ended = step.request.and_then(|r| self.ended.iter().find(|(n, ..)| *n == r)).map(|(.., id)| *id);
        let whose = match (step.request, ended) {
            (None, _) => StepOwner::Nobody,
            (Some(_), Some(span)) => StepOwner::Ended(span),
            (Some(number), None) => StepOwner::Open(number),
        };
        let room = self.allowance.is_left(step.host_start);
        let (decodes, sent) = match whose {
            StepOwner::Open(number) => {
                let open = self.open.entry(number).or_insert_with(|| HeldRequest {
                    sums_only: !self.sampler.may_take(step.trace_id) || (!room && self.limits.slow_request.is_none()),
                    ..HeldRequest::default()
                });
                (&mut open.decodes, !open.sums_only)
            }
            StepOwner::Ended(span) => (&mut self.decodes, room && span.is_some()),
            StepOwner::Nobody => (&mut self.decodes, room && self.sampler.takes(step.trace_id, None)),
        };
        let decode = (step.phase == Some(Phase::Decode)).then(|| {
            *decodes += 1;
            *decodes - 1
        });
        Plan::of(&self.limits, whose, sent, decode)
    }

    /// Sends a step at once, below a request's span if one is given.
    fn send_step(&mut self, held: HeldStep, request: Option<(SpanId, TraceId)>) {
        self.emit(vec![held], request, HashMap::new(), self.limits.max_spans);
    }

    /// Keeps a step until its request has ended.
    fn hold(&mut self, number: u64, step: &StepRecord, inside: Option<u64>, left_out: u64, held: Option<HeldStep>) {
        let open = self.open.entry(number).or_default();
        open.touched = self.batches;
        open.add(step, inside);
        open.omitted += left_out;
        let Some(held) = held else { return };
        open.held += held.spans.len();
        self.held += held.spans.len();
        open.steps.push(held);
        let gone = open.cut(&self.limits);
        self.held -= gone.spans as usize;
        self.omitted += gone;
    }

    /// A request ended: its trace goes out.
    fn end(&mut self, request: &RequestRecord) {
        let mut open = self.open.remove(&request.request).unwrap_or_default();
        self.held -= open.held;
        // A caller's trace may contain several requests.
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
        // If all steps are sent in full, their sums would be redundant.
        let course = if open.omitted > 0 { open.course.groups() } else { &[] };
        let mut span = otlp_spans::request(request, &open.totals, course, &mine, open.omitted, &self.scope);
        open.shared.describe(&mut span);
        let records = Counts { spans: mine.len() as u64, steps: 0, requests: 1 };
        // Parents first, for tools that show traces while they arrive.
        self.out.insert(before.0, OutgoingSpan { span, records });
        self.allowance.spend_one();
    }

    fn omit(&mut self, steps: Vec<HeldStep>) {
        self.omitted.steps += steps.len() as u64;
        self.omitted.spans += steps.iter().map(|held| held.spans.len() as u64).sum::<u64>();
    }

    fn strip_all(&mut self, open: &mut HeldRequest) {
        let gone = open.steps.iter_mut().filter(|s| !s.detail).map(HeldStep::strip).sum::<u64>();
        self.omitted.spans += gone;
    }

    /// Sends as much of `steps` as fits into `limit`, below the request's span if there is one. `sent` are spans that
    /// went out before and may be parents.
    fn emit(
        &mut self,
        mut steps: Vec<HeldStep>,
        request: Option<(SpanId, TraceId)>,
        mut sent: HashMap<u64, SpanId>,
        limit: usize,
    ) {
        let mut fits = LevelFit::new(steps.iter().flat_map(|s| &s.spans), limit);
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

    /// Sends an interval that belongs to nothing else that is sent, if its trace is sampled. For a request that never
    /// ended, the caller's decision is not known.
    fn send_alone(&mut self, record: &SpanRecord) {
        let left_out = self.ended.iter().any(|(_, trace, span)| *trace == record.trace_id && span.is_none());
        if !left_out && self.sampler.takes(record.trace_id, None) {
            self.send(record, None, None);
        } else {
            self.omitted.spans += 1;
        }
    }

    fn send(&mut self, record: &SpanRecord, parent: Option<SpanId>, step: Option<&StepRecord>) {
        let mut span = otlp_spans::span(record, parent, step, &self.scope);
        if let Some(step) = step {
            shared_steps::name_requests(step, &mut span);
        }
        self.out
            .push(OutgoingSpan { span, records: Counts { spans: 1, steps: u64::from(step.is_some()), requests: 0 } });
        self.allowance.spend_one();
    }

    /// Keeps memory within its bound, even if requests never end.
    fn make_room(&mut self) {
        while self.held > self.limits.max_held {
            let quietest = self.open.iter().filter(|(_, o)| o.held > 0).min_by_key(|(_, o)| o.touched).map(|(n, _)| *n);
            let Some(open) = quietest.and_then(|number| self.open.get_mut(&number)) else { break };
            let mut gone = Counts { spans: open.steps.iter_mut().map(HeldStep::strip).sum(), ..Counts::default() };
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
        // Even a request without kept steps takes some memory.
        if self.open.len() > self.limits.max_held {
            self.open.retain(|_, o| o.held > 0);
        }
    }
}
