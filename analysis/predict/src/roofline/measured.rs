//! A run against its rooflines: every phase, operator and group of kernels, and what was predicted for them.

use super::heat::{HeatMap, contexts, layers};
use super::kernel_study::KernelStudy;
use super::latency_figures::{self, Figure};
use super::outlook::Outlook;
use super::points::{Point, PointKind, points, usual_step_ns};
use super::predict::{Bound, StepPrediction};
use super::ratings::{Rating, Thresholds, rate};
use super::run_facts::{bare_device, device, roofs, scenario, shape};
use candlescope_figures::Analysis;
use candlescope_figures::busy::LAUNCH_BOUND;
use candlescope_reader::Run;
use candlescope_schema::{GpuSource, Phase};
use candlescope_work::devices::{Device, DeviceKind, Roof, known_device};
use candlescope_work::estimate::Estimate;
use serde::Serialize;

/// Below this share of its roof a phase is bound neither by memory nor by computing [Nsight Compute, the rule of its
/// section SpeedOfLight].
pub const FAR_BELOW: f64 = 0.6;

/// A measured figure beside its prediction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What the time is of, in words: [`Figure::name`].
    pub figure: &'static str,
    /// The same for programs.
    pub code: Figure,
    /// Nanoseconds measured: a median, or a mean of steps.
    pub measured_ns: f64,
    /// Requests, or steps with recorded kernels, that it is the median or mean of.
    pub n: u64,
    /// Nanoseconds predicted without running anything; of kernels, low, mid and high are the same.
    pub predicted_ns: Estimate,
    /// Predicted ÷ measured − 1.
    pub error: f64,
    /// Nanoseconds predicted from measured kernels; `None` if none were given, or these lack something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_kernels_ns: Option<f64>,
    /// The error of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_kernels_error: Option<f64>,
}

/// What holds a phase back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    /// Name of the phase, such as `decode`.
    pub phase: String,
    /// What; `None` if it cannot be told.
    pub bound: Option<Bound>,
    /// The figures it rests on, or what is missing.
    pub evidence: String,
}

/// A run against its rooflines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRoofline {
    /// Directory that the run was opened from.
    pub run: String,
    /// What its verdict says of it, in a sentence: [`judged`](Self::judged).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The roofs, the measured one first.
    pub roofs: Vec<Roof>,
    /// Phases, operators by time, groups of kernels.
    pub points: Vec<Point>,
    /// What was predicted for the same model, device and tokens.
    #[serde(skip)]
    pub outlook: Option<Outlook>,
    /// Why there is no prediction.
    pub outlook_missing: Option<String>,
    /// What the device that was named cannot be held against, and what cannot be compared.
    pub notes: Vec<String>,
    /// Latencies and times of kernels beside their predictions; empty without a prediction, or if it is for another
    /// device than the run's.
    pub comparisons: Vec<Comparison>,
    /// What holds each phase back, of those whose steps state FLOPs or bytes.
    pub bottlenecks: Vec<Bottleneck>,
    /// Grades of both latencies, utilisation and throughput, one each, also where nothing was measured.
    pub ratings: Vec<Rating>,
    /// Layer × operator, by phase.
    pub layers: Vec<HeatMap>,
}

impl RunRoofline {
    /// Holds a run against its own peaks and those of `given`, if a device is named.
    pub fn of(run: &Run, analysis: &Analysis, given: Option<&Device>, thresholds: &Thresholds) -> Self {
        // A run's points stand under the roofs of its own device alone.
        let other = given.and_then(|device| not_the_runs(analysis, device));
        let roofs = roofs(analysis, given.filter(|_| other.is_none()));
        let mut points = points(analysis, &roofs);
        let (outlook, outlook_missing) = match outlook(analysis, &roofs, given) {
            Ok(outlook) => (Some(outlook), None),
            Err(missing) => (None, Some(missing)),
        };
        if let Some(outlook) = outlook.as_ref().filter(|_| other.is_none()) {
            points.iter_mut().for_each(|point| point.predicted_ns = predicted(point, outlook));
        }
        Self {
            run: run.dir().display().to_string(),
            verdict: None,
            bottlenecks: bottlenecks(analysis, &points),
            comparisons: match &outlook {
                Some(outlook) if other.is_none() => compare(analysis, outlook),
                _ => Vec::new(),
            },
            notes: other.into_iter().chain(untold_kinds(analysis)).collect(),
            ratings: rate(analysis, thresholds),
            layers: layers(run, analysis, roofs.first()),
            points,
            roofs,
            outlook,
            outlook_missing,
        }
    }

