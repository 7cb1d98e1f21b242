//! Figures of the device over the last seconds: MFU, MBU, tokens per second, busy share, and steps open at once. Pure.
//!
//! All of these are figures of a **device over the union of its steps**: the work of all threads is added, their steps'
//! times are merged where they overlap. Two threads that share a device do twice the work in the same time, not the
//! same work in twice the time. A step counts once it has ended; if it began before the window, its part inside the
//! window counts.
//!
//! Warm-up is in none of them. If some steps have no record, figures are over rows of recorded steps, as in reports:
//! [`candlescope_core::stretches::rows`].
//!
//! Steps do not say which device they ran on. Recorded kernels do: the devices that they name share the work, so MFU
//! and MBU are then the mean over these devices. If no kernels are recorded, everything counts as one device.

use super::recent::{ALWAYS, RecentStretches, Sums};
use candlescope_core::run::{RunManifest, model_key, multiplied_dtype};
use candlescope_core::stretches::{
    Row as StepsInRow, StepTime, Stretch, beside, covered, difference, intersection, length, merged, rows,
};
use candlescope_core::{Batch, DType, GpuSource, HostNs, KernelRecord, Phase, StepRecord, UnrecordedStep};
use candlescope_work::devices::Peak;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Length of the window in seconds: a few scrapes, so that no work is missed between them.
pub(crate) const WINDOW_S: i64 = 15;

/// Most steps of one phase; see [`RecentStretches`] for what happens to more.
const MOST_STEPS: usize = 1 << 14;

/// Most kernels of one device.
const MOST_KERNELS: usize = 1 << 16;

/// Most devices that are distinguished.
const MOST_DEVICES: usize = 64;

/// Recorded steps whose own record has not come yet: only very long ones, whose intervals come in parts.
const MOST_WAITING: usize = 4_096;

/// Phase of the figures over all phases.
pub(crate) const ALL_PHASES: &str = "all";

/// Which figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// FLOP/s as a share of the peak, by phase and peak.
    Mfu,
    /// Bandwidth as a share of the peak, by phase and peak.
    Mbu,
    /// Tokens a second, by phase.
    TokenRate,
    /// Mean number of steps open at once, by phase.
    Concurrency,
    /// Share of the recorded steps' time in which a kernel, copy or memset ran, by device.
    Busy,
}

/// The figures of work, in the order of [`RecentStep::work`].
const WORK: [Figure; 3] = [Figure::Mfu, Figure::Mbu, Figure::TokenRate];

fn span_of(time: &StepTime) -> Stretch {
    (time.start_ns, time.end_ns)
}

/// One value of one figure, with the values of its labels.
pub(crate) type Row = (Figure, Vec<String>, f64);

/// What recorded kernels say about one device.
#[derive(Debug)]
struct Device {
    kernels: RecentStretches,
    steps: RecentStretches,
}

/// A step of the last seconds.
#[derive(Debug, Clone, Copy)]
struct RecentStep {
    time: StepTime,
    phase: Option<Phase>,
    /// Whether its kernels were recorded.
    kernels: bool,
    /// Whether it warms up.
    warm: bool,
    /// Its work, by [`Figure`]: FLOPs, bytes, tokens.
    work: [Option<u64>; 3],
}

/// A step of the last seconds that has no record.
#[derive(Debug, Clone, Copy)]
struct UnrecordedTime {
    time: StepTime,
    phase: Option<Phase>,
    warm: bool,
}

/// The rows of recorded steps in the last seconds, and the time in them.
struct RecordedRows {
    rows: Vec<StepsInRow>,
    /// Time of the rows, without warm-up.
    windows: Vec<Stretch>,
    warm: Vec<Stretch>,
}

/// Work and time of the last seconds.
#[derive(Debug)]
pub(crate) struct Utilisation {
    peaks: Vec<Peak>,
    /// The manifest's facts about the model, for the type that is multiplied.
    model: BTreeMap<String, Value>,
    flops_by_dtype: HashMap<DType, u64>,
    /// Steps that state the amount, by figure; [`Figure::Concurrency`] includes all steps.
    work: BTreeMap<(Phase, Figure), RecentStretches>,
    all: RecentStretches,
    /// Every step, including warm-up and steps around others.
    seen: VecDeque<RecentStep>,
    /// Steps without a record whose times are known; `None` if the session does not tell them.
    unrecorded: Option<VecDeque<UnrecordedTime>>,
    /// All steps before this number were seen, or are older than the window.
    known_from: u64,
    /// Numbers from there on that were seen, so that a scrape does not have to count them.
    known: BTreeSet<u64>,
    /// Requests up to this number warm up.
    warmup: u64,
    /// Steps of the warm-up.
    warm: RecentStretches,
    /// Whether some steps have no record.
    sampled: bool,
    /// Whether any step has a phase.
    phased: bool,
    devices: BTreeMap<Arc<str>, Device>,
    /// Recorded steps that have not ended, and the devices they launched on.
    waiting: HashMap<u64, Vec<Arc<str>>>,
    now: i64,
}

