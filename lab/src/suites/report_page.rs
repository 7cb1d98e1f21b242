//! `report.html`: the study on one page, without anything from outside.

use super::answers::Answer;
use super::cost::cost_lines;
use super::spread::caution;
use super::suite_tables::{prompt_tokens, size};
use super::terminal::{ms, tokens, used, without};
use crate::method::StopReason;
use crate::study::pages::{charts, method as measured};
use crate::study::{CaseSummary, IntervalOf, Manifest, Records, State, told_once};
use candlescope_core::run::{env_key, model_key, option_key};
use candlescope_document::{
    Block, Cell, Document, Fact, Picture, Row, Section, Table, column, missing, sentences, words,
};
use candlescope_figures::stats::{Distribution, INTERVAL_FROM};
use serde_json::Value;
use std::collections::BTreeSet;

/// What the page shows.
pub(super) fn document(
    manifest: &Manifest,
    summaries: &[CaseSummary],
    answers: &[Answer],
    drawn: &[Picture],
    records: &Records,
) -> Document {
    let state = serde_json::to_value(manifest.state).unwrap_or_default();
    let incomplete = (manifest.state != State::Done).then(|| {
        format!("This study is not complete (it is {}): figures are of what was measured until then", shown(&state))
    });
    let model = [
        model_key::NAME.name(),
        model_key::PARAMETERS.name(),
        model_key::QUANTIZATION.name(),
        model_key::DTYPE.name(),
        model_key::ENGINE.name(),
    ];
    let model = model.into_iter().map(|key| (key, key)).chain([(model_key::CONTEXT_LENGTH.name(), "context length")]);
    let model = model.filter_map(|(key, label)| Some(Fact::new(label, shown(manifest.model.get(key)?))));
    let damaged = match records.damaged {
        0 => String::new(),
        n => format!("{n} lines of the journal were cut off by a crash and are left out."),
    };
    let answers = answers.iter().map(|answer| (answer.question.to_string(), answer.text.clone())).collect();
    let costs = cost_lines(manifest, summaries).into_iter().map(|line| format!("{line}.")).collect();
    let disturbed = told_once(&records.disturbances);
    let disturbed = disturbed.into_iter().map(|text| format!("What disturbed the machine: {text}"));
    Document {
        kind: "benchmark".to_string(),
        title: manifest.study.clone(),
        before: incomplete.into_iter().chain(caution(summaries)).chain(disturbed).collect(),
        facts: model.chain([Fact::new("machine", machine(manifest))]).collect(),
        sections: vec![
            Section::new("answers", "Answers", "").with(Block::Pairs("", answers)).list(costs),
            cases(summaries),
            charts(drawn),
            measured(manifest, vec![method(manifest), damaged], &[]),
        ],
        ..Document::default()
    }
}

fn cases(summaries: &[CaseSummary]) -> Section {
    let note = format!(
        "Medians; below each {}. Every sample is in results.parquet. A suite's name leads to the layers of its last recorded run.",
        intervals(summaries)
    );
    let figures = ["requests", "time to first token", "time per output token", "end to end", "output tokens/s"];
    let columns = ["batch", "prompt", "output"].into_iter().chain(figures).map(|name| column(name, ""));
    let columns = columns.chain([words("device"), column("memory", ""), column("recorded ÷ plain", "")]);
    let columns = columns.chain([sentences("why it stopped")]).collect();
    Section::new("cases", "Cases", note).with(Table::new("suite", columns, summaries.iter().map(row).collect()))
}

/// What it ran on, in a line: the device, the machine, the driver.
fn machine(manifest: &Manifest) -> String {
    let device = option_key::DEVICE.of(&manifest.options).unwrap_or("an unknown device");
    let driver = env_key::NVIDIA_DRIVER.of(&manifest.environment).filter(|_| manifest.is_on_gpu());
    let driver = driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
    let threads = manifest.threads().map_or_else(String::new, |threads| format!(". {threads}"));
    format!("{device}: {}{driver}{threads}", manifest.fingerprint().machine_name())
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
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

fn row(case: &CaseSummary) -> Row {
    let time = |d: Option<Distribution>| interval(case, d, &|ns| ms(Some(ns)));
    let number = |n: Option<usize>| n.map_or(missing(), |n| n.to_string().into());
    let mut cells = vec![number(size(case, "batch")), number(prompt_tokens(case)), number(size(case, "output_tokens"))];
    if case.plain.is_empty() {
        cells.extend(std::iter::repeat_with(missing).take(8));
        cells.push(without(case).into());
    } else {
        let text = |text: Option<String>| text.map_or(missing(), Cell::from);
        cells.extend([
            Cell::from(case.plain.len().to_string()).below(starts(case)),
            time(case.figure("ttft_ns")),
            time(case.figure("tpot_ns")),
            time(case.host_ns()),
            interval(case, case.figure("output_tps"), &tokens),
            text(used(case)),
            text(case.memory_bytes().map(|most| super::machine_memory::shown(most.max as u64))),
            recorded(case),
            stops(case).into(),
        ]);
    }
    let link = case.last_run().map(|run| format!("{run}/report.html"));
    Row { link, ..Row::new(case.case.suite(), cells) }
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
fn recorded(case: &CaseSummary) -> Cell {
    let Some((cost, (low, high))) = case.recording_cost().zip(case.recording_cost_range()) else { return missing() };
    let range = format!("range {:+.0} to {:+.0} %", low * 100.0, high * 100.0);
    Cell::from(format!("{:+.1} %", cost * 100.0)).below(range)
}

/// A median, and its interval or its range.
fn interval(case: &CaseSummary, of: Option<Distribution>, shown: &dyn Fn(f64) -> String) -> Cell {
    let Some(d) = of else { return missing() };
    let spread = match (d.median_ci95, d.range) {
        (Some((low, high)), _) if case.interval_of() == IntervalOf::Processes => {
            format!("{} to {}", shown(low), shown(high))
        }
        (Some((low, high)), _) => format!("{} to {} in this process", shown(low), shown(high)),
        (None, Some(range)) => format!("range {} to {}", shown(range.low), shown(range.high)),
        (None, None) => String::new(),
    };
    Cell::from(shown(d.median)).below(spread)
}
