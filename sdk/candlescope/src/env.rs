//! The environment variable `CANDLESCOPE`.

use crate::InitError;
use crate::builder::{Builder, builder};
use crate::gpu::KernelWindows;
use candlescope_core::{GpuTier, GpuTiming, RedactedUrl, Schedule};

/// Name of the environment variable.
pub const VARIABLE: &str = "CANDLESCOPE";

/// The options in the variable: keys joined by commas, with the names of the options of `candlescope profile` and of
/// the methods of [`Builder`]:
///
/// | key | meaning |
/// |---|---|
/// | `parquet=DIR` | a run for each process, in a new directory below `DIR` |
/// | `perfetto=FILE` | a native Perfetto trace |
/// | `chrome=FILE` | Chrome's JSON trace format |
/// | `otlp=URL`, `otlp` | traces to an OpenTelemetry collector; without a URL, to that of the `OTEL_*` variables |
/// | `otlp-metrics=URL`, `otlp-metrics` | metrics to an OpenTelemetry collector, likewise |
/// | `prometheus=ADDR` | metrics at `http://ADDR/metrics`; a port alone is for this machine only |
/// | `prometheus-host=NAME` | a further name of that address, see `PrometheusConfig::allow_host`; can be repeated |
/// | `host`, `host=off` | samples of the process; on by default |
/// | `gpu-timing=TIER` | GPU time: `off`, `steps`, `blocks`, `all`, or `adaptive`, the default with a CUDA device |
/// | `gpu-budget=SHARE` | what the adaptive tier may cost; default `0.02` (2 % of step time) |
/// | `cupti=N/EVERY`, `cupti`, `cupti=on-request` | record kernels of N steps in EVERY, of all steps, or on request |
/// | `nvml`, `nvml=off` | power, memory, clocks of the GPUs; on by default if there are any |
/// | `nvtx`, `nvtx=off` | ranges for Nsight Systems; on by default if it is attached |
/// | `schedule=N/EVERY` | record N steps in EVERY, or by `skip_first/wait/warmup/active/repeat` |
/// | `overhead-probe=EVERY` | leave one step in EVERY plain, to measure what recording the others costs |
/// | `paused` | start with recording off |
/// | `report`, `report=off` | the account of the run on standard error when it ends; on by default |
/// | `exclude=TARGET` | leave out spans of a target; can be repeated |
/// | `sigterm` | SIGTERM ends the run first, see [`Builder::end_on_sigterm`] |
/// | `ring-capacity=N` | records that a thread's ring holds; default 32768 |
/// | `queue-records=N` | records that may wait for one exporter; default 262144 |
///
/// A comma inside a value is written `\,`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvConfig {
    /// Directory in which each process makes a run.
    pub parquet: Option<String>,
    /// File for the Perfetto trace.
    pub perfetto: Option<String>,
    /// File for the Chrome trace.
    pub chrome: Option<String>,
    /// OpenTelemetry collector for traces; empty if the `OTEL_*` variables name it.
    pub otlp: Option<RedactedUrl>,
    /// OpenTelemetry collector for metrics; empty if the `OTEL_*` variables name it.
    pub otlp_metrics: Option<RedactedUrl>,
    /// Address at which metrics are served.
    pub prometheus: Option<String>,
    /// Further names of that address.
    pub prometheus_hosts: Vec<String>,
    /// Whether the host collector is off.
    pub no_host: bool,
    /// Tier of GPU time, if the variable states it.
    pub gpu: Option<GpuTier>,
    /// Budget of the adaptive tier, a share of step time, in the text form that was given.
    pub gpu_budget: Option<String>,
    /// Whether kernels are recorded, and in which windows.
    pub cupti: Option<KernelWindows>,
    /// Whether the GPUs are sampled, if the variable states it.
    pub nvml: Option<bool>,
    /// Whether NVTX ranges are made, if the variable states it.
    pub nvtx: Option<bool>,
    /// Which steps are recorded; all if `None`.
    pub schedule: Option<Schedule>,
    /// One step in this many is left plain.
    pub overhead_probe: Option<u64>,
    /// Whether the session starts with recording off.
    pub paused: bool,
    /// Whether the account at the end of the run is not printed.
    pub no_report: bool,
    /// Targets whose spans are left out.
    pub exclude: Vec<String>,
    /// Whether SIGTERM ends the run first.
    pub sigterm: bool,
    /// Records that a thread's ring holds.
    pub ring_capacity: Option<usize>,
    /// Records that may wait for one exporter.
    pub queue_records: Option<u64>,
}