impl Default for Utilisation {
    fn default() -> Self {
        Self {
            peaks: Vec::new(),
            model: BTreeMap::new(),
            flops_by_dtype: HashMap::new(),
            work: BTreeMap::new(),
            all: RecentStretches::new(MOST_STEPS),
            seen: VecDeque::new(),
            unrecorded: None,
            known_from: 0,
            known: BTreeSet::new(),
            warmup: 0,
            warm: RecentStretches::new(MOST_STEPS),
            sampled: false,
            phased: false,
            devices: BTreeMap::new(),
            waiting: HashMap::new(),
            now: i64::MIN,
        }
    }
}

impl Utilisation {
    /// Takes the peaks and the model's element type from the manifest.
    pub(crate) fn learn(&mut self, run: &RunManifest) {
        self.warmup = run.warmup_requests();
        // This label is defined by us, so only its two defined values are allowed.
        let ours = |peak: &Peak| peak.label == peak.origin().name() && (peak.is_flops() || peak.is_bandwidth());
        self.peaks = run.peaks().filter(ours).collect();
        let told = run
            .model
            .iter()
            .filter(|(key, _)| [model_key::DTYPE.name(), model_key::COMPUTE_DTYPE.name()].contains(&key.as_str()));
        self.model = told.map(|(key, value)| (key.clone(), value.clone())).collect();
    }

    /// Notes that some steps have no record, now or later.
    pub(crate) fn sampled(&mut self) {
        self.sampled = true;
    }

    /// Takes the work of a batch.
    pub(crate) fn add(&mut self, batch: &Batch) {
        for span in &batch.spans {
            if let (Some(flops), Some(dtype)) = (span.flops, span.dtype) {
                let sum = self.flops_by_dtype.entry(dtype).or_default();
                *sum = sum.saturating_add(flops);
            }
        }
        // Before the steps, which are then looked up among those that launched something.
        batch.kernels.iter().for_each(|kernel| self.kernel(kernel));
        batch.steps.iter().for_each(|step| self.step(step));
    }

