//! Makes models of the steps of a run that are replayed.

use super::abstain::Abstain;
use super::build::{StepRecords, build};
use super::chosen_steps::{ChosenSteps, CollectedRows};
use super::eager;
use super::group::{StepGroup, UnrecordedSteps};
use super::recording::{GivenPeaks, calibrated_launches, facts};
use super::replay::Replay;
use super::step_model::StepModel;
use super::together;
use candlescope_figures::known::RunContents;
use candlescope_figures::reading::ReadingNotes;
use candlescope_figures::{Distribution, StepRow};
use candlescope_reader::Run;
use candlescope_schema::SpanRecord;
use candlescope_schema::run::{Finding, RunManifest};
use candlescope_work::devices::PeaksError;
use candlescope_work::estimate::{Estimate, median};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

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

    /// Whether steps of the warm-up count: false unless [`warmup`](Self::warmup) was told so.
    pub fn counts_warmup(&self) -> bool {
        self.warmup
    }

    /// Peaks from a file that `bench peaks` wrote, or of any form that
    /// [`peaks_device`](candlescope_work::devices::peaks_device) reads, in place of those that the run names.
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
        let (known, rows) = RunContents::read(run);
        let mut chosen = ChosenSteps::of(&known, options.warmup)?;
        let noticed = rows.to(&mut [&mut chosen]);
        Self::of_chosen(chosen, &noticed, options)
    }

    /// The same of rows that were read with others.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub fn of_chosen(
        chosen: ChosenSteps<'_>,
        noticed: &ReadingNotes,
        options: &SimulationOptions,
    ) -> Result<Self, Abstain> {
        chosen.have_launches()?;
        let findings = [&noticed.findings[..], &chosen.left_out()].concat();
        let ChosenSteps { known, counting, has_kernels, rows, .. } = chosen;
        let counting: Vec<&StepRow> = counting.into_iter().map(|at| &known.steps[at]).collect();
        let reader = Reader { manifest: &known.manifest, options, counting: &counting };
        let (groups, absent) = if has_kernels { reader.of_device(rows) } else { reader.of_host(rows) };
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

struct Reader<'a> {
    manifest: &'a RunManifest,
    options: &'a SimulationOptions,
    counting: &'a [&'a StepRow],
}

type Groups = (Vec<StepGroup>, Vec<(String, Abstain)>);

