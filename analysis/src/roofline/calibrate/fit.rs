//! What is fitted, and how far a prediction with it is from what was measured.

use super::search::{self, Residuals};
use super::{CalibrationRun, Form};
use crate::devices::{Attained, ByClass, Cost, Device, DeviceKind, Multiply, OperationClass, Origin};
use crate::roofline::latency_figures::Figure;
use crate::roofline::outlook::operations;
use crate::roofline::predict::{StepTimes, step_times};
use crate::roofline::work::{Operation, Storage};
use std::collections::BTreeMap;

/// Errors beyond this share count with their size, not with its square: one run that was disturbed must not decide.
const WILD: f64 = 0.10;
/// How little a value is drawn to where the search begins, in the finer form: what the runs do not feel stays there.
const DRAWN: f64 = 0.02;
/// A parameter is determined if halving or doubling it changes some prediction by this share.
const FELT: f64 = 0.01;

/// What is fitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Parameter {
    /// Bytes/s; of one kind of operations in the finer form.
    Bandwidth(Option<OperationClass>),
    /// FLOP/s of products with weights, and of all in the coarser form.
    Flops(Multiply),
    /// FLOP/s of attention's products.
    AttentionFlops,
    /// The shortest time of a kernel, in the coarser form.
    Floor,
    /// What a product takes beside its work.
    Product,
    /// What another kernel takes beside its work.
    Kernel,
    /// One of a thread's loads.
    Serial,
    /// A launch on the host.
    Launch,
    /// What a product's launch costs beyond that.
    ProductLaunch,
    /// What a strided operand costs beyond that.
    StridedLaunch,
    /// Waiting for a token.
    Sync,
}

/// What a run is compared by: the operations of its two steps, and its figures with their weights.
pub(super) struct Observed {
    /// Number of its case, which repetitions share.
    case: usize,
    prefill: Vec<Operation>,
    decode: Vec<Operation>,
    storage: Storage,
    multiply: Multiply,
    /// Nanoseconds measured, and the weight of the square of its error.
    pub(super) figures: Vec<(Figure, f64, f64)>,
}

impl Observed {
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
    pub(super) fn predicted(&self, device: &Device) -> Vec<f64> {
        self.times(device).map_or_else(Vec::new, |times| self.of_times(&times).collect())
    }

    fn times(&self, device: &Device) -> Option<[StepTimes; 2]> {
        let of = |step| step_times(step, device, &self.storage);
        Some([of(&self.prefill)?, of(&self.decode)?])
    }

    fn of_times<'a>(&'a self, [prefill, decode]: &'a [StepTimes; 2]) -> impl Iterator<Item = f64> + 'a {
        self.figures.iter().map(|(figure, ..)| figure.of_times(if figure.is_prefill() { prefill } else { decode }))
    }
}

/// Latencies count once. Of kernels, each kind counts by its share of its step, so that they count once together; the
/// sum of all says nothing more.
fn weighted(measured: &[(Figure, f64)]) -> Vec<(Figure, f64, f64)> {
    let kinds = |prefill: bool| -> f64 {
        let own = measured.iter().filter(|(figure, _)| {
            matches!(figure, Figure::PrefillOf(_) | Figure::DecodeOf(_)) && figure.is_prefill() == prefill
        });
        own.map(|(_, ns)| ns).sum()
    };
    let (prefill, decode) = (kinds(true), kinds(false));
    let weight = |figure: Figure, ns: f64| match figure {
        Figure::Ttft | Figure::Tpot => 1.0,
        Figure::PrefillKernels => f64::from(u8::from(prefill <= 0.0)),
        Figure::DecodeKernels => f64::from(u8::from(decode <= 0.0)),
        Figure::PrefillOf(_) => ns / prefill,
        Figure::DecodeOf(_) => ns / decode,
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
struct Compared<'a> {
    fit: &'a Fit,
    runs: &'a [&'a Observed],
}

impl Residuals for Compared<'_> {
    fn of(&self, values: &[f64]) -> Vec<f64> {
        let device = self.fit.device(values);
        let mut all = Vec::new();
        let mut known: Option<(usize, [StepTimes; 2])> = None;
        for run in self.runs {
            let times = match known {
                Some((case, times)) if case == run.case => Some(times),
                _ => run.times(&device),
            };
            let Some(times) = times else { continue };
            known = Some((run.case, times));
            for (predicted, (_, ns, weight)) in run.of_times(&times).zip(&run.figures) {
                if *weight > 0.0 {
                    all.push(weight.sqrt() * tamed((predicted / ns).ln()));
                }
            }
        }
        if self.fit.form == Form::Attained {
            all.extend(values.iter().zip(&self.fit.start).map(|(value, start)| DRAWN * (value - start)));
        }
        all
    }
}

/// A residual whose square is Huber's loss.
fn tamed(residual: f64) -> f64 {
    let size = residual.abs();
    if size <= WILD { residual } else { residual.signum() * (2.0 * WILD * size - WILD * WILD).sqrt() }
}

