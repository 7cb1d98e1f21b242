//! `report.html`: one file that opens from disk, needs no network, and shows the same figures as the other reports.
//!
//! This module gathers values; the page's looks are in `report.html`, `style.css` and `script.js` beside it. The
//! template engine escapes every value, because names of spans and models are untrusted.

mod advice;
pub(super) mod coded;
pub(super) mod flame;
mod plots;
mod slow;
mod spark;
mod step_line;

use super::conclusion::verdict_line;
use super::format::{
    bytes, count, duration, flops, head, json as text, percent, printable, significant, utc, value, with_error,
};
use super::head_facts as facts;
use super::headline_figures::{FigureValue, figures, interval, is_bare};
use super::peak_columns::PeakColumns;
use super::sheet::{LONGEST_NAME, MOST_ROWS as MOST_SHEET_ROWS, Sheet};
use super::shown_definitions::shown_definitions;
use crate::definitions::STATISTICS;
use crate::passes::gpu_time::source_name;
use crate::passes::memory::Series;
use crate::passes::operators::OperatorGpu;
use crate::passes::rates::RateErrors;
use crate::passes::stats::total;
use crate::passes::tree::ratio;
use crate::passes::{Analysis, Distribution, Operator, peaks};
use candlescope_schema::GpuSource;
use candlescope_schema::run::Severity;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The looks of every page: a style sheet, for pages that other crates make.
pub const STYLE: &str = include_str!("style.css");

/// The page could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("cannot render report.html: {0}. This is a mistake in candlescope: please report it with the run")]
pub struct HtmlError(#[from] minijinja::Error);

/// Rows of the operator table and of the tree; the rest is in `operators.md` and `metrics.json`.
const MOST_ROWS: usize = 1000;

/// The whole page.
///
/// # Errors
/// If the template does not match the values, which its tests would find.
pub fn page(analysis: &Analysis) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    coded::add_filter(&mut environment);
    environment.add_template("report.html", include_str!("report.html"))?;
    let page = environment.get_template("report.html")?.render(Serde(values(analysis)))?;
    Ok(page)
}

fn values(analysis: &Analysis) -> Value {
    let manifest = &analysis.manifest;
    let models = &analysis.latency.requests;
    let first = models.first().map(|r| r.model.clone()).filter(|m| !m.is_empty());
    let title = facts::model_name(manifest).or(first).unwrap_or_else(|| "run".to_string());
    json!({
        "css": STYLE,
        "js": include_str!("script.js"),
        "version": env!("CARGO_PKG_VERSION"),
        "title": printable(&title),
        "run_id": printable(&manifest.run_id),
        "dir": printable(&analysis.dir.display().to_string()),
        "facts": head_facts(analysis),
        "verdict": { "ok": analysis.verdict.ok, "text": verdict_line(analysis), "findings": findings(analysis) },
        "advice": advice::values(analysis),
        "cards": cards(analysis),
        "figures": figure_rows(analysis),
        "warmup": analysis.latency.warmup,
        "slow": slow::values(analysis),
        "phases": phases(analysis),
        "operators": operators(analysis),
        "gpu": gpu(analysis),
        "nsys": super::nsys_table::html(analysis),
        "tree": tree(analysis),
        "flame": flame::frame(&analysis.tree),
        "tokens": plots::tokens(&analysis.tokens),
        "series": series(analysis),
        "accounts": accounts(analysis),
        "exporters": exporters(analysis),
        "maps": [
            map("Environment", &manifest.environment),
            map("Model", &manifest.model),
            map("Options", &manifest.options),
            map("Results", &manifest.results),
        ],
        "definitions": definitions(analysis),
        "statistics": STATISTICS,
    })
}

fn head_facts(analysis: &Analysis) -> Value {
    let manifest = &analysis.manifest;
    let mut all = facts::model(manifest);
    all.extend(facts::machine(manifest));
    if manifest.started_ns > 0 {
        all.push(utc(manifest.started_ns));
    }
    if !manifest.host.is_empty() {
        all.push(printable(&manifest.host));
    }
    all.extend(analysis.latency.outcomes_in_words().map(|words| format!("requests: {words}")));
    json!(all)
}

