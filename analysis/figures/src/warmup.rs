//! The warm-up: the one place that decides what every figure leaves out.
//!
//! The option `warmup` of a run says how many requests came before those that count. Their steps, intervals and kernels
//! are in no other figure of a report; here they are listed apart, so that a cold start can be seen.

use super::int_map::IntSet;
use super::latency::warmup_requests;
use super::stats::{Distribution, total};
use super::step_rows::{StepRow, windows as open_windows};
use candlescope_schema::run::RunManifest;
use candlescope_schema::stretches::{Stretch, difference, merged};
use candlescope_schema::{RequestRecord, SpanId, SpanRecord};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Requests and steps that are left out of every other figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Warmup {
    requests: BTreeSet<u64>,
    steps: IntSet<u64>,
    /// Ids of the requests' own spans.
    spans: IntSet<SpanId>,
    /// Time in which its steps ran, or nothing else did; ordered and disjoint.
    left_out: Vec<Stretch>,
    /// Time in which nothing else ran; ordered and disjoint.
    alone: Vec<Stretch>,
    /// Time in which its requests were entered, by thread.
    entries: BTreeMap<u32, Vec<Stretch>>,
    /// Its steps by phase or name, in order of their first start.
    pub rows: Vec<WarmupRow>,
    /// Intervals of these steps.
    pub intervals: u64,
    /// Kernels, copies and memsets of these steps.
    pub kernels: u64,
}

/// Warm-up steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmupRow {
    /// The phase, or the steps' name.
    pub name: String,
    /// Warm-up steps of this phase or name, those inside other steps included.
    pub steps: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub total_ns: u64,
    /// Durations of single steps in nanoseconds.
    pub duration: Option<Distribution>,
}

impl Warmup {
    /// The warm-up among `all` requests and `steps` (ordered by start). A step belongs to its request; a step without a
    /// request is measured.
    pub fn of(manifest: &RunManifest, all: &[RequestRecord], steps: &[StepRow]) -> Self {
        let requests = warmup_requests(manifest, all);
        let is_warmup = |step: &&StepRow| step.is_warmup(&requests);
        let mut first: Vec<&str> = Vec::new();
        let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for step in steps.iter().filter(is_warmup) {
            let group = groups.entry(step.group()).or_default();
            if group.is_empty() {
                first.push(step.group());
            }
            group.push(step.dur_ns);
        }
        let rows = first.into_iter().filter_map(|name| {
            let durations = groups.remove(name)?;
            Some(WarmupRow {
                name: name.to_string(),
                steps: durations.len() as u64,
                total_ns: total(durations.iter().copied()),
                duration: Distribution::of(durations.into_iter().map(|ns| ns as f64).collect()),
            })
        });
        let rows = rows.collect();
        let spans = all.iter().filter(|request| requests.contains(&request.request)).map(|r| r.span_id).collect();
        let warm: Vec<&StepRow> = steps.iter().filter(is_warmup).collect();
        let steps_open = open_windows(warm.iter().copied());
        let alone = alone(&requests, all, steps, &warm, &steps_open);
        let steps = warm.iter().map(|step| step.step).collect();
        let left_out = merged(steps_open.into_iter().chain(alone.iter().copied()));
        Self { requests, steps, spans, left_out, alone, rows, ..Self::default() }
    }

    /// Numbers of the warm-up requests.
    pub fn requests(&self) -> &BTreeSet<u64> {
        &self.requests
    }

    /// Whether a step is warm-up.
    pub fn has_step(&self, step: Option<u64>) -> bool {
        step.is_some_and(|step| self.steps.contains(&step))
    }

    /// Whether a span belongs to a warm-up step or request; if so, it is counted here.
    pub fn takes(&mut self, span: &SpanRecord) -> bool {
        if span.step.is_some() {
            let is_warmup = self.has_step(span.step);
            self.intervals += u64::from(is_warmup);
            return is_warmup;
        }
        let is_warmup = self.spans.contains(&span.span_id);
        if is_warmup {
            let entry = (span.host_start.0, span.host_start.plus_ns(span.host_dur_ns).0);
            self.entries.entry(span.thread.index).or_default().push(entry);
        }
        is_warmup
    }

    /// Number of warm-up steps.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// Time in which no rate can be taken, because a warm-up step was open, or nothing that counts was; ordered and
    /// disjoint, Unix nanoseconds.
    pub fn left_out(&self) -> &[Stretch] {
        &self.left_out
    }

    /// Time in which nothing that counts was open except steps around warm-up, such as a program's `main`; ordered and
    /// disjoint, Unix nanoseconds.
    pub fn alone(&self) -> &[Stretch] {
        &self.alone
    }

    /// The steps that count, once all spans were [taken](Self::takes). The time of warm-up steps and of their requests
    /// is subtracted from a step around them, such as a program's `main`.
    pub fn measured<'a>(&self, steps: &'a [StepRow]) -> Cow<'a, [StepRow]> {
        if self.steps.is_empty() && self.entries.is_empty() {
            return Cow::Borrowed(steps);
        }
        let mut measured: Vec<StepRow> =
            steps.iter().filter(|step| !self.steps.contains(&step.step)).cloned().collect();
        let mut warm: BTreeMap<u32, Vec<&StepRow>> = self.entries.keys().map(|thread| (*thread, Vec::new())).collect();
        for step in steps.iter().filter(|step| self.steps.contains(&step.step)) {
            warm.entry(step.thread).or_default().push(step);
        }
        let threads: BTreeMap<u32, (Vec<&StepRow>, Vec<Stretch>)> = warm
            .into_iter()
            .map(|(thread, warm)| {
                let entries = self.entries.get(&thread).into_iter().flatten().copied();
                let windows = merged(entries.chain(warm.iter().map(|step| step.window())));
                (thread, (warm, windows))
            })
            .collect();
        for step in &mut measured {
            if let Some((warm, windows)) = threads.get(&step.thread) {
                step.leave_out(warm, windows);
            }
        }
        Cow::Owned(measured)
    }
}

/// Time in which warm-up steps or requests were open, and nothing that counts was: neither a request nor a step that is
/// not around them.
fn alone(
    warmup: &BTreeSet<u64>,
    requests: &[RequestRecord],
    steps: &[StepRow],
    warm: &[&StepRow],
    steps_open: &[Stretch],
) -> Vec<Stretch> {
    if warmup.is_empty() {
        return Vec::new();
    }
    let window = |r: &RequestRecord| (r.host_start.0, r.host_start.plus_ns(r.host_dur_ns).0);
    let (own, others): (Vec<_>, Vec<_>) = requests.iter().partition(|request| warmup.contains(&request.request));
    let open = merged(own.into_iter().map(window).chain(steps_open.iter().copied()));
    let is_around = |step: &StepRow| {
        let from = warm.partition_point(|warm| warm.start_ns < step.start_ns);
        let inside = warm[from..].iter().take_while(|warm| warm.start_ns < step.end_ns());
        step.request.is_none()
            && step.serves.is_empty()
            && inside.into_iter().any(|warm| warm.end_ns() <= step.end_ns())
    };
    let counting = steps.iter().filter(|step| step.is_measured(warmup) && !is_around(step)).map(StepRow::window);
    difference(&open, &merged(others.into_iter().map(window).chain(counting)))
}
