//! Effective peaks, fitted to runs: what the datasheet does not know.
//!
//! The prediction's own parameters are fitted, so that the squares of log(predicted ÷ measured) over all figures become
//! smallest ([`search`]). There are two forms. The coarser one has one bandwidth, FLOP/s by type, the shortest time of
//! a kernel and, on a GPU, the cost of a launch; the finer one has rates by kind of operation, costs by kind of kernel,
//! and waiting ([`AttainedRates`](candlescope_work::devices::AttainedRates)). The finer one is taken where there are
//! enough figures for it and it is better by more than its further parameters explain [Schwarz, *Estimating the Dimension
//! of a Model*, Annals of Statistics 6 (1978)].
//!
//! By the same criterion the coarser form does without the shortest time of an operation on a processor: in the runs of one
//! model it trades places with the bandwidth.
//!
//! Intervals come from cases drawn with repetition (bootstrap): a case is a model that was asked something, with all
//! its repetitions, because these share what made the first one fast or slow. They are of the form and the parameters that
//! all runs chose. Errors come from fits without a case, and without a model: neither knows what it predicts. Without a
//! model the form and the parameters are chosen anew, as if the others were all there are; without a case they are those of
//! all runs.

mod calibration_run;
mod fit;
mod held_out;
mod search;

use calibration_run::FEWEST_CASES;
pub use calibration_run::{CalibrationError, CalibrationRun, Form};
pub use held_out::{ErrorSummary, HeldOut, LeftOut, RepeatSummary};

use candlescope_figures::stats::{SplitMix, percentile};
use candlescope_work::devices::{Device, Multiply, OperationClass, known_device};
use fit::{Candidate, Fit, ObservedRun, Parameter};
use serde::Serialize;
use std::collections::BTreeSet;

/// Fewest cases and figures for each parameter of the finer form.
const FINE_CASES: usize = 6;
const FINE_FIGURES: usize = 3;
/// Fits to drawn cases, from which intervals come.
const DRAWN: usize = 40;
/// Seed of the drawing: the same runs always give the same file.
const SEED: u64 = 0x5eed;

/// A parameter that was fitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FittedValue {
    /// `read`, `flops`, `kernel_floor`, `launch` or `sync`, as in a peaks file; on a processor also `panels`; in the
    /// finer form also `product`, `kernel`, `strided`, `index`, `read_prompt`, `read_unaligned`, `serial`, `gap`,
    /// `product_launch`, `strided_launch` and `divided_launch`; `recording` is what recording a launch cost in these
    /// runs.
    pub kind: &'static str,
    /// Element type that `flops` are of; `None` for other kinds, and for the FLOP/s of attention.
    pub dtype: Option<Multiply>,
    /// Which operations' `read` or `flops` it is; `None` for all that have none of their own.
    pub of: Option<OperationClass>,
    /// B/s, FLOP/s, steps/s of `index`, or seconds.
    pub value: f64,
    /// Its share of the datasheet's figure, if the device is known.
    pub share: Option<f64>,
    /// 95 % interval by drawing cases.
    pub interval: Option<(f64, f64)>,
    /// Whether the runs determine it; if not, the value is where the search began, and says nothing.
    pub determined: bool,
}

/// Peaks fitted to runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The device with these peaks.
    pub device: Device,
    /// Which parameters were fitted.
    pub form: Form,
    /// Runs that were fitted to, each repetition of a case counted.
    pub runs: usize,
    /// Cases: models that were asked something, repetitions counted once.
    pub cases: usize,
    /// Different models among the runs, told apart by their dimensions.
    pub models: usize,
    /// Latencies of the runs.
    pub latencies: usize,
    /// Every parameter of the form, those that the runs do not determine included.
    pub fitted: Vec<FittedValue>,
    /// Root of the weighted mean square of log(predicted ÷ measured), of the runs that were fitted.
    pub residual: f64,
    /// Every figure of every run: fitted, without its case, and, with two models or more, without its model.
    pub held_out: Vec<HeldOut>,
    /// Their errors, by what was left out, figure and model.
    pub errors: Vec<ErrorSummary>,
    /// How far repetitions differ; empty without any.
    pub repeats: Vec<RepeatSummary>,
}

