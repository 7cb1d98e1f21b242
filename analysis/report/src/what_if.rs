//! What steps would take, on a terminal.

use super::format::{count, duration, gain, percent, plural, printable};
use candlescope_document::Table;
use candlescope_document::terminal::{self, Layout};
use candlescope_predict::simulation::{Refusal, Scenario, StepsWhatIf, TypicalStep, WhatIf};
use candlescope_work::estimate::Estimate;
use std::fmt::Write as _;

/// The steps as they run unobserved, and in each scenario.
pub fn text(what_if: &WhatIf) -> String {
    let mut out = String::new();
    for steps in &what_if.steps {
        one(&mut out, steps);
    }
    for refusal in &what_if.absent {
        let name = refusal.name.as_deref().map_or(String::new(), |name| format!(" {}", printable(name)));
        let _ = writeln!(out, "Not simulated{name}: {}.", printable(&refusal.message));
    }
    out
}

fn one(out: &mut String, steps: &StepsWhatIf) {
    let typical = &steps.typical;
    let what = format!("{}: a typical step, of {} replayed", printable(&steps.name), count(typical.steps));
    let _ = writeln!(out, "{what}");
    let mut rows = vec![
        vec!["as recorded".to_string(), duration(typical.measured_seconds * 1e9), String::new(), String::new()],
        vec![
            "replayed unchanged".to_string(),
            duration(typical.replayed_seconds * 1e9),
            String::new(),
            format!("each within {} of its step", percent(typical.largest_error)),
        ],
        vec![
            "unobserved".to_string(),
            duration(typical.unobserved.seconds.mid * 1e9),
            bounds(typical.unobserved.seconds),
            saved(typical),
        ],
    ];
    rows.extend(steps.scenarios.iter().map(scenario));
    let table = Table::of_texts(&["step", "time", "bounds", "of the unobserved step"], rows);
    let table = table.words(&["bounds", "of the unobserved step"]);
    let _ = writeln!(out, "{}", terminal::table(&table, Layout::default()));
    for refused in steps.scenarios.iter().filter_map(|scenario| Some((scenario, scenario.abstains.as_ref()?))) {
        let (scenario, refusal): (&Scenario, &Refusal) = refused;
        let _ = writeln!(out, "No answer to {}: {}.", printable(&scenario.changes), printable(&refusal.message));
    }
    basis(out, steps);
    out.push('\n');
}

/// What the figures rest on.
fn basis(out: &mut String, steps: &StepsWhatIf) {
    let (typical, facts) = (&steps.typical, &steps.facts);
    let unobserved = &typical.unobserved;
    let recording = &facts.recording;
    let _ = writeln!(
        out,
        "Recording took {} of the host's time ({}): intervals and marks {}, {} each ({}){}",
        duration(unobserved.host_seconds.mid * 1e9),
        bounds(unobserved.host_seconds),
        duration(unobserved.intervals_seconds.mid * 1e9),
        duration(recording.interval_ns.mid + recording.marks_ns.mid),
        printable(&recording.interval_source),
        match unobserved.idle_seconds {
            Some(_) => format!(
                "; calls {}, {} each ({})",
                duration(unobserved.calls_seconds.mid * 1e9),
                duration(recording.call_ns.mid),
                printable(&recording.call_source)
            ),
            None => String::new(),
        }
    );
    if let Some((now, before)) = unobserved.idle_seconds.zip(unobserved.recorded_idle_seconds) {
        let _ = writeln!(
            out,
            "Device: {} kernels of {} together; idle {} as recorded, {} unobserved",
            count(typical.kernels.round() as u64),
            duration(typical.kernel_seconds * 1e9),
            duration(before * 1e9),
            duration(now.mid * 1e9)
        );
    }
    if let (Some(outside), Some(check)) = (typical.outside, typical.check) {
        let (what, seconds) = match outside.plain_seconds {
            Some(seconds) => ("plain (not recorded at all)", seconds),
            None => ("outside the windows of kernels", outside.seconds),
        };
        let _ = writeln!(
            out,
            "Check: a step {what} takes {} ({}); unobserved is {} of it",
            duration(seconds * 1e9),
            plural(outside.steps, "step"),
            percent(1.0 + check)
        );
    }
    if typical.inferred_waits > 0 {
        let _ = writeln!(
            out,
            "{} of the host for the device were found by when it went on",
            plural(typical.inferred_waits, "wait")
        );
    }
    let answered = || steps.scenarios.iter().filter(|scenario| scenario.outcome.is_some());
    let changes = |what: &str| answered().any(|scenario| scenario.changes.contains(what));
    if changes("graph") {
        let gap = facts.graph_gap_ns;
        let source = printable(&facts.graph_gap_source);
        let _ = writeln!(out, "Gap in a graph: {} to {} ({source})", duration(gap.low), duration(gap.high));
        let _ = writeln!(
            out,
            "A graph is replayed with kernels as fast as they were recorded: the upper end of what `launch_bound` \
             promises, whose middle and lower end are for 87.5 and 75 % of that rate"
        );
    }
    if let Some(launches) = facts.eager_launches.as_ref().filter(|_| changes("eager")) {
        let _ = writeln!(
            out,
            "Call by call: {} of the host for each kernel or copy ({} to {}; {})",
            duration(launches.host_ns.mid),
            duration(launches.host_ns.low),
            duration(launches.host_ns.high),
            printable(&launches.source)
        );
    }
    if let Some(source) =
        facts.peaks_source.as_deref().filter(|_| ["fuse", "bits", "clock", "batch"].iter().any(|c| changes(c)))
    {
        let _ = writeln!(out, "Peaks: {}", printable(source));
    }
}

fn saved(typical: &TypicalStep) -> String {
    let after = typical.unobserved.seconds.mid;
    if typical.measured_seconds > 0.0 {
        format!("{} of the recorded one", percent(after / typical.measured_seconds))
    } else {
        String::new()
    }
}

fn scenario(scenario: &Scenario) -> Vec<String> {
    let name = printable(&scenario.changes);
    let Some(outcome) = &scenario.outcome else {
        return vec![name, "–".to_string(), String::new(), "no answer, see below".to_string()];
    };
    let share = outcome.share_of_step;
    let (word, low, mid, high) = if share.mid >= 0.0 {
        ("saves", share.low, share.mid, share.high)
    } else {
        ("costs", -share.high, -share.mid, -share.low)
    };
    let mut text = format!("{word} {} ({} to {})", gain(mid), gain(low), gain(high));
    if let Some(each) = outcome.seconds_per_sequence {
        let _ = write!(text, "; {} a sequence", duration(each.mid * 1e9));
    }
    vec![name, duration(outcome.seconds.mid * 1e9), bounds(outcome.seconds), text]
}

fn bounds(estimate: Estimate) -> String {
    format!("{} to {}", duration(estimate.low * 1e9), duration(estimate.high * 1e9))
}
