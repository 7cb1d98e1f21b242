//! One experiment, as its threads share it: what is tried, which stretch is open, and what was added in it.

use super::assigned::StretchAssignment;
use super::course::Course;
use super::{MOST_ARMS, Perturb, PerturbProgress, PerturbRefused};
use crate::clock::Ticks;
use crate::raw::phase_of;
use crate::record::{PerturbationRecord, SpanRecord, StepRecord};
use crate::vocabulary::{GpuSource, Phase, Side};
use crate::{Delay, HostNs, PathPattern};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustc_hash::FxHashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

/// Stretches that may wait for the drain; further ones are dropped, and their pair is made again.
const WAITING: usize = 4_096;

/// Steps after which nothing more is expected to become known of intervals on a device.
const LEARNING: u64 = 2_000;

/// From so many recorded steps on it is told which kind takes the most time.
const ENOUGH_STEPS: u64 = 8;
/// A kind of step that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// One path on one side.
#[derive(Debug)]
pub(crate) struct Arm {
    /// As it was asked for, without the amount: `path=mlp`.
    pub(crate) text: Arc<str>,
    pub(crate) path: PathPattern,
    pub(crate) side: Side,
    pub(crate) delay: Delay,
    /// Time on the device of one of its intervals, nanoseconds; 0 until it is known. What kernels took comes before what passed
    /// between two marks, in which the device may have waited for the host.
    device_ns: AtomicU64,
    of_kernels: AtomicBool,
    /// Complete pairs.
    pub(crate) pairs: AtomicU64,
}

impl Arm {
    /// Whether a stretch of it can be had: on a device the time of its intervals has to be known.
    pub(crate) fn is_able(&self) -> bool {
        self.side == Side::Host || self.device_ns.load(Relaxed) > 0
    }

    /// How long the device is kept waiting behind one interval, nanoseconds.
    pub(crate) fn device_delay_ns(&self) -> u64 {
        self.delay.of(self.device_ns.load(Relaxed) as f64) as u64
    }

    /// What a delayed stretch adds by what was asked for, nanoseconds, if it has so many intervals that take so long on
    /// the host.
    pub(super) fn asked_ns(&self, intervals: u64, host_ns: f64) -> f64 {
        let each = match self.side {
            Side::Host => self.delay.of(host_ns / intervals.max(1) as f64),
            Side::Device => self.device_delay_ns() as f64,
        };
        each * intervals as f64
    }
}

/// A stretch that has ended.
pub(crate) struct EndedStretch {
    pub(crate) arm: usize,
    pub(crate) pair: u64,
    pub(crate) delayed: bool,
    pub(crate) step: u64,
    pub(crate) name: Arc<str>,
    pub(crate) phase: u8,
    pub(crate) start: Ticks,
    pub(crate) step_end: Ticks,
    /// When the next step of its kind began.
    pub(crate) next: Option<Ticks>,
    pub(crate) intervals: u64,
    pub(crate) interval_ticks: u64,
    /// Ticks on the host, nanoseconds on a device.
    pub(crate) added: u64,
}

pub(crate) struct Experiment {
    pub(crate) arms: Vec<Arm>,
    /// Which steps stretches begin with, if that was said.
    step: Option<Arc<str>>,
    pub(crate) budget: f64,
    pub(crate) wanted: u64,
    pub(crate) ns_per_tick: f64,
    /// The stretch that is open: its number, its arm, whether it is delayed; 0 if none is. See [`StretchAssignment`].
    open: AtomicU64,
    /// Of that stretch.
    pub(super) sums: Sums,
    /// The same when its step ended.
    pub(super) sums_at_step_end: Sums,
    /// What it may still add.
    pub(super) allowed: AllowedDelay,
    /// Pairs have numbers above this one, so that those of one experiment are told from another's.
    pub(super) first_pair: u64,
    /// End of the step that the open stretch began with; 0 before.
    pub(crate) step_end: AtomicU64,
    pub(crate) course: Mutex<Course>,
    /// Number of the text of the name of those steps in a program that marks no phases.
    kind: AtomicU32,
    /// Time of recorded steps by their name; the drain's.
    kinds: Mutex<KindTimes>,
    pub(crate) ended: Sender<EndedStretch>,
    rows: Receiver<EndedStretch>,
    over: AtomicBool,
    /// Whether nothing else is recorded meanwhile.
    pub(crate) alone: bool,
    /// Steps of the kind that stretches begin with.
    pub(super) steps: AtomicU64,
}

/// What a stretch may add.
#[derive(Debug, Default)]
pub(super) struct AllowedDelay {
    /// The share of what was asked for that each interval gets: bits of a number up to 1.
    share: AtomicU64,
    /// What is left for all intervals: ticks on the host, nanoseconds on a device.
    left: AtomicU64,
}

impl AllowedDelay {
    pub(super) fn set(&self, share: f64, left: u64) {
        self.share.store(share.to_bits(), Relaxed);
        self.left.store(left, Relaxed);
    }