/// Fits a device's peaks to runs. `device` says what kind it is, its memory and its link; its peaks are not used.
///
/// # Errors
/// If there is no latency to fit to, or there are too few cases.
pub fn calibrate(runs: &[CalibrationRun], device: &Device) -> Result<Calibration, CalibrationError> {
    let latencies = runs.iter().flat_map(|run| &run.measured).filter(|(figure, _)| figure.is_latency()).count();
    if runs.iter().all(|run| run.measured.is_empty()) {
        return Err(CalibrationError::Nothing);
    }
    let (cases, models) = (held_out::cases(runs), held_out::models(runs));
    if cases.len() < FEWEST_CASES {
        return Err(CalibrationError::TooFew { cases: cases.len() });
    }
    let case = |at: usize| cases.iter().position(|case| case.contains(&at)).unwrap_or(at);
    let observed: Vec<ObservedRun> =
        runs.iter().enumerate().map(|(at, run)| ObservedRun::of(run, device, case(at))).collect();
    // Repetitions side by side: their predictions are the same.
    let all: Vec<&ObservedRun> = cases.iter().flatten().map(|at| &observed[*at]).collect();
    let (fit, best) = chosen(&all, device);
    let drawn = drawn(&fit, &best, &observed, &cases);
    let determined = fit.felt(&all, &best);
    let held_out = account(&fit, &best, device, runs, &observed, [&cases, &models]);
    let (squares, _) = fit.squares(&all, &best);
    let weights: f64 = all.iter().flat_map(|run| &run.figures).map(|(.., weight)| weight).sum();

    let mut fitted_device = fit.candidate(&best).device;
    fitted_device.source =
        format!("fitted to {} runs of {} cases and {} models", runs.len(), cases.len(), models.len());
    fitted_device.launch_source = fitted_device.launch.map(|_| fitted_device.source.clone());
    let datasheet = known_device(&device.name).ok();
    let fitted = (0..best.len()).map(|at| {
        let values: Vec<f64> = drawn.iter().map(|values| values[at]).collect();
        one(fit.parameters[at], best[at], values, determined[at], datasheet.as_ref())
    });
    Ok(Calibration {
        fitted: fitted.collect(),
        form: fit.form,
        runs: runs.len(),
        cases: cases.len(),
        models: models.len(),
        latencies,
        residual: (squares / weights).sqrt(),
        errors: held_out::summaries(&held_out),
        repeats: held_out::repeats(runs, &cases),
        held_out,
        device: fitted_device,
    })
}

/// The form that the runs carry, with its best values.
fn chosen(runs: &[&ObservedRun], device: &Device) -> (Fit, Vec<f64>) {
    let cases = runs.iter().map(|run| run.case).collect::<BTreeSet<_>>().len();
    let coarse = fewest(Fit::new(Form::Roof, runs, device), runs);
    let (_, figures) = coarse.0.squares(runs, &coarse.1);
    let parameters = Fit::new(Form::Attained, runs, device).parameters.len();
    if cases < FINE_CASES || figures < FINE_FIGURES * parameters {
        return coarse;
    }
    let fine = fewest(Fit::new(Form::Attained, runs, device), runs);
    let of = |(fit, best): &(Fit, Vec<f64>)| criterion(fit, best, runs);
    if of(&fine) < of(&coarse) { fine } else { coarse }
}

/// A fit with its best values, without the shortest time of an operation unless these runs carry it.
fn fewest(fit: Fit, runs: &[&ObservedRun]) -> (Fit, Vec<f64>) {
    let best = fit.search(runs);
    let Some(without) = fit.without_floor() else { return (fit, best) };
    let plain = without.search(runs);
    // Where it is shorter than every operation no slope leads to it: it is looked for from longer ones, too.
    let longer = fit.with_floors(&plain).into_iter().map(|values| fit.search_from(runs, &values));
    let whole = std::iter::once(best).chain(longer).map(|values| (criterion(&fit, &values, runs), values));
    let (carried, best) = whole.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, Vec::new()));
    if criterion(&without, &plain, runs) <= carried { (without, plain) } else { (fit, best) }
}

/// Schwarz's criterion: the less, the better the runs carry these parameters.
fn criterion(fit: &Fit, best: &[f64], runs: &[&ObservedRun]) -> f64 {
    let (squares, n) = fit.squares(runs, best);
    let n = n as f64;
    n * (squares / n).max(1e-12).ln() + best.len() as f64 * n.ln()
}

