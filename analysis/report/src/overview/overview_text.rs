//! An overview as text: a screen of a terminal.

use super::super::format::{count, percent, plural, value};
use super::overview_parts::{LeftOut, Overview, OverviewFigure, OverviewFinding, OverviewPath};
use candlescope_document::{Block, Cell, Document, Fact, Mark, Notice, Row, Section, Table, Verdict, column, words};
use candlescope_figures::definitions::DEFINITIONS;

/// Figures, paths and findings on a screen.
const MOST: [usize; 3] = [14, 4, 3];

/// What the text shows.
pub fn document(overview: &Overview) -> Document {
    let (what, trust) = (&overview.what, &overview.trust);
    let [figures, paths, findings] = MOST;
    let notices = trust.reasons.iter().filter(|reason| reason.severity != "info").map(|reason| Notice {
        mark: if reason.severity == "error" { Mark::Error } else { Mark::Warning },
        code: reason.code.clone(),
        message: reason.message.clone(),
        remedy: reason.remedy.clone(),
    });
    let next = overview.next.iter().map(|next| (next.why.clone(), next.command.clone()));
    let sections = [
        Section::new("figures", "Figures", "")
            .with(figure_table(overview.figures.iter().take(figures)))
            .or_say("Nothing was measured."),
        Section::new("findings", "What to change", "")
            .list(overview.findings.iter().take(findings).map(in_words).collect())
            .or_say("No finding asks for a change."),
        Section::new("paths", "Where the time goes", "").with(path_table(overview.paths.iter().take(paths))),
        Section::new("next", "Go on with", more(&overview.left_out)).with(Block::Fixed(
            next.map(|(why, command)| format!("{command}\n    {why}")).collect::<Vec<_>>().join("\n"),
        )),
    ];
    Document {
        title: what.title.clone(),
        facts: vec![
            Fact::new("", what.title.clone()),
            Fact::new("run", overview.run.clone()),
            Fact::new("work", what.work.clone()),
            Fact::new(
                "device",
                [&what.device, &what.device_name].into_iter().flatten().cloned().collect::<Vec<_>>().join(" · "),
            ),
        ],
        verdict: Some(Verdict { ok: trust.ok, text: trust.text.clone(), notices: notices.take(2).collect() }),
        sections: sections.into(),
        ..Document::default()
    }
}

/// What there is more of.
fn more(left_out: &LeftOut) -> String {
    let of = [
        (left_out.findings, "finding"),
        (left_out.reasons, "finding about the data"),
        (left_out.figures, "figure"),
        (left_out.not_judged, "rule that could not judge"),
    ];
    let of: Vec<String> = of.iter().filter(|(n, _)| *n > 0).map(|(n, what)| plural_of(*n, what)).collect();
    if of.is_empty() { String::new() } else { format!("There is more: {}.", of.join(", ")) }
}

fn plural_of(n: usize, what: &str) -> String {
    match what.split_once(' ') {
        Some((first, rest)) => format!("{} {rest}", plural(n as u64, first)),
        None => plural(n as u64, what),
    }
}

/// The name of a figure for people.
fn title(figure: &OverviewFigure) -> String {
    let known = DEFINITIONS.iter().find(|d| d.key == figure.key).map(|d| d.title);
    let title = known.unwrap_or(match figure.key {
        "step_host" => "Step on the host",
        "step_device" => "Step on the device",
        "step_launches" => "Kernels of a step",
        "kv_per_token" => "KV cache of a token",
        "gpu_memory" => "Peak GPU memory",
        "records_lost" => "Records lost",
        other => other,
    });
    figure.of.as_ref().map_or_else(|| title.to_string(), |of| format!("{title}: {of}"))
}

fn figure_table<'a>(figures: impl Iterator<Item = &'a OverviewFigure>) -> Table {
    let rows = figures.map(|figure| {
        let show = |number: f64| value(figure.unit, number);
        let range = figure.low.zip(figure.high).zip(figure.interval);
        let range = range.map(|((low, high), of)| {
            let of = if of == "ci95" { "95 %" } else { "range" };
            format!("{of}: {} – {}", show(low), show(high))
        });
        let bare = super::super::headline_figures::is_bare(figure.unit);
        let unit = if bare { format!(" {}", figure.unit) } else { String::new() };
        let cells = [
            format!("{}{unit}", show(figure.value)),
            range.unwrap_or_default(),
            count(figure.n),
            figure.kind.to_string(),
        ];
        Row::new(title(figure), cells.map(Cell::from).into())
    });
    Table::new("", vec![column("value", ""), words("interval"), column("n", ""), words("kind")], rows.collect())
}

fn in_words(finding: &OverviewFinding) -> String {
    let [low, mid, high] = finding.gain.map(percent);
    let place = finding.path.as_ref().unwrap_or(&finding.phase);
    format!(
        "`{}` ({}) `{place}`: gains {mid} of a step ({low} to {high}; confidence {}). {}. {}.",
        finding.code, finding.severity, finding.confidence, finding.message, finding.remedy
    )
}

fn path_table<'a>(paths: impl Iterator<Item = &'a OverviewPath>) -> Table {
    let rows = paths.map(|path| {
        let gpu = path.gpu_self_share.map(percent).unwrap_or_default();
        let cells = [value("ns", path.self_ns as f64), percent(path.self_share), gpu, count(path.calls)];
        Row::new(path.path.clone(), cells.map(Cell::from).into())
    });
    let columns = vec![column("self", ""), column("of step time", ""), column("of GPU time", ""), column("calls", "")];
    Table::new("path", columns, rows.collect())
}
