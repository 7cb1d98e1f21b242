//! Turns readings into samples. Pure.

use candlescope_core::{host_metric, metric};
use std::time::Duration;

/// One look at the process and the machine. What could not be read is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// When, on a monotonic clock.
    pub(super) at: Duration,
    pub(super) resident_bytes: Option<u64>,
    pub(super) peak_resident_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    /// Time of all threads so far in the program's own code.
    pub(super) user: Option<Duration>,
    /// Time of the kernel on their behalf.
    pub(super) system: Option<Duration>,
    /// Threads without a name of their own, beside the first.
    pub(super) unnamed_threads: Option<u64>,
    /// Processors that the process may use.
    pub(super) processors: Option<u64>,
    /// Time of everybody on these processors.
    pub(super) busy: Option<Duration>,
    /// Time in which a quota kept the control group's processes from running.
    pub(super) throttled: Option<Duration>,
    pub(super) voluntary_switches: Option<u64>,
    pub(super) involuntary_switches: Option<u64>,
    pub(super) minor_faults: Option<u64>,
    pub(super) major_faults: Option<u64>,
    pub(super) memory_available_bytes: Option<u64>,
    pub(super) load_1m: Option<f64>,
}

impl Reading {
    /// User and system time.
    pub(super) fn cpu(&self) -> Option<Duration> {
        Some(self.user? + self.system?)
    }

    /// Whether nothing at all could be read.
    pub(super) fn is_empty(&self) -> bool {
        *self == Reading { at: self.at, ..Reading::default() }
    }
}

/// Name, value and unit of every metric that is known.
pub(super) fn samples(last: Option<&Reading>, now: &Reading) -> Vec<(&'static str, f64, &'static str)> {
    let count = |n: Option<u64>| n.map(|n| n as f64);
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    [
        (metric::RESIDENT_MEMORY, count(now.resident_bytes), "bytes"),
        (metric::PEAK_RESIDENT_MEMORY, count(now.peak_resident_bytes), "bytes"),
        (metric::CPU_RATIO, last.and_then(|last| cpu_ratio(last, now)), "ratio"),
        (metric::CPU_SECONDS, seconds(now.cpu()), "seconds"),
        (host_metric::CPU_USER_SECONDS, seconds(now.user), "seconds"),
        (host_metric::CPU_SYSTEM_SECONDS, seconds(now.system), "seconds"),
        (host_metric::CPU_THROTTLED_SECONDS, seconds(now.throttled), "seconds"),
        (metric::VOLUNTARY_SWITCHES, count(now.voluntary_switches), "count"),
        (metric::INVOLUNTARY_SWITCHES, count(now.involuntary_switches), "count"),
        (metric::MINOR_FAULTS, count(now.minor_faults), "count"),
        (metric::MAJOR_FAULTS, count(now.major_faults), "count"),
        (metric::THREADS, count(now.threads), "count"),
        (host_metric::UNNAMED_THREADS, count(now.unnamed_threads), "count"),
        (host_metric::PROCESSORS, count(now.processors), "count"),
        (host_metric::BUSY_SECONDS, seconds(now.busy), "seconds"),
        (host_metric::OTHERS_RATIO, last.and_then(|last| others_ratio(last, now)), "ratio"),
        (metric::MEMORY_AVAILABLE, count(now.memory_available_bytes), "bytes"),
        (metric::LOAD_1M, now.load_1m, "count"),
    ]
    .into_iter()
    .filter_map(|(metric, value, unit)| value.map(|value| (metric, value, unit)))
    .collect()
}

/// CPU time ÷ wall time between two readings.
fn cpu_ratio(last: &Reading, now: &Reading) -> Option<f64> {
    let wall = now.at.checked_sub(last.at)?.as_secs_f64();
    let cpu = now.cpu()?.checked_sub(last.cpu()?)?.as_secs_f64();
    // Readings closer together than a scheduler tick show the granularity of the accounting, not the use.
    (wall >= 0.001).then(|| cpu / wall)
}

/// CPU time of others than the process on its processors ÷ wall time. The system counts in ticks, the process exactly: what
/// comes out below zero is none.
fn others_ratio(last: &Reading, now: &Reading) -> Option<f64> {
    let wall = now.at.checked_sub(last.at)?.as_secs_f64();
    let busy = now.busy?.checked_sub(last.busy?)?;
    let others = busy.saturating_sub(now.cpu()?.checked_sub(last.cpu()?)?).as_secs_f64();
    (wall >= 0.05).then(|| others / wall)
}

/// Processors' time a second that a control group may use, by the text of its `cpu.max`; `None` for no limit.
pub(super) fn cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota_of(quota, period)
}

