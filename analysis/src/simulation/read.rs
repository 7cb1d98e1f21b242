//! Reads the steps of a run that are replayed.

use super::abstain::Abstain;
use super::build::{StepRecords, build};
use super::estimate::{Estimate, median};
use super::group::{Outside, StepGroup};
use super::recording::{GivenPeaks, facts};
use super::replay::Replay;
use super::step_model::StepModel;
use crate::devices::PeaksError;
use crate::limits::Limit;
use crate::passes::{Clocks, Distribution, StepRow, Warmup};
use crate::reader::Run;
use candlescope_core::run::{Finding, RunManifest};
use candlescope_core::{KernelRecord, RecordKind, RequestRecord, SpanRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps of a kind that are replayed, spread over the run.
const MOST_STEPS: usize = 64;
/// A call costs no more to record than this, in nanoseconds.
const MOST_OF_A_CALL_NS: f64 = 10_000.0;
/// Steps outside the windows of kernels from which on what CUPTI costs is taken from them.
const ENOUGH_OUTSIDE: u64 = 6;

/// What a simulation takes into itself.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SimulationOptions {
    warmup: bool,
    peaks: GivenPeaks,
}

impl SimulationOptions {
    /// Whether steps of the warm-up count. They do not unless told otherwise.
    #[must_use]
    pub fn warmup(self, counts: bool) -> Self {
        Self { warmup: counts, ..self }
    }

    /// Peaks from a file that `bench peaks` wrote, or of any form that
    /// [`peaks_device`](crate::devices::peaks_device) reads, in place of those that the run names.
    ///
    /// # Errors
    /// If they are not JSON, or lack a bandwidth or FLOP/s.
    pub fn peaks_file(self, text: &str) -> Result<Self, PeaksError> {
        Ok(Self { peaks: GivenPeaks::read(text)?, ..self })
    }
}

/// The steps of a run that can be replayed.
#[derive(Debug, Clone)]
pub struct Simulation {
    groups: Vec<StepGroup>,
    absent: Vec<(String, Abstain)>,
    findings: Vec<Finding>,
}

impl Simulation {
    /// Reads some steps of each kind: at most 64, spread over the run.
    ///
    /// # Errors
    /// If no step of the run can be replayed.
    pub fn of(run: &Run, options: &SimulationOptions) -> Result<Self, Abstain> {
        let manifest = run.manifest().cloned().unwrap_or_default();
        let (steps, requests, mut findings) = steps_and_requests(run);
        let warmup = if options.warmup { Warmup::default() } else { Warmup::of(&manifest, &requests, &steps) };
        let inner = inner(&steps);
        let counting: Vec<&StepRow> =
            inner.into_iter().map(|at| &steps[at]).filter(|step| !warmup.has_step(Some(step.step))).collect();
        if counting.is_empty() {
            return Err(Abstain::NoSteps);
        }
        let has_kernels = run.rows(RecordKind::Kernel) > 0;
        let clocks = Clocks::of(&manifest);
        if !has_kernels && of_a_gpu(&manifest) {
            return Err(Abstain::NoKernels);
        }
        if let Some(bound_ns) = clocks.bound_ns.filter(|_| has_kernels && clocks.apart()) {
            return Err(Abstain::ClocksApart { bound_ns });
        }
        let reader = Reader { run, manifest: &manifest, options, counting: &counting };
        let (groups, absent) =
            if has_kernels { reader.of_device(&mut findings)? } else { reader.of_host(&mut findings) };
        if groups.is_empty() {
            return Err(absent.into_iter().next().map_or(Abstain::NoSteps, |(_, abstain)| abstain));
        }
        Ok(Self { groups, absent, findings })
    }

    /// The kinds of steps, those that take the most time first.
    pub fn groups(&self) -> &[StepGroup] {
        &self.groups
    }

    /// Kinds of steps about which nothing can be said, and why.
    pub fn absent(&self) -> &[(String, Abstain)] {
        &self.absent
    }

