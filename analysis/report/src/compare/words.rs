//! Sentences about a comparison.

use crate::format::{duration, head, json, percent, plural, printable, signed_percent, value};
use candlescope_compare::{
    Basis, CasesComparison, ChangeEstimate, Class, Clock, Comparison, DecidedBy, Difference, Doubt, FigureChange,
    Floor, FloorSource, Outcome, named,
};

/// What has to be known before any time: what disturbed the runs, and what else differs between the sides.
pub fn before_times(disturbed: &[String], differences: &[Difference]) -> Vec<String> {
    /// Differences in a sentence; the table has all.
    const MOST: usize = 6;
    let mut said: Vec<String> = disturbed.iter().map(|text| format!("{}.", printable(text))).collect();
    let shown = |value: &serde_json::Value| head(&printable(&json(value)), 40).trim_matches('"').to_string();
    let one = |difference: &Difference| {
        let (a, b) = (shown(&difference.a), shown(&difference.b));
        format!("{}: {a} → {b}", named(difference.what, &printable(&difference.key)).replace('_', " "))
    };
    let first: Vec<String> = differences.iter().take(MOST).map(one).collect();
    if !first.is_empty() {
        let more = differences.len().saturating_sub(MOST);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let allowed = differences.iter().any(|difference| difference.class != Class::Note);
        let so = if allowed { " (as allowed)" } else { "" };
        said.push(format!("Not the same on both sides{so}: {}{more}.", first.join("; ")));
    }
    said
}

/// What a comparison comes to, in one sentence, and what to do where it comes to nothing.
pub fn conclusion(comparison: &Comparison) -> String {
    let Some(step) = &comparison.step else { return "Nothing was timed.".to_string() };
    let change = step.estimate.map_or_else(|| "by an unknown share".to_string(), |estimate| changed(&estimate));
    let margin = percent(comparison.margin);
    let takes = takes(comparison);
    match (comparison.outcome, comparison.decided_by) {
        (Outcome::Worse, Some(DecidedBy::Counts)) => format!(
            "worse: B does more work ({}), which is exact. Its times do not decide: {takes} {change}",
            more_work(comparison)
        ),
        (outcome @ (Outcome::Worse | Outcome::Better), Some(DecidedBy::Paths)) => format!(
            "{}: {} beyond doubt, which the time of the whole step does not show yet: it takes {change}",
            outcome.as_str(),
            changed_paths(comparison)
        ),
        (Outcome::Worse, Some(DecidedBy::History)) => {
            format!("worse: the history has changed its level; against the baseline {takes} {change}")
        }
        (outcome @ (Outcome::Worse | Outcome::Better), _) => {
            let known = step.estimate.map_or(String::new(), |estimate| margin_known(&estimate, comparison.margin));
            format!("{}: {takes} {change}{known}{}", outcome.as_str(), mostly_in(comparison))
        }
        (Outcome::Equivalent, _) => format!("equivalent within {margin}: {takes} {change}"),
        (Outcome::Undecided, _) => format!("undecided: {takes} {change}. {}", undecided(step)),
    }
}

/// Whose time the change is of.
fn takes(comparison: &Comparison) -> &'static str {
    if comparison.per_sequence { "for each of its sequences, a step takes" } else { "a step takes" }
}

/// What has to be known of all times where sides with another batch are compared.
pub(super) fn divided(comparison: &Comparison) -> Option<String> {
    comparison.per_sequence.then(|| {
        "Times and counts of steps are divided by the sequences that a step has, as their number differs. Figures of \
         requests are those of one request beside the others of its batch; tokens a second are of all sequences."
            .to_string()
    })
}

/// Whether it is known that a change is beyond the margin.
fn margin_known(estimate: &ChangeEstimate, margin: f64) -> String {
    let Some((low, high)) = estimate.low.zip(estimate.high) else { return String::new() };
    let (beyond, margin) = (low > margin || high < -margin, percent(margin));
    match beyond {
        true => format!(", by more than the margin of {margin}"),
        false => format!("; whether by more than the margin of {margin} is not known"),
    }
}

/// The path and the function that most of the change is in, if there are such.
fn mostly_in(comparison: &Comparison) -> String {
    let half = |share: Option<f64>| share.filter(|share| *share >= 0.5).map(|share| percent(share.min(1.0)));
    let path = comparison.paths.changed.first().and_then(|path| {
        let (share, name) = (half(path.share_of_change)?, printable(&path.path));
        Some(match path.outside_others {
            true => format!("{share} of that is in the self time of {name}, outside all intervals inside it"),
            false => format!("{share} of that is in {name}"),
        })
    });
    let functions = comparison.functions.as_ref().map_or(&[][..], |functions| &functions.changed);
    let function = functions.first().and_then(|function| {
        Some(format!(
            "{} is of the function {} (sampled)",
            half(function.share_of_change)?,
            printable(&function.function)
        ))
    });
    path.into_iter().chain(function).map(|said| format!(". {said}")).collect()
}

