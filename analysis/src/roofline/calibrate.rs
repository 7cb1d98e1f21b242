//! Effective peaks, fitted to runs: what the datasheet does not know.
//!
//! The prediction's own parameters are fitted: bytes/s, FLOP/s by type, the shortest time of a kernel and, on a GPU,
//! the cost of a launch, so that the squares of log(predicted ÷ measured) over all latencies become smallest. A coarse
//! grid of starting points, then a search along the axes with ever smaller steps: the prediction is made of maxima, so
//! it has kinks and flat stretches, where methods with derivatives fail. Each run is then left out once (delete-one
//! jackknife): the fits without it give the intervals, and its own latencies, predicted from the others, the errors.

use super::latency_figures::{self, Figure};
use super::outlook::{Latencies, latencies};
use super::run_facts;
use super::scenario::Scenario;
use super::shape::ModelShape;
use crate::devices::Multiply;
use crate::devices::{Cost, Device, DeviceKind, Origin};
use crate::passes::Analysis;
use crate::passes::stats::student;
use serde::Serialize;
use std::collections::BTreeMap;

/// Fewest runs for intervals and errors: with fewer, leaving one out leaves too little.
const FEWEST_RUNS: usize = 3;
/// A parameter is determined if halving or doubling it changes some prediction by this share.
const FELT: f64 = 0.01;
/// Starting points that are followed.
const STARTS: usize = 6;

/// What one run contributes.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationRun {
    /// Its name.
    pub name: String,
    /// Its model.
    pub shape: ModelShape,
    /// What it was asked.
    pub scenario: Scenario,
    /// Nanoseconds measured.
    pub measured: Vec<(Figure, f64)>,
}

/// A parameter that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fitted {
    /// `read`, `flops`, `kernel_floor` or `launch`, as in a peaks file.
    pub kind: &'static str,
    /// Type of `flops`.
    pub dtype: Option<Multiply>,
    /// B/s, FLOP/s, or seconds.
    pub value: f64,
    /// 95 % interval by leaving out one run at a time; `None` with fewer than three runs.
    pub interval: Option<(f64, f64)>,
    /// Whether the runs determine it; if not, the value is where the search began, and says nothing.
    pub determined: bool,
}

/// A latency of a run, predicted from the other runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldOut {
    /// The run.
    pub run: String,
    /// Its model.
    pub model: String,
    /// Which latency.
    pub figure: Figure,
    /// Nanoseconds measured.
    pub measured_ns: f64,
    /// Nanoseconds predicted.
    pub predicted_ns: f64,
    /// Predicted ÷ measured − 1.
    pub error: f64,
}

/// Peaks fitted to runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The device with these peaks.
    pub device: Device,
    /// Runs.
    pub runs: usize,
    /// Latencies of them.
    pub latencies: usize,
    /// Every parameter.
    pub fitted: Vec<Fitted>,
    /// Root of the mean square of log(predicted ÷ measured), of the runs that were fitted.
    pub residual: f64,
    /// Errors of runs that were left out; empty with fewer than three runs.
    pub held_out: Vec<HeldOut>,
}

/// Runs cannot be calibrated with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// A run lacks something.
    #[error("the run `{run}` cannot be used: it lacks {lacks}. Record it with `candlescope profile`")]
    Lacks {
        /// The run.
        run: String,
        /// What it lacks.
        lacks: String,
    },
    /// Some ran on a GPU, some on a CPU.
    #[error("`{0}` did not run on the same kind of device as the runs before it: calibrate a device at a time")]
    Mixed(String),
    /// There is nothing to fit to.
    #[error("no run has a latency: record requests with `candlescope profile`")]
    Nothing,
}

impl CalibrationRun {
    /// What a run contributes, and the device it ran on as far as the run knows it.
    ///
    /// # Errors
    /// If the run does not say its model's dimensions or its tokens.
    pub fn of(name: &str, analysis: &Analysis) -> Result<(Self, Device), CalibrationError> {
        let lacks = |lacks: String| CalibrationError::Lacks { run: name.to_string(), lacks };
        let shape = run_facts::shape(&analysis.manifest).map_err(lacks)?;
        let scenario = run_facts::scenario(analysis).map_err(lacks)?;
        let found = latency_figures::measured(analysis, &shape);
        let measured: Vec<_> = found.into_iter().map(|(figure, ns, _)| (figure, ns)).collect();
        if measured.is_empty() {
            return Err(lacks("a request with a time to first token".to_string()));
        }
        let device = run_facts::bare_device(analysis);
        Ok((Self { name: name.to_string(), shape, scenario, measured }, device))
    }
}

