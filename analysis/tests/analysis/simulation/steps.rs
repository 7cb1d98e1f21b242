//! Steps whose right answers are known: a host and a device with constant costs, which write down what they do.

use crate::common::{T0, kernel, manifest, path, span, step, write_run};
use candlescope_predict::simulation::{Abstain, Simulation, SimulationOptions};
use candlescope_reader::Run;
use candlescope_schema::run::{GpuAccount, KernelAccount, RunManifest};
use candlescope_schema::{Batch, HostNs, KernelKind, KernelRecord, Phase, SpanRecord};
use candlescope_testkit::with;
use std::collections::BTreeMap;

/// Nanoseconds of a launch call.
pub(super) const CALL: i64 = 1_000;
/// From the end of a call to the start of its kernel on an idle stream.
pub(super) const DELAY: i64 = 2_000;
/// Between kernels of a stream.
pub(super) const GAP: i64 = 1_000;
/// From the end of a copy that the host waits for to the return of its call.
pub(super) const WAKE: i64 = 500;
/// `seq` of the first interval.
const FIRST: u64 = 1 << 40;

/// Writes down one step, from time 0.
#[derive(Debug, Clone)]
pub(super) struct Maker {
    pub(super) now: i64,
    pub(super) kernels: Vec<KernelRecord>,
    pub(super) spans: Vec<SpanRecord>,
    open: Vec<usize>,
    streams: BTreeMap<u32, i64>,
    /// Costs that the profiler adds: to each interval, half of it at each end, and to each call.
    pub(super) interval_cost: i64,
    pub(super) call_cost: i64,
}

impl Maker {
    pub(super) fn new() -> Self {
        Self::recorded(0, 0)
    }

    pub(super) fn recorded(interval_cost: i64, call_cost: i64) -> Self {
        let mut made = Self {
            now: 0,
            kernels: Vec::new(),
            spans: Vec::new(),
            open: Vec::new(),
            streams: BTreeMap::new(),
            interval_cost,
            call_cost,
        };
        made.enter("decode");
        made
    }

    pub(super) fn host(&mut self, ns: i64) {
        self.now += ns;
    }

    pub(super) fn enter(&mut self, name: &str) {
        let parent = self.open.last().map(|at| self.spans[*at].clone());
        let text = parent.as_ref().map_or(name.to_string(), |parent| format!("{}/{name}", parent.path.path));
        let seq = FIRST + self.spans.len() as u64;
        self.open.push(self.spans.len());
        self.spans.push(with(span(seq, parent.map(|parent| parent.seq), &text, self.now, 0), |r| r.step = Some(0)));
        self.now += self.interval_cost / 2;
    }

    pub(super) fn leave(&mut self) {
        self.now += self.interval_cost / 2;
        let at = self.open.pop().unwrap();
        self.spans[at].host_dur_ns = (T0 + self.now - self.spans[at].host_start.0) as u64;
    }

    /// The innermost open interval.
    pub(super) fn own(&mut self) -> &mut SpanRecord {
        let at = *self.open.last().unwrap();
        &mut self.spans[at]
    }

    fn work(&mut self, name: &str, kind: KernelKind, start: i64, ns: i64, stream: u32) -> i64 {
        let at = *self.open.last().unwrap();
        let (seq, place) = (self.spans[at].seq, self.spans[at].path.path.clone());
        let number = self.kernels.len() as u32 + 1;
        self.kernels.push(with(kernel("GPU", start, ns as u64), |r| {
            r.kind = kind;
            r.name = name.into();
            r.seq = Some(seq);
            r.step = Some(0);
            r.path = Some(path(&place));
            r.stream = stream;
            r.launch = Some("cuLaunchKernel");
            r.launch_start = Some(HostNs(T0 + self.now));
            r.launch_dur_ns = Some((CALL + self.call_cost) as u64);
            r.correlation = number;
        }));
        self.streams.insert(stream, start + ns);
        start + ns
    }

    /// When work launched now would begin in a stream.
    fn ready(&self, stream: u32) -> i64 {
        let idle = self.now + CALL + self.call_cost + DELAY;
        self.streams.get(&stream).map_or(idle, |free| idle.max(free + GAP))
    }

    /// Launches a kernel; returns its end.
    pub(super) fn launch(&mut self, name: &str, ns: i64, stream: u32) -> i64 {
        self.launch_after(name, ns, stream, i64::MIN)
    }

    /// Launches a kernel that does not begin before `after`: it waits for another stream.
    pub(super) fn launch_after(&mut self, name: &str, ns: i64, stream: u32, after: i64) -> i64 {
        let start = self.ready(stream).max(after);
        let end = self.work(name, KernelKind::Kernel, start, ns, stream);
        self.now += CALL + self.call_cost;
        end
    }

