//! All figures of a run, from one reading of its rows.

use super::application::Application;
use super::energy::{self, EnergyPass};
use super::graph_shapes::GraphShapes;
use super::host_time::{NOT_OF_SAMPLES, NOT_OF_STACKS, StackPass, StepTimes};
use super::int_map::IntSet;
use super::intervals::IntervalPass;
use super::kernel_sums::KernelPass;
use super::known::RunContents;
use super::layers::LayerPass;
use super::machine::MachinePass;
use super::memory::MemoryPass;
use super::reading::{Pass, ReadingNotes};
use super::sensitivity::sensitivity;
use super::usual_steps::UsualKinds;
use super::{
    Analysis, CoveredTime, Gpu, Intervals, Latency, Phases, Price, Sampling, Shares, StepRow, StepSeries, Tokens, Tree,
    Warmup, devices, latency, operators, step_rows,
};
use candlescope_reader::limits::Limit;
use candlescope_reader::{Run, left_out};
use candlescope_schema::run::{Finding, MachineUse, Verdict};
use candlescope_schema::stretches::difference;
use candlescope_schema::{Batch, KernelRecord, RecordKind, RequestRecord, SampleRecord, SpanRecord, StackSampleRecord};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Columns of intervals that no figure comes from, and no replay. By the last one only graphs that steps left are looked up.
pub const NOT_OF_SPANS: &[&str] =
    &["host", "rank", "trace_id", "phase", "depth", "tokens", "context_len", "batch", "shape"];
/// Columns of kernels that no figure comes from, and no replay.
pub const NOT_OF_KERNELS: &[&str] = &[
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
    "graph_node",
    "derived",
];

/// Collects every figure of a run.
pub struct Figures<'k> {
    pub(super) known: &'k RunContents<'k>,
    /// Those of the model.
    steps: Cow<'k, [StepRow]>,
    application: Application,
    /// The warm-up among these.
    pub warmup: Warmup,
    has_measured_steps: bool,
    loaded_until: Option<i64>,
    /// The first steps of their kind on a device.
    cold: IntSet<Option<u64>>,
    samples: MemoryPass,
    power: EnergyPass,
    machine: Option<MachinePass>,
    kernels: KernelPass,
    /// Kernels that may still come.
    room: u64,
    spans: IntervalPass,
    layers: LayerPass,
    graph_shapes: GraphShapes,
    host: StackPass,
    step_times: StepTimes,
}

impl<'k> Figures<'k> {
    /// Of this run, before its rows are read.
    pub fn of(known: &'k RunContents<'k>) -> Self {
        let (manifest, limits) = (&known.manifest, known.run.limits());
        let application = Application::of(&known.steps);
        let steps = application.without(&known.steps);
        let warmup = Warmup::of(manifest, &known.requests, &steps);
        let counted = || steps.iter().filter(|step| !warmup.has_step(Some(step.step)));
        let measured = difference(&step_rows::windows(counted()), warmup.alone());
        let open_intervals = usize::try_from(limits.get(Limit::OpenIntervals)).unwrap_or(usize::MAX);
        let mut spans = IntervalPass::default().at_most(open_intervals);
        spans.usual(UsualKinds::of(counted()));
        // Earlier releases did not keep the load.
        let is_told = manifest.machine.is_some_and(|machine| machine.load.is_some());
        let machine = (!is_told).then(|| MachinePass::beside_steps(step_rows::windows(&*steps)));
        Self {
            known,
            has_measured_steps: !measured.is_empty(),
            loaded_until: known.loaded_until(&steps),
            cold: manifest.gpu.iter().flat_map(|gpu| &gpu.cold_steps).map(|step| Some(*step)).collect(),
            samples: MemoryPass::beside_steps(measured),
            power: EnergyPass::default(),
            machine,
            kernels: KernelPass::default(),
            room: limits.get(Limit::Kernels),
            spans,
            layers: LayerPass::default(),
            graph_shapes: GraphShapes::of(counted()),
            host: StackPass::default(),
            step_times: StepTimes::of(counted()),
            steps,
            application,
            warmup,
        }
    }

