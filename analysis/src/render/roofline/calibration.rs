//! A calibration as text, and as a file that `--peaks` takes.

use super::section::{Section, UNKNOWN, signed};
use super::terminal;
use crate::devices::DeviceKind;
use crate::passes::Distribution;
use crate::render::format::{duration, percent, significant};
use crate::roofline::{Calibration, Fitted, HeldOut};
use serde_json::{Value, json};

/// Name of the file's format.
const FORMAT: &str = "candlescope-calibration";

/// The file: `figures` as in a file of measured peaks, and how well they predict.
pub fn calibration_json(calibration: &Calibration) -> Value {
    let device = &calibration.device;
    let mut figures: Vec<Value> = calibration.fitted.iter().map(|f| figure(f, calibration.latencies)).collect();
    let known = |name: &str| calibration.fitted.iter().any(|f| f.dtype.is_some_and(|dtype| dtype.name() == name));
    // What stands in for types that no run multiplied.
    for (kind, flops) in device.flops.iter().filter(|(kind, _)| !known(kind.name())) {
        figures.push(json!({ "kind": "flops", "dtype": kind.name(), "value": flops, "determined": false }));
    }
    json!({
        "format": FORMAT,
        "format_version": 1,
        "device": {
            "kind": if device.kind == DeviceKind::Cpu { "cpu" } else { "cuda" },
            "name": device.name,
        },
        "source": device.source,
        "memory_bytes": device.memory,
        "figures": figures,
        "runs": calibration.runs,
        "latencies": calibration.latencies,
        "residual": calibration.residual,
        "held_out": calibration.held_out,
    })
}

fn figure(fitted: &Fitted, n: usize) -> Value {
    let mut value = json!({
        "kind": fitted.kind, "value": fitted.value, "n": n, "determined": fitted.determined, "at": "fitted",
    });
    if let Some(dtype) = fitted.dtype {
        value["dtype"] = dtype.name().into();
    }
    if let Some((low, high)) = fitted.interval {
        value["range"] = json!([low, high]);
    }
    value
}

/// A calibration for a terminal.
pub fn calibration_text(calibration: &Calibration, width: usize) -> String {
    let facts = [format!("device  {} · {}", calibration.device.name, calibration.device.source)];
    let show = |fitted: &Fitted, value: f64| match fitted.kind {
        "read" => format!("{} GB/s", significant(value / 1e9)),
        "flops" => format!("{} TFLOP/s", significant(value / 1e12)),
        _ => duration(value * 1e9),
    };
    let rows = calibration.fitted.iter().map(|fitted| {
        let interval = match (fitted.interval, fitted.determined) {
            (_, false) => "not determined by these runs".to_string(),
            (Some((low, high)), true) => format!("{} – {}", show(fitted, low), show(fitted, high)),
            (None, true) => UNKNOWN.to_string(),
        };
        let name = match (fitted.kind, fitted.dtype) {
            ("read", _) => "bandwidth".to_string(),
            ("flops", Some(dtype)) => format!("FLOP/s, {}", dtype.name()),
            ("kernel_floor", _) => "shortest operation".to_string(),
            (kind, _) => kind.to_string(),
        };
        vec![name, show(fitted, fitted.value), interval]
    });
    let note = format!(
        "Residual {} (root mean square of log(predicted ÷ measured), {} latencies).",
        percent(calibration.residual),
        calibration.latencies
    );
    let fitted = Section::new("fitted", "Fitted", note).table(&["", "value", "95 % interval"], rows.collect());
    let mut sections = vec![fitted, held_out(&calibration.held_out)];
    if calibration.held_out.is_empty() {
        let line = "errors and intervals need at least three runs: one is left out at a time".to_string();
        sections.push(Section { list: vec![line], ..Section::new("few", "Few runs", "") });
    }
    terminal::text(&facts, &sections, width)
}

fn held_out(all: &[HeldOut]) -> Section {
    let rows = all.iter().map(|held| {
        vec![
            held.run.clone(),
            held.model.clone(),
            held.figure.name().to_string(),
            duration(held.measured_ns),
            duration(held.predicted_ns),
            signed(held.error),
        ]
    });
    let absolute = Distribution::of(all.iter().map(|held| held.error.abs()).collect());
    let median = absolute.map_or(UNKNOWN.to_string(), |absolute| percent(absolute.median));
    let note = format!(
        "Each run predicted from the others. Median of the errors without their signs: {}, n {}.",
        median,
        all.len()
    );
    let head = ["run", "model", "latency", "measured", "predicted", "error"];
    Section { terminal_rows: 100, ..Section::new("held-out", "Left out, one run at a time", note) }
        .table(&head, rows.collect())
}