/// The value of `CANDLESCOPE` is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist. The text says which entry it is; what stands there is shown only if it is almost a
    /// known key, because it may be part of a password.
    #[error(
        "{VARIABLE}: {0} is not known (a comma inside a value is written `\\,`); known are parquet=DIR, perfetto=FILE, chrome=FILE, otlp=URL, otlp-metrics=URL, prometheus=ADDR, prometheus-host=NAME, host=on|off, gpu-timing=off|steps|blocks|all|adaptive, gpu-budget=SHARE, cupti=N/EVERY, nvml=on|off, nvtx=on|off, schedule=N/EVERY, overhead-probe=EVERY, paused, report=on|off, exclude=TARGET, sigterm, ring-capacity=N, queue-records=N"
    )]
    UnknownKey(String),
    /// What stands behind an address is no key: the address has a comma in it.
    #[error(
        "{VARIABLE}: what follows `{0}` is no known key, so its address seems to hold a comma: write it as `\\,`; `{0}` is left out, and nothing is sent to an address cut short"
    )]
    Comma(&'static str),
    /// A key without the value that it needs, or with an impossible value.
    #[error("{VARIABLE}: `{key}` wants {wanted}{}", not(value))]
    Value {
        /// The key.
        key: &'static str,
        /// What values it accepts.
        wanted: &'static str,
        /// The value that was given.
        value: String,
    },
    /// Keys are joined by something other than commas.
    #[error("{VARIABLE}: keys are joined by commas, but `{0}` stands behind a semicolon")]
    Separator(String),
    /// The build lacks a feature that the key needs.
    #[error(
        "{VARIABLE}: `{0}` needs the feature `{0}` of the crate candlescope, which this build lacks; enable it and rebuild"
    )]
    NotInThisBuild(&'static str),
}

/// All keys.
const KEYS: [&str; 21] = [
    "parquet",
    "perfetto",
    "chrome",
    "otlp",
    "otlp-metrics",
    "prometheus",
    "prometheus-host",
    "host",
    "gpu-timing",
    "gpu-budget",
    "cupti",
    "nvml",
    "nvtx",
    "schedule",
    "overhead-probe",
    "paused",
    "report",
    "exclude",
    "sigterm",
    "ring-capacity",
    "queue-records",
];

/// The rest of a message that says which value was given instead, if any was and it can be no part of an address, which
/// may hold a password with a comma.
fn not(value: &str) -> String {
    if value.is_empty() || value.contains('@') { String::new() } else { format!(", not `{value}`") }
}

