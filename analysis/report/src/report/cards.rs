//! The most important figures in large letters, for a page.

use super::super::charts::spark;
use super::super::format::{count, duration, head, printable, value};
use super::super::headline_figures::{Figure, FigureValue, figures, interval, is_bare};
use candlescope_document::html::Plain;
use candlescope_document::{Picture, Plot, PlotLine};
use candlescope_figures::{Analysis, Distribution};

/// Figures that have a card, by key.
const KEYS: [&str; 8] =
    ["ttft", "tpot", "itl", "decode_tps", "prefill_tps", "peak_memory", "gpu_busy", "energy_per_token"];

/// Samples of a figure in JSON: more look the same.
const MOST_SAMPLES: usize = 4000;

struct Card<'a> {
    title: String,
    /// The value with its unit.
    text: String,
    unit: &'a str,
    /// What the value is, or the interval around it.
    below: String,
    n: usize,
    /// Samples that are drawn below it.
    spread: Option<&'a Distribution>,
    meaning: &'a str,
}

/// Markup of the cards, and the samples behind them: latency if there are requests, else the durations of steps; empty
/// without either.
pub(super) fn cards(analysis: &Analysis) -> (String, Vec<Picture>) {
    let figures = figures(analysis);
    let steps = analysis.phases.rows.iter().take(if analysis.latency.requests.is_empty() { 4 } else { 0 });
    let of_steps = steps.filter_map(|row| {
        let d = row.duration.as_ref()?;
        Some(Card {
            title: format!("Step {}", head(&printable(&row.name), 28)),
            text: duration(d.median),
            unit: "ns",
            below: interval("ns", d, false).unwrap_or_else(|| "median".to_string()),
            n: d.n,
            spread: Some(d),
            meaning: "Duration of one step",
        })
    });
    let of_figures = figures.iter().filter(|figure| KEYS.contains(&figure.definition.key)).map(of_figure);
    let cards: Vec<Card<'_>> = of_steps.chain(of_figures).collect();
    if cards.is_empty() {
        return Default::default();
    }
    let drawn: String = cards.iter().map(markup).collect();
    let markup = format!(
        "<div class=\"cards\" aria-label=\"Headline figures: median, its 95 % interval or range, number of samples\">{drawn}</div>"
    );
    (markup, cards.iter().filter_map(samples).collect())
}

/// The samples of a card's figure, if it has any.
fn samples(card: &Card<'_>) -> Option<Picture> {
    let spread = card.spread?;
    let stride = spread.samples.len().div_ceil(MOST_SAMPLES).max(1);
    let points = spread.samples.iter().enumerate().step_by(stride).map(|(at, value)| (at as f64, *value));
    let lines = vec![PlotLine::new("", false, points)];
    let plot =
        Plot { title: card.title.clone(), x: "sample".to_string(), y: card.unit.to_string(), lines, ..Plot::default() };
    Some(Picture::new("", plot).caption(format!("{}: {}, n {}", card.text, card.below, count(card.n as u64))))
}

fn of_figure<'a>(figure: &Figure<'a>) -> Card<'a> {
    let d = figure.definition;
    let (around, spread, n) = match figure.value {
        FigureValue::Spread(s) => (interval(d.unit, s, false), Some(s), s.n),
        FigureValue::Single(_, n) => (None, None, n),
    };
    let what = match d.key {
        "peak_memory" => figure.remark.unwrap_or_default(),
        "gpu_busy" => "recorded steps",
        "energy_per_token" => "gross",
        _ => "median",
    };
    Card {
        title: d.title.to_string(),
        text: value(d.unit, figure.central()),
        unit: d.unit,
        below: around.unwrap_or_else(|| what.to_string()),
        n,
        spread,
        meaning: d.meaning,
    }
}

fn markup(card: &Card<'_>) -> String {
    // The unit is set smaller than its number.
    let bare = if is_bare(card.unit) { card.unit } else { "" };
    let (number, unit) = card.text.rsplit_once(' ').unwrap_or((&card.text, bare));
    format!(
        "<article class=\"card\" title=\"{}\"><h3>{}</h3><p class=\"number\">{}<small>{}</small></p><p class=\"spread\">\
         <span>{}</span><span>n {}</span></p>{}</article>",
        Plain(card.meaning),
        Plain(&card.title),
        Plain(number),
        Plain(unit),
        Plain(&card.below),
        count(card.n as u64),
        card.spread.and_then(spark::strip).unwrap_or_default()
    )
}
