//! A program that runs, held against earlier windows of its own.
//!
//! A window is what a day is to a gate of runs ([`Days`]): how much windows differ when nothing has changed shows in
//! those before, neighbours may hang together, and the one that is judged is a step after them. Values within a window
//! say how sure its median is.

use super::change_points::median;
use super::comparison::{FigureChange, figure_change};
use super::days::{Day, Days, LEAST_DAYS};
use super::discoveries::adjusted;
use super::estimate::{ChangeEstimate, Design};
use super::options::CompareOptions;
use super::outcome::Outcome;
use super::sampled::RunFigure;
use super::traffic::{TrafficChange, doubtful};
use super::windowed::{Window, WindowedFigure};
use serde::Serialize;
use std::collections::BTreeMap;

/// Values that a window needs: a median of fewer jumps.
pub const LEAST_VALUES: usize = 3;
/// Changes of a layer's share below this are not named, however clear.
const LEAST_SHARE: f64 = 0.01;

/// What is known of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerWindows {
    /// Figures, all of which decide.
    pub figures: Vec<WindowedFigure>,
    /// What was asked of it: [`REQUESTS`](super::REQUESTS), [`PROMPT_TOKENS`](super::PROMPT_TOKENS) and
    /// [`OUTPUT_TOKENS`](super::OUTPUT_TOKENS).
    pub traffic: Vec<WindowedFigure>,
    /// Shares of paths in their step, a value a window.
    pub layers: Vec<WindowedFigure>,
}

/// A figure and how it changed from the windows before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowedChange {
    /// From the median of the windows before (of fewer than [`LEAST_DAYS`] that of the latest) to the median of the one that
    /// is judged, and its outcome.
    #[serde(flatten)]
    pub change: FigureChange,
    /// Windows before that have it.
    pub windows: usize,
    /// The traffic that differs too much for it to be judged, if some does: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<&'static str>,
}

/// A path's share of its step and how it changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerChange {
    /// The path as the server's metrics name it, the name of its step first.
    pub path: String,
    /// Median of its share in the windows before.
    pub a: f64,
    /// Its share in the window that is judged.
    pub b: f64,
    /// The ratio less one, with its interval.
    pub estimate: ChangeEstimate,
}

/// A server held against earlier windows of its own. Its JSON is stable: keys are added, and none changes its meaning
/// within a schema.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WindowsComparison {
    /// Version of this object.
    pub schema: u32,
    /// What it comes to.
    pub outcome: Outcome,
    /// Share up to which changes are the same.
    pub margin: f64,
    /// Probability with which an interval may miss the truth, and with which any figure may be called worse or better
    /// by mistake.
    pub alpha: f64,
    /// Figures, all of which decide.
    pub figures: Vec<WindowedChange>,
    /// Figures that have too few values, in this window or before.
    pub too_few: Vec<String>,
    /// What was asked of the server.
    pub traffic: Vec<TrafficChange>,
    /// Layers whose share changed, the largest change first; at most the share `false_discoveries` of them is wrong.
    pub layers: Vec<LayerChange>,
    /// Layers that were tested.
    pub layers_tested: usize,
    /// Share of the named layers that may be wrong.
    pub false_discoveries: f64,
}

