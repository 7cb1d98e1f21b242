//! Peaks of the machine, where the run names them, and how near each phase comes to them.
//!
//! A run names its peaks in `environment.peaks`: a list of objects with `kind` (`flops` or `bandwidth`), `value` (FLOP/s or
//! B/s), `label` (`measured` or `datasheet`), `source`, and for FLOPs `dtype`. No peak is ever guessed.

use super::Analysis;
use super::gpu_time::source_name;
use super::intervals::Intervals;
use candlescope_core::GpuSource;
use candlescope_core::run::RunManifest;
use serde_json::Value;

/// One peak.
#[derive(Debug, Clone, PartialEq)]
pub struct Peak {
    /// FLOP/s rather than bytes/s.
    pub is_flops: bool,
    /// FLOP/s or B/s.
    pub value: f64,
    /// `measured` or `datasheet`.
    pub label: String,
    /// Where it comes from.
    pub source: String,
    /// Element type a FLOP/s peak is for.
    pub dtype: Option<String>,
}

/// What time a utilisation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Duration of the steps on the host.
    Wall,
    /// GPU time of the steps.
    Gpu(GpuSource),
}

impl Over {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Over::Wall => "wall",
            Over::Gpu(source) => source_name(source),
        }
    }
}

/// One phase against one peak: MFU for FLOPs, MBU for bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Utilisation {
    /// Phase or name of the steps.
    pub phase: String,
    /// The time the work is held against.
    pub over: Over,
    /// The peak it is held against.
    pub peak: Peak,
    /// Achieved ÷ peak.
    pub ratio: f64,
}

/// The peaks that a manifest names.
pub fn peaks(manifest: &RunManifest) -> Vec<Peak> {
    let text = |object: &Value, key: &str| object.get(key).and_then(Value::as_str).map(str::to_string);
    let list = manifest.environment.get("peaks").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|object| {
        let is_flops = match text(object, "kind")?.as_str() {
            "flops" => true,
            "bandwidth" => false,
            _ => return None,
        };
        Some(Peak {
            is_flops,
            value: object.get("value").and_then(Value::as_f64).filter(|v| v.is_finite() && *v > 0.0)?,
            label: text(object, "label")?,
            source: text(object, "source").unwrap_or_default(),
            dtype: text(object, "dtype"),
        })
    })
    .collect()
}

/// Every phase that tells its work against every peak of its kind: over wall time, and over GPU time where the steps have it.
pub fn utilisation(analysis: &Analysis) -> Vec<Utilisation> {
    let peaks = applicable(peaks(&analysis.manifest), &analysis.intervals, &analysis.manifest);
    let mut all = Vec::new();
    for phase in analysis.phases.rows.iter().filter(|row| row.is_phase) {
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.name);
        let gpu = kind.into_iter().flat_map(|kind| &kind.elapsed);
        let rates = std::iter::once((Over::Wall, phase.gflops, phase.gbytes))
            .chain(gpu.map(|e| (Over::Gpu(e.source), e.tflops.map(|tera| tera * 1e3), e.gbytes)));
        for (over, gflops, gbytes) in rates {
            for peak in &peaks {
                let achieved = if peak.is_flops { gflops } else { gbytes };
                if let Some(achieved) = achieved {
                    all.push(Utilisation {
                        phase: phase.name.clone(),
                        over,
                        peak: peak.clone(),
                        ratio: achieved * 1e9 / peak.value,
                    });
                }
            }
        }
    }
    all
}

/// The peaks that the run's work can be held against: of FLOPs those of the element type that most of them were done in, where a
/// machine has one for each; against another type's peak a ratio means nothing.
fn applicable(peaks: Vec<Peak>, intervals: &Intervals, manifest: &RunManifest) -> Vec<Peak> {
    let most = intervals.flops_by_dtype.iter().max_by_key(|(_, flops)| **flops).map(|(dtype, _)| (*dtype).to_string());
    // Quantised weights are multiplied in the type of the activations.
    let model = manifest.model.get("dtype").and_then(Value::as_str).map(str::to_string);
    let named = |dtype: &String| peaks.iter().any(|peak| peak.dtype.as_ref() == Some(dtype));
    let used = [most, model].into_iter().flatten().find(named);
    peaks.iter().filter(|peak| !peak.is_flops || peak.dtype.is_none() || peak.dtype == used).cloned().collect()
}
