//! Records as a decoder of SmolLM2-135M's shape makes them: 30 blocks, about 420 intervals a token, log-normal
//! durations. Seeded, and noisy on purpose: constants would flatter every encoding.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "shared by tests and benches that each use a part")]

use candlescope_core::*;
use std::collections::HashMap;
use std::sync::Arc;

const BLOCKS: usize = 30;

/// xorshift64*: good enough for noise and the same everywhere.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Median `median_ns`, spread as timings of small kernels have it.
    fn log_normal(&mut self, median_ns: f64, sigma: f64) -> u64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        (median_ns * (sigma * normal).exp()) as u64
    }
}

pub struct Synthetic {
    noise: Noise,
    paths: HashMap<String, Arc<PathInfo>>,
    thread: Arc<ThreadInfo>,
    /// Whether intervals carry FLOPs, bytes, dtype and shape, as our wrapped models' do and plain candle spans do not.
    pub annotated: bool,
    pub gpu: bool,
    pub seq: u64,
    pub step: u64,
    pub now: i64,
    trace: TraceId,
    base_span: u64,
    spans: Vec<SpanRecord>,
    open: Vec<u64>,
    phase: Option<Phase>,
    context: u32,
}

impl Synthetic {
    pub fn new(seed: u64) -> Self {
        Self {
            noise: Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            paths: HashMap::new(),
            thread: Arc::new(ThreadInfo { index: 1, os_id: 4242, name: "main".into() }),
            annotated: false,
            gpu: false,
            seq: 0,
            step: 0,
            now: 1_760_000_000_000_000_000,
            trace: TraceId(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736 ^ u128::from(seed)),
            base_span: 0x00f0_67aa_0ba9_02b7 ^ seed,
            spans: Vec::new(),
            open: Vec::new(),
            phase: None,
            context: 64,
        }
    }

    pub fn on_thread(mut self, index: u32, name: &str) -> Self {
        self.thread = Arc::new(ThreadInfo { index, os_id: 4000 + u64::from(index), name: name.into() });
        self
    }

    fn path(&mut self, path: &str) -> Arc<PathInfo> {
        if let Some(info) = self.paths.get(path) {
            return info.clone();
        }
        let strip = |p: &str| p.split('[').next().unwrap_or(p).to_string();
        let rollup: Vec<String> = path.split('/').map(strip).collect();
        let name = rollup.last().cloned().unwrap_or_default();
        let target = if name == "linear" {
            "candle_transformers::models::with_tracing"
        } else {
            "candle_transformers::models::llama"
        };
        let id = self.paths.len() as u32;
        let info = Arc::new(PathInfo {
            id,
            path: path.to_string(),
            rollup: rollup.join("/"),
            rollup_id: id,
            name: name.as_str().into(),
            target: target.into(),
        });
        self.paths.insert(path.to_string(), info.clone());
        info
    }

