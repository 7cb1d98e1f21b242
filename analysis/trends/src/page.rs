//! What changed over time, as text and as a page.

use super::series::{Change, DayPoint, Group, LEAST, Summary, Trend};
use candlescope_charts::{Chart, Line, Point};
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::text::code;
use candlescope_document::{Cell, Document, Fact, Row, Section, Table, cell, column, missing, of_several, words};
use candlescope_schema::numbers::{DAY_NS, day, signed_percent};

/// A summary as text.
pub fn text(summary: &Summary, color: bool) -> String {
    draw(&shared(summary), layout(color))
}

/// One figure over time as text: a row a day.
pub fn text_of(summary: &Summary, color: bool) -> String {
    draw(&document_of(summary), layout(color))
}

/// One figure over time: a row a day.
pub fn document_of(summary: &Summary) -> Document {
    let mut document = head(summary);
    for (at, group) in summary.groups.iter().enumerate() {
        let mut section = Section::new(format!("group-{at}"), title(group), String::new());
        for trend in &group.trends {
            section = section.with(days_of(trend));
        }
        document.sections.push(section);
    }
    document
}

/// What the page of a summary shows, with a chart of each figure.
pub fn document(summary: &Summary) -> Document {
    let mut document = shared(summary);
    for (section, group) in document.sections.iter_mut().zip(&summary.groups) {
        for trend in group.trends.iter().filter(|trend| trend.days.len() > 1) {
            let part = Section::new(format!("{}-{}", section.id, trend.figure.name), trend.figure.title, String::new());
            section.parts.push(part.nav("").picture(chart(trend).picture()).with(days_of(trend)));
        }
        if !group.verdict_days.is_empty() {
            let part = Section::new(format!("{}-verdicts", section.id), "Wrong with the data", String::new());
            section.parts.push(part.nav("").with(verdicts_of(group)));
        }
    }
    let told = summary.left_out.iter().map(|of| format!("{}: {}", code(&of.run), of.why));
    document
        .sections
        .push(Section::new("left-out", "Left out", "Runs that are in no figure here.").list(told.collect()));
    document
}

fn layout(color: bool) -> Layout {
    Layout { color, width: usize::MAX }
}

fn head(summary: &Summary) -> Document {
    let changes = || summary.groups.iter().flat_map(|group| &group.trends).flat_map(|trend| &trend.changes);
    let worse = changes().filter(|change| change.worse).count();
    let conclusion = match (changes().count(), summary.looked_at) {
        (_, 0) => format!("No history is long enough to look for changes: {LEAST} days of one group are needed."),
        (0, _) => "No figure changed its level.".to_string(),
        (1, _) if worse == 1 => "One figure changed its level, for the worse.".to_string(),
        (1, _) => "One figure changed its level, for the better.".to_string(),
        (n, _) => format!("{n} changes of a level, {worse} of them for the worse."),
    };
    let chance = format!(
        "{} histories were looked at; without any change, one in a hundred is said to have one",
        summary.looked_at
    );
    let mut facts = vec![Fact::new("", runs(summary.runs)), Fact::new("", chance)];
    if !summary.left_out.is_empty() {
        facts.push(Fact::new("", format!("{} left out", runs(summary.left_out.len()))));
    }
    Document {
        kind: "summary".to_string(),
        title: format!("{} over time", runs(summary.runs)),
        conclusion,
        facts,
        ..Document::default()
    }
}

/// What text and page show.
fn shared(summary: &Summary) -> Document {
    let mut document = head(summary);
    document.sections.extend(summary.groups.iter().enumerate().map(|(at, group)| section(at, group)));
    document
}

fn runs(n: usize) -> String {
    if n == 1 { "1 run".to_string() } else { format!("{n} runs") }
}

fn title(group: &Group) -> String {
    let keys: Vec<&str> = group.keys.iter().map(|(_, value)| value.as_str()).collect();
    if keys.is_empty() { "All runs".to_string() } else { keys.join(" · ") }
}

fn section(at: usize, group: &Group) -> Section {
    let of_ranks = match group.processes > group.runs {
        true => format!(
            " of {} processes: ranks of a program are one run, with the median of their figures",
            group.processes
        ),
        false => String::new(),
    };
    let (first, last) = (&group.first_day, &group.last_day);
    let note = format!("{}{of_ranks}, {first} to {last}. Medians of the runs of a day.", runs(group.runs));
    let columns = vec![
        column("First day", "Median of the runs of the first day that has it"),
        column("Last day", "Median of the runs of the last day that has it"),
        column("Since the first", "The last day against the first one"),
        column("Days", "Days that have it"),
        words("Changes of its level"),
    ];
    let rows = group.trends.iter().map(|trend| {
        let value = |point: Option<&DayPoint>| {
            point.map_or_else(missing, |point| cell(shown(point.median), point.median).below(format!("n {}", point.n)))
        };
        let changes: Vec<String> = trend.changes.iter().map(|change| told(change, trend)).collect();
        Row::new(
            format!("{} ({})", trend.figure.title, trend.figure.unit),
            vec![
                value(trend.days.first()),
                value(trend.days.last()),
                trend.since_first().map_or_else(missing, |change| cell(signed_percent(change), change)),
                cell(trend.days.len().to_string(), trend.days.len() as f64),
                Cell::from(if changes.is_empty() { "–".to_string() } else { changes.join("; ") }),
            ],
        )
    });
    let mut section =
        Section::new(format!("group-{at}"), title(group), note).with(Table::new("Figure", columns, rows.collect()));
    if let Some(findings) = findings(group) {
        section = section.with(findings);
    }
    if !group.verdicts.is_empty() {
        let days = |code: &String| {
            let mut of_code = group.verdict_days.iter().filter(|day| day.verdicts.contains_key(code)).map(|of| &of.day);
            match (of_code.next(), of_code.next_back()) {
                (Some(first), Some(last)) => format!(", {first} to {last}"),
                (only, _) => only.map_or_else(String::new, |day| format!(" on {day}")),
            }
        };
        let each = group.verdicts.iter().map(|(code, n)| format!("`{code}` in {}{}", runs(*n), days(code)));
        section = section.list(vec![format!("Wrong with the data: {}.", each.collect::<Vec<_>>().join(", "))]);
    }
    section
}