impl EnvConfig {
    /// Reads the variable's value.
    ///
    /// ```
    /// let config = candlescope::EnvConfig::parse("parquet=./runs,schedule=10/0/1/5/1,exclude=hyper")?;
    /// assert_eq!(config.parquet.as_deref(), Some("./runs"));
    /// assert_eq!(config.schedule.unwrap().active, 5);
    /// assert!(candlescope::EnvConfig::parse("parket=./runs").unwrap_err().to_string().contains("did you mean `parquet`?"));
    /// # Ok::<(), candlescope::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Names the key that is not understood and what it accepts.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let (config, left_out) = Self::understood(text)?;
        left_out.into_iter().next().map_or(Ok(config), Err)
    }

    /// What is understood of the variable's value, and the keys that are not known. A value that a known key does not
    /// accept is an error: without it more may be recorded than was asked for.
    pub(crate) fn understood(text: &str) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let mut config = Self::default();
        let mut left_out = Vec::new();
        // The address that stands directly before an entry.
        let mut address = None;
        for (at, part) in entries(text).iter().map(|part| part.trim()).enumerate().filter(|(_, p)| !p.is_empty()) {
            // Inside a value a semicolon is accepted: addresses and file names may contain one.
            let second = part.split(';').skip(1).map(|rest| rest.split('=').next().unwrap_or_default().trim());
            if let Some(key) = second.into_iter().find(|rest| KEYS.contains(rest)) {
                return Err(ConfigError::Separator(key.to_string()));
            }
            let (key, value) = part.split_once('=').map_or((part, ""), |(k, v)| (k.trim(), v.trim()));
            match key {
                "parquet" => config.parquet = Some(given("parquet", value, "a directory, as in parquet=./runs")?),
                "perfetto" => config.perfetto = Some(given("perfetto", value, "a file, as in perfetto=trace.pftrace")?),
                "chrome" => config.chrome = Some(given("chrome", value, "a file, as in chrome=trace.json")?),
                "otlp" => config.otlp = Some(value.into()),
                "otlp-metrics" => config.otlp_metrics = Some(value.into()),
                "prometheus" => {
                    let wanted = "an address or a port, as in prometheus=9464";
                    // Nobody's name is in an address to listen on; what looks like one is not repeated.
                    let address = if value.contains('@') { "" } else { value };
                    config.prometheus = Some(given("prometheus", address, wanted)?);
                }
                "host" => config.no_host = !switch("host", value)?,
                "prometheus-host" => {
                    let wanted = "a name of this machine, as in prometheus-host=gpu-box";
                    config.prometheus_hosts.push(given("prometheus-host", value, wanted)?);
                }
                "report" => config.no_report = !switch("report", value)?,
                "paused" => config.paused = switch("paused", value)?,
                "schedule" => config.schedule = Some(schedule("schedule", value)?),
                "gpu-timing" => config.gpu = Some(tier(value)?),
                "gpu-budget" => config.gpu_budget = Some(budget(value)?),
                "cupti" => config.cupti = Some(windows(value)?),
                "overhead-probe" => config.overhead_probe = Some(every(value)?),
                "nvml" => config.nvml = Some(switch("nvml", value)?),
                "nvtx" => config.nvtx = Some(switch("nvtx", value)?),
                "exclude" => {
                    let wanted = "the target of spans, as in exclude=hyper";
                    config.exclude.push(given("exclude", value, wanted)?);
                }
                "sigterm" => config.sigterm = switch("sigterm", value)?,
                "ring-capacity" => config.ring_capacity = Some(capacity(value)?),
                "queue-records" => config.queue_records = Some(queue(value)?),
                other => {
                    let near = near(other);
                    left_out.push(match (near, address.take()) {
                        (Some(known), _) => ConfigError::UnknownKey(format!("`{other}` (did you mean `{known}`?)")),
                        (None, Some(cut)) => {
                            if cut == "otlp" {
                                config.otlp = None
                            } else {
                                config.otlp_metrics = None
                            }
                            ConfigError::Comma(cut)
                        }
                        (None, None) => ConfigError::UnknownKey(format!("entry {}", at + 1)),
                    });
                    continue;
                }
            }
            address = ["otlp", "otlp-metrics"].into_iter().find(|known| *known == key && !value.is_empty());
        }
        Ok((config, left_out))
    }

    /// Takes out what the build has no feature for.
    pub(crate) fn take_lacking(&mut self) -> Vec<ConfigError> {
        let mut lacking = Vec::new();
        let mut lacks = |has: bool, feature: &'static str, asked: bool| {
            if asked && !has {
                lacking.push(ConfigError::NotInThisBuild(feature));
            }
            asked && !has
        };
        if lacks(cfg!(feature = "parquet"), "parquet", self.parquet.is_some()) {
            self.parquet = None;
        }
        if lacks(cfg!(feature = "perfetto"), "perfetto", self.perfetto.is_some()) {
            self.perfetto = None;
        }
        if lacks(cfg!(feature = "chrome"), "chrome", self.chrome.is_some()) {
            self.chrome = None;
        }
        if lacks(cfg!(feature = "otlp"), "otlp", self.otlp.is_some() || self.otlp_metrics.is_some()) {
            (self.otlp, self.otlp_metrics) = (None, None);
        }
        if lacks(cfg!(feature = "prometheus"), "prometheus", self.prometheus.is_some()) {
            self.prometheus = None;
        }
        let times_gpu = self.gpu.map_or(self.gpu_budget.is_some(), |tier| tier != GpuTier::Off);
        if lacks(cfg!(feature = "cuda"), "cuda", times_gpu) {
            (self.gpu, self.gpu_budget) = (None, None);
        }
        if lacks(cfg!(feature = "cupti"), "cupti", self.cupti.is_some()) {
            self.cupti = None;
        }
        if lacks(cfg!(feature = "nvml"), "nvml", self.nvml == Some(true)) {
            self.nvml = None;
        }
        if lacks(cfg!(feature = "nvtx"), "nvtx", self.nvtx == Some(true)) {
            self.nvtx = None;
        }
        lacking
    }

    /// Whether records go anywhere.
    pub(crate) fn has_destination(&self) -> bool {
        let files = [&self.parquet, &self.perfetto, &self.chrome, &self.prometheus];
        let collectors = [&self.otlp, &self.otlp_metrics];
        files.iter().any(|d| d.is_some()) || collectors.iter().any(|d| d.is_some()) || self.nvtx == Some(true)
    }

    pub(crate) fn into_builder(self) -> Result<Builder, InitError> {
        let mut b = builder().paused(self.paused).report_at_end(!self.no_report);
        if let Some(dir) = self.parquet {
            b = parquet(b, &dir)?;
        }
        if let Some(file) = self.perfetto {
            b = perfetto(b, file)?;
        }
        if let Some(file) = self.chrome {
            b = chrome(b, file)?;
        }
        if let Some(endpoint) = self.otlp {
            b = otlp(b, endpoint)?;
        }
        if let Some(endpoint) = self.otlp_metrics {
            b = otlp_metrics(b, endpoint)?;
        }
        if let Some(address) = self.prometheus {
            b = prometheus(b, address, self.prometheus_hosts)?;
        }
        #[cfg(feature = "host")]
        {
            b = b.host(!self.no_host);
        }
        if let Some(schedule) = self.schedule {
            b = b.schedule(schedule);
        }
        if let Some(every) = self.overhead_probe {
            b = b.overhead_probe(every);
        }
        for target in &self.exclude {
            b = b.exclude_target(target);
        }
        if let Some(records) = self.ring_capacity {
            b = b.ring_capacity(records);
        }
        if let Some(records) = self.queue_records {
            b = b.queue_records(records);
        }
        b = b.end_on_sigterm(self.sigterm);
        if self.gpu.is_some() || self.gpu_budget.is_some() {
            let timing = GpuTiming::tier(self.gpu.unwrap_or(GpuTier::Adaptive));
            // The text was checked when it was read.
            let share = self.gpu_budget.and_then(|text| text.parse().ok()).unwrap_or(timing.budget);
            b = gpu(b, timing.budget(share))?;
        }
        if let Some(windows) = self.cupti {
            b = cupti(b, windows)?;
        }
        if let Some(on) = self.nvml {
            b = nvml(b, on)?;
        }
        if let Some(on) = self.nvtx {
            b = nvtx(b, on)?;
        }
        Ok(b)
    }
}

