//! What was measured of a device, as it is kept.

use super::identity::{DeviceIdentity, DeviceKind};
use candlescope_core::numbers::day;
use candlescope_work::devices::{MEASURED_FORMAT, Origin, Peak, PeakKind};
use serde::{Deserialize, Serialize};

/// Version of the file's format.
pub const FORMAT_VERSION: u32 = 1;

/// Arrays that the loop of a bandwidth of memory reads or writes.
pub(super) fn arrays_of(kind: PeakKind) -> u64 {
    match kind {
        PeakKind::Copy => 2,
        PeakKind::Triad => 3,
        _ => 1,
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

/// A measured peak: what the device reached in one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeakFigure {
    /// What was measured, which also says the unit: FLOP/s, B/s or seconds.
    pub kind: PeakKind,
    /// Element type, of matrix products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// How warm the device was, where that is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// The figure, in the unit of its kind: the median of its samples, or of a rate whose samples others slowed down, their
    /// 90th percentile.
    pub value: f64,
    /// Shape or size that it was reached at.
    pub at: String,
    /// Number of samples that `value` and `range` are made of.
    pub n: u32,
    /// Smallest and largest sample.
    pub range: (f64, f64),
    /// When it was measured, in nanoseconds since the Unix epoch, if not with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_ns: Option<i64>,
}

/// A figure that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPeak {
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
    /// The device that all figures were measured on.
    pub device: DeviceIdentity,
    /// When they were measured, in nanoseconds since the Unix epoch.
    pub measured_ns: i64,
    /// Threads that computed, on a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Version of candle that computed.
    pub candle: String,
    /// Measured peaks, by kind, element type and condition; of FLOP/s also the best of the sweep, without condition.
    pub figures: Vec<PeakFigure>,
    /// What was seen of others at work meanwhile: the device may reach more then. Empty if nothing was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub absent: Vec<MissingPeak>,
}

impl Peaks {
    /// Peaks of `device`, measured now, without a figure yet.
    pub fn new(device: DeviceIdentity) -> Self {
        Self {
            format: MEASURED_FORMAT.to_string(),
            format_version: FORMAT_VERSION,
            device,
            measured_ns: candlescope_core::HostNs::now().0,
            threads: None,
            candle: candlescope_core::run::CANDLE_VERSION.to_string(),
            figures: Vec::new(),
            disturbed: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// These peaks, and the figures of `before` that are not among them, each with its own day: those of element types that
    /// were not tried this time, and of what was tried and failed. Nothing is taken over where the device, its driver,
    /// candle or the number of threads was another one: the file says these once, of all figures.
    #[must_use]
    pub fn completed_by(mut self, before: &Self) -> Self {
        let is_same =
            self.device.is_same(&before.device) && (&self.candle, self.threads) == (&before.candle, before.threads);
        if !is_same {
            return self;
        }
        let figure_of = |figure: &PeakFigure| (figure.kind, figure.dtype.clone(), figure.condition);
        let measured: Vec<_> = self.figures.iter().map(figure_of).collect();
        let others = before.figures.iter().filter(|figure| !measured.contains(&figure_of(figure)));
        let taken_over: Vec<PeakFigure> = others
            .map(|figure| PeakFigure { measured_ns: figure.measured_ns.or(Some(before.measured_ns)), ..figure.clone() })
            .collect();
        if !taken_over.is_empty() {
            let unknown = before.disturbed.iter().filter(|sentence| !self.disturbed.contains(sentence)).cloned();
            let unknown: Vec<String> = unknown.collect();
            self.disturbed.extend(unknown);
        }
        let missing_of = |absent: &MissingPeak| (absent.kind, absent.dtype.clone());
        let tried: Vec<_> = self
            .absent
            .iter()
            .map(missing_of)
            .chain(self.figures.iter().map(|figure| (figure.kind, figure.dtype.clone())))
            .collect();
        let still_absent = before.absent.iter().filter(|absent| !tried.contains(&missing_of(absent))).cloned();
        self.absent.extend(still_absent);
        // What failed this time and is there of another day is not absent.
        let is_there = |absent: &MissingPeak| {
            taken_over.iter().any(|figure| (figure.kind, &figure.dtype) == (absent.kind, &absent.dtype))
        };
        self.absent.retain(|absent| !is_there(absent));
        self.figures.extend(taken_over);
        self.sort();
        self
    }

    /// Figures by kind, element type and condition.
    pub(super) fn sort(&mut self) {
        self.figures.sort_by_key(|figure| (figure.kind, figure.dtype.clone(), figure.condition.map(Condition::name)));
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

    /// The day they were measured on, `2026-03-14`, in UTC; a figure may have its own.
    pub fn day(&self) -> String {
        day(self.measured_ns)
    }

    /// The peaks in the form in which a run keeps them under `environment.measured_peaks`.
    pub fn environment(&self) -> Vec<Peak> {
        let place = match self.device.kind {
            DeviceKind::Cpu => self.threads.map_or(String::new(), |n| format!(", {n} threads")),
            DeviceKind::Cuda => self.device.driver.as_ref().map_or(String::new(), |d| format!(", driver {d}")),
        };
        let source = |figure: &PeakFigure| {
            let condition = figure.condition.map_or(String::new(), |condition| format!(" ({})", condition.name()));
            let what = format!("{}{condition} at {}", figure.kind.name(), figure.at);
            let day = day(figure.measured_ns.unwrap_or(self.measured_ns));
            format!("{what}, measured on {} of {}{place}, {day}", self.device.name, self.device.host)
        };
        let peak = |kind: PeakKind, figure: &PeakFigure| Peak {
            kind,
            value: figure.value,
            label: Origin::Measured.name().to_string(),
            source: source(figure),
            dtype: figure.dtype.clone(),
            disturbed: !self.disturbed.is_empty(),
        };
        let flops = self.dtypes().into_iter().filter_map(|dtype| self.flops(dtype));
        let flops = flops.map(|figure| peak(PeakKind::Flops, figure));
        let bandwidth = self.bandwidth().map(|figure| peak(PeakKind::Bandwidth, figure));
        // No peaks that anything is a share of: what a launch costs on this host goes with the driver's part of it, and
        // what a step would take as a graph follows from the gap.
        let times = [PeakKind::Launch, PeakKind::GraphGap].into_iter().filter_map(|kind| self.of(kind).next());
        flops.chain(bandwidth).chain(times.map(|figure| peak(figure.kind, figure))).collect()
    }
}
