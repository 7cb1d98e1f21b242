//! `report.html`: the study on one page, without anything from outside.

use super::answers::Answer;
use super::cost::cost_lines;
use super::spread::caution;
use super::suite_tables::{prompt_tokens, size};
use super::terminal::{ms, tokens, used, without};
use crate::method::StopReason;
use crate::study::{CaseSummary, IntervalOf, Manifest, Records, told_once};
use candlescope_analysis::passes::stats::{Distribution, INTERVAL_FROM};
use candlescope_analysis::render::html::STYLE;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TEMPLATE: &str = include_str!("report.html.j2");

/// The page. Names and messages are escaped; only the charts, which are made here, are put in as they are.
pub(super) fn page(
    manifest: &Manifest,
    summaries: &[CaseSummary],
    answers: &[Answer],
    charts: &[String],
    records: &Records,
) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    let rows: Vec<Value> = summaries.iter().map(row).collect();
    let answers: Vec<Value> = answers.iter().map(Answer::json).collect();
    let model: Vec<(String, String)> = ["name", "parameters", "quantization", "dtype", "engine", "context_length"]
        .iter()
        .filter_map(|key| Some((key.replace('_', " "), shown(manifest.model.get(*key)?))))
        .collect();
    let charts: Vec<String> = charts.iter().map(|svg| scaled(svg)).collect();
    let state = serde_json::to_value(manifest.state).unwrap_or_default();
    let rendered = environment.template_from_str(TEMPLATE).and_then(|template| {
        template.render(Serde(json!({
            "css": STYLE, "version": env!("CARGO_PKG_VERSION"), "intervals": intervals(summaries),
            "caution": caution(summaries),
            "study": manifest.study, "state": state, "model": model, "machine": machine(manifest), "rows": rows, "answers": answers,
            "costs": cost_lines(manifest, summaries),
            "charts": charts, "method": method(manifest), "surroundings": manifest.surroundings,
            "disturbances": told_once(&records.disturbances), "damaged": records.damaged,
        })))
    });
    rendered.unwrap_or_else(|error| format!("<!doctype html><p>The report cannot be made: {error}"))
}

