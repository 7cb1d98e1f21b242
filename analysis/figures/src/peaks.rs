//! Peaks of the machine, if the run names them, and how close each phase comes to them.
//!
//! A run names its peaks in `environment.peaks`, those of the datasheet, and in `environment.measured_peaks`, those that
//! were measured on its device ([`RunManifest::peaks`]). Every ratio is given against each of them, with its label. No
//! peak is ever guessed.

use super::Analysis;
use super::gpu_time::source_name;
use super::operators::Operator;
use super::path_totals::Intervals;
use candlescope_schema::GpuSource;
use candlescope_schema::run::{RunManifest, multiplied_dtype};
use candlescope_work::devices::Peak;

/// The time that a utilisation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBase {
    /// Time in which at least one of the steps was open on the host.
    Wall,
    /// GPU time of the steps, with overlapping time counted once.
    Gpu(GpuSource),
}

impl TimeBase {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            TimeBase::Wall => "wall",
            TimeBase::Gpu(source) => source_name(source),
        }
    }
}

/// What is compared with a peak.
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
    /// What is compared with the peak.
    pub metric: Metric,
    /// The time that the work is divided by.
    pub over: TimeBase,
    /// The peak that it is compared with.
    pub peak: Peak,
    /// GPUs whose peaks are added up: those that the run worked on.
    pub devices: u64,
    /// Achieved ÷ peak of all these.
    pub ratio: f64,
    /// Half width of its 95 % interval ÷ the ratio, if steps were sampled; `None` if all steps have records, or there
    /// are too few windows.
    pub error: Option<f64>,
}

/// The peaks that a manifest names, with a label each.
pub fn peaks(manifest: &RunManifest) -> Vec<Peak> {
    let labelled = |peak: &Peak| (peak.is_flops() || peak.is_bandwidth()) && !peak.label.is_empty();
    manifest.peaks().filter(labelled).fold(Vec::new(), |mut known, peak| {
        // Two GPUs of the same kind have the same peaks.
        if !known.contains(&peak) {
            known.push(peak);
        }
        known
    })
}

/// Compares every phase that states its work with every peak of its kind: over the time in which its steps were open,
/// and over GPU time if they have it. Steps of several threads that are open at once share that time.
pub fn utilisation(analysis: &Analysis) -> Vec<Utilisation> {
    let known = peaks(&analysis.manifest);
    let mut all = Vec::new();
    for phase in analysis.phases.rows.iter().filter(|row| row.is_phase) {
        let peaks = applicable(&known, &analysis.intervals, &analysis.manifest, &phase.name);
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.name);
        let devices = kind.and_then(|kind| kind.busy.as_ref()).map_or_else(|| devices(analysis), |busy| busy.devices);
        let gpu = kind.into_iter().flat_map(|kind| &kind.elapsed);
        let giga = |tera: Option<f64>| tera.map(|tera| tera * 1e3);
        let wall = (TimeBase::Wall, [phase.gflops, phase.gflops_executed, phase.gbytes]);
        let rates = std::iter::once(wall)
            .chain(gpu.map(|e| (TimeBase::Gpu(e.source), [giga(e.tflops), giga(e.tflops_executed), e.gbytes])));
        for (over, rates) in rates {
            for peak in &peaks {
                for (metric, achieved) in [Metric::Mfu, Metric::Hfu, Metric::Mbu].into_iter().zip(rates) {
                    if let Some(achieved) = achieved.filter(|_| peak.is_flops() == (metric != Metric::Mbu)) {
                        all.push(Utilisation {
                            phase: phase.name.clone(),
                            metric,
                            over,
                            peak: peak.clone(),
                            devices,
                            ratio: achieved * 1e9 / (peak.value * devices as f64),
                            error: phase.rate_errors.filter(|_| over == TimeBase::Wall).and_then(
                                |errors| match metric {
                                    Metric::Mfu => errors.flops,
                                    Metric::Hfu => errors.flops_executed,
                                    Metric::Mbu => errors.bytes,
                                },
                            ),
                        });
                    }
                }
            }
        }
    }
    all
}

/// One operator against the peaks with one label.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorUtilisation {
    /// Label of the peaks: `datasheet` or `measured`.
    pub label: String,
    /// Whether others were at work while these were measured.
    pub disturbed: bool,
    /// FLOPs that the model needs ÷ time ÷ peak FLOP/s; `None` without FLOPs or a peak for their type.
    pub mfu: Option<f64>,
    /// Bytes of weights and KV cache ÷ time ÷ peak bandwidth; `None` without bytes or a peak.
    pub mbu: Option<f64>,
}

