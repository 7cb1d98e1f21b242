//! What the rules look at, prepared once: each kind of step with its unobserved time, its kernels, and the roofs.

use super::host_causes::HostOfStep;
use super::launch_parts::LaunchParts;
use super::product_line::ConstantCost;
use super::roof::roof;
use super::two_lines::{RowTime, TwoLines};
use candlescope_figures::account::{Account, DeviceAccount, Line, PhaseWork};
use candlescope_figures::advice::{AdvicePlace, UnobservedStep};
use candlescope_figures::host_time::PlaceTime;
use candlescope_figures::path_totals::by_rollup;
use candlescope_figures::{Analysis, PathTotals, PhaseRow, StepSeries, UsualSteps};
use candlescope_predict::simulation::{Simulation, StepGroup, TypicalStep};
use candlescope_schema::run::keys::Key;
use candlescope_schema::run::{InPlaceKind, model_key};
use candlescope_schema::{KernelKind, Phase};
use candlescope_work::devices::Roof;
use serde_json::Value;
use std::collections::BTreeMap;

/// Kinds of steps that are looked at, at most.
const MOST_KINDS: usize = 4;
/// Kinds of steps with a smaller share of the time are not looked at.
const LEAST_SHARE: f64 = 0.01;

/// A run as the rules see it.
pub(super) struct Scene<'a> {
    pub(super) analysis: &'a Analysis,
    /// Whether it ran on a GPU.
    pub(super) on_gpu: bool,
    /// UUID of the device whose work is looked at; `None` without recorded kernels.
    pub(super) device: Option<&'a str>,
    /// What the device allows.
    pub(super) roof: Roof,
    /// Totals by path without ordinals.
    pub(super) paths: BTreeMap<&'a str, &'a PathTotals>,
    /// The kinds of steps, the most time first.
    pub(super) steps: Vec<StepScene<'a>>,
}

/// One kind of step.
pub(super) struct StepScene<'a> {
    pub(super) name: &'a str,
    pub(super) row: &'a PhaseRow,
    pub(super) series: Option<&'a StepSeries>,
    /// Those that no stall and no cold start made far longer.
    pub(super) usual: Option<&'a UsualSteps>,
    pub(super) time: UnobservedStep,
    pub(super) work: Option<&'a PhaseWork>,
    pub(super) line: Option<&'a Line>,
    pub(super) lines: TwoLines,
    /// What its products cost each, whatever their size.
    pub(super) constant: Option<ConstantCost>,
    /// What the host did in it; `None` if no stacks were sampled in it.
    pub(super) host: Option<HostOfStep>,
    /// The same by whose code it was, on a GPU.
    pub(super) launches: Option<LaunchParts>,
    /// The same steps, to be replayed with changes.
    pub(super) replays: Option<&'a StepGroup>,
}

impl<'a> Scene<'a> {
    /// Bits of a weight, from the sizes in `run.json`.
    pub(super) fn weight_bits(&self) -> Option<f64> {
        let model = &self.analysis.manifest.model;
        let number = |key: Key<u64>| key.of(model).filter(|value| *value > 0).map(|value| value as f64);
        Some(number(model_key::WEIGHT_BYTES)? * 8.0 / number(model_key::PARAMETERS)?)
    }

    pub(super) fn of(analysis: &'a Analysis, account: Option<&'a Account>, simulation: Option<&'a Simulation>) -> Self {
        let on_gpu = analysis.ran_on_gpu();
        // With several devices, the one that worked most.
        let device = account
            .and_then(|account| account.devices.iter().max_by_key(|device| device.trace.busy_ns))
            .filter(|_| on_gpu);
        Self {
            analysis,
            on_gpu,
            device: device.map(|device| &*device.device),
            roof: roof(analysis, described(analysis, device.map(|device| &*device.device)).filter(|_| on_gpu)),
            paths: by_rollup(&analysis.intervals.paths),
            steps: steps(analysis, device, simulation),
        }
    }

    /// What the run says about the GPU whose work is looked at.
    pub(super) fn gpu(&self) -> Option<&'a Value> {
        described(self.analysis, self.device)
    }

    /// The totals of a path.
    pub(super) fn totals(&self, path: &str) -> Option<&'a PathTotals> {
        self.paths.get(path).copied()
    }
}

/// What the run says about the GPU of this UUID. Without one, or if the run does not know it, about the only one.
fn described<'a>(analysis: &'a Analysis, uuid: Option<&str>) -> Option<&'a Value> {
    let gpus = analysis.manifest.gpus();
    let known = uuid.and_then(|uuid| analysis.manifest.gpu(uuid));
    known.or_else(|| gpus.first().filter(|_| gpus.len() == 1))
}