/// What runs were found to lack, before and since the last change.
fn findings(group: &Group) -> Option<Table> {
    if group.findings.is_empty() {
        return None;
    }
    let share = |side: usize, n: usize| match group.analysed[side] {
        0 => missing(),
        all => of_several(format!("{n} of {all}"), n as f64, n as f64 / all as f64),
    };
    let changed = group.analysed[0] > 0;
    let mut columns = Vec::new();
    if changed {
        columns.push(column("Before the last change", "Runs that have it, of those that were analysed"));
    }
    columns.push(column(if changed { "Since then" } else { "Runs" }, "Runs that have it, of those that were analysed"));
    let rows = group.findings.iter().map(|(code, [before, after])| {
        let mut cells = Vec::new();
        if changed {
            cells.push(share(0, *before));
        }
        cells.push(share(1, *after));
        Row::new(code.clone(), cells)
    });
    Some(Table::new("Finding", columns, rows.collect()))
}

/// What is wrong with data, a row a day on which anything is.
fn verdicts_of(group: &Group) -> Table {
    let codes: Vec<&String> = group.verdicts.keys().collect();
    let columns = codes.iter().map(|code| column((*code).clone(), "Runs of the day that have it"));
    let rows = group.verdict_days.iter().map(|day| {
        let cells = codes.iter().map(|code| match day.verdicts.get(*code) {
            Some(n) => of_several(format!("{n} of {}", day.runs), *n as f64, *n as f64 / day.runs as f64),
            None => missing(),
        });
        Row::new(day.day.clone(), cells.collect())
    });
    Table::new("Day", columns.collect(), rows.collect())
}

/// A row a day.
fn days_of(trend: &Trend) -> Table {
    let unit = trend.figure.unit;
    let columns = vec![
        column(format!("Median ({unit})"), "Of the runs of the day"),
        column("Smallest", "Of the runs of the day"),
        column("Largest", "Of the runs of the day"),
        column("Runs", "How many of the day have it"),
        words("Change of its level"),
        words("Names of runs"),
    ];
    let rows = trend.days.iter().map(|point| {
        let change = trend.changes.iter().find(|change| change.day == point.day);
        let more = point.n.saturating_sub(point.runs.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Row::new(
            point.day.clone(),
            vec![
                cell(shown(point.median), point.median),
                cell(shown(point.low), point.low),
                cell(shown(point.high), point.high),
                cell(point.n.to_string(), point.n as f64),
                Cell::from(change.map_or_else(String::new, direction)),
                Cell::from(format!("{}{more}", point.runs.join(", "))),
            ],
        )
    });
    Table::new(trend.figure.title, columns, rows.collect())
}

fn chart(trend: &Trend) -> Chart {
    let points = |all: &[DayPoint]| {
        all.iter().map(|at| Point { x: at.number as f64, y: at.median, spread: Some((at.low, at.high)) }).collect()
    };
    // A level each, so that a change shows as two colours.
    let mut lines = Vec::new();
    let mut from = 0;
    for change in trend.changes.iter().map(Some).chain([None]) {
        let to = match change {
            Some(change) => trend.days.iter().position(|at| at.day == change.day).unwrap_or(from),
            None => trend.days.len(),
        };
        let name = match trend.days.get(from) {
            Some(first) => format!("from {}", first.day),
            None => continue,
        };
        lines.push(Line { name, points: points(&trend.days[from..to.max(from)]), connected: true });
        from = to;
    }
    Chart {
        file: trend.figure.name.to_string(),
        title: format!("{} by day: median, and range of the runs", trend.figure.title),
        x: "day (UTC)".to_string(),
        y: trend.figure.unit.to_string(),
        log: false,
        x_label: Some(|number| day((number as i64).saturating_mul(DAY_NS))),
        lines,
    }
}

fn told(change: &Change, trend: &Trend) -> String {
    let run = change.runs.first().map(|run| format!(", first `{run}`")).unwrap_or_default();
    format!(
        "{}: {} from {} to {} {} (p {:.3}{run})",
        change.day,
        direction(change),
        shown(change.before),
        shown(change.after),
        trend.figure.unit,
        change.p
    )
}

fn direction(change: &Change) -> String {
    format!("{}, {}", signed_percent(change.change), if change.worse { "worse" } else { "better" })
}

/// Four digits.
fn shown(value: f64) -> String {
    let digits = (3 - value.abs().max(1e-12).log10().floor() as i32).clamp(0, 6);
    format!("{value:.*}", usize::try_from(digits).unwrap_or(0))
}
