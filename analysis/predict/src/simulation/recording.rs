//! What recording cost, and what the device can do: from `run.json`, or from documents where it does not say.

use super::step_model::{DELAY_NS, EagerLaunches, Facts, QUEUE_NS, Recording};
use candlescope_figures::peaks::peaks;
use candlescope_schema::run::{RunManifest, model_key, multiplied_dtype};
use candlescope_work::devices::{Device, Format, Multiply, Peak, PeakKind, PeaksError, Roof, peaks_device};
use candlescope_work::estimate::Estimate;
use serde_json::Value;

/// In place an interval costs this many times what it costs in a loop with warm caches
/// ([`OverheadInfo::per_interval_ns`](candlescope_schema::run::OverheadInfo)): two to three times as much.
const IN_PLACE: Estimate = Estimate { low: 1.0, mid: 2.5, high: 3.0 };
/// What an interval costs where the run does not say, in nanoseconds: in a loop and in place, on two kinds of hosts
/// (`docs/measurements`).
const INTERVAL_NS: Estimate = Estimate { low: 40.0, mid: 120.0, high: 200.0 };
/// What CUPTI adds to a call that launches, in nanoseconds, where no steps outside its windows tell: 0.6 µs in a loop;
/// a decode of 700 launches took 17 % longer, 1.3 µs a launch (`docs/measurements/gpu.md`).
pub(super) const CALL_NS: Estimate = Estimate { low: 600.0, mid: 1_300.0, high: 1_700.0 };
const CALL_SOURCE: &str = "documented: 0.6 to 1.7 µs on hosts of H200s; no steps outside the windows tell";
/// Between kernels of a graph where no peaks tell, in nanoseconds.
///
/// `bench peaks` measures 0.64 µs on an H200, from the difference between kernels and one as long as all of them. That
/// contains the beginning and ending of a kernel, which recorded times of kernels contain as well: a decode of 671
/// kernels took, as a graph, the sum of their recorded times. So the gap beyond recorded times is from none to that.
const GRAPH_GAP_NS: f64 = 640.0;
const GRAPH_GAP_SOURCE: &str = "documented: up to 0.64 µs, of an H200; `bench peaks` measures it";

/// What holds for steps named `group`. `given` are peaks that stand before those of the run.
pub(super) fn facts(manifest: &RunManifest, group: &str, most_flops: Option<&str>, given: &GivenPeaks) -> Facts {
    let roof = Roof::new(peaks(manifest));
    let bandwidth = roof.bandwidth();
    let dtype = multiplied_dtype(&manifest.model, group, most_flops);
    let flops = roof.flops(dtype.as_deref()).filter(|peak| peak.dtype.is_some());
    let source = |peak: &&Peak| format!("{}: {}", peak.label, peak.source);
    let own = given.device.as_ref();
    let multiplied = dtype.as_deref().and_then(Multiply::named);
    let own_flops = own.and_then(|device| Some(device.flops_for(multiplied?)?.0));
    let own_source = own.map(|device| format!("{}: {}", device.origin.name(), device.source));
    let known_gap = given.graph_gap_ns.clone().or_else(|| recorded_gap(manifest));
    let (gap, graph_gap_source) = known_gap.unwrap_or_else(|| (GRAPH_GAP_NS, GRAPH_GAP_SOURCE.to_string()));
    let model = &manifest.model;
    let format = match Format::stored(model_key::QUANTIZATION.of(model), model_key::DTYPE.of(model)) {
        Some(stored) => stored.ok(),
        None => most_flops.and_then(|name| Format::named(name).ok()),
    };
    Facts {
        recording: recording(manifest),
        graph_gap_ns: Estimate { low: 0.0, mid: gap / 2.0, high: gap },
        graph_gap_source,
        eager_launches: None,
        bandwidth: own.map(|device| device.bandwidth).or_else(|| Some(bandwidth?.value)),
        flops: own_flops.or_else(|| Some(flops?.value)),
        peaks_source: own_source.or_else(|| bandwidth.as_ref().or(flops.as_ref()).map(source)),
        weight_bits: format.map(|format| format.bits),
    }
}

