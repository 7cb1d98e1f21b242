//! Measures peaks: a sweep for the best shape of each type, then that shape for longer.

use super::cases::{SUITE, SWEEP, absent, first, second, threads};
use super::identity::DeviceIdentity;
use super::matmul::ProductShape;
use super::options::PeakOptions;
use super::record::{Absent, Condition, PeakFigure, Peaks};
use crate::method::{Cancel, CaseId, Ended, Engine, Event, Method, Sample, Sink, SinkError, Stopped, Surroundings};
use crate::operands::Element;
use crate::study::{CaseSummary, Records, summaries};
use candlescope_work::devices::PeakKind;
use std::time::Duration;

/// Samples of a product without a break, each of some seconds, and of a short run.
const LONG_SAMPLES: u32 = 3;
/// Time for one case of the first part.
const LIMIT: Duration = Duration::from_secs(8);

/// How a measurement is driven: the engine's parts.
pub struct Driver<'a> {
    /// How cases are measured.
    pub method: Method,
    /// What is read beside them.
    pub surroundings: &'a mut dyn Surroundings,
    /// Stops it.
    pub cancel: Cancel,
    /// Called as things happen.
    pub observe: &'a mut dyn FnMut(&Event<'_>),
}

/// The method for the device's peaks: the engine's, one process, one case at a time, as each takes much of the memory.
pub fn method(quick: bool) -> Method {
    let method = if quick { Method::quick().runs(Some(2)) } else { Method::default().time_limit(LIMIT) };
    method.interleave(1)
}

/// The cases whose shapes are known before anything is measured; those of the best shapes come on top.
pub fn planned(options: &PeakOptions) -> Vec<CaseId> {
    first(options).iter().map(|case| case.id().clone()).collect()
}

/// Measures the device's peaks; every sample goes to `sink`.
///
/// # Errors
/// A sample cannot be kept.
pub fn measure(
    options: &PeakOptions,
    device: DeviceIdentity,
    driver: Driver<'_>,
    sink: &mut dyn Sink,
) -> Result<(Peaks, Ended), SinkError> {
    let mut kept = Kept { sink, records: Records::default() };
    let Driver { method, surroundings, cancel, observe } = driver;
    let mut cases = first(options);
    let mut ended = engine(method.clone(), surroundings, &cancel, observe).run(&mut cases, &mut kept)?;
    drop(cases);
    if ended == Ended::Done {
        let best = best_shapes(options, &kept.records);
        let mut cases = second(options, &best);
        let runs = if options.quick { 1 } else { LONG_SAMPLES };
        // One after another: a short run must not begin with the heat of a long one before it.
        let method = method.runs(Some(runs)).warmup_min(1).warmup_max(1);
        // Who else is at work was told when measuring began; the study keeps what was seen now.
        let mut others = |event: &Event<'_>| {
            if !matches!(event, Event::Disturbed(_)) {
                observe(event);
            }
        };
        ended = engine(method, surroundings, &cancel, &mut others).run(&mut cases, &mut kept)?;
    }
    let mut peaks = Peaks::new(device);
    peaks.threads = options.device.is_cpu().then(|| u32::try_from(threads()).unwrap_or(u32::MAX));
    collect(&mut peaks, options, &kept.records);
    Ok((peaks, ended))
}

fn engine<'a>(
    method: Method,
    surroundings: &'a mut dyn Surroundings,
    cancel: &Cancel,
    observe: &'a mut dyn FnMut(&Event<'_>),
) -> Engine<'a> {
    Engine::new(method, surroundings).cancel(cancel).observe(observe)
}

/// Keeps what goes to the study, to sum it up.
struct Kept<'a> {
    sink: &'a mut dyn Sink,
    records: Records,
}

impl Sink for Kept<'_> {
    fn sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        self.records.samples.push(sample.clone());
        self.sink.sample(sample)
    }

    fn stopped(&mut self, stopped: &Stopped) -> Result<(), SinkError> {
        self.records.stopped.push(stopped.clone());
        self.sink.stopped(stopped)
    }

    fn disturbed(&mut self, process: u32, sentences: &[String]) -> Result<(), SinkError> {
        self.sink.disturbed(process, sentences)
    }
}

/// All cases that were measured, or tried.
fn all(records: &Records) -> Vec<CaseSummary> {
    let mut ids: Vec<CaseId> = Vec::new();
    for stopped in &records.stopped {
        if stopped.case.suite() == SUITE && !ids.contains(&stopped.case) {
            ids.push(stopped.case.clone());
        }
    }
    summaries(&ids, records)
}

fn text(case: &CaseId, name: &str) -> Option<String> {
    case.get(name).map(ToString::to_string)
}

fn shape(case: &CaseId) -> Option<ProductShape> {
    let size = |name| usize::try_from(case.int(name)?).ok();
    Some(ProductShape::new(size("m")?, size("n")?, size("k")?))
}

/// The fastest shape of each type.
fn best_shapes(options: &PeakOptions, records: &Records) -> Vec<(Element, ProductShape)> {
    let all = all(records);
    let best = |element: &Element| {
        let of = |summary: &&CaseSummary| text(&summary.case, "dtype").as_deref() == Some(element.name());
        let rated =
            all.iter().filter(of).filter_map(|summary| Some((summary.figure("value")?.median, shape(&summary.case)?)));
        Some((*element, rated.max_by(|a, b| a.0.total_cmp(&b.0))?.1))
    };
    options.elements.iter().filter_map(best).collect()
}

fn collect(peaks: &mut Peaks, options: &PeakOptions, records: &Records) {
    let mut swept: Vec<PeakFigure> = Vec::new();
    for summary in all(records) {
        let case = &summary.case;
        let Some(kind) = text(case, "peak").as_deref().and_then(PeakKind::named) else { continue };
        let (dtype, condition) = (text(case, "dtype"), text(case, "condition"));
        let Some(values) = summary.figure("value") else {
            let reason = summary.detail.clone().unwrap_or_else(|| "no sample gave a figure".to_string());
            // A shape that does not fit says nothing about the others.
            if condition.as_deref() != Some(SWEEP) {
                peaks.absent.push(Absent { kind, dtype, reason });
            }
            continue;
        };
        let figure = PeakFigure {
            kind,
            dtype,
            condition: [Condition::Boost, Condition::Sustained]
                .into_iter()
                .find(|known| condition.as_deref() == Some(known.name())),
            value: values.median,
            at: shape(case).map(|shape| shape.to_string()).or_else(|| text(case, "at")).unwrap_or_default(),
            n: u32::try_from(values.n).unwrap_or(u32::MAX),
            range: (values.min, values.max),
            measured_ns: None,
        };
        if condition.as_deref() == Some(SWEEP) {
            swept.push(figure);
        } else {
            peaks.figures.push(figure);
        }
    }
    for element in &options.elements {
        let of = swept.iter().filter(|figure| figure.dtype.as_deref() == Some(element.name()));
        match of.max_by(|a, b| a.value.total_cmp(&b.value)) {
            Some(best) => peaks.figures.push(best.clone()),
            None => {
                let failed = records
                    .stopped
                    .iter()
                    .filter(|stopped| text(&stopped.case, "dtype").as_deref() == Some(element.name()));
                let reason = failed.filter_map(|stopped| stopped.detail.clone()).next();
                peaks.absent.push(Absent {
                    kind: PeakKind::Flops,
                    dtype: Some(element.name().to_string()),
                    reason: reason.unwrap_or_else(|| "it was not measured".to_string()),
                });
            }
        }
    }
    peaks.absent.extend(absent(options));
    peaks.sort();
}