    fn enter(&mut self, path: &str) -> usize {
        let path = self.path(path);
        let at = self.spans.len();
        self.spans.push(SpanRecord {
            seq: self.seq,
            parent_seq: self.open.last().copied(),
            trace_id: self.trace,
            span_id: SpanId(self.base_span.wrapping_add(self.seq)),
            step: Some(self.step),
            phase: self.phase,
            path,
            depth: self.open.len() as u16,
            thread: self.thread.clone(),
            host_start: HostNs(self.now),
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
        self.open.push(self.seq);
        self.seq += 1;
        // The application's own work between entering and the first child.
        self.now += self.noise.log_normal(400.0, 0.5) as i64;
        at
    }

    fn leave(&mut self, at: usize) {
        self.now += self.noise.log_normal(300.0, 0.5) as i64;
        self.open.pop();
        let span = &mut self.spans[at];
        span.host_dur_ns = (self.now - span.host_start.0) as u64;
        if self.gpu {
            let start = span.host_start.plus_ns(6_000);
            span.gpu = Some(GpuTime { start, dur_ns: span.host_dur_ns, source: GpuSource::Event });
        }
        self.now += self.noise.log_normal(250.0, 0.5) as i64;
    }

    fn leaf(&mut self, path: &str, median_ns: f64, flops: u64, shape: &[usize]) {
        let at = self.enter(path);
        self.now += self.noise.log_normal(median_ns, 0.25) as i64;
        if self.annotated {
            let context = self.context;
            let span = &mut self.spans[at];
            // Attention grows with the context, everything else repeats from token to token.
            let flops = if flops == 0 { 4 * 9 * 64 * u64::from(context) } else { flops };
            (span.flops, span.bytes) = (Some(flops), Some(flops));
            (span.flops_executed, span.io_bytes) = (Some(flops), Some(flops + flops / 8));
            (span.dtype, span.shape) = (Some(DType::BF16), Some(Shape::new(shape)));
        }
        self.leave(at);
    }

    /// One step: `prefill`, `decode`, or any other name for a step outside phases.
    pub fn step(&mut self, name: &str) -> Batch {
        self.phase = Phase::from_word(name);
        self.context += 1;
        let (first_seq, started) = (self.seq, self.now);
        let root = self.enter(name);
        self.leaf(&format!("{name}/embedding"), 9_000.0, 1, &[1, 1, 576]);
        for block in 0..BLOCKS {
            let here = format!("{name}/block[{block}]");
            let open = self.enter(&here);
            self.leaf(&format!("{here}/rms-norm[0]"), 4_000.0, 2304, &[1, 1, 576]);
            let attn = format!("{here}/attn");
            let inner = self.enter(&attn);
            self.leaf(&format!("{attn}/linear[0]"), 42_000.0, 663_552, &[1, 1, 576]);
            self.leaf(&format!("{attn}/linear[1]"), 15_000.0, 221_184, &[1, 1, 192]);
            self.leaf(&format!("{attn}/linear[2]"), 15_000.0, 221_184, &[1, 1, 192]);
            self.leaf(&format!("{attn}/attn-rot[0]"), 7_000.0, 1_152, &[1, 9, 1, 64]);
            self.leaf(&format!("{attn}/attn-rot[1]"), 5_000.0, 384, &[1, 3, 1, 64]);
            if self.annotated {
                self.leaf(&format!("{attn}/sdpa"), 60_000.0, 0, &[1, 9, 1, 64]);
            }
            self.leaf(&format!("{attn}/linear[3]"), 42_000.0, 663_552, &[1, 1, 576]);
            self.leave(inner);
            self.leaf(&format!("{here}/rms-norm[1]"), 4_000.0, 2304, &[1, 1, 576]);
            let mlp = format!("{here}/mlp");
            let inner = self.enter(&mlp);
            self.leaf(&format!("{mlp}/linear[0]"), 110_000.0, 1_769_472, &[1, 1, 1536]);
            self.leaf(&format!("{mlp}/linear[1]"), 110_000.0, 1_769_472, &[1, 1, 1536]);
            self.leaf(&format!("{mlp}/linear[2]"), 115_000.0, 1_769_472, &[1, 1, 576]);
            self.leave(inner);
            self.leave(open);
        }
        self.leaf(&format!("{name}/rms-norm"), 4_000.0, 2304, &[1, 1, 576]);
        self.leaf(&format!("{name}/linear"), 3_000_000.0, 56_623_104, &[1, 1, 49_152]);
        if let Some(span) = self.spans.get_mut(root) {
            (span.tokens, span.context_len, span.batch) = (Some(1), Some(self.context), Some(1));
        }
        self.leave(root);
        let mut batch = Batch::default();
        batch.spans = std::mem::take(&mut self.spans);
        let root = &batch.spans[0];
        batch.steps = vec![StepRecord {
            step: self.step,
            seq: first_seq,
            trace_id: self.trace,
            phase: self.phase,
            request: Some(1),
            path: root.path.clone(),
            thread: self.thread.clone(),
            host_start: HostNs(started),
            host_dur_ns: root.host_dur_ns,
            gpu: root.gpu,
            energy_mj: None,
            tokens: Some(1),
            context_len: Some(self.context),
            batch: Some(1),
            flops: self.annotated.then(|| batch.spans.iter().filter_map(|s| s.flops).sum()),
            bytes: self.annotated.then(|| batch.spans.iter().filter_map(|s| s.bytes).sum()),
            intervals: batch.spans.len() as u64,
            intervals_lost: Some(0),
            new_tokens: None,
            context_sum: None,
            sequences: None,
            flops_executed: self.annotated.then(|| batch.spans.iter().filter_map(|s| s.flops_executed).sum()),
            io_bytes: self.annotated.then(|| batch.spans.iter().filter_map(|s| s.io_bytes).sum()),
        }];
        self.step += 1;
        // Sampling, detokenising, printing.
        self.now += self.noise.log_normal(200_000.0, 0.3) as i64;
        batch
    }

    pub fn decode(&mut self) -> Batch {
        self.step("decode")
    }

    /// A sample of every kind the host collector takes.
    pub fn samples(&mut self) -> Vec<SampleRecord> {
        let device: Arc<str> = "host".into();
        let rss = 300e6 + self.noise.uniform() * 1e6;
        [("process_resident_memory_bytes", rss, "bytes"), ("process_cpu_ratio", self.noise.uniform(), "ratio")]
            .map(|(metric, value, unit)| SampleRecord {
                time: HostNs(self.now),
                device: device.clone(),
                metric,
                value,
                unit,
            })
            .to_vec()
    }

    pub fn request(&self, number: u64, started: HostNs) -> RequestRecord {
        RequestRecord {
            request: number,
            trace_id: self.trace,
            span_id: SpanId(self.base_span.wrapping_sub(number)),
            parent_span_id: None,
            caller_sampled: None,
            operation: "text_completion".into(),
            model: "smollm2-135m".into(),
            host_start: started,
            host_dur_ns: HostNs(self.now).since(started),
            ttft_ns: Some(12_000_000),
            last_token_ns: None,
            queue_ns: None,
            prompt_tokens: Some(64),
            output_tokens: Some(self.step),
            batch: Some(1),
        }
    }
}

/// Several batches as one.
pub fn join(batches: impl IntoIterator<Item = Batch>) -> Batch {
    let mut all = Batch::default();
    for batch in batches {
        all.spans.extend(batch.spans);
        all.steps.extend(batch.steps);
        all.requests.extend(batch.requests);
        all.samples.extend(batch.samples);
    }
    all
}

/// A span of each of `n` paths.
pub fn many_paths(n: u32) -> Batch {
    let template = Synthetic::new(1).step("decode").spans.remove(0);
    let mut batch = Batch::default();
    for id in 0..n {
        let mut span = template.clone();
        let of = &template.path;
        span.path = Arc::new(PathInfo {
            id,
            path: of.path.clone(),
            rollup: format!("decode/layer_{id}/linear"),
            rollup_id: id,
            name: of.name.clone(),
            target: of.target.clone(),
        });
        batch.spans.push(span);
    }
    batch
}
