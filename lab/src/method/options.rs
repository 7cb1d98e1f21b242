//! Options of the engine.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How cases are measured. The defaults are those of NVIDIA's nvbench where it has the same option
/// (`docs/cli_help.md` and `nvbench/*_criterion.cxx` there).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Method {
    /// Samples of a case, over all process starts, before anything but the time limit may stop it: 10.
    pub min_samples: u32,
    /// Time that a case may take over all process starts, warm-up included; 15 s. At least one sample is taken in each
    /// process start whatever the limit.
    pub time_limit: Duration,
    /// A case has been repeated often enough when the 95 % interval of its median is narrower than this share of the
    /// median: 0.02.
    pub interval_width: f64,
    /// … or when its relative standard deviation is below this: 0.005 …
    pub deviation: f64,
    /// … after this much measured time: 0.5 s.
    pub deviation_after: Duration,
    /// … or when the last estimates of that deviation, more than this many, agree within 5 %: 64.
    pub noise_estimates: usize,
    /// … or when the entropy of the samples grows no more: the slope of its last estimates is below this many degrees,
    /// 0.048 …
    pub entropy_degrees: f64,
    /// … and a straight line explains at least this share of them: 0.36.
    pub entropy_r2: f64,
    /// Width of the classes into which samples are sorted for the entropy, in nanoseconds: 500, the resolution of CUDA
    /// events.
    pub entropy_bin_ns: u64,
    /// Exactly this many plain samples of each case, over all process starts, in place of all these rules.
    pub runs: Option<u32>,
    /// Recorded repetitions of a case, after the plain ones, in this process: 0.
    pub profiled_runs: u32,
    /// Fewest warm-up repetitions of a case in a process: 2.
    pub warmup_min: u32,
    /// Most of them: 50.
    pub warmup_max: u32,
    /// Share of the time limit that warm-up may take: 0.25.
    pub warmup_share: f64,
    /// How often a sample that was taken while the device was throttled is taken again, for each case: 10.
    pub retakes: u32,
    /// Wait after such a sample: 50 ms.
    pub recovery: Duration,
    /// Most cases that are prepared and interleaved at once; more are measured group by group, in random order: 16.
    pub interleave: u32,
    /// Seed of the order in which cases are repeated.
    pub seed: u64,
    /// Process starts that a case is spread over. Fewer than six give no interval across processes
    /// ([`INTERVAL_FROM`](candlescope_figures::stats::INTERVAL_FROM)).
    pub processes: u32,
}

impl Default for Method {
    fn default() -> Self {
        Self {
            min_samples: 10,
            time_limit: Duration::from_secs(15),
            interval_width: 0.02,
            deviation: 0.005,
            deviation_after: Duration::from_millis(500),
            noise_estimates: 64,
            entropy_degrees: 0.048,
            entropy_r2: 0.36,
            entropy_bin_ns: 500,
            runs: None,
            profiled_runs: 0,
            warmup_min: 2,
            warmup_max: 50,
            warmup_share: 0.25,
            retakes: 10,
            recovery: Duration::from_millis(50),
            interleave: 16,
            seed: 42,
            processes: 1,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        impl Method {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            })*
        }
    };
}

setters! {
    /// Sets the fewest samples.
    min_samples: u32,
    /// Sets the time limit of a case.
    time_limit: Duration,
    /// Sets the relative width of the interval at which a case stops.
    interval_width: f64,
    /// Sets the number of plain samples, or lets the rules decide.
    runs: Option<u32>,
    /// Sets the number of recorded repetitions.
    profiled_runs: u32,
    /// Sets the fewest warm-up repetitions.
    warmup_min: u32,
    /// Sets the most warm-up repetitions.
    warmup_max: u32,
    /// Sets how often throttled samples are taken again.
    retakes: u32,
    /// Sets the wait after a throttled sample.
    recovery: Duration,
    /// Sets the most cases that are interleaved at once.
    interleave: u32,
    /// Sets the seed of the order.
    seed: u64,
    /// Sets the number of process starts.
    processes: u32,
}

impl Method {
    /// The method of a short look: 3 samples in one process, 3 s a case.
    pub fn quick() -> Self {
        Self { min_samples: 3, time_limit: Duration::from_secs(3), warmup_min: 1, warmup_max: 3, ..Self::default() }
    }

    /// The part of round `round` (from 0) of all [`processes`](Self::processes): its share of samples and of time.
    #[must_use]
    pub fn round(&self, round: u32) -> Self {
        let of = self.processes.max(1);
        let runs = self.runs.map(|runs| runs / of + u32::from(round < runs % of));
        Self {
            min_samples: self.min_samples.div_ceil(of),
            time_limit: self.time_limit / of,
            runs,
            seed: self.seed.wrapping_add(u64::from(round)),
            ..self.clone()
        }
    }
}