    fn sample(&mut self, sample: &SampleRecord) {
        self.samples.add(sample);
        self.power.add(sample);
        if let Some(machine) = &mut self.machine {
            machine.add(sample);
        }
    }

    fn kernels(&mut self, kernels: &[KernelRecord]) {
        let kernels = &kernels[..kernels.len().min(usize::try_from(self.room).unwrap_or(usize::MAX))];
        self.room -= kernels.len() as u64;
        kernels.iter().for_each(|kernel| self.kernels.add(kernel, &self.warmup, self.loaded_until));
        self.spans.recorded(kernels.iter().filter_map(|kernel| kernel.step));
    }

    fn span(&mut self, span: &SpanRecord) {
        // What is inside these, and not of their step, counts as if they were not there.
        if self.warmup.takes(span) || self.application.has_step(span.step) {
            self.spans.add_warmup(span);
            return;
        }
        if self.graph_shapes.wants_intervals() {
            self.graph_shapes.add(span);
        }
        // One stall in a layer is not what the layer takes. Time on the device is sampled, and stalls less.
        if span.gpu.is_some() || self.spans.place(span.step).is_some() {
            self.layers.add(span);
        }
        if self.cold.contains(&span.step) && span.path.rollup.contains('/') && span.gpu.is_some() {
            // The step is the first of its kind and the only one with marks on every interval: its parts do not represent
            // those of other steps. The step itself, which inside a request is not the outermost interval, was timed like
            // the others.
            let mut untimed: SpanRecord = span.clone();
            untimed.gpu = None;
            self.spans.add(&untimed);
        } else {
            self.spans.add(span);
        }
    }

    fn stack_sample(&mut self, sample: &StackSampleRecord) {
        if !self.warmup.has_step(sample.step) && !self.application.has_step(sample.step) {
            self.host.sample(sample, &self.step_times);
        }
    }

    /// All figures, without the verdict.
    pub fn finish(self, noticed: &ReadingNotes) -> Analysis {
        let Self { known, steps, mut warmup, .. } = self;
        let (run, requests, mut manifest) = (known.run, &known.requests, known.manifest.clone());
        let measured = warmup.measured(&steps);
        let measured_requests: Vec<&RequestRecord> =
            requests.iter().filter(|r| !warmup.requests().contains(&r.request)).collect();

        let intervals = self.spans.finish();
        let whole = latency::every_step_recorded(&manifest);
        let sampling = Sampling::of(&manifest, &known.steps).placed(&known.steps, requests);
        // Records of the session may have been lost since.
        let whole = whole && sampling.missing == 0;
        let covered = CoveredTime::of(&sampling, &known.steps, warmup.requests()).without_warmup(warmup.left_out());
        let mut latency = Latency::of(requests, &steps, warmup.requests(), whole);
        if sampling.requests_missing(&manifest, &measured_requests) {
            // It would be the tokens of some requests over the time of all of them.
            latency.output_tokens_per_s = None;
        }
        if sampling.is_sampled() {
            for request in &mut latency.requests {
                (request.steps_ns, request.outside_steps, request.parts) = (None, None, None);
            }
        }
        let phases = Phases::of(&measured_requests, &measured, &intervals, &covered, warmup.alone());
        let host = self.host.finish(manifest.stacks.as_ref());
        let tree = Tree::of(&intervals);
        let (kernels, recorded) = self.kernels.finish(&intervals);
        let with_kernels = recorded.numbers();
        let tokens = Tokens::of(&steps, warmup.requests(), &with_kernels);
        warmup.kernels = kernels.warmup;
        let mut operators = operators::operators(&tree, &intervals, &kernels.launches(), &kernels.merged);
        operators::add_waits(&mut operators, &kernels);
        let gpu = Gpu::of(&measured, &phases, &recorded, known.clocks(), &covered);
        let energy = self.power.finish(&energy::EnergyScope {
            requests,
            experiments: &known.experiments,
            steps: &steps,
            phases: &phases,
            latency: &latency,
            warmup: &warmup,
            started_ns: Some(manifest.started_ns).filter(|&ns| ns > 0),
            steps_missing: sampling.is_sampled() || (manifest.steps.is_some() && !whole),
            used: energy::used_devices(&manifest, &kernels),
        });
        let warm = |request: u64| warmup.requests().contains(&request);
        // Of steps that have no record nobody knows whose they were.
        let shares = match sampling.is_sampled() {
            true => Shares::default(),
            false => Shares::of(&manifest, requests, &steps, &warm, &energy.sensors),
        };
        let memory = self.samples.finish();
        let seen = self.machine.and_then(MachinePass::finish);
        let load = seen.and_then(|seen| seen.load);
        let told = manifest.machine.map(|told| MachineUse { load: told.load.or(load), ..told });
        manifest.machine = told.or(seen);
        let (rows, noticed) = read_of(run, noticed, &intervals);
        Analysis {
            dir: run.dir().to_path_buf(),
            rows,
            file_bytes: RecordKind::ALL.map(|kind| (kind.table(), run.bytes(kind))).into(),
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
            devices: devices::devices(&memory, &manifest, self.has_measured_steps),
            memory,
            energy,
            shares,
            price: Price::of(&manifest),
            series: StepSeries::all(&measured, &with_kernels),
            layers: self.layers.finish(),
            graph_shapes: self.graph_shapes.finish(),
            host,
            sensitivity: sensitivity(&known.perturbations),
            diagnosis: None,
            account: None,
            nsys: None,
            manifest,
            noticed,
            verdict: Verdict::default(),
        }
    }
}