#[cfg(feature = "parquet")]
fn parquet(b: Builder, dir: &str) -> Result<Builder, InitError> {
    let run_id = format!("run-{}-{}", candlescope_core::HostNs::now().0 / 1_000_000, std::process::id());
    Ok(b.parquet(std::path::Path::new(dir).join(&run_id)).run_id(&run_id))
}
#[cfg(not(feature = "parquet"))]
fn parquet(_: Builder, _: &str) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("parquet").into())
}

#[cfg(feature = "perfetto")]
fn perfetto(b: Builder, file: String) -> Result<Builder, InitError> {
    Ok(b.perfetto(file))
}
#[cfg(not(feature = "perfetto"))]
fn perfetto(_: Builder, _: String) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("perfetto").into())
}

#[cfg(feature = "chrome")]
fn chrome(b: Builder, file: String) -> Result<Builder, InitError> {
    Ok(b.chrome(file))
}
#[cfg(not(feature = "chrome"))]
fn chrome(_: Builder, _: String) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("chrome").into())
}

#[cfg(feature = "otlp")]
fn collector(endpoint: RedactedUrl) -> candlescope_exporters::otlp::OtlpConfig {
    use candlescope_exporters::otlp::OtlpConfig;
    if endpoint.is_empty() { OtlpConfig::default() } else { OtlpConfig::new(endpoint) }
}

