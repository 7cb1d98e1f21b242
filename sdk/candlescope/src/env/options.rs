//! The options: each is declared here, and nowhere else. `CONTRIBUTING.md` has the walk "Add an option".

use super::declare::{Field, options};
use super::read::{at_least, cost, not_empty, off, share, switch, windows};
use super::stack_sampling::StackSampling;
use crate::builder::Builder;
use crate::gpu::KernelWindows;
use candlescope_core::{GpuTier, RedactedUrl, Schedule};

/// Name of the environment variable.
pub const VARIABLE: &str = "CANDLESCOPE";

options! {
    /// The options in the variable: keys joined by commas, with the names of the options of `candlescope profile` and of
    /// the methods of [`Builder`]. `docs/configuration.md` explains each. A comma inside a value is written `\,`.
    EnvConfig {
        /// A run for each process, in a new directory below `DIR`.
        parquet: Option<String> {
            form: "parquet=DIR",
            feature: "parquet",
            read: not_empty, "a directory, as in parquet=./runs",
            to: |b, dir: String, config| {
                if config.parquet_hive { b.parquet_hive(dir) } else { b.parquet_below(dir) }
            },
        }
        /// Put the run's directory below `date=…/machine=…/` in `DIR`: a folder that many machines share, of which
        /// engines that know Hive's folders read the days and machines that they need.
        parquet_hive: bool {
            form: "parquet-hive",
            feature: "parquet" if |config| config.parquet_hive && config.parquet.is_some(),
            default: "off",
            read: switch, "on or off",
        }
        /// Write a Perfetto trace as well.
        perfetto: Option<String> {
            form: "perfetto=FILE",
            feature: "perfetto",
            read: not_empty, "a file, as in perfetto=trace.pftrace",
            to: |b, file, _| b.perfetto(file),
        }
        /// Write Chrome's JSON trace format as well.
        chrome: Option<String> {
            form: "chrome=FILE",
            feature: "chrome",
            read: not_empty, "a file, as in chrome=trace.json",
            to: |b, file, _| b.chrome(file),
        }
        /// Send traces to the OpenTelemetry collector at this address as well, for example http://localhost:4318.
        otlp: Option<RedactedUrl> {
            form: "otlp=URL" | "otlp",
            also: "without a URL, to the one that the `OTEL_*` variables name",
            feature: "otlp",
            read: |url: &str| Some(url.into()), "an address, as in otlp=http://localhost:4318",
            to: |b, url, _| b.otlp_with(collector(url)),
        }
        /// Send metrics to an OpenTelemetry collector, likewise.
        otlp_metrics: Option<RedactedUrl> {
            form: "otlp-metrics=URL" | "otlp-metrics",
            feature: "otlp",
            read: |url: &str| Some(url.into()), "an address, as in otlp-metrics=http://localhost:4318",
            to: |b, url, _| b.otlp_metrics_with(collector(url)),
        }
        /// Serve metrics for Prometheus at this address while the run lasts, for example 127.0.0.1:9464, or 9464 for that.
        prometheus: Option<String> {
            form: "prometheus=ADDR",
            feature: "prometheus",
            // Nobody's name is in an address to listen on.
            read: |address: &str| not_empty(address).filter(|address| !address.contains('@')),
                "an address or a port, as in prometheus=9464",
            to: |b, address, config| {
                let served = candlescope_exporters::prometheus::PrometheusConfig::new(address);
                b.prometheus_with(config.prometheus_hosts.iter().fold(served, |served, host| served.allow_host(host)))
            },
        }
        /// One more name that the metrics answer to; can be repeated.
        prometheus_hosts: Vec<String> {
            form: "prometheus-host=NAME",
            feature: "prometheus" if |config| config.prometheus.is_some() && !config.prometheus_hosts.is_empty(),
            read: not_empty, "a name of this machine, as in prometheus-host=gpu-box",
        }
        /// Sample the process: memory, CPU use, context switches.
        no_host: bool {
            form: "host=on|off",
            feature: "host" if |_| false,
            default: "on",
            read: off, "on or off",
            act: |b, off: bool, _| b.host(!off),
        }
        /// GPU time of intervals: off, steps, blocks, all, or adaptive, which gives every interval of one step in N
        /// and keeps what that costs within a budget.
        gpu: Option<GpuTier> {
            form: "gpu-timing=off|steps|blocks|all|adaptive",
            feature: "cuda" if EnvConfig::times_gpu,
            default: "adaptive where there is a CUDA device",
            read: GpuTier::from_word, "off, steps, blocks, all or adaptive",
            act: |b, _, config| b.gpu_timing(config.gpu_timing()),
        }
        /// Share of step time that the adaptive tier may cost.
        gpu_budget: Option<String> {
            form: "gpu-budget=SHARE",
            feature: "cuda" if EnvConfig::times_gpu,
            default: "0.02",
            read: share, "a share of step time from 0 to 1, such as 0.02",
            act: |b, _, config| b.gpu_timing(config.gpu_timing()),
        }
        /// Record kernels with CUPTI: of all steps, of N in EVERY, for example 5/500, or of N at most once in a time, for
        /// example 5/10s.
        cupti: Option<KernelWindows> {
            form: "cupti=N/EVERY" | "cupti=N/TIME" | "cupti" | "cupti=on-request" | "cupti=off",
            also: "`on-request`: when the program asks for them",
            feature: "cupti" if |config| config.records_kernels(),
            default: "off",
            read: windows,
                "`all`, N/EVERY such as 5/500, N/TIME such as 5/10s, `on-request`, or `off`",
            act: |b, windows, _| b.cupti(windows),
        }
        /// Follow CUDA graphs from their capture on, so that kernels of replays have the intervals that they were
        /// captured in.
        cupti_graphs: bool {
            form: "cupti-graphs",
            feature: "cupti" if |config| config.cupti_graphs && config.records_kernels(),
            default: "off",
            read: switch, "on or off",
            act: |b, on, _| b.cupti_graphs(on),
        }
        /// Sample power, memory and clocks of the GPUs.
        nvml: Option<bool> {
            form: "nvml=on|off",
            feature: "nvml" if |config| config.nvml == Some(true),
            default: "on where there are any",
            read: switch, "on or off",
            act: |b, on, _| b.nvml(on),
        }
        /// Make NVTX ranges, for Nsight Systems.
        nvtx: Option<bool> {
            form: "nvtx=on|off",
            feature: "nvtx" if |config| config.nvtx == Some(true),
            default: "on where it is attached",
            read: switch, "on or off",
            to: |b, on, _| b.nvtx(on),
        }
        /// Sample the call stacks of every thread that computes, HZ times a second of its CPU time, and record when threads
        /// wait or lose their CPU; `off` samples none. Linux.
        stacks: Option<StackSampling> {
            form: "stacks=HZ" | "stacks" | "stacks=perf:HZ" | "stacks=off",
            also: "`stacks` alone: 499 times; `perf:` or `signals:` before the number: by this source",
            feature: "stacks" if |config| config.stacks.is_some_and(|stacks| stacks.hz > 0),
            default: "off",
            read: StackSampling::read,
                "a number of samples a second from 1 to 10000, such as 499 or perf:499, or on, or off",
            act: |b, stacks: StackSampling, _| stacks.on(b),
        }
        /// Record N steps in EVERY, or by a schedule of five numbers.
        schedule: Option<Schedule> {
            form: "schedule=N/EVERY",
            default: "all steps",
            read: |text: &str| text.parse().ok(),
                "`all`, N/EVERY such as 5/500, or skip_first/wait/warmup/active/repeat such as 10/0/1/5/1",
            act: |b, schedule, _| b.schedule(schedule),
        }
        /// Leave one step in EVERY without a record, and say what recording the others costs, measured in place.
        overhead_probe: Option<u64> {
            form: "overhead-probe=EVERY",
            default: "off",
            read: at_least(2), "a number of steps from 2, as in overhead-probe=10",
            act: |b, every, _| b.overhead_probe(every),
        }
        /// Hold the cost of recording to SHARE of step time, such as 1%, by leaving steps out at random.
        cost: Option<String> {
            form: "cost=SHARE",
            default: "whatever it costs",
            read: cost, "a share of step time above 0 and up to 100%, as in cost=1% or cost=0.01",
            act: |b, share: String, _| match share.parse() {
                Ok(share) => b.cost(share),
                Err(_) => b,
            },
        }
        /// Start with recording off.
        paused: bool {
            form: "paused",
            default: "off",
            read: switch, "on or off",
            act: |b, on, _| b.paused(on),
        }
        /// Print the account of the run on standard error when it ends.
        no_report: bool {
            form: "report=on|off",
            default: "on",
            read: off, "on or off",
            act: |b, off: bool, _| b.report_at_end(!off),
        }
        /// Leave out spans of a `tracing` target; can be repeated.
        exclude: Vec<String> {
            form: "exclude=TARGET",
            read: not_empty, "the target of spans, as in exclude=hyper",
            act: |b, target: String, _| b.exclude_target(&target),
        }
        /// SIGTERM ends the run before the process.
        sigterm: bool {
            form: "sigterm",
            default: "off",
            read: switch, "on or off",
            act: |b, on, _| b.end_on_sigterm(on),
        }
        /// Records that a thread's ring holds; more where the verdict says `ring_full`.
        ring_capacity: Option<usize> {
            form: "ring-capacity=N",
            default: "32768",
            read: at_least(128), "a number of records from 128, as in ring-capacity=131072",
            act: |b, records, _| b.ring_capacity(records),
        }
        /// Records that may wait for one exporter; more where the verdict says `queue_full`.
        queue_records: Option<u64> {
            form: "queue-records=N",
            default: "262144",
            read: at_least(1), "a number of records from 1, as in queue-records=2000000",
            act: |b, records, _| b.queue_records(records),
        }
    }
}

