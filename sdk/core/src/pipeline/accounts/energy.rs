//! What the counters of energy counted, divided among steps and so among requests, reading by reading.
//!
//! A stretch between two readings is settled when every step that ran in it has come, or after a while with those that
//! have. Within it energy follows power, as sampled, and goes to the innermost open step of each thread. What is counted is
//! the sum of what steps for requests, other steps, idling and time of which nobody knows have of it, whatever happens.

use super::open_account::{Account, BatchTime, RequestEnergy};
use crate::HostNs;
use crate::metric;
use crate::record::{RequestRecord, SampleRecord};
use crate::run::{RunManifest, option_key};
use candlescope_schema::accounts::divided;
use candlescope_schema::accounts::energy_curve::{anchored, at, integral};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How far readings may be ahead of a stretch that is not settled, because a step goes on or its record waits.
///
/// Overload policy: it is settled then without the steps that have not come, whose requests have no energy.
const PATIENCE_NS: i64 = 5_000_000_000;

/// A counter that was not read for so long is not waited for.
const READ_WITHIN: Duration = Duration::from_secs(5);
const READ_WITHIN_NS: i64 = 5_000_000_000;

/// Steps that stretches wait for, and the shares of their requests, together.
///
/// Overload policy: beyond this the oldest are forgotten: their requests have no energy, and time up to their end is not
/// known.
const MOST_WAITING: usize = 262_144;

/// Samples of power that wait for a reading of the counter.
const MOST_POWER: usize = 65_536;

/// By whom energy is used, in the order of a device's sums.
const OF: [&str; 4] =
    [metric::ENERGY_OF_REQUESTS, metric::ENERGY_OF_OTHER_STEPS, metric::ENERGY_OF_IDLE, metric::ENERGY_UNATTRIBUTED];
const REQUESTS: usize = 0;
const OTHER_STEPS: usize = 1;
const IDLE: usize = 2;
const UNATTRIBUTED: usize = 3;

/// A request's energy in joules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RequestJoules {
    pub(super) joules: f64,
    /// Least and most; `None` where power is not sampled.
    pub(super) bound: Option<(f64, f64)>,
}

/// A step whose time is not settled of every device.
#[derive(Debug)]
struct UnsettledStep {
    thread: u32,
    start: i64,
    end: i64,
    shares: Vec<(u64, f64)>,
}

impl UnsettledStep {
    /// What it counts for in [`MOST_WAITING`].
    fn weight(&self) -> usize {
        1 + self.shares.len()
    }
}

/// One device's sensors.
#[derive(Debug, Default)]
struct Device {
    /// Samples of power, from the last one before the stretch that is settled next.
    power: Vec<(i64, f64)>,
    /// Lowest and highest of all samples; `None` before the first.
    watts: Option<(f64, f64)>,
    /// Readings of the counter, from the one at which the next stretch begins.
    counter: Vec<(i64, f64)>,
    /// First reading, and the one up to which all is settled.
    covered: Option<(i64, i64)>,
    /// Up to when it was not known which steps ran.
    unknown_until: Option<i64>,
    /// Joules, in the order of [`OF`].
    sums: [f64; 4],
    /// Its sums have gone out, and go on.
    is_told: bool,
}

/// A stretch between two readings.
struct CounterStretch {
    from: i64,
    to: i64,
    curve: Vec<(i64, f64)>,
    /// Every step that ran in it has come.
    is_known: bool,
}

impl Device {
    fn read(&mut self, time: i64, joules: f64) {
        match self.counter.last() {
            Some((last, _)) if time <= *last => return,
            // A counter that falls was reset, and says nothing about the time since it was read. What it had counted
            // was used, by whom is not found out any more.
            Some((_, before)) if joules < *before => {
                self.sums[UNATTRIBUTED] += self.counter.first().map_or(0.0, |(_, first)| before - first);
                self.counter.clear();
                self.covered = None;
            }
            _ => {}
        }
        self.counter.push((time, joules));
        self.covered.get_or_insert((time, time));
    }

