//! Measures peaks: a sweep for the best shape of each type, then that shape for longer.

use super::cases::{SUITE, SWEEP, absent, first, second, threads};
use super::identity::DeviceIdentity;
use super::matmul::ProductShape;
use super::peak_options::PeakOptions;
use super::record::{Condition, MissingPeak, PeakFigure, Peaks};
use crate::method::{
    Cancel, CaseEnd, CaseId, Engine, Event, MeasurementEnd, Method, Sample, Sink, SinkError, Surroundings,
};
use crate::operands::Element;
use crate::study::{CaseSummary, Records, summaries};
use candlescope_figures::stats::{Distribution, percentile_of};
use candlescope_work::devices::PeakKind;
use std::time::Duration;

/// Samples of a product without a break, each of some seconds, and of a short run.
const LONG_SAMPLES: u32 = 3;
/// Time for one case of the first part.
const LIMIT: Duration = Duration::from_secs(8);
/// The 90th percentile ÷ the median of a rate's samples above which something slowed part of them down.
const SPREAD: f64 = 1.1;
/// Of the bytes of a triad, those that it reads.
const TRIAD_READS: f64 = 2.0 / 3.0;

/// How a measurement is driven: the engine's parts.
pub struct Driver<'a> {
    /// How cases are measured.
    pub method: Method,
    /// What is read beside them.
    pub surroundings: &'a mut dyn Surroundings,
    /// Ends the measurement when it is set; peaks of what was measured by then are returned.
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
) -> Result<(Peaks, MeasurementEnd), SinkError> {
    let mut kept = StudySink { sink, records: Records::default(), disturbed: Vec::new() };
    let Driver { method, surroundings, cancel, observe } = driver;
    let mut cases = first(options);
    let mut ended = engine(method.clone(), surroundings, &cancel, observe).run(&mut cases, &mut kept)?;
    drop(cases);
    if ended == MeasurementEnd::Done {
        let best = best_shapes(options, &kept.records, kept.is_disturbed());
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
    peaks.disturbed.clone_from(&kept.disturbed);
    collect(&mut peaks, options, &kept.records);
    read_as_triad_reads(&mut peaks);
    peaks.sort();
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
struct StudySink<'a> {
    sink: &'a mut dyn Sink,
    records: Records,
    /// What was seen of others at work, each sentence once.
    disturbed: Vec<String>,
}

impl StudySink<'_> {
    fn is_disturbed(&self) -> bool {
        !self.disturbed.is_empty()
    }
}