/// The path that changed most, and by how much of a step.
fn changed_paths(comparison: &Comparison) -> String {
    comparison.paths.changed.first().map_or("paths changed".to_string(), |path| {
        let own = if path.outside_others { "the self time of " } else { "" };
        format!("{own}{} changed by {} of a step", printable(&path.path), signed_percent(path.share_of_step))
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
    if let Some(doubt) = step.estimate.and_then(|estimate| estimate.doubt) {
        return doubted(doubt, step);
    }
    match step.estimate.map(|estimate| (estimate.basis, estimate.low)) {
        Some((Basis::Pairs, None)) => "There are too few pairs for an interval: take at least 8".to_string(),
        Some((Basis::Pairs, Some(_))) => "More pairs narrow the interval (--pairs)".to_string(),
        Some((Basis::Days, _)) => {
            "Days of this history differ by too much for one of them to decide; more days narrow that, and so does a \
             wider margin (--within)"
                .to_string()
        }
        _ => "More runs of each, best in turns (compare --run 'A' 'B'), narrow the interval".to_string(),
    }
}

/// Why runs cannot decide about this figure, and what would.
pub(super) fn doubted(doubt: Doubt, figure: &FigureChange) -> String {
    let why = match doubt {
        Doubt::OneRunOfEach => "One run of each does not show how much process starts and hours differ".to_string(),
        Doubt::RecordedApart { gap_ns } => format!(
            "{} lie between the sides, far more than between runs of one side, and what else changed on the machine \
             meanwhile does not show",
            duration(gap_ns as f64)
        ),
        Doubt::FewDays { known, needed } => format!(
            "How much days differ here is not known yet: the history has {} before today, and it takes {needed}",
            plural(known as u64, "day")
        ),
        Doubt::FewWindows { known, needed } => format!(
            "How much windows differ is not known yet: there are {} before with values, and it takes {needed}",
            plural(known as u64, "window")
        ),
    };
    // Without a floor it is the floor that is missing; with one that was given, it is not.
    let is_given = figure.floor.source == FloorSource::Given;
    let has_interval = figure.estimate.is_some_and(|estimate| estimate.low.is_some());
    let given = match has_interval {
        true => "The interval, widened by the --floor that was given, reaches across the margin",
        false => {
            "The --floor that was given decides nothing while the spread within the runs is not known: record longer ones"
        }
    };
    match doubt {
        Doubt::OneRunOfEach | Doubt::RecordedApart { .. } if is_given => {
            format!("{why}. {given}. Or take them in turns: compare --run 'A' 'B'")
        }
        Doubt::OneRunOfEach | Doubt::RecordedApart { .. } => format!(
            "{why}. Take them in turns: compare --run 'A' 'B'. Or say with --floor what the program differs by on this machine \
             when nothing has changed"
        ),
        _ if is_given => format!("{why}. {given}"),
        Doubt::FewDays { .. } => format!("{why}. Or say with --floor what days differ by"),
        Doubt::FewWindows { .. } => {
            format!("{why}. Wait, choose a shorter --against, or say with --floor what windows differ by")
        }
    }
}

/// `5.1 % longer (2.9 % to 7.4 %, 14 pairs)`, of a time.
pub(super) fn changed(estimate: &ChangeEstimate) -> String {
    let word = if estimate.change < 0.0 { "less" } else { "longer" };
    format!("{} {word} ({})", percent(estimate.change.abs()), interval(estimate))
}

/// The interval of a ratio and what it rests on.
pub(super) fn interval(estimate: &ChangeEstimate) -> String {
    let of = match estimate.basis {
        Basis::Pairs => plural(estimate.n.0 as u64, "pair"),
        Basis::Runs => format!("{} and {} runs", estimate.n.0, estimate.n.1),
        Basis::Days => format!("{} before", plural(estimate.n.0 as u64, "day")),
        Basis::Windows => format!("{} before", plural(estimate.n.0 as u64, "window")),
        Basis::Parts => "one run of each".to_string(),
    };
    match estimate.low.zip(estimate.high) {
        Some((low, high)) => format!("{} to {}, {of}", signed_percent(low), signed_percent(high)),
        None => format!("no interval, {of}"),
    }
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
        FloorSource::Days => format!("how much days differ, from {} so far", plural(floor.n as u64, "day")),
        FloorSource::Windows => format!("how much windows differ, from {} so far", plural(floor.n as u64, "window")),
        FloorSource::Given => "as given".to_string(),
    }
}

pub(super) fn clock(clock: Clock) -> &'static str {
    match clock {
        Clock::Host => "host",
        Clock::Device => "device",
    }
}

/// How runs that followed one another were judged, where that widened the interval.
pub(super) fn followed(estimate: &ChangeEstimate) -> Option<String> {
    /// Less than this is not worth a word.
    const LITTLE: f64 = 0.3;
    let lasting = estimate.correlation.filter(|correlation| *correlation >= LITTLE && estimate.low.is_some());
    let drift = estimate.drift.filter(|drift| drift.abs() >= 0.01 && estimate.low.is_some());
    let what = match estimate.basis {
        Basis::Days => "day",
        Basis::Windows => "window",
        _ => "run",
    };
    let said = match (lasting, drift) {
        (None, None) => return None,
        (Some(lasting), None) => {
            format!("{} of what makes a {what} slow is still there in the next one", percent(lasting))
        }
        (None, Some(drift)) => format!("{what}s drift: {} from A to B, which is taken out", signed_percent(drift)),
        (Some(lasting), Some(drift)) => format!(
            "{what}s drift ({} from A to B, which is taken out), and {} of what makes one slow is still there later",
            signed_percent(drift),
            percent(lasting)
        ),
    };
    Some(format!("The interval is wider because {said}."))
}
