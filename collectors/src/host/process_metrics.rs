//! Turns readings into samples. Pure.

use candlescope_core::metric;
use std::time::Duration;

/// One look at the process and the machine. What could not be read is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// When, on a monotonic clock.
    pub(super) at: Duration,
    pub(super) resident_bytes: Option<u64>,
    pub(super) peak_resident_bytes: Option<u64>,
    pub(super) threads: Option<u64>,
    /// User and system time of all threads so far.
    pub(super) cpu: Option<Duration>,
    pub(super) voluntary_switches: Option<u64>,
    pub(super) involuntary_switches: Option<u64>,
    pub(super) minor_faults: Option<u64>,
    pub(super) major_faults: Option<u64>,
    pub(super) memory_available_bytes: Option<u64>,
    pub(super) load_1m: Option<f64>,
}

impl Reading {
    /// Whether nothing at all could be read.
    pub(super) fn is_empty(&self) -> bool {
        *self == Reading { at: self.at, ..Reading::default() }
    }
}

/// Name, value and unit of every metric that is known.
pub(super) fn samples(last: Option<&Reading>, now: &Reading) -> Vec<(&'static str, f64, &'static str)> {
    let count = |n: Option<u64>| n.map(|n| n as f64);
    [
        (metric::RESIDENT_MEMORY, count(now.resident_bytes), "bytes"),
        (metric::PEAK_RESIDENT_MEMORY, count(now.peak_resident_bytes), "bytes"),
        (metric::CPU_RATIO, last.and_then(|last| cpu_ratio(last, now)), "ratio"),
        (metric::CPU_SECONDS, now.cpu.map(|t| t.as_secs_f64()), "seconds"),
        (metric::VOLUNTARY_SWITCHES, count(now.voluntary_switches), "count"),
        (metric::INVOLUNTARY_SWITCHES, count(now.involuntary_switches), "count"),
        (metric::MINOR_FAULTS, count(now.minor_faults), "count"),
        (metric::MAJOR_FAULTS, count(now.major_faults), "count"),
        (metric::THREADS, count(now.threads), "count"),
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
    let cpu = now.cpu?.checked_sub(last.cpu?)?.as_secs_f64();
    // Readings closer together than a scheduler tick show the granularity of the accounting, not the use.
    (wall >= 0.001).then(|| cpu / wall)
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
            cpu: Some(Duration::from_millis(cpu_millis)),
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
        assert_eq!(ratio(&at(1000, 500), &Reading { cpu: None, ..at(2000, 0) }), None);
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