fn steps<'a>(
    analysis: &'a Analysis,
    device: Option<&'a DeviceAccount>,
    simulation: Option<&'a Simulation>,
) -> Vec<StepScene<'a>> {
    let rows = &analysis.phases.rows;
    // What is right around a step may be a span inside another one.
    let around: Vec<&str> = rows.iter().filter_map(|row| row.inside.as_deref()).collect();
    let is_around =
        |name: &str, path: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let holds_others = |row: &PhaseRow| around.iter().any(|path| is_around(&row.name, path));
    let is_sampling = |row: &PhaseRow| row.name == Phase::Sample.as_str();
    let whole: u64 = rows.iter().filter(|row| !is_sampling(row) && !holds_others(row)).map(|row| row.total_ns).sum();
    let share = |row: &PhaseRow| row.total_ns as f64 / whole.max(1) as f64;
    let looked_at = |row: &&PhaseRow| {
        let marked = row.is_phase && !is_sampling(row);
        (marked || (row.inside.is_none() && !holds_others(row) && !is_sampling(row))) && share(row) >= LEAST_SHARE
    };
    let mut kinds: Vec<&PhaseRow> = rows.iter().filter(looked_at).filter(|row| row.duration.is_some()).collect();
    kinds.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    kinds.truncate(MOST_KINDS);
    let group = |row: &PhaseRow| simulation?.groups().iter().find(|group| group.name() == row.name);
    kinds.into_iter().filter_map(|row| StepScene::of(analysis, device, row, (share(row), group(row)))).collect()
}

impl<'a> StepScene<'a> {
    /// The mean context of the steps, in tokens.
    pub(super) fn mean_context(&self) -> Option<f64> {
        let contexts: Vec<f64> =
            self.series?.points.iter().filter_map(|point| point.context_len).map(f64::from).collect();
        (!contexts.is_empty()).then(|| contexts.iter().sum::<f64>() / contexts.len() as f64)
    }

    fn of(
        analysis: &'a Analysis,
        device: Option<&'a DeviceAccount>,
        row: &'a PhaseRow,
        (share_of_time, group): (f64, Option<&'a StepGroup>),
    ) -> Option<Self> {
        let duration = row.duration.as_ref()?;
        let named = |name: &str| name == row.name;
        let work = device.and_then(|device| device.work.iter().find(|work| named(&work.name) && work.steps > 0));
        let line = device.and_then(|device| device.phases.iter().find(|phase| named(&phase.name)));
        let mut time = unobserved(analysis, row, duration.median, duration.n as u64, work, share_of_time);
        let replays = group.and_then(|group| Some((group, group.typical().ok()?)));
        let replays = replays.filter(|(_, typical)| holds(typical, &time, work));
        // What other programs did to single steps is in the spread of the median, which fewer than six do not show.
        let spread = duration.median_ci95.filter(|_| work.is_none());
        let mut replayed = 1.0;
        if let Some((_, typical)) = &replays {
            let before = typical.unobserved.seconds.mid * 1e9;
            without_recording(&mut time, typical, work.is_some());
            replayed = time.unobserved_ns / before;
        }
        let (off, part) = (time.bound_ns.unwrap_or(0.0), time.unobserved_ns / time.observed_ns);
        time.range_ns = spread.map(|(low, high)| ((low * part - off).max(0.0), high * part + off));
        if work.is_none() {
            let half = spread.map(|(low, high)| (high - low) / 2.0);
            time.bound_ns = time.bound_ns.zip(half).map(|(bound, half)| bound.hypot(half));
        }
        let host = replays.as_ref().and_then(|(group, _)| group.host_ns()).map(|ns| ns * replayed);
        let lines = lines(&time, work, line.map(|phase| &phase.line), host);
        Some(Self {
            name: &row.name,
            row,
            series: analysis.series.iter().find(|series| named(&series.name)),
            usual: analysis.intervals.usual.iter().find(|usual| named(&usual.name)),
            time,
            work,
            line: line.map(|phase| &phase.line),
            lines,
            constant: None,
            host: None,
            launches: None,
            replays: replays.map(|(group, _)| group),
        })
    }

    /// The place of the step itself.
    pub(super) fn place(&self) -> AdvicePlace {
        AdvicePlace::of(self.name)
    }

    /// How many steps are usual.
    pub(super) fn usual_steps(&self) -> u64 {
        self.usual.map_or(self.row.steps, |usual| usual.steps)
    }

    /// The mean of the usual steps, in nanoseconds.
    pub(super) fn usual_mean_ns(&self) -> Option<f64> {
        let usual = self.usual.filter(|usual| usual.steps > 0 && usual.total_ns > 0)?;
        Some(usual.total_ns as f64 / usual.steps as f64)
    }

    /// The usual step as it was recorded, in nanoseconds, without what stalls in a few add.
    pub(super) fn usual_median_ns(&self) -> Option<f64> {
        self.usual.and_then(|usual| usual.median_ns()).or_else(|| self.usual_mean_ns())
    }

    /// Whether it generates tokens.
    pub(super) fn decodes(&self) -> bool {
        self.name == Phase::Decode.as_str()
    }

    /// Whether this path is in a step of this kind.
    pub(super) fn has(&self, path: &str) -> bool {
        path.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('/'))
    }

