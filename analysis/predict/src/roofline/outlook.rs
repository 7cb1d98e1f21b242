//! The whole prediction for a model on a device, without running anything: latency, memory, batches, formats.

use super::from_kernels::{FromKernels, KernelShape, from_kernels, kernel_shapes};
use super::kernel_study::KernelStudy;
use super::memory::MemoryNeed;
use super::outlook_basis::{assumptions, warnings};
use super::predict::{Bound, StepPrediction, predict};
use super::scenario::Scenario;
use candlescope_work::devices::{Device, DeviceKind, FORMATS, Format};
use candlescope_work::estimate::Estimate;
use candlescope_work::shape::ModelShape;
use candlescope_work::step::{Operation, encode, step};
use serde::Serialize;

/// No larger batch is looked at.
const MOST_SEQUENCES: u64 = 4096;
/// The knee: the smallest batch with this share of the highest throughput.
pub const KNEE: f64 = 0.8;

/// What one batch size takes in time and memory, and whether it fits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchRow {
    /// Sequences at once: a power of two, the largest batch that is looked at, or the one asked for.
    pub batch: u64,
    /// Time to first token in nanoseconds.
    pub ttft_ns: Option<Estimate>,
    /// Time per output token in nanoseconds.
    pub tpot_ns: Option<Estimate>,
    /// Nanoseconds for an output token that no program can undercut, however it fuses its kernels.
    pub tpot_least_ns: Option<f64>,
    /// Output tokens a second of all sequences, after the first ones.
    pub tokens_per_s: Option<f64>,
    /// The same at `tpot_least_ns`: more than any program reaches.
    pub tokens_per_s_most: Option<f64>,
    /// Bytes on each device.
    pub memory: f64,
    /// Whether that is there; `None` if the device's memory is not known.
    pub fits: Option<bool>,
    /// What decides a token's time.
    pub bound: Option<Bound>,
}

/// The model in one format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variant {
    /// Name of the format.
    pub format: &'static str,
    /// Bits a weight, scales included.
    pub bits: f64,
    /// Bytes of all weights on each device.
    pub weights: f64,
    /// Time to first token in nanoseconds.
    pub ttft_ns: Option<f64>,
    /// Time per output token in nanoseconds.
    pub tpot_ns: Option<f64>,
    /// Time per output token of the chosen format ÷ that of this one.
    pub speedup: Option<f64>,
    /// The most sequences that fit.
    pub largest_batch: Option<u64>,
    /// What decides a token's time.
    pub bound: Option<Bound>,
}

/// Which batch to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The largest batch that keeps the goal and fits; `None` if there is none, or no goal.
    pub batch: Option<u64>,
    /// The smallest batch with four fifths of the highest throughput.
    pub knee: Option<u64>,
    /// Why this batch and no larger one, or why none, in words.
    pub reason: String,
}

/// A prediction that rests on datasheets or measured peaks alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// Dimensions of the model that is predicted.
    pub model: ModelShape,
    /// All its parameters, by the dimensions; a table shared by embedding and head counts once.
    pub parameters: u64,
    /// Those that a token uses.
    pub active_parameters: u64,
    /// The device with the peaks that the prediction rests on; of several, each is such a one.
    pub device: Device,
    /// Formats, batch, tokens, number of devices and goal that the prediction is for.
    pub scenario: Scenario,
    /// Processing the prompts, to the first token.
    pub prefill: StepPrediction,
    /// One token of each sequence.
    pub decode: StepPrediction,
    /// Output tokens a second of all sequences, after the first ones.
    pub tokens_per_s: Option<f64>,
    /// Bytes that one device needs, for weights and for each sequence.
    pub memory: MemoryNeed,
    /// Bytes there, as far as the model can have them; `None` if it is not known.
    pub usable_memory: Option<f64>,
    /// The most sequences that fit.
    pub largest_batch: Option<u64>,
    /// Batches of powers of two up to that.
    pub batches: Vec<BatchRow>,
    /// Which batch to run.
    pub recommended: Recommendation,
    /// Other formats of the weights.
    pub variants: Vec<Variant>,
    /// The same from measured kernels, if some were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_kernels: Option<FromKernels>,
    /// What the figures rest on.
    pub assumptions: Vec<String>,
    /// What could not be told, and why.
    pub missing: Vec<String>,
    /// What is asked of the model beyond what it can do.
    pub warnings: Vec<String>,
}