fn findings(analysis: &Analysis) -> Value {
    let rows = analysis.verdict.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "note",
        };
        json!({
            "severity": severity,
            "code": printable(finding.code.as_str()),
            "message": printable(&finding.message()),
            "remedy": printable(&finding.remedy()),
        })
    });
    rows.collect()
}

/// The cards in large letters: latency if there are requests, else the durations of steps.
fn cards(analysis: &Analysis) -> Value {
    let all = figures(analysis);
    let keys = ["ttft", "tpot", "itl", "decode_tps", "prefill_tps", "peak_memory", "gpu_busy", "energy_per_token"];
    let mut cards: Vec<Value> = all
        .iter()
        .filter(|figure| keys.contains(&figure.definition.key))
        .map(|figure| {
            let d = figure.definition;
            let central = value(d.unit, figure.central());
            let (number, unit) = split_unit(&central, d.unit);
            let (spread, strip) = match figure.value {
                FigureValue::Spread(s) => (interval(d.unit, s, false), spark::strip(s)),
                FigureValue::Single(..) => (None, None),
            };
            let n = match figure.value {
                FigureValue::Spread(s) => s.n,
                FigureValue::Single(_, n) => n,
            };
            json!({
                "key": d.key, "title": d.title, "number": number, "unit": unit, "interval": spread,
                "n": count(n as u64), "strip": strip, "meaning": d.meaning, "label": d.label,
                "what": match d.key {
                    "peak_memory" => figure.remark.unwrap_or_default(),
                    "gpu_busy" => "recorded steps",
                    "energy_per_token" => "gross",
                    _ => "median",
                },
            })
        })
        .collect();
    if analysis.latency.requests.is_empty() {
        let steps = analysis.phases.rows.iter().take(4).filter_map(|row| {
            let d = row.duration.as_ref()?;
            let text = duration(d.median);
            let (number, unit) = split_unit(&text, "ns");
            Some(json!({
                "key": "step", "title": format!("Step {}", head(&printable(&row.name), 28)), "number": number, "unit": unit,
                "interval": interval("ns", d, false),
                "n": count(d.n as u64), "strip": spark::strip(d), "meaning": "Duration of one step", "label": "measured",
                "what": "median",
            }))
        });
        cards.splice(0..0, steps);
    }
    json!(cards)
}

/// `12.3 ms` as a number and its unit, so that the unit can be set smaller.
fn split_unit(text: &str, unit: &str) -> (String, String) {
    match text.rsplit_once(' ') {
        Some((number, unit)) => (number.to_string(), unit.to_string()),
        None => (text.to_string(), if is_bare(unit) { unit.to_string() } else { String::new() }),
    }
}

fn figure_rows(analysis: &Analysis) -> Value {
    let rows = figures(analysis).into_iter().map(|figure| {
        let d = figure.definition;
        let show = |v: f64| value(d.unit, v);
        let title = figure.title();
        let cells: Vec<String> = match figure.value {
            FigureValue::Spread(s) => {
                let option = |v: Option<f64>| v.map_or("–".to_string(), show);
                vec![
                    show(s.median),
                    interval(d.unit, s, false).unwrap_or_else(|| "–".to_string()),
                    option(s.p90),
                    option(s.p95),
                    option(s.p99),
                    show(s.min),
                    show(s.max),
                    show(s.mean),
                    option(s.stddev),
                    count(s.n as u64),
                ]
            }
            FigureValue::Single(v, n) => {
                let mut cells = vec![show(v), figure.remark.unwrap_or("–").to_string()];
                cells.extend(std::iter::repeat_n("–".to_string(), 7));
                cells.push(count(n as u64));
                cells
            }
        };
        json!({ "title": title, "cells": cells, "label": d.label })
    });
    rows.collect()
}

