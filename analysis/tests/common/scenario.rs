//! A decoder generating text, as records.

use super::{T0, path, thread};
use candlescope_core::run::{
    ClockInfo, CrossCheck, DeviceAnchor, GpuAccount, GpuDeviceAccount, KernelAccount, OverheadInfo, RunManifest,
};
use candlescope_core::{
    Batch, DType, GpuSource, GpuTime, HostNs, KernelKind, KernelRecord, Phase, RequestRecord, SampleRecord, Shape,
    SpanId, SpanRecord, StepRecord, TraceId,
};
use serde_json::json;
use std::sync::Arc;

/// What to generate.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Decoder layers.
    pub layers: usize,
    /// Prompt tokens.
    pub prompt: u32,
    /// Output tokens of each request.
    pub output: u32,
    /// Requests, warm-up included.
    pub requests: u64,
    /// Requests that warm up.
    pub warmup: u64,
    /// Whether intervals have device time.
    pub gpu: bool,
    /// One step in this many has device time on every interval, the others on the step alone: the adaptive tier. 1: all.
    pub full_every: u64,
    /// Steps whose kernels are recorded, from the fourth on that counts.
    pub recorded: u64,
    /// Whether a GPU's power, energy and so on are sampled.
    pub sensors: bool,
    /// Name of the decoder layer's span; tests put hostile ones here.
    pub block: String,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            layers: 6,
            prompt: 64,
            output: 48,
            requests: 6,
            warmup: 1,
            gpu: false,
            full_every: 1,
            recorded: 0,
            sensors: false,
            block: "block".to_string(),
        }
    }
}

impl Scenario {
    /// A run on a GPU as `--gpu-timing adaptive --cupti` makes it.
    pub fn on_gpu() -> Self {
        Self { gpu: true, full_every: 4, recorded: 8, sensors: true, ..Self::default() }
    }

    fn is_recorded(&self, step: u64) -> bool {
        // The window begins after the warm-up, which has a step for each token.
        let first = self.warmup * u64::from(self.output) + 3;
        (first..first + self.recorded).contains(&step)
    }
}

/// The made-up GPU.
pub const GPU: &str = "GPU-00000000-1111-2222-3333-444444444444";

/// SmolLM2-135M's dimensions, for the work.
const HIDDEN: u64 = 576;
const FFN: u64 = 1536;
const VOCABULARY: u64 = 49_152;

struct Maker<'a> {
    scenario: &'a Scenario,
    batch: Batch,
    now: i64,
    seq: u64,
    noise: u64,
    step: u64,
    request: u64,
}