impl Outlook {
    /// Predicts `scenario` for `shape` on `device`.
    pub fn of(shape: &ModelShape, device: &Device, scenario: &Scenario) -> Self {
        let Latencies { prefill, decode, mut missing } = latencies(shape, device, scenario);
        let memory = need(shape, device, scenario);
        let usable_memory = scenario.memory.or(device.memory).map(|bytes| bytes * scenario.memory_share);
        if usable_memory.is_none() {
            missing.push(format!("the memory of {} depends on the machine: give --memory-gb", device.name));
        }
        let largest_batch = usable_memory.map(|bytes| memory.largest_batch(bytes));
        let batches = batches(shape, device, scenario, usable_memory, largest_batch);
        let recommended = recommend(shape, device, scenario, &batches, largest_batch);
        let variants = variants(shape, device, scenario, usable_memory, &decode);
        Self {
            parameters: shape.parameters(),
            active_parameters: shape.active_parameters(),
            tokens_per_s: throughput(scenario.batch, decode.ns),
            assumptions: assumptions(shape, device, scenario),
            warnings: warnings(shape, scenario),
            model: shape.clone(),
            device: device.clone(),
            scenario: scenario.clone(),
            prefill,
            decode,
            memory,
            usable_memory,
            largest_batch,
            batches,
            recommended,
            variants,
            from_kernels: None,
            missing,
        }
    }

    /// Output tokens a second of all sequences at another batch.
    pub fn tokens_per_s_at(&self, batch: u64) -> Option<f64> {
        let (_, tpot) = step_times(&self.model, &self.device, &self.scenario.clone().batch(batch));
        throughput(batch, tpot)
    }

    /// Predicts the same from measured kernels as well.
    #[must_use]
    pub fn with_kernels(mut self, study: &KernelStudy) -> Self {
        let steps = [&self.prefill, &self.decode];
        self.from_kernels = Some(from_kernels(&self.model, &self.device, &self.scenario, steps, study));
        self
    }

    /// Every kernel that both steps are made of, as `bench kernels` measures them; none where it has none for the
    /// model: for devices that share matrices, and for models with an encoder.
    pub fn kernels(&self) -> Vec<KernelShape> {
        kernel_shapes(&self.model, &self.device, &self.scenario, [&self.prefill, &self.decode])
    }

    /// Says how the model was asked for (`smollm2-135m`, a file, a run), so that what measured kernels lack is named in
    /// one command. A model that is not a run needs what was asked of it as well.
    #[must_use]
    pub fn asked_as(mut self, target: &str, is_run: bool) -> Self {
        let asked = (!is_run).then(|| {
            format!(
                " --batch {} --prompt {} --context {} --dtype {}",
                self.scenario.batch,
                self.scenario.prompt,
                self.scenario.told_context(&self.model),
                self.scenario.weights.name
            )
        });
        let device = if self.device.kind == DeviceKind::Cpu { "" } else { " --device cuda:0" };
        if let Some(found) = self.from_kernels.as_mut().filter(|found| !found.to_measure.is_empty()) {
            let asked = asked.unwrap_or_default();
            // No command can hold a NUL byte.
            let target = shlex::try_quote(target).ok();
            found.measure_all = target.map(|target| format!("candlescope bench kernels --for {target}{asked}{device}"));
        }
        self
    }
}