    /// What was noticed while the run was read.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

fn steps_and_requests(run: &Run) -> (Vec<StepRow>, Vec<RequestRecord>, Vec<Finding>) {
    let mut seen = run.findings().to_vec();
    let (mut steps, mut requests): (Vec<StepRow>, Vec<RequestRecord>) = (Vec::new(), Vec::new());
    for kind in [RecordKind::Request, RecordKind::Step] {
        let mut batches = run.table(kind).held();
        for batch in batches.by_ref() {
            steps.extend(batch.steps.iter().map(StepRow::of));
            requests.extend(batch.requests);
        }
        seen.extend(batches.findings());
    }
    requests.sort_by_key(|request| (request.host_start, request.request));
    steps.sort_by_key(|step| (step.start_ns, step.step));
    (steps, requests, seen)
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
    let named = manifest.options.get("device").and_then(|device| device.as_str());
    let marked = manifest.gpu.as_ref().is_some_and(|gpu| gpu.marks.get("recorded").is_some_and(|n| *n > 0));
    let recorded = manifest.gpu.as_ref().and_then(|gpu| gpu.kernels.as_ref()).is_some_and(|all| all.recorded > 0);
    marked || recorded || named.is_some_and(|name| name.starts_with("cuda"))
}

struct Reader<'a> {
    run: &'a Run,
    manifest: &'a RunManifest,
    options: &'a SimulationOptions,
    counting: &'a [&'a StepRow],
}

type Groups = (Vec<StepGroup>, Vec<(String, Abstain)>);

/// Some of a kind's steps, evenly spread: every one of the first, then every second, fourth, …
#[derive(Default)]
struct Spread {
    seen: usize,
    stride: usize,
    kept: Vec<u64>,
}

impl Spread {
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

impl Reader<'_> {
    fn of_device(&self, findings: &mut Vec<Finding>) -> Result<Groups, Abstain> {
        let rows: FxHashMap<u64, &StepRow> = self.counting.iter().map(|step| (step.step, *step)).collect();
        let mut spreads: BTreeMap<&str, Spread> = BTreeMap::new();
        let mut kept: FxHashMap<u64, Vec<KernelRecord>> = FxHashMap::default();
        let mut met: FxHashSet<u64> = FxHashSet::default();
        let (mut calls, mut records) = (false, false);
        let (most, mut held, mut full) = (self.run.limits().get(Limit::Kernels), 0_u64, false);
        let mut batches = self.run.table(RecordKind::Kernel);
        for batch in batches.by_ref() {
            for record in batch.kernels {
                let Some(row) = record.step.and_then(|step| rows.get(&step)) else { continue };
                (calls, records) = (calls || record.launch_start.is_some(), true);
                if met.insert(row.step) {
                    let mut dropped = Vec::new();
                    if spreads.entry(row.group()).or_default().offer(row.step, &mut dropped) {
                        kept.insert(row.step, Vec::new());
                    }
                    let gone = dropped.iter().filter_map(|step| kept.remove(step));
                    held -= gone.map(|list| list.len() as u64).sum::<u64>();
                }
                if let Some(list) = kept.get_mut(&row.step) {
                    list.push(record);
                    held += 1;
                }
                if held > most {
                    // Without all its kernels, a step cannot be replayed.
                    full = true;
                    held -= kept.remove(&row.step).map_or(0, |list| list.len() as u64);
                }
            }
        }
        findings.extend(batches.findings());
        if full {
            let effect = "steps that do not fit are not simulated";
            findings.push(self.run.limits().reached(Limit::Kernels).finding("table `kernels`", effect));
        }
        if !records {
            return Err(Abstain::NoKernels);
        }
        if !calls {
            return Err(Abstain::NoLaunchCalls);
        }
        let alone = alone(self.counting, &met);
        let (mut groups, mut absent) = (Vec::new(), Vec::new());
        let mut spans = self.spans(kept.keys().copied().collect(), findings);
        for (name, spread) in &spreads {
            let list: Vec<&StepRow> = spread.kept.iter().filter_map(|step| rows.get(step).copied()).collect();
            let refused = if list.iter().all(|step| !alone.contains(&step.step)) {
                Some(Abstain::Concurrent { group: (*name).to_string() })
            } else if list.iter().all(|step| step.intervals_lost.is_some_and(|n| n > 0)) {
                Some(Abstain::IntervalsLost { group: (*name).to_string() })
            } else {
                None
            };
            if let Some(abstain) = refused {
                absent.push(((*name).to_string(), abstain));
                continue;
            }
            let usable = |step: &&StepRow| alone.contains(&step.step) && step.intervals_lost.is_none_or(|n| n == 0);
            let records = list.into_iter().filter(usable).filter_map(|step| {
                let kernels = kept.remove(&step.step)?;
                // A work without its call waited for nobody knows what.
                let complete = kernels.iter().all(|kernel| kernel.launch_start.is_some());
                let spans = spans.remove(&step.step).unwrap_or_default();
                complete.then(|| StepRecords { step: step.clone(), kernels, spans })
            });
            let records: Vec<StepRecords> = records.collect();
            if records.is_empty() {
                absent.push(((*name).to_string(), Abstain::NoLaunchCalls));
                continue;
            }
            groups.push(self.group(name, records, Some(&met)));
        }
        for step in self.counting.iter().filter(|step| !spreads.contains_key(step.group())) {
            if !absent.iter().any(|(name, _)| name == step.group()) {
                absent.push((step.group().to_string(), Abstain::NoKernels));
            }
        }
        most_time_first(&mut groups, self.counting);
        Ok((groups, absent))
    }