impl Maker<'_> {
    /// A share around 1, the same on every machine.
    fn jitter(&mut self) -> f64 {
        self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.noise >> 40) as f64 / (1u64 << 24) as f64;
        // Rarely something else runs on the core.
        if uniform > 0.995 { 1.6 } else { 0.97 + 0.06 * uniform }
    }

    /// An interval around `inside`; gives its place among the spans.
    fn interval(&mut self, parent: usize, name: &str, inside: impl FnOnce(&mut Self, usize)) -> usize {
        let (parent_seq, depth, phase) = {
            let p = &self.batch.spans[parent];
            (p.seq, p.depth + 1, p.phase)
        };
        let text = format!("{}/{name}", self.batch.spans[parent].path.path);
        let at = self.open(Some(parent_seq), &text, depth, phase, Some(self.step));
        inside(self, at);
        self.close(at);
        at
    }

    fn open(&mut self, parent: Option<u64>, text: &str, depth: u16, phase: Option<Phase>, step: Option<u64>) -> usize {
        self.seq += 1;
        self.batch.spans.push(SpanRecord {
            seq: self.seq,
            parent_seq: parent,
            trace_id: TraceId(u128::from(self.request)),
            span_id: SpanId(self.seq),
            step,
            phase,
            path: path(text),
            depth,
            thread: thread(1, "main"),
            host_start: HostNs(T0 + self.now),
            host_dur_ns: 0,
            gpu: None,
            flops: None,
            bytes: None,
            tokens: None,
            context_len: None,
            batch: None,
            dtype: None,
            shape: None,
            flops_executed: None,
            io_bytes: None,
        });
        // Entering costs a little, which shows as self time of the parent.
        self.now += 60;
        self.batch.spans.len() - 1
    }

    fn close(&mut self, at: usize) {
        self.now += 60;
        let end = HostNs(T0 + self.now);
        let scenario = self.scenario;
        let span = &mut self.batch.spans[at];
        span.host_dur_ns = end.since(span.host_start);
        let is_step = span.path.path.find('/').is_none();
        if scenario.gpu && span.step.is_some_and(|step| is_step || step.is_multiple_of(scenario.full_every)) {
            let dur_ns = span.host_dur_ns * 4 / 5;
            span.gpu = Some(GpuTime { start: span.host_start.plus_ns(5_000), dur_ns, source: GpuSource::Event });
        }
    }

    /// A leaf that computes: `tokens` rows through a weight of `k` by `n`.
    fn linear(&mut self, parent: usize, name: &str, tokens: u64, k: u64, n: u64) {
        let (flops, bytes) = (2 * tokens * k * n, (tokens * k + k * n + tokens * n) * 2);
        // 40 GFLOP/s or 20 GB/s, whichever takes longer.
        let ns = (flops as f64 / 40.0).max(bytes as f64 / 20.0) * self.jitter();
        let at = self.interval(parent, name, |m, _| m.now += ns as i64);
        let span = &mut self.batch.spans[at];
        span.flops = Some(flops);
        span.bytes = Some(2 * k * n);
        span.io_bytes = Some(bytes);
        span.dtype = Some(DType::BF16);
        span.shape = Some(Shape::new(&[1, tokens as usize, n as usize]));
        self.kernel(at, KernelKind::Kernel, "void cutlass::Kernel2<cutlass_80_tensorop_bf16_gemm_64x64>(Params)");
    }

    fn busy(&mut self, parent: usize, name: &str, ns: f64) {
        let ns = ns * self.jitter();
        let at = self.interval(parent, name, |m, _| m.now += ns as i64);
        self.kernel(
            at,
            KernelKind::Kernel,
            &format!("void candle::{}_kernel<float, 128>(float const*, int)", name.replace(['[', ']'], "")),
        );
    }

    /// One kernel or copy of an interval without others inside: launched as it begins, busy for three fifths of it.
    fn kernel(&mut self, at: usize, kind: KernelKind, name: &str) {
        if !self.scenario.is_recorded(self.step) {
            return;
        }
        let span = &self.batch.spans[at];
        let is_kernel = kind == KernelKind::Kernel;
        self.batch.kernels.push(KernelRecord {
            kind,
            name: name.into(),
            seq: Some(span.seq),
            span_id: Some(span.span_id),
            step: span.step,
            phase: span.phase,
            path: Some(span.path.clone()),
            device: GPU.into(),
            stream: 2,
            gpu_start: span.host_start.plus_ns(span.host_dur_ns / 5),
            gpu_dur_ns: span.host_dur_ns * 3 / 5,
            grid: is_kernel.then_some([64, 1, 1]),
            block: is_kernel.then_some([128, 1, 1]),
            registers: is_kernel.then_some(40),
            shared_static: is_kernel.then_some(0),
            shared_dynamic: is_kernel.then_some(0),
            bytes: (!is_kernel).then_some(u64::from(self.scenario.prompt) * 4),
            launch: Some(if is_kernel { "cuLaunchKernel" } else { "cuMemcpyDtoHAsync_v2" }),
            launch_start: Some(span.host_start.plus_ns(span.host_dur_ns / 20)),
            launch_dur_ns: Some(span.host_dur_ns / 20),
            queue_delay_ns: Some(span.host_dur_ns / 10),
            correlation: self.batch.kernels.len() as u32 + 1,
            graph: None,
        });
    }

    /// Gives the intervals of a recorded step the sum of the kernels launched inside them, as the pipeline does.
    fn attribute(&mut self, first: usize) {
        let mut sums: std::collections::HashMap<u64, (u64, HostNs)> = std::collections::HashMap::new();
        for kernel in self.batch.kernels.iter().filter(|k| k.step == Some(self.step)) {
            let mut seq = kernel.seq;
            while let Some(at) = seq.and_then(|seq| self.batch.spans[first..].iter().position(|s| s.seq == seq)) {
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

    fn forward(&mut self, request_seq: u64, phase: Phase, tokens: u32, context: u32) {
        let first = self.batch.spans.len();
        let t = u64::from(tokens);
        let root = self.open(Some(request_seq), phase.as_str(), 1, Some(phase), Some(self.step));
        self.busy(root, "embedding", 900.0 * f64::from(tokens));
        let block = self.scenario.block.clone();
        for layer in 0..self.scenario.layers {
            self.interval(root, &format!("{block}[{layer}]"), |m, at| {
                m.busy(at, "rms-norm[0]", 700.0 * f64::from(tokens));
                m.interval(at, "attn", |m, at| {
                    for (i, n) in [HIDDEN, HIDDEN / 3, HIDDEN / 3].into_iter().enumerate() {
                        m.linear(at, &format!("linear[{i}]"), t, HIDDEN, n);
                    }
                    m.busy(at, "attn-rot", 1_500.0 * f64::from(tokens));
                    // Scores, softmax and the copy of the cache have no span of their own.
                    m.now += (25.0 * f64::from(context) * f64::from(tokens).sqrt() * m.jitter()) as i64 + 4_000;
                    m.linear(at, "linear[3]", t, HIDDEN, HIDDEN);
                });
                m.busy(at, "rms-norm[1]", 700.0 * f64::from(tokens));
                m.interval(at, "mlp", |m, at| {
                    m.linear(at, "linear[0]", t, HIDDEN, FFN);
                    m.linear(at, "linear[1]", t, HIDDEN, FFN);
                    m.linear(at, "linear[2]", t, FFN, HIDDEN);
                });
            });
        }
        self.busy(root, "rms-norm", 700.0);
        self.linear(root, "lm_head", 1, HIDDEN, VOCABULARY);
        let sample = self.interval(root, "sample", |m, _| m.now += 45_000);
        self.batch.spans[sample].phase = Some(Phase::Sample);
        self.kernel(sample, KernelKind::Memcpy, "dtoh");
        self.close(root);
        if self.scenario.is_recorded(self.step) {
            self.attribute(first);
        }

        let spans = &mut self.batch.spans;
        spans[root].tokens = Some(tokens);
        spans[root].context_len = Some(context);
        spans[root].batch = Some(1);
        let sum = |f: fn(&SpanRecord) -> Option<u64>| Some(spans[first..].iter().filter_map(f).sum::<u64>());
        let span = &spans[root];
        let step = StepRecord {
            step: self.step,
            seq: span.seq,
            trace_id: span.trace_id,
            phase: Some(phase),
            request: Some(self.request),
            path: span.path.clone(),
            thread: span.thread.clone(),
            host_start: span.host_start,
            host_dur_ns: span.host_dur_ns,
            gpu: span.gpu,
            energy_mj: None,
            tokens: Some(tokens),
            context_len: Some(context),
            batch: Some(1),
            flops: sum(|s| s.flops),
            bytes: sum(|s| s.bytes),
            intervals: (spans.len() - first) as u64,
            intervals_lost: Some(0),
            new_tokens: None,
            context_sum: None,
            sequences: None,
            flops_executed: None,
            io_bytes: sum(|s| s.io_bytes),
        };
        self.batch.steps.push(step);
        self.step += 1;
    }

    fn request(&mut self) {
        self.request += 1;
        let start = self.now;
        let entry = self.open(None, "request", 0, None, None);
        let seq = self.batch.spans[entry].seq;
        self.now += 200_000; // tokenising the prompt
        let prompt = self.scenario.prompt;
        self.forward(seq, Phase::Prefill, prompt, prompt);
        let ttft = self.now - start;
        for i in 1..self.scenario.output {
            self.now += 15_000; // detokenising and printing
            self.forward(seq, Phase::Decode, 1, prompt + i);
        }
        self.now += 100_000;
        self.close(entry);
        let span = &self.batch.spans[entry];
        self.batch.requests.push(RequestRecord {
            request: self.request,
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_span_id: None,
            caller_sampled: None,
            operation: "text_completion".into(),
            model: "smollm2-135m".into(),
            host_start: HostNs(T0 + start),
            host_dur_ns: span.host_dur_ns,
            ttft_ns: Some(ttft as u64),
            last_token_ns: None,
            queue_ns: None,
            prompt_tokens: Some(u64::from(prompt)),
            output_tokens: Some(u64::from(self.scenario.output)),
            batch: Some(1),
        });
        self.now += 2_000_000;
    }
}

/// The records of a scenario and a manifest that agrees with them.
pub fn make(scenario: &Scenario) -> (Batch, RunManifest) {
    let mut maker = Maker { scenario, batch: Batch::default(), now: 0, seq: 0, noise: 42, step: 0, request: 0 };
    for _ in 0..scenario.requests {
        maker.request();
    }
    let (mut batch, end) = (maker.batch, maker.now);
    let host: Arc<str> = "host".into();
    let period = 10_000_000;
    for (i, at) in (0..end).step_by(period).enumerate() {
        let share = at as f64 / end as f64;
        let mut sample = |metric, value, unit| {
            batch.samples.push(SampleRecord { time: HostNs(T0 + at), device: host.clone(), metric, value, unit });
        };
        sample("process_resident_memory_bytes", 300e6 + 60e6 * share + if i % 7 == 0 { 4e6 } else { 0.0 }, "bytes");
        sample("process_cpu_utilization_ratio", 1.9 + 0.1 * share, "ratio");
    }
    if scenario.sensors {
        sensors(&mut batch, end);
    }
    let steps_ns: u64 = batch.steps.iter().map(|s| s.host_dur_ns).sum();
    let intervals = batch.spans.len() as u64;
    let application_ns = intervals * 41;
    let mut manifest = RunManifest {
        ended_ns: Some(T0 + end),
        environment: [
            ("candle", json!("0.11.1")),
            ("cpu_model", json!("Example CPU @ 2.0 GHz")),
            ("kernel", json!("6.1.0")),
            ("logical_cpus", json!(2)),
            ("os", json!("linux")),
        ]
        .map(|(k, v)| (k.to_string(), v))
        .into(),
        model: [
            ("architecture", json!("llama")),
            ("dtype", json!("bf16")),
            ("layers", json!(scenario.layers)),
            ("name", json!("smollm2-135m")),
            ("parameters", json!(134_515_008)),
        ]
        .map(|(k, v)| (k.to_string(), v))
        .into(),
        options: [("warmup", json!(scenario.warmup)), ("max_new_tokens", json!(scenario.output)), ("seed", json!(42))]
            .map(|(k, v)| (k.to_string(), v))
            .into(),
        clock: ClockInfo { source: "tsc".to_string(), ticks_per_second: 2e9, read_ns: 12.0, anchors: Vec::new() },
        overhead: OverheadInfo {
            per_interval_ns: 41.0,
            application_ns,
            background_cpu_ns: Some(3_000_000),
            ratio: Some(application_ns as f64 / steps_ns as f64),
            ..OverheadInfo::default()
        },
        ..super::manifest(&batch)
    };
    if scenario.gpu {
        account(scenario, &batch, &mut manifest);
    }
    (batch, manifest)
}

/// A GPU that draws 100 W, and from a tenth of a second into the run 300 W and a little more or less.
fn sensors(batch: &mut Batch, end: i64) {
    let device: Arc<str> = GPU.into();
    let mut joules = 5_000.0;
    let mut before = None;
    for (i, at) in (0..=end + 300_000_000).step_by(50_000_000).enumerate() {
        // The sensor moves every other sample.
        let watts = if (100_000_000..end).contains(&at) { 300.0 + 10.0 * ((i / 2) % 3) as f64 } else { 100.0 };
        joules += before.map_or(0.0, |w: f64| (w + watts) / 2.0 * 0.05);
        before = Some(watts);
        let mut sample = |metric, value, unit| {
            batch.samples.push(SampleRecord { time: HostNs(T0 + at), device: device.clone(), metric, value, unit });
        };
        sample("hw_power_watts", watts, "watts");
        sample("hw_gpu_utilization_ratio", if watts > 200.0 { 0.9 } else { 0.0 }, "ratio");
        sample("hw_gpu_memory_usage_bytes", 2e9 + 1e6 * i as f64, "bytes");
        sample("candlescope_gpu_clock_hertz_sm", if watts > 200.0 { 1.98e9 } else { 0.345e9 }, "hertz");
        if i % 4 == 0 {
            sample("hw_temperature_celsius", 40.0 + (i / 8) as f64, "celsius");
            sample("candlescope_gpu_throttled_gpu_idle", f64::from(u8::from(watts < 200.0)), "count");
            sample("candlescope_gpu_throttled_sw_power_cap", 0.0, "count");
        }
        if i % 10 == 0 {
            sample("hw_energy_joules_total", joules, "joules");
            sample("hw_gpu_memory_limit_bytes", 150e9, "bytes");
            sample("hw_power_limit_watts", 700.0, "watts");
        }
    }
}

/// What the session writes about GPU time.
fn account(scenario: &Scenario, batch: &Batch, manifest: &mut RunManifest) {
    let steps = batch.steps.len() as u64;
    let full = batch.steps.iter().filter(|s| s.step.is_multiple_of(scenario.full_every)).count() as u64;
    let timed = batch.spans.iter().filter(|s| s.gpu.is_some()).count() as u64;
    let kernels = batch.kernels.len() as u64;
    manifest.gpu = Some(GpuAccount {
        clock: Some("cuda".to_string()),
        timing: if scenario.full_every == 1 { "all" } else { "adaptive" }.to_string(),
        budget: 0.02,
        steps_full: full,
        steps_partial: steps - full,
        marks: [("recorded".to_string(), 2 * timed), ("timed".to_string(), 2 * timed)].into(),
        intervals: [("timed".to_string(), timed)].into(),
        mark_cost_ns: Some(1_100.0),
        marks_ns: 2 * timed * 1_100,
        devices: vec![GpuDeviceAccount {
            uuid: GPU.to_string(),
            name: "Example GPU".to_string(),
            skew_bound_ns: 2_400,
            drift_ppm: -3.25,
            anchors: vec![DeviceAnchor { device_ns: 0, host_ns: T0, bound_ns: 2_400 }],
            ..GpuDeviceAccount::default()
        }],
        kernels: (kernels > 0).then(|| KernelAccount {
            recorder: "cupti".to_string(),
            windows: 1,
            steps: scenario.recorded,
            recorded: kernels,
            clock_bound_ns: Some(2),
            ..KernelAccount::default()
        }),
        cross_check: (kernels > 0).then_some(CrossCheck { n: 40, median_ratio: 1.02, p05: 1.0, p95: 1.09 }),
        ..GpuAccount::default()
    });
    let peak = |kind: &str, value: f64, dtype: Option<&str>| {
        let source = "Example GPU, dense, datasheet figure";
        json!({ "kind": kind, "value": value, "label": "datasheet", "source": source, "dtype": dtype })
    };
    let facts = [
        ("gpus", json!([{ "uuid": GPU, "name": "Example GPU" }])),
        (
            "peaks",
            json!([peak("flops", 1e12, Some("f32")), peak("flops", 2e12, Some("bf16")), peak("bandwidth", 1e11, None)]),
        ),
    ];
    manifest.environment.extend(facts.map(|(key, value)| (key.to_string(), value)));
}