/// What is declared of an option, for the pages made from it and for command lines that have it as well.
#[derive(Debug)]
#[non_exhaustive]
pub struct EnvOption {
    /// How it is written in the variable: `otlp=URL`, `otlp`.
    pub forms: &'static [&'static str],
    /// The feature of this crate that it needs; empty if none.
    pub feature: &'static str,
    /// What holds without it, in words; empty if nothing.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// What else its forms in the variable do; empty if nothing.
    pub also: &'static str,
    /// Whether records go where it says.
    pub is_destination: bool,
    /// What values it accepts.
    pub wanted: &'static str,
    /// Takes a value; `false` if it is none of those.
    pub(super) read: fn(&mut EnvConfig, &str) -> bool,
    /// Whether it was given, in a way that needs its feature.
    pub(super) asks: fn(&EnvConfig) -> bool,
    /// Whether this build has its feature.
    pub(super) is_built: bool,
    /// Takes it out.
    pub(super) leave_out: fn(&mut EnvConfig),
}

impl EnvOption {
    /// Its key: what stands before `=`.
    pub fn key(&self) -> &'static str {
        self.forms.first().and_then(|form| form.split('=').next()).unwrap_or_default()
    }

    /// Whether `config` asks for what this build has no feature for.
    pub fn is_lacking(&self, config: &EnvConfig) -> bool {
        !self.is_built && (self.asks)(config)
    }
}