impl Reader<'_> {
    fn of_device(&self, rows: CollectedRows) -> Groups {
        let CollectedRows { spreads, mut kernels, mut spans, met } = rows;
        let by_number: FxHashMap<u64, &StepRow> = self.counting.iter().map(|step| (step.step, *step)).collect();
        let alone = alone(self.counting, &met);
        let (mut groups, mut absent) = (Vec::new(), Vec::new());
        for (name, spread) in &spreads {
            let list: Vec<&StepRow> = spread.steps().iter().filter_map(|step| by_number.get(step).copied()).collect();
            let refused = if list.iter().all(|step| !alone.contains(&step.step)) {
                Some(Abstain::Concurrent { group: name.clone() })
            } else if list.iter().all(|step| step.intervals_lost.is_some_and(|n| n > 0)) {
                Some(Abstain::IntervalsLost { group: name.clone() })
            } else {
                None
            };
            if let Some(abstain) = refused {
                absent.push((name.clone(), abstain));
                continue;
            }
            let usable = |step: &&StepRow| alone.contains(&step.step) && step.intervals_lost.is_none_or(|n| n == 0);
            let records = list.into_iter().filter(usable).filter_map(|step| {
                let kernels = kernels.remove(&step.step)?;
                // A work without its call waited for nobody knows what.
                let complete = kernels.iter().all(|kernel| kernel.launch_start.is_some());
                let spans = spans.remove(&step.step).unwrap_or_default();
                complete.then(|| StepRecords { step: step.clone(), kernels, spans })
            });
            let records: Vec<StepRecords> = records.collect();
            if records.is_empty() {
                absent.push((name.clone(), Abstain::NoLaunchCalls));
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
        (groups, absent)
    }

    fn of_host(&self, rows: CollectedRows) -> Groups {
        let CollectedRows { spreads, mut spans, .. } = rows;
        let by_number: FxHashMap<u64, &StepRow> = self.counting.iter().map(|step| (step.step, *step)).collect();
        let groups = spreads.iter().map(|(name, spread)| {
            let steps = spread.steps().iter().filter_map(|step| by_number.get(step).copied());
            let records = steps.map(|step| StepRecords {
                step: step.clone(),
                kernels: Vec::new(),
                spans: spans.remove(&step.step).unwrap_or_default(),
            });
            self.group(name, records.collect(), None)
        });
        let mut groups: Vec<StepGroup> = groups.collect();
        let many_rows = Arc::new(together::many_rows(groups.iter().flat_map(|group| &group.models)));
        groups.iter_mut().flat_map(|group| &mut group.models).for_each(|model| model.many_rows = many_rows.clone());
        most_time_first(&mut groups, self.counting);
        (groups, Vec::new())
    }

    fn group(&self, name: &str, records: Vec<StepRecords>, with_kernels: Option<&FxHashSet<u64>>) -> StepGroup {
        let most = most_flops(records.iter().flat_map(|records| &records.spans));
        let mut facts = facts(self.manifest, name, most, &self.options.peaks);
        let contexts = records.iter().filter_map(|records| records.step.context_len.map(f64::from)).collect();
        let context = median(contexts);
        let kind = records.first().map(|records| records.step.span().to_string());
        let on_host = |records: &StepRecords| records.step.end_ns().saturating_sub(records.step.start_ns) as f64;
        let hosts: Vec<f64> = records.iter().map(on_host).collect();
        let intervals: Vec<f64> = records.iter().map(|records| records.spans.len() as f64).collect();
        let shared = Arc::new(facts.clone());
        let mut models: Vec<StepModel> = records.into_iter().map(|records| build(records, &shared)).collect();
        // Before calls cost what they cost in replays, where CUPTI records a graph's launch.
        if models.iter().any(|model| eager::replays_graph(&model.parts)) {
            let faithful = models.iter().filter(|model| Replay::of(model).is_ok());
            let launches = eager::measured(faithful, &facts.recording);
            facts.eager_launches = launches.or_else(|| calibrated_launches(self.manifest, &self.options.peaks));
            let shared = Arc::new(facts.clone());
            models.iter_mut().for_each(|model| model.facts = shared.clone());
        }
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
                let shared = Arc::new(facts.clone());
                models.iter_mut().for_each(|model| model.facts = shared.clone());
            }
        }
        let against_plain =
            self.manifest.overhead.in_place.as_ref().zip(kind).and_then(|(all, kind)| {
                all.kinds.get(&kind).filter(|kind| kind.ratio.is_finite() && kind.ratio > -1.0)
            });
        let in_place = against_plain.map(|kind| kind.ratio);
        // On a host alone, plain steps of the run itself say what an interval costs.
        let usual = Distribution::of(hosts.clone()).map(|hosts| hosts.median).zip(median(intervals));
        if let (None, Some(kind), Some((step_ns, intervals))) = (with_kernels, against_plain, usual) {
            let each = |ratio: f64| (step_ns - step_ns / (1.0 + ratio.max(0.0))) / intervals.max(1.0);
            let (low, high) = (kind.low.unwrap_or(kind.ratio), kind.high.unwrap_or(kind.ratio));
            facts.recording.interval_ns = Estimate { low: each(low), mid: each(kind.ratio), high: each(high) };
            facts.recording.interval_source = format!("measured: against {} plain steps", kind.n_plain);
            let shared = Arc::new(facts);
            models.iter_mut().for_each(|model| model.facts = shared.clone());
        }
        // On a host alone, the steps that are replayed are those that plain ones were compared with.
        let replayed = || Distribution::of(hosts).filter(|_| with_kernels.is_none() && in_place.is_some());
        let outside = outside.or_else(replayed).map(|outside| UnrecordedSteps {
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
