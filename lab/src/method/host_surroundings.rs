//! The CPU around a measurement: who else uses it, its clock, and whether it is throttled, as Linux tells.

use super::surroundings::{Reading, Surroundings};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long other processes are watched before anything is measured.
#[cfg(target_os = "linux")]
const WATCH: Duration = Duration::from_millis(300);
/// Cores that others may use without being told of.
const OTHERS: f64 = 0.2;
/// Readings are taken anew after this time: reading every core's clock takes longer than many a sample.
const FRESH: Duration = Duration::from_millis(20);
/// CPU time of a process is counted in ticks of 10 ms: what is shorter has no figure.
const TICKS: Duration = Duration::from_millis(20);

/// The CPU's surroundings. Virtual machines mostly tell neither clock nor throttling; both stay absent then.
#[derive(Debug)]
pub struct HostSurroundings {
    clocks: Vec<PathBuf>,
    throttles: Vec<PathBuf>,
    temperature: Option<PathBuf>,
    throttled_before: Option<u64>,
    last: Option<(Instant, Reading)>,
    began: Instant,
    /// This process's CPU time before the repetition, where repetitions are long enough for a difference.
    cpu_before: Option<f64>,
    /// Whether the repetition before lasted so long that reading the CPU time of the next one is worth it.
    are_long: bool,
}

impl Default for HostSurroundings {
    fn default() -> Self {
        Self::new()
    }
}

impl HostSurroundings {
    /// Looks for what this machine tells.
    pub fn new() -> Self {
        let cores = || folders("/sys/devices/system/cpu", "cpu");
        let zones = folders("/sys/class/thermal", "thermal_zone");
        let package =
            |zone: &PathBuf| std::fs::read_to_string(zone.join("type")).is_ok_and(|kind| kind.trim() == "x86_pkg_temp");
        let there = |path: PathBuf| path.exists().then_some(path);
        Self {
            clocks: cores().into_iter().filter_map(|core| there(core.join("cpufreq/scaling_cur_freq"))).collect(),
            throttles: cores()
                .into_iter()
                .filter_map(|core| there(core.join("thermal_throttle/core_throttle_count")))
                .collect(),
            temperature: zones.into_iter().find(package).map(|zone| zone.join("temp")),
            throttled_before: None,
            last: None,
            began: Instant::now(),
            cpu_before: None,
            are_long: true,
        }
    }

    /// CPU time of the repetition in milliseconds.
    fn cpu_of_repetition(&mut self) -> Option<f64> {
        let is_long = self.began.elapsed() >= TICKS;
        self.are_long = is_long;
        let before = self.cpu_before.take().filter(|_| is_long)?;
        Some(cpu_ms()? - before).filter(|used| *used >= 0.0)
    }

    fn throttle_count(&self) -> Option<u64> {
        let counts = self.throttles.iter().map(number);
        counts.sum::<Option<f64>>().filter(|_| !self.throttles.is_empty()).map(|count| count as u64)
    }
}

/// Directories `base/name` followed by a number.
fn folders(base: &str, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let numbered = |path: &PathBuf| {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        file.strip_prefix(name).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    entries.map(|entry| entry.path()).filter(numbered).collect()
}

fn number(path: &PathBuf) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Cores in use by anybody, over [`WATCH`]; `None` where the system does not tell.
#[cfg(target_os = "linux")]
fn cores_in_use() -> Option<f64> {
    use procfs::{CurrentSI, KernelStats};
    let busy = || -> Option<u64> {
        let cpu = KernelStats::current().ok()?.total;
        Some(
            cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0) + cpu.steal.unwrap_or(0),
        )
    };
    let (begun, before) = (Instant::now(), busy()?);
    std::thread::sleep(WATCH);
    let ticks = busy()?.saturating_sub(before) as f64;
    Some(ticks / procfs::ticks_per_second() as f64 / begun.elapsed().as_secs_f64())
}

#[cfg(not(target_os = "linux"))]
fn cores_in_use() -> Option<f64> {
    None
}

/// CPU time of this process in milliseconds.
#[cfg(target_os = "linux")]
fn cpu_ms() -> Option<f64> {
    let stat = procfs::process::Process::myself().ok()?.stat().ok()?;
    Some((stat.utime + stat.stime) as f64 * 1e3 / procfs::ticks_per_second() as f64)
}

#[cfg(not(target_os = "linux"))]
fn cpu_ms() -> Option<f64> {
    None
}

impl Surroundings for HostSurroundings {
    fn disturbances(&mut self) -> Vec<String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let told = cores_in_use().filter(|used| *used > OTHERS).map(|used| {
            format!(
                "other processes use {used:.1} of {cores} cores: times are longer and vary more than on an idle machine"
            )
        });
        told.into_iter().collect()
    }

    fn before(&mut self) {
        if !self.throttles.is_empty() {
            self.throttled_before = self.throttle_count();
        }
        self.cpu_before = if self.are_long { cpu_ms() } else { None };
        self.began = Instant::now();
    }

    fn after(&mut self) -> Reading {
        let cpu_ms = self.cpu_of_repetition();
        let throttled = self.throttle_count().zip(self.throttled_before).map(|(now, before)| now > before);
        if let Some((_, reading)) = self.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Reading { throttled, cpu_ms, ..reading.clone() };
        }
        let clocks: Vec<f64> = self.clocks.iter().filter_map(number).collect();
        let mean = (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64);
        let reading = Reading {
            clock_mhz: mean.map(|khz| khz / 1e3),
            temperature_c: self.temperature.as_ref().and_then(number).map(|milli| milli / 1e3),
            throttled,
            cpu_ms,
            ..Reading::default()
        };
        self.last = Some((Instant::now(), reading.clone()));
        reading
    }

    fn source(&self) -> String {
        let known = [
            (!self.clocks.is_empty()).then_some("mean clock of the cores (cpufreq)"),
            self.temperature.is_some().then_some("temperature of the package"),
            (!self.throttles.is_empty()).then_some("throttle counts of the cores"),
        ];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        match known.is_empty() {
            true => "none: this machine tells neither clock nor temperature nor throttling of its CPU".into(),
            false => format!("Linux: {}, read after each sample", known.join(", ")),
        }
    }
}