#[cfg(feature = "otlp")]
fn otlp(b: Builder, endpoint: RedactedUrl) -> Result<Builder, InitError> {
    Ok(b.otlp_with(collector(endpoint)))
}
#[cfg(not(feature = "otlp"))]
fn otlp(_: Builder, _: RedactedUrl) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("otlp").into())
}

#[cfg(feature = "otlp")]
fn otlp_metrics(b: Builder, endpoint: RedactedUrl) -> Result<Builder, InitError> {
    Ok(b.otlp_metrics_with(collector(endpoint)))
}
#[cfg(not(feature = "otlp"))]
fn otlp_metrics(_: Builder, _: RedactedUrl) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("otlp").into())
}

#[cfg(feature = "prometheus")]
fn prometheus(b: Builder, address: String, hosts: Vec<String>) -> Result<Builder, InitError> {
    let config = candlescope_exporters::prometheus::PrometheusConfig::new(address);
    Ok(b.prometheus_with(hosts.into_iter().fold(config, |config, host| config.allow_host(host))))
}
#[cfg(not(feature = "prometheus"))]
fn prometheus(_: Builder, _: String, _: Vec<String>) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("prometheus").into())
}

#[cfg(feature = "cuda")]
fn gpu(b: Builder, timing: GpuTiming) -> Result<Builder, InitError> {
    Ok(b.gpu_timing(timing))
}
#[cfg(not(feature = "cuda"))]
fn gpu(b: Builder, timing: GpuTiming) -> Result<Builder, InitError> {
    if timing.tier == GpuTier::Off { Ok(b) } else { Err(ConfigError::NotInThisBuild("cuda").into()) }
}

#[cfg(feature = "cupti")]
fn cupti(b: Builder, windows: KernelWindows) -> Result<Builder, InitError> {
    Ok(b.cupti(windows))
}
#[cfg(not(feature = "cupti"))]
fn cupti(_: Builder, _: KernelWindows) -> Result<Builder, InitError> {
    Err(ConfigError::NotInThisBuild("cupti").into())
}

#[cfg(feature = "nvml")]
fn nvml(b: Builder, on: bool) -> Result<Builder, InitError> {
    Ok(b.nvml(on))
}
#[cfg(not(feature = "nvml"))]
fn nvml(b: Builder, on: bool) -> Result<Builder, InitError> {
    if on { Err(ConfigError::NotInThisBuild("nvml").into()) } else { Ok(b) }
}

