//! Runs of several ranks with kernels, of which it is known who waits for whom: steps of a decoder in bf16, two all-reduces of NCCL a
//! layer.
//!
//! A host launches one kernel after the other, its device runs them in that order, and no rank leaves an all-reduce before all have
//! come. All else follows from that, and is added up while it is made.

use crate::records::{self, T0, kernel_of, span, step, with};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, GpuSource, GpuTime, HostNs, KernelKind, Phase};
use serde_json::json;

/// Kernel of an all-reduce of bf16, as CUPTI names that of NCCL.
pub const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
/// The all-reduces of a layer.
pub const A_LAYER: u64 = 2;
/// Bytes of an all-reduce in a step.
pub const BYTES: u64 = 8_192;
/// Bytes of a large all-reduce.
pub const LARGE_BYTES: u64 = 256 << 20;
/// How far the ends of one all-reduce lie apart at most, nanoseconds.
pub const ENDS_APART_NS: i64 = 800;

/// Kernels of half a layer before its all-reduce, and their shares of its time: names that were recorded on an H200.
const HALF: [(&str, f64); 5] = [
    ("rmsnorm_bf16", 0.15),
    ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_splitK_TNT", 0.40),
    ("usilu_bf16", 0.05),
    ("bmul_bf16", 0.05),
    ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", 0.35),
];
const BESIDE: &str = "nvjet_sm90_tst_16x64_64x16_4x1_v_bz_TNN";
/// A copy of an all-reduce through the host.
const COPY_NS: i64 = 2_000;
/// Bits of an interval's number below that of its thread (`candlescope_schema::SEQ_BITS`).
const SEQ_BITS: u32 = 40;
/// From the end of a launch to the device.
const ARRIVES_NS: i64 = 1_000;

/// What to make. Times are nanoseconds.
#[derive(Debug, Clone)]
pub struct MadeRanks {
    /// How much longer than said below each rank's host and device take: 1.2 is a fifth. As many as there are ranks.
    pub slower: Vec<f64>,
    /// What each rank's clock is ahead, each on a machine of its own; empty: one machine.
    pub ahead_ns: Vec<i64>,
    /// Steps after the warm-up, in which the first rank is twice as slow as the others.
    pub steps: u64,
    /// Steps of the warm-up, a request of its own.
    pub warmup: u64,
    /// Layers.
    pub layers: u64,
    /// What the device computes before each all-reduce.
    pub compute_ns: i64,
    /// What the host takes to launch a kernel.
    pub host_ns: i64,
    /// What an all-reduce takes once all ranks have come.
    pub transfer_ns: i64,
    /// A kernel beside each all-reduce, which is on a stream of its own then; 0: none.
    pub beside_ns: i64,
    /// Whether all-reduces go through the host, which waits for them: a copy from the device, and one back. Nothing runs beside them
    /// then.
    pub through_host: bool,
    /// Standard deviation of the logarithm of what a host takes, drawn for each step and rank; 0: always the same.
    pub noise: f64,
    /// Of the noise.
    pub seed: u64,
    /// Steps at the end that have one large all-reduce each.
    pub large: u64,
    /// What it takes once all ranks have come.
    pub large_ns: i64,
    /// Name of the GPUs.
    pub gpu: &'static str,
}

impl Default for MadeRanks {
    fn default() -> Self {
        Self {
            slower: vec![1.0, 1.2],
            ahead_ns: Vec::new(),
            steps: 40,
            warmup: 4,
            layers: 4,
            compute_ns: 500_000,
            host_ns: 3_000,
            transfer_ns: 40_000,
            beside_ns: 0,
            through_host: false,
            noise: 0.0,
            seed: 1,
            large: 0,
            large_ns: 871_545,
            gpu: "NVIDIA H200",
        }
    }
}

/// The run of one rank.
#[derive(Debug, Clone)]
pub struct MadeRank {
    /// Its records, by its own clock.
    pub batch: Batch,
    /// Agrees with them.
    pub manifest: RunManifest,
    /// What is so.
    pub truth: RankTruth,
}