    fn sample_power(&mut self, time: i64, watts: f64) {
        if self.power.last().is_some_and(|(last, _)| time <= *last) {
            return;
        }
        let (least, most) = self.watts.unwrap_or((watts, watts));
        self.watts = Some((least.min(watts), most.max(watts)));
        if self.power.len() >= MOST_POWER {
            self.power.drain(..MOST_POWER / 2);
        }
        self.power.push((time, watts));
    }

    /// The next stretch, if it is to be settled now.
    fn next(&mut self, around: &BatchTime) -> Option<CounterStretch> {
        let (from, to) = (*self.counter.first()?, *self.counter.get(1)?);
        let newest = self.counter.last()?.0;
        let is_known = to.0 <= around.known_until;
        if !is_known && !around.is_last && newest.saturating_sub(to.0) < PATIENCE_NS {
            return None;
        }
        let first = self.power.partition_point(|(time, _)| *time <= from.0).saturating_sub(1);
        let last = (self.power.partition_point(|(time, _)| *time < to.0) + 1).min(self.power.len());
        let power = self.power.get(first..last).unwrap_or_default();
        let curve = anchored(&integral(power), &[from, to]);
        self.power.drain(..self.power.partition_point(|(time, _)| *time <= to.0).saturating_sub(1));
        self.counter.remove(0);
        if let Some((_, until)) = &mut self.covered {
            *until = to.0;
        }
        Some(CounterStretch { from: from.0, to: to.0, curve, is_known })
    }

    fn is_alive(&self, newest: i64) -> bool {
        self.counter.last().is_some_and(|(last, _)| newest.saturating_sub(*last) < READ_WITHIN_NS)
    }
}

/// Energy of all devices.
#[derive(Debug, Default)]
pub(super) struct Energy {
    devices: BTreeMap<Arc<str>, Device>,
    /// Devices that the program is known to work on.
    worked_on: BTreeSet<Arc<str>>,
    /// The run was told to use the processors.
    told_cpu: bool,
    steps: Vec<UnsettledStep>,
    /// The weight of these.
    waiting: usize,
    /// Steps that ended until then may be among them no more.
    gone_until: Option<i64>,
    /// Whether a step has come.
    has_steps: bool,
    /// How often a step without a record had begun or ended, and up to when one may have been open.
    without_record: u64,
    unrecorded_until: Option<i64>,
    /// When a counter was read last, and the time of that reading.
    read: Option<(Instant, i64)>,
}

impl Energy {
    pub(super) fn learn(&mut self, run: &RunManifest) {
        self.told_cpu = option_key::DEVICE.of(&run.options) == Some("cpu");
    }

    pub(super) fn works_on(&mut self, uuid: &Arc<str>, accounts: &mut BTreeMap<u64, Account>) {
        if self.worked_on.contains(uuid) {
            return;
        }
        self.worked_on.insert(uuid.clone());
        // So far they were charged for other devices than from here on.
        let charged = accounts.values_mut().filter(|account| account.energy.whole_ns > 0.0);
        charged.for_each(|account| account.energy.is_incomplete = true);
    }

    /// Whether a counter of a device that counts is read.
    pub(super) fn is_read(&self, at: Instant) -> bool {
        self.was_read(at) && self.devices.keys().any(|device| self.counts(device))
    }

    fn was_read(&self, at: Instant) -> bool {
        self.read.is_some_and(|(last, _)| at.saturating_duration_since(last) < READ_WITHIN)
    }

    /// Whether a device is the program's: if it is known to work on it, or all are if none of those it works on is
    /// sampled.
    fn counts(&self, device: &str) -> bool {
        match self.devices.keys().any(|sampled| self.worked_on.contains(sampled)) {
            true => self.worked_on.contains(device),
            false => !(self.told_cpu && self.worked_on.is_empty()),
        }
    }

