//! Medians and quartiles of what rules compare, and steps without what their context explains.

use super::scene::{Scene, StepScene};
use crate::passes::stats::percentile_of;

/// 25th percentile, median, 75th percentile; `None` without values.
pub(super) fn quartiles(values: Vec<f64>) -> Option<(f64, f64, f64)> {
    let at = |p: f64| percentile_of(&values, p);
    Some((at(0.25)?, at(0.5)?, at(0.75)?))
}

/// What lies above this is far from the others: median + 3 IQR.
pub(super) fn beyond((low, median, high): (f64, f64, f64)) -> f64 {
    median + 3.0 * (high - low)
}

/// Durations of the steps in order, as if all had the mean context.
pub(super) fn at_mean_context(scene: &Scene<'_>, step: &StepScene<'_>) -> Vec<f64> {
    let Some(series) = step.series else { return Vec::new() };
    let trend = scene.analysis.tokens.trend.filter(|trend| step.decodes() && trend.slope_ns > trend.slope_ci95_ns);
    let contexts: Vec<f64> = series.points.iter().filter_map(|point| point.context_len).map(f64::from).collect();
    let mean = contexts.iter().sum::<f64>() / contexts.len().max(1) as f64;
    let one = |point: &crate::passes::StepPoint| match (trend, point.context_len) {
        (Some(trend), Some(context)) => point.dur_ns as f64 - trend.slope_ns * (f64::from(context) - mean),
        _ => point.dur_ns as f64,
    };
    series.points.iter().map(one).collect()
}
