//! What is fitted, and how far a prediction with it is from what was measured.

use super::calibration_run::{CalibrationRun, Form};
use super::search::{self, Residuals};
use crate::roofline::latency_figures::Figure;
use crate::roofline::outlook::operations;
use crate::roofline::predict::{StepTimes, step_times};
use crate::roofline::scenario::Storage;
use candlescope_work::devices::{AttainedRates, ByClass, Device, DeviceKind, Multiply, OperationClass, Origin};
use candlescope_work::estimate::Estimate;
use candlescope_work::step::Operation;
use std::collections::BTreeMap;

/// Errors beyond this share count with their size, not with its square: one run that was disturbed must not decide.
const WILD: f64 = 0.10;
/// How little a value is drawn to where the search begins: what the runs do not feel stays there.
const DRAWN: f64 = 0.02;
/// Steps of index arithmetic a second of a device without a datasheet, an H200's.
const INDEX_RATE: f64 = 4.8e11;
/// Share of the rate at which weights are read that products of unaligned rows begin with: GPT-2's head reached it with
/// 8 to 32 rows on an H200.
const UNALIGNED: f64 = 0.2;
/// Shortest times of a processor's operation, in nanoseconds, from which the search begins as well: beside the valley
/// without one there can be another, tens of microseconds away, that random starting points may miss.
const FLOORS: [f64; 4] = [3_000.0, 10_000.0, 30_000.0, 100_000.0];
/// A parameter is determined if halving or doubling it changes some prediction by this share.
const FELT: f64 = 0.01;

/// What is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Parameter {
    /// Bytes/s; of one kind of operations in the finer form.
    Bandwidth(Option<OperationClass>),
    /// FLOP/s of products with weights, and of all in the coarser form.
    Flops(Multiply),
    /// Bytes/s of attention's products from several tokens at once.
    PromptAttention,
    /// FLOP/s of attention's products.
    AttentionFlops,
    /// The shortest time of a kernel, in the coarser form.
    Floor,
    /// Bytes/s of copying weights into panels, on a processor.
    Panels,
    /// What a product takes beside its work.
    Product,
    /// What another kernel takes beside its work.
    Kernel,
    /// What a strided operand costs beyond that.
    Strided,
    /// Steps of index arithmetic a second.
    Index,
    /// Bytes/s of products of several rows with matrices whose rows do not end on 16 bytes.
    Unaligned,
    /// One of a thread's loads.
    Serial,
    /// A launch on the host.
    Launch,
    /// What a product's launch costs beyond that.
    ProductLaunch,
    /// What a strided operand costs beyond that.
    StridedLaunch,
    /// What launching the sum of a divided product costs.
    DividedLaunch,
    /// What lies between two kernels on the device.
    Gap,
    /// Waiting for a token.
    Sync,
    /// What recording a launch costs, which nothing is predicted with.
    Recording,
}

/// A device, and what it costs the host to record a launch to it.
pub(super) struct Candidate {
    pub(super) device: Device,
    recording_ns: f64,
}

/// What a run is compared by: the operations of its two steps, and its figures with their weights.
pub(super) struct ObservedRun {
    /// Number of its case, which repetitions share.
    pub(super) case: usize,
    prefill: Vec<Operation>,
    decode: Vec<Operation>,
    storage: Storage,
    multiply: Multiply,
    /// Nanoseconds measured, and the weight of the square of its error.
    pub(super) figures: Vec<(Figure, f64, f64)>,
}

impl ObservedRun {
    pub(super) fn of(run: &CalibrationRun, device: &Device, case: usize) -> Self {
        let (prefill, decode) = operations(&run.shape, device, &run.scenario);
        Self {
            case,
            prefill,
            decode,
            storage: run.scenario.storage(device),
            multiply: device.multiplies(run.scenario.weights.multiply),
            figures: weighted(&run.measured),
        }
    }

    /// Nanoseconds predicted for each of its figures; empty if the device lacks something.
    pub(super) fn predicted(&self, candidate: &Candidate) -> Vec<f64> {
        self.times(candidate).map_or_else(Vec::new, |times| self.of_times(&times).collect())
    }

    fn times(&self, candidate: &Candidate) -> Option<[StepTimes; 2]> {
        let of = |step| {
            let times = step_times(step, &candidate.device, &self.storage)?;
            Some(StepTimes { launches: times.launches.recorded(candidate.recording_ns), ..times })
        };
        Some([of(&self.prefill)?, of(&self.decode)?])
    }

