//! How the machine was used while a run's steps ran, as the samples of the host tell it: by the program, and by others.

use crate::record::SampleRecord;
use crate::{host_metric, metric};
use serde::{Deserialize, Serialize};

/// Shorter times say nothing: the system counts CPU time in ticks of some milliseconds.
const LEAST_S: f64 = 0.15;
/// Share of the processors from which on all of them count as in use.
const FULL: f64 = 0.9;
/// Share of the processors that others may use, where all are in use, without taking the program's time.
const OTHERS: f64 = 0.1;
/// Share of the processors at which others disturb, though some processors are idle: by caches, memory and clocks.
const OTHERS_ALONE: f64 = 0.5;
/// Share of the time that may be disturbed before the times of a run are not the program's alone.
const DISTURBED: f64 = 0.1;
/// Processors that others have to use in the mean: less is the ticks in which the system counts, beside the program's own
/// threads.
const OTHERS_LEAST: f64 = 0.05;
/// CPU time in seconds that the share in the kernel has to rest on.
const SYSTEM_LEAST_S: f64 = 0.3;

/// Processors, and what was done with them, in the sampled time in which steps ran. What was not sampled is absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineUse {
    /// Sampled time in which steps ran, seconds.
    pub sampled_s: f64,
    /// CPU time of the program in its own code, seconds.
    pub user_s: f64,
    /// CPU time of the program in the kernel, seconds.
    pub system_s: f64,
    /// Processors that the program may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<f64>,
    /// CPU time of others on them, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_s: Option<f64>,
    /// The part of the sampled time in which others took time from the program, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbed_s: Option<f64>,
    /// Times that a thread of the program went to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_voluntary: Option<u64>,
    /// Times that a thread of the program lost its processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_involuntary: Option<u64>,
    /// Pages read from disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_major: Option<u64>,
    /// Pages mapped without reading from disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_minor: Option<u64>,
    /// Time in which a quota kept the program from running, summed over its processors, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_s: Option<f64>,
    /// Most threads without a name of their own: rayon's and candle's pools among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_threads: Option<u64>,
    /// Load average of the last minute, in the mean of the sampled time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

/// Whether more threads wait for processors than there are, the program's own, which use `own` of them, left out.
#[doc(hidden)]
pub fn is_overloaded(load: f64, own: f64, processors: f64) -> bool {
    load > processors && load - own >= 1.0
}

impl MachineUse {
    /// Whether there is enough to judge by.
    pub(super) fn is_known(&self) -> bool {
        self.sampled_s >= LEAST_S
    }

    /// Processors that others used, in the mean of the sampled time.
    pub fn others_cores(&self) -> Option<f64> {
        self.others_s.filter(|_| self.is_known()).map(|others| others / self.sampled_s)
    }

    /// The share of the sampled time in which others took time from the program; `None` if that is not known.
    pub fn disturbed_share(&self) -> Option<f64> {
        self.disturbed_s.filter(|_| self.is_known()).map(|disturbed| disturbed / self.sampled_s)
    }

    /// Whether others took from the program's times; `None` if that is not known. In a time too short for CPU time the
    /// load tells that they probably did, and never that they did not.
    pub fn is_disturbed(&self) -> Option<bool> {
        let others = self.others_cores().unwrap_or(0.0) >= OTHERS_LEAST;
        let told = self.disturbed_share().map(|share| share >= DISTURBED && others);
        told.or_else(|| self.overload().map(|_| true))
    }

    /// Where it is not known what others took, as in a short time: the load average, if more threads waited for the
    /// processors than there are.
    pub fn overload(&self) -> Option<f64> {
        let (load, processors) = self.load.zip(self.processors)?;
        let own = (self.user_s + self.system_s) / self.sampled_s.max(f64::EPSILON);
        Some(load).filter(|_| self.disturbed_share().is_none() && is_overloaded(load, own, processors))
    }

    /// The kernel's share of the program's CPU time, if there was enough of that.
    pub fn system_share(&self) -> Option<f64> {
        let cpu = self.user_s + self.system_s;
        (cpu >= SYSTEM_LEAST_S).then(|| self.system_s / cpu)
    }