impl Sink for StudySink<'_> {
    fn sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        self.records.samples.push(sample.clone());
        self.sink.sample(sample)
    }

    fn stopped(&mut self, stopped: &CaseEnd) -> Result<(), SinkError> {
        self.records.stopped.push(stopped.clone());
        self.sink.stopped(stopped)
    }

    fn disturbed(&mut self, process: u32, sentences: &[String]) -> Result<(), SinkError> {
        for sentence in sentences {
            if !self.disturbed.contains(sentence) {
                self.disturbed.push(sentence.clone());
            }
        }
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

/// What the device reaches, by the samples of a rate: their median, and the 90th percentile where others were at work or
/// part of the samples are slow. What others take makes a sample slower and never faster, so that the best are the
/// device's own; STREAM [McCalpin, <https://www.cs.virginia.edu/stream>] takes the very best.
fn reached(values: &Distribution, disturbed: bool) -> f64 {
    let best = percentile_of(&values.samples, 0.9).unwrap_or(values.median);
    if disturbed || best > SPREAD * values.median { best } else { values.median }
}

/// A triad reads two of its three arrays, so that a memory that is read more slowly than that was disturbed while it was
/// read: what the triad read stands then.
fn read_as_triad_reads(peaks: &mut Peaks) {
    let Some(triad) = peaks.of(PeakKind::Triad).next().cloned() else { return };
    let least = TRIAD_READS * triad.value;
    for read in peaks.figures.iter_mut().filter(|figure| figure.kind == PeakKind::Read && figure.value < least) {
        let (low, high) = triad.range;
        *read = PeakFigure {
            kind: PeakKind::Read,
            value: least,
            at: format!("two thirds of the triad of {}", triad.at),
            range: (TRIAD_READS * low, TRIAD_READS * high),
            ..triad.clone()
        };
    }
}

/// The fastest shape of each type.
fn best_shapes(options: &PeakOptions, records: &Records, disturbed: bool) -> Vec<(Element, ProductShape)> {
    let all = all(records);
    let best = |element: &Element| {
        let of = |summary: &&CaseSummary| text(&summary.case, "dtype").as_deref() == Some(element.name());
        let rated = all
            .iter()
            .filter(of)
            .filter_map(|summary| Some((reached(&summary.figure("value")?, disturbed), shape(&summary.case)?)));
        Some((*element, rated.max_by(|a, b| a.0.total_cmp(&b.0))?.1))
    };
    options.elements.iter().filter_map(best).collect()
}

fn collect(peaks: &mut Peaks, options: &PeakOptions, records: &Records) {
    let disturbed = !peaks.disturbed.is_empty();
    let mut swept: Vec<PeakFigure> = Vec::new();
    for summary in all(records) {
        let case = &summary.case;
        let Some(kind) = text(case, "peak").as_deref().and_then(PeakKind::named) else { continue };
        let (dtype, condition) = (text(case, "dtype"), text(case, "condition"));
        let Some(values) = summary.figure("value") else {
            let reason = summary.detail.clone().unwrap_or_else(|| "no sample gave a figure".to_string());
            // A shape that does not fit says nothing about the others.
            if condition.as_deref() != Some(SWEEP) {
                peaks.absent.push(MissingPeak { kind, dtype, reason });
            }
            continue;
        };
        let figure = PeakFigure {
            kind,
            dtype,
            condition: [Condition::Boost, Condition::Sustained]
                .into_iter()
                .find(|known| condition.as_deref() == Some(known.name())),
            value: match kind.unit() {
                "s" => values.median,
                // Later samples are slower because the device is warm: that is what is measured.
                _ if condition.as_deref() == Some(Condition::Sustained.name()) && !disturbed => values.median,
                _ => reached(&values, disturbed),
            },
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
                peaks.absent.push(MissingPeak {
                    kind: PeakKind::Flops,
                    dtype: Some(element.name().to_string()),
                    reason: reason.unwrap_or_else(|| "it was not measured".to_string()),
                });
            }
        }
    }
    peaks.absent.extend(absent(options));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Distribution {
        Distribution::of(samples.to_vec()).unwrap()
    }

    #[test]
    fn what_others_take_is_not_the_device_s() {
        // Reading 128 MiB took from 12 to 456 ms beside others: 11 GB/s at best, 4.5 GB/s in the middle.
        let beside_others = of(&[0.3, 1.0, 2.0, 4.4, 4.5, 4.5, 6.0, 9.0, 10.9, 11.0, 11.1]);
        assert_eq!(reached(&beside_others, true), 11.0);
        assert_eq!(reached(&beside_others, false), 11.0, "that wide a spread is not the device's, whatever was seen");
        let quiet = of(&[9.9, 10.0, 10.0, 10.1, 10.2]);
        assert_eq!(reached(&quiet, false), 10.0);
        assert!(reached(&quiet, true) > 10.1);
    }

    #[test]
    fn nothing_is_read_more_slowly_than_a_triad_reads() {
        let figure = |kind, value| PeakFigure {
            kind,
            dtype: None,
            condition: None,
            value,
            at: "128 MiB, 2 threads".to_string(),
            n: 3,
            range: (0.5 * value, 1.5 * value),
            measured_ns: None,
        };
        let read = |read: f64| {
            let mut peaks = Peaks::new(DeviceIdentity::cpu());
            peaks.figures = vec![figure(PeakKind::Read, read), figure(PeakKind::Triad, 10.5e9)];
            read_as_triad_reads(&mut peaks);
            peaks.bandwidth().unwrap().clone()
        };
        let corrected = read(4.47e9);
        assert!((corrected.value / 7e9 - 1.0).abs() < 1e-9, "{corrected:?}");
        assert_eq!(corrected.at, "two thirds of the triad of 128 MiB, 2 threads");
        assert!(corrected.range.0 < corrected.value && corrected.value < corrected.range.1);
        assert_eq!(read(8e9), figure(PeakKind::Read, 8e9));
    }
}