/// How many rows of each table figures were made of, and what was noticed of these.
fn read_of(run: &Run, noticed: &ReadingNotes, intervals: &Intervals) -> (BTreeMap<&'static str, u64>, Vec<Finding>) {
    let most_kernels = run.limits().get(Limit::Kernels);
    let rows = RecordKind::ALL.map(|kind| {
        let rows = noticed.rows[&kind];
        (kind.table(), if kind == RecordKind::Kernel { rows.min(most_kernels) } else { rows })
    });
    let mut findings = noticed.findings.clone();
    if noticed.rows[&RecordKind::Kernel] > most_kernels {
        findings.push(left_out(run.limits(), Limit::Kernels, RecordKind::Kernel, run.rows(RecordKind::Kernel)));
    }
    if intervals.let_go_early > 0 {
        let effect = format!(
            "{} were counted before all their parents and children were known, so self times may be too large",
            intervals.let_go_early
        );
        findings.push(run.limits().reached(Limit::OpenIntervals).finding("table `spans`", &effect));
    }
    (rows.into(), findings)
}

impl Pass for Figures<'_> {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Sample, RecordKind::Kernel, RecordKind::Stack, RecordKind::StackSample, RecordKind::Span]
    }

    fn unread(&self, table: RecordKind) -> &'static [&'static str] {
        match table {
            RecordKind::Span if self.graph_shapes.wants_intervals() => &NOT_OF_SPANS[..NOT_OF_SPANS.len() - 1],
            RecordKind::Span => NOT_OF_SPANS,
            RecordKind::Kernel => NOT_OF_KERNELS,
            RecordKind::Stack => NOT_OF_STACKS,
            RecordKind::StackSample => NOT_OF_SAMPLES,
            _ => &[],
        }
    }

    fn rows(&mut self, batch: &Batch) {
        batch.samples.iter().for_each(|sample| self.sample(sample));
        self.kernels(&batch.kernels);
        batch.stacks.iter().for_each(|stack| self.host.stack(stack));
        batch.stack_samples.iter().for_each(|sample| self.stack_sample(sample));
        batch.spans.iter().for_each(|span| self.span(span));
    }

    fn end(&mut self) {
        self.host.end(&self.step_times);
    }
}