    fn add(&mut self, before: &Round, now: &Round) {
        let Some(wall) = now.time.checked_sub(before.time).filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e9) else {
            return;
        };
        let time = |of: fn(&Round) -> Option<f64>| of(now).zip(of(before)).map(|(now, before)| (now - before).max(0.0));
        let (Some(user), Some(system)) = (time(|r| r.user), time(|r| r.system)) else { return };
        let own = user + system;
        self.sampled_s += wall;
        self.user_s += user;
        self.system_s += system;
        if let Some((busy, processors)) = time(|r| r.busy).zip(now.processors) {
            let others = (busy - own).max(0.0);
            let share = |cpu: f64| cpu / wall / processors.max(1.0);
            let full = share(own + others) >= FULL && share(others) >= OTHERS;
            let disturbed = if full || share(others) >= OTHERS_ALONE { wall } else { 0.0 };
            self.processors = Some(processors);
            *self.others_s.get_or_insert(0.0) += others;
            *self.disturbed_s.get_or_insert(0.0) += disturbed;
        }
        let count = |sum: &mut Option<u64>, of: fn(&Round) -> Option<f64>| {
            if let Some(n) = time(of) {
                *sum.get_or_insert(0) += n as u64;
            }
        };
        count(&mut self.switches_voluntary, |r| r.voluntary);
        count(&mut self.switches_involuntary, |r| r.involuntary);
        count(&mut self.faults_major, |r| r.major);
        count(&mut self.faults_minor, |r| r.minor);
        if let Some(throttled) = time(|r| r.throttled) {
            *self.throttled_s.get_or_insert(0.0) += throttled;
        }
        if let Some(load) = now.load {
            let before = self.load.unwrap_or(load);
            self.load = Some(before + (load - before) * wall / self.sampled_s);
        }
    }
}

/// The samples of one look at the host.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    time: i64,
    user: Option<f64>,
    system: Option<f64>,
    busy: Option<f64>,
    processors: Option<f64>,
    voluntary: Option<f64>,
    involuntary: Option<f64>,
    minor: Option<f64>,
    major: Option<f64>,
    throttled: Option<f64>,
    pool_threads: Option<f64>,
    load: Option<f64>,
}

impl Round {
    fn take(&mut self, name: &str, value: f64) {
        let slot = match name {
            host_metric::CPU_USER_SECONDS => &mut self.user,
            host_metric::CPU_SYSTEM_SECONDS => &mut self.system,
            host_metric::BUSY_SECONDS => &mut self.busy,
            host_metric::PROCESSORS => &mut self.processors,
            metric::VOLUNTARY_SWITCHES => &mut self.voluntary,
            metric::INVOLUNTARY_SWITCHES => &mut self.involuntary,
            metric::MINOR_FAULTS => &mut self.minor,
            metric::MAJOR_FAULTS => &mut self.major,
            host_metric::CPU_THROTTLED_SECONDS => &mut self.throttled,
            host_metric::UNNAMED_THREADS => &mut self.pool_threads,
            metric::LOAD_1M => &mut self.load,
            _ => return,
        };
        *slot = Some(value);
    }
}

/// Sums up samples as they come, for a session and for readers of its tables.
#[derive(Debug, Clone, Default)]
pub struct MachineMeter {
    last: Option<Round>,
    sum: MachineUse,
    pool_threads: Option<u64>,
}

impl MachineMeter {
    /// Takes the samples of one round; the time since the round before counts if steps ran in it.
    pub fn add(&mut self, samples: &[SampleRecord], steps_ran: bool) {
        let mut round: Option<Round> = None;
        for sample in samples.iter().filter(|sample| &*sample.device == metric::HOST) {
            round.get_or_insert(Round { time: sample.time.0, ..Round::default() }).take(sample.metric, sample.value);
        }
        // A collector of the program's own may say something of the host, too.
        let Some(round) = round.filter(|round| round.user.is_some()) else { return };
        self.pool_threads = self.pool_threads.max(round.pool_threads.map(|n| n as u64));
        if let Some(last) = self.last.replace(round).filter(|_| steps_ran) {
            self.sum.add(&last, &round);
        }
    }