    fn of_times<'a>(&'a self, [prefill, decode]: &'a [StepTimes; 2]) -> impl Iterator<Item = f64> + 'a {
        self.figures.iter().map(|(figure, ..)| figure.of_times(if figure.is_prefill() { prefill } else { decode }))
    }
}

/// Latencies count once. Of kernels, each kind counts by its share of its step, so that they count once together; the
/// sum of all says nothing more. Launches count once together, too.
fn weighted(measured: &[(Figure, f64)]) -> Vec<(Figure, f64, f64)> {
    let kinds = |prefill: bool| -> f64 {
        let own = measured.iter().filter(|(figure, _)| {
            matches!(figure, Figure::PrefillOf(_) | Figure::DecodeOf(_)) && figure.is_prefill() == prefill
        });
        own.map(|(_, ns)| ns).sum()
    };
    let (prefill, decode) = (kinds(true), kinds(false));
    let launches = measured.iter().filter(|(figure, _)| matches!(figure, Figure::Launch(_))).count();
    let weight = |figure: Figure, ns: f64| match figure {
        Figure::Ttft | Figure::Tpot => 1.0,
        Figure::PrefillKernels => f64::from(u8::from(prefill <= 0.0)),
        Figure::DecodeKernels => f64::from(u8::from(decode <= 0.0)),
        Figure::PrefillOf(_) => ns / prefill,
        Figure::DecodeOf(_) => ns / decode,
        Figure::Launch(_) => 1.0 / launches as f64,
    };
    measured.iter().map(|(figure, ns)| (*figure, *ns, weight(*figure, *ns))).collect()
}

/// The parameters of a form on a device.
pub(super) struct Fit {
    pub(super) form: Form,
    pub(super) parameters: Vec<Parameter>,
    /// Logarithms of the values to begin with: rates that were reached, and usual costs.
    start: Vec<f64>,
    base: Device,
}

/// Some runs, of which each can count several times, with the parameters that are fitted to them.
struct FitSample<'a> {
    fit: &'a Fit,
    runs: &'a [&'a ObservedRun],
}

impl Residuals for FitSample<'_> {
    fn of(&self, values: &[f64]) -> Vec<f64> {
        let candidate = self.fit.candidate(values);
        let mut all = Vec::new();
        let mut known: Option<(usize, [StepTimes; 2])> = None;
        for run in self.runs {
            let times = match known {
                Some((case, times)) if case == run.case => Some(times),
                _ => run.times(&candidate),
            };
            let Some(times) = times else { continue };
            known = Some((run.case, times));
            for (predicted, (_, ns, weight)) in run.of_times(&times).zip(&run.figures) {
                if *weight > 0.0 {
                    all.push(weight.sqrt() * tamed((predicted / ns).ln()));
                }
            }
        }
        all.extend(values.iter().zip(&self.fit.start).map(|(value, start)| DRAWN * (value - start)));
        all
    }
}

/// A residual whose square is Huber's loss.
fn tamed(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= WILD { residual } else { residual.signum() * (2.0 * WILD * size - WILD * WILD).sqrt() }
}