    /// Says whether the run's figures can be trusted, beside these.
    #[must_use]
    pub fn judged(self, verdict: String) -> Self {
        Self { verdict: Some(verdict), ..self }
    }

    /// Names the run in the command that measures what kernels lack: [`Outlook::asked_as`].
    #[must_use]
    pub fn asked_as(mut self, run: &str) -> Self {
        self.outlook = self.outlook.map(|outlook| outlook.asked_as(run, true));
        self
    }

    /// The same with predictions from measured kernels beside those from roofs.
    #[must_use]
    pub fn with_kernels(mut self, study: &KernelStudy) -> Self {
        self.outlook = self.outlook.map(|outlook| outlook.with_kernels(study));
        if let Some(found) = self.outlook.as_ref().and_then(|outlook| outlook.from_kernels.as_ref()) {
            for comparison in &mut self.comparisons {
                comparison.from_kernels_ns = found.of(comparison.code);
                comparison.from_kernels_error = comparison.from_kernels_ns.map(|ns| ns / comparison.measured_ns - 1.0);
            }
        }
        self
    }
}

/// Decoding steps of these runs by batch and context.
pub fn batch_and_context(runs: &[(&Run, &Analysis, &RunRoofline)]) -> Option<HeatMap> {
    let runs: Vec<_> = runs.iter().map(|(run, analysis, measured)| (*run, *analysis, measured.roofs.first())).collect();
    contexts(&runs)
}

/// Why a device is another one than the run's, if it is.
fn not_the_runs(analysis: &Analysis, device: &Device) -> Option<String> {
    let own = bare_device(analysis);
    let ran_on = match own.kind {
        DeviceKind::Cpu => format!("a processor ({})", own.name),
        _ => own.name.clone(),
    };
    let known = |name: &str| known_device(name).ok().map(|device| device.name);
    let other = (own.kind == DeviceKind::Cpu) != (device.kind == DeviceKind::Cpu)
        || known(&own.name).zip(known(&device.name)).is_some_and(|(own, given)| own != given);
    other.then(|| {
        format!(
            "{} is not the device of this run, which ran on {ran_on}: its points are not held against that roof, and only \
             the prediction is for {}",
            device.name, device.name
        )
    })
}

/// Phases with recorded kernels whose kinds of operation are not known.
fn untold_kinds(analysis: &Analysis) -> Option<String> {
    let untold = |phase: &Phase| {
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.as_str());
        let recorded = kind.is_some_and(|kind| kind.elapsed.iter().any(|e| e.source == GpuSource::Cupti));
        recorded && !latency_figures::states_work(analysis, *phase)
    };
    [Phase::Prefill, Phase::Decode].iter().any(untold).then(|| {
        "kernels by kind of operation are missing: the run's steps state no work, so its intervals do not say what they \
         compute"
            .to_string()
    })
}

fn outlook(analysis: &Analysis, roofs: &[Roof], given: Option<&Device>) -> Result<Outlook, String> {
    let shape = shape(&analysis.manifest)?;
    let scenario = scenario(analysis)?;
    let lacking = "peaks of its device: give --gpu NAME or --peaks FILE, or measure it with `candlescope bench peaks`";
    let device = device(analysis, roofs, given).ok_or(lacking)?;
    Ok(Outlook::of(&shape, &device, &scenario))
}