    fn counting(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|(name, device)| device.covered.is_some() && self.counts(name)).map(|(_, of)| of)
    }

    /// Takes a sample; those of other metrics are ignored.
    pub(super) fn sample(&mut self, sample: &SampleRecord, at: Instant) {
        if self.told_cpu && self.worked_on.is_empty() {
            return;
        }
        let is_counter = sample.metric == metric::GPU_ENERGY;
        if !(is_counter || sample.metric == metric::GPU_POWER) || !(sample.value.is_finite() && sample.value >= 0.0) {
            return;
        }
        if !self.devices.contains_key(&sample.device) {
            self.devices.insert(sample.device.clone(), Device::default());
        }
        let Some(device) = self.devices.get_mut(&sample.device) else { return };
        match is_counter {
            true => {
                device.read(sample.time.0, sample.value);
                self.read = Some((at, sample.time.0));
            }
            false => device.sample_power(sample.time.0, sample.value),
        }
    }

    /// Takes a step with the shares of its requests.
    pub(super) fn step(
        &mut self,
        thread: u32,
        (start, end): (i64, i64),
        shares: Vec<(u64, f64)>,
        at: Instant,
        accounts: &mut BTreeMap<u64, Account>,
    ) {
        self.has_steps = true;
        if self.read.is_none() {
            return;
        }
        let late =
            self.counting().any(|device| device.covered.is_some_and(|(first, until)| first < until && start < until));
        if late {
            mark_incomplete(&shares, accounts);
        }
        let step = UnsettledStep { thread, start, end, shares };
        self.waiting += step.weight();
        self.steps.push(step);
        if !self.was_read(at) {
            self.forget(self.steps.len(), accounts);
        }
        while self.waiting > MOST_WAITING {
            self.forget(self.steps.len().div_ceil(2), accounts);
        }
    }

    /// Forgets the oldest steps that stretches wait for, this many.
    fn forget(&mut self, oldest: usize, accounts: &mut BTreeMap<u64, Account>) {
        for step in self.steps.drain(..oldest) {
            mark_incomplete(&step.shares, accounts);
            self.waiting = self.waiting.saturating_sub(step.weight());
            self.gone_until = self.gone_until.max(Some(step.end));
        }
    }

    /// Divides what was counted in the stretches that can be settled, and adds the sums to `out`.
    pub(super) fn settle(
        &mut self,
        around: &BatchTime,
        accounts: &mut BTreeMap<u64, Account>,
        out: &mut Vec<SampleRecord>,
    ) {
        if around.in_unrecorded || around.without_record != self.without_record {
            (self.without_record, self.unrecorded_until) = (around.without_record, Some(around.now));
        }
        let due: Vec<(Arc<str>, CounterStretch)> = self
            .devices
            .iter_mut()
            .flat_map(|(name, device)| {
                std::iter::from_fn(|| Some((name.clone(), device.next(around)?))).collect::<Vec<_>>()
            })
            .collect();
        if due.is_empty() {
            return;
        }
        // A step around others comes before them.
        self.steps.sort_unstable_by_key(|step| (step.start, Reverse(step.end)));
        for (name, between) in due {
            self.divide(&name, &between, accounts, out);
        }
        let newest = self.read.map_or(i64::MAX, |(_, time)| time);
        let alive = self.devices.values().filter(|device| device.is_alive(newest));
        let settled = alive.filter_map(|device| device.covered).map(|(_, until)| until).min().unwrap_or(i64::MAX);
        // A counter that is read again after a pause has its next stretch in time whose steps are gone.
        let gone = self.steps.iter().map(|step| step.end).filter(|end| *end <= settled).max();
        self.gone_until = self.gone_until.max(gone);
        self.steps.retain(|step| step.end > settled);
        self.waiting = self.steps.iter().map(UnsettledStep::weight).sum();
    }

    fn divide(
        &mut self,
        name: &Arc<str>,
        between: &CounterStretch,
        accounts: &mut BTreeMap<u64, Account>,
        out: &mut Vec<SampleRecord>,
    ) {
        let counts = self.counts(name);
        let &CounterStretch { from, to, ref curve, is_known } = between;
        // Nobody knows who uses a device that is not the program's, so far as is known.
        let steps = self.steps.iter().filter(|step| counts && step.start < to && step.end > from);
        let (windows, steps): (Vec<(i64, i64)>, Vec<&UnsettledStep>) = innermost(steps).into_iter().unzip();
        let joules = divided(&windows, (from, to), |from, to| at(curve, to) - at(curve, from));
        let times = divided(&windows, (from, to), |from, to| to.saturating_sub(from) as f64);
        let is_known = is_known
            && counts
            && [self.unrecorded_until, self.gone_until].into_iter().flatten().all(|until| until <= from);
        let Some(device) = self.devices.get_mut(name) else { return };
        let watts = device.watts.unwrap_or_default();
        for (step, (joules, ns)) in steps.iter().zip(joules.each.into_iter().zip(times.each)) {
            device.sums[if step.shares.is_empty() { OTHER_STEPS } else { REQUESTS }] += joules;
            for (request, share) in &step.shares {
                if let Some(account) = accounts.get_mut(request) {
                    account.energy.charge(joules, ns, *share, watts);
                }
            }
        }
        device.sums[if is_known { IDLE } else { UNATTRIBUTED }] += joules.outside;
        if !is_known {
            device.unknown_until = Some(to);
        }
        // Before the first step nobody knows which devices are the program's.
        device.is_told |= counts && self.has_steps;
        if device.is_told {
            let sum = |(metric, joules): (&'static str, f64)| {
                SampleRecord::new(HostNs(to), name.clone(), metric, joules, "joules")
            };
            out.extend(OF.into_iter().zip(device.sums).map(sum));
        }
    }

    /// Whether nothing more will be known of a request's energy.
    pub(super) fn is_settled(&self, energy: &RequestEnergy) -> bool {
        let Some((_, end)) = energy.extent else { return true };
        let newest = self.read.map_or(i64::MAX, |(_, time)| time);
        let mut alive = self.counting().filter(|device| device.is_alive(newest));
        alive.all(|device| device.covered.is_some_and(|(_, until)| until >= end))
    }

    /// A request's energy; `None` unless all devices that count have a counter that covers its steps, and all its steps are
    /// known.
    pub(super) fn of(&self, request: &RequestRecord, energy: &RequestEnergy) -> Option<RequestJoules> {
        let (start, end) = energy.extent.filter(|_| !energy.is_incomplete)?;
        let is_sampled = |uuid: &Arc<str>| self.devices.contains_key(uuid);
        if self.worked_on.iter().any(is_sampled) && !self.worked_on.iter().all(is_sampled) {
            return None;
        }
        let (mut devices, mut most) = (0, Some(0.0));
        for (_, device) in self.devices.iter().filter(|(name, _)| self.counts(name)) {
            let (first, until) = device.covered?;
            let is_unknown = device.unknown_until.is_some_and(|until| until > request.host_start.0);
            if first > start || until < end || is_unknown {
                return None;
            }
            most = most.zip(device.watts).map(|(sum, (_, most))| sum + most);
            devices += 1;
        }
        (devices > 0).then(|| RequestJoules { joules: energy.joules, bound: most.map(|most| energy.bound(most)) })
    }
}

