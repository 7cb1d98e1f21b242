//! Samples over time: resident memory above all, and every other metric that was collected.

use candlescope_core::SampleRecord;
use std::collections::BTreeMap;

/// Resident memory of the process, as the host collector names it.
pub const RESIDENT: &str = "process_resident_memory_bytes";

/// All series of samples.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// By device and metric.
    pub series: Vec<Series>,
}

/// One metric of one device over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// `host`, or a GPU's UUID.
    pub device: String,
    /// Name of the metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Samples taken.
    pub n: u64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// First value by time.
    pub first: f64,
    /// Last value by time.
    pub last: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// Median time between two samples in nanoseconds: how short an event can be and still be seen.
    pub period_ns: Option<u64>,
    /// Unix nanoseconds and value, thinned to at most some thousands.
    pub points: Vec<(i64, f64)>,
}

impl Memory {
    /// The series of a metric of the host.
    pub fn host(&self, metric: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.metric == metric && s.device == "host")
    }

    /// Peak resident memory as sampled, in bytes.
    pub fn peak_resident(&self) -> Option<f64> {
        let sampled = self.host(RESIDENT).map(|s| s.max);
        // A high-water mark kept by the kernel sees what falls between two samples.
        let kept = self.host("process_peak_resident_memory_bytes").map(|s| s.max);
        match (sampled, kept) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Points kept for a plot: twice this, then every other is dropped.
const POINTS: usize = 2048;

/// Collects [`Memory`] from samples in any order.
#[derive(Debug, Default)]
pub struct MemoryPass {
    series: BTreeMap<(String, &'static str), Collecting>,
}

#[derive(Debug)]
struct Collecting {
    unit: &'static str,
    n: u64,
    sum: f64,
    min: f64,
    max: f64,
    first: (i64, f64),
    last: (i64, f64),
    /// Every `stride`-th sample is kept.
    stride: u64,
    points: Vec<(i64, f64)>,
}

impl MemoryPass {
    /// Takes one sample.
    pub fn add(&mut self, sample: &SampleRecord) {
        let (time, value) = (sample.time.0, sample.value);
        let series = self.series.entry((sample.device.to_string(), sample.metric)).or_insert_with(|| Collecting {
            unit: sample.unit,
            n: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            first: (time, value),
            last: (time, value),
            stride: 1,
            points: Vec::new(),
        });
        if series.n.is_multiple_of(series.stride) {
            series.points.push((time, value));
        }
        series.n += 1;
        series.sum += value;
        series.min = series.min.min(value);
        series.max = series.max.max(value);
        if time < series.first.0 {
            series.first = (time, value);
        }
        if time >= series.last.0 {
            series.last = (time, value);
        }
        if series.points.len() >= 2 * POINTS {
            let mut keep = false;
            series.points.retain(|_| {
                keep = !keep;
                keep
            });
            series.stride *= 2;
        }
    }

    /// The result, once every sample was added.
    pub fn finish(self) -> Memory {
        let series = self.series.into_iter().map(|((device, metric), mut c)| {
            c.points.sort_by_key(|p| p.0);
            let mut gaps: Vec<u64> = c.points.windows(2).filter_map(|w| u64::try_from(w[1].0 - w[0].0).ok()).collect();
            gaps.sort_unstable();
            Series {
                device,
                metric: metric.to_string(),
                unit: c.unit.to_string(),
                n: c.n,
                min: c.min,
                max: c.max,
                first: c.first.1,
                last: c.last.1,
                mean: c.sum / c.n as f64,
                period_ns: gaps.get(gaps.len() / 2).map(|gap| gap / c.stride),
                points: c.points,
            }
        });
        Memory { series: series.collect() }
    }
}
