//! The steps of a run that are replayed, and their rows.

use super::abstain::Abstain;
use candlescope_figures::figures::{NOT_OF_KERNELS, NOT_OF_SPANS};
use candlescope_figures::known::RunContents;
use candlescope_figures::reading::Pass;
use candlescope_figures::{ChosenDevice, StepRow, Warmup};
use candlescope_reader::limits::Limit;
use candlescope_schema::run::{Finding, RunManifest};
use candlescope_schema::{Batch, KernelRecord, RecordKind, SpanRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Steps of a kind that are replayed, spread over the run.
const MOST_STEPS: usize = 64;

/// Steps to replay: which ones is decided while their kernels are read.
#[derive(Debug)]
pub struct ChosenSteps<'k> {
    pub(super) known: &'k RunContents<'k>,
    /// Places of the steps that may be replayed.
    pub(super) counting: Vec<usize>,
    pub(super) has_kernels: bool,
    /// Whether kernels may still come.
    kernels_come: bool,
    pub(super) rows: CollectedRows,
    /// By number: the place of a step that may be replayed.
    places: FxHashMap<u64, usize>,
    /// The step that was asked for last, and whether it is kept.
    last: (Option<u64>, bool),
    /// Whether any kernel, and any launch call, was met.
    kernels_met: bool,
    calls_met: bool,
    /// Most kernels and intervals to hold, and how many are held.
    most: (u64, u64),
    held: (u64, u64),
    /// Whether there were more.
    full_of_kernels: bool,
    full_of_spans: bool,
}

/// Rows of the steps that are kept.
#[derive(Debug, Default)]
pub(super) struct CollectedRows {
    /// By kind of step.
    pub(super) spreads: BTreeMap<String, Spread>,
    /// Kernels by step.
    pub(super) kernels: FxHashMap<u64, Vec<KernelRecord>>,
    /// Intervals by step.
    pub(super) spans: FxHashMap<u64, Vec<SpanRecord>>,
    /// All steps that have kernels and may be replayed.
    pub(super) met: FxHashSet<u64>,
}

impl<'k> ChosenSteps<'k> {
    /// The steps of a run, before any of their rows were read; with `warmup`, those of the warm-up count.
    ///
    /// # Errors
    /// If no step can be replayed, whatever the rows hold.
    pub fn of(known: &'k RunContents<'k>, warmup: bool) -> Result<Self, Abstain> {
        let RunContents { run, manifest, steps, .. } = known;
        let warmup = if warmup { Warmup::default() } else { known.warmup() };
        let mut counting = inner(steps);
        counting.retain(|at| !warmup.has_step(Some(steps[*at].step)));
        if counting.is_empty() {
            return Err(Abstain::NoSteps);
        }
        let has_kernels = run.rows(RecordKind::Kernel) > 0;
        let clocks = known.clocks();
        if !has_kernels && of_a_gpu(manifest) {
            return Err(Abstain::NoKernels);
        }
        if let Some(bound_ns) = clocks.bound_ns.filter(|_| has_kernels && clocks.apart()) {
            return Err(Abstain::ClocksApart { bound_ns });
        }
        let mut rows = CollectedRows::default();
        if !has_kernels {
            for step in counting.iter().map(|at| &steps[*at]) {
                rows.spreads.entry(step.group().to_string()).or_default().offer(step.step, &mut Vec::new());
            }
            let kept = rows.spreads.values().flat_map(|spread| spread.kept.iter().copied());
            rows.spans = kept.map(|step| (step, Vec::new())).collect();
        }
        Ok(Self {
            places: counting.iter().map(|at| (steps[*at].step, *at)).collect(),
            known,
            counting,
            has_kernels,
            kernels_come: has_kernels,
            rows,
            last: (None, false),
            kernels_met: false,
            calls_met: false,
            most: (run.limits().get(Limit::Kernels), run.limits().get(Limit::OpenIntervals)),
            held: (0, 0),
            full_of_kernels: false,
            full_of_spans: false,
        })
    }

    /// Whether the kernels of a step are to be kept. Steps are asked for in the order in which their kernels lie.
    fn wants_kernels(&mut self, step: Option<u64>) -> bool {
        if self.last.0 != step {
            self.last = (step, step.is_some_and(|step| self.choose(step)));
        }
        self.last.1
    }

    fn choose(&mut self, step: u64) -> bool {
        let Some(row) = self.places.get(&step).map(|at| &self.known.steps[*at]) else { return false };
        if self.rows.met.insert(step) {
            let mut dropped = Vec::new();
            let spread = match self.rows.spreads.get_mut(row.group()) {
                Some(spread) => spread,
                None => self.rows.spreads.entry(row.group().to_string()).or_default(),
            };
            if spread.offer(step, &mut dropped) {
                self.rows.kernels.insert(step, Vec::new());
            }
            dropped.into_iter().for_each(|step| self.let_go(step));
        }
        self.rows.kernels.contains_key(&step)
    }

    /// Forgets a step's kernels.
    fn let_go(&mut self, step: u64) {
        self.held.0 -= self.rows.kernels.remove(&step).map_or(0, |list| list.len() as u64);
    }

