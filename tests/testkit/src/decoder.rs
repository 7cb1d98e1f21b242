//! Makes the records that a session would make of a decoder of SmolLM2-135M's shape that generates text: some 400
//! intervals per token. Seeded, so that a test gets the same records each time.

use crate::records::{T0, request, span, step, thread, with};
use candlescope_core::{
    Batch, DType, GpuSource, GpuTime, HostNs, KernelKind, Phase, RequestRecord, SampleRecord, Shape, SpanId,
    SpanRecord, ThreadInfo, TraceId, metric,
};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The fictitious GPU.
pub const GPU: &str = "GPU-00000000-1111-2222-3333-444444444444";

const HIDDEN: u64 = 576;
const FFN: u64 = 1536;
const VOCABULARY: u64 = 49_152;

/// How durations vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spread {
    /// Within three per cent, rarely by far more; the time between layers is always the same.
    Even,
    /// Log-normally, like timings of small kernels: constants would make every encoding look good.
    LogNormal,
}

/// Makes records.
#[derive(Debug)]
pub struct Decoder {
    /// Whether intervals carry FLOPs, bytes, dtype and shape, as those of our instrumented models do and candle's own
    /// do not.
    pub annotated: bool,
    /// Whether intervals have device time.
    pub gpu: bool,
    /// Number of the newest interval.
    pub seq: u64,
    /// Number of the next step.
    pub step: u64,
    /// The time, in nanoseconds since the Unix epoch.
    pub now: i64,
    pub(crate) layers: usize,
    /// Name of a layer's span.
    pub(crate) block: String,
    /// One step in this many has device time on every interval, the others only on the step.
    pub(crate) full_every: u64,
    /// The share of a host time that the device takes.
    pub(crate) gpu_percent: u64,
    /// Steps whose kernels are recorded.
    pub(crate) recorded: Range<u64>,
    pub(crate) spread: Spread,
    pub(crate) request: u64,
    pub(crate) trace: TraceId,
    pub(crate) base_span: u64,
    pub(crate) batch: Batch,
    pub(crate) noise: u64,
    pub(crate) thread: Arc<ThreadInfo>,
    /// Open intervals, as indices into the batch's spans.
    pub(crate) open: Vec<usize>,
    pub(crate) in_step: bool,
    pub(crate) phase: Option<Phase>,
    pub(crate) context: u32,
}

impl Decoder {
    /// A decoder of 30 layers whose durations vary like measured ones.
    pub fn new(seed: u64) -> Self {
        Self {
            annotated: false,
            gpu: false,
            seq: 0,
            step: 0,
            now: T0,
            layers: 30,
            block: "block".to_string(),
            full_every: 1,
            gpu_percent: 100,
            recorded: 0..0,
            spread: Spread::LogNormal,
            request: 1,
            trace: TraceId(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736 ^ u128::from(seed)),
            base_span: 0x00f0_67aa_0ba9_02b7 ^ seed,
            batch: Batch::default(),
            noise: seed,
            thread: thread(1, "main"),
            open: Vec::new(),
            in_step: false,
            phase: None,
            context: 64,
        }
    }

    /// The same on another thread than `main`, which is number 1.
    pub fn on_thread(mut self, index: u32, name: &str) -> Self {
        self.thread = thread(index, name);
        self
    }

