//! Passes turn records into figures, one kind of figure per file.
//!
//! `figures` streams a run once through all of them. What an [`Analysis`] consists of is public here. Modules that are
//! hidden from the documentation are reachable for this crate's tests and may change at any time.

pub mod account;
mod application;
#[doc(hidden)]
pub mod busy;
pub(crate) mod cache_reads;
mod chosen_device;
#[doc(hidden)]
pub mod covered;
#[doc(hidden)]
pub mod device_work;
pub(crate) mod devices;
pub(crate) mod energy;
#[doc(hidden)]
pub mod flame;
#[doc(hidden)]
pub mod gaps;
#[doc(hidden)]
pub mod gpu_of_steps;
pub(crate) mod gpu_time;
pub(crate) mod int_map;
#[doc(hidden)]
pub mod intervals;
pub(crate) mod kernel_family;
#[doc(hidden)]
pub mod kernel_sums;
pub(crate) mod kernels_by_path;
#[doc(hidden)]
pub mod latency;
mod launch_pace;
pub(crate) mod layers;
mod machine;
pub(crate) mod memory;
mod module_groups;
pub(crate) mod numbered;
#[doc(hidden)]
pub mod operators;
pub(crate) mod overhead;
pub(crate) mod overlap;
pub(crate) mod path_totals;
#[doc(hidden)]
pub mod peaks;
pub(crate) mod phases;
pub(crate) mod price;
pub(crate) mod rates;
mod request_parts;
pub(crate) mod sampling;
#[doc(hidden)]
pub mod sensor;
mod shared_steps;
pub mod stats;
pub(crate) mod step_rows;
pub(crate) mod step_series;
mod timeline;
pub(crate) mod tokens;
pub(crate) mod tree;
pub(crate) mod usual_steps;
pub(crate) mod warmup;

use crate::advice::Diagnosis;
use crate::limits::Limit;
use crate::reader::Run;
use candlescope_schema::run::{Finding, RunManifest, Verdict};
use candlescope_schema::stretches::difference;
use candlescope_schema::{KernelRecord, RecordKind, RequestRecord, SpanRecord};
use std::collections::BTreeMap;

pub use busy::{Busy, Clocks};
pub(crate) use chosen_device::ChosenDevice;
pub use covered::{Covered, Part};
pub use device_work::DeviceWork;
pub use devices::Device;
pub use energy::{Energy, PhaseEnergy};
pub use gaps::{Activity, GapSum};
pub use gpu_of_steps::{Elapsed, Gpu, GpuKind};
pub use gpu_time::{GpuBySource, GpuSums};
pub use kernel_sums::{CopyRow, KernelPathRow, KernelRow, Kernels};
pub use kernels_by_path::{Comparison, KernelSum, KernelsByPath, PathKernels};
pub use latency::{Latency, RequestFigures};
pub use launch_pace::{LaunchPace, Launched};
pub use layers::Layer;
pub use memory::{InSteps, Memory, PeakResident, Series};
pub use operators::{Operator, OperatorGpu};
pub use overhead::{Background, Whole};
pub use path_totals::{Intervals, PathTotals, RecordedWork};
pub use phases::{PhaseGpu, PhaseRow, Phases};
pub use price::{PRICE_PER_HOUR, Price, usd_per_million_output_tokens};
pub use rates::RateErrors;
pub use request_parts::{RequestParts, SlowStep};
pub use sampling::Sampling;
pub use sensor::{Idle, IdleFrom, Joules, Sensor, SensorCheck};
pub use stats::{Distribution, Range};
pub use step_rows::StepRow;
pub use step_series::{StepPoint, StepSeries};
pub use tokens::{TokenPoint, Tokens, Trend};
pub use tree::{Tree, TreeRow};
pub use usual_steps::{UsualSteps, UsualTime};
pub use warmup::{Warmup, WarmupRow};

