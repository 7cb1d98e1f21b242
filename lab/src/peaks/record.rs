//! What was measured of a device, as it is kept.

use super::identity::{DeviceIdentity, DeviceKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Name of the file's format.
pub const FORMAT: &str = "candlescope-peaks";

/// Version of the file's format.
pub const FORMAT_VERSION: u32 = 1;

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeakKind {
    /// FLOP/s of a matrix product.
    Flops,
    /// B/s read.
    Read,
    /// B/s written.
    Write,
    /// B/s read and written by a copy, both counted.
    Copy,
    /// B/s of a = b + s·c, two reads and a write.
    Triad,
    /// Seconds that the host takes to launch a kernel.
    Launch,
    /// Seconds from the end of a kernel to the start of the next one, which depends on it.
    Gap,
    /// The same inside a CUDA graph.
    GraphGap,
    /// B/s from the host to the device, from pinned memory.
    HostToDevice,
    /// B/s from the device to the host, to pinned memory.
    DeviceToHost,
}

impl PeakKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Flops,
        Self::Read,
        Self::Write,
        Self::Copy,
        Self::Triad,
        Self::Launch,
        Self::Gap,
        Self::GraphGap,
        Self::HostToDevice,
        Self::DeviceToHost,
    ];

    /// As files and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flops => "flops",
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Triad => "triad",
            Self::Launch => "launch",
            Self::Gap => "gap",
            Self::GraphGap => "graph_gap",
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Flops => "FLOP/s",
            Self::Launch | Self::Gap | Self::GraphGap => "s",
            _ => "B/s",
        }
    }
}

/// How warm the device was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Over several seconds without a break: what heat and power leave.
    Sustained,
    /// In a short run after a rest: what the clocks reach.
    Boost,
}

impl Condition {
    /// As files and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sustained => "sustained",
            Self::Boost => "boost",
        }
    }
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeakFigure {
    /// What it is.
    pub kind: PeakKind,
    /// Element type, of matrix products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// How warm the device was, where that is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// The figure: the median of its samples, in the unit of its kind.
    pub value: f64,
    /// Shape or size that it was reached at.
    pub at: String,
    /// Samples.
    pub n: u32,
    /// Smallest and largest sample.
    pub range: (f64, f64),
}

/// A figure that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// What it would be.
    pub kind: PeakKind,
    /// Element type, of matrix products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Why it is not there.
    pub reason: String,
}

/// Measured peaks of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    pub(super) format: String,
    pub(super) format_version: u32,
    /// The device.
    pub device: DeviceIdentity,
    /// When they were measured, in nanoseconds since the Unix epoch.
    pub measured_ns: i64,
    /// Threads that computed, on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Version of candle that computed.
    pub candle: String,
    /// The figures.
    pub figures: Vec<PeakFigure>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub absent: Vec<Absent>,
}

impl Peaks {
    /// Peaks of `device`, measured now, without a figure yet.
    pub fn new(device: DeviceIdentity) -> Self {
        Self {
            format: FORMAT.to_string(),
            format_version: FORMAT_VERSION,
            device,
            measured_ns: candlescope_core::HostNs::now().0,
            threads: None,
            candle: candlescope_models::CANDLE_VERSION.to_string(),
            figures: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// Figures of a kind.
    pub fn of(&self, kind: PeakKind) -> impl Iterator<Item = &PeakFigure> {
        self.figures.iter().filter(move |figure| figure.kind == kind)
    }

    /// The best FLOP/s in an element type: a short run after a rest, where there is one, as no phase of a model computes
    /// for seconds without a break.
    pub fn flops(&self, dtype: &str) -> Option<&PeakFigure> {
        self.of(PeakKind::Flops)
            .filter(|figure| figure.dtype.as_deref() == Some(dtype))
            .max_by(|a, b| a.value.total_cmp(&b.value))
    }

    /// The bandwidth that utilisation is a share of: reading, which is what inference does with weights and keys; the
    /// best of the others where reading was not measured.
    pub fn bandwidth(&self) -> Option<&PeakFigure> {
        let best = |kinds: &[PeakKind]| {
            let all = kinds.iter().flat_map(|kind| self.of(*kind));
            all.max_by(|a, b| a.value.total_cmp(&b.value))
        };
        best(&[PeakKind::Read]).or_else(|| best(&[PeakKind::Copy, PeakKind::Triad, PeakKind::Write]))
    }

    /// Element types with FLOP/s.
    pub fn dtypes(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.of(PeakKind::Flops).filter_map(|figure| figure.dtype.as_deref()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// FLOP/B at which a kernel of this element type goes over from memory-bound to compute-bound: FLOP/s ÷ B/s.
    pub fn ridge(&self, dtype: &str) -> Option<f64> {
        Some(self.flops(dtype)?.value / self.bandwidth()?.value)
    }

    /// The day they were measured on, `2026-03-14`, in UTC.
    pub fn day(&self) -> String {
        day(self.measured_ns)
    }

    /// The peaks in the form in which a run keeps them under `environment.measured_peaks`.
    pub fn environment(&self) -> Value {
        let place = match self.device.kind {
            DeviceKind::Cpu => self.threads.map_or(String::new(), |n| format!(", {n} threads")),
            DeviceKind::Cuda => self.device.driver.as_ref().map_or(String::new(), |d| format!(", driver {d}")),
        };
        let source = |figure: &PeakFigure| {
            let condition = figure.condition.map_or(String::new(), |condition| format!(" ({})", condition.name()));
            let what = format!("{}{condition} at {}", figure.kind.name(), figure.at);
            format!("{what}, measured on {} of {}{place}, {}", self.device.name, self.device.host, self.day())
        };
        let flops = self.dtypes().into_iter().filter_map(|dtype| self.flops(dtype)).map(|figure| {
            json!({
                "kind": "flops", "value": figure.value, "label": "measured", "source": source(figure), "dtype": figure.dtype,
            })
        });
        let bandwidth = self.bandwidth().map(|figure| {
            json!({ "kind": "bandwidth", "value": figure.value, "label": "measured", "source": source(figure) })
        });
        // No peak that anything is a share of: what a step would take as a graph follows from it.
        let gap = self.of(PeakKind::GraphGap).next().map(|figure| {
            json!({ "kind": "graph_gap", "value": figure.value, "label": "measured", "source": source(figure) })
        });
        flops.chain(bandwidth).chain(gap).collect()
    }
}

/// Days since 1970 as a date [Howard Hinnant, `chrono`-compatible low-level date algorithms, `civil_from_days`].
fn day(ns: i64) -> String {
    let days = ns.div_euclid(86_400_000_000_000) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_are_those_of_the_calendar() {
        let at = |seconds: i64| day(seconds * 1_000_000_000);
        assert_eq!(at(0), "1970-01-01");
        assert_eq!(at(951_782_399), "2000-02-28");
        assert_eq!(at(951_782_400), "2000-02-29");
        assert_eq!(at(1_773_446_400), "2026-03-14");
        assert_eq!(at(-1), "1969-12-31");
    }
}