/// The two steps of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Latencies {
    /// The prompts, to the first token.
    pub(super) prefill: StepPrediction,
    /// One token at the context that is told.
    pub(super) decode: StepPrediction,
    /// What could not be told, and why.
    pub(super) missing: Vec<String>,
}

/// Both steps, and nothing else.
pub(super) fn latencies(shape: &ModelShape, device: &Device, scenario: &Scenario) -> Latencies {
    let storage = scenario.storage(device);
    let (first, token) = operations(shape, device, scenario);
    let mut missing = Vec::new();
    let prefill = predict(first, device, &storage, &mut missing);
    let decode = predict(token, device, &storage, &mut missing);
    Latencies { prefill, decode, missing }
}

/// Time to first token and time per output token of a scenario in nanoseconds, without the rest of an [`Outlook`];
/// `None` where the device lacks a figure.
pub fn step_times(shape: &ModelShape, device: &Device, scenario: &Scenario) -> (Option<Estimate>, Option<Estimate>) {
    let Latencies { prefill, decode, .. } = latencies(shape, device, scenario);
    (prefill.ns, decode.ns)
}

/// The operations of both steps: of the prompts to the first token, and of one token at the context that is told.
pub(super) fn operations(shape: &ModelShape, device: &Device, scenario: &Scenario) -> (Vec<Operation>, Vec<Operation>) {
    let widths = scenario.storage(device).widths;
    let [first, token] = scenario.inputs(shape);
    let devices = scenario.devices;
    let mut prefill = encode(shape, scenario.batch, scenario.prompt, widths, devices);
    prefill.extend(step(shape, first, widths, devices));
    (prefill, step(shape, token, widths, devices))
}

fn need(shape: &ModelShape, device: &Device, scenario: &Scenario) -> MemoryNeed {
    MemoryNeed::of(shape, scenario.storage(device).widths, scenario.prompt, scenario.longest(shape), scenario.devices)
}

fn throughput(batch: u64, tpot: Option<Estimate>) -> Option<f64> {
    tpot.filter(|cost| cost.mid > 0.0).map(|cost| batch as f64 / cost.mid * 1e9)
}

fn batch_row(shape: &ModelShape, device: &Device, scenario: &Scenario, usable: Option<f64>, batch: u64) -> BatchRow {
    let scenario = scenario.clone().batch(batch);
    let Latencies { prefill, decode, .. } = latencies(shape, device, &scenario);
    let memory = need(shape, device, &scenario).total(batch);
    BatchRow {
        batch,
        ttft_ns: prefill.ns,
        tpot_ns: decode.ns,
        tpot_least_ns: decode.least_ns,
        tokens_per_s: throughput(batch, decode.ns),
        tokens_per_s_most: decode.least_ns.filter(|ns| *ns > 0.0).map(|ns| batch as f64 / ns * 1e9),
        memory,
        fits: usable.map(|usable| memory <= usable),
        bound: decode.bound,
    }
}

/// Powers of two up to the largest batch that fits (or 256, if memory is not known), that one, and the one asked for.
fn batches(
    shape: &ModelShape,
    device: &Device,
    scenario: &Scenario,
    usable: Option<f64>,
    largest: Option<u64>,
) -> Vec<BatchRow> {
    let most = largest.unwrap_or(256).clamp(1, MOST_SEQUENCES);
    let mut sizes: Vec<u64> = (0..).map(|power| 1 << power).take_while(|batch| *batch <= most).collect();
    sizes.extend([most, scenario.batch]);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().map(|batch| batch_row(shape, device, scenario, usable, batch)).collect()
}