/// What it ran on, in a line: the device, the machine, the driver.
fn machine(manifest: &Manifest) -> String {
    let device = manifest.options.get("device").and_then(Value::as_str).unwrap_or("an unknown device");
    let driver = manifest.environment.get("nvidia_driver").and_then(Value::as_str).filter(|_| manifest.is_on_gpu());
    let driver = driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
    let threads = manifest.threads().map_or_else(String::new, |threads| format!(". {threads}"));
    format!("{device}: {}{driver}{threads}", manifest.fingerprint().machine_name())
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// The page scales charts: a viewBox in place of fixed width and height.
pub(crate) fn scaled(svg: &str) -> String {
    match (svg.find("<svg "), svg.find(" viewBox=")) {
        (Some(at), Some(size)) if at < size => format!("<svg role=\"img\"{}", &svg[size..]),
        _ => svg.to_string(),
    }
}

/// How it was measured, in a sentence or two.
fn method(manifest: &Manifest) -> String {
    let method = &manifest.method;
    let samples = match method.runs {
        Some(runs) => format!("Each case was repeated {runs} times"),
        None => format!(
            "Each case was repeated until, within a process start, its median was known to {:.0} % or its noise had \
             settled, for up to {:.0} s in all",
            method.interval_width * 100.0,
            method.time_limit.as_secs_f64()
        ),
    };
    let spread = match method.processes as usize {
        1 => "in a single process start, so that no interval here says how far another one may be off".to_string(),
        n if n < INTERVAL_FROM => {
            format!("over {n} process starts: too few for a 95 % interval over them, so ranges are given")
        }
        n => format!("over {n} process starts, whose medians the intervals come from"),
    };
    let measured = manifest.stops.iter().filter(|stop| !stop.profiled && stop.samples > 0);
    let (all, unsettled) = measured.fold((0, 0), |(n, not), stop| (n + 1, not + usize::from(!stop.warmup_settled)));
    let warmed = match unsettled {
        0 => String::new(),
        not => format!(" (in {not} of {all} starts of a case it had not settled when the time for that was over)"),
    };
    format!(
        "{samples}, {spread}. Cases were warmed up until the rolling median settled{warmed}, and repeated in random \
         order. Figures of capacity come from plain repetitions; recorded ones give the layers."
    )
}

fn row(case: &CaseSummary) -> Value {
    let time = |d: Option<Distribution>| interval(case, d, &|ns| ms(Some(ns)));
    json!({
        "suite": case.case.suite(), "batch": size(case, "batch"), "prompt": prompt_tokens(case),
        "output": size(case, "output_tokens"), "n": case.plain.len(), "starts": starts(case),
        "ttft": time(case.figure("ttft_ns")), "tpot": time(case.figure("tpot_ns")), "e2e": time(case.host_ns()),
        "tps": interval(case, case.figure("output_tps"), &tokens), "used": used(case),
        "memory": case.memory_bytes().map(|most| super::machine_memory::shown(most.max as u64)),
        "recorded": recorded(case),
        "run": case.last_run(),
        "stops": stops(case),
        "without": case.plain.is_empty().then(|| without(case)), "detail": case.detail,
    })
}

/// `in 1 start`, `in 3 starts, 2 taken again`.
fn starts(case: &CaseSummary) -> String {
    let starts = match case.processes {
        1 => "in 1 start".to_string(),
        n => format!("in {n} starts"),
    };
    let starts = if case.is_cold() { format!("{starts}, cold") } else { starts };
    if case.retaken > 0 { format!("{starts}, {} taken again", case.retaken) } else { starts }
}

/// Why it was not repeated any more, each reason once.
fn stops(case: &CaseSummary) -> String {
    let reasons: BTreeSet<StopReason> = case.stops.iter().copied().collect();
    reasons.iter().map(|reason| reason.words()).collect::<Vec<_>>().join("; ")
}

/// What stands below the medians: only an interval is called one.
fn intervals(summaries: &[CaseSummary]) -> &'static str {
    let over = |of| summaries.iter().any(|case| case.interval_of() == of && interval_of(case).is_some());
    match (over(IntervalOf::Processes), over(IntervalOf::OneProcess)) {
        (true, true) => "the 95 % interval of the median: over process starts, or within the only one",
        (true, false) => "its 95 % interval over process starts, or the range where these are too few",
        (false, true) => "its 95 % interval within the only process start, or the range of the samples",
        (false, false) => "the range: there are too few process starts, or samples, for an interval",
    }
}

fn interval_of(case: &CaseSummary) -> Option<(f64, f64)> {
    case.host_ns()?.median_ci95
}

/// What recording costs, and what plain and recorded repetitions differ by.
fn recorded(case: &CaseSummary) -> Option<[String; 2]> {
    let (cost, (low, high)) = (case.recording_cost()?, case.recording_cost_range()?);
    Some([format!("{:+.1} %", cost * 100.0), format!("range {:+.0} to {:+.0} %", low * 100.0, high * 100.0)])
}

/// A median, and its interval or its range.
fn interval(case: &CaseSummary, of: Option<Distribution>, shown: &dyn Fn(f64) -> String) -> [String; 2] {
    let Some(d) = of else { return ["–".into(), String::new()] };
    let spread = match (d.median_ci95, d.range) {
        (Some((low, high)), _) if case.interval_of() == IntervalOf::Processes => {
            format!("{} to {}", shown(low), shown(high))
        }
        (Some((low, high)), _) => format!("{} to {} in this process", shown(low), shown(high)),
        (None, Some(range)) => format!("range {} to {}", shown(range.low), shown(range.high)),
        (None, None) => String::new(),
    };
    [shown(d.median), spread]
}