/// Peaks of a device that somebody gave.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenPeaks {
    pub(super) device: Option<Device>,
    pub(super) graph_gap_ns: Option<(f64, String)>,
    launches: Option<EagerLaunches>,
}

impl GivenPeaks {
    /// Those of a file that `bench peaks` wrote, or of any that [`peaks_device`] reads.
    pub(super) fn read(text: &str) -> Result<Self, PeaksError> {
        let device = peaks_device(text, None)?;
        let whole: Value = serde_json::from_str(text)?;
        let figures = whole.get("figures").and_then(Value::as_array).into_iter().flatten();
        let figures: Vec<Peak> = figures.filter_map(Peak::read).collect();
        let gap = figures.iter().find(|figure| figure.kind == PeakKind::GraphGap);
        let graph_gap_ns = gap.map(|gap| (gap.value * 1e9, format!("measured: {}", device.source)));
        let launches = launches(&figures, &device.source);
        Ok(Self { device: Some(device), graph_gap_ns, launches })
    }
}

/// What launching call by call costs by the device's calibration: peaks that were given, or else those that a run keeps.
pub(super) fn calibrated_launches(manifest: &RunManifest, given: &GivenPeaks) -> Option<EagerLaunches> {
    let recorded = || {
        let peaks: Vec<Peak> = manifest.peaks().collect();
        let source = peaks.iter().find(|peak| peak.kind == PeakKind::Launch).map(|peak| peak.source.clone());
        launches(&peaks, &source?)
    };
    given.launches.clone().or_else(recorded)
}

/// The same by measured peaks. Nothing in them tells what a program does between two launches.
fn launches(peaks: &[Peak], source: &str) -> Option<EagerLaunches> {
    let ns = |kind: PeakKind| peaks.iter().find(|peak| peak.kind == kind).map(|peak| peak.value * 1e9);
    let launch = ns(PeakKind::Launch)?;
    let of = if source.is_empty() { String::new() } else { format!(" of {source}") };
    Some(EagerLaunches {
        host_ns: Estimate::exact(launch),
        delay_ns: DELAY_NS,
        queue_ns: ns(PeakKind::Gap).unwrap_or(QUEUE_NS),
        source: format!(
            "calibration{of}: launches alone, so the step takes that at least; what the program does between two is not \
             known, as no step of the run that no graph launched has its kernels"
        ),
    })
}

/// The gap that a run keeps with its peaks, in nanoseconds, and where it is from.
fn recorded_gap(manifest: &RunManifest) -> Option<(f64, String)> {
    let gap = manifest.peaks().find(|peak| peak.kind == PeakKind::GraphGap)?;
    let source = if gap.source.is_empty() { "measured".to_string() } else { gap.source };
    Some((gap.value * 1e9, source))
}

fn recording(manifest: &RunManifest) -> Recording {
    let known = Some(manifest.overhead.per_interval_ns).filter(|ns| ns.is_finite() && *ns > 0.0);
    let (interval_ns, interval_source) = match known {
        Some(ns) => (
            IN_PLACE.map(|factor| ns * factor),
            "measured in a loop when the session started, times 1 to 3 in place".to_string(),
        ),
        None => (INTERVAL_NS, "documented: the run does not say what an interval costs".to_string()),
    };
    Recording {
        interval_ns,
        interval_source,
        marks_ns: marks(manifest),
        call_ns: CALL_NS,
        call_source: CALL_SOURCE.to_string(),
    }
}

/// What marks cost on average for each interval: not known step by step.
fn marks(manifest: &RunManifest) -> Estimate {
    let Some(gpu) = &manifest.gpu else { return Estimate::default() };
    let intervals = manifest.counts.get("spans").copied().unwrap_or(0);
    if intervals == 0 || gpu.marks_ns == 0 {
        return Estimate::default();
    }
    let mean = gpu.marks_ns as f64 / intervals as f64;
    // Where every step is marked alike, the mean is that of each.
    if gpu.steps_full == 0 || gpu.steps_partial == 0 {
        return Estimate::exact(mean);
    }
    Estimate { low: 0.0, mid: mean, high: 2.0 * mean }
}