    /// What the host did at the paths of these steps, the step itself among them; nothing without stacks.
    pub(super) fn host_places<'h>(
        &self,
        scene: &Scene<'h>,
    ) -> impl Iterator<Item = (&'h String, &'h PlaceTime)> + use<'h, '_, 'a> {
        let places = scene.analysis.host.iter().flat_map(|host| &host.places);
        places.filter(|(rollup, _)| **rollup == self.name || self.has(rollup))
    }

    /// Of something summed over the recorded steps: how much in one.
    pub(super) fn each(&self, sum: u64) -> f64 {
        sum as f64 / self.work.map_or(1, |work| work.steps.max(1)) as f64
    }

    /// Kernels that a graph launched have no launch of their own.
    pub(super) fn runs_as_graph(&self) -> bool {
        self.work.is_some_and(|work| work.by_graph * 2 > work.kernels)
    }

    /// Time a step ÷ its recorded time: below 1, as recording kernels slows launches.
    pub(super) fn slowed(&self) -> f64 {
        slowed(&self.time, self.work)
    }
}

/// T from replayed steps. Recording makes no step shorter: a replay that is longer than what was measured is off by at
/// least that.
fn without_recording(time: &mut UnobservedStep, typical: &TypicalStep, has_kernels: bool) {
    let seconds = typical.unobserved.seconds;
    let bound = (seconds.high - seconds.low).abs() / 2.0;
    let (unobserved, bound) = if has_kernels || typical.measured_seconds <= 0.0 {
        // Held against steps without recorded kernels, which are others.
        (seconds.mid * 1e9, bound * 1e9)
    } else {
        // Some steps are replayed: the share of them that recording takes is taken from the median of all.
        let of_all = time.observed_ns / typical.measured_seconds;
        (seconds.mid * of_all, bound * of_all)
    };
    let above = (unobserved - time.observed_ns).max(0.0);
    time.unobserved_ns = unobserved - above;
    time.bound_ns = Some(bound.max(above));
    time.basis = "steps replayed without what recording their intervals and calls costs";
}

/// By how much a replayed step may differ from the steps whose kernels were not recorded.
const MOST_APART: f64 = 0.10;

/// Whether the replay agrees with what else is known about the unobserved step.
fn holds(typical: &TypicalStep, time: &UnobservedStep, work: Option<&PhaseWork>) -> bool {
    let seconds = typical.unobserved.seconds.mid;
    let apart = seconds * 1e9 / time.observed_ns - 1.0;
    // Where no step without recorded kernels is near enough to check against, all of them together are what is known;
    // where all steps were recorded, only that recording makes none shorter.
    let has_plain = work.is_some_and(|work| work.plain.is_some());
    let checked = match typical.check {
        Some(check) => check.abs() <= MOST_APART,
        None => !has_plain || apart >= -MOST_APART,
    };
    seconds > 0.0 && checked && apart <= MOST_APART
}

/// From so many steps at once on there are several threads.
pub(super) const SEVERAL: f64 = 1.05;

fn slowed(time: &UnobservedStep, work: Option<&PhaseWork>) -> f64 {
    let recorded = work.filter(|work| work.steps > 0).map(|work| work.open_ns as f64 / work.steps as f64);
    recorded.filter(|ns| *ns > 0.0).map_or(1.0, |ns| (time.unobserved_ns / ns).min(1.0))
}

