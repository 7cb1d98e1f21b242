//! What only warmed up: the one switch that every figure goes by.
//!
//! The option `warmup` of a run says how many requests came before those that count. Their steps, intervals and kernels are in no
//! other figure of a report; here they are listed apart, so that a cold start can be seen.

use super::latency::warmup_requests;
use super::stats::{Distribution, total};
use super::step_rows::{StepRow, windows as open_windows};
use candlescope_core::run::RunManifest;
use candlescope_core::stretches::{difference, merged};
use candlescope_core::{RequestRecord, SpanId, SpanRecord};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Requests and steps that are left out of every other figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Warmup {
    requests: BTreeSet<u64>,
    steps: HashSet<u64>,
    /// Ids of the requests' own spans.
    spans: HashSet<SpanId>,
    /// When its steps ran, or its requests were open and no step of another one was; in order and apart.
    windows: Vec<(i64, i64)>,
    /// The same with all of the requests' time, by the thread that ran steps of theirs.
    threads: BTreeMap<u32, Vec<(i64, i64)>>,
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
    /// How many.
    pub steps: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub total_ns: u64,
    /// Durations of single steps in nanoseconds.
    pub duration: Option<Distribution>,
}

impl Warmup {
    /// What of `all` requests and `steps` (in order of start) warmed up. A step belongs to its request; one without a request counts.
    pub fn of(manifest: &RunManifest, all: &[RequestRecord], steps: &[StepRow]) -> Self {
        let requests = warmup_requests(manifest, all);
        let is_warmup = |step: &&StepRow| step.request.is_some_and(|request| requests.contains(&request));
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
        let windows = windows(&requests, all, steps);
        let threads = threads(&requests, all, steps);
        let steps = steps.iter().filter(is_warmup).map(|step| step.step).collect();
        Self { requests, steps, spans, windows, threads, rows, intervals: 0, kernels: 0 }
    }

    /// Numbers of the requests that warmed up.
    pub fn requests(&self) -> &BTreeSet<u64> {
        &self.requests
    }

    /// Whether a step only warmed up.
    pub fn has_step(&self, step: Option<u64>) -> bool {
        step.is_some_and(|step| self.steps.contains(&step))
    }

    /// Whether a span is one of a step, or of a request, that only warmed up.
    pub fn has_span(&self, span: &SpanRecord) -> bool {
        match span.step {
            None => self.spans.contains(&span.span_id),
            step => self.has_step(step),
        }
    }

    /// Steps that only warmed up.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// When at least one step that only warmed up was open, or a request that did and no step of another one: in order and apart, Unix
    /// nanoseconds.
    pub fn windows(&self) -> &[(i64, i64)] {
        &self.windows
    }

    /// The steps that count. One around steps that warmed up, such as a program's `main`, has its time less theirs.
    pub fn measured(&self, steps: &[StepRow]) -> Vec<StepRow> {
        let mut measured: Vec<StepRow> =
            steps.iter().filter(|step| !self.steps.contains(&step.step)).cloned().collect();
        let mut warm: BTreeMap<u32, Vec<&StepRow>> = BTreeMap::new();
        for step in steps.iter().filter(|step| self.steps.contains(&step.step)) {
            warm.entry(step.thread).or_default().push(step);
        }
        for step in &mut measured {
            if let (Some(warm), Some(windows)) = (warm.get(&step.thread), self.threads.get(&step.thread)) {
                step.leave_out(warm, windows);
            }
        }
        measured
    }
}

fn window(request: &RequestRecord) -> (i64, i64) {
    (request.host_start.0, request.host_start.plus_ns(request.host_dur_ns).0)
}

fn windows(warmup: &BTreeSet<u64>, requests: &[RequestRecord], steps: &[StepRow]) -> Vec<(i64, i64)> {
    let of = |own: bool| {
        let in_requests = steps.iter().filter(move |step| step.request.is_some_and(|r| warmup.contains(&r) == own));
        open_windows(in_requests)
    };
    let open = merged(requests.iter().filter(|r| warmup.contains(&r.request)).map(window));
    merged(difference(&open, &of(false)).into_iter().chain(of(true)))
}

/// When the requests that warmed up were open, by the thread of their steps, but for steps of other requests in that time.
fn threads(warmup: &BTreeSet<u64>, requests: &[RequestRecord], steps: &[StepRow]) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let windows: BTreeMap<u64, (i64, i64)> = requests.iter().map(|r| (r.request, window(r))).collect();
    let mut own: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    let mut others: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    for step in steps {
        let Some(request) = step.request else { continue };
        let lists = if warmup.contains(&request) { &mut own } else { &mut others };
        let list = lists.entry(step.thread).or_default();
        list.push((step.start_ns, step.end_ns()));
        list.extend(windows.get(&request).filter(|_| warmup.contains(&request)));
    }
    own.into_iter()
        .map(|(thread, windows)| {
            let others = merged(others.remove(&thread).unwrap_or_default());
            (thread, difference(&merged(windows), &others))
        })
        .collect()
}
