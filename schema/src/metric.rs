//! Names of the metrics that samples have. Collectors write them, exporters serve them, analyses read them: all from
//! here, because a reader with a name of its own finds nothing and says that nothing was recorded.

/// The `device` of samples of this process and its machine.
pub const HOST: &str = "host";

/// What the name of a sample begins with that says whether a reason holds clocks down.
pub const GPU_THROTTLED_BY: &str = "candlescope_gpu_throttled_";
/// The reason, after [`GPU_THROTTLED_BY`], that holds clocks down because nothing runs: no throttling.
pub const GPU_IDLE: &str = "gpu_idle";
/// What the name of a sample of a clock begins with.
pub const GPU_CLOCK_OF: &str = "candlescope_gpu_clock_hertz_";

macro_rules! names {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+

        /// Every name of this list.
        pub const ALL: &[&str] = &[$($name,)+];
    };
}

names! {
    /// Memory of the process in RAM, in bytes.
    RESIDENT_MEMORY = "process_resident_memory_bytes";
    /// Its maximum so far, in bytes.
    PEAK_RESIDENT_MEMORY = "process_peak_resident_memory_bytes";
    /// CPU time since the sample before ÷ wall time: 2.0 is two cores busy.
    CPU_RATIO = "process_cpu_ratio";
    /// CPU time so far, in seconds.
    CPU_SECONDS = "process_cpu_seconds_total";
    /// Threads that went to wait.
    VOLUNTARY_SWITCHES = "process_context_switches_voluntary_total";
    /// Threads that lost their core to another.
    INVOLUNTARY_SWITCHES = "process_context_switches_involuntary_total";
    /// Pages mapped without reading from disk.
    MINOR_FAULTS = "process_page_faults_minor_total";
    /// Pages read from disk.
    MAJOR_FAULTS = "process_page_faults_major_total";
    /// Threads now.
    THREADS = "process_threads";
    /// What could be allocated without swapping, in bytes.
    MEMORY_AVAILABLE = "system_memory_available_bytes";
    /// Load average of the last minute.
    LOAD_1M = "system_load_1m";

    /// Energy that a GPU used since its driver was loaded, in joules.
    GPU_ENERGY = "hw_energy_joules_total";
    /// The same since sampling began, by whom it was used for, in joules: samples add `_` and `requests`, `other_steps`,
    /// `idle` or `unattributed`. The four add up to what the counter counted.
    ENERGY_OF = "candlescope_energy_joules_total";
    /// That of steps, by the requests that they worked for.
    ENERGY_OF_REQUESTS = "candlescope_energy_joules_total_requests";
    /// That of steps that worked for no request.
    ENERGY_OF_OTHER_STEPS = "candlescope_energy_joules_total_other_steps";
    /// That of the time in which no step ran.
    ENERGY_OF_IDLE = "candlescope_energy_joules_total_idle";
    /// That of time of which it is not known whether a step ran.
    ENERGY_UNATTRIBUTED = "candlescope_energy_joules_total_unattributed";
    /// Power that it draws, in watts.
    GPU_POWER = "hw_power_watts";
    /// Its mean power of the last second, in watts.
    GPU_POWER_AVERAGE = "candlescope_gpu_power_average_watts";
    /// Its power limit, in watts.
    GPU_POWER_LIMIT = "hw_power_limit_watts";
    /// Its memory in use by anyone, in bytes.
    GPU_MEMORY_USED = "hw_gpu_memory_usage_bytes";
    /// Its memory that can be allocated, in bytes.
    GPU_MEMORY_FREE = "candlescope_gpu_memory_free_bytes";
    /// Its memory that driver and firmware keep, in bytes.
    GPU_MEMORY_RESERVED = "candlescope_gpu_memory_reserved_bytes";
    /// Its memory, in bytes.
    GPU_MEMORY_LIMIT = "hw_gpu_memory_limit_bytes";
    /// Share of the last sampling period in which any kernel ran.
    GPU_UTILIZATION = "hw_gpu_utilization_ratio";
    /// Share of the same period in which its memory was accessed.
    GPU_MEMORY_BUSY = "candlescope_gpu_memory_busy_ratio";
    /// A clock, in hertz: samples add `_` and the domain.
    GPU_CLOCK = "candlescope_gpu_clock_hertz";
    /// The clock of graphics.
    GPU_CLOCK_GRAPHICS = "candlescope_gpu_clock_hertz_graphics";
    /// The clock of the multiprocessors.
    GPU_CLOCK_SM = "candlescope_gpu_clock_hertz_sm";
    /// The clock of the memory.
    GPU_CLOCK_MEMORY = "candlescope_gpu_clock_hertz_memory";
    /// The clock of the video engines.
    GPU_CLOCK_VIDEO = "candlescope_gpu_clock_hertz_video";
    /// Temperature of the die, in degrees Celsius.
    GPU_TEMPERATURE = "hw_temperature_celsius";
    /// 1 while a reason holds clocks down: samples add `_` and the reason.
    GPU_THROTTLED = "candlescope_gpu_throttled";
    /// PCIe generation of the link now.
    GPU_PCIE_GENERATION = "candlescope_gpu_pcie_link_generation";
    /// PCIe lanes of the link now.
    GPU_PCIE_WIDTH = "candlescope_gpu_pcie_link_width_lanes";
    /// PCIe traffic, in bytes a second: samples add `_receive` or `_transmit`.
    GPU_PCIE_THROUGHPUT = "candlescope_gpu_pcie_throughput_bytes_per_second";
    /// Keys and values that the process has memory for, in bytes.
    KV_ALLOCATED = "candlescope_kv_cache_allocated_bytes";
    /// Those of it that hold a token of a sequence, or of one that has ended and whose beginning another may share, in
    /// bytes.
    KV_USED = "candlescope_kv_cache_used_bytes";
    /// Memory in use in candle's pool of a device, in bytes.
    POOL_USED = "candlescope_cuda_pool_used_bytes";
    /// The most of it so far.
    POOL_USED_HIGH = "candlescope_cuda_pool_used_high_bytes";
    /// Memory that the pool has reserved, in bytes.
    POOL_RESERVED = "candlescope_cuda_pool_reserved_bytes";
    /// The most of it so far.
    POOL_RESERVED_HIGH = "candlescope_cuda_pool_reserved_high_bytes";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_once_and_says_its_unit() {
        let once: std::collections::BTreeSet<&str> = ALL.iter().copied().collect();
        assert_eq!(once.len(), ALL.len());
        assert_eq!(GPU_THROTTLED_BY, format!("{GPU_THROTTLED}_"));
        assert_eq!(GPU_CLOCK_OF, format!("{GPU_CLOCK}_"));
        for clock in [GPU_CLOCK_GRAPHICS, GPU_CLOCK_SM, GPU_CLOCK_MEMORY, GPU_CLOCK_VIDEO] {
            assert!(clock.strip_prefix(GPU_CLOCK).is_some_and(|domain| domain.starts_with('_')), "{clock}");
        }
    }
}