    fn keep_kernel(&mut self, record: &KernelRecord) {
        self.kernels_met = true;
        self.calls_met |= record.launch_start.is_some();
        let Some(step) = record.step else { return };
        // A step may have been let go since it was asked for.
        let Some(list) = self.rows.kernels.get_mut(&step) else { return };
        list.push(record.clone());
        self.held.0 += 1;
        if self.held.0 > self.most.0 {
            // Without all its kernels, a step cannot be replayed.
            self.full_of_kernels = true;
            self.let_go(step);
            self.last = (None, false);
        }
    }

    /// Notes that all kernels were offered.
    fn end_kernels(&mut self) {
        if std::mem::take(&mut self.kernels_come) {
            self.rows.spans = self.rows.kernels.keys().map(|step| (*step, Vec::new())).collect();
            self.last = (None, false);
        }
    }

    /// Whether the intervals of a step are kept.
    fn wants_spans(&mut self, step: Option<u64>) -> bool {
        if self.last.0 != step {
            self.last = (step, step.is_some_and(|step| self.rows.spans.contains_key(&step)));
        }
        self.last.1
    }

    fn keep_span(&mut self, span: &SpanRecord) {
        if self.held.1 >= self.most.1 {
            self.full_of_spans = true;
            return;
        }
        if let Some(list) = span.step.and_then(|step| self.rows.spans.get_mut(&step)) {
            list.push(span.clone());
            self.held.1 += 1;
        }
    }

    /// What was left out.
    pub(super) fn left_out(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut reached = |limit, table, effect| {
            findings.push(self.known.run.limits().reached(limit).finding(table, effect));
        };
        if self.full_of_kernels {
            reached(Limit::Kernels, "table `kernels`", "steps that do not fit are not simulated");
        }
        if self.full_of_spans {
            let effect = "what comes after them is in no simulation: less of recording's cost is taken out";
            reached(Limit::OpenIntervals, "table `spans`", effect);
        }
        findings
    }

    /// Whether there are kernels and launch calls to replay steps from, where the run has a device.
    ///
    /// # Errors
    /// If there are not.
    pub(super) fn have_launches(&self) -> Result<(), Abstain> {
        match (self.has_kernels, self.kernels_met, self.calls_met) {
            (true, false, _) => Err(Abstain::NoKernels),
            (true, true, false) => Err(Abstain::NoLaunchCalls),
            _ => Ok(()),
        }
    }
}

impl Pass for ChosenSteps<'_> {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Kernel, RecordKind::Span]
    }

    fn unread(&self, table: RecordKind) -> &'static [&'static str] {
        if table == RecordKind::Span { NOT_OF_SPANS } else { NOT_OF_KERNELS }
    }

    fn rows(&mut self, batch: &Batch) {
        for record in &batch.kernels {
            // Most steps are not kept, and their rows are not looked at any further.
            if self.wants_kernels(record.step) {
                self.keep_kernel(record);
            }
        }
        if !batch.spans.is_empty() {
            self.end_kernels();
        }
        for span in &batch.spans {
            if self.wants_spans(span.step) {
                self.keep_span(span);
            }
        }
    }
}

/// Some of a kind's steps, evenly spread: every one of the first, then every second, fourth, …
#[derive(Debug, Default)]
pub(super) struct Spread {
    seen: usize,
    stride: usize,
    kept: Vec<u64>,
}

impl Spread {
    /// Numbers of the steps that are kept.
    pub(super) fn steps(&self) -> &[u64] {
        &self.kept
    }

    /// Whether to keep a step; what is no longer kept is in `dropped`.
    fn offer(&mut self, step: u64, dropped: &mut Vec<u64>) -> bool {
        self.stride = self.stride.max(1);
        let keep = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if keep {
            self.kept.push(step);
            if self.kept.len() > MOST_STEPS {
                let (mut at, kept) = (0, std::mem::take(&mut self.kept));
                for step in kept {
                    if at % 2 == 0 {
                        self.kept.push(step)
                    } else {
                        dropped.push(step)
                    }
                    at += 1;
                }
                self.stride *= 2;
            }
        }
        keep && self.kept.contains(&step)
    }
}

/// Indices of the steps, in order of start, that have no other step of their thread inside.
fn inner(steps: &[StepRow]) -> Vec<usize> {
    let mut last: FxHashMap<u32, usize> = FxHashMap::default();
    let mut around: FxHashSet<usize> = FxHashSet::default();
    for (at, step) in steps.iter().enumerate() {
        // Steps of a thread nest, so that the latest one is open if any is.
        if let Some(before) = last.insert(step.thread, at)
            && steps[before].end_ns() > step.start_ns
        {
            around.insert(before);
        }
    }
    (0..steps.len()).filter(|at| !around.contains(at)).collect()
}

/// Whether the run says that its steps launched work on a GPU.
fn of_a_gpu(manifest: &RunManifest) -> bool {
    let marked = manifest.gpu.as_ref().is_some_and(|gpu| gpu.marks.get("recorded").is_some_and(|n| *n > 0));
    let recorded = manifest.gpu.as_ref().and_then(|gpu| gpu.kernels.as_ref()).is_some_and(|all| all.recorded > 0);
    marked || recorded || ChosenDevice::of(manifest) == ChosenDevice::Gpu
}
