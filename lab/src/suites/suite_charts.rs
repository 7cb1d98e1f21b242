//! Charts of the suites.

use super::lm_options::SuiteName;
use super::suite_tables::{median, of_suite, prompt_tokens, size};
use crate::study::{CaseSummary, Chart, Line, Point};
use candlescope_figures::stats::Distribution;
use std::collections::BTreeMap;

/// The charts of a study, those without points left out.
pub(super) fn charts(summaries: &[CaseSummary]) -> Vec<Chart> {
    let all = [latency(summaries), throughput(summaries), token_time(summaries), seqlen(summaries)];
    all.into_iter().filter(|chart| chart.lines.iter().any(|line| !line.points.is_empty())).collect()
}

fn point(x: f64, d: &Distribution) -> Point {
    let range = d.range.map(|range| (range.low, range.high));
    Point { x, y: d.median, spread: d.median_ci95.or(range) }
}

fn chart(file: &str, title: &str, (x, y): (&str, &str), log: bool, lines: Vec<Line>) -> Chart {
    Chart { file: file.into(), title: title.into(), x: x.into(), y: y.into(), log, x_label: None, lines }
}

fn latency(summaries: &[CaseSummary]) -> Chart {
    let mut by_process: BTreeMap<u32, Vec<Point>> = BTreeMap::new();
    let samples = of_suite(summaries, SuiteName::Latency).into_iter().flat_map(|case| &case.plain);
    for (number, sample) in samples.enumerate() {
        let y = sample.measurement.host_ns as f64 / 1e6;
        by_process.entry(sample.process).or_default().push(Point { x: number as f64 + 1.0, y, spread: None });
    }
    let line = |(process, points)| Line { name: format!("process start {process}"), points, connected: false };
    let lines = by_process.into_iter().map(line).collect();
    chart("latency", "Duration of each request", ("request", "end to end, ms"), false, lines)
}

fn by_batch(summaries: &[CaseSummary], name: &str, of: impl Fn(&CaseSummary) -> Option<Distribution>) -> Line {
    let cases = of_suite(summaries, SuiteName::Throughput);
    let points = cases.iter().filter_map(|case| Some(point(size(case, "batch")? as f64, &of(case)?)));
    Line { name: name.into(), points: points.collect(), connected: true }
}

fn throughput(summaries: &[CaseSummary]) -> Chart {
    let measured = by_batch(summaries, "measured", |case| case.figure("output_tps"));
    let first = measured.points.first().copied();
    let ideal = first.map_or_else(Vec::new, |first| {
        measured.points.iter().map(|p| Point { x: p.x, y: first.y * p.x / first.x, spread: None }).collect()
    });
    let ideal = Line { name: "if batching were free".into(), points: ideal, connected: true };
    let title = "Throughput by batch (medians, with their intervals or ranges)";
    chart("throughput", title, ("sequences at once", "output tokens/s"), true, vec![measured, ideal])
}

fn token_time(summaries: &[CaseSummary]) -> Chart {
    let line = by_batch(summaries, "TPOT", |case| case.figure("tpot_ns").map(|d| d.scaled(1e-6)));
    let title = "Time per output token by batch (medians, with their intervals or ranges)";
    chart("tpot_by_batch", title, ("sequences at once", "time per output token, ms"), false, vec![line])
}

fn seqlen(summaries: &[CaseSummary]) -> Chart {
    let mut lines: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
    for case in of_suite(summaries, SuiteName::Seqlen) {
        let known = prompt_tokens(case).zip(size(case, "output_tokens")).zip(case.host_ns());
        if let Some(((prompt, output), e2e)) = known {
            lines.entry(output).or_default().push(point(prompt as f64, &e2e.scaled(1e-6)));
        }
    }
    let mut lines: Vec<Line> = lines
        .into_iter()
        .map(|(output, points)| Line { name: format!("{output} output tokens"), points, connected: true })
        .collect();
    let ttft: Vec<Point> = of_suite(summaries, SuiteName::Seqlen)
        .iter()
        .filter_map(|case| Some((prompt_tokens(case)?, median(case, "ttft_ns")? / 1e6)))
        .collect::<BTreeMap<usize, f64>>()
        .into_iter()
        .map(|(prompt, y)| Point { x: prompt as f64, y, spread: None })
        .collect();
    lines.push(Line { name: "first token".into(), points: ttft, connected: true });
    let title = "Duration by length of the prompt (medians, with their intervals or ranges)";
    chart("sequence_length", title, ("prompt, tokens", "ms"), true, lines)
}