/// The prediction of a point's one call: a phase's step, or the operation of the same name.
fn predicted(point: &Point, outlook: &Outlook) -> Option<f64> {
    let step = |phase: &str| -> Option<&StepPrediction> {
        match phase {
            // An encoder is a phase of its own in a run, and within the prefill of a prediction.
            "prefill" if outlook.model.encoder_layers == 0 => Some(&outlook.prefill),
            "decode" => Some(&outlook.decode),
            _ => None,
        }
    };
    match point.kind {
        PointKind::Phase if point.over == "wall" => step(&point.name)?.ns.map(|ns| ns.mid),
        PointKind::Phase => step(&point.name)?.device_ns,
        PointKind::Operator => {
            let name = point.name.rsplit(['/', '.']).next()?;
            let operations = &step(point.name.split('/').next()?)?.operations;
            let found = operations.iter().find(|timed| timed.operation.name == name)?;
            found.device_ns.map(|ns| ns / found.operation.calls)
        }
        PointKind::Kernels => None,
    }
}

fn compare(analysis: &Analysis, outlook: &Outlook) -> Vec<Comparison> {
    let one = |(figure, measured_ns, n): (Figure, f64, u64)| {
        let predicted_ns = figure.predicted(&outlook.prefill, &outlook.decode)?;
        let error = predicted_ns.mid / measured_ns - 1.0;
        Some(Comparison {
            figure: figure.name(),
            code: figure,
            measured_ns,
            n,
            predicted_ns,
            error,
            from_kernels_ns: None,
            from_kernels_error: None,
        })
    };
    latency_figures::measured(analysis, &outlook.model).into_iter().filter_map(one).collect()
}

fn bottlenecks(analysis: &Analysis, points: &[Point]) -> Vec<Bottleneck> {
    let phases = analysis
        .phases
        .rows
        .iter()
        .filter(|row| row.is_phase && (row.work.flops.is_some() || row.work.bytes.is_some()));
    let one = |phase: &candlescope_figures::PhaseRow| {
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.name);
        let host = kind.and_then(|kind| kind.busy.as_ref()?.launch_bound_share());
        let point = points.iter().find(|point| point.kind == PointKind::Phase && point.name == phase.name);
        let under = point.and_then(|point| Some((point, point.under.first()?)));
        let (bound, evidence) = match (host, under) {
            (Some(share), _) if share > LAUNCH_BOUND => {
                let text = format!("the device waited for launches {:.1} % of the steps' time", share * 100.0);
                (Some(Bound::Host), text)
            }
            (_, Some((point, under))) => match (&under.status, under.bound, under.utilisation) {
                (super::points::Status::Ok, Some(bound), Some(utilisation)) => {
                    let intensity = point.intensity.unwrap_or(0.0);
                    let lower = bound.name();
                    let bound = if utilisation < FAR_BELOW { Bound::Overhead } else { bound };
                    let ridge = under.ridge.map_or_else(String::new, |ridge| format!(", the ridge at {ridge:.0}"));
                    let of_usual = point.over == "wall" && usual_step_ns(analysis, phase).is_some();
                    let text = format!(
                        "{intensity:.2} FLOP/B{ridge}; {:.1} % of the {} roofs of its operations, mostly that of {lower}, \
                         over {} time{}",
                        utilisation * 100.0,
                        under.origin.name(),
                        point.over,
                        if of_usual { " of a usual step" } else { "" }
                    );
                    (Some(bound), text)
                }
                (super::points::Status::DataMissing(why) | super::points::Status::Invalid(why), _, _) => {
                    (None, why.clone())
                }
                _ => (None, "no utilisation".to_string()),
            },
            _ => (None, "no peaks of the run's own device: give --peaks FILE, or --gpu with its name".to_string()),
        };
        Bottleneck { phase: phase.name.clone(), bound, evidence }
    };
    phases.map(one).collect()
}