/// Holds a server against its earlier windows. `any_traffic` judges figures although other things were asked of it.
pub fn compare_windows(server: &ServerWindows, any_traffic: bool, options: &CompareOptions) -> WindowsComparison {
    let traffic: Vec<TrafficChange> = server.traffic.iter().filter_map(TrafficChange::of).collect();
    let judged = server.figures.iter().filter(|figure| figure.now.values.len() >= LEAST_VALUES).count();
    let of_each = options.clone().alpha(options.alpha / judged.max(1) as f64);
    // One of many figures that differs by chance would make the whole worse; that all of them are within the margin is
    // claimed only where each of them is.
    let judge = |figure: &WindowedFigure| {
        let (shown, strict) = (change(figure, LEAST_VALUES, options)?, change(figure, LEAST_VALUES, &of_each)?);
        let clear = shown.outcome == strict.outcome || shown.outcome == Some(Outcome::Equivalent);
        let outcome = if clear { shown.outcome } else { shown.outcome.map(|_| Outcome::Undecided) };
        Some(FigureChange { outcome, ..shown })
    };
    let (mut figures, mut too_few) = (Vec::new(), Vec::new());
    for figure in &server.figures {
        let Some(mut changed) = judge(figure) else {
            too_few.push(figure.name.clone());
            continue;
        };
        let withheld = if any_traffic { None } else { doubtful(&figure.name, &traffic) };
        if withheld.is_some() {
            changed.outcome = changed.outcome.map(|_| Outcome::Undecided);
        }
        figures.push(WindowedChange { change: changed, windows: figure.medians(LEAST_VALUES).len(), withheld });
    }
    let (layers, layers_tested) = layer_changes(&server.layers, options);
    WindowsComparison {
        schema: 1,
        outcome: outcome(&figures),
        margin: options.margin,
        alpha: options.alpha,
        figures,
        too_few,
        traffic,
        layers,
        layers_tested,
        false_discoveries: options.false_discoveries,
    }
}

/// Worse if any figure is; else undecided if any is, because it may be worse.
fn outcome(figures: &[WindowedChange]) -> Outcome {
    let any = |outcome: Outcome| figures.iter().any(|figure| figure.change.outcome == Some(outcome));
    match () {
        () if any(Outcome::Worse) => Outcome::Worse,
        () if any(Outcome::Undecided) || figures.is_empty() => Outcome::Undecided,
        () if any(Outcome::Better) => Outcome::Better,
        () => Outcome::Equivalent,
    }
}

/// The change from the windows before to this one; `None` where this one, or all before, have too few values.
fn change(figure: &WindowedFigure, least: usize, options: &CompareOptions) -> Option<FigureChange> {
    let latest = figure.before.iter().rfind(|window| window.values.len() >= least)?;
    if figure.now.values.len() < least {
        return None;
    }
    let medians = figure.medians(least);
    let day = |(at, value): (usize, &f64)| Day {
        time_ns: at as i64,
        figures: BTreeMap::from([(figure.name.clone(), *value)]),
    };
    let days = Days::each(medians.iter().enumerate().map(day));
    let whole = |window: &Window| window.values.iter().map(|value| Some(RunFigure::whole(*value))).collect::<Vec<_>>();
    let options = options.clone().days(days);
    let change = figure_change(&figure.name, &Design::apart(), &whole(latest), &whole(&figure.now), &options)?;
    // What it was is that of all windows, which the change is from; of too few it is from the latest of them.
    let a = if medians.len() < LEAST_DAYS { change.a } else { median(&medians) };
    let estimate = change.estimate.map(ChangeEstimate::of_windows);
    Some(FigureChange { a, estimate, floor: change.floor.of_windows(), ..change })
}

/// Layers whose share changed beyond what windows differ by, and how many were tested.
fn layer_changes(layers: &[WindowedFigure], options: &CompareOptions) -> (Vec<LayerChange>, usize) {
    let changed = |layer: &WindowedFigure| {
        let change = change(layer, 1, options)?;
        let estimate = change.estimate.filter(|estimate| estimate.low.is_some())?;
        Some(LayerChange { path: layer.name.clone(), a: change.a, b: change.b, estimate })
    };
    let tested: Vec<LayerChange> = layers.iter().filter_map(changed).collect();
    let p: Vec<f64> = tested.iter().map(|layer| layer.estimate.p).collect();
    let n = tested.len();
    let clear = tested
        .into_iter()
        .zip(adjusted(&p))
        .filter(|(layer, p)| *p <= options.false_discoveries && (layer.b - layer.a).abs() >= LEAST_SHARE);
    let mut named: Vec<LayerChange> = clear.map(|(layer, _)| layer).collect();
    named.sort_by(|x, y| (y.b - y.a).abs().total_cmp(&(x.b - x.a).abs()));
    (named, n)
}