impl Fit {
    pub(super) fn new(form: Form, runs: &[Observed], device: &Device) -> Self {
        let mut base = Device { origin: Origin::Measured, sync: None, attained: None, ..device.clone() };
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
                bandwidth = bandwidth.max(sum(&Operation::bytes) / ns * 1e9);
                *reached = reached.max(sum(&|o| o.flops) / ns * 1e9);
            }
        }
        let on_gpu = base.kind == DeviceKind::Gpu;
        let mut all: Vec<(Parameter, f64)> = match form {
            Form::Roof => vec![(Parameter::Bandwidth(None), bandwidth), (Parameter::Floor, 1_000.0)],
            Form::Attained => {
                let rates = OperationClass::ALL.map(|class| (Parameter::Bandwidth(Some(class)), bandwidth));
                let most = flops.values().copied().fold(1.0, f64::max);
                let costs =
                    [(Parameter::AttentionFlops, most), (Parameter::Product, 3_000.0), (Parameter::Kernel, 1_000.0)];
                rates.into_iter().chain(costs).collect()
            }
        };
        all.extend(flops.into_iter().map(|(kind, reached)| (Parameter::Flops(kind), reached)));
        if on_gpu {
            all.push((Parameter::Launch, 5_000.0));
        }
        if on_gpu && form == Form::Attained {
            all.extend([
                (Parameter::Serial, 250.0),
                (Parameter::ProductLaunch, 3_000.0),
                (Parameter::StridedLaunch, 3_000.0),
                (Parameter::Sync, 30_000.0),
            ]);
        }
        let (parameters, start): (Vec<_>, Vec<f64>) = all.into_iter().map(|(p, v)| (p, v.ln())).unzip();
        Self { form, parameters, start, base }
    }

    pub(super) fn device(&self, values: &[f64]) -> Device {
        let mut device = self.base.clone();
        let mut attained = Attained {
            bandwidth: ByClass::all(1.0),
            attention_flops: 1.0,
            product_ns: 0.0,
            kernel_ns: 0.0,
            serial_ns: 0.0,
            product_launch_ns: 0.0,
            strided_launch_ns: 0.0,
        };
        for (parameter, value) in self.parameters.iter().zip(values) {
            let value = value.exp();
            match parameter {
                Parameter::Bandwidth(None) => device.bandwidth = value,
                Parameter::Bandwidth(Some(class)) => *attained.bandwidth.of_mut(*class) = value,
                Parameter::Flops(kind) => {
                    device.flops.insert(*kind, value);
                }
                Parameter::AttentionFlops => attained.attention_flops = value,
                Parameter::Floor => device.kernel_floor = Some(value),
                Parameter::Product => attained.product_ns = value,
                Parameter::Kernel => attained.kernel_ns = value,
                Parameter::Serial => attained.serial_ns = value,
                Parameter::Launch => device.launch = Some(Cost::exact(value)),
                Parameter::ProductLaunch => attained.product_launch_ns = value,
                Parameter::StridedLaunch => attained.strided_launch_ns = value,
                Parameter::Sync => device.sync = Some(value),
            }
        }
        // Attention multiplies 16-bit floats beside quantised weights: the slowest rate that was fitted stands in.
        let least = device.flops.values().copied().fold(f64::INFINITY, f64::min);
        device.flops.entry(Multiply::F32).or_insert(least);
        if self.form == Form::Attained {
            device.bandwidth = attained.bandwidth.projections;
            device.kernel_floor = Some(attained.kernel_ns);
            device.attained = Some(attained);
        }
        device
    }

    /// The values that fit these runs best, wherever they lie.
    pub(super) fn search(&self, runs: &[&Observed]) -> Vec<f64> {
        let wide = |parameter: &Parameter, start: f64| match parameter {
            Parameter::Bandwidth(Some(_)) => (start - 16f64.ln(), start + 8f64.ln()),
            Parameter::Bandwidth(None) | Parameter::Flops(_) => (start, start + 16f64.ln()),
            Parameter::AttentionFlops => (start - 64f64.ln(), start + 4f64.ln()),
            _ => (start - 16f64.ln(), start + 16f64.ln()),
        };
        let range: Vec<(f64, f64)> = self.parameters.iter().zip(&self.start).map(|(p, s)| wide(p, *s)).collect();
        search::search(&Compared { fit: self, runs }, &self.start, &range, 0x5eed)
    }

    /// The same, from values near them.
    pub(super) fn search_from(&self, runs: &[&Observed], values: &[f64]) -> Vec<f64> {
        search::from(&Compared { fit: self, runs }, values.to_vec()).1
    }

    /// Σ weight · log²(predicted ÷ measured), and the number of figures that count.
    pub(super) fn squares(&self, runs: &[&Observed], values: &[f64]) -> (f64, usize) {
        let device = self.device(values);
        let (mut sum, mut n) = (0.0, 0);
        for run in runs {
            for (predicted, (_, ns, weight)) in run.predicted(&device).into_iter().zip(&run.figures) {
                sum += weight * (predicted / ns).ln().powi(2);
                n += usize::from(*weight > 0.0);
            }
        }
        (sum, n)
    }

    /// Which parameters the runs feel.
    pub(super) fn felt(&self, runs: &[&Observed], values: &[f64]) -> Vec<bool> {
        let all = |values: &[f64]| -> Vec<f64> {
            let device = self.device(values);
            runs.iter().flat_map(|run| run.predicted(&device)).collect()
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
