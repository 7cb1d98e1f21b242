//! A whole run without a model: requests of a prefill and decode steps each, kernels, a GPU's sensors, and the
//! manifest.
//!
//! Everything is deterministic.

pub use crate::decoder::GPU;
use crate::decoder::{Decoder, Spread};
use crate::records::{self, T0, with};
use candlescope_core::run::{
    ClockInfo, CrossCheck, DeviceAnchor, GpuAccount, GpuDeviceAccount, KernelAccount, OverheadInfo, RunManifest,
};
use candlescope_core::{Batch, HostNs, SampleRecord, TraceId, metric};
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
    /// One step in this many has device time on every interval, the others only on the step, as in the adaptive tier.
    /// With 1, all steps do.
    pub full_every: u64,
    /// Number of steps whose kernels are recorded, from the fourth measured step on.
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

    fn decoder(&self) -> Decoder {
        // The window begins after the warm-up, which has a step for each token.
        let first = self.warmup * u64::from(self.output) + 3;
        Decoder {
            annotated: true,
            gpu: self.gpu,
            layers: self.layers,
            block: self.block.clone(),
            full_every: self.full_every,
            gpu_percent: 80,
            recorded: first..first + self.recorded,
            spread: Spread::Even,
            request: 0,
            context: self.prompt,
            base_span: 0,
            ..Decoder::new(42)
        }
    }

    /// One request from its prompt to its last token.
    fn serve(&self, decoder: &mut Decoder) {
        decoder.request += 1;
        let number = decoder.request;
        decoder.trace = TraceId(u128::from(number));
        let start = decoder.now;
        let entry = decoder.enter("request");
        decoder.now += 200_000; // tokenising the prompt
        decoder.forward("prefill", self.prompt, self.prompt);
        let ttft = decoder.now - start;
        for i in 1..self.output {
            decoder.now += 15_000; // detokenising and printing
            decoder.forward("decode", 1, self.prompt + i);
        }
        decoder.now += 100_000;
        decoder.leave();
        let span = &decoder.batch.spans[entry];
        let record = with(records::request(number, start - T0, 0), |r| {
            r.span_id = span.span_id;
            r.host_dur_ns = span.host_dur_ns;
            r.ttft_ns = Some(ttft as u64);
            r.prompt_tokens = Some(u64::from(self.prompt));
            r.output_tokens = Some(u64::from(self.output));
            r.batch = Some(1);
        });
        decoder.batch.requests.push(record);
        decoder.now += 2_000_000;
    }
}

/// The records of a scenario and a manifest that agrees with them.
pub fn make(scenario: &Scenario) -> (Batch, RunManifest) {
    let mut decoder = scenario.decoder();
    for _ in 0..scenario.requests {
        scenario.serve(&mut decoder);
    }
    let (mut batch, end) = (decoder.batch, decoder.now - T0);
    let host: Arc<str> = "host".into();
    let period = 10_000_000;
    for (i, at) in (0..end).step_by(period).enumerate() {
        let share = at as f64 / end as f64;
        let mut sample = |metric, value, unit| {
            batch.samples.push(SampleRecord::new(HostNs(T0 + at), host.clone(), metric, value, unit));
        };
        sample(metric::RESIDENT_MEMORY, 300e6 + 60e6 * share + if i % 7 == 0 { 4e6 } else { 0.0 }, "bytes");
        sample(metric::CPU_RATIO, 1.9 + 0.1 * share, "ratio");
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
        ..records::manifest(&batch)
    };
    if scenario.gpu {
        account(scenario, &batch, &mut manifest);
    }
    (batch, manifest)
}

/// A GPU that draws 100 W, and from a tenth of a second into the run about 300 W.
fn sensors(batch: &mut Batch, end: i64) {
    let device: Arc<str> = GPU.into();
    let mut joules = 5_000.0;
    let mut before = None;
    for (i, at) in (0..=end + 300_000_000).step_by(50_000_000).enumerate() {
        // The sensor is updated every other sample.
        let watts = if (100_000_000..end).contains(&at) { 300.0 + 10.0 * ((i / 2) % 3) as f64 } else { 100.0 };
        joules += before.map_or(0.0, |w: f64| (w + watts) / 2.0 * 0.05);
        before = Some(watts);
        let mut sample = |metric, value, unit| {
            batch.samples.push(SampleRecord::new(HostNs(T0 + at), device.clone(), metric, value, unit));
        };
        sample(metric::GPU_POWER, watts, "watts");
        sample(metric::GPU_UTILIZATION, if watts > 200.0 { 0.9 } else { 0.0 }, "ratio");
        sample(metric::GPU_MEMORY_USED, 2e9 + 1e6 * i as f64, "bytes");
        sample(metric::GPU_CLOCK_SM, if watts > 200.0 { 1.98e9 } else { 0.345e9 }, "hertz");
        if i % 4 == 0 {
            sample(metric::GPU_TEMPERATURE, 40.0 + (i / 8) as f64, "celsius");
            sample("candlescope_gpu_throttled_gpu_idle", f64::from(u8::from(watts < 200.0)), "count");
            sample("candlescope_gpu_throttled_sw_power_cap", 0.0, "count");
        }
        if i % 10 == 0 {
            sample(metric::GPU_ENERGY, joules, "joules");
            sample(metric::GPU_MEMORY_LIMIT, 150e9, "bytes");
            sample(metric::GPU_POWER_LIMIT, 700.0, "watts");
        }
    }
}

/// What the session writes about GPU time.
pub(crate) fn account(scenario: &Scenario, batch: &Batch, manifest: &mut RunManifest) {
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