fn phases(analysis: &Analysis) -> Value {
    let phases = &analysis.phases;
    let outermost: Vec<_> = phases.rows.iter().filter(|row| row.inside.is_none()).collect();
    // Steps of several threads overlap: the bar divides the sum of their times, idle time included.
    let outside = phases.outside_ns().unwrap_or(0);
    let whole = total(outermost.iter().map(|row| row.total_ns)).saturating_add(outside);
    let mut bar: Vec<Value> = Vec::new();
    let mut rest = 0u64;
    for row in &outermost {
        let share = ratio(row.total_ns, whole);
        if bar.len() < 7 && share >= 0.002 {
            let kind = match row.name.as_str() {
                "prefill" | "decode" | "sample" | "encode" | "vision" if row.is_phase => row.name.clone(),
                _ => format!("other{}", bar.len() % 4),
            };
            bar.push(json!({
                "name": head(&printable(&row.name), 40), "kind": kind, "width": share * 100.0,
                "percent": percent(share), "time": duration(row.total_ns as f64),
            }));
        } else {
            rest = total([rest, row.total_ns]);
        }
    }
    for (name, kind, ns) in [("other steps", "rest", rest), ("outside steps", "outside", outside)] {
        let share = ratio(ns, whole);
        if share > 0.0 {
            bar.push(json!({
                "name": name, "kind": kind, "width": share * 100.0, "percent": percent(share), "time": duration(ns as f64),
            }));
        }
    }
    let rows = phases.rows.iter().take(100).map(|row| {
        let rate = |v: Option<f64>| v.map_or("–".to_string(), significant);
        let sampled = |v: Option<f64>, of: fn(RateErrors) -> Option<f64>| with_error(rate(v), row.rate_errors.and_then(of));
        let d = row.duration.as_ref();
        let time = |f: fn(&Distribution) -> Option<f64>| d.and_then(f).map_or("–".to_string(), duration);
        let gpu = row.gpu.map_or("–".to_string(), |gpu| {
            format!("{} in {} ({})", duration(gpu.total_ns as f64), count(gpu.steps), source_name(gpu.source))
        });
        json!({
            "name": head(&printable(&row.name), 60),
            "inside": row.inside.as_deref().map(printable),
            "cells": [
                count(row.steps), duration(row.total_ns as f64), percent(row.share), time(|d| Some(d.median)), time(|d| d.p95),
                time(|d| Some(d.max)), row.tokens.map_or("–".to_string(), count), sampled(row.tokens_per_s, |e| e.tokens), sampled(row.gflops, |e| e.flops),
                sampled(row.io_gbytes, |e| e.io_bytes), rate(row.intensity), rate(row.steps_at_once), gpu, count(row.intervals),
            ],
        })
    });
    let warmup = analysis.warmup.rows.iter().take(100).map(|row| {
        let time = |f: fn(&crate::passes::Distribution) -> f64| {
            row.duration.as_ref().map_or("–".to_string(), |d| duration(f(d)))
        };
        json!({
            "name": head(&printable(&row.name), 60),
            "cells": [count(row.steps), duration(row.total_ns as f64), time(|d| d.median), time(|d| d.max)],
        })
    });
    let used = peaks::utilisation(analysis).into_iter().map(|u| {
        let (what, unit) = (u.metric.name(), if u.peak.is_flops() { "FLOP/s" } else { "B/s" });
        json!({
            "phase": printable(&u.phase), "over": u.over.name(), "what": what, "ratio": with_error(percent(u.ratio), u.error), "label": u.peak.label, "source": printable(&u.peak.source),
            "peak": format!("{:.3e} {unit}{}", u.peak.value, u.peak.dtype.map(|d| format!(", {d}")).unwrap_or_default()),
        })
    });
    json!({
        "bar": bar,
        "rows": rows.collect::<Vec<_>>(),
        "more": phases.rows.len().saturating_sub(100),
        "wall": duration(phases.wall_ns as f64),
        "warmup": warmup.collect::<Vec<_>>(),
        "utilisation": used.collect::<Vec<_>>(),
    })
}