    /// At least 0 and below 1. Snapshots of reports depend on this sequence, and no library promises to keep its own
    /// stable.
    fn uniform(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.noise >> 40) as f64 / (1u64 << 24) as f64
    }

    /// A factor around 1; its logarithm has the standard deviation `sigma`.
    fn log_normal(&mut self, sigma: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        (sigma * radius * (std::f64::consts::TAU * self.uniform()).cos()).exp()
    }

    /// A random factor for the duration of a computation.
    fn jitter(&mut self) -> f64 {
        match self.spread {
            Spread::LogNormal => self.log_normal(0.25),
            // Occasionally something else runs on the core.
            Spread::Even => match self.uniform() {
                rare if rare > 0.995 => 1.6,
                often => 0.97 + 0.06 * often,
            },
        }
    }

    /// Time of the program itself, between layers.
    fn between(&mut self) {
        self.now += match self.spread {
            Spread::LogNormal => (300.0 * self.log_normal(0.5)) as i64,
            Spread::Even => 60,
        };
    }

    /// Begins an interval; returns its index among the spans.
    pub(crate) fn enter(&mut self, name: &str) -> usize {
        self.seq += 1;
        let parent = self.open.last().map(|at| &self.batch.spans[*at]);
        let text = match parent {
            // A request's entry is above steps, whose paths begin with their own names.
            Some(parent) if parent.step.is_some() => &format!("{}/{name}", parent.path.path),
            _ => name,
        };
        let made = with(span(self.seq, parent.map(|parent| parent.seq), text, 0, 0), |r| {
            r.trace_id = self.trace;
            r.span_id = SpanId(self.base_span.wrapping_add(self.seq));
            r.step = self.in_step.then_some(self.step);
            r.phase = self.phase;
            r.depth = self.open.len() as u16;
            r.thread = self.thread.clone();
            r.host_start = HostNs(self.now);
        });
        self.open.push(self.batch.spans.len());
        self.batch.spans.push(made);
        self.between();
        self.batch.spans.len() - 1
    }

    /// Ends the innermost interval.
    pub(crate) fn leave(&mut self) {
        self.between();
        let span = &mut self.batch.spans[self.open.pop().expect("one is open")];
        span.host_dur_ns = HostNs(self.now).since(span.host_start);
        let is_step = !span.path.path.contains('/');
        if self.gpu && span.step.is_some_and(|step| is_step || step.is_multiple_of(self.full_every)) {
            let dur_ns = span.host_dur_ns * self.gpu_percent / 100;
            span.gpu = Some(GpuTime { start: span.host_start.plus_ns(5_000), dur_ns, source: GpuSource::Event });
        }
    }

    /// An interval around `inside`.
    fn interval(&mut self, name: &str, inside: impl FnOnce(&mut Self)) -> usize {
        let at = self.enter(name);
        inside(self);
        self.leave();
        at
    }

    /// A layer that computes: `tokens` rows through a weight of `k` by `n`.
    fn linear(&mut self, name: &str, tokens: u64, k: u64, n: u64) {
        let (flops, bytes) = (2 * tokens * k * n, (tokens * k + k * n + tokens * n) * 2);
        // 40 GFLOP/s or 20 GB/s, whichever takes longer.
        let ns = (flops as f64 / 40.0).max(bytes as f64 / 20.0) * self.jitter();
        let at = self.interval(name, |d| d.now += ns as i64);
        if self.annotated {
            let span = &mut self.batch.spans[at];
            (span.flops, span.bytes, span.io_bytes) = (Some(flops), Some(2 * k * n), Some(bytes));
            (span.dtype, span.shape) = (Some(DType::BF16), Some(Shape::new(&[1, tokens as usize, n as usize])));
        }
        self.kernel(at, KernelKind::Kernel, "void cutlass::Kernel2<cutlass_80_tensorop_bf16_gemm_64x64>(Params)");
    }

    /// A layer without annotations.
    fn busy(&mut self, name: &str, ns: f64) {
        let ns = ns * self.jitter();
        let at = self.interval(name, |d| d.now += ns as i64);
        let kernel = format!("void candle::{}_kernel<float, 128>(float const*, int)", name.replace(['[', ']'], ""));
        self.kernel(at, KernelKind::Kernel, &kernel);
    }

    /// One kernel or copy of an interval without children: launched as it begins, running for three fifths of it.
    fn kernel(&mut self, at: usize, kind: KernelKind, name: &str) {
        if !self.recorded.contains(&self.step) {
            return;
        }
        let span = &self.batch.spans[at];
        let is_kernel = kind == KernelKind::Kernel;
        self.batch.kernels.push(with(crate::records::kernel_of(span, GPU, span.host_dur_ns * 3 / 5), |r| {
            r.kind = kind;
            r.name = name.into();
            r.stream = 2;
            r.gpu_start = span.host_start.plus_ns(span.host_dur_ns / 5);
            r.grid = is_kernel.then_some([64, 1, 1]);
            r.block = is_kernel.then_some([128, 1, 1]);
            r.registers = is_kernel.then_some(40);
            r.shared_static = is_kernel.then_some(0);
            r.shared_dynamic = is_kernel.then_some(0);
            r.bytes = (!is_kernel).then_some(u64::from(self.context) * 4);
            r.launch = Some(if is_kernel { "cuLaunchKernel" } else { "cuMemcpyDtoHAsync_v2" });
            r.launch_start = Some(span.host_start.plus_ns(span.host_dur_ns / 20));
            r.launch_dur_ns = Some(span.host_dur_ns / 20);
            r.queue_delay_ns = Some(span.host_dur_ns / 10);
            r.correlation = self.batch.kernels.len() as u32 + 1;
        }));
    }

    /// Gives the intervals of a recorded step the sum of the kernels launched inside them, as the pipeline does.
    fn attribute(&mut self, first: usize) {
        let mut sums: HashMap<u64, (u64, HostNs)> = HashMap::new();
        for kernel in self.batch.kernels.iter().filter(|k| k.step == Some(self.step)) {
            let mut seq = kernel.seq;
            while let Some(at) =
                seq.and_then(|seq| self.batch.spans[first..].binary_search_by_key(&seq, |s| s.seq).ok())
            {
                let span = &self.batch.spans[first + at];
                let sum = sums.entry(span.seq).or_insert((0, kernel.gpu_start));
                sum.0 += kernel.gpu_dur_ns;
                seq = span.parent_seq;
            }
        }
        for span in &mut self.batch.spans[first..] {
            if let Some(&(dur_ns, start)) = sums.get(&span.seq) {
                span.gpu = Some(GpuTime { start, dur_ns, source: GpuSource::Cupti });
            }
        }
    }

    /// A step: `tokens` tokens through all layers, with `context` tokens seen so far.
    pub(crate) fn forward(&mut self, name: &str, tokens: u32, context: u32) {
        let first = self.batch.spans.len();
        let (t, each) = (u64::from(tokens), f64::from(tokens));
        (self.phase, self.in_step) = (Phase::from_word(name), true);
        let root = self.enter(name);
        self.busy("embedding", 900.0 * each);
        let block = self.block.clone();
        for layer in 0..self.layers {
            self.interval(&format!("{block}[{layer}]"), |d| {
                d.busy("rms-norm[0]", 700.0 * each);
                d.interval("attn", |d| {
                    for (i, n) in [HIDDEN, HIDDEN / 3, HIDDEN / 3].into_iter().enumerate() {
                        d.linear(&format!("linear[{i}]"), t, HIDDEN, n);
                    }
                    d.busy("attn-rot", 1_500.0 * each);
                    // Scores, softmax and the copy of the cache have no span of their own.
                    d.now += (25.0 * f64::from(context) * each.sqrt() * d.jitter()) as i64 + 4_000;
                    d.linear("linear[3]", t, HIDDEN, HIDDEN);
                });
                d.busy("rms-norm[1]", 700.0 * each);
                d.interval("mlp", |d| {
                    d.linear("linear[0]", t, HIDDEN, FFN);
                    d.linear("linear[1]", t, HIDDEN, FFN);
                    d.linear("linear[2]", t, FFN, HIDDEN);
                });
            });
        }
        self.busy("rms-norm", 700.0);
        self.linear("lm_head", 1, HIDDEN, VOCABULARY);
        let sample = self.interval("sample", |d| d.now += 45_000);
        self.batch.spans[sample].phase = Some(Phase::Sample);
        self.kernel(sample, KernelKind::Memcpy, "dtoh");
        self.leave();
        if self.recorded.contains(&self.step) {
            self.attribute(first);
        }
        (self.phase, self.in_step) = (None, false);

        let spans = &mut self.batch.spans;
        (spans[root].tokens, spans[root].context_len, spans[root].batch) = (Some(tokens), Some(context), Some(1));
        let annotated = self.annotated;
        let sum = |of: fn(&SpanRecord) -> Option<u64>| annotated.then(|| spans[first..].iter().filter_map(of).sum());
        let root = &spans[root];
        self.batch.steps.push(with(step(self.step, name, 0, 0), |r| {
            r.seq = root.seq;
            r.trace_id = root.trace_id;
            r.phase = root.phase;
            r.request = Some(self.request);
            r.path = root.path.clone();
            r.thread = root.thread.clone();
            r.host_start = root.host_start;
            r.host_dur_ns = root.host_dur_ns;
            r.gpu = root.gpu;
            r.tokens = root.tokens;
            r.context_len = root.context_len;
            r.batch = root.batch;
            r.flops = sum(|s| s.flops);
            r.bytes = sum(|s| s.bytes);
            r.io_bytes = sum(|s| s.io_bytes);
            r.intervals = (spans.len() - first) as u64;
        }));
        self.step += 1;
    }

    /// The records of one step over one token: `prefill`, `decode`, or any other name for a step outside phases.
    pub fn step(&mut self, name: &str) -> Batch {
        self.context += 1;
        self.forward(name, 1, self.context);
        // Detokenising, printing.
        self.now += (200_000.0 * self.log_normal(0.3)) as i64;
        std::mem::take(&mut self.batch)
    }

    /// The next token.
    pub fn decode(&mut self) -> Batch {
        self.step("decode")
    }

    /// A sample of each of two metrics, now.
    pub fn samples(&mut self) -> Vec<SampleRecord> {
        let (time, device) = (HostNs(self.now), Arc::<str>::from("host"));
        let memory = (metric::RESIDENT_MEMORY, 300e6 + self.uniform() * 1e6, "bytes");
        [memory, (metric::CPU_RATIO, self.uniform(), "ratio")]
            .map(|(metric, value, unit)| SampleRecord::new(time, device.clone(), metric, value, unit))
            .to_vec()
    }

    /// A request that began at `started` and had all steps so far, and ends now.
    pub fn request(&self, number: u64, started: HostNs) -> RequestRecord {
        with(request(number, 0, 0), |r| {
            r.trace_id = self.trace;
            r.span_id = SpanId(self.base_span.wrapping_sub(number));
            r.host_start = started;
            r.host_dur_ns = HostNs(self.now).since(started);
            r.ttft_ns = Some(12_000_000);
            r.prompt_tokens = Some(64);
            r.output_tokens = Some(self.step);
            r.batch = Some(1);
        })
    }
}
