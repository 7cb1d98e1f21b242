//! Figures of a GPU, a process and the machine, by the names of our collectors' metrics. What is not told is `None`.

use candlescope_core::SampleRecord;
use candlescope_core::metric;

/// Figures of a GPU in one reading, measured by NVML.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuFigures {
    /// Share of NVML's last sampling period (1/6 s to 1 s) in which any kernel ran.
    pub use_ratio: Option<f64>,
    /// Bytes in use by anyone.
    pub memory_bytes: Option<f64>,
    /// Bytes of its memory in all: used, free and reserved.
    pub memory_limit_bytes: Option<f64>,
    /// Watts drawn by the board.
    pub power_watts: Option<f64>,
    /// Watts that are allowed.
    pub power_limit_watts: Option<f64>,
    /// Joules since the driver was loaded.
    pub energy_joules: Option<f64>,
    /// Hertz of the multiprocessors.
    pub sm_clock_hertz: Option<f64>,
    /// Hertz of the memory.
    pub memory_clock_hertz: Option<f64>,
    /// Degrees of the die.
    pub temperature_celsius: Option<f64>,
    /// Reasons that hold clocks down, without `gpu_idle`; `None` where the GPU does not tell any.
    pub throttled: Option<Vec<String>>,
}

impl GpuFigures {
    /// From values by the metric's name.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing reads GPUs there"))]
    pub(crate) fn of<'a>(samples: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let mut figures = Self::default();
        for (metric, value) in samples {
            let place = match metric {
                metric::GPU_UTILIZATION => &mut figures.use_ratio,
                metric::GPU_MEMORY_USED => &mut figures.memory_bytes,
                metric::GPU_MEMORY_LIMIT => &mut figures.memory_limit_bytes,
                metric::GPU_POWER => &mut figures.power_watts,
                metric::GPU_POWER_LIMIT => &mut figures.power_limit_watts,
                metric::GPU_ENERGY => &mut figures.energy_joules,
                metric::GPU_CLOCK_SM => &mut figures.sm_clock_hertz,
                metric::GPU_CLOCK_MEMORY => &mut figures.memory_clock_hertz,
                metric::GPU_TEMPERATURE => &mut figures.temperature_celsius,
                _ => {
                    figures.reason(metric, value);
                    continue;
                }
            };
            *place = Some(value);
        }
        figures
    }

    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "nothing reads GPUs there"))]
    fn reason(&mut self, metric: &str, value: f64) {
        let Some(reason) = metric.strip_prefix(metric::GPU_THROTTLED_BY) else { return };
        let active = self.throttled.get_or_insert_default();
        // Clocks of a GPU without work are low by themselves.
        if value > 0.0 && reason != metric::GPU_IDLE {
            active.push(reason.to_string());
        }
    }
}

/// Figures of a process in one reading, or their sums over it and the processes that it has started.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ProcessFigures {
    /// CPU time over wall time since the reading before: 1 is one core.
    pub cpu_ratio: Option<f64>,
    /// Bytes resident in memory; in a sum, pages that processes share count in each of them.
    pub memory_bytes: Option<f64>,
    /// Most resident bytes so far.
    pub peak_memory_bytes: Option<f64>,
    /// Number of its threads at the reading, of all processes together in a sum.
    pub threads: Option<f64>,
}

impl ProcessFigures {
    pub(crate) fn of<'a>(samples: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let mut figures = Self::default();
        for (metric, value) in samples {
            let place = match metric {
                metric::CPU_RATIO => &mut figures.cpu_ratio,
                metric::RESIDENT_MEMORY => &mut figures.memory_bytes,
                metric::PEAK_RESIDENT_MEMORY => &mut figures.peak_memory_bytes,
                metric::THREADS => &mut figures.threads,
                _ => continue,
            };
            *place = Some(value);
        }
        figures
    }

    /// Those of a process and of those that it has started. What is not known of one is not known of all; the most
    /// memory that each had, it need not have had at the same time.
    pub(crate) fn and(self, others: impl IntoIterator<Item = Self>) -> Self {
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        others.into_iter().fold(self, |all, one| Self {
            cpu_ratio: sum(all.cpu_ratio, one.cpu_ratio),
            memory_bytes: sum(all.memory_bytes, one.memory_bytes),
            peak_memory_bytes: None,
            threads: sum(all.threads, one.threads),
        })
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Figures of the whole machine in one reading, whoever uses it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MachineFigures {
    /// Bytes that programs could still get.
    pub memory_available_bytes: Option<f64>,
    /// Load average of the last minute.
    pub load_1m: Option<f64>,
}

impl MachineFigures {
    pub(crate) fn of<'a>(samples: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let mut figures = Self::default();
        for (metric, value) in samples {
            match metric {
                metric::MEMORY_AVAILABLE => figures.memory_available_bytes = Some(value),
                metric::LOAD_1M => figures.load_1m = Some(value),
                _ => {}
            }
        }
        figures
    }
}

/// Samples as the functions above take them.
pub(crate) fn named(samples: &[SampleRecord]) -> impl Iterator<Item = (&str, f64)> {
    samples.iter().map(|sample| (sample.metric, sample.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_clocks_down_is_throttling() {
        let told = [
            ("hw_gpu_utilization_ratio", 0.5),
            ("candlescope_gpu_throttled_gpu_idle", 1.0),
            ("candlescope_gpu_throttled_sw_power_cap", 1.0),
            ("candlescope_gpu_throttled_hw_slowdown", 0.0),
        ];
        let figures = GpuFigures::of(told);
        assert_eq!(figures.throttled.as_deref(), Some(&["sw_power_cap".to_string()][..]));
        assert_eq!((figures.use_ratio, figures.power_watts), (Some(0.5), None));
        assert_eq!(GpuFigures::of([("hw_power_watts", 1.0)]).throttled, None, "not told");
    }
}