fn operators(analysis: &Analysis) -> Value {
    let operators = &analysis.operators;
    let gpu = operators.iter().any(|o| o.gpu.is_some());
    let launches = operators.iter().any(|o| o.launches_per_call.is_some());
    let waits = operators.iter().any(|o| o.host_wait_ns.is_some());
    // Bars show what the table is ordered by.
    let part = |o: &Operator| if gpu { o.gpu.and_then(|g| g.self_share).unwrap_or(0.0) } else { o.self_share };
    let largest = operators.iter().map(part).fold(1e-9, f64::max);
    let used = peaks::of_operators(analysis);
    let against = PeakColumns::of(&used);
    let rows = operators.iter().zip(&used).take(MOST_ROWS).map(|(o, used)| {
        let cell = |text: String, sort: f64| json!({ "text": text, "sort": sort });
        let rate = |v: Option<f64>| cell(v.map_or("–".to_string(), significant), v.unwrap_or(-1.0));
        let time = |ns: Option<u64>| {
            cell(ns.map_or("–".to_string(), |ns| duration(ns as f64)), ns.map_or(-1.0, |ns| ns as f64))
        };
        let per_call = o.total_ns as f64 / o.calls.max(1) as f64;
        let mut cells = vec![
            cell(count(o.calls), o.calls as f64),
            time(Some(o.self_ns)),
            cell(percent(o.self_share), o.self_share),
        ];
        let on_host = [
            time(Some(o.total_ns)),
            cell(percent(o.total_share), o.total_share),
            cell(duration(per_call), per_call),
            cell(o.flops.map_or("–".to_string(), |n| flops(n as f64)), o.flops.map_or(-1.0, |n| n as f64)),
            rate(o.gflops),
            rate(o.gbytes),
            rate(o.intensity),
        ];
        if gpu {
            let g = o.gpu.as_ref();
            let measured = g.map_or(0, |g| g.measured);
            let ns = |ns: Option<f64>| cell(ns.map_or("–".to_string(), duration), ns.unwrap_or(-1.0));
            let share_of = |share: Option<f64>| cell(share.map_or("–".to_string(), percent), share.unwrap_or(-1.0));
            cells.extend([
                cell(format!("{} of {}", count(measured), count(o.calls)), measured as f64),
                ns(g.and_then(|g| g.self_ns)),
                share_of(g.and_then(|g| g.self_share)),
                ns(g.map(|g| g.total_ns)),
                ns(g.map(|g| g.mean_ns)),
                rate(g.and_then(|g| g.tflops)),
                rate(g.and_then(|g| g.gbytes)),
            ]);
        }
        if launches {
            cells.push(rate(o.launches_per_call));
        }
        if waits {
            let wait = o.host_wait_ns;
            cells.push(cell(wait.map_or("–".to_string(), duration), wait.unwrap_or(-1.0)));
        }
        let shares = against.values(used).into_iter();
        cells.extend(shares.map(|share| cell(share.map_or("–".to_string(), percent), share.unwrap_or(-1.0))));
        cells.extend(on_host);
        let path = printable(&o.path);
        let (above, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(a, n)| (a, n));
        json!({
            "path": path, "above": above, "name": name, "target": printable(&o.target), "dtypes": o.dtypes.join(", "),
            "cells": cells, "bar": part(o) / largest * 100.0,
        })
    });
    // With GPU time, its columns come first, because the table is wider than most screens.
    let mut header = vec!["calls", "self", "self share"];
    if gpu {
        header.extend(["GPU measured", "GPU self", "GPU share", "GPU total", "GPU mean", "GPU TFLOP/s", "GPU GB/s"]);
    }
    if launches {
        header.push("launches a call");
    }
    if waits {
        header.push("host wait");
    }
    header.extend(against.header());
    header.extend(["total", "total share", "mean", "FLOPs", "GFLOP/s", "GB/s", "FLOP/B"]);
    let source = operators.iter().find_map(|o| o.gpu.as_ref()).map(|g| g.source);
    json!({
        "header": header,
        "by": if gpu { "GPU self" } else { "self" },
        "rows": rows.collect::<Vec<_>>(),
        "more": operators.len().saturating_sub(MOST_ROWS),
        "gpu": source.map(|s| match s {
            GpuSource::Event => "stream elapsed: between two marks in the stream, queue gaps included",
            GpuSource::Cupti => "sum of the kernels launched inside",
        }),
    })
}