/// Fits to cases drawn with repetition.
fn drawn(fit: &Fit, best: &[f64], runs: &[ObservedRun], cases: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let mut random = SplitMix(SEED);
    let mut draw = || -> Vec<&ObservedRun> {
        let chosen = (0..cases.len()).map(|_| &cases[random.below(cases.len() as u32) as usize]);
        chosen.flatten().map(|at| &runs[*at]).collect()
    };
    (0..DRAWN).map(|_| fit.search_from(&draw(), best)).collect()
}

/// Every figure as fitted, as predicted without its case, and, if there are several, without its model.
fn account(
    fit: &Fit,
    best: &[f64],
    device: &Device,
    runs: &[CalibrationRun],
    observed: &[ObservedRun],
    [cases, models]: [&[Vec<usize>]; 2],
) -> Vec<HeldOut> {
    let of = |at: usize, by: &Candidate, left_out| held_out::errors(&runs[at], &observed[at], by, left_out);
    let fitted = fit.candidate(best);
    let mut all: Vec<HeldOut> = (0..runs.len()).flat_map(|at| of(at, &fitted, LeftOut::Nothing)).collect();
    let models = if models.len() > 1 { models } else { &[] };
    for (left_out, groups) in [(LeftOut::Case, cases), (LeftOut::Model, models)] {
        for group in groups {
            let others = cases.iter().flatten().filter(|at| !group.contains(at)).map(|at| &observed[*at]);
            let others: Vec<&ObservedRun> = others.collect();
            // Of a model nothing must be known that it alone told: not the form, nor where the search begins.
            let candidate = match left_out {
                LeftOut::Model => {
                    let (own, values) = chosen(&others, device);
                    own.candidate(&values)
                }
                _ => fit.candidate(&fit.search_from(&others, best)),
            };
            all.extend(group.iter().flat_map(|at| of(*at, &candidate, left_out)));
        }
    }
    all
}

/// A parameter as reports have it. `value` and `drawn` are logarithms.
fn one(
    parameter: Parameter,
    value: f64,
    mut drawn: Vec<f64>,
    determined: bool,
    datasheet: Option<&Device>,
) -> FittedValue {
    let (kind, dtype, of) = match parameter {
        Parameter::Bandwidth(of) => ("read", None, of),
        Parameter::Flops(multiply) => ("flops", Some(multiply), None),
        Parameter::PromptAttention => ("read_prompt", None, Some(OperationClass::Attention)),
        Parameter::AttentionFlops => ("flops", None, Some(OperationClass::Attention)),
        Parameter::Floor => ("kernel_floor", None, None),
        Parameter::Panels => ("panels", None, None),
        Parameter::Product => ("product", None, None),
        Parameter::Kernel => ("kernel", None, None),
        Parameter::Strided => ("strided", None, None),
        Parameter::Index => ("index", None, None),
        Parameter::Unaligned => ("read_unaligned", None, None),
        Parameter::Serial => ("serial", None, None),
        Parameter::Launch => ("launch", None, None),
        Parameter::ProductLaunch => ("product_launch", None, None),
        Parameter::StridedLaunch => ("strided_launch", None, None),
        Parameter::DividedLaunch => ("divided_launch", None, None),
        Parameter::Gap => ("gap", None, None),
        Parameter::Sync => ("sync", None, None),
        Parameter::Recording => ("recording", None, None),
    };
    let rates = ["read", "read_prompt", "read_unaligned", "panels", "flops", "index"];
    let unit = if rates.contains(&kind) { 1.0 } else { 1e-9 };
    drawn.sort_by(f64::total_cmp);
    let interval = (determined && !drawn.is_empty()).then(|| {
        let (low, high) = (percentile(&drawn, 0.025).min(value), percentile(&drawn, 0.975).max(value));
        (low.exp() * unit, high.exp() * unit)
    });
    let value = value.exp() * unit;
    let peak = datasheet.and_then(|device| match (kind, dtype) {
        ("read" | "read_prompt" | "read_unaligned", _) => Some(device.bandwidth),
        ("flops", Some(dtype)) => device.flops.get(&dtype).copied(),
        _ => None,
    });
    FittedValue { kind, dtype, of, value, share: peak.map(|peak| value / peak), interval, determined }
}