/// What is fitted, in the order of the search's axes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Parameter {
    Bandwidth,
    Flops(Multiply),
    Floor,
    Launch,
}

/// Fits a device's peaks to runs. `device` says what kind it is, its memory and its link; its peaks are not used.
///
/// # Errors
/// If there is no latency to fit to.
pub fn calibrate(runs: &[CalibrationRun], device: &Device) -> Result<Calibration, CalibrationError> {
    let measured: usize = runs.iter().map(|run| run.measured.len()).sum();
    if measured == 0 {
        return Err(CalibrationError::Nothing);
    }
    let all: Vec<&CalibrationRun> = runs.iter().collect();
    let fit = Fit::new(&all, device);
    let best = fit.search(&all, &fit.start);
    let determined = fit.felt(&all, &best);
    // Without a run, the search goes on from where it is with all.
    let left_out: Vec<Vec<f64>> = if runs.len() < FEWEST_RUNS {
        Vec::new()
    } else {
        let others = |out: usize| -> Vec<&CalibrationRun> {
            all.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, run)| *run).collect()
        };
        (0..runs.len()).map(|out| fit.search(&others(out), &best)).collect()
    };
    let held_out = runs.iter().zip(&left_out).flat_map(|(run, values)| held_out(run, &fit.device(values))).collect();
    let fitted = fit.parameters.iter().enumerate().map(|(at, parameter)| {
        let unit = |log: f64| match parameter {
            Parameter::Floor | Parameter::Launch => log.exp() / 1e9,
            _ => log.exp(),
        };
        let (kind, dtype) = match parameter {
            Parameter::Bandwidth => ("read", None),
            Parameter::Flops(multiply) => ("flops", Some(*multiply)),
            Parameter::Floor => ("kernel_floor", None),
            Parameter::Launch => ("launch", None),
        };
        let interval = jackknife(best[at], left_out.iter().map(|values| values[at])).filter(|_| determined[at]);
        let interval = interval.map(|(low, high)| (unit(low), unit(high)));
        Fitted { kind, dtype, value: unit(best[at]), interval, determined: determined[at] }
    });
    let fitted = fitted.collect();
    let mut device = fit.device(&best);
    device.source = format!("fitted to {measured} latencies of {} runs", runs.len());
    device.launch_source = device.launch.map(|_| device.source.clone());
    let residual = (fit.loss(&all, &best) / measured as f64).sqrt();
    Ok(Calibration { device, runs: runs.len(), latencies: measured, fitted, residual, held_out })
}

/// A 95 % interval around `whole` from the values without one run each, by Student's t.
fn jackknife(whole: f64, without: impl ExactSizeIterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let n = without.len();
    if n < FEWEST_RUNS {
        return None;
    }
    let mean = without.clone().sum::<f64>() / n as f64;
    let squares: f64 = without.map(|value| (value - mean).powi(2)).sum();
    let half = student((n - 1) as f64) * (squares * (n - 1) as f64 / n as f64).sqrt();
    Some((whole - half, whole + half))
}

/// Nanoseconds, in the middle of the spread.
fn predicted(figure: Figure, by: &Latencies) -> Option<f64> {
    figure.predicted(&by.prefill, &by.decode).map(|cost| cost.mid)
}

fn held_out(run: &CalibrationRun, device: &Device) -> Vec<HeldOut> {
    let outlook = latencies(&run.shape, device, &run.scenario);
    let one = |(figure, measured_ns): &(Figure, f64)| {
        let predicted_ns = predicted(*figure, &outlook)?;
        Some(HeldOut {
            run: run.name.clone(),
            model: run.shape.name.clone(),
            figure: *figure,
            measured_ns: *measured_ns,
            predicted_ns,
            error: predicted_ns / measured_ns - 1.0,
        })
    };
    run.measured.iter().filter_map(one).collect()
}

struct Fit {
    parameters: Vec<Parameter>,
    /// Logarithms of the values to begin with: rates that were reached, and usual costs.
    start: Vec<f64>,
    base: Device,
}