fn tree(analysis: &Analysis) -> Value {
    let tree = &analysis.tree;
    let gpu: BTreeMap<&str, &OperatorGpu> =
        analysis.operators.iter().filter_map(|o| Some((o.path.as_str(), o.gpu.as_ref()?))).collect();
    let has_gpu = !gpu.is_empty();
    let rows = tree.rows.iter().take(MOST_ROWS).map(|row| {
        let unaccounted = ratio(row.self_ns, row.total_ns);
        let g = gpu.get(row.rollup.as_str());
        let time = |ns: Option<f64>| ns.map_or("–".to_string(), duration);
        let on_gpu = has_gpu.then(|| {
            [
                time(g.map(|g| g.total_ns)),
                time(g.and_then(|g| g.self_ns)),
                g.and_then(|g| g.self_share).map_or("–".to_string(), percent),
            ]
        });
        json!({
            "depth": row.depth, "indent": row.depth.min(24), "label": printable(&row.label), "calls": row.calls.map_or("–".to_string(), count),
            "total": duration(row.total_ns as f64), "share": percent(row.share), "own": duration(row.self_ns as f64),
            "own_share": percent(ratio(row.self_ns, tree.total_ns)), "has_children": row.has_children,
            "unaccounted": if row.has_children { percent(unaccounted) } else { String::new() },
            "gpu": on_gpu, "width": row.share * 100.0, "own_width": ratio(row.self_ns, tree.total_ns) * 100.0,
        })
    });
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "more": tree.rows.len().saturating_sub(MOST_ROWS),
        "gpu": has_gpu,
        "total": duration(tree.total_ns as f64),
        "unaccounted": percent(ratio(tree.unaccounted_ns(), tree.total_ns)),
    })
}

fn gpu(analysis: &Analysis) -> Value {
    let lines = super::gpu_sheets::lines(analysis);
    let sheets: Vec<Value> = super::gpu_sheets::sheets(analysis).iter().map(sheet_values).collect();
    if lines.is_empty() && sheets.is_empty() {
        return Value::Null;
    }
    json!({ "lines": lines, "sheets": sheets })
}

fn series(analysis: &Analysis) -> Value {
    let all = &analysis.memory.series;
    let start = all.iter().filter_map(|s| s.points.first()).map(|p| p.0).min().unwrap_or(0);
    // Counters only rise, and a high-water mark adds nothing to the curve of its metric: these are in the table only.
    let drawn = |s: &Series| s.points.len() > 1 && !s.metric.ends_with("_total") && !s.metric.contains("_peak_");
    let mut order: Vec<_> = all.iter().filter(|s| drawn(s)).collect();
    order.sort_by_key(|s| (s.metric != crate::passes::memory::RESIDENT, s.min == s.max));
    let plots: Vec<Value> = order.iter().take(4).filter_map(|s| plots::series(s, start)).collect();
    let rows = all.iter().take(100).map(|s| {
        let show = |v: f64| if s.unit == "ratio" { significant(v) } else { value(&s.unit, v) };
        json!({
            "metric": printable(&s.metric), "device": printable(&s.device), "unit": printable(&s.unit),
            "cells": [
                show(s.min), show(s.mean), show(s.max), show(s.last), count(s.n),
                s.period_ns.map_or("–".to_string(), |ns| duration(ns as f64)),
            ],
        })
    });
    json!({ "plots": plots, "rows": rows.collect::<Vec<_>>() })
}

fn accounts(analysis: &Analysis) -> Value {
    let manifest = &analysis.manifest;
    let (loss, overhead) = (&manifest.loss, &manifest.overhead);
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| rows.push((name.to_string(), value));
    if let Some(text) = facts::overhead(manifest) {
        add("Overhead", text);
    }
    if overhead.application_ns > 0 {
        add("Taken from the application's threads (derived)", duration(overhead.application_ns as f64));
    }
    if let Some(text) = facts::background(manifest) {
        add("Background threads", text);
    }
    if loss.emitted > 0 {
        add("Intervals emitted", count(loss.emitted));
        add("Lost: ring full", count(loss.ring_full));
        add("Lost: too deep", count(loss.too_deep));
        add("Lost: thread without a ring", count(loss.no_ring));
        add("Lost: after shutdown", count(loss.after_shutdown));
        add("Lost: unresolved", count(loss.unresolved));
        add("Requests lost", count(loss.requests_lost));
        add("Requests open at the end", count(loss.requests_open_at_end));
        add("Samples lost", count(loss.samples_lost));
        add("Still open at the end", count(loss.open_at_end));
    }
    for (table, rows_read) in &analysis.rows {
        let size = analysis.file_bytes.get(table).copied().unwrap_or(0);
        let each =
            if *rows_read > 0 { format!(", {:.1} B a row", size as f64 / *rows_read as f64) } else { String::new() };
        add(&format!("Table {table}"), format!("{} rows, {}{each}", count(*rows_read), bytes(size as f64)));
    }
    if !manifest.clock.source.is_empty() {
        let clock = &manifest.clock;
        let tick = if clock.ticks_per_second > 0.0 { 1e9 / clock.ticks_per_second } else { 0.0 };
        add(
            "Clock",
            format!("{}, a tick of {tick:.2} ns, {:.0} ns a reading", printable(&clock.source), clock.read_ns),
        );
    }
    json!(rows)
}

