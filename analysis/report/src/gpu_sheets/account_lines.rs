//! How GPU time was measured and what became of marks and kernels, in a few lines.

use super::super::format::{count, duration, percent, plural, printable, significant};
use candlescope_schema::run::{GpuAccount, RunManifest};

/// The lines of the account, each with a one-word label; none if no GPU time was asked for.
pub(super) fn lines(manifest: &RunManifest) -> Vec<(&'static str, String)> {
    let Some(account) = &manifest.gpu else { return Vec::new() };
    let mut lines = Vec::new();
    if account.clock.is_some() {
        lines.push(("timing", timing(account)));
        lines.push(("marks", marks(account)));
    }
    if let Some(text) = clocks(account) {
        lines.push(("clock", text));
    }
    if let Some(k) = &account.kernels {
        let mut text = format!(
            "{} recorded by {} in {} with {}, {} lost, {} outside every interval",
            count(k.recorded),
            printable(&k.recorder),
            plural(k.windows, "window"),
            plural(k.steps, "step"),
            count(k.dropped),
            count(k.unattributed)
        );
        if k.of_graphs > 0 {
            text.push_str(&format!(
                ", {} of CUDA graphs: {} in the layer that was captured, {} in one derived from the order of the kernels",
                count(k.of_graphs),
                count(k.of_captured),
                count(k.of_derived)
            ));
        }
        if k.untold > 0 {
            text.push_str(&format!(", {} missing in replays without the recorder saying so", count(k.untold)));
        }
        if k.windows_missed > 0 {
            text.push_str(&format!(
                ", {} left out while the kernels of the one before came in",
                plural(k.windows_missed, "window")
            ));
        }
        if k.late > 0 {
            text.push_str(&format!(", {} too late for their interval's time", count(k.late)));
        }
        if k.outside_window > 0 {
            text.push_str(&format!(", {} outside every window and in no figure", count(k.outside_window)));
        }
        if let Some(ns) = k.clock_bound_ns {
            text.push_str(&format!(", times within {} of the host's", duration(ns as f64)));
        }
        if let Some(error) = &k.error {
            text.push_str(&format!("; {}", printable(error)));
        }
        lines.push(("kernels", text));
    }
    if let Some(check) = account.cross_check {
        lines.push((
            "check",
            format!(
                "marks ÷ first kernel's start to last one's end: median {:.3}, p05 {:.3}, p95 {:.3} over {}",
                check.median_ratio,
                check.p05,
                check.p95,
                plural(check.n, "interval")
            ),
        ));
    }
    lines
}

fn timing(account: &GpuAccount) -> String {
    let budget = match account.timing.as_str() {
        "adaptive" => format!(" within {} of step time", percent(account.budget)),
        _ => String::new(),
    };
    let cold = match account.cold_steps.len() as u64 {
        0 => String::new(),
        n => format!("; {} of these the first of its kind and cold", count(n)),
    };
    format!(
        "{}{budget}: every interval of {}{cold}, {} in part, {} not at all",
        printable(&account.timing),
        plural(account.steps_full, "step"),
        plural(account.steps_partial, "step"),
        count(account.steps_unmarked)
    )
}

fn marks(account: &GpuAccount) -> String {
    let get = |key: &str| account.marks.get(key).copied().unwrap_or(0);
    let cost = account.mark_cost_ns.map_or(String::new(), |ns| format!(", {} each (measured)", duration(ns)));
    let mut text = format!("{} recorded{cost}, {} together", count(get("recorded")), duration(account.marks_ns as f64));
    if account.marks_wait_ns > 0 {
        text.push_str(&format!(" and {} of waiting for room in the queue", duration(account.marks_wait_ns as f64)));
    }
    for key in ["shared", "lost", "outstanding", "no_context", "capturing", "full", "failed"] {
        let n = get(key);
        if n > 0 {
            text.push_str(&format!(", {} {}", count(n), key.replace('_', " ")));
        }
    }
    let untimed: Vec<String> = account
        .intervals
        .iter()
        .filter(|(key, n)| *key != "timed" && **n > 0)
        .map(|(key, n)| format!("{} {}", count(*n), printable(&key.replace('_', " "))))
        .collect();
    let timed = account.intervals.get("timed").copied().unwrap_or(0);
    text.push_str(&format!("; {} intervals timed", count(timed)));
    if !untimed.is_empty() {
        text.push_str(&format!(", not timed: {}", untimed.join(", ")));
    }
    text
}

/// How far GPU times may be off on the host's time line.
fn clocks(account: &GpuAccount) -> Option<String> {
    let devices = account.devices.iter().map(|d| {
        format!(
            "{} within {} of the host's, drift {} ppm, {}",
            printable(if d.name.is_empty() { &d.uuid } else { &d.name }),
            duration(d.skew_bound_ns as f64),
            significant(d.drift_ppm),
            plural(d.anchors.len() as u64, "anchor")
        )
    });
    let text = devices.collect::<Vec<_>>().join("; ");
    (!text.is_empty()).then_some(text)
}