    fn kernel(&mut self, kernel: &KernelRecord) {
        let room = self.devices.len() < MOST_DEVICES;
        let device = match self.devices.get_mut(&kernel.device) {
            Some(device) => device,
            None if room => self.devices.entry(kernel.device.clone()).or_insert_with(|| Device {
                kernels: RecentStretches::new(MOST_KERNELS),
                steps: RecentStretches::new(MOST_STEPS),
            }),
            None => return,
        };
        device.kernels.push((kernel.gpu_start.0, kernel.gpu_start.plus_ns(kernel.gpu_dur_ns).0), 0.0);
        let Some(step) = kernel.step else { return };
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&step) {
            self.waiting.clear();
        }
        let devices = self.waiting.entry(step).or_default();
        if !devices.contains(&kernel.device) {
            devices.push(kernel.device.clone());
        }
    }

    fn step(&mut self, step: &StepRecord) {
        let stretch = (step.host_start.0, step.host_start.plus_ns(step.host_dur_ns).0);
        self.expire(HostNs(stretch.1));
        let launched_on = self.waiting.remove(&step.step);
        if self.seen.len() >= MOST_STEPS {
            self.forget_first();
        }
        self.phased |= step.phase.is_some();
        if step.step >= self.known_from {
            self.known.insert(step.step);
        }
        let warm = super::step_warms_up(step, self.warmup);
        // A sequence that has ended is computed on with the others, but yields no token.
        let tokens = step.new_tokens.or(step.tokens).map(u64::from);
        let work = [step.flops, step.bytes, tokens];
        self.seen.push_back(RecentStep {
            time: StepTime { step: step.step, thread: step.thread.index, start_ns: stretch.0, end_ns: stretch.1 },
            phase: step.phase,
            kernels: launched_on.is_some() || step.gpu.is_some_and(|gpu| gpu.source == GpuSource::Cupti),
            warm,
            work,
        });
        if let Some(steps) = &step.unrecorded {
            self.unrecorded.get_or_insert_default();
            steps.iter().for_each(|step| self.add_unrecorded(step));
        }
        if warm {
            return self.warm.push(stretch, 0.0);
        }
        // If there are phases, a step without one may be around others, and the same time would count twice.
        if self.phased && step.phase.is_none() {
            return;
        }
        self.all.push(stretch, 0.0);
        for device in launched_on.into_iter().flatten() {
            if let Some(device) = self.devices.get_mut(&device) {
                device.steps.push(stretch, 0.0);
            }
        }
        let Some(phase) = step.phase else { return };
        let concurrency = (Figure::Concurrency, Some(0));
        for (figure, amount) in WORK.into_iter().zip(work).chain([concurrency]) {
            if let Some(amount) = amount {
                let recent = self.work.entry((phase, figure)).or_insert_with(|| RecentStretches::new(MOST_STEPS));
                recent.push(stretch, amount as f64);
            }
        }
    }

    fn add_unrecorded(&mut self, step: &UnrecordedStep) {
        let warm = super::warms_up(step.request, self.warmup);
        let time = StepTime { step: step.step, thread: 0, start_ns: step.host_start.0, end_ns: step.host_end().0 };
        let steps = self.unrecorded.get_or_insert_default();
        if steps.len() >= MOST_STEPS {
            steps.pop_front();
        }
        steps.push_back(UnrecordedTime { time, phase: step.phase, warm });
    }

    /// Removes what is older than the window.
    pub(crate) fn expire(&mut self, now: HostNs) {
        self.now = self.now.max(now.0);
        let start = self.window_start();
        let of_devices = self.devices.values_mut().flat_map(|device| [&mut device.kernels, &mut device.steps]);
        let of_steps = self.work.values_mut().chain([&mut self.all, &mut self.warm]);
        of_steps.chain(of_devices).for_each(|recent| recent.forget_before(start));
        while self.seen.front().is_some_and(|seen| seen.time.end_ns <= start) {
            self.forget_first();
        }
        if let Some(steps) = &mut self.unrecorded {
            while steps.front().is_some_and(|step| step.time.end_ns <= start) {
                steps.pop_front();
            }
        }
    }

    fn forget_first(&mut self) {
        let step = self.seen.pop_front().map(|seen| seen.time.step.saturating_add(1));
        self.known_from = self.known_from.max(step.unwrap_or(0));
        while self.known.first().is_some_and(|step| *step < self.known_from) {
            self.known.pop_first();
        }
    }

    fn window_start(&self) -> i64 {
        self.now.saturating_sub(WINDOW_S * 1_000_000_000)
    }

    /// Whether a step without a record may have run in the last seconds, because numbers are missing.
    fn has_holes(&self) -> bool {
        let known = self.known.len() as u64;
        self.known.last().is_some_and(|last| last.saturating_add(1).saturating_sub(self.known_from) > known)
    }

    /// The rows of recorded steps since `start`; `None` if no step lacks a record, or if nothing is told of those that
    /// do.
    fn in_rows(&self, start: i64) -> Option<RecordedRows> {
        let others = self.unrecorded.as_ref().filter(|_| self.sampled && self.has_holes())?;
        let others: Vec<StepTime> = others.iter().map(|step| step.time).collect();
        let since: Vec<StepTime> =
            self.seen.iter().map(|seen| seen.time).filter(|time| time.start_ns >= start).collect();
        let rows = rows(&since, &others, u64::MAX);
        let warm = self.unrecorded.iter().flatten().filter(|step| step.warm);
        let warm = merged(self.warm.stretches(start).into_iter().chain(warm.map(|step| span_of(&step.time))));
        let windows: Vec<Stretch> = rows.iter().map(|row| row.window).collect();
        Some(RecordedRows { windows: difference(&windows, &warm), warm, rows })
    }

    /// Sums over rows of recorded steps, of those steps that `which` selects by their phase and that state the work of
    /// `figure`: work of the steps that begin in them, and time of all.
    fn sums_in_rows(&self, sampled: &RecordedRows, figure: Figure, which: impl Fn(Option<Phase>) -> bool) -> Sums {
        let at = WORK.iter().position(|work| *work == figure);
        let stated = |seen: &&RecentStep| at.is_none_or(|at| seen.work[at].is_some());
        let steps = || self.seen.iter().filter(|seen| !seen.warm && which(seen.phase)).filter(stated);
        let others = self.unrecorded.iter().flatten().filter(|step| !step.warm && which(step.phase));
        let open = steps().map(|seen| seen.time).chain(others.map(|step| step.time));
        let open: Vec<Stretch> = open.map(|time| span_of(&time)).collect();
        let inside = |open: &Stretch| length(&intersection(&[*open], &sampled.windows));
        let sum_ns = open.iter().map(inside).fold(0, u64::saturating_add);
        let share = |time: &StepTime| {
            let open = span_of(time);
            match length(&[open]) {
                0 => 1.0,
                whole => length(&difference(&[open], &sampled.warm)) as f64 / whole as f64,
            }
        };
        let counts = |step: u64| {
            let row = sampled.rows.partition_point(|row| row.steps.end <= step);
            sampled.rows.get(row).is_some_and(|row| row.steps.contains(&step))
        };
        let amount = |seen: &RecentStep| at.and_then(|at| seen.work[at]).unwrap_or(0) as f64 * share(&seen.time);
        let amount = steps().filter(|seen| counts(seen.time.step)).map(amount).sum();
        Sums { amount, sum_ns, merged: intersection(&merged(open), &sampled.windows) }
    }

    /// Time in which all that was open has a record, ordered and disjoint.
    fn counted(&self, start: i64, sampled: Option<&RecordedRows>) -> Vec<Stretch> {
        if let Some(sampled) = sampled {
            let others = self.unrecorded.iter().flatten().map(|step| span_of(&step.time));
            return difference(&sampled.windows, &merged(others));
        }
        let recorded = match self.sampled && self.has_holes() {
            true => covered(&self.seen.iter().map(|seen| seen.time).collect::<Vec<_>>(), self.known_from..u64::MAX),
            false => vec![ALWAYS],
        };
        difference(&recorded, &self.warm.stretches(start))
    }

    /// Time in which steps without recorded kernels ran, if others of the same kind have recorded kernels.
    fn without_kernels(&self) -> Vec<Stretch> {
        let of = |kernels: bool| self.seen.iter().filter(move |seen| seen.kernels == kernels);
        let kinds: BTreeSet<Option<Phase>> = of(true).map(|seen| seen.phase).collect();
        let without = of(false).filter(|seen| kinds.contains(&seen.phase));
        beside(of(true).map(|seen| seen.time), without.map(|seen| seen.time))
    }

    /// Every figure that is known. An unknown figure has no row.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let start = self.window_start();
        let mut rows: Vec<Row> = Vec::new();
        let devices = self.devices.len().max(1) as f64;
        let sampled = self.in_rows(start);
        let counted = self.counted(start, sampled.as_ref());
        for (&(phase, figure), recent) in &self.work {
            let sums = match &sampled {
                Some(sampled) => self.sums_in_rows(sampled, figure, |of| of == Some(phase)),
                None => recent.within(start, &counted),
            };
            let union = sums.union_ns();
            if union == 0 {
                continue;
            }
            let a_second = sums.amount * 1e9 / union as f64;
            let phase = phase.as_str().to_string();
            match figure {
                Figure::TokenRate => rows.push((figure, vec![phase], a_second)),
                Figure::Concurrency => rows.push((figure, vec![phase], sums.sum_ns as f64 / union as f64)),
                _ => {
                    let of_kind = |peak: &&Peak| peak.is_flops() == (figure == Figure::Mfu);
                    for peak in self.applicable(phase.as_str()).into_iter().filter(of_kind) {
                        let labels = vec![phase.clone(), peak.label.clone()];
                        // If several peaks have the same name, the first one counts.
                        if !rows.iter().any(|(f, l, _)| *f == figure && *l == labels) {
                            rows.push((figure, labels, a_second / (peak.value * devices)));
                        }
                    }
                }
            }
        }
        let all = match &sampled {
            Some(sampled) => self.sums_in_rows(sampled, Figure::Concurrency, |phase| phase.is_some() || !self.phased),
            None => self.all.within(start, &counted),
        };
        if all.union_ns() > 0 {
            let open_at_once = all.sum_ns as f64 / all.union_ns() as f64;
            rows.push((Figure::Concurrency, vec![ALL_PHASES.into()], open_at_once));
        }
        let divided = match self.devices.is_empty() {
            true => Vec::new(),
            false => difference(&counted, &self.without_kernels()),
        };
        for (name, device) in &self.devices {
            // If kernels had to be dropped, the steps of that time would look idle.
            let start = start.max(device.kernels.complete_from());
            let steps = device.steps.within(start, &divided);
            if steps.union_ns() > 0 {
                let busy_ns = length(&intersection(&steps.merged, &device.kernels.stretches(start)));
                rows.push((Figure::Busy, vec![name.to_string()], busy_ns as f64 / steps.union_ns() as f64));
            }
        }
        rows
    }

    /// The peaks for a phase. For FLOPs, those of the element type that is multiplied: a ratio to another type's peak
    /// means nothing.
    fn applicable(&self, phase: &str) -> Vec<&Peak> {
        let most = self.flops_by_dtype.iter().max_by_key(|(_, flops)| **flops).map(|(dtype, _)| dtype.as_str());
        let used = multiplied_dtype(&self.model, phase, most);
        let fits = |peak: &&Peak| !peak.is_flops() || peak.is_for(used.as_deref());
        self.peaks.iter().filter(fits).collect()
    }
}
