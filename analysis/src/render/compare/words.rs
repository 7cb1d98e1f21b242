//! Sentences about a comparison.

use crate::compare::{
    Basis, CasesComparison, Clock, Comparison, DecidedBy, Estimate, FigureChange, Floor, FloorSource, Outcome,
};
use crate::render::format::{percent, plural, printable, value};

/// What a comparison comes to, in one sentence, and what to do where it comes to nothing.
pub fn conclusion(comparison: &Comparison) -> String {
    let Some(step) = &comparison.step else { return "Nothing was timed.".to_string() };
    let change = step.estimate.map_or_else(|| "by an unknown share".to_string(), |estimate| changed(&estimate));
    let margin = percent(comparison.margin);
    match (comparison.outcome, comparison.decided_by) {
        (Outcome::Worse, Some(DecidedBy::Counts)) => format!(
            "worse: B does more work ({}), which is exact. Its times do not decide: a step takes {change}",
            more_work(comparison)
        ),
        (outcome @ (Outcome::Worse | Outcome::Better), Some(DecidedBy::Paths)) => format!(
            "{}: {} beyond doubt, which the time of the whole step does not show yet: it takes {change}",
            outcome.as_str(),
            changed_paths(comparison)
        ),
        (Outcome::Worse, Some(DecidedBy::History)) => {
            format!("worse: the history has changed its level; against the baseline a step takes {change}")
        }
        (Outcome::Worse, _) => format!("worse: a step takes {change}"),
        (Outcome::Better, _) => format!("better: a step takes {change}"),
        (Outcome::Equivalent, _) => format!("equivalent within {margin}: a step takes {change}"),
        (Outcome::Undecided, _) => format!("undecided: a step takes {change}. {}", undecided(step)),
    }
}

/// The path that changed most, and by how much of a step.
fn changed_paths(comparison: &Comparison) -> String {
    comparison.paths.changed.first().map_or("paths changed".to_string(), |path| {
        format!("{} changed by {} of a step", printable(&path.path), signed(path.share_of_step))
    })
}

/// What a comparison of cases comes to.
pub fn conclusion_of_cases(comparison: &CasesComparison) -> String {
    let count = |outcome: Outcome| comparison.cases.iter().filter(|case| case.outcome == outcome).count();
    let all = [Outcome::Worse, Outcome::Better, Outcome::Equivalent, Outcome::Undecided];
    let parts: Vec<String> = all
        .into_iter()
        .filter(|outcome| count(*outcome) > 0)
        .map(|outcome| format!("{} {}", count(outcome), outcome.as_str()))
        .collect();
    format!(
        "{}: of {}, {}",
        comparison.outcome.as_str(),
        plural(comparison.cases.len() as u64, "case"),
        parts.join(", ")
    )
}

fn more_work(comparison: &Comparison) -> String {
    let mut more: Vec<(f64, String)> = comparison
        .counts
        .iter()
        .filter_map(|count| {
            let more = count.more_work().filter(|more| *more > comparison.margin)?;
            let share = if more.is_finite() { format!("+{}", percent(more)) } else { "none before".to_string() };
            Some((more, format!("{} of {} {share}", count.name.replace('_', " "), printable(&count.kind))))
        })
        .collect();
    more.sort_by(|a, b| b.0.total_cmp(&a.0));
    more.into_iter().take(3).map(|(_, text)| text).collect::<Vec<_>>().join(", ")
}

/// What would decide it.
fn undecided(step: &FigureChange) -> String {
    match step.estimate.map(|estimate| (estimate.basis, estimate.low)) {
        Some((Basis::Pairs, None)) => "There are too few pairs for an interval: take at least 8".to_string(),
        Some((Basis::Pairs, Some(_))) => "More pairs narrow the interval (--pairs)".to_string(),
        Some((Basis::Parts, _)) => {
            "One run of each does not show how much process starts differ: compare --run 'A' 'B' takes pairs of runs"
                .to_string()
        }
        _ => "More runs of each, best in turns (compare --run 'A' 'B'), narrow the interval".to_string(),
    }
}

/// `5.1 % longer (2.9 % to 7.4 %, 14 pairs)`, of a time.
pub(super) fn changed(estimate: &Estimate) -> String {
    let word = if estimate.change < 0.0 { "less" } else { "longer" };
    format!("{} {word} ({})", percent(estimate.change.abs()), interval(estimate))
}

/// The interval of a ratio and what it rests on.
pub(super) fn interval(estimate: &Estimate) -> String {
    let of = match estimate.basis {
        Basis::Pairs => plural(estimate.n.0 as u64, "pair"),
        Basis::Runs => format!("{} and {} runs", estimate.n.0, estimate.n.1),
        Basis::Parts => "one run of each".to_string(),
    };
    match estimate.low.zip(estimate.high) {
        Some((low, high)) => format!("{} to {}, {of}", signed(low), signed(high)),
        None => format!("no interval, {of}"),
    }
}

/// A change with its sign: `+5.1 %`.
pub(super) fn signed(change: f64) -> String {
    let share = percent(change.abs());
    if share == "0.0 %" { share } else { format!("{}{share}", if change < 0.0 { "−" } else { "+" }) }
}

/// A change of a value with its sign and unit.
pub(super) fn signed_value(unit: &str, change: f64) -> String {
    format!("{}{}", if change < 0.0 { "−" } else { "+" }, value(unit, change.abs()))
}

/// Where a floor comes from.
pub fn floor_source(floor: &Floor) -> String {
    match floor.source {
        FloorSource::RepeatedA => format!("A repeated {} times between B's runs", floor.n),
        FloorSource::RunsOfA => format!("the spread of {} runs of A", floor.n),
        FloorSource::PartsOfA => {
            format!("the spread of {} parts of A's only run; process starts may differ by more", floor.n)
        }
        FloorSource::Given => "as given".to_string(),
    }
}

pub(super) fn clock(clock: Clock) -> &'static str {
    match clock {
        Clock::Host => "host",
        Clock::Device => "device",
    }
}