/// Calls what an option does. Closures written in the declaration get their types here.
fn act<T>(
    act: impl FnOnce(Builder, T, &EnvConfig) -> Builder,
    builder: Builder,
    value: T,
    config: &EnvConfig,
) -> Builder {
    act(builder, value, config)
}

/// The collector at `url`, or the one that the `OTEL_*` variables name.
#[cfg(feature = "otlp")]
fn collector(url: RedactedUrl) -> candlescope_exporters::otlp::OtlpConfig {
    use candlescope_exporters::otlp::OtlpConfig;
    if url.is_empty() { OtlpConfig::default() } else { OtlpConfig::new(url) }
}

impl EnvConfig {
    /// Whether kernels of any steps may be asked for.
    pub fn records_kernels(&self) -> bool {
        self.cupti.is_some_and(|windows| windows != KernelWindows::Off)
    }

    /// A budget alone asks for GPU time, too.
    fn times_gpu(&self) -> bool {
        self.gpu.map_or(self.gpu_budget.is_some(), |tier| tier != GpuTier::Off)
    }

    #[cfg(feature = "cuda")]
    fn gpu_timing(&self) -> candlescope_core::GpuTiming {
        let timing = candlescope_core::GpuTiming::tier(self.gpu.unwrap_or(GpuTier::Adaptive));
        // The text was checked when it was read.
        let share = self.gpu_budget.as_ref().and_then(|text| text.parse().ok()).unwrap_or(timing.budget);
        timing.budget(share)
    }
}