    /// Takes what an interval gets where so much was asked for.
    fn take(&self, asked: u64) -> u64 {
        let wanted = (asked as f64 * f64::from_bits(self.share.load(Relaxed))) as u64;
        // Threads may take at once; none takes what another one has.
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(wanted)));
        wanted.min(taken.unwrap_or_default())
    }
}

/// What intervals of a target did in a stretch.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) intervals: AtomicU64,
    pub(super) interval_ticks: AtomicU64,
    /// Ticks on the host, nanoseconds on a device.
    pub(super) added: AtomicU64,
}

impl Sums {
    pub(super) fn set(&self, to: &Self) {
        let pairs =
            [(&self.intervals, &to.intervals), (&self.interval_ticks, &to.interval_ticks), (&self.added, &to.added)];
        pairs.iter().for_each(|(own, to)| own.store(to.load(Relaxed), Relaxed));
    }
}

/// Recorded steps: how many, and the time of each kind in nanoseconds.
#[derive(Debug, Default)]
struct KindTimes {
    steps: u64,
    ns: FxHashMap<Arc<str>, u64>,
}

impl Experiment {
    /// `has_device`: whether GPU time is taken, without which nothing is known of intervals on a device.
    pub(crate) fn new(
        asked: &Perturb,
        has_device: bool,
        ns_per_tick: f64,
        number: u64,
    ) -> Result<Self, PerturbRefused> {
        if !(asked.budget > 0.0 && asked.budget <= 1.0) {
            return Err(PerturbRefused::Budget(asked.budget.to_string()));
        }
        if asked.pairs == 0 {
            return Err(PerturbRefused::NoPairs);
        }
        let mut arms = Vec::new();
        for what in &asked.what {
            for side in [Side::Host, Side::Device] {
                if what.side.is_some_and(|only| only != side) || (side == Side::Device && !has_device) {
                    continue;
                }
                let text: Arc<str> = what.target().into();
                if arms.iter().any(|arm: &Arm| arm.text == text && arm.side == side) {
                    return Err(PerturbRefused::Twice(text));
                }
                arms.push(Arm {
                    text,
                    path: what.path.clone(),
                    side,
                    delay: what.delay,
                    device_ns: AtomicU64::new(0),
                    of_kernels: AtomicBool::new(false),
                    pairs: AtomicU64::new(0),
                });
            }
        }
        match arms.len() {
            0 => return Err(PerturbRefused::Nothing),
            asked if asked > MOST_ARMS => return Err(PerturbRefused::TooMany { asked }),
            _ => {}
        }
        let (ended, rows) = bounded(WAITING);
        let course = Mutex::new(Course::new(rand::random(), arms.len()));
        Ok(Self {
            arms,
            step: asked.step.clone(),
            budget: asked.budget,
            wanted: asked.pairs,
            ns_per_tick,
            open: AtomicU64::new(0),
            sums: Sums::default(),
            sums_at_step_end: Sums::default(),
            allowed: AllowedDelay::default(),
            first_pair: number << 32,
            step_end: AtomicU64::new(0),
            course,
            kind: AtomicU32::new(UNKNOWN),
            kinds: Mutex::default(),
            ended,
            rows,
            over: AtomicBool::new(false),
            alone: asked.alone,
            steps: AtomicU64::new(0),
        })
    }

    /// The stretch that is open.
    pub(crate) fn assigned(&self) -> Option<StretchAssignment> {
        // Acquire and Release: who sees a stretch sees its sums at zero.
        Some(self.open.load(Acquire)).filter(|open| *open != 0).map(StretchAssignment::of_bits)
    }

    pub(crate) fn set_open(&self, assigned: Option<StretchAssignment>) {
        self.open.store(assigned.map_or(0, StretchAssignment::bits), Release);
    }

    /// Whether stretches begin with steps of this name; `text` is the number of the name's text.
    pub(crate) fn is_kind(&self, name: &str, text: u32, phase: u8, phases_marked: bool) -> bool {
        let by_time = || !phases_marked && self.kind.load(Relaxed) == text;
        self.is_kind_by_words(name, phase_of(phase)).unwrap_or_else(by_time)
    }

    /// The same by what was said of the kind, and by its phase; `None` where these do not tell.
    fn is_kind_by_words(&self, name: &str, phase: Option<Phase>) -> Option<bool> {
        match &self.step {
            Some(step) => Some(**step == *name),
            None => phase.map(|phase| matches!(phase, Phase::Decode | Phase::Encode)),
        }
    }

    /// What is added to an interval of a delayed stretch where `asked` was asked for: less where the budget has no
    /// more. Ticks on the host, nanoseconds on a device.
    pub(crate) fn granted(&self, asked: u64) -> u64 {
        self.allowed.take(asked)
    }

    /// One interval of the open stretch's target has ended.
    pub(crate) fn add(&self, of: StretchAssignment, interval: u64, added: u64) {
        if self.assigned() == Some(of) {
            self.sums.intervals.fetch_add(1, Relaxed);
            self.sums.interval_ticks.fetch_add(interval, Relaxed);
            self.sums.added.fetch_add(added, Relaxed);
        }
    }