    /// Most threads without a name of their own at any time, also where no step ran.
    pub fn pool_threads(&self) -> Option<u64> {
        self.pool_threads
    }

    /// The sum; `None` if the host was not sampled while steps ran.
    pub fn result(&self) -> Option<MachineUse> {
        let sum = MachineUse { pool_threads: self.pool_threads, ..self.sum };
        (sum.sampled_s > 0.0).then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostNs;

    /// Rounds every 200 ms on two processors: CPU seconds of the program and of everybody so far.
    fn used(rounds: &[(f64, f64)], steps_ran: bool) -> Option<MachineUse> {
        let mut meter = MachineMeter::default();
        for (n, (own, busy)) in rounds.iter().enumerate() {
            let sample = |metric, value| SampleRecord {
                time: HostNs(n as i64 * 200_000_000),
                device: metric::HOST.into(),
                metric,
                value,
                unit: "",
            };
            let samples = [
                sample(host_metric::CPU_USER_SECONDS, own * 0.5),
                sample(host_metric::CPU_SYSTEM_SECONDS, own * 0.5),
                sample(host_metric::BUSY_SECONDS, *busy),
                sample(host_metric::PROCESSORS, 2.0),
                sample(metric::INVOLUNTARY_SWITCHES, n as f64 * 10.0),
                sample(metric::LOAD_1M, 3.0 + n as f64),
            ];
            meter.add(&samples, steps_ran);
        }
        meter.result()
    }

    #[test]
    fn others_disturb_where_no_processor_is_left() {
        // Both processors full, half of that others'.
        let machine = used(&[(0.0, 0.0), (0.2, 0.4), (0.4, 0.8)], true).expect("sampled");
        assert_eq!(machine.is_disturbed(), Some(true));
        assert!((machine.others_cores().unwrap() - 1.0).abs() < 1e-9 && machine.switches_involuntary == Some(20));
        assert!((machine.load.unwrap() - 4.5).abs() < 1e-9, "{machine:?}");
        // One thread of ours, a third of a processor for others.
        let machine = used(&[(0.0, 0.0), (0.2, 0.27), (0.4, 0.54)], true).expect("sampled");
        assert_eq!(machine.is_disturbed(), Some(false));
        // Others alone on more than half of the machine.
        let machine = used(&[(0.0, 0.0), (0.01, 0.25), (0.02, 0.5)], true).expect("sampled");
        assert_eq!(machine.is_disturbed(), Some(true));
        // Our own threads fill both.
        let machine = used(&[(0.0, 0.0), (0.4, 0.41), (0.8, 0.81)], true).expect("sampled");
        assert_eq!(machine.is_disturbed(), Some(false));
    }

    #[test]
    fn a_tick_of_others_is_no_disturbance() {
        let of = |others| MachineUse {
            sampled_s: 0.4,
            others_s: Some(others),
            disturbed_s: Some(0.06),
            processors: Some(2.0),
            ..MachineUse::default()
        };
        assert_eq!((of(0.01).is_disturbed(), of(0.04).is_disturbed()), (Some(false), Some(true)));
    }

    #[test]
    fn nothing_is_said_of_time_without_steps_or_too_short() {
        assert_eq!(used(&[(0.0, 0.0), (0.2, 0.4)], false), None);
        assert_eq!(used(&[(0.0, 0.0)], true), None);
        let short =
            MachineUse { sampled_s: 0.05, others_s: Some(0.1), disturbed_s: Some(0.05), ..MachineUse::default() };
        assert_eq!((short.is_disturbed(), short.others_cores()), (None, None));
        // More threads than processors waited for them before: that is told of a short time, and of none that is known.
        let overloaded = MachineUse { load: Some(5.7), processors: Some(2.0), user_s: 0.02, ..short };
        assert_eq!((overloaded.is_disturbed(), overloaded.overload()), (Some(true), Some(5.7)));
        assert_eq!(MachineUse { load: Some(1.9), ..overloaded }.is_disturbed(), None, "no proof of rest");
        let long = MachineUse { sampled_s: 1.0, disturbed_s: Some(0.0), ..overloaded };
        assert_eq!((long.is_disturbed(), long.overload()), (Some(false), None));
    }
}
