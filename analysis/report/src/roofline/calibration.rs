//! A calibration as text, as Markdown, and as a file that `--peaks` takes.

use super::section::{MOST, signed, table_of};
use crate::format::{duration, percent, significant};
use candlescope_document::markdown;
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::text::UNKNOWN;
use candlescope_document::{Document, Fact, MostRows, Section};
use candlescope_predict::roofline::{
    Calibration, ErrorSummary, Figure, FittedValue, Form, HeldOut, LeftOut, RepeatSummary,
};
use candlescope_work::devices::{DeviceKind, FITTED_FORMAT};
use serde_json::{Value, json};

/// What can be left out, in the order of the tables.
const LEFT_OUT: [LeftOut; 3] = [LeftOut::Nothing, LeftOut::Case, LeftOut::Model];

/// The file: `figures` as in a file of measured peaks, and how well they predict.
pub fn calibration_json(calibration: &Calibration) -> Value {
    let device = &calibration.device;
    let mut figures: Vec<Value> = calibration.fitted.iter().map(|f| figure(f, calibration.runs)).collect();
    if let (Form::Attained, Some(whole)) = (calibration.form, projections(calibration)) {
        // What a reader of peaks without kinds of operations takes: the rate at which weights are read.
        figures.push(figure(&FittedValue { of: None, ..whole.clone() }, calibration.runs));
    }
    let known = |name: &str| calibration.fitted.iter().any(|f| f.dtype.is_some_and(|dtype| dtype.name() == name));
    // What stands in for types that no run multiplied.
    for (kind, flops) in device.flops.iter().filter(|(kind, _)| !known(kind.name())) {
        figures.push(json!({ "kind": "flops", "dtype": kind.name(), "value": flops, "determined": false }));
    }
    let panels_are_determined = calibration.fitted.iter().any(|fitted| fitted.kind == "panels" && fitted.determined);
    json!({
        "format": FITTED_FORMAT,
        "format_version": 1,
        "device": {
            "kind": if device.kind == DeviceKind::Cpu { "cpu" } else { "cuda" },
            "name": device.name,
        },
        "source": device.source,
        "memory_bytes": device.memory,
        "form": calibration.form,
        // Part of the finer form even where the runs do not tell its size.
        "sync_ns": device.sync.filter(|_| calibration.form == Form::Attained),
        "figures": figures,
        "index_rate": device.index_rate,
        "panel_rate": device.panel_rate.filter(|_| panels_are_determined),
        "panels_in_turn": device.panels_in_turn,
        "attained": device.attained,
        "runs": calibration.runs,
        "cases": calibration.cases,
        "models": calibration.models,
        "latencies": calibration.latencies,
        "residual": calibration.residual,
        "errors": calibration.errors,
        "repeats": calibration.repeats,
        "held_out": calibration.held_out,
    })
}

fn projections(calibration: &Calibration) -> Option<&FittedValue> {
    calibration.fitted.iter().find(|fitted| {
        fitted.kind == "read" && fitted.of == Some(candlescope_work::devices::OperationClass::Projections)
    })
}

fn figure(fitted: &FittedValue, n: usize) -> Value {
    let mut value = json!({
        "kind": fitted.kind, "value": fitted.value, "n": n, "determined": fitted.determined, "at": "fitted",
        "share_of_datasheet": fitted.share,
    });
    if let Some(dtype) = fitted.dtype {
        value["dtype"] = dtype.name().into();
    }
    if let Some(of) = fitted.of {
        value["of"] = of.name().into();
    }
    if let Some((low, high)) = fitted.interval {
        value["range"] = json!([low, high]);
    }
    value
}

/// A calibration for a terminal.
pub fn calibration_text(calibration: &Calibration, width: usize) -> String {
    draw(&calibration_document(calibration), Layout { width, color: false })
}

/// A calibration as Markdown.
pub fn calibration_markdown(calibration: &Calibration) -> String {
    markdown::draw(&calibration_document(calibration))
}

/// A calibration as a document, which the terminal and Markdown draw.
pub fn calibration_document(calibration: &Calibration) -> Document {
    let device = &calibration.device;
    let facts = vec![Fact::new("device", format!("{} · {}", device.name, device.source))];
    super::document(&format!("Calibration of {}", device.name), facts, sections(calibration))
}

fn sections(calibration: &Calibration) -> Vec<Section> {
    vec![
        fitted(calibration),
        summaries(calibration),
        by_model(calibration),
        repeats(&calibration.repeats),
        latencies(calibration),
    ]
}

fn fitted(calibration: &Calibration) -> Section {
    let show = |fitted: &FittedValue, value: f64| match fitted.kind {
        "read" | "read_prompt" | "read_unaligned" | "panels" => format!("{} GB/s", significant(value / 1e9)),
        "flops" => format!("{} TFLOP/s", significant(value / 1e12)),
        "index" => format!("{} · 10⁹/s", significant(value / 1e9)),
        _ => duration(value * 1e9),
    };
    let rows = calibration.fitted.iter().map(|fitted| {
        let interval = match (fitted.interval, fitted.determined) {
            (_, false) => "not determined by these runs".to_string(),
            (Some((low, high)), true) => format!("{} – {}", show(fitted, low), show(fitted, high)),
            (None, true) => UNKNOWN.to_string(),
        };
        let share = fitted.share.map_or_else(|| UNKNOWN.to_string(), percent);
        vec![name(fitted), show(fitted, fitted.value), interval, share]
    });
    let note = format!(
        "Residual {} (root mean square of log(predicted ÷ measured), {} latencies of {} runs; {} cases, {} models). \
         Intervals: cases drawn with repetition.",
        percent(calibration.residual),
        calibration.latencies,
        calibration.runs,
        calibration.cases,
        calibration.models,
    );
    Section::new("fitted", "Fitted", note)
        .with(table_of(&["", "value", "95 % interval", "of the datasheet's"], rows.collect()))
}