fn recommend(
    shape: &ModelShape,
    device: &Device,
    scenario: &Scenario,
    rows: &[BatchRow],
    largest: Option<u64>,
) -> Recommendation {
    let fitting = || rows.iter().filter(|row| row.fits != Some(false));
    let highest = fitting().filter_map(|row| row.tokens_per_s).fold(0.0, f64::max);
    let reaches = |rate: Option<f64>| rate.is_some_and(|rate| highest > 0.0 && rate >= KNEE * highest);
    let knee = fitting().position(|row| reaches(row.tokens_per_s)).map(|at| {
        // Between this row and the one before, which does not reach it, throughput rises with the batch.
        let rows: Vec<&BatchRow> = fitting().collect();
        let (mut low, mut high) = (at.checked_sub(1).map_or(0, |before| rows[before].batch), rows[at].batch);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let (_, tpot) = step_times(shape, device, &scenario.clone().batch(middle));
            if reaches(throughput(middle, tpot)) { high = middle } else { low = middle }
        }
        high
    });
    let goal = scenario.goal;
    let none = |reason: &str| Recommendation { batch: None, knee, reason: reason.to_string() };
    if goal.ttft_ns.is_none() && goal.tpot_ns.is_none() {
        return none("no goal was given: --slo ttft=TIME,tpot=TIME");
    }
    if largest == Some(0) {
        return none("not even one sequence fits beside the weights");
    }
    // Latency does not fall with the batch, so the largest batch that keeps the goal is found by halving.
    let keeps = |batch: u64| misses(shape, device, scenario, batch).is_empty();
    let alone = misses(shape, device, scenario, 1);
    if !alone.is_empty() {
        return none(&format!("one sequence alone misses the goal: {}", alone.join("; ")));
    }
    let (mut good, mut bad) = (1, largest.unwrap_or(MOST_SEQUENCES).min(MOST_SEQUENCES) + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if keeps(middle) { good = middle } else { bad = middle }
    }
    let limit = match largest {
        Some(most) if most == good => "memory ends it",
        _ if good == MOST_SEQUENCES => "larger ones were not looked at",
        _ => {
            let missed = misses(shape, device, scenario, good + 1).join("; ");
            let reason = format!("the largest batch that keeps the goal; with one more sequence {missed}");
            return Recommendation { batch: Some(good), knee, reason };
        }
    };
    Recommendation { batch: Some(good), knee, reason: format!("the largest batch that keeps the goal; {limit}") }
}

/// Which limits of the goal a batch misses, with its time.
fn misses(shape: &ModelShape, device: &Device, scenario: &Scenario, batch: u64) -> Vec<String> {
    let (ttft, tpot) = step_times(shape, device, &scenario.clone().batch(batch));
    let one = |name: &str, time: Option<Estimate>, most: Option<f64>| match (time, most) {
        (_, None) => None,
        (None, Some(_)) => Some(format!("{name} is not known")),
        (Some(time), Some(most)) => (time.mid > most).then(|| {
            let ms = |ns: f64| format!("{:.3} ms", ns / 1e6);
            format!("{name} is {}, the limit {}", ms(time.mid), ms(most))
        }),
    };
    let missed = [one("ttft", ttft, scenario.goal.ttft_ns), one("tpot", tpot, scenario.goal.tpot_ns)];
    missed.into_iter().flatten().collect()
}

fn variants(
    shape: &ModelShape,
    device: &Device,
    scenario: &Scenario,
    usable: Option<f64>,
    chosen: &StepPrediction,
) -> Vec<Variant> {
    let variant = |format: &Format| {
        let scenario = scenario.clone().in_format(*format);
        let Latencies { prefill, decode, .. } = latencies(shape, device, &scenario);
        let memory = need(shape, device, &scenario);
        Variant {
            format: format.name,
            bits: format.bits,
            weights: memory.weights,
            ttft_ns: prefill.ns.map(|ns| ns.mid),
            tpot_ns: decode.ns.map(|ns| ns.mid),
            speedup: chosen.ns.zip(decode.ns).map(|(chosen, own)| chosen.mid / own.mid),
            largest_batch: usable.map(|usable| memory.largest_batch(usable)),
            bound: decode.bound,
        }
    };
    FORMATS.iter().map(variant).collect()
}
