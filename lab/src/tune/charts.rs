//! Charts of a search.

use super::forecast::Latency;
use super::outcome::{TuneOutcome, TunePoint};
use crate::study::{Chart, Line, Point};

/// Points of a curve, at most.
const CURVE: f64 = 60.0;
const MIB: f64 = 1_048_576.0;

/// Throughput by batch, latency against throughput, memory by batch.
pub(super) fn charts(tuned: &TuneOutcome) -> Vec<Chart> {
    let all = [throughput(tuned), latency(tuned), memory(tuned)];
    all.into_iter().filter(|chart| chart.lines.iter().any(|line| !line.points.is_empty())).collect()
}

fn at(x: f64, y: f64) -> Point {
    Point { x, y, spread: None }
}

fn line(name: impl Into<String>, points: Vec<Point>, connected: bool) -> Line {
    Line { name: name.into(), points, connected }
}

/// Batches that a curve is drawn through: all of a short range, else as many as can be told apart.
fn curve(tuned: &TuneOutcome) -> Vec<u64> {
    let (low, high) = (tuned.start as f64, tuned.end as f64);
    let steps = CURVE.min(high - low + 1.0);
    let mut all: Vec<u64> = (0..steps as u32)
        .map(|n| (low * (high / low).powf(f64::from(n) / (steps - 1.0).max(1.0))).round() as u64)
        .collect();
    all.dedup();
    all
}

fn throughput(tuned: &TuneOutcome) -> Chart {
    let found = |point: &TunePoint| {
        let found = point.found?;
        Some(Point { x: point.batch as f64, y: found.output_tokens_per_s, spread: found.output_tokens_per_s_spread })
    };
    let of = |batch: &u64| Some(at(*batch as f64, *tuned.expected.get(batch)?));
    let predicted = |batch: &u64| {
        let latency = tuned.prediction.latencies.get(batch)?;
        Some(at(*batch as f64, latency.output_tokens_per_s(*batch, tuned.output_tokens)))
    };
    let batches = curve(tuned);
    let mut lines = vec![
        line("measured", tuned.points.iter().filter_map(found).collect(), false),
        line("expected: corrected by what was measured", batches.iter().filter_map(of).collect(), true),
    ];
    let roofline: Vec<Point> = batches.iter().filter_map(predicted).collect();
    if !roofline.is_empty() {
        lines.push(line("roofline, beforehand", roofline, true));
    }
    Chart {
        file: "throughput".into(),
        title: "Throughput by batch (medians, with their intervals or ranges)".into(),
        x: "sequences at once".into(),
        y: "output tokens/s".into(),
        log: true,
        x_label: None,
        lines,
    }
}

fn latency(tuned: &TuneOutcome) -> Chart {
    let point = |of: fn(&Latency) -> Option<f64>| -> Vec<Point> {
        let found = tuned.points.iter().filter_map(|point| point.found);
        found.filter_map(|found| Some(at(found.output_tokens_per_s, of(&found.latency)? / 1e6))).collect()
    };
    let batches: Vec<String> =
        tuned.points.iter().filter(|point| point.found.is_some()).map(|point| point.batch.to_string()).collect();
    let lines = [
        line("time to first token", point(|latency| Some(latency.ttft_ns)), true),
        line("time per output token", point(|latency| latency.tpot_ns), true),
    ];
    Chart {
        file: "latency_against_throughput".into(),
        title: format!("Latency against throughput (batches of {})", batches.join(", ")),
        x: "output tokens/s".into(),
        y: "ms".into(),
        log: true,
        x_label: None,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    }
}

fn memory(tuned: &TuneOutcome) -> Chart {
    let weights = tuned.memory.weight_bytes.unwrap_or(0) as f64;
    let batches = curve(tuned);
    let need = |batch: &u64| Some(at(*batch as f64, (weights + *tuned.memory.needs.get(batch)? as f64) / MIB));
    let found = |point: &TunePoint| {
        Some(at(point.batch as f64, point.found.as_ref()?.memory_bytes.filter(|b| *b > 0.0)? / MIB))
    };
    let mut lines = vec![
        line("predicted: weights, keys and values, activations", batches.iter().filter_map(need).collect(), true),
        line("found: most resident", tuned.points.iter().filter_map(found).collect(), false),
    ];
    if let Some(there) = tuned.memory.available_bytes {
        let y = (weights + there as f64) / MIB;
        lines.push(line("available", [tuned.start, tuned.end].map(|b| at(b as f64, y)).into(), true));
    }
    Chart {
        file: "memory".into(),
        title: "Memory by batch".into(),
        x: "sequences at once".into(),
        y: "MiB".into(),
        log: true,
        x_label: None,
        lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
    }
}