    fn of_host(&self, findings: &mut Vec<Finding>) -> Groups {
        let mut spreads: BTreeMap<&str, Spread> = BTreeMap::new();
        for step in self.counting {
            spreads.entry(step.group()).or_default().offer(step.step, &mut Vec::new());
        }
        let wanted: FxHashSet<u64> = spreads.values().flat_map(|spread| spread.kept.iter().copied()).collect();
        let mut spans = self.spans(wanted, findings);
        let rows: FxHashMap<u64, &StepRow> = self.counting.iter().map(|step| (step.step, *step)).collect();
        let groups = spreads.iter().map(|(name, spread)| {
            let steps = spread.kept.iter().filter_map(|step| rows.get(step).copied());
            let records = steps.map(|step| StepRecords {
                step: step.clone(),
                kernels: Vec::new(),
                spans: spans.remove(&step.step).unwrap_or_default(),
            });
            self.group(name, records.collect(), None)
        });
        let mut groups: Vec<StepGroup> = groups.collect();
        most_time_first(&mut groups, self.counting);
        (groups, Vec::new())
    }

    /// The intervals of some steps.
    fn spans(&self, steps: FxHashSet<u64>, findings: &mut Vec<Finding>) -> FxHashMap<u64, Vec<SpanRecord>> {
        let mut all: FxHashMap<u64, Vec<SpanRecord>> = FxHashMap::default();
        let (most, mut held) = (self.run.limits().get(Limit::OpenIntervals), 0_u64);
        let mut batches = self.run.table(RecordKind::Span);
        'table: for batch in batches.by_ref() {
            for span in batch.spans {
                if let Some(step) = span.step.filter(|step| steps.contains(step)) {
                    if held >= most {
                        let effect = "what comes after them is in no simulation: less of recording's cost is taken out";
                        findings.push(self.run.limits().reached(Limit::OpenIntervals).finding("table `spans`", effect));
                        break 'table;
                    }
                    held += 1;
                    all.entry(step).or_default().push(span);
                }
            }
        }
        findings.extend(batches.findings());
        all
    }

    fn group(&self, name: &str, records: Vec<StepRecords>, with_kernels: Option<&FxHashSet<u64>>) -> StepGroup {
        let most = most_flops(records.iter().flat_map(|records| &records.spans));
        let mut facts = facts(self.manifest, name, most, &self.options.peaks);
        let contexts = records.iter().filter_map(|records| records.step.context_len.map(f64::from)).collect();
        let context = median(contexts);
        let kind = records.first().map(|records| records.step.span().to_string());
        let on_host = |records: &StepRecords| records.step.end_ns().saturating_sub(records.step.start_ns) as f64;
        let hosts: Vec<f64> = records.iter().map(on_host).collect();
        let shared = Arc::new(facts.clone());
        let mut models: Vec<StepModel> = records.into_iter().map(|records| build(records, &shared)).collect();
        // A step that ends on the host before its work does takes another time than its interval.
        let ends_with_it = models.iter().zip(&hosts).all(|(model, host)| model.measured_ns <= host * 1.01);
        let outside = with_kernels.filter(|_| ends_with_it).and_then(|met| {
            let near = |step: &&&StepRow| match (context, step.context_len.map(f64::from)) {
                (Some(own), Some(other)) => (other - own).abs() <= (own * 0.15).max(32.0),
                (own, other) => own.is_none() && other.is_none(),
            };
            let steps = self.counting.iter().filter(|step| step.group() == name && !met.contains(&step.step));
            Distribution::of(steps.filter(near).map(|step| step.dur_ns as f64).collect())
        });
        if let Some(outside) = outside.as_ref().filter(|outside| outside.n as u64 >= ENOUGH_OUTSIDE) {
            let (low, high) = outside.median_ci95.unwrap_or((outside.median, outside.median));
            let replays: Vec<Replay<'_>> = models.iter().filter_map(|model| Replay::of(model).ok()).collect();
            let cost = |target: f64| {
                median(replays.iter().map(|replay| replay.cost_of_a_call(target, MOST_OF_A_CALL_NS)).collect())
            };
            // A longer step outside leaves less to the calls.
            if let (Some(low), Some(mid), Some(high)) = (cost(high), cost(outside.median), cost(low)) {
                facts.recording.call_ns = Estimate { low: low.min(mid), mid, high: high.max(mid) };
                facts.recording.call_source =
                    format!("measured: these steps beside {} outside the windows of kernels", outside.n);
                let shared = Arc::new(facts);
                models.iter_mut().for_each(|model| model.facts = shared.clone());
            }
        }
        let in_place = self.manifest.overhead.in_place.as_ref().zip(kind).and_then(|(all, kind)| {
            all.kinds.get(&kind).map(|kind| kind.ratio).filter(|ratio| ratio.is_finite() && *ratio > -1.0)
        });
        // On a host alone, the steps that are replayed are those that plain ones were compared with.
        let replayed = || Distribution::of(hosts).filter(|_| with_kernels.is_none() && in_place.is_some());
        let outside = outside.or_else(replayed).map(|outside| Outside {
            steps: outside.n as u64,
            seconds: outside.median / 1e9,
            in_place,
            plain_seconds: in_place.map(|ratio| outside.median / 1e9 / (1.0 + ratio)),
        });
        StepGroup { name: name.to_string(), models, outside }
    }
}

