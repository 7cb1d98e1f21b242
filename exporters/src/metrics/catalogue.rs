//! Every metric that is served: name, kind, labels, meaning. Dashboards, rules and tests depend on this table.

use candlescope_core::{host_metric, metric};

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process restarts.
    Counter,
    /// A value as it is now: it rises and falls.
    Gauge,
    /// Counts in buckets, a sum and a count.
    Histogram,
}

/// One metric, as it is declared to those who scrape it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Name on the wire; a histogram's series add `_bucket`, `_sum` and `_count`.
    pub name: &'static str,
    /// Whether it counts, shows a value, or has buckets.
    pub kind: Kind,
    /// Labels. All are bounded: no ordinals, no request ids.
    pub labels: &'static [&'static str],
    /// What it measures, with its unit: the text behind `# HELP`.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}
const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}
const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

const MODEL: &[&str] = &["gen_ai_request_model"];
const GPU: &[&str] = &["hw_id"];

pub(crate) const TTFT: Metric = histogram(
    "gen_ai_server_time_to_first_token_seconds",
    MODEL,
    "Time from a request's start to its first output token on the host",
);
pub(crate) const TPOT: Metric = histogram(
    "gen_ai_server_time_per_output_token_seconds",
    MODEL,
    "Time for each output token of a sequence after the first, mean of a request; requests of one token have none",
);
pub(crate) const REQUEST: Metric =
    histogram("gen_ai_server_request_duration_seconds", MODEL, "Duration of a request on the host");
pub(crate) const QUEUE: Metric = histogram(
    "candlescope_request_queue_time_seconds",
    MODEL,
    "Time from a request's start to its first phase, of requests that had one",
);
pub(crate) const REQUESTS: Metric = counter(
    "candlescope_requests_total",
    &["gen_ai_request_model", "outcome"],
    "Requests that ended by how, as the program says: done, cancelled, failed, or unstated",
);
pub(crate) const REQUEST_STEPS: Metric = counter(
    "candlescope_request_steps_total",
    &["gen_ai_request_model", "device_time"],
    "Recorded steps of requests that ended, once for each request, by whether their time on the device was measured: yes or no",
);
pub(crate) const REQUEST_DEVICE_SECONDS: Metric = counter(
    "candlescope_request_device_seconds_total",
    MODEL,
    "Shares of requests that ended of their recorded steps' time on the device, by the work that each causes, of steps of which it was measured",
);
pub(crate) const REQUEST_ENERGY: Metric = counter(
    "candlescope_request_energy_joules_total",
    MODEL,
    "Shares of requests that ended of their steps' energy, by the work that each causes, of requests of which it is known; without the bounds, by the sensors' period and accuracy, that their records have",
);
pub(crate) const ITL: Metric = histogram(
    "candlescope_inter_token_latency_seconds",
    &[],
    "Gap between the ends of consecutive steps of a request that yield a token, where none between is missing",
);
pub(crate) const SPAN: Metric = histogram(
    "candlescope_span_duration_seconds",
    &["path", "clock", "source"],
    "Duration of an interval by its path without ordinals, children included; on the GPU of those measured, by source",
);
pub(crate) const PHASE_SECONDS: Metric = counter(
    "candlescope_phase_seconds_total",
    &["phase", "clock", "source"],
    "Time in steps of a phase; on the GPU of those that were measured, by source",
);
pub(crate) const GPU_STEPS: Metric = counter(
    "candlescope_gpu_steps_total",
    &["phase", "source"],
    "Steps whose time on the GPU was measured, by what measured it",
);
pub(crate) const STEPS: Metric =
    counter("candlescope_steps_total", &["phase"], "Recorded steps that ended; phase none outside phases");
pub(crate) const STEP_RUNS: Metric = counter(
    "candlescope_step_runs_total",
    &["phase", "ran"],
    "Recorded steps by how they ran, where the program says it: replay of a CUDA graph, or why call by call",
);
pub(crate) const STEPS_BEGUN: Metric = counter(
    "candlescope_steps_begun_total",
    &["outcome"],
    "Steps by what became of them: recorded, captured (only for a window), scheduled_out, left_plain, perturbed (part of an experiment), paused, lost",
);
pub(crate) const WARMUP_STEPS: Metric = counter(
    "candlescope_warmup_steps_total",
    &["phase"],
    "Recorded steps of requests that only warmed up; other figures of steps, intervals and tokens leave them out",
);
pub(crate) const WARMUP_REQUESTS: Metric = counter(
    "candlescope_warmup_requests_total",
    &[],
    "Requests that ended and only warmed up, as many as the run's option warmup says",
);
pub(crate) const TOKENS: Metric = counter(
    "candlescope_tokens_total",
    &["type"],
    "Tokens of requests that ended, of prompts and output, all sequences",
);
pub(crate) const STEP_TOKENS: Metric =
    counter("candlescope_step_tokens_total", &["phase"], "Tokens that steps of a phase processed, as they end");