fn name(fitted: &FittedValue) -> String {
    let own = match fitted.kind {
        "read" => "bandwidth",
        "flops" => "FLOP/s",
        "kernel_floor" => "shortest operation",
        "panels" => "copying weights into panels, products of several rows",
        "product" => "a product beside its work",
        "kernel" => "another kernel beside its work",
        "read_prompt" => "bandwidth, several tokens'",
        "strided" => "a strided operand, beyond that",
        "index" => "steps of index arithmetic",
        "read_unaligned" => "bandwidth, products of unaligned rows",
        "serial" => "one of a thread's loads",
        "recording" => "recording a launch, in these runs",
        "product_launch" => "launching a product, beyond that",
        "strided_launch" => "launching on a strided operand, beyond that",
        "divided_launch" => "launching the sum of a divided product",
        "gap" => "between two kernels on the device",
        "sync" => "waiting for a token",
        kind => kind,
    };
    match (fitted.dtype, fitted.of) {
        (Some(dtype), _) => format!("{own}, {}", dtype.name()),
        (None, Some(of)) => format!("{own}, {}", of.name()),
        (None, None) => own.to_string(),
    }
}

fn error_row(first: Vec<String>, summary: &ErrorSummary) -> Vec<String> {
    let (low, high) = summary.range;
    let rest = [
        summary.n.to_string(),
        signed(summary.median),
        percent(summary.median_absolute),
        format!("{} to {}", signed(low), signed(high)),
    ];
    first.into_iter().chain(rest).collect()
}

/// Errors of all models together.
fn summaries(calibration: &Calibration) -> Section {
    let of = |left_out: LeftOut| {
        let own = calibration.errors.iter().filter(move |s| s.left_out == left_out && s.model.is_none());
        own.map(move |s| error_row(vec![s.figure.name().to_string(), left_out.name().to_string()], s))
    };
    let note = "Error = predicted ÷ measured − 1. `The case`: fitted without the case (model, batch, prompt) and its \
                repetitions; `the model`: without all runs of the model.";
    let list = match calibration.models {
        1 => vec!["one model: nothing tells how well another one is predicted".to_string()],
        _ => Vec::new(),
    };
    Section::new("errors", "Errors", note)
        .with(table_of(
            &["figure", "left out of the fit", "n", "median, signed", "median, absolute", "range"],
            LEFT_OUT.into_iter().flat_map(of).collect(),
        ))
        .list(list)
}

/// Errors of the latencies, model by model.
fn by_model(calibration: &Calibration) -> Section {
    let own = calibration.errors.iter().filter(|s| matches!(s.figure, Figure::Ttft | Figure::Tpot));
    let rows = own.filter_map(|s| {
        let model = s.model.as_ref().filter(|_| s.left_out != LeftOut::Nothing)?;
        Some(error_row(vec![model.clone(), s.figure.name().to_string(), s.left_out.name().to_string()], s))
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    rows.sort();
    Section::new("models", "Errors by model", "")
        .with(table_of(&["model", "latency", "left out", "n", "median, signed", "median, absolute", "range"], rows))
}

fn repeats(all: &[RepeatSummary]) -> Section {
    let rows = all.iter().filter(|repeat| matches!(repeat.figure, Figure::Ttft | Figure::Tpot)).map(|repeat| {
        vec![
            repeat.figure.name().to_string(),
            repeat.n.to_string(),
            signed(repeat.median),
            percent(repeat.median_absolute),
        ]
    });
    let note = "The same case again, later ÷ earlier − 1: the floor below which errors mean nothing.";
    Section::new("repeats", "Repetitions", note)
        .with(table_of(&["latency", "pairs", "median, signed", "median, absolute"], rows.collect()))
}

/// Every latency, without its case and without its model.
fn latencies(calibration: &Calibration) -> Section {
    let of = |left_out: LeftOut| {
        let own = calibration.held_out.iter();
        own.filter(move |h| h.left_out == left_out && matches!(h.figure, Figure::Ttft | Figure::Tpot))
    };
    let same = |held: &HeldOut| {
        of(LeftOut::Model).find(|other| other.run == held.run && other.figure == held.figure).map(|other| other.error)
    };
    let rows = of(LeftOut::Case).map(|held| {
        vec![
            held.run.rsplit('/').next().unwrap_or(&held.run).to_string(),
            held.model.clone(),
            format!("{} × {}", held.batch, held.prompt),
            held.figure.name().to_string(),
            duration(held.measured_ns),
            duration(held.predicted_ns),
            signed(held.error),
            same(held).map_or_else(|| UNKNOWN.to_string(), signed),
        ]
    });
    let head =
        ["run", "model", "batch × prompt", "latency", "measured", "without the case", "error", "without the model"];
    Section::new("held-out", "Left out, one at a time", "").with(table_of(&head, rows.collect()).most(
        MostRows::of(200, MOST, MOST),
        "rows",
        "the files",
    ))
}