/// T: the median step without recorded kernels, less what recording its intervals costs.
fn unobserved(
    analysis: &Analysis,
    row: &PhaseRow,
    median: f64,
    n: u64,
    work: Option<&PhaseWork>,
    share_of_time: f64,
) -> UnobservedStep {
    let plain = work.and_then(|work| work.plain);
    let (observed_ns, n) = plain.unwrap_or((median, n));
    let overhead = &analysis.manifest.overhead;
    let in_place = overhead.in_place.as_ref().and_then(|cost| {
        let kind = in_place_kind(analysis, row, &cost.kinds)?;
        let bound = cost.low.zip(cost.high).map(|(low, high)| observed_ns * (high - low).abs() / 2.0);
        Some((observed_ns * (1.0 - 1.0 / (1.0 + kind.ratio.max(0.0))), bound))
    });
    let intervals = row.intervals as f64 / row.steps.max(1) as f64;
    let (cost, bound_ns) = match in_place {
        Some((cost, bound)) => (cost, bound),
        // Between a model's operations an interval costs two to three times what it does in a loop: the second half of
        // that is the bound. Beside programs that empty the caches it was up to nine times (plain steps tell).
        None => {
            let more = if analysis.disturbance().is_some() { 7.0 } else { 1.0 };
            (intervals * overhead.per_interval_ns * 2.0, Some(intervals * overhead.per_interval_ns * more))
        }
    };
    let cost = cost.clamp(0.0, observed_ns * 0.5);
    let has_kernels = work.is_some() && plain.is_none();
    let basis = match (in_place.is_some(), has_kernels) {
        (true, false) => "median of recorded steps, less their cost against plain ones",
        (false, false) => "median of steps without recorded kernels, less their intervals × the cost of one",
        (_, true) => "median of steps with recorded kernels, which slow launches, less the cost of their intervals",
    };
    UnobservedStep {
        phase: row.name.clone(),
        n,
        observed_ns,
        unobserved_ns: observed_ns - cost,
        bound_ns: bound_ns.filter(|_| !has_kernels),
        range_ns: None,
        basis,
        device_ns: work.map(|work| work.busy_ns as f64 / work.steps.max(1) as f64),
        share_of_time,
    }
}

/// What recording costs steps of a kind: the run has it by the name of their span, and a row has their phase.
fn in_place_kind<'a>(
    analysis: &Analysis,
    row: &PhaseRow,
    kinds: &'a BTreeMap<String, InPlaceKind>,
) -> Option<&'a InPlaceKind> {
    let series = analysis.series.iter().find(|series| series.name == row.name);
    series.and_then(|series| kinds.get(&series.span)).or_else(|| kinds.get(&row.name))
}

/// The step's two lines. `host` is what the host does without waiting, where the step can be replayed: that also finds
/// waits in calls that are not recorded, such as a synchronisation or a launch into a full queue.
fn lines(time: &UnobservedStep, work: Option<&PhaseWork>, line: Option<&Line>, host: Option<f64>) -> TwoLines {
    let t = time.unobserved_ns;
    let Some(work) = work else { return TwoLines { t, host: t, overlap: 1.0, ..TwoLines::default() } };
    let (n, slowed) = (work.steps.max(1) as f64, slowed(time, Some(work)));
    // A step cannot be shorter than its work on the device. Where recorded steps are longer ones than the median, such as
    // prefills of longer prompts, their work counts as its share of them.
    let scale = if work.busy_ns as f64 / n > t { slowed } else { 1.0 };
    let rows: Vec<RowTime> = work
        .rows
        .iter()
        .map(|row| RowTime {
            ns: row.ns as f64 / n * scale,
            launches: if row.kind == KernelKind::Kernel { row.count as f64 / n } else { 0.0 },
            follows: row.follows as f64 / n,
        })
        .collect();
    let sum: f64 = rows.iter().map(|row| row.ns).sum();
    let host_bound = line.map_or(0, |line| line.gaps.host_bound.n + line.gaps.sync.n);
    // What the device needs between two kernels that are both in its queue.
    let gap = line
        .map(|line| line.gaps.launch_overhead)
        .filter(|gaps| gaps.n >= 10 && gaps.n > host_bound / 10)
        .map_or(0.0, |gaps| gaps.ns as f64 / gaps.n as f64);
    let busy = work.busy_ns as f64 / n * scale;
    // While one of several threads' steps is open, the device works for all of them.
    let others =
        line.filter(|line| line.steps > 0).zip(line.and_then(Line::steps_at_once)).map_or(0.0, |(line, at_once)| {
            if at_once < SEVERAL { 0.0 } else { (line.busy_ns as f64 / line.steps as f64 * at_once - busy).max(0.0) }
        });
    let launches = work.kernels as f64 / n;
    let blocked = work.blocked_ns.saturating_add(work.waited_at_end_ns) as f64 / n * slowed;
    // A launch cannot cost more than the step has time for.
    let launch = work.launch_every.map_or(0.0, |(ns, _)| ns * slowed).min(t / launches.max(1.0));
    TwoLines {
        t,
        host: host.unwrap_or(t - blocked).min(t).max(0.0),
        host_outside: work.edges_ns as f64 / n * slowed,
        overlap: if sum > 0.0 { (busy / sum).min(1.0) } else { 1.0 },
        // The device's line is no longer than the step.
        others,
        gap: if launches > 0.0 { gap.min(((t - busy) / launches).max(0.0)) } else { 0.0 },
        launch,
        floors: Vec::new(),
        rows,
    }
}
