//! `report.md`, `operators.md`, `stakeholder_summary.md`, `assumptions.md`: reports for places that do not show HTML, such
//! as an issue or a pull request.

mod advice;
mod assumptions;
mod slow;
mod stakeholder;
mod tables;
mod text;

use super::conclusion;
use super::format::{count, duration, flops, json, percent, plural, significant, utc, value, with_error};
use super::head_facts::{background, machine, model, model_name, overhead};
use super::headline_figures::{FigureValue, figures, interval};
use super::peak_columns::PeakColumns;
use super::shown_definitions::shown_definitions;
use crate::definitions::STATISTICS;
use crate::passes::gpu_time::source_name;
use crate::passes::peaks::{OperatorUtilisation, of_operators, utilisation};
use crate::passes::rates::RateErrors;
use crate::passes::stats::total;
use crate::passes::{Analysis, Operator};
pub use assumptions::assumptions;
use candlescope_schema::run::Severity;
pub use stakeholder::stakeholder_summary;
use std::fmt::Write as _;
use text::{code, escape, table};

/// `report.md`: begins with the conclusion.
pub fn report(analysis: &Analysis) -> String {
    let mut out = String::new();
    let manifest = &analysis.manifest;
    let _ = writeln!(out, "# {}\n", escape(&conclusion::title(analysis)));
    let _ = writeln!(out, "**{}**\n", conclusion::sentence(analysis, code));
    let mut facts = vec![
        ("model", model_name(manifest).into_iter().chain(model(manifest)).collect::<Vec<_>>().join(" · ")),
        ("machine", machine(manifest).join(" · ")),
        ("run", manifest.run_id.clone()),
        ("started", if manifest.started_ns > 0 { utc(manifest.started_ns) } else { String::new() }),
        ("host", manifest.host.clone()),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts.push((
        "records",
        analysis
            .rows
            .iter()
            .filter(|(_, n)| **n > 0)
            .map(|(t, n)| format!("{} {t}", count(*n)))
            .collect::<Vec<_>>()
            .join(", "),
    ));
    if let Some(words) = analysis.latency.outcomes_in_words() {
        facts.push(("requests ended", words));
    }
    for (key, value) in facts {
        let _ = writeln!(out, "- {key}: {}", escape(&value));
    }
    advice::advice(&mut out, analysis);
    figures_table(&mut out, analysis);
    slow::slow(&mut out, analysis);
    phases(&mut out, analysis);
    tree(&mut out, analysis);
    let _ = writeln!(
        out,
        "\n## Operators\n\nThe 15 with the most self time{}; all are in `operators.md`.\n",
        on_device(analysis)
    );
    let used = of_operators(analysis);
    let shown = analysis.operators.len().min(15);
    out.push_str(&operator_table(&analysis.operators[..shown], &used[..shown]));
    gpu(&mut out, analysis);
    tables::nsys(&mut out, analysis);
    memory(&mut out, analysis);
    cost(&mut out, analysis);
    findings(&mut out, analysis);
    map(&mut out, "Model", &manifest.model);
    map(&mut out, "Environment", &manifest.environment);
    map(&mut out, "Options", &manifest.options);
    map(&mut out, "Results", &manifest.results);
    definitions(&mut out, analysis);
    out
}

/// `operators.md`.
pub fn operators(analysis: &Analysis) -> String {
    let mut out = String::from("# Operators\n\n");
    let _ = writeln!(
        out,
        "One row for each path without ordinals, by self time{}. Shares are of {} in steps; work is analytic, times are the host's.\n",
        on_device(analysis),
        duration(analysis.tree.total_ns as f64)
    );
    if analysis.operators.iter().any(|o| o.gpu.is_some()) {
        out.push_str(GPU_NOTE);
    }
    out.push_str(&operator_table(&analysis.operators, &of_operators(analysis)));
    out
}

/// What tables of operators are ordered by, where that is not time on the host.
fn on_device(analysis: &Analysis) -> &'static str {
    if analysis.operators.iter().any(|o| o.gpu.is_some()) { " on the GPU" } else { "" }
}