    /// The step that a stretch began with has ended.
    pub(crate) fn step_ended(&self, of: StretchAssignment, at: Ticks) {
        if self.assigned() == Some(of) {
            self.sums_at_step_end.set(&self.sums);
            self.step_end.store(at.0, Relaxed);
        }
    }

    /// Learns from recorded intervals how long those of a target are on the device. Called by the drain.
    pub(crate) fn learn_spans(&self, spans: &[SpanRecord]) {
        for arm in self.arms.iter().filter(|arm| arm.side == Side::Device) {
            for span in spans {
                let Some(gpu) = span.gpu.as_ref().filter(|_| self.is_of_kind(span)) else { continue };
                if !arm.path.matches(&span.path.path, span.path.module.as_deref()) {
                    continue;
                }
                let of_kernels = gpu.source == GpuSource::Cupti;
                let better = of_kernels && !arm.of_kernels.swap(true, Relaxed);
                if !of_kernels && arm.of_kernels.load(Relaxed) {
                    continue;
                }
                let before = arm.device_ns.load(Relaxed);
                let now = if before == 0 || better { gpu.dur_ns } else { (before * 15 + gpu.dur_ns) / 16 };
                arm.device_ns.store(now.max(1), Relaxed);
            }
        }
    }

    /// Whether a recorded interval is part of a step of the kind that stretches begin with: others have other times.
    fn is_of_kind(&self, span: &SpanRecord) -> bool {
        let step = span.path.path.split('/').next().unwrap_or_default();
        self.is_kind_by_words(step, span.phase).unwrap_or(true)
    }

    /// Learns from recorded steps which kind takes the most time; `text_of` gives the number of a name's text. Called by the
    /// drain.
    pub(crate) fn learn_steps(&self, steps: &[StepRecord], text_of: impl Fn(&str) -> Option<u32>) {
        if self.step.is_some() || steps.is_empty() {
            return;
        }
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        for step in steps {
            *kinds.ns.entry(step.path.name.clone()).or_default() += step.host_dur_ns;
        }
        kinds.steps += steps.len() as u64;
        // The first that end are the shortest. Once stretches begin with these, the others are part of them, and not recorded.
        if kinds.steps < ENOUGH_STEPS {
            return;
        }
        let longest = kinds.ns.iter().max_by_key(|(_, ns)| **ns).and_then(|(name, _)| text_of(name));
        self.kind.store(longest.unwrap_or(UNKNOWN), Relaxed);
    }

    /// The stretches that have ended. Called by the drain.
    pub(crate) fn rows(&self, host: impl Fn(Ticks) -> HostNs) -> Vec<PerturbationRecord> {
        let ns = |ticks: u64| (ticks as f64 * self.ns_per_tick) as u64;
        let row = |ended: EndedStretch| {
            let arm = self.arms.get(ended.arm)?;
            let start = host(ended.start);
            Some(PerturbationRecord::of_fields(
                arm.text.clone(),
                arm.side,
                ended.pair,
                ended.delayed,
                ended.step,
                phase_of(ended.phase),
                ended.name,
                start,
                ns(ended.step_end.0.saturating_sub(ended.start.0)),
                ended.next.map(|next| ns(next.0.saturating_sub(ended.start.0))),
                ended.intervals,
                // Nothing is marked in a stretch: on a device it is what they took in the steps that were recorded.
                match arm.side {
                    Side::Host => ns(ended.interval_ticks),
                    Side::Device => ended.intervals * arm.device_ns.load(Relaxed),
                },
                if arm.side == Side::Device { ended.added } else { ns(ended.added) },
            ))
        };
        self.rows.try_iter().filter_map(row).collect()
    }

    /// No stretch begins any more, and the one that is open is given up.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
        self.give_up();
    }

    /// It begins: where nothing else is recorded meanwhile, nothing more becomes known of intervals on a device.
    pub(crate) fn begins(&self) {
        if self.alone {
            self.steps.store(LEARNING + 1, Relaxed);
        }
    }

    /// Whether steps are to be recorded as usual again: an experiment that is alone has to be ended for that.
    pub(crate) fn is_left(&self) -> bool {
        self.assigned().is_none() && self.is_over() && (!self.alone || self.over.load(Relaxed))
    }

    /// Whether every path and side that can be tried has its pairs, or the experiment was ended.
    pub(crate) fn is_over(&self) -> bool {
        let no_device = self.steps.load(Relaxed) > LEARNING;
        let has_all = |arm: &Arm| match arm.is_able() {
            true => arm.pairs.load(Relaxed) >= self.wanted,
            false => no_device,
        };
        self.over.load(Relaxed) || self.arms.iter().all(has_all)
    }

    pub(crate) fn progress(&self) -> PerturbProgress {
        let able = self.arms.iter().filter(|arm| arm.is_able());
        let pairs = able.clone().map(|arm| arm.pairs.load(Relaxed).min(self.wanted)).sum();
        PerturbProgress { pairs, wanted: able.count() as u64 * self.wanted, running: !self.is_over() }
    }
}