pub(crate) const FLOPS: Metric =
    counter("candlescope_flops_total", &["phase"], "Floating-point operations of steps that tell them, analytic");
pub(crate) const BYTES: Metric =
    counter("candlescope_moved_bytes_total", &["phase"], "Bytes moved by steps that tell them, analytic lower bound");
pub(crate) const MFU: Metric = gauge(
    "candlescope_mfu_ratio",
    &["phase", "peak"],
    "FLOPs over the union of the steps' times and peak FLOP/s of the element type, last 15 s; absent where unknown",
);
pub(crate) const MBU: Metric = gauge(
    "candlescope_mbu_ratio",
    &["phase", "peak"],
    "Bytes over the union of the steps' times and peak bandwidth, last 15 s; absent where unknown",
);
pub(crate) const TOKEN_RATE: Metric = gauge(
    "candlescope_tokens_per_second",
    &["phase"],
    "Tokens of a phase's steps over the union of their times, last 15 s: the rate while the phase works",
);
pub(crate) const CONCURRENCY: Metric = gauge(
    "candlescope_step_concurrency",
    &["phase"],
    "Mean number of steps open at once over the union of their times, last 15 s; phase all takes all together",
);
pub(crate) const BUSY: Metric = gauge(
    "candlescope_gpu_busy_ratio",
    GPU,
    "Recorded kernels, merged, over the union of the recorded steps' times, last 15 s; absent without recorded kernels",
);
pub(crate) const REQUESTS_ACTIVE: Metric =
    gauge("candlescope_requests_active", &[], "Requests that have begun and not ended");
pub(crate) const TOKENS_IN_FLIGHT: Metric =
    gauge("candlescope_tokens_in_flight", &[], "Context of all active requests, in tokens over all their sequences");
pub(crate) const KERNELS: Metric =
    counter("candlescope_kernels_total", &["kind"], "Kernels, copies and memsets recorded in windows of steps");
pub(crate) const KERNEL_SECONDS: Metric = counter(
    "candlescope_kernel_seconds_total",
    &["kind"],
    "Time on the device of recorded kernels, copies and memsets",
);
pub(crate) const PATHS: Metric = gauge("candlescope_paths", &[], "Paths that have series of their own");
pub(crate) const PATHS_OVERFLOW: Metric = counter(
    "candlescope_paths_overflow_total",
    &[],
    "Intervals counted under path (overflow), because as many paths as allowed have series already",
);
pub(crate) const RECORDS: Metric = counter(
    "candlescope_records_total",
    &["exporter", "outcome"],
    "Records of all kinds by exporter: exported, or dropped and why; those of disk_budget had been exported",
);
pub(crate) const RECORDS_PENDING: Metric =
    gauge("candlescope_records_pending", &["exporter"], "Records in an exporter's queue");
pub(crate) const RECORDS_PENDING_LIMIT: Metric =
    gauge("candlescope_records_pending_limit", &["exporter"], "Records that an exporter's queue holds at most");
pub(crate) const INTERVALS: Metric = counter(
    "candlescope_intervals_total",
    &["outcome"],
    "Intervals that ended while capture was on: recorded, or lost before they became records and why",
);
pub(crate) const LOST: Metric =
    counter("candlescope_lost_total", &["kind"], "Requests and samples lost before they became records");
pub(crate) const OVERHEAD: Metric = gauge(
    "candlescope_overhead_ratio",
    &[],
    "Time the profiler took from the application's threads over time in steps, since the start (derived)",
);
pub(crate) const RUN_INFO: Metric =
    gauge("candlescope_run_info", &["run_id", "host", "model", "version"], "The run that is observed; always 1");

/// Value of the label `outcome` for requests whose program does not say how they ended.
pub(crate) const UNSTATED: &str = "unstated";

/// Metrics made from spans, steps, requests, kernels and the session's own account.
pub const METRICS: &[Metric] = &[
    TTFT,
    TPOT,
    REQUEST,
    QUEUE,
    REQUESTS,
    REQUEST_STEPS,
    REQUEST_DEVICE_SECONDS,
    REQUEST_ENERGY,
    ITL,
    SPAN,
    PHASE_SECONDS,
    GPU_STEPS,
    STEP_RUNS,
    STEPS,
    STEPS_BEGUN,
    WARMUP_STEPS,
    WARMUP_REQUESTS,
    TOKENS,
    STEP_TOKENS,
    FLOPS,
    BYTES,
    MFU,
    MBU,
    TOKEN_RATE,
    CONCURRENCY,
    BUSY,
    REQUESTS_ACTIVE,
    TOKENS_IN_FLIGHT,
    KERNELS,
    KERNEL_SECONDS,
    PATHS,
    PATHS_OVERFLOW,
    RECORDS,
    RECORDS_PENDING,
    RECORDS_PENDING_LIMIT,
    INTERVALS,
    LOST,
    OVERHEAD,
    RUN_INFO,
];

