//! A step predicted from measured kernels, where a prediction otherwise has a roof.
//!
//! Each operation is made of kernels that `bench kernels` measures; their times stand in the place of roof and floor:
//! `max(Σ launches on the host, Σ measured on the device) + sync`. An operation whose shape the study does not have has
//! no time, and then the step has none either. Operations that `bench kernels` has no kernel for (writing the cache,
//! changes of type and layout) keep their roof, and the share of it is told.

use super::kernel_study::{KernelStudy, TimeBasis, WantedKernel};
use super::latency_figures::Figure;
use super::predict::{OperationTime, StepPrediction, with_times};
use super::scenario::Scenario;
use candlescope_work::devices::{Device, Multiply, OperationClass};
use candlescope_work::estimate::Estimate;
use candlescope_work::input::Input;
use candlescope_work::shape::{FeedForward, ModelShape};
use serde::Serialize;

/// Where an operation's time comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from", content = "detail")]
pub enum TimeSource {
    /// These shapes were measured.
    Measured,
    /// Some lie between measured ones, along these sizes.
    Interpolated(String),
    /// No kernel of `bench kernels` does this: it is at its roof.
    Roof,
    /// The study lacks something.
    Missing(String),
}

/// The time of one operation of a step by the study, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelTime {
    /// Its name, as the instrumented layers call it: `q_proj`, `scores`, `residual`.
    pub operation: &'static str,
    /// How often it is done in a step.
    pub calls: f64,
    /// Nanoseconds of all of them on the device; `None` if the study lacks something.
    pub ns: Option<f64>,
    /// The same at roof and floor.
    pub roof_ns: Option<f64>,
    /// Where the time comes from.
    #[serde(flatten)]
    pub source: TimeSource,
}

/// One step by measured kernels; operations without such a kernel are at their roof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepFromKernels {
    /// Nanoseconds it takes; `None` if the study lacks something.
    pub ns: Option<Estimate>,
    /// Nanoseconds on the device.
    pub device_ns: Option<f64>,
    /// Share of that which was measured or interpolated.
    pub measured_share: Option<f64>,
    /// Every operation of the step in its order, those at their roof and those without a time included.
    pub operations: Vec<KernelTime>,
}

/// Prefill and decoding step from measured kernels, and the commands that measure what the study lacks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FromKernels {
    /// Kernels in the study, and its device.
    pub source: String,
    /// The prompts, to the first token.
    pub prefill: StepFromKernels,
    /// One token of each sequence.
    pub decode: StepFromKernels,
    /// Commands that measure what is missing, one shape each.
    pub to_measure: Vec<String>,
    /// One command that measures every shape of the steps, if something is missing and it is known how the model was
    /// asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure_all: Option<String>,
}

/// A kernel at a shape, as `bench kernels` names both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KernelShape {
    /// Name of the kernel, as `--ops` takes it: `linear`, `rmsnorm`, `argmax`.
    pub op: &'static str,
    /// Element type, as `--dtype` takes it; of a product with weights it is their format.
    pub dtype: &'static str,
    /// Names and values of the sizes, in the order of `--sizes`: `m`, `n` and `k` of a product.
    pub sizes: Vec<(&'static str, u64)>,
}

