//! A server beside its earlier windows as text.

use super::layout;
use super::tables::{cells, section};
use super::words::doubted;
use crate::format::{percent, printable, signed_percent, significant};
use candlescope_compare::{
    FigureChange, OUTPUT_TOKENS, Outcome, PROMPT_TOKENS, TrafficChange, WindowedChange, WindowsComparison, figure,
};
use candlescope_document::terminal::draw;
use candlescope_document::{Document, Fact, Section, Table};

/// The comparison as text, with facts about where it was read: each a name and what it is.
pub fn text_of_windows(comparison: &WindowsComparison, server: &[(&'static str, String)], color: bool) -> String {
    draw(&document_of_windows(comparison, server), layout(color))
}

/// What the text shows.
pub fn document_of_windows(comparison: &WindowsComparison, server: &[(&'static str, String)]) -> Document {
    let facts = server.iter().map(|(name, what)| Fact::new(name, printable(what)));
    let judged = format!(
        "margin {}; an interval misses the truth, and any figure is called worse or better by mistake, with a probability of {}",
        percent(comparison.margin),
        percent(comparison.alpha)
    );
    Document {
        kind: format!("{} · gate", comparison.outcome.as_str()),
        title: "the server now, and earlier windows of its own".to_string(),
        before: comparison.traffic.iter().filter_map(|traffic| other_traffic(traffic, &comparison.figures)).collect(),
        conclusion: conclusion_of_windows(comparison),
        facts: facts.chain([Fact::new("judged", judged)]).collect(),
        sections: vec![figures(comparison), traffic(comparison), layers(comparison)],
        ..Document::default()
    }
}

/// What it comes to, in one sentence, and what to do where it comes to nothing.
pub fn conclusion_of_windows(comparison: &WindowsComparison) -> String {
    let of = |outcome: Outcome| comparison.figures.iter().filter(move |figure| figure.change.outcome == Some(outcome));
    let listed = |outcome: Outcome| of(outcome).map(|figure| changed(&figure.change)).collect::<Vec<_>>().join(", ");
    let margin = percent(comparison.margin);
    match comparison.outcome {
        Outcome::Worse => format!("worse: {}", listed(Outcome::Worse)),
        Outcome::Better => format!("better: {}", listed(Outcome::Better)),
        Outcome::Equivalent => format!("equivalent: every figure is within {margin} of what it was"),
        Outcome::Undecided => match of(Outcome::Undecided).next() {
            Some(figure) => format!("undecided: {}. {}", changed(&figure.change), undecided(figure)),
            None => "undecided: no figure has values in enough windows before. Wait until there are, or hold the server against another \
                     time with --against"
                .to_string(),
        },
    }
}

fn changed(change: &FigureChange) -> String {
    let by = change.estimate.map_or_else(
        || "by an unknown share".to_string(),
        |estimate| {
            let interval = estimate.low.zip(estimate.high);
            let interval = interval
                .map_or(String::new(), |(low, high)| format!(" ({} to {})", signed_percent(low), signed_percent(high)));
            format!("{}{interval}", signed_percent(estimate.change))
        },
    );
    format!("{} {by}", figure::title(&change.name))
}

/// Why a figure does not decide, and what would.
fn undecided(figure: &WindowedChange) -> String {
    if let Some(what) = figure.withheld {
        let what = words(what);
        return format!(
            "Other traffic than before ({what}) says nothing of the server: --any-traffic judges nevertheless."
        );
    }
    match figure.change.estimate.and_then(|estimate| estimate.doubt) {
        Some(doubt) => format!("{}.", doubted(doubt, &figure.change)),
        None => format!(
            "Earlier windows differ by up to {} by themselves: longer ones (--last), more of them (--windows) or a wider margin (--within) \
             would decide.",
            figure.change.floor.share.map_or("an unknown share".to_string(), percent)
        ),
    }
}

fn words(traffic: &str) -> &'static str {
    match traffic {
        PROMPT_TOKENS => "prompts",
        OUTPUT_TOKENS => "answers",
        _ => "requests a second",
    }
}

/// What has to be known of the traffic: what a figure was withheld for.
fn other_traffic(traffic: &TrafficChange, figures: &[WindowedChange]) -> Option<String> {
    let name = figures.iter().filter_map(|figure| figure.withheld).find(|name| *name == traffic.name)?;
    Some(format!("Other traffic than before: {} {} → {}.", words(name), significant(traffic.a), significant(traffic.b)))
}

fn figures(comparison: &WindowsComparison) -> Section {
    let row = |figure: &WindowedChange| {
        let mut cells = cells(&figure.change);
        cells[0] = figure::title(&figure.change.name);
        cells.insert(1, figure.windows.to_string());
        cells
    };
    let titles: Vec<String> = comparison.too_few.iter().map(|name| figure::title(name)).collect();
    let note = if titles.is_empty() {
        String::new()
    } else {
        format!("Without values in enough windows: {}.", titles.join(", "))
    };
    let head = ["figure", "windows", "before", "now", "change", "interval", "A/A floor", "outcome"];
    section("figures", "Figures", note, Table::of_texts(&head, comparison.figures.iter().map(row).collect()))
}

fn traffic(comparison: &WindowsComparison) -> Section {
    let row = |traffic: &TrafficChange| {
        let change = if traffic.a > 0.0 { signed_percent(traffic.b / traffic.a - 1.0) } else { "–".to_string() };
        vec![traffic.name.replace('_', " "), significant(traffic.a), significant(traffic.b), change]
    };
    let table = Table::of_texts(&["what", "before", "now", "change"], comparison.traffic.iter().map(row).collect());
    section("traffic", "What was asked of it", String::new(), table)
}

fn layers(comparison: &WindowsComparison) -> Section {
    let rows = comparison.layers.iter().take(20).map(|layer| {
        vec![printable(&layer.path), percent(layer.a), percent(layer.b), signed_percent(layer.estimate.change)]
    });
    let note = match (comparison.layers_tested, comparison.layers.len()) {
        (0, _) => "None could be tested.".to_string(),
        (tested, 0) => format!("None of {tested} that were tested."),
        (tested, n) => format!(
            "{n} of {tested} tested; of those named, at most {} are expected to be wrong. A share also grows where others shrink.",
            percent(comparison.false_discoveries)
        ),
    };
    let table = Table::of_texts(&["path", "before", "now", "change"], rows.collect());
    section("layers", "Layers whose share of the step changed (host)", note, table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_compare::{CompareOptions, ServerWindows, Window, WindowedFigure, compare_windows};

    fn figure(before: &[f64], now: f64) -> WindowedFigure {
        let window = |value: f64| Window { from_ns: 0, values: [0.99, 1.0, 1.01].map(|factor| factor * value).into() };
        WindowedFigure { name: "ttft_ns".into(), before: before.iter().map(|v| window(*v)).collect(), now: window(now) }
    }

    fn said(figure: WindowedFigure, traffic: Vec<WindowedFigure>) -> String {
        let server = ServerWindows { figures: vec![figure], traffic, ..ServerWindows::default() };
        let comparison = compare_windows(&server, false, &CompareOptions::default());
        text_of_windows(&comparison, &[("server", "http://p:9090 {}".to_string())], false)
    }

    #[test]
    fn each_outcome_says_what_it_rests_on_or_what_would_decide() {
        let steady = [1e8, 1.01e8, 0.99e8, 1e8, 1.005e8];
        let worse = said(figure(&steady, 1.3e8), Vec::new());
        assert!(worse.contains("Worse: time to first token +") && worse.contains("http://p:9090 {}"), "{worse}");
        let few = said(figure(&steady[..2], 1.3e8), Vec::new());
        assert!(few.contains("there are 2 windows before with values") && few.contains("--floor"), "{few}");
        let rough = said(figure(&[1e8, 1.6e8, 0.7e8, 1.3e8, 0.8e8], 1.3e8), Vec::new());
        assert!(rough.contains("Undecided") && rough.contains("differ by up to"), "{rough}");
        let requests = WindowedFigure { name: "requests_per_s".into(), ..figure(&[1.0; 5], 3.0) };
        let other = said(figure(&steady, 1.3e8), vec![requests]);
        assert!(other.contains("--any-traffic") && other.contains("requests a second 1.00 → 3.00"), "{other}");
    }
}