/// Metrics made from samples of candlescope's own collectors. Samples of other collectors are served too, as gauges, or
/// as counters if their name ends in `_total`.
pub const SAMPLES: &[Metric] = &[
    counter(metric::GPU_ENERGY, GPU, "Energy used by the GPU since its driver was loaded"),
    counter(
        metric::ENERGY_OF,
        &["hw_id", "of"],
        "The same since sampling began, by whom it was used for: requests, other_steps, idle, or unattributed, of which no step is known; how far the sensors may be off is left out",
    ),
    gauge(metric::GPU_POWER, GPU, "Power drawn by the whole board"),
    gauge(metric::GPU_POWER_LIMIT, GPU, "Power limit that is enforced"),
    gauge(metric::GPU_UTILIZATION, GPU, "Share of the last sampling period in which any kernel ran"),
    gauge(metric::GPU_MEMORY_USED, GPU, "Device memory in use by anyone"),
    gauge(metric::GPU_MEMORY_LIMIT, GPU, "Device memory in all"),
    gauge(metric::GPU_TEMPERATURE, GPU, "Temperature of the die"),
    gauge(metric::GPU_POWER_AVERAGE, GPU, "Mean power of the last second"),
    gauge(metric::GPU_MEMORY_FREE, GPU, "Device memory that can be allocated"),
    gauge(metric::GPU_MEMORY_RESERVED, GPU, "Device memory kept by driver and firmware"),
    gauge(metric::GPU_MEMORY_BUSY, GPU, "Share of the last sampling period in which device memory was accessed"),
    gauge(metric::GPU_CLOCK, &["hw_id", "domain"], "Clock of a part of the GPU"),
    gauge(metric::GPU_THROTTLED, &["hw_id", "reason"], "1 while this reason holds clocks down"),
    gauge(metric::GPU_PCIE_GENERATION, GPU, "PCIe generation of the link now"),
    gauge(metric::GPU_PCIE_WIDTH, GPU, "PCIe lanes of the link now"),
    gauge(
        metric::GPU_PCIE_THROUGHPUT,
        &["hw_id", "direction"],
        "PCIe traffic over the last 20 ms, receive being to the GPU",
    ),
    gauge(metric::KV_ALLOCATED, &[], "Keys and values that slots of sequences have memory for"),
    gauge(
        metric::KV_USED,
        &[],
        "Keys and values in slots that belong to a token of a sequence, or of an ended one that may be shared",
    ),
    gauge(metric::RESIDENT_MEMORY, &[], "Resident memory of the process"),
    gauge(metric::PEAK_RESIDENT_MEMORY, &[], "Most resident memory the process has had"),
    gauge(metric::CPU_RATIO, &[], "CPU time over wall time since the last sample: 1 is one busy core"),
    counter(metric::CPU_SECONDS, &[], "User and system time of the process"),
    counter(metric::VOLUNTARY_SWITCHES, &[], "Context switches because threads waited"),
    counter(metric::INVOLUNTARY_SWITCHES, &[], "Context switches because others wanted the core"),
    counter(metric::MINOR_FAULTS, &[], "Page faults that needed no reading"),
    counter(metric::MAJOR_FAULTS, &[], "Page faults that needed reading from disk"),
    gauge(metric::THREADS, &[], "Threads of the process"),
    gauge(metric::MEMORY_AVAILABLE, &[], "Memory that programs could still get"),
    counter(host_metric::CPU_USER_SECONDS, &[], "CPU time of the process in its own code"),
    counter(host_metric::CPU_SYSTEM_SECONDS, &[], "CPU time of the kernel on behalf of the process"),
    counter(host_metric::CPU_THROTTLED_SECONDS, &[], "Time in which a quota of the control group kept it from running"),
    gauge(host_metric::UNNAMED_THREADS, &[], "Threads without a name of their own, such as rayon's and candle's pools"),
    gauge(host_metric::PROCESSORS, &[], "Processors that the process may use"),
    counter(host_metric::BUSY_SECONDS, &[], "CPU time of everybody on these processors"),
    gauge(host_metric::OTHERS_RATIO, &[], "CPU time of other processes on them over wall time since the last sample"),
    gauge(metric::LOAD_1M, &[], "Load average over one minute"),
];

