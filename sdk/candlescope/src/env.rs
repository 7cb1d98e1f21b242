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
}

/// The value of `CANDLESCOPE` is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist.
    #[error(
        "{VARIABLE}: `{0}` is not known; known are parquet=DIR, perfetto=FILE, chrome=FILE, otlp=URL, otlp-metrics=URL, prometheus=ADDR, prometheus-host=NAME, host=on|off, gpu-timing=off|steps|blocks|all|adaptive, gpu-budget=SHARE, cupti=N/EVERY, nvml=on|off, nvtx=on|off, schedule=N/EVERY, overhead-probe=EVERY, paused, report=on|off, exclude=TARGET"
    )]
    UnknownKey(String),
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
const KEYS: [&str; 18] = [
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
];

/// The rest of a message that says which value was given instead, if any was.
fn not(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(", not `{value}`") }
}

impl EnvConfig {
    /// Reads the variable's value.
    ///
    /// ```
    /// let config = candlescope::EnvConfig::parse("parquet=./runs,schedule=10/0/1/5/1,exclude=hyper")?;
    /// assert_eq!(config.parquet.as_deref(), Some("./runs"));
    /// assert_eq!(config.schedule.unwrap().active, 5);
    /// assert!(candlescope::EnvConfig::parse("parket=./runs").unwrap_err().to_string().contains("`parket` is not known"));
    /// # Ok::<(), candlescope::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Names the key that is not understood and what it accepts.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
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
                    config.prometheus =
                        Some(given("prometheus", value, "an address or a port, as in prometheus=9464")?);
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
                other => return Err(ConfigError::UnknownKey(word(other))),
            }
        }
        Ok(config)
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

/// The start of the key, as far as it can be one: text in a key's place may be an address with a password in it.
fn word(key: &str) -> String {
    let is_part = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let word: String = key.chars().take_while(is_part).collect();
    if word.len() < key.len() { format!("{word}…") } else { word }
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

fn every(value: &str) -> Result<u64, ConfigError> {
    let wanted = "a number of steps from 2, as in overhead-probe=10";
    let wrong = || ConfigError::Value { key: "overhead-probe", wanted, value: value.into() };
    value.parse().ok().filter(|every| *every >= 2).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read() {
        let c = EnvConfig::parse(" parquet = a/b , perfetto=t.pftrace,chrome=t.json,prometheus=:9464,prometheus-host=gpu-box,otlp=http://c:4318,otlp-metrics,host=off,gpu-timing=blocks,gpu-budget=0.05,cupti=9/8/7/6/5,nvml,nvtx=off,overhead-probe=9,paused,report=off,schedule=1/2/3/4/5,exclude=h2,exclude=hyper ")
            .unwrap();
        assert_eq!(
            c,
            EnvConfig {
                parquet: Some("a/b".into()),
                perfetto: Some("t.pftrace".into()),
                chrome: Some("t.json".into()),
                prometheus: Some(":9464".into()),
                prometheus_hosts: vec!["gpu-box".into()],
                otlp: Some("http://c:4318".into()),
                otlp_metrics: Some("".into()),
                no_host: true,
                gpu: Some(GpuTier::Blocks),
                gpu_budget: Some("0.05".into()),
                cupti: Some(KernelWindows::Scheduled(Schedule {
                    skip_first: 9,
                    wait: 8,
                    warmup: 7,
                    active: 6,
                    repeat: 5
                })),
                nvml: Some(true),
                nvtx: Some(false),
                schedule: Some(Schedule { skip_first: 1, wait: 2, warmup: 3, active: 4, repeat: 5 }),
                overhead_probe: Some(9),
                paused: true,
                no_report: true,
                exclude: vec!["h2".into(), "hyper".into()],
            }
        );
        assert_eq!(EnvConfig::parse("").unwrap(), EnvConfig::default());
        let windows = |text| EnvConfig::parse(text).unwrap().cupti.unwrap();
        for (text, schedule) in [("cupti", "all"), ("cupti=all", "all"), ("cupti=5/500", "5/500")] {
            assert_eq!(windows(text), KernelWindows::Scheduled(schedule.parse().unwrap()));
        }
        assert_eq!(windows("cupti=on-request"), KernelWindows::OnRequest);
    }

    #[test]
    fn a_configuration_without_destination_is_known() {
        for text in ["parquet=a", "perfetto=a", "chrome=a", "otlp", "otlp-metrics", "prometheus=1", "nvtx"] {
            assert!(EnvConfig::parse(text).unwrap().has_destination(), "{text}");
        }
        for text in ["", "schedule=5/500", "host,cupti=on-request", "nvtx=off"] {
            assert!(!EnvConfig::parse(text).unwrap().has_destination(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("parquet", "`parquet` wants a directory, as in parquet=./runs"),
            ("prometheus=", "`prometheus` wants an address or a port, as in prometheus=9464"),
            ("parquet=./a;prometheus=9464", "`prometheus` stands behind a semicolon"),
            ("host=off; paused", "`paused` stands behind a semicolon"),
            ("cupti=off", "`on-request`"),
            ("overhead-probe=1", "from 2, as in overhead-probe=10, not `1`"),
            ("host=maybe", "on or off"),
            ("schedule=1/2/3", "N/EVERY such as 5/500"),
            ("schedule=a/b/c/d/e", "not `a/b/c/d/e`"),
            ("gpu-timing=most", "off, steps, blocks, all or adaptive"),
            ("gpu-budget=2", "a share of step time"),
            ("cupti=5", "`cupti` wants `all`, N/EVERY"),
            ("otlp=http://u:pa;ss@host:1;x=2,nonsense", "`nonsense` is not known"),
            ("cuda=on", "`cuda` is not known"),
            ("http://user:pass@host:4318", "`http…` is not known"),
        ] {
            let message = EnvConfig::parse(text).unwrap_err().to_string();
            assert!(message.contains(part) && message.starts_with("CANDLESCOPE"), "{message}");
        }
    }
}