/// Every kernel that both steps of a model, already predicted at their roofs, are made of, each shape once.
pub(super) fn kernel_shapes(
    shape: &ModelShape,
    device: &Device,
    scenario: &Scenario,
    [prefill, decode]: [&StepPrediction; 2],
) -> Vec<KernelShape> {
    let [first, token] = scenario.inputs(shape);
    let mut all: Vec<KernelShape> = Vec::new();
    for (step, input) in [(prefill, first), (decode, token)] {
        let asked = StepQuery { shape, scenario, device, input };
        let names = step.operations.iter().map(|timed| &timed.operation).filter(|operation| operation.kernels > 0.0);
        for wanted in names.filter_map(|operation| asked.kernels(operation.name)).flatten() {
            let WantedKernel { op, dtype, sizes, .. } = wanted;
            let one = KernelShape { op, dtype, sizes };
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

impl FromKernels {
    /// Nanoseconds predicted for a figure of a run.
    pub(super) fn of(&self, figure: Figure) -> Option<f64> {
        let step = if figure.is_prefill() { &self.prefill } else { &self.decode };
        match figure {
            Figure::Ttft | Figure::Tpot => step.ns.map(|ns| ns.mid),
            Figure::PrefillKernels | Figure::DecodeKernels => step.device_ns,
            Figure::PrefillOf(class) | Figure::DecodeOf(class) => {
                let own = step.operations.iter().filter(|time| OperationClass::of(time.operation) == class);
                own.map(|time| time.ns).sum()
            }
            Figure::Launch(_) => None,
        }
    }
}

/// Predicts both steps of a model, already predicted at their roofs, from measured kernels.
pub(super) fn from_kernels(
    shape: &ModelShape,
    device: &Device,
    scenario: &Scenario,
    [prefill, decode]: [&StepPrediction; 2],
    study: &KernelStudy,
) -> FromKernels {
    let [first, token] = scenario.inputs(shape);
    let mut to_measure = Vec::new();
    let mut of = |step: &StepPrediction, input: Input| {
        StepQuery { shape, scenario, device, input }.step(step, study, &mut to_measure)
    };
    let (prefill, decode) = (of(prefill, first), of(decode, token));
    let name = study.device_name().map_or_else(String::new, |name| format!(" on {name}"));
    FromKernels {
        source: format!("{} kernels measured{name}", study.len()),
        prefill,
        decode,
        to_measure,
        measure_all: None,
    }
}

struct StepQuery<'a> {
    shape: &'a ModelShape,
    scenario: &'a Scenario,
    device: &'a Device,
    input: Input,
}

impl StepQuery<'_> {
    fn step(&self, step: &StepPrediction, study: &KernelStudy, to_measure: &mut Vec<String>) -> StepFromKernels {
        let operations: Vec<KernelTime> =
            step.operations.iter().map(|timed| self.one(timed, study, to_measure)).collect();
        let times: Option<Vec<f64>> = operations.iter().map(|operation| operation.ns).collect();
        let device_ns = times.as_ref().map(|times| times.iter().sum::<f64>());
        let at_roof = |operation: &&KernelTime| operation.source == TimeSource::Roof;
        let roof: f64 = operations.iter().filter(at_roof).filter_map(|operation| operation.ns).sum();
        StepFromKernels {
            ns: times.map(|times| with_times(&step.operations, &times, self.device)),
            measured_share: device_ns.filter(|all| *all > 0.0).map(|all| 1.0 - roof / all),
            device_ns,
            operations,
        }
    }

    fn one(&self, timed: &OperationTime, study: &KernelStudy, to_measure: &mut Vec<String>) -> KernelTime {
        let operation = &timed.operation;
        let done = |ns: Option<f64>, source: TimeSource| KernelTime {
            operation: operation.name,
            calls: operation.calls,
            ns,
            roof_ns: timed.device_ns,
            source,
        };
        if operation.kernels <= 0.0 {
            return done(Some(0.0), TimeSource::Roof);
        }
        let Some(wanted) = self.kernels(operation.name) else { return done(timed.device_ns, TimeSource::Roof) };
        let multiply = self.device.multiplies(self.scenario.weights.multiply);
        let ridge = self.device.ridge(multiply);
        let (mut ns, mut along, mut missing) = (0.0, Vec::new(), Vec::new());
        for kernel in &wanted {
            match study.time(kernel, ridge) {
                Ok(found) => {
                    ns += found.ns() * kernel.times * operation.calls;
                    if let TimeBasis::Between(_, size) = found {
                        along.push(format!("{} along {size}", kernel.op));
                    }
                }
                Err(why) => {
                    missing.push(why);
                    if !to_measure.contains(&kernel.command()) {
                        to_measure.push(kernel.command());
                    }
                }
            }
        }
        match (missing.is_empty(), along.is_empty()) {
            (false, _) => done(None, TimeSource::Missing(missing.join("; "))),
            (true, false) => done(Some(ns), TimeSource::Interpolated(along.join(", "))),
            (true, true) => done(Some(ns), TimeSource::Measured),
        }
    }

    /// The kernels that an operation is made of, as `bench kernels` calls them; `None` if it has none for it.
    fn kernels(&self, name: &str) -> Option<Vec<WantedKernel>> {
        let (shape, Input { batch, tokens, context, .. }) = (self.shape, self.input);
        // Devices that share matrices have other shapes, and an encoder's are not those of the decoder.
        if self.scenario.devices > 1 || shape.encoder_layers > 0 {
            return None;
        }
        let (rows, d) = (batch * tokens, shape.head_dim);
        let dtype = self.activations();
        let one = |op, dtype, sizes: &[(&'static str, u64)]| {
            Some(vec![WantedKernel { op, dtype, sizes: sizes.to_vec(), times: 1.0 }])
        };
        let heads = [("batch", batch), ("heads", shape.heads), ("kv_heads", shape.kv_heads), ("head", d)];
        let attends = |op| {
            let sizes = [&heads[..], &[("tokens", tokens), ("context", context)]].concat();
            one(op, self.products(), &sizes)
        };
        match name {
            "lm_head" => self.projection(batch, shape.vocab, shape.hidden, shape.biases.head),
            "q_proj" => self.projection(rows, shape.queries(), shape.hidden, shape.biases.qkv),
            "k_proj" | "v_proj" => self.projection(rows, shape.keys(), shape.hidden, shape.biases.qkv),
            "c_attn" => self.projection(rows, shape.queries() + 2 * shape.keys(), shape.hidden, shape.biases.qkv),
            "o_proj" => self.projection(rows, shape.hidden, shape.queries(), shape.biases.output),
            "gate_proj" | "up_proj" | "down_proj" => {
                let (i, bias) = (self.intermediate()?, shape.biases.feed_forward);
                let (n, k) = if name == "down_proj" { (shape.hidden, i) } else { (i, shape.hidden) };
                self.projection(rows, n, k, bias)
            }
            "input_layernorm" | "post_attention_layernorm" => self.norm(rows),
            "norm" => self.norm(batch),
            "embed_tokens" if shape.learned_positions == 0 => {
                one("embedding", dtype, &[("tokens", rows), ("vocab", shape.vocab), ("width", shape.hidden)])
            }
            "rotary" => {
                let turned = |heads| WantedKernel {
                    op: "rotary",
                    dtype,
                    sizes: vec![("batch", batch), ("heads", heads), ("tokens", tokens), ("head", d)],
                    times: 1.0,
                };
                Some(vec![turned(shape.heads), turned(shape.kv_heads)])
            }
            "scores" => attends("attention_scores"),
            "context" => attends("attention_context"),
            "softmax" => {
                let sizes = [("batch", batch), ("heads", shape.heads), ("tokens", tokens), ("context", context)];
                one("attention_softmax", self.products(), &sizes)
            }
            "act_fn" => {
                let op = if matches!(shape.feed_forward, FeedForward::Plain { .. }) { "gelu" } else { "swiglu" };
                one(op, dtype, &[("rows", rows), ("width", self.intermediate()?)])
            }
            "residual" => one("add", dtype, &[("rows", rows), ("width", shape.hidden)]),
            "sample" => one("argmax", "f32", &[("batch", batch), ("vocab", shape.vocab)]),
            _ => None,
        }
    }

    /// Features of the feed-forward network; `None` for experts, whose rows are not known.
    fn intermediate(&self) -> Option<u64> {
        match self.shape.feed_forward {
            FeedForward::Gated { intermediate } | FeedForward::Plain { intermediate } => Some(intermediate),
            FeedForward::Experts { .. } => None,
        }
    }

    fn norm(&self, rows: u64) -> Option<Vec<WantedKernel>> {
        let op = if self.shape.norm_bias { "layernorm" } else { "rmsnorm" };
        let sizes = vec![("rows", rows), ("width", self.shape.hidden)];
        Some(vec![WantedKernel { op, dtype: self.activations(), sizes, times: 1.0 }])
    }

    /// A product with weights, and the sum with a bias.
    fn projection(&self, m: u64, n: u64, k: u64, bias: bool) -> Option<Vec<WantedKernel>> {
        let weights = self.scenario.weights;
        let (op, dtype) = match weights.in_blocks {
            true => ("qmatmul", weights.name),
            false if weights.bits >= 16.0 => ("linear", weights.name),
            false => return None,
        };
        let mut all = vec![WantedKernel { op, dtype, sizes: vec![("m", m), ("n", n), ("k", k)], times: 1.0 }];
        if bias {
            let sizes = vec![("rows", m), ("width", n)];
            all.push(WantedKernel { op: "add_bias", dtype: self.activations(), sizes, times: 1.0 });
        }
        Some(all)
    }

    /// The type of activations.
    fn activations(&self) -> &'static str {
        match (self.scenario.weights.activation_bits > 16.0, self.scenario.weights.multiply) {
            (true, _) => "f32",
            (false, Multiply::F16) => "f16",
            (false, _) => "bf16",
        }
    }

    /// The type that attention multiplies in.
    fn products(&self) -> &'static str {
        if self.scenario.storage(self.device).widths.products >= 4.0 { "f32" } else { self.activations() }
    }
}