/// Everything that is known about a run, in figures. Times are nanoseconds unless a name says otherwise.
#[derive(Debug, Clone)]
pub struct Analysis {
    /// Directory the run was read from.
    pub dir: std::path::PathBuf,
    /// `run.json`, or defaults if there is none.
    pub manifest: RunManifest,
    /// Records read, by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Bytes on disk, by table.
    pub file_bytes: BTreeMap<&'static str, u64>,
    /// The warm-up, which is in none of the other figures.
    pub warmup: Warmup,
    /// Which steps have a record.
    pub sampling: Sampling,
    /// Time and work of every rollup path.
    pub intervals: Intervals,
    /// TTFT, TPOT, ITL and throughput.
    pub latency: Latency,
    /// Time by phase, and durations of steps by kind.
    pub phases: Phases,
    /// Latency of each token against its context.
    pub tokens: Tokens,
    /// Where the time goes, as a tree.
    pub tree: Tree,
    /// Where the time goes, as a table by self time.
    pub operators: Vec<Operator>,
    /// GPU time of steps, and how the device's time divides.
    pub gpu: Gpu,
    /// Kernels and copies of the recorded steps.
    pub kernels: Kernels,
    /// Memory and other samples over time.
    pub memory: Memory,
    /// Samples of each GPU.
    pub devices: Vec<Device>,
    /// Energy that the GPUs used.
    pub energy: Energy,
    /// What the machine costs, if somebody said so.
    pub price: Option<Price>,
    /// The measured steps of each kind, in order.
    pub series: Vec<StepSeries>,
    /// Numbered siblings such as a decoder's layers, in order of path.
    pub layers: Vec<Layer>,
    /// Findings with gains, once they have been looked for ([`analyze`](crate::analyze())).
    pub diagnosis: Option<Diagnosis>,
    /// How the devices spent their time, if it was asked for.
    pub account: Option<account::Account>,
    /// Kernels of an Nsight Systems profile, if one was given.
    pub nsys: Option<KernelsByPath>,
    /// Whether all this can be trusted.
    pub verdict: Verdict,
}

/// Columns of intervals that no figure comes from.
const NOT_OF_SPANS: &[&str] =
    &["host", "rank", "trace_id", "phase", "depth", "tokens", "context_len", "batch", "shape"];
/// Columns of kernels that no figure comes from.
const NOT_OF_KERNELS: &[&str] = &[
    "host",
    "rank",
    "span_id",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "registers",
    "shared_static",
    "shared_dynamic",
    "launch",
    "graph",
];

/// What looks at the rows that figures come from, too. Kernels come before intervals; columns that no figure comes from
/// are null.
pub(crate) trait Beside {
    /// A kernel, copy or memset.
    fn kernel(&mut self, record: &KernelRecord);
    /// All kernels have come.
    fn end_kernels(&mut self);
    /// An interval.
    fn span(&mut self, span: &SpanRecord);
}

/// `None` looks at nothing.
impl<T: Beside> Beside for Option<T> {
    fn kernel(&mut self, record: &KernelRecord) {
        if let Some(beside) = self {
            beside.kernel(record);
        }
    }

    fn end_kernels(&mut self) {
        if let Some(beside) = self {
            beside.end_kernels();
        }
    }

    fn span(&mut self, span: &SpanRecord) {
        if let Some(beside) = self {
            beside.span(span);
        }
    }
}