/// Those of the steps with kernels that overlap with no other one of another thread.
fn alone(steps: &[&StepRow], with_kernels: &FxHashSet<u64>) -> FxHashSet<u64> {
    let mut alone: FxHashSet<u64> = with_kernels.clone();
    let mut open: Vec<&StepRow> = Vec::new();
    for step in steps.iter().filter(|step| with_kernels.contains(&step.step)) {
        open.retain(|other| other.end_ns() > step.start_ns);
        for other in open.iter().filter(|other| other.thread != step.thread) {
            alone.remove(&other.step);
            alone.remove(&step.step);
        }
        open.push(step);
    }
    alone
}

fn most_time_first(groups: &mut [StepGroup], steps: &[&StepRow]) {
    let mut totals: FxHashMap<&str, u64> = FxHashMap::default();
    for step in steps {
        let total = totals.entry(step.group()).or_default();
        *total = total.saturating_add(step.dur_ns);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(totals.get(group.name()).copied().unwrap_or(0)));
}

/// The element type that most FLOPs are annotated with.
fn most_flops<'a>(spans: impl Iterator<Item = &'a SpanRecord>) -> Option<&'static str> {
    let mut sums: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (dtype, flops) in spans.filter_map(|span| span.dtype.zip(span.flops)) {
        let sum = sums.entry(dtype.as_str()).or_default();
        *sum = sum.saturating_add(flops);
    }
    sums.into_iter().max_by_key(|(_, flops)| *flops).map(|(dtype, _)| dtype)
}
