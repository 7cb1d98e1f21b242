//! What a device allows an operation: its peaks, measured ones before those of the datasheet.

use crate::devices::{Multiply, Origin, known_device};
use crate::passes::peaks::{Peak, multiplied, peaks};
use crate::passes::{Analysis, PathTotals};
use candlescope_core::run::multiplied_dtype;
use serde_json::Value;

/// The peaks of one device.
pub(super) struct Roof {
    peaks: Vec<Peak>,
    /// Bytes/s, and whether that was measured.
    pub(super) bandwidth: Option<(f64, bool)>,
}

/// An operation under the roof.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderRoof {
    /// Achieved ÷ attainable.
    pub(super) share: f64,
    /// Whether FLOP/s limit it, and not bytes/s.
    pub(super) computes: bool,
    /// Whether the peak was measured.
    pub(super) measured: bool,
}

impl Roof {
    /// The run's own peaks; without any of its GPU, those of the datasheet for the GPU that it names. `gpu` is what it
    /// says about that GPU, if it ran on one.
    pub(super) fn of(analysis: &Analysis, gpu: Option<&Value>) -> Self {
        let mut all = peaks(&analysis.manifest);
        if let Some(gpu) = gpu.filter(|_| all.is_empty()) {
            all = datasheet(gpu);
        }
        // Stable: within a label, the order of the run.
        all.sort_by_key(|peak| peak.label != "measured");
        let bandwidth = all.iter().find(|peak| !peak.is_flops).map(|peak| (peak.value, peak.label == "measured"));
        Self { peaks: all, bandwidth }
    }

    /// Work of `ns` nanoseconds in a path of a phase. `None` if the path does not state its work, or there is no peak
    /// for it; above 1 something is wrong with the figures.
    pub(super) fn under(
        &self,
        analysis: &Analysis,
        phase: &str,
        path: &PathTotals,
        (flops, bytes, ns): (Option<f64>, f64, f64),
    ) -> Option<UnderRoof> {
        let dtype = match path.dtypes.as_slice() {
            [] => multiplied(&analysis.intervals, &analysis.manifest, phase),
            [only] => multiplied_dtype(&analysis.manifest.model, phase, Some(only)),
            _ => None,
        };
        let (bandwidth, bandwidth_measured) = self.bandwidth?;
        let by_memory = bytes / ns * 1e9 / bandwidth;
        let Some(flops) = flops.filter(|flops| *flops > 0.0) else {
            return Some(UnderRoof { share: by_memory, computes: false, measured: bandwidth_measured });
        };
        let of_type = |peak: &&Peak| peak.is_flops && (peak.dtype.is_none() || peak.dtype == dtype);
        let peak = self.peaks.iter().find(of_type)?;
        let by_computing = flops / ns * 1e9 / peak.value;
        let measured = if by_computing > by_memory { peak.label == "measured" } else { bandwidth_measured };
        Some(UnderRoof { share: by_memory.max(by_computing), computes: by_computing > by_memory, measured })
    }
}

fn datasheet(gpu: &Value) -> Vec<Peak> {
    let name = gpu.get("name").and_then(Value::as_str);
    let Some(device) = name.and_then(|name| known_device(name).ok()) else { return Vec::new() };
    let label = if device.origin == Origin::Measured { "measured" } else { "datasheet" };
    let peak = |is_flops: bool, value: f64, dtype: Option<Multiply>| Peak {
        is_flops,
        value,
        label: label.to_string(),
        source: device.source.clone(),
        dtype: dtype.map(|dtype| dtype.name().to_string()),
    };
    let flops = device.flops.iter().map(|(dtype, value)| peak(true, *value, Some(*dtype)));
    flops.chain([peak(false, device.bandwidth, None)]).collect()
}