/// The same ranks as threads of one process: one run with the records of all, in which steps are numbered over all threads.
pub fn as_threads(made: &[MadeRank]) -> (Batch, RunManifest) {
    let ranks = made.len() as u64;
    let (mut all, mut manifest) = (Batch::default(), made[0].manifest.clone());
    for (thread, rank) in (1..).zip(made) {
        let seq = |seq: &mut u64| *seq |= u64::from(thread) << SEQ_BITS;
        let number = |step: &mut u64| *step = *step * ranks + u64::from(thread) - 1;
        let Batch { mut spans, mut steps, mut kernels, .. } = rank.batch.clone();
        for span in &mut spans {
            seq(&mut span.seq);
            span.parent_seq.iter_mut().for_each(seq);
            span.step.iter_mut().for_each(number);
        }
        for step in &mut steps {
            seq(&mut step.seq);
            number(&mut step.step);
            step.thread = records::thread(thread, &format!("rank-{}", thread - 1));
        }
        for kernel in &mut kernels {
            kernel.seq.iter_mut().for_each(seq);
            kernel.step.iter_mut().for_each(number);
        }
        all.spans.extend(spans);
        all.steps.extend(steps);
        all.kernels.extend(kernels);
    }
    manifest.world_size = None;
    manifest.run_id = "made-threads".to_string();
    (all, manifest)
}

/// What a rank does in a step after the warm-up; means, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankTruth {
    /// The step, on the host.
    pub step_ns: f64,
    /// In all-reduces, until the last rank had come.
    pub waiting_ns: f64,
    /// In all-reduces after that.
    pub transfer_ns: f64,
    /// The part of the waiting beside which no kernel ran.
    pub exposed_waiting_ns: f64,
    /// The part of the transfer beside which no kernel ran.
    pub exposed_transfer_ns: f64,
}

/// One step, the same for all ranks.
struct Step<'a> {
    number: u64,
    phase: Phase,
    request: u64,
    layers: u64,
    compute_ns: i64,
    transfer_ns: i64,
    bytes: u64,
    beside_ns: i64,
    slower: &'a [f64],
    counts: bool,
}

struct Rank {
    batch: Batch,
    device: String,
    truth: RankTruth,
    noise: u64,
    seq: u64,
    correlation: u32,
    /// When the step began, and its span.
    begun: i64,
    root: usize,
    /// When the host can launch the next kernel, and the device begin it.
    host: i64,
    free: i64,
    /// What a launch and a kernel take, as a factor, in this step.
    host_factor: f64,
    factor: f64,
}

impl MadeRanks {
    /// The runs, in order of ranks.
    pub fn make(&self) -> Vec<MadeRank> {
        let mut ranks: Vec<Rank> = (0..self.slower.len()).map(|rank| Rank::new(rank, self.seed)).collect();
        let mut first_slow = vec![1.0; self.slower.len()];
        first_slow[0] = 2.0;
        let even = vec![1.0; self.slower.len()];
        for number in 0..self.warmup + self.steps + self.large {
            let (warm, large) = (number < self.warmup, number >= self.warmup + self.steps);
            let step = Step {
                number,
                phase: if large { Phase::Encode } else { Phase::Decode },
                request: if warm { 1 } else { 2 },
                layers: if large { 1 } else { self.layers },
                compute_ns: if large { 10_000 } else { self.compute_ns },
                transfer_ns: if large { self.large_ns } else { self.transfer_ns },
                bytes: if large { LARGE_BYTES } else { BYTES },
                beside_ns: if large { 0 } else { self.beside_ns },
                slower: if warm {
                    &first_slow
                } else if large {
                    &even
                } else {
                    &self.slower
                },
                counts: !warm && !large,
            };
            self.step(&step, &mut ranks);
        }
        ranks.into_iter().enumerate().map(|(rank, made)| self.end(rank, made)).collect()
    }