/// Labels of the peaks that a run names, those of the datasheet first.
pub fn labels(manifest: &RunManifest) -> Vec<String> {
    peaks(manifest).into_iter().fold(Vec::new(), |mut known, peak| {
        if !known.contains(&peak.label) {
            known.push(peak.label);
        }
        known
    })
}

/// Compares each operator with the peaks, one entry for each of [`labels`]: over GPU time where the table has it, else
/// over time on the host.
pub fn of_operators(analysis: &Analysis) -> Vec<Vec<OperatorUtilisation>> {
    let (known, labels) = (peaks(&analysis.manifest), labels(&analysis.manifest));
    let devices = devices(analysis) as f64;
    let operators = analysis.operators.iter().map(|operator| {
        let (flops, bytes) = rates(operator);
        let phase = operator.path.split('/').next().unwrap_or_default();
        let dtype = match operator.dtypes.as_slice() {
            [] => multiplied(&analysis.intervals, &analysis.manifest, phase),
            [only] => multiplied_dtype(&analysis.manifest.model, phase, Some(only)),
            // Work in several types has no common peak.
            _ => None,
        };
        let of = |label: &String| {
            let best = |is_flops: bool| {
                let fits = |peak: &&Peak| !is_flops || peak.is_for(dtype.as_deref());
                known.iter().filter(|peak| peak.label == *label && peak.is_flops() == is_flops).find(fits)
            };
            let share = |rate: Option<f64>, peak: Option<&Peak>| Some(rate? / (peak?.value * devices));
            let (mfu, mbu) = (share(flops, best(true)), share(bytes, best(false)));
            let disturbed = known.iter().any(|peak| peak.label == *label && peak.disturbed);
            OperatorUtilisation { label: label.clone(), disturbed, mfu, mbu }
        };
        labels.iter().map(of).collect()
    });
    operators.collect()
}

/// FLOP/s and bytes/s of weights and KV cache.
fn rates(operator: &Operator) -> (Option<f64>, Option<f64>) {
    let per_second = |work: Option<u64>, ns: f64| work.filter(|_| ns > 0.0).map(|work| work as f64 / ns * 1e9);
    match &operator.gpu {
        Some(gpu) => {
            let flops = gpu.tflops.map(|tera| tera * 1e12);
            // Kernels that run at once count with the time that they take together, as in `gbytes`.
            let part = operator.work.bytes.zip(operator.work.io_bytes).filter(|(_, all)| *all > 0);
            let bytes = gpu.gbytes.zip(part).map(|(giga, (bytes, all))| giga * 1e9 * bytes as f64 / all as f64);
            (flops, bytes.or_else(|| per_second(operator.work.bytes, gpu.total_ns)))
        }
        None => {
            let ns = operator.total_ns as f64;
            (per_second(operator.work.flops, ns), per_second(operator.work.bytes, ns))
        }
    }
}

/// GPUs that the run worked on: those with recorded kernels, or else those with marks; 1 on a CPU.
pub fn devices(analysis: &Analysis) -> u64 {
    let marked = analysis.manifest.gpu.as_ref().map_or(0, |gpu| gpu.devices.len());
    let recorded = analysis.gpu.devices.len();
    (if recorded > 0 { recorded } else { marked }).max(1) as u64
}

/// The peaks that a phase's work can be compared with. For FLOPs these are the peaks of the element type that is
/// *multiplied*: a ratio to another type's peak means nothing, and without a peak for that type there is no ratio.
fn applicable(peaks: &[Peak], intervals: &Intervals, manifest: &RunManifest, phase: &str) -> Vec<Peak> {
    let used = multiplied(intervals, manifest, phase);
    peaks.iter().filter(|peak| !peak.is_flops() || peak.is_for(used.as_deref())).cloned().collect()
}

/// The element type that a phase multiplies in.
pub fn multiplied(intervals: &Intervals, manifest: &RunManifest, phase: &str) -> Option<String> {
    let most = intervals.flops_by_dtype.iter().max_by_key(|(_, flops)| **flops).map(|(dtype, _)| *dtype);
    multiplied_dtype(&manifest.model, phase, most)
}