impl Fit {
    /// The form for a device, as far as these runs know of it: rates of what none of them multiplied are not fitted.
    pub(super) fn new(form: Form, runs: &[&ObservedRun], device: &Device) -> Self {
        let mut base = Device {
            origin: Origin::Measured,
            disturbed: false,
            sync: None,
            index_rate: None,
            panel_rate: None,
            panels_in_turn: device.kind == DeviceKind::Cpu,
            attained: None,
            ..device.clone()
        };
        base.flops.clear();
        // What was reached is the least that a peak can be.
        let (mut bandwidth, mut flops) = (1.0f64, BTreeMap::<Multiply, f64>::new());
        for run in runs {
            let reached = flops.entry(run.multiply).or_insert(1.0);
            for (figure, ns, _) in run.figures.iter().filter(|(figure, ..)| {
                figure.is_latency() || matches!(figure, Figure::PrefillKernels | Figure::DecodeKernels)
            }) {
                let step = if figure.is_prefill() { &run.prefill } else { &run.decode };
                let sum = |of: &dyn Fn(&Operation) -> f64| step.iter().map(|o| o.calls * of(o)).sum::<f64>();
                bandwidth = bandwidth.max(sum(&|o| o.cost.bytes()) / ns * 1e9);
                *reached = reached.max(sum(&|o| o.cost.flops) / ns * 1e9);
            }
        }
        let on_gpu = base.kind == DeviceKind::Gpu;
        let mut all: Vec<(Parameter, f64)> = match form {
            Form::Roof => vec![(Parameter::Bandwidth(None), bandwidth), (Parameter::Floor, 1_000.0)],
            Form::Attained => {
                let rates = OperationClass::ALL.map(|class| (Parameter::Bandwidth(Some(class)), bandwidth));
                let most = flops.values().copied().fold(1.0, f64::max);
                let costs = [
                    (Parameter::PromptAttention, bandwidth),
                    (Parameter::AttentionFlops, most),
                    (Parameter::Product, 3_000.0),
                    (Parameter::Kernel, 1_000.0),
                ];
                rates.into_iter().chain(costs).collect()
            }
        };
        all.extend(flops.into_iter().map(|(kind, reached)| (Parameter::Flops(kind), reached)));
        let copied = |run: &&ObservedRun| run.prefill.iter().chain(&run.decode).any(|o| o.panel_bytes > 0.0);
        if base.kind == DeviceKind::Cpu && runs.iter().any(copied) {
            all.push((Parameter::Panels, bandwidth));
        }
        if on_gpu {
            all.push((Parameter::Launch, 5_000.0));
        }
        if on_gpu && form == Form::Attained {
            all.extend([
                (Parameter::Strided, 2_000.0),
                (Parameter::Index, device.index_rate.unwrap_or(INDEX_RATE)),
                (Parameter::Unaligned, bandwidth * UNALIGNED),
                (Parameter::Serial, 250.0),
                (Parameter::ProductLaunch, 3_000.0),
                (Parameter::StridedLaunch, 3_000.0),
                (Parameter::DividedLaunch, 3_000.0),
                (Parameter::Gap, 1_000.0),
                (Parameter::Sync, 30_000.0),
            ]);
        }
        let recorded = |run: &&ObservedRun| run.figures.iter().any(|(figure, ..)| matches!(figure, Figure::Launch(_)));
        if on_gpu && runs.iter().any(recorded) {
            all.push((Parameter::Recording, 1_500.0));
        }
        let (parameters, start): (Vec<_>, Vec<f64>) = all.into_iter().map(|(p, v)| (p, v.ln())).unzip();
        Self { form, parameters, start, base }
    }

    /// The same without the shortest time of an operation: on a processor, where nothing is launched, runs often do not
    /// tell it from a lower bandwidth. `None` where it is not fitted, or is a launched kernel's.
    pub(super) fn without_floor(&self) -> Option<Self> {
        let at = self.parameters.iter().position(|parameter| *parameter == Parameter::Floor)?;
        if self.base.kind != DeviceKind::Cpu {
            return None;
        }
        let (mut parameters, mut start) = (self.parameters.clone(), self.start.clone());
        parameters.remove(at);
        start.remove(at);
        let base = Device { kernel_floor: None, kernel_least: None, ..self.base.clone() };
        Some(Self { form: self.form, parameters, start, base })
    }

    /// Values of [`without_floor`](Self::without_floor), each time with one of [`FLOORS`].
    pub(super) fn with_floors(&self, values: &[f64]) -> Vec<Vec<f64>> {
        let at = self.parameters.iter().position(|parameter| *parameter == Parameter::Floor);
        let Some(at) = at.filter(|at| *at <= values.len()) else { return Vec::new() };
        let with = |floor: f64| {
            let mut values = values.to_vec();
            values.insert(at, floor.ln());
            values
        };
        FLOORS.map(with).into()
    }