impl Fit {
    fn new(runs: &[&CalibrationRun], device: &Device) -> Self {
        let mut base = Device { origin: Origin::Measured, sync: None, ..device.clone() };
        base.flops.clear();
        // What was reached is the least that a peak can be.
        let (mut bandwidth, mut flops) = (1.0f64, BTreeMap::<Multiply, f64>::new());
        for run in runs {
            let probe = Device { bandwidth: 1e9, ..device.clone() };
            let outlook = latencies(&run.shape, &probe, &run.scenario);
            let kind = device.multiplies(run.scenario.weights.multiply);
            let reached = flops.entry(kind).or_insert(1.0);
            for (figure, ns) in &run.measured {
                let step = match figure {
                    Figure::Ttft | Figure::PrefillKernels => &outlook.prefill,
                    Figure::Tpot | Figure::DecodeKernels => &outlook.decode,
                };
                bandwidth = bandwidth.max(step.bytes / ns * 1e9);
                *reached = reached.max(step.flops / ns * 1e9);
            }
        }
        let mut parameters = vec![(Parameter::Bandwidth, bandwidth), (Parameter::Floor, 1_000.0)];
        parameters.extend(flops.into_iter().map(|(kind, reached)| (Parameter::Flops(kind), reached)));
        if base.kind == DeviceKind::Gpu {
            parameters.push((Parameter::Launch, 5_000.0));
        }
        let (parameters, start): (Vec<_>, Vec<f64>) = parameters.into_iter().map(|(p, v)| (p, v.ln())).unzip();
        Self { parameters, start, base }
    }

    fn device(&self, values: &[f64]) -> Device {
        let mut device = self.base.clone();
        for (parameter, value) in self.parameters.iter().zip(values) {
            let value = value.exp();
            match parameter {
                Parameter::Bandwidth => device.bandwidth = value,
                Parameter::Flops(kind) => {
                    device.flops.insert(*kind, value);
                }
                Parameter::Floor => device.kernel_floor = Some(value),
                Parameter::Launch => device.launch = Some(Cost::exact(value)),
            }
        }
        // Attention multiplies 16-bit floats beside quantised weights: the slowest rate that was fitted stands in.
        let least = device.flops.values().copied().fold(f64::INFINITY, f64::min);
        device.flops.entry(Multiply::F32).or_insert(least);
        device
    }

    /// Σ log²(predicted ÷ measured).
    fn loss(&self, runs: &[&CalibrationRun], values: &[f64]) -> f64 {
        let device = self.device(values);
        let of = |run: &&CalibrationRun| -> f64 {
            let outlook = latencies(&run.shape, &device, &run.scenario);
            let squares =
                run.measured.iter().filter_map(|(figure, ns)| Some((predicted(*figure, &outlook)? / ns).ln().powi(2)));
            squares.sum()
        };
        runs.iter().map(of).sum()
    }

    fn search(&self, runs: &[&CalibrationRun], around: &[f64]) -> Vec<f64> {
        let mut starts: Vec<(f64, Vec<f64>)> =
            self.grid(around).into_iter().map(|values| (self.loss(runs, &values), values)).collect();
        starts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let followed = starts.into_iter().take(STARTS).map(|(loss, values)| self.descend(runs, loss, values));
        followed.min_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(|| around.to_vec(), |(_, values)| values)
    }

    /// Points around one: each parameter as it is, four times and sixteen times, costs also a quarter and a sixteenth.
    fn grid(&self, around: &[f64]) -> Vec<Vec<f64>> {
        let mut points = vec![around.to_vec()];
        for (at, parameter) in self.parameters.iter().enumerate() {
            let factors: &[f64] = match parameter {
                Parameter::Floor | Parameter::Launch => &[1.0, 0.25, 0.0625, 4.0, 16.0],
                _ => &[1.0, 4.0, 16.0],
            };
            let spread = |point: &Vec<f64>| {
                let moved = |factor: &f64| {
                    let mut moved = point.clone();
                    moved[at] += factor.ln();
                    moved
                };
                factors.iter().map(moved).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(spread).collect();
        }
        points
    }

    /// Steps along each axis, halved when none helps.
    fn descend(&self, runs: &[&CalibrationRun], mut loss: f64, mut values: Vec<f64>) -> (f64, Vec<f64>) {
        let mut step = 1.0;
        while step > 1e-4 {
            let mut moved = false;
            for at in 0..values.len() {
                for way in [step, -step] {
                    let mut there = values.clone();
                    there[at] += way;
                    let found = self.loss(runs, &there);
                    if found < loss {
                        (loss, values, moved) = (found, there, true);
                        break;
                    }
                }
            }
            if !moved {
                step /= 2.0;
            }
        }
        (loss, values)
    }

    /// Which parameters the latencies feel.
    fn felt(&self, runs: &[&CalibrationRun], values: &[f64]) -> Vec<bool> {
        let all = |values: &[f64]| -> Vec<f64> {
            let device = self.device(values);
            let of = |run: &&CalibrationRun| {
                let outlook = latencies(&run.shape, &device, &run.scenario);
                run.measured.iter().filter_map(|(figure, _)| predicted(*figure, &outlook)).collect::<Vec<_>>()
            };
            runs.iter().flat_map(of).collect()
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