const GPU_NOTE: &str = "GPU time is sampled: means are over the intervals that have it (`GPU measured`). Totals are means × calls at the top; below, a \
     parent's total is divided as it was in the intervals whose children were all measured. Shares are of the GPU time of the outermost steps.\n\n";

fn operator_table(operators: &[Operator], used: &[Vec<OperatorUtilisation>]) -> String {
    let gpu = operators.iter().any(|o| o.gpu.is_some());
    let launches = operators.iter().any(|o| o.launches_per_call.is_some());
    let mut header =
        vec!["operator", "calls", "self", "self share", "total", "total share", "FLOPs", "GFLOP/s", "GB/s", "FLOP/B"];
    if gpu {
        header.extend(["GPU measured", "GPU self", "GPU share", "GPU total", "GPU TFLOP/s", "GPU GB/s", "GPU source"]);
    }
    if launches {
        header.push("launches a call");
    }
    let waits = operators.iter().any(|o| o.host_wait_ns.is_some());
    if waits {
        header.push("host wait");
    }
    let peaks = PeakColumns::of(used);
    header.extend(peaks.header());
    let rows = operators.iter().zip(used).map(|(o, used)| {
        let rate = |v: Option<f64>| v.map_or(String::new(), significant);
        let time = |v: Option<f64>| v.map_or(String::new(), duration);
        let mut row = vec![
            code(&o.path),
            count(o.calls),
            duration(o.self_ns as f64),
            percent(o.self_share),
            duration(o.total_ns as f64),
            percent(o.total_share),
            o.flops.map_or(String::new(), |n| flops(n as f64)),
            rate(o.gflops),
            rate(o.gbytes),
            rate(o.intensity),
        ];
        if gpu {
            let g = o.gpu.as_ref();
            row.extend([
                format!("{} of {}", count(g.map_or(0, |g| g.measured)), count(o.calls)),
                time(g.and_then(|g| g.self_ns)),
                g.and_then(|g| g.self_share).map_or(String::new(), percent),
                time(g.map(|g| g.total_ns)),
                rate(g.and_then(|g| g.tflops)),
                rate(g.and_then(|g| g.gbytes)),
                g.map_or(String::new(), |g| source_name(g.source).to_string()),
            ]);
        }
        if launches {
            row.push(rate(o.launches_per_call));
        }
        if waits {
            row.push(time(o.host_wait_ns));
        }
        row.extend(peaks.values(used).into_iter().map(|share| share.map_or(String::new(), percent)));
        row
    });
    table(&header, rows)
}

fn figures_table(out: &mut String, analysis: &Analysis) {
    let figures = figures(analysis);
    if figures.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## Latency and throughput\n");
    if analysis.latency.warmup > 0 {
        let _ = match analysis.latency.warmup {
            1 => writeln!(out, "The first request warmed up and is left out here.\n"),
            n => writeln!(out, "The first {n} requests warmed up and are left out here.\n"),
        };
    }
    let header = ["", "median", "interval", "p90", "p95", "p99", "min", "max", "mean", "stddev", "n", "label"];
    let rows = figures.iter().map(|figure| {
        let d = figure.definition;
        let show = |v: f64| value(d.unit, v);
        let option = |v: Option<f64>| v.map_or(String::new(), show);
        let mut row = vec![figure.title()];
        match figure.value {
            FigureValue::Spread(s) => row.extend([
                show(s.median),
                interval(d.unit, s, false).unwrap_or_default(),
                option(s.p90),
                option(s.p95),
                option(s.p99),
                show(s.min),
                show(s.max),
                show(s.mean),
                option(s.stddev),
                count(s.n as u64),
            ]),
            FigureValue::Single(v, n) => {
                row.extend([show(v), figure.remark.unwrap_or_default().to_string()]);
                row.extend(std::iter::repeat_n(String::new(), 7));
                row.push(count(n as u64));
            }
        }
        row.push(d.label.to_string());
        row
    });
    out.push_str(&table(&header, rows));
}