    pub(super) fn candidate(&self, values: &[f64]) -> Candidate {
        let (mut device, mut recording_ns) = (self.base.clone(), 0.0);
        let mut attained = AttainedRates {
            bandwidth: ByClass::all(1.0),
            prompt_attention_bandwidth: None,
            attention_flops: 1.0,
            product_ns: 0.0,
            kernel_ns: 0.0,
            strided_ns: 0.0,
            unaligned_bandwidth: None,
            serial_ns: 0.0,
            product_launch_ns: 0.0,
            strided_launch_ns: 0.0,
            divided_launch_ns: None,
            gap_ns: 0.0,
        };
        for (parameter, value) in self.parameters.iter().zip(values) {
            let value = value.exp();
            match parameter {
                Parameter::Bandwidth(None) => device.bandwidth = value,
                Parameter::Bandwidth(Some(class)) => *attained.bandwidth.of_mut(*class) = value,
                Parameter::Flops(kind) => {
                    device.flops.insert(*kind, value);
                }
                Parameter::PromptAttention => attained.prompt_attention_bandwidth = Some(value),
                Parameter::AttentionFlops => attained.attention_flops = value,
                Parameter::Floor => (device.kernel_floor, device.kernel_least) = (Some(value), None),
                Parameter::Panels => device.panel_rate = Some(value),
                Parameter::Product => attained.product_ns = value,
                Parameter::Kernel => attained.kernel_ns = value,
                Parameter::Strided => attained.strided_ns = value,
                Parameter::Index => device.index_rate = Some(value),
                Parameter::Unaligned => attained.unaligned_bandwidth = Some(value),
                Parameter::Serial => attained.serial_ns = value,
                Parameter::Launch => device.launch = Some(Estimate::exact(value)),
                Parameter::ProductLaunch => attained.product_launch_ns = value,
                Parameter::StridedLaunch => attained.strided_launch_ns = value,
                Parameter::DividedLaunch => attained.divided_launch_ns = Some(value),
                Parameter::Gap => attained.gap_ns = value,
                Parameter::Sync => device.sync = Some(value),
                Parameter::Recording => recording_ns = value,
            }
        }
        // Attention multiplies 16-bit floats beside quantised weights: the slowest rate that was fitted stands in.
        let least = device.flops.values().copied().fold(f64::INFINITY, f64::min);
        device.flops.entry(Multiply::F32).or_insert(least);
        if self.form == Form::Attained {
            device.bandwidth = attained.bandwidth.projections;
            (device.kernel_floor, device.kernel_least) = (Some(attained.kernel_ns), None);
            device.attained = Some(attained);
        }
        Candidate { device, recording_ns }
    }

    /// The values that fit these runs best, wherever they lie.
    pub(super) fn search(&self, runs: &[&ObservedRun]) -> Vec<f64> {
        let wide = |parameter: &Parameter, start: f64| match parameter {
            Parameter::Bandwidth(Some(_)) => (start - 16f64.ln(), start + 8f64.ln()),
            Parameter::Bandwidth(None) | Parameter::Flops(_) => (start, start + 16f64.ln()),
            Parameter::AttentionFlops => (start - 64f64.ln(), start + 4f64.ln()),
            _ => (start - 16f64.ln(), start + 16f64.ln()),
        };
        let range: Vec<(f64, f64)> = self.parameters.iter().zip(&self.start).map(|(p, s)| wide(p, *s)).collect();
        search::search(&FitSample { fit: self, runs }, &self.start, &range, 0x5eed)
    }

    /// The same, from values near them.
    pub(super) fn search_from(&self, runs: &[&ObservedRun], values: &[f64]) -> Vec<f64> {
        search::from(&FitSample { fit: self, runs }, values.to_vec()).1
    }

    /// Σ weight · log²(predicted ÷ measured), and the number of figures that count.
    pub(super) fn squares(&self, runs: &[&ObservedRun], values: &[f64]) -> (f64, usize) {
        let candidate = self.candidate(values);
        let (mut sum, mut n) = (0.0, 0);
        for run in runs {
            for (predicted, (_, ns, weight)) in run.predicted(&candidate).into_iter().zip(&run.figures) {
                sum += weight * (predicted / ns).ln().powi(2);
                n += usize::from(*weight > 0.0);
            }
        }
        (sum, n)
    }

    /// Which parameters the runs feel.
    pub(super) fn felt(&self, runs: &[&ObservedRun], values: &[f64]) -> Vec<bool> {
        let all = |values: &[f64]| -> Vec<f64> {
            let candidate = self.candidate(values);
            runs.iter().flat_map(|run| run.predicted(&candidate)).collect()
        };
        let now = all(values);
        let feels = |at: usize, factor: f64| {
            let mut moved = values.to_vec();
            moved[at] += factor.ln();
            all(&moved).iter().zip(&now).any(|(moved, now)| (moved / now - 1.0).abs() > FELT)
        };
        // A peak could be higher without anybody noticing; only lower ones would be felt then.
        (0..values.len()).map(|at| feels(at, 0.5) && feels(at, 2.0)).collect()
    }
}