#[cfg(feature = "nvtx")]
fn nvtx(b: Builder, on: bool) -> Result<Builder, InitError> {
    Ok(b.nvtx(on))
}
#[cfg(not(feature = "nvtx"))]
fn nvtx(b: Builder, on: bool) -> Result<Builder, InitError> {
    if on { Err(ConfigError::NotInThisBuild("nvtx").into()) } else { Ok(b) }
}

fn tier(value: &str) -> Result<GpuTier, ConfigError> {
    let wanted = "off, steps, blocks, all or adaptive";
    GpuTier::from_word(value).ok_or_else(|| ConfigError::Value { key: "gpu-timing", wanted, value: value.into() })
}

/// Returns the text itself: configurations are compared, and floats have no exact equality.
fn budget(value: &str) -> Result<String, ConfigError> {
    match value.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(value.to_string()),
        _ => Err(ConfigError::Value {
            key: "gpu-budget",
            wanted: "a share of step time from 0 to 1, such as 0.02",
            value: value.into(),
        }),
    }
}

/// The entries of the variable: joined by commas, except those that are written `\,`.
fn entries(text: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let last = entries.len() - 1;
        match c {
            '\\' if rest.next_if_eq(&',').is_some() => entries[last].push(','),
            ',' => entries.push(String::new()),
            other => entries[last].push(other),
        }
    }
    entries
}

/// The known key that is almost this one: two letters more or less, and up to two others.
fn near(key: &str) -> Option<&'static str> {
    let is_word = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let names = candlescope_core::nearest::nearest(key, KEYS);
    let known = *names.first().filter(|_| is_word)?;
    let others = |a: &str, b: &str| a.chars().filter(|c| !b.contains(*c)).count();
    let is_near = key.len().abs_diff(known.len()) <= 2 && others(key, known) <= 2 && others(known, key) <= 2;
    is_near.then_some(known)
}

fn given(key: &'static str, value: &str, wanted: &'static str) -> Result<String, ConfigError> {
    if value.is_empty() {
        return Err(ConfigError::Value { key, wanted, value: value.into() });
    }
    Ok(value.to_string())
}

fn switch(key: &'static str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "" | "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        other => Err(ConfigError::Value { key, wanted: "on or off", value: other.into() }),
    }
}

fn schedule(key: &'static str, value: &str) -> Result<Schedule, ConfigError> {
    let wanted = "`all`, N/EVERY such as 5/500, or skip_first/wait/warmup/active/repeat such as 10/0/1/5/1";
    value.parse().map_err(|_| ConfigError::Value { key, wanted, value: value.into() })
}

fn windows(value: &str) -> Result<KernelWindows, ConfigError> {
    match value {
        "" => Ok(KernelWindows::Scheduled(Schedule::all())),
        "on-request" => Ok(KernelWindows::OnRequest),
        _ => value.parse().map(KernelWindows::Scheduled).map_err(|_| ConfigError::Value {
            key: "cupti",
            wanted: "`all`, N/EVERY such as 5/500, or `on-request`; without the key no kernels are recorded",
            value: value.into(),
        }),
    }
}

fn capacity(value: &str) -> Result<usize, ConfigError> {
    let wanted = "a number of records from 128, as in ring-capacity=131072";
    let wrong = || ConfigError::Value { key: "ring-capacity", wanted, value: value.into() };
    value.parse().ok().filter(|records| *records >= 128).ok_or_else(wrong)
}

fn queue(value: &str) -> Result<u64, ConfigError> {
    let wanted = "a number of records from 1, as in queue-records=2000000";
    let wrong = || ConfigError::Value { key: "queue-records", wanted, value: value.into() };
    value.parse().ok().filter(|records| *records >= 1).ok_or_else(wrong)
}

fn every(value: &str) -> Result<u64, ConfigError> {
    let wanted = "a number of steps from 2, as in overhead-probe=10";
    let wrong = || ConfigError::Value { key: "overhead-probe", wanted, value: value.into() };
    value.parse().ok().filter(|every| *every >= 2).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