    fn step(&self, step: &Step<'_>, ranks: &mut [Rank]) {
        for (rank, slower) in ranks.iter_mut().zip(step.slower) {
            rank.begin(step, *slower, self.noise);
        }
        for layer in 0..step.layers {
            for (at, half) in ["self_attn", "mlp"].into_iter().enumerate() {
                let calls: Vec<Call> = ranks.iter_mut().map(|rank| self.half(step, layer, half, rank)).collect();
                let last = calls.iter().map(|call| call.start).max().unwrap_or(0);
                for (number, (rank, call)) in ranks.iter_mut().zip(&calls).enumerate() {
                    let fifths = (layer as i64 * 7 + at as i64 * 3 + number as i64 * 2 + step.number as i64) % 5;
                    let end = last + step.transfer_ns + fifths * ENDS_APART_NS / 4;
                    rank.reduced(step, call, last, end);
                    if self.through_host {
                        rank.copied_back(call, end, self.host_ns);
                    }
                }
            }
        }
        ranks.iter_mut().for_each(|rank| rank.fetch(step, self.host_ns));
    }

    /// Half a layer up to its all-reduce, and what runs beside that.
    fn half(&self, step: &Step<'_>, layer: u64, half: &str, rank: &mut Rank) -> Call {
        let phase = step.phase.as_str();
        let path = format!("{phase}/block[{layer}]/{half}");
        let outer = rank.enter(step, Some(rank.root), &path);
        for (name, share) in HALF {
            let ns = (step.compute_ns as f64 * share * rank.factor) as i64;
            let at = rank.launch(outer, name, 7, self.host_ns, rank.free);
            rank.batch.kernels[at].gpu_dur_ns = ns as u64;
            rank.free = rank.batch.kernels[at].gpu_start.0 + ns;
        }
        let span = rank.enter(step, Some(outer), &format!("{path}/all_reduce"));
        rank.batch.spans[span].io_bytes = Some(step.bytes);
        if self.through_host {
            let kernel = rank.launch(span, "dtoh", 7, self.host_ns, rank.free);
            rank.copy(kernel, "cuMemcpyDtoHAsync_v2", step.bytes);
            return Call { start: rank.batch.kernels[kernel].gpu_start.0, outer, span, kernel };
        }
        let beside = step.beside_ns > 0;
        let kernel = rank.launch(span, ALL_REDUCE, if beside { 20 } else { 7 }, self.host_ns, rank.free);
        rank.leave(span);
        let start = rank.batch.kernels[kernel].gpu_start.0;
        if beside {
            let at = rank.launch(outer, BESIDE, 7, self.host_ns, start);
            rank.batch.kernels[at].gpu_dur_ns = step.beside_ns as u64;
        }
        rank.leave(outer);
        Call { start, outer, span, kernel }
    }

    fn end(&self, rank: usize, made: Rank) -> MadeRank {
        let ended = made.host;
        let Rank { mut batch, mut truth, .. } = made;
        let ahead = self.ahead_ns.get(rank).copied().unwrap_or(0);
        batch.move_by(ahead);
        for sum in [
            &mut truth.step_ns,
            &mut truth.waiting_ns,
            &mut truth.transfer_ns,
            &mut truth.exposed_waiting_ns,
            &mut truth.exposed_transfer_ns,
        ] {
            *sum /= self.steps as f64;
        }
        let apart = !self.ahead_ns.is_empty();
        let on_machine = if apart { rank..rank + 1 } else { 0..self.slower.len() };
        let gpus: Vec<_> = on_machine
            .enumerate()
            .map(|(index, of)| json!({ "index": index, "name": self.gpu, "uuid": uuid(of) }))
            .collect();
        let mut manifest = RunManifest {
            run_id: format!("made-{rank}"),
            host: if apart { format!("node-{rank}") } else { "node-0".to_string() },
            rank: rank as u32,
            world_size: Some(self.slower.len() as u32),
            started_ns: T0 + ahead,
            ended_ns: Some(ended + ahead),
            ..records::manifest(&batch)
        };
        // In containers every program is the first one.
        let pid = if apart { 1 } else { 4_000 + rank };
        manifest.environment.extend([("gpus", json!(gpus)), ("pid", json!(pid))].map(|(k, v)| (k.to_string(), v)));
        manifest.model.extend([("name", json!("made")), ("dtype", json!("bf16"))].map(|(k, v)| (k.to_string(), v)));
        manifest.options.insert("warmup".to_string(), json!(u64::from(self.warmup > 0)));
        MadeRank { batch, manifest, truth }
    }
}

