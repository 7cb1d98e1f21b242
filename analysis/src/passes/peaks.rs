//! Peaks of the machine, where the run names them, and how near each phase comes to them.
//!
//! A run names its peaks in `environment.peaks`: a list of objects with `kind` (`flops` or `bandwidth`), `value` (FLOP/s or
//! B/s), `label` (`measured` or `datasheet`), `source`, and for FLOPs `dtype`. No peak is ever guessed.

use super::Analysis;
use super::gpu_time::source_name;
use super::intervals::Intervals;
use candlescope_core::run::RunManifest;
use candlescope_core::{DType, GpuSource};
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
    /// Time in which at least one of the steps was open on the host.
    Wall,
    /// GPU time of the steps, what overlaps once.
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

/// What is held against a peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// FLOPs that the model needs.
    Mfu,
    /// FLOPs that are executed, masked attention included.
    Hfu,
    /// Bytes of weights and KV cache.
    Mbu,
}

impl Metric {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Mfu => "MFU",
            Metric::Hfu => "HFU",
            Metric::Mbu => "MBU",
        }
    }
}

/// One phase against one peak.
#[derive(Debug, Clone, PartialEq)]
pub struct Utilisation {
    /// Phase or name of the steps.
    pub phase: String,
    /// What is held against the peak.
    pub metric: Metric,
    /// The time the work is held against.
    pub over: Over,
    /// The peak it is held against.
    pub peak: Peak,
    /// GPUs whose peaks together are meant: those that the run worked on.
    pub devices: u64,
    /// Achieved ÷ peak of all these.
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
    .fold(Vec::new(), |mut known, peak| {
        // Two GPUs of a kind have the same peaks.
        if !known.contains(&peak) {
            known.push(peak);
        }
        known
    })
}

/// Every phase that tells its work against every peak of its kind: over the time in which its steps were open, and over GPU time where
/// they have it. Steps of several threads that are open at once share that time.
pub fn utilisation(analysis: &Analysis) -> Vec<Utilisation> {
    let known = peaks(&analysis.manifest);
    let devices = devices(analysis);
    let mut all = Vec::new();
    for phase in analysis.phases.rows.iter().filter(|row| row.is_phase) {
        let peaks = applicable(&known, &analysis.intervals, &analysis.manifest, &phase.name);
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.name);
        let gpu = kind.into_iter().flat_map(|kind| &kind.elapsed);
        let giga = |tera: Option<f64>| tera.map(|tera| tera * 1e3);
        let wall = (Over::Wall, [phase.gflops, phase.gflops_executed, phase.gbytes]);
        let rates = std::iter::once(wall)
            .chain(gpu.map(|e| (Over::Gpu(e.source), [giga(e.tflops), giga(e.tflops_executed), e.gbytes])));
        for (over, rates) in rates {
            for peak in &peaks {
                for (metric, achieved) in [Metric::Mfu, Metric::Hfu, Metric::Mbu].into_iter().zip(rates) {
                    if let Some(achieved) = achieved.filter(|_| peak.is_flops == (metric != Metric::Mbu)) {
                        all.push(Utilisation {
                            phase: phase.name.clone(),
                            metric,
                            over,
                            peak: peak.clone(),
                            devices,
                            ratio: achieved * 1e9 / (peak.value * devices as f64),
                        });
                    }
                }
            }
        }
    }
    all
}

/// GPUs that the run worked on: those with recorded kernels, or else those with marks; 1 on a CPU.
fn devices(analysis: &Analysis) -> u64 {
    let marked = analysis.manifest.gpu.as_ref().map_or(0, |gpu| gpu.devices.len());
    let recorded = analysis.gpu.devices.len();
    (if recorded > 0 { recorded } else { marked }).max(1) as u64
}

/// The peaks that a phase's work can be held against: of FLOPs those of the element type that is *multiplied*; against another type's
/// peak a ratio means nothing, and where there is none of that type there is no ratio.
fn applicable(peaks: &[Peak], intervals: &Intervals, manifest: &RunManifest, phase: &str) -> Vec<Peak> {
    let used = multiplied(intervals, manifest, phase);
    peaks.iter().filter(|peak| !peak.is_flops || peak.dtype.is_none() || peak.dtype == used).cloned().collect()
}

/// The element type that most of a phase's FLOPs are done in.
///
/// The model says so (`compute_dtype`: a word, or an object with one for each phase), because that need not be the type of its weights:
/// candle multiplies quantised weights by activations that it quantises to 8 bits. Where a run does not say, it is the type that most
/// FLOPs are annotated with; of a quantised type nothing is known then.
fn multiplied(intervals: &Intervals, manifest: &RunManifest, phase: &str) -> Option<String> {
    let told = manifest.model.get("compute_dtype");
    if let Some(word) = told.and_then(|told| told.as_str().or_else(|| told.get(phase)?.as_str())) {
        return Some(if word == "int8" { "i8".to_string() } else { word.to_string() });
    }
    if told.is_some() {
        return None;
    }
    let most = intervals.flops_by_dtype.iter().max_by_key(|(_, flops)| **flops).map(|(dtype, _)| *dtype);
    let most = most.or_else(|| manifest.model.get("dtype").and_then(Value::as_str))?;
    let is_quantised = DType::from_word(most).is_some_and(DType::is_quantised);
    (!is_quantised).then(|| most.to_string())
}