fn phases(out: &mut String, analysis: &Analysis) {
    let phases = &analysis.phases;
    let _ = writeln!(
        out,
        "\n## Steps\n\nWall time {}, {}.\n",
        duration(phases.wall_ns as f64),
        phases.outside_ns().map_or("of which some steps were not recorded".to_string(), |ns| {
            format!("of which {} lies outside steps", duration(ns as f64))
        })
    );
    let header = [
        "",
        "steps",
        "total",
        "share",
        "median",
        "p95",
        "max",
        "tokens",
        "tokens/s",
        "GFLOP/s",
        "GB/s",
        "FLOP/B",
        "at once",
        "intervals",
    ];
    let rows = phases.rows.iter().take(64).map(|row| {
        let rate = |v: Option<f64>| v.map_or(String::new(), significant);
        let sampled =
            |v: Option<f64>, of: fn(RateErrors) -> Option<f64>| with_error(rate(v), row.rate_errors.and_then(of));
        let d = row.duration.as_ref();
        vec![
            code(&row.name),
            count(row.steps),
            duration(row.total_ns as f64),
            percent(row.share),
            d.map_or(String::new(), |d| duration(d.median)),
            d.and_then(|d| d.p95).map_or(String::new(), duration),
            d.map_or(String::new(), |d| duration(d.max)),
            row.tokens.map_or(String::new(), count),
            sampled(row.tokens_per_s, |e| e.tokens),
            sampled(row.gflops, |e| e.flops),
            sampled(row.io_gbytes, |e| e.io_bytes),
            rate(row.intensity),
            rate(row.steps_at_once),
            count(row.intervals),
        ]
    });
    out.push_str(&table(&header, rows));
    let told =
        phases.rows.iter().filter_map(|row| row.rate_errors).filter(|e| e.tokens.or(e.flops).or(e.io_bytes).is_some());
    if let Some(windows) = told.map(|errors| errors.windows).max() {
        let _ = writeln!(
            out,
            "\nRates are estimates over {}: ± is half of the 95 % interval, from the variation between windows.",
            plural(windows, "window") + " in which every step was recorded"
        );
    }
    tables::utilisation(out, &utilisation(analysis));
    warmup(out, analysis);
}

/// The warm-up, apart from the rest.
fn warmup(out: &mut String, analysis: &Analysis) {
    let warmup = &analysis.warmup;
    if warmup.rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n### Warm-up\n\n{} of {} that only warmed up. They are in none of the other figures.\n",
        plural(warmup.steps(), "step"),
        plural(warmup.requests().len() as u64, "request")
    );
    let rows = warmup.rows.iter().map(|row| {
        let d = row.duration.as_ref();
        vec![
            code(&row.name),
            count(row.steps),
            duration(row.total_ns as f64),
            d.map_or(String::new(), |d| duration(d.median)),
            d.map_or(String::new(), |d| duration(d.max)),
        ]
    });
    out.push_str(&table(&["", "steps", "total", "median", "max"], rows));
}

fn tree(out: &mut String, analysis: &Analysis) {
    let _ = writeln!(
        out,
        "\n## Where the time goes\n\nSelf time of a path with children is the part that none of them accounts for.\n"
    );
    let rows = analysis.tree.rows.iter().filter(|row| row.share >= 0.001 || row.depth == 0).take(100).map(|row| {
        vec![
            format!("{}{}", "&emsp;".repeat(row.depth.min(16)), code(&row.label)),
            row.calls.map_or("–".to_string(), count),
            duration(row.total_ns as f64),
            percent(row.share),
            duration(row.self_ns as f64),
            percent(crate::passes::tree::ratio(row.self_ns, analysis.tree.total_ns)),
        ]
    });
    out.push_str(&table(&["path", "calls", "total", "share", "self", "self share"], rows));
}