/// An all-reduce on a rank: when its device was there, the interval around it, its own, and its kernel or first copy.
struct Call {
    start: i64,
    outer: usize,
    span: usize,
    kernel: usize,
}

fn uuid(rank: usize) -> String {
    format!("GPU-00000000-1111-2222-3333-{rank:012}")
}

impl Rank {
    fn new(rank: usize, seed: u64) -> Self {
        Self {
            batch: Batch::default(),
            device: uuid(rank),
            truth: RankTruth::default(),
            noise: seed * 1_000 + rank as u64 + 1,
            seq: 0,
            correlation: 0,
            begun: 0,
            root: 0,
            host: T0 + 1_000_000,
            free: 0,
            host_factor: 1.0,
            factor: 1.0,
        }
    }

    /// At least 0 and below 1, the same on every machine.
    fn uniform(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.noise >> 40) as f64 / (1u64 << 24) as f64
    }

    fn begin(&mut self, step: &Step<'_>, slower: f64, noise: f64) {
        self.factor = slower;
        self.host_factor = slower;
        if noise > 0.0 {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            self.host_factor *= (noise * radius * (std::f64::consts::TAU * self.uniform()).cos()).exp();
        }
        (self.begun, self.free) = (self.host, self.host);
        self.root = self.enter(step, None, step.phase.as_str());
        self.host += 2_000;
    }

    /// Begins an interval; returns its index.
    fn enter(&mut self, step: &Step<'_>, parent: Option<usize>, path: &str) -> usize {
        self.seq += 1;
        let parent = parent.map(|at| self.batch.spans[at].seq);
        self.batch.spans.push(with(span(self.seq, parent, path, self.host - T0, 0), |r| {
            (r.step, r.phase) = (Some(step.number), Some(step.phase));
        }));
        self.batch.spans.len() - 1
    }

    fn leave(&mut self, at: usize) {
        let span = &mut self.batch.spans[at];
        span.host_dur_ns = HostNs(self.host).since(span.host_start);
    }

    /// Launches a kernel of an interval, which begins no sooner than said; returns its index.
    fn launch(&mut self, of: usize, name: &str, stream: u32, host_ns: i64, no_sooner: i64) -> usize {
        let took = (host_ns as f64 * self.host_factor) as i64;
        let called = self.host;
        self.host += took;
        self.correlation += 1;
        let start = no_sooner.max(self.host + ARRIVES_NS);
        self.batch.kernels.push(with(kernel_of(&self.batch.spans[of], &self.device, 0), |r| {
            (r.name, r.stream, r.gpu_start, r.correlation) = (name.into(), stream, HostNs(start), self.correlation);
            (r.grid, r.block) = (Some([132, 1, 1]), Some([128, 1, 1]));
            (r.launch, r.launch_start) = (Some("cuLaunchKernelEx"), Some(HostNs(called)));
            r.launch_dur_ns = Some((took - took / 4) as u64);
        }));
        self.batch.kernels.len() - 1
    }

    /// An all-reduce for which the last rank came at `last`, and which ends here at `end`.
    fn reduced(&mut self, step: &Step<'_>, call: &Call, last: i64, end: i64) {
        let took = end - call.start;
        self.batch.kernels[call.kernel].gpu_dur_ns = took as u64;
        self.batch.spans[call.span].gpu =
            Some(GpuTime { start: HostNs(call.start), dur_ns: took as u64, source: GpuSource::Event });
        let (waited, mut beside) = (last - call.start, (0, 0));
        if step.beside_ns > 0 {
            let begins = self.batch.kernels[call.kernel + 1].gpu_start.0 - call.start;
            beside = (begins, begins + step.beside_ns);
        }
        self.free = end.max(call.start + beside.1);
        if step.counts {
            let hidden = |from: i64, to: i64| (beside.1.min(to) - beside.0.max(from)).max(0);
            let truth = &mut self.truth;
            truth.waiting_ns += waited as f64;
            truth.transfer_ns += (took - waited) as f64;
            truth.exposed_waiting_ns += (waited - hidden(0, waited)) as f64;
            truth.exposed_transfer_ns += (took - waited - hidden(waited, took)) as f64;
        }
    }

    /// The kernel becomes a copy.
    fn copy(&mut self, at: usize, call: &'static str, bytes: u64) {
        let copy = &mut self.batch.kernels[at];
        (copy.kind, copy.launch, copy.bytes) = (KernelKind::Memcpy, Some(call), Some(bytes));
        (copy.grid, copy.block, copy.gpu_dur_ns) = (None, None, COPY_NS as u64);
    }

    /// The host has the sum, and an all-reduce ends with its copy to the device.
    fn copied_back(&mut self, call: &Call, end: i64, host_ns: i64) {
        self.batch.kernels[call.kernel].gpu_dur_ns = COPY_NS as u64;
        let bytes = self.batch.kernels[call.kernel].bytes.unwrap_or(0);
        self.host = end - COPY_NS - ARRIVES_NS - (host_ns as f64 * self.host_factor) as i64;
        let back = self.launch(call.span, "htod", 7, host_ns, end - COPY_NS);
        self.copy(back, "cuMemcpyHtoDAsync_v2", bytes);
        // As a session says it where kernels are recorded: their sum.
        self.batch.spans[call.span].gpu =
            Some(GpuTime { start: HostNs(call.start), dur_ns: 2 * COPY_NS as u64, source: GpuSource::Cupti });
        self.leave(call.span);
        self.leave(call.outer);
    }

    /// The step's result, for which its host waits.
    fn fetch(&mut self, step: &Step<'_>, host_ns: i64) {
        let root = self.root;
        let last = self.launch(root, "fast_argmax_f32", 7, host_ns, self.free);
        self.batch.kernels[last].gpu_dur_ns = 8_000;
        self.free = self.batch.kernels[last].gpu_start.0 + 8_000;
        let (called, from) = (self.host, self.free);
        self.correlation += 1;
        self.batch.kernels.push(with(kernel_of(&self.batch.spans[root], &self.device, 1_500), |r| {
            (r.kind, r.name, r.bytes) = (KernelKind::Memcpy, "dtoh".into(), Some(4));
            (r.stream, r.gpu_start, r.correlation) = (7, HostNs(from), self.correlation);
            (r.launch, r.launch_start) = (Some("cuMemcpyDtoHAsync_v2"), Some(HostNs(called)));
            r.launch_dur_ns = Some((from + 2_500 - called).max(0) as u64);
        }));
        self.host = (from + 4_000).max(called + 2_000);
        self.leave(root);
        let span = &self.batch.spans[root];
        let gpu = GpuTime {
            start: span.host_start.plus_ns(3_000),
            dur_ns: span.host_dur_ns - 3_000,
            source: GpuSource::Event,
        };
        self.batch.steps.push(with(step_of(step, span.seq, self.begun, span.host_dur_ns), |r| r.gpu = Some(gpu)));
        if step.counts {
            self.truth.step_ns += span.host_dur_ns as f64;
        }
        self.host += 20_000;
    }
}

fn step_of(of: &Step<'_>, seq: u64, begun: i64, ns: u64) -> candlescope_core::StepRecord {
    with(step(of.number, of.phase.as_str(), begun - T0, ns), |r| {
        (r.seq, r.phase, r.request, r.tokens) = (seq, Some(of.phase), Some(of.request), Some(1));
    })
}
