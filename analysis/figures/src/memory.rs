//! Samples over time: mainly resident memory, but also every other metric that was collected.

use candlescope_schema::SampleRecord;
use candlescope_schema::metric;
use std::collections::BTreeMap;

/// Resident memory of the process, as the host collector names it.
pub const RESIDENT: &str = metric::RESIDENT_MEMORY;

/// Its high-water mark, which Linux keeps (`VmHWM` in `/proc/self/status`).
pub const RESIDENT_MARK: &str = metric::PEAK_RESIDENT_MEMORY;

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
    /// Unit of all values here, as the samples state it.
    pub unit: String,
    /// Samples of the whole run, those outside steps included.
    pub n: u64,
    /// Smallest value of the whole run, loading and warm-up included.
    pub min: f64,
    /// Largest value of the whole run, loading and warm-up included.
    pub max: f64,
    /// First value by time.
    pub first: f64,
    /// Last value by time.
    pub last: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// The samples taken while a measured step ran; `None` if there are no such samples, or no steps.
    pub in_steps: Option<InSteps>,
    /// Median time between two samples in nanoseconds: shorter events may be missed.
    pub period_ns: Option<u64>,
    /// Unix nanoseconds and value, thinned to at most some thousands.
    pub points: Vec<(i64, f64)>,
}

/// Samples of a metric that were taken while at least one measured step ran, without loading, warm-up and idle time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InSteps {
    /// Samples while measured steps ran; at least one.
    pub n: u64,
    /// Smallest of these samples, in the series' unit.
    pub min: f64,
    /// Mean of the samples.
    pub mean: f64,
    /// Largest of these samples, in the series' unit.
    pub max: f64,
}

/// The most memory that the process held, and the source of that figure. What recording holds is in it: nobody counts
/// that apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakResident {
    /// Largest resident memory of the process in bytes, loading and warm-up included.
    pub bytes: f64,
    /// Whether it is the operating system's high-water mark, which includes peaks between two samples; if not, it is
    /// the largest sample.
    pub kept_by_kernel: bool,
}

impl PeakResident {
    /// The source in words.
    pub fn source(&self) -> &'static str {
        if self.kept_by_kernel { "kernel's peak mark" } else { "largest sample" }
    }
}

/// Memory for keys and values of sequences in slots, and how much of it was needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvMemory {
    /// Most bytes that were allocated, in all slots of the process.
    pub allocated: f64,
    /// Most bytes of these that held tokens, at a sample.
    pub used: f64,
    /// Samples of what held tokens.
    pub samples: u64,
}

impl KvMemory {
    /// Allocated ÷ used; `None` where nothing was ever held.
    pub fn allocated_per_used(&self) -> Option<f64> {
        (self.used > 0.0).then(|| self.allocated / self.used)
    }
}

impl Memory {
    /// Keys and values in slots, if the run has sampled both what is allocated and what is used of it.
    pub fn kv(&self) -> Option<KvMemory> {
        let (allocated, used) = (self.host(metric::KV_ALLOCATED)?, self.host(metric::KV_USED)?);
        let kv = KvMemory { allocated: allocated.max, used: used.max, samples: used.n };
        (kv.allocated.is_finite() && kv.allocated > 0.0 && kv.used.is_finite()).then_some(kv)
    }

    /// The series of a metric of the host.
    pub fn host(&self, metric: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.metric == metric && s.device == "host")
    }

    /// Peak resident memory: the operating system's high-water mark if it is known, else the largest sample.
    pub fn peak_resident(&self) -> Option<PeakResident> {
        let most = |metric| self.host(metric).map(|s| s.max).filter(|bytes| bytes.is_finite());
        match (most(RESIDENT_MARK), most(RESIDENT)) {
            // Linux counts in batches for each thread, so a sample can exceed the mark.
            (Some(kept), sampled) if sampled.is_none_or(|bytes| bytes <= kept) => {
                Some(PeakResident { bytes: kept, kept_by_kernel: true })
            }
            (_, sampled) => sampled.map(|bytes| PeakResident { bytes, kept_by_kernel: false }),
        }
    }
}

/// Points kept for a plot: up to twice this many, then every other one is dropped.
const POINTS: usize = 2048;

/// Collects [`Memory`] from samples in any order.
#[derive(Debug, Default)]
pub struct MemoryPass {
    /// Start and end of the time in which measured steps ran, in order.
    steps: Vec<(i64, i64)>,
    series: BTreeMap<(String, &'static str), OpenSeries>,
}

#[derive(Debug)]
struct OpenSeries {
    unit: &'static str,
    n: u64,
    sum: f64,
    min: f64,
    max: f64,
    in_steps: Option<InSteps>,
    first: (i64, f64),
    last: (i64, f64),
    /// Every `stride`-th sample is kept.
    stride: u64,
    points: Vec<(i64, f64)>,
}

impl MemoryPass {
    /// A pass that also keeps separate statistics of the samples within `steps`: start and end of the time in which
    /// measured steps ran, in order and not overlapping.
    pub fn beside_steps(steps: Vec<(i64, i64)>) -> Self {
        Self { steps, series: BTreeMap::new() }
    }

    /// Takes one sample, of any metric and device: each pair of these becomes a series.
    pub fn add(&mut self, sample: &SampleRecord) {
        let (time, value) = (sample.time.0, sample.value);
        let series = self.series.entry((sample.device.to_string(), sample.metric)).or_insert_with(|| OpenSeries {
            unit: sample.unit,
            n: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            in_steps: None,
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
        let next = self.steps.partition_point(|(_, end)| *end <= time);
        if self.steps.get(next).is_some_and(|(start, _)| *start <= time) {
            // `mean` holds the sum until all samples were added.
            let within = series.in_steps.get_or_insert(InSteps { n: 0, min: value, mean: 0.0, max: value });
            within.n += 1;
            within.min = within.min.min(value);
            within.mean += value;
            within.max = within.max.max(value);
        }
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
            let mut gaps: Vec<u64> =
                c.points.windows(2).filter_map(|w| u64::try_from(w[1].0.saturating_sub(w[0].0)).ok()).collect();
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
                in_steps: c.in_steps.map(|within| InSteps { mean: within.mean / within.n as f64, ..within }),
                period_ns: gaps.get(gaps.len() / 2).map(|gap| gap / c.stride),
                points: c.points,
            }
        });
        Memory { series: series.collect() }
    }
}