/// The time in which each step was its thread's innermost one. Steps come in order of start, of those that begin together
/// the longest first.
fn innermost<'a>(steps: impl Iterator<Item = &'a UnsettledStep>) -> Vec<((i64, i64), &'a UnsettledStep)> {
    /// A thread's open steps, and up to when its time has been given away.
    type OpenSteps<'a> = (Vec<&'a UnsettledStep>, i64);
    /// Gives away a thread's time up to `until`.
    fn advance<'a>((open, given): &mut OpenSteps<'a>, until: i64, out: &mut Vec<((i64, i64), &'a UnsettledStep)>) {
        while let Some(step) = open.last().copied() {
            let to = step.end.min(until);
            if *given < to {
                out.push(((*given, to), step));
                *given = to;
            }
            if step.end > until {
                break;
            }
            open.pop();
        }
        *given = until;
    }
    let (mut threads, mut out) = (FxHashMap::<u32, OpenSteps<'a>>::default(), Vec::new());
    for step in steps {
        let thread = threads.entry(step.thread).or_default();
        advance(thread, step.start, &mut out);
        thread.0.push(step);
    }
    threads.values_mut().for_each(|thread| advance(thread, i64::MAX, &mut out));
    out
}

fn mark_incomplete(shares: &[(u64, f64)], accounts: &mut BTreeMap<u64, Account>) {
    for (request, _) in shares {
        if let Some(account) = accounts.get_mut(request) {
            account.energy.is_incomplete = true;
        }
    }
}