/// The same of quota and period in µs; a quota that is no number, or negative, is no limit.
pub(super) fn quota_of(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// The time in the lines of a control group's `cpu.stat` in which its processes were kept from running.
pub(super) fn throttled(text: &str) -> Option<Duration> {
    let number = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    number("throttled_usec ").map(Duration::from_micros).or_else(|| number("throttled_time ").map(Duration::from_nanos))
}

/// Processors as Linux lists them: `0-3,8`.
pub(super) fn listed(ranges: &[(u32, u32)]) -> String {
    let one = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

/// The value of `key` in the lines of an `os-release` file, without its quotes.
pub(super) fn os_release(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']).to_string())
}

/// The limit in a control group's file: a number of bytes, or `max` for none.
pub(super) fn cgroup_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The processor flags that decide how fast inference can be.
pub(super) fn relevant_flags<'a>(flags: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    const RELEVANT: [&str; 8] = ["avx", "avx2", "fma", "f16c", "amx_bf16", "amx_int8", "asimd", "sve"];
    let mut found: Vec<String> = flags
        .into_iter()
        .filter(|flag| RELEVANT.contains(flag) || flag.starts_with("avx512") || flag.starts_with("avx_vnni"))
        .map(str::to_string)
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64, cpu_millis: u64) -> Reading {
        Reading {
            at: Duration::from_millis(millis),
            user: Some(Duration::from_millis(cpu_millis)),
            system: Some(Duration::ZERO),
            ..Reading::default()
        }
    }

    #[test]
    fn the_ratio_is_between_two_readings() {
        let ratio = |last: &Reading, now: &Reading| {
            samples(Some(last), now).into_iter().find(|(m, ..)| *m == "process_cpu_ratio").map(|(_, v, _)| v)
        };
        assert_eq!(ratio(&at(1000, 500), &at(3000, 3500)), Some(1.5));
        assert_eq!(ratio(&at(1000, 500), &at(1000, 500)), None, "no time passed");
        assert_eq!(ratio(&at(1000, 500), &at(2000, 400)), None, "CPU time does not run backwards");
        assert_eq!(ratio(&at(1000, 500), &Reading { user: None, ..at(2000, 0) }), None);
    }

    #[test]
    fn what_others_use_is_what_is_left() {
        let busy = |millis, cpu, busy| Reading { busy: Some(Duration::from_millis(busy)), ..at(millis, cpu) };
        let ratio = |last: &Reading, now: &Reading| {
            samples(Some(last), now).into_iter().find(|(m, ..)| *m == host_metric::OTHERS_RATIO).map(|(_, v, _)| v)
        };
        assert_eq!(ratio(&busy(1000, 100, 500), &busy(2000, 600, 2400)), Some(1.4));
        assert_eq!(ratio(&busy(1000, 100, 500), &busy(2000, 620, 1000)), Some(0.0), "ticks are coarse");
        assert_eq!(ratio(&at(1000, 100), &busy(2000, 600, 2400)), None, "the system did not tell before");
    }

    #[test]
    fn quotas_and_throttling_are_read_in_both_versions_of_control_groups() {
        assert_eq!((cpu_max("150000 100000\n"), cpu_max("max 100000\n"), cpu_max("")), (Some(1.5), None, None));
        assert_eq!((quota_of("-1\n", "100000\n"), quota_of("50000\n", "100000\n")), (None, Some(0.5)));
        let text = "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500\n";
        assert_eq!(throttled(text), Some(Duration::from_micros(1500)));
        assert_eq!(throttled("nr_periods 1\nthrottled_time 2000\n"), Some(Duration::from_nanos(2000)));
        assert_eq!((throttled("usage_usec 5\n"), listed(&[(0, 3), (8, 8)]).as_str()), (None, "0-3,8"));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        assert!(samples(None, &Reading::default()).is_empty());
        let some = Reading { major_faults: Some(0), ..Reading::default() };
        assert_eq!(samples(None, &some), [("process_page_faults_major_total", 0.0, "count")], "a true zero is a value");
        assert!(Reading { at: Duration::from_secs(9), ..Reading::default() }.is_empty() && !some.is_empty());
    }

    #[test]
    fn files_are_understood() {
        let text = "NAME=\"Debian GNU/Linux\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n";
        assert_eq!(os_release(text, "PRETTY_NAME").as_deref(), Some("Debian GNU/Linux 13 (trixie)"));
        assert_eq!((os_release(text, "ID").as_deref(), os_release(text, "VERSION")), (Some("debian"), None));
        assert_eq!((cgroup_limit("max\n"), cgroup_limit("1073741824\n")), (None, Some(1 << 30)));
        assert_eq!(relevant_flags(["sse2", "fma", "avx512f", "avx2"]), ["avx2", "avx512f", "fma"]);
    }
}