/// The family that a sample belongs to, and the value of its last label if the sample's name contains one:
/// `candlescope_gpu_clock_hertz_sm` is `candlescope_gpu_clock_hertz` with `domain="sm"`.
pub(crate) fn family(sample: &str) -> Option<(&'static Metric, Option<&str>)> {
    SAMPLES.iter().find_map(|metric| {
        let rest = sample.strip_prefix(metric.name)?;
        match (rest.strip_prefix('_'), metric.labels.len()) {
            (None, 0 | 1) if rest.is_empty() => Some((metric, None)),
            (Some(value), 2) if !value.is_empty() => Some((metric, Some(value))),
            _ => None,
        }
    })
}

/// The buckets that OpenTelemetry recommends for each metric, extended down to 0.25 ms, because a small model's token
/// takes less than the first of those.
pub(crate) const TTFT_BUCKETS: &[f64] =
    &[0.00025, 0.0005, 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
pub(crate) const TPOT_BUCKETS: &[f64] =
    &[0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
pub(crate) const REQUEST_BUCKETS: &[f64] = &[
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48,
    40.96, 81.92,
];
/// A norm on a GPU takes a microsecond, a long prefill seconds.
pub(crate) const SPAN_BUCKETS: &[f64] = &[
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_keep_prometheus_rules() {
        let mut names = BTreeSet::new();
        for m in METRICS.iter().chain(SAMPLES) {
            assert!(names.insert(m.name), "{} stands here twice", m.name);
            assert!(m.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{}", m.name);
            assert_eq!(m.kind == Kind::Counter, m.name.ends_with("_total"), "{}", m.name);
            assert!(!m.help.is_empty() && !m.help.ends_with('.'), "{}", m.name);
        }
    }

    /// Names and labels on which other people's dashboards may depend: they are part of the interface.
    #[test]
    fn what_is_promised_is_served() {
        let (model, gpu): (&[&str], &[&str]) = (&["gen_ai_request_model"], &["hw_id"]);
        for (name, labels) in [
            ("gen_ai_server_time_to_first_token_seconds", model),
            ("gen_ai_server_time_per_output_token_seconds", model),
            ("gen_ai_server_request_duration_seconds", model),
            ("candlescope_request_queue_time_seconds", model),
            ("candlescope_requests_total", &["gen_ai_request_model", "outcome"]),
            ("candlescope_tokens_total", &["type"]),
            ("candlescope_span_duration_seconds", &["path", "clock", "source"]),
            ("candlescope_mfu_ratio", &["phase", "peak"]),
            ("candlescope_mbu_ratio", &["phase", "peak"]),
            ("candlescope_tokens_per_second", &["phase"]),
            ("candlescope_step_concurrency", &["phase"]),
            ("candlescope_gpu_busy_ratio", gpu),
            ("hw_gpu_utilization_ratio", gpu),
            ("hw_gpu_memory_usage_bytes", gpu),
            ("hw_gpu_memory_limit_bytes", gpu),
            ("hw_power_watts", gpu),
            ("hw_energy_joules_total", gpu),
            ("hw_temperature_celsius", gpu),
            ("candlescope_gpu_clock_hertz", &["hw_id", "domain"]),
            ("candlescope_gpu_throttled", &["hw_id", "reason"]),
            ("candlescope_records_total", &["exporter", "outcome"]),
            ("candlescope_records_pending", &["exporter"]),
            ("candlescope_records_pending_limit", &["exporter"]),
            ("candlescope_overhead_ratio", &[]),
        ] {
            let metric = METRICS.iter().chain(SAMPLES).find(|m| m.name == name);
            assert_eq!(metric.map(|m| m.labels), Some(labels), "{name}");
        }
    }

    #[test]
    fn a_sample_finds_its_family_and_label() {
        let found = |name| family(name).map(|(m, label)| (m.name, label));
        assert_eq!(found("hw_power_watts"), Some(("hw_power_watts", None)));
        assert_eq!(found("candlescope_gpu_clock_hertz_sm"), Some(("candlescope_gpu_clock_hertz", Some("sm"))));
        assert_eq!(
            found("candlescope_gpu_throttled_sw_power_cap"),
            Some(("candlescope_gpu_throttled", Some("sw_power_cap")))
        );
        for unknown in ["candlescope_gpu_clock_hertz", "hw_power_watts_x", "candlescope_gpu_clock_hertz_", "made_up"] {
            assert_eq!(found(unknown), None);
        }
    }

    #[test]
    fn buckets_ascend_from_a_quarter_of_a_millisecond_or_less() {
        for buckets in [TTFT_BUCKETS, TPOT_BUCKETS, REQUEST_BUCKETS, SPAN_BUCKETS] {
            assert!(buckets.windows(2).all(|w| w[0] < w[1]) && buckets[0] <= 0.00025);
        }
    }
}