    /// Launches a graph of so many kernels of `ns` each, by a call that takes `call_ns`: the device begins meanwhile.
    pub(super) fn replay(&mut self, name: &str, nodes: usize, ns: i64, call_ns: i64) {
        let launched = self.kernels.len();
        let mut start = self.now + DELAY;
        for node in 0..nodes {
            let end = self.work(name, KernelKind::Kernel, start, ns, 1);
            let correlation = launched as u32 + 1;
            let kernel = self.kernels.last_mut().unwrap();
            (kernel.launch, kernel.launch_dur_ns) = (Some("cuGraphLaunch"), Some(call_ns as u64));
            (kernel.correlation, kernel.graph, kernel.graph_node) = (correlation, Some(3), Some(node as u64 + 1));
            start = end + GAP;
        }
        self.now += call_ns;
    }

    /// Fetches a result: a copy to the host, for which it waits.
    pub(super) fn fetch(&mut self, ns: i64) {
        let start = (self.now + DELAY).max(self.streams.get(&1).map_or(0, |free| free + GAP));
        let end = self.work("dtoh", KernelKind::Memcpy, start, ns, 1);
        let call = (end + WAKE - self.now) as u64;
        let copy = self.kernels.last_mut().unwrap();
        (copy.launch_dur_ns, copy.launch, copy.bytes) = (Some(call), Some("cuMemcpyDtoHAsync"), Some(4));
        self.now = end + WAKE;
    }

    /// Copies something small to the device, for which it does not wait.
    pub(super) fn upload(&mut self, ns: i64) {
        let start = self.ready(1);
        self.work("htod", KernelKind::Memcpy, start, ns, 1);
        self.now += CALL + self.call_cost;
    }

    /// Waits for all streams in a call that is not recorded.
    pub(super) fn synchronize(&mut self) {
        let end = self.streams.values().copied().max().unwrap_or(0);
        self.now = self.now.max(end) + WAKE;
    }

    /// Ends the step: its records, from time 0.
    pub(super) fn end(mut self) -> Made {
        while !self.open.is_empty() {
            self.leave();
        }
        let ns = self.now as u64;
        Made { kernels: self.kernels, spans: self.spans, ns }
    }
}

/// The records of one step.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) kernels: Vec<KernelRecord>,
    pub(super) spans: Vec<SpanRecord>,
    pub(super) ns: u64,
}

/// A run of `copies` of a step with their kernels, and of `outside` steps of `outside_ns` without kernels.
pub(super) fn run_of(made: &Made, copies: u64, outside: u64, outside_ns: u64) -> (Batch, RunManifest) {
    let mut batch = Batch::default();
    let distance = 2 * made.ns.max(outside_ns) as i64 + 1_000;
    let later = |at: HostNs, number: u64| HostNs(at.0 + number as i64 * distance);
    let seqs = made.spans.len().max(1) as u64;
    for number in 0..copies + outside {
        let has_kernels = number < copies;
        let ns = if has_kernels { made.ns } else { outside_ns };
        batch.steps.push(with(step(number, "decode", number as i64 * distance, ns), |r| {
            r.seq = FIRST + number * seqs;
            r.phase = Some(Phase::Decode);
            r.batch = Some(1);
            r.intervals = seqs;
        }));
        if !has_kernels {
            continue;
        }
        batch.spans.extend(made.spans.iter().map(|span| {
            with(span.clone(), |r| {
                (r.seq, r.step) = (r.seq + number * seqs, Some(number));
                r.parent_seq = r.parent_seq.map(|seq| seq + number * seqs);
                r.host_start = later(r.host_start, number);
            })
        }));
        batch.kernels.extend(made.kernels.iter().map(|kernel| {
            with(kernel.clone(), |r| {
                (r.seq, r.step) = (r.seq.map(|seq| seq + number * seqs), Some(number));
                r.gpu_start = later(r.gpu_start, number);
                r.launch_start = r.launch_start.map(|at| later(at, number));
            })
        }));
    }
    let mut manifest = manifest(&batch);
    if !batch.kernels.is_empty() {
        let kernels = KernelAccount { clock_bound_ns: Some(0), ..KernelAccount::default() };
        manifest.gpu = Some(GpuAccount { kernels: Some(kernels), ..GpuAccount::default() });
    }
    // As good as nothing, but not unknown.
    manifest.overhead.per_interval_ns = 1e-6;
    (batch, manifest)
}

/// Reads the steps of a run back from disk.
pub(super) fn simulation(batch: &Batch, manifest: &RunManifest) -> Result<Simulation, Abstain> {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), batch, manifest, 10_000);
    Simulation::of(&Run::open(dir.path()).unwrap(), &SimulationOptions::default())
}

/// Three of a step, and steps outside the windows that take as long: recording costs nothing.
pub(super) fn free(made: &Made) -> Simulation {
    let (batch, manifest) = run_of(made, 3, 8, made.ns);
    simulation(&batch, &manifest).unwrap()
}
