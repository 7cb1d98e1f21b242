//! Energy counters of a device.

use std::time::Duration;

/// A counter of the energy that a device has taken.
pub struct EnergyCounter {
    read: Box<dyn FnMut() -> Option<f64>>,
    source: String,
    /// How often the counter moves.
    period: Duration,
}

impl std::fmt::Debug for EnergyCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnergyCounter").field("source", &self.source).finish_non_exhaustive()
    }
}

impl EnergyCounter {
    /// A counter that `read` gives in joules, and that moves every `period`.
    pub fn new(source: impl Into<String>, period: Duration, read: impl FnMut() -> Option<f64> + 'static) -> Self {
        Self { read: Box::new(read), source: source.into(), period }
    }

    /// The counter of this machine's processors, by Linux's powercap (RAPL).
    ///
    /// # Errors
    /// Why there is none.
    pub fn of_processors() -> Result<Self, String> {
        let mut packages = Vec::new();
        let entries = std::fs::read_dir("/sys/class/powercap").map_err(|_| NO_COUNTER.to_string())?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // `intel-rapl:0` is a package; `intel-rapl:0:0` is a part of it.
            if name.starts_with("intel-rapl:") && name.matches(':').count() == 1 {
                let number = |file: &str| read_number(&entry.path().join(file));
                let range = number("max_energy_range_uj").unwrap_or(0.0);
                match number("energy_uj") {
                    Some(first) => packages.push(Package { path: entry.path(), range, last: first, sum: 0.0 }),
                    None => return Err(format!("{} cannot be read: only root may", entry.path().display())),
                }
            }
        }
        if packages.is_empty() {
            return Err(NO_COUNTER.to_string());
        }
        let read = move || {
            let micro = packages.iter_mut().map(Package::read).collect::<Option<Vec<f64>>>()?;
            Some(micro.iter().sum::<f64>() / 1e6)
        };
        Ok(Self::new("RAPL of the processor packages", Duration::from_millis(1), read))
    }

    /// The counter of the GPU with this UUID, by NVML.
    ///
    /// # Errors
    /// Why there is none.
    #[cfg(feature = "gpu")]
    pub fn of_gpu(uuid: &str) -> Result<Self, String> {
        use candlescope_collectors::nvml::{GpuId, NvmlCollector};
        use candlescope_core::{Collector, HostNs, Samples, metric};
        let built = NvmlCollector::builder().only([GpuId::from(uuid)]).build();
        let mut nvml = built.map_err(|error| error.to_string())?;
        let read = move || {
            let mut records = Vec::new();
            nvml.sample(&mut Samples::new(HostNs::now(), &mut records)).ok()?;
            records.iter().find(|sample| sample.metric == metric::GPU_ENERGY).map(|sample| sample.value)
        };
        let mut counter = Self::new("NVML, total energy of the GPU", Duration::from_millis(100), read);
        match counter.joules() {
            Some(_) => Ok(counter),
            None => Err("NVML tells no energy of this GPU".into()),
        }
    }

    /// The counter in joules; only differences mean something.
    pub fn joules(&mut self) -> Option<f64> {
        (self.read)()
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The shortest time over which a difference can be relied on: twenty times as long as the counter stands still.
    pub fn shortest(&self) -> Duration {
        (self.period * 20).max(Duration::from_secs(1))
    }
}

const NO_COUNTER: &str = "this machine tells no energy of its processors (no RAPL, as in most virtual machines)";

#[derive(Debug)]
struct Package {
    path: std::path::PathBuf,
    range: f64,
    last: f64,
    sum: f64,
}

impl Package {
    /// Microjoules since the beginning; the counter begins anew at its range.
    fn read(&mut self) -> Option<f64> {
        let now = read_number(&self.path.join("energy_uj"))?;
        self.sum += if now >= self.last { now - self.last } else { now + self.range - self.last };
        self.last = now;
        Some(self.sum)
    }
}

fn read_number(path: &std::path::Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_anew_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let write = |value: &str| std::fs::write(dir.path().join("energy_uj"), value).unwrap();
        let mut package = Package { path: dir.path().into(), range: 1_000.0, last: 900.0, sum: 0.0 };
        write("950\n");
        assert_eq!(package.read(), Some(50.0));
        write("20\n");
        assert_eq!(package.read(), Some(120.0));
        std::fs::remove_file(dir.path().join("energy_uj")).unwrap();
        assert_eq!(package.read(), None);
    }
}