fn gpu(out: &mut String, analysis: &Analysis) {
    let lines = super::gpu_sheets::lines(analysis);
    if !lines.is_empty() {
        let _ = writeln!(out, "\n## GPU\n");
    }
    for (label, text) in lines {
        let _ = writeln!(out, "- {label}: {}", escape(&text));
    }
    for sheet in super::gpu_sheets::sheets(analysis) {
        out.push_str(&tables::sheet(&sheet));
    }
}

fn memory(out: &mut String, analysis: &Analysis) {
    if analysis.memory.series.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## Samples\n");
    let rows = analysis.memory.series.iter().take(64).map(|s| {
        let show = |v: f64| if s.unit == "ratio" { significant(v) } else { value(&s.unit, v) };
        vec![
            code(&s.metric),
            escape(&s.device),
            escape(&s.unit),
            show(s.min),
            show(s.mean),
            show(s.max),
            show(s.last),
            count(s.n),
            s.period_ns.map_or(String::new(), |ns| duration(ns as f64)),
        ]
    });
    out.push_str(&table(&["metric", "device", "unit", "min", "mean", "max", "last", "n", "resolution"], rows));
}

fn cost(out: &mut String, analysis: &Analysis) {
    let manifest = &analysis.manifest;
    let _ = writeln!(out, "\n## Cost and loss\n");
    if let Some(text) = overhead(manifest) {
        let _ = writeln!(out, "- overhead: {text}");
    }
    if let Some(text) = background(manifest) {
        let _ = writeln!(out, "- threads: {text}");
    }
    let loss = &manifest.loss;
    let _ = writeln!(
        out,
        "- intervals: {} emitted, {} lost (ring full {}, too deep {}, thread without a ring {}, after shutdown {}, unresolved {})",
        count(loss.emitted),
        count(loss.lost()),
        count(loss.ring_full),
        count(loss.too_deep),
        count(loss.no_ring),
        count(loss.after_shutdown),
        count(loss.unresolved)
    );
    for exporter in &manifest.exporters {
        let sum = |map: &std::collections::BTreeMap<String, u64>| count(total(map.values().copied()));
        let dropped = total(exporter.dropped.values().flat_map(|reasons| reasons.values().copied()));
        let _ = writeln!(
            out,
            "- exporter {}: {} received, {} exported, {} dropped",
            code(&exporter.name),
            sum(&exporter.received),
            sum(&exporter.exported),
            count(dropped)
        );
    }
}

fn findings(out: &mut String, analysis: &Analysis) {
    if analysis.verdict.findings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## Findings\n");
    for finding in &analysis.verdict.findings {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "note",
        };
        let _ = writeln!(
            out,
            "- **{severity}** ({}): {}. *{}.*",
            code(finding.code.as_str()),
            escape(finding.message().trim_end_matches('.')),
            escape(finding.remedy().trim_end_matches('.'))
        );
    }
}

fn map(out: &mut String, title: &str, map: &std::collections::BTreeMap<String, serde_json::Value>) {
    if map.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## {title}\n\n| | |\n|---|---|");
    // `inputs.yaml` has the configuration.
    for (key, value) in map.iter().filter(|(key, _)| *key != super::inputs::OPTION) {
        let _ = writeln!(out, "| {} | {} |", escape(key), escape(&super::format::head(&json(value), 400)));
    }
}

fn definitions(out: &mut String, analysis: &Analysis) {
    let _ =
        writeln!(out, "\n## Definitions\n\n{STATISTICS}\n\n| name | label | meaning | same as |\n|---|---|---|---|");
    for d in shown_definitions(analysis) {
        let _ = writeln!(out, "| {} | {} | {} | {} |", d.title, d.label, escape(d.meaning), escape(d.same_as));
    }
}