fn exporters(analysis: &Analysis) -> Value {
    let rows = analysis.manifest.exporters.iter().map(|exporter| {
        let sum = |map: &BTreeMap<String, u64>| count(total(map.values().copied()));
        let reasons: Vec<String> = exporter
            .dropped
            .values()
            .flatten()
            .map(|(reason, n)| format!("{} {}", printable(reason), count(*n)))
            .collect();
        json!({
            "name": printable(&exporter.name), "received": sum(&exporter.received), "exported": sum(&exporter.exported),
            "dropped": if reasons.is_empty() { "0".to_string() } else { reasons.join(", ") },
            "conserved": exporter.conserved(), "error": exporter.last_error.as_deref().map(printable),
        })
    });
    rows.collect()
}

/// Values of a sheet.
fn sheet_values(sheet: &Sheet) -> Value {
    let rows = sheet.rows.iter().take(MOST_SHEET_ROWS).map(|row| {
        let text = |text: Option<&str>| text.map_or("–".to_string(), printable);
        let cells =
            row.cells.iter().map(|c| json!({ "text": text(c.text.as_deref()), "sort": c.sort })).collect::<Vec<_>>();
        json!({
            "name": printable(&head(&row.name, LONGEST_NAME)),
            "whole": row.whole.as_deref().map(printable),
            "bar": row.bar.map(|share| share.clamp(0.0, 1.0) * 100.0),
            "cells": cells,
        })
    });
    let columns = sheet.columns.iter().map(|c| json!({ "name": c.name, "hint": c.hint })).collect::<Vec<_>>();
    json!({
        "id": sheet.id, "title": sheet.title, "note": sheet.note, "first": sheet.first, "columns": columns,
        "rows": rows.collect::<Vec<_>>(), "what": sheet.what, "more": sheet.rows.len().saturating_sub(MOST_SHEET_ROWS),
    })
}

fn map(title: &str, map: &BTreeMap<String, Value>) -> Value {
    // `inputs.yaml` has the configuration.
    let shown = map.iter().filter(|(key, _)| *key != super::inputs::OPTION);
    let rows: Vec<(String, String)> =
        shown.map(|(key, value)| (printable(key), printable(&head(&text(value), 600)))).collect();
    json!({ "title": title, "rows": rows })
}

fn definitions(analysis: &Analysis) -> Value {
    let clock = &analysis.manifest.clock;
    let tick = (clock.ticks_per_second > 0.0).then(|| format!("{:.2} ns (clock tick)", 1e9 / clock.ticks_per_second));
    let period = analysis.memory.host(crate::passes::memory::RESIDENT).and_then(|s| s.period_ns);
    let shown = figures(analysis);
    let rows = shown_definitions(analysis).map(|d| {
        let n = shown.iter().find(|f| f.definition.key == d.key).map(|f| match f.value {
            FigureValue::Spread(s) => s.n,
            FigureValue::Single(_, n) => n,
        });
        let resolution = match (d.key, d.unit) {
            // The CPU time of a thread is counted by the operating system, not by us.
            ("background", _) => None,
            ("peak_memory", _) if analysis.memory.peak_resident().is_some_and(|peak| !peak.kept_by_kernel) => {
                period.map(|ns| format!("a sample every {}", duration(ns as f64)))
            }
            (_, "ns" | "tokens/s") => tick.clone(),
            _ => None,
        };
        json!({
            "title": d.title, "key": d.key, "label": d.label, "meaning": d.meaning, "same_as": d.same_as,
            "n": n.map_or("–".to_string(), |n| count(n as u64)), "resolution": resolution.unwrap_or_else(|| "–".to_string()),
        })
    });
    rows.collect()
}