/// Reads the whole run and computes every figure. Also returns what was noticed on the way; the verdict is not made
/// here.
pub(crate) fn figures(run: &Run, beside: &mut impl Beside) -> (Analysis, Vec<Finding>) {
    let mut manifest = run.manifest().cloned().unwrap_or_default();
    let mut requests: Vec<RequestRecord> = Vec::new();
    let mut steps: Vec<StepRow> = Vec::new();
    let mut has_measured_steps = false;
    let open_intervals = usize::try_from(run.limits().get(Limit::OpenIntervals)).unwrap_or(usize::MAX);
    let mut spans = intervals::IntervalPass::default().at_most(open_intervals);
    let mut kernels = kernel_sums::KernelPass::default();
    let mut power = energy::EnergyPass::default();
    let mut layers = layers::LayerPass::default();
    let mut batches =
        run.batches().held().without(RecordKind::Span, NOT_OF_SPANS).without(RecordKind::Kernel, NOT_OF_KERNELS);
    let mut known: Option<(Warmup, memory::MemoryPass)> = None;
    let mut application = application::Application::default();
    let (mut first_step, mut all_kernels) = (None, false);
    let mut machine: Option<machine::MachinePass> = None;
    let clocks = busy::Clocks::of(&manifest);
    let cold_steps = manifest.gpu.iter().flat_map(|gpu| &gpu.cold_steps);
    let cold: int_map::IntSet<Option<u64>> = cold_steps.map(|step| Some(*step)).collect();
    for batch in batches.by_ref() {
        batch.steps.iter().for_each(|step| steps.push(StepRow::of(step)));
        if !batch.samples.is_empty() || !batch.kernels.is_empty() || !batch.spans.is_empty() {
            // Requests and steps come before samples, samples before kernels, and kernels before spans, so the complete
            // earlier lists are known when later records are handled.
            let (warmup, samples) = known.get_or_insert_with(|| {
                in_order(&mut requests, &mut steps);
                application = application::Application::take(&mut steps);
                first_step = steps.first().map(|step| step.start_ns);
                let warmup = Warmup::of(&manifest, &requests, &steps);
                machine =
                    manifest.machine.is_none().then(|| machine::MachinePass::beside_steps(step_rows::windows(&steps)));
                let measured = step_rows::windows(steps.iter().filter(|step| !warmup.has_step(Some(step.step))));
                let measured = difference(&measured, warmup.alone());
                has_measured_steps = !measured.is_empty();
                let counted = steps.iter().filter(|step| !warmup.has_step(Some(step.step)));
                spans.usual(usual_steps::Usual::of(counted));
                (warmup, memory::MemoryPass::beside_steps(measured))
            });
            batch.samples.iter().for_each(|sample| {
                samples.add(sample);
                power.add(sample);
                if let Some(machine) = &mut machine {
                    machine.add(sample);
                }
            });
            // If the error bound of the clocks is too large, it is not known what ran before the first step.
            let loaded_until = first_step.filter(|_| !clocks.apart());
            for kernel in &batch.kernels {
                kernels.add(kernel, warmup, loaded_until);
                beside.kernel(kernel);
            }
            spans.recorded(batch.kernels.iter().filter_map(|kernel| kernel.step));
            if !batch.spans.is_empty() && !all_kernels {
                all_kernels = true;
                beside.end_kernels();
            }
            for span in &batch.spans {
                beside.span(span);
                // What is inside these, and not of their step, counts as if they were not there.
                if warmup.takes(span) || application.has_step(span.step) {
                    spans.add_warmup(span);
                    continue;
                }
                // One stall in a layer is not what the layer takes. Time on the device is sampled, and stalls less.
                if span.gpu.is_some() || spans.place(span.step).is_some() {
                    layers.add(span);
                }
                if cold.contains(&span.step) && span.path.rollup.contains('/') && span.gpu.is_some() {
                    // The step is the first of its kind and the only one with marks on every interval: its parts do not
                    // represent those of other steps. The step itself, which inside a request is not the outermost
                    // interval, was timed like the others.
                    let mut untimed: SpanRecord = span.clone();
                    untimed.gpu = None;
                    spans.add(&untimed);
                } else {
                    spans.add(span);
                }
            }
        }
        requests.extend(batch.requests);
    }
    let (mut warmup, samples) = known.unwrap_or_else(|| {
        in_order(&mut requests, &mut steps);
        application = application::Application::take(&mut steps);
        (Warmup::of(&manifest, &requests, &steps), memory::MemoryPass::default())
    });
    let measured = warmup.measured(&steps);
    let measured_requests: Vec<&RequestRecord> =
        requests.iter().filter(|r| !warmup.requests().contains(&r.request)).collect();

    let intervals = spans.finish();
    let whole = latency::every_step_recorded(&manifest);
    let every_step = application.with(&steps);
    let sampling = Sampling::of(&manifest, &every_step);
    // Records of the session may have been lost since.
    let whole = whole && sampling.missing == 0;
    let covered = covered::Covered::of(&sampling, &every_step, warmup.requests()).without_warmup(warmup.left_out());
    let mut latency = latency::Latency::of(&requests, &steps, warmup.requests(), whole);
    if sampling.requests_missing(&manifest, &measured_requests) {
        // It would be the tokens of some requests over the time of all of them.
        latency.output_tps = None;
    }
    if sampling.is_sampled() {
        for request in &mut latency.requests {
            (request.steps_ns, request.outside_steps, request.parts) = (None, None, None);
        }
    }
    let phases = phases::Phases::of(&measured_requests, &measured, &intervals, &covered, warmup.alone());
    let tree = tree::Tree::of(&intervals);
    let (kernels, recorded) = kernels.finish(&intervals);
    let with_kernels = recorded.numbers();
    let tokens = tokens::Tokens::of(&steps, warmup.requests(), &with_kernels);
    warmup.kernels = kernels.warmup;
    let mut operators = operators::operators(&tree, &intervals, &kernels.launches(), &kernels.merged);
    operators::add_waits(&mut operators, &kernels);
    let gpu = gpu_of_steps::Gpu::of(&measured, &phases, &recorded, clocks, &covered);
    let energy = power.finish(&energy::Around {
        requests: &requests,
        steps: &steps,
        phases: &phases,
        latency: &latency,
        warmup: &warmup,
        started_ns: Some(manifest.started_ns).filter(|&ns| ns > 0),
        steps_missing: sampling.is_sampled() || (manifest.steps.is_some() && !whole),
        used: energy::used_devices(&manifest, &kernels),
    });
    let memory = samples.finish();
    manifest.machine = manifest.machine.or(machine.and_then(machine::MachinePass::finish));
    let analysis = Analysis {
        dir: run.dir().to_path_buf(),
        rows: RecordKind::ALL.iter().map(|&kind| (kind.table(), batches.records(kind))).collect(),
        file_bytes: RecordKind::ALL.iter().map(|&kind| (kind.table(), run.bytes(kind))).collect(),
        warmup,
        sampling,
        intervals,
        latency,
        phases,
        tokens,
        tree,
        operators,
        gpu,
        kernels,
        devices: devices::devices(&memory, &manifest, has_measured_steps),
        memory,
        energy,
        price: Price::of(&manifest),
        series: step_series::StepSeries::all(&measured, &with_kernels),
        layers: layers.finish(),
        diagnosis: None,
        account: None,
        nsys: None,
        manifest,
        verdict: Verdict::default(),
    };
    let mut seen: Vec<_> = run.findings().iter().cloned().chain(batches.findings()).collect();
    if analysis.intervals.let_go_early > 0 {
        let effect = format!(
            "{} were counted before all their parents and children were known, so self times may be too large",
            analysis.intervals.let_go_early
        );
        seen.push(run.limits().reached(Limit::OpenIntervals).finding("table `spans`", &effect));
    }
    (analysis, seen)
}

/// Steps and requests in the order in which they began, and what was noticed of their files.
pub(crate) fn steps_and_requests(run: &Run) -> (Vec<StepRow>, Vec<RequestRecord>, Vec<Finding>) {
    let mut seen = run.findings().to_vec();
    let (mut steps, mut requests): (Vec<StepRow>, Vec<RequestRecord>) = (Vec::new(), Vec::new());
    for kind in [RecordKind::Request, RecordKind::Step] {
        let mut batches = run.table(kind).held();
        for batch in batches.by_ref() {
            steps.extend(batch.steps.iter().map(StepRow::of));
            requests.extend(batch.requests);
        }
        seen.extend(batches.findings());
    }
    in_order(&mut requests, &mut steps);
    (steps, requests, seen)
}

/// Segments are in the order in which records ended; figures need the order in which they began.
fn in_order(requests: &mut [RequestRecord], steps: &mut [StepRow]) {
    requests.sort_by_key(|r| (r.host_start, r.request));
    steps.sort_by_key(|s| (s.start_ns, s.step));
}
