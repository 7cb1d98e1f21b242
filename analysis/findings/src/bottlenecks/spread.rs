//! Medians and quartiles of what rules compare, and steps without what their context explains.

use super::query::alike as table;
use super::scene::{Scene, StepScene};
use candlescope_figures::StepPoint;
use candlescope_figures::request_account::{LENGTHS_APART, of_a_length};
use candlescope_figures::stats::percentile_of;

/// 25th percentile, median, 75th percentile; `None` without values.
pub(super) fn quartiles(values: Vec<f64>) -> Option<(f64, f64, f64)> {
    let at = |p: f64| percentile_of(&values, p);
    Some((at(0.25)?, at(0.5)?, at(0.75)?))
}

/// What lies above this is far from the others: median + 3 IQR.
pub(super) fn beyond((low, median, high): (f64, f64, f64)) -> f64 {
    median + 3.0 * (high - low)
}

/// Fewer steps have no spread.
pub(super) const FEWEST: usize = 20;

/// Steps that can be compared with each other.
pub(super) struct ComparableSteps {
    /// Their durations in order, as if all had the mean context.
    pub(super) ns: Vec<f64>,
    /// Their share of the time of all steps, beside those whose recording sets them apart.
    pub(super) share: f64,
    /// The first of them that take far longer than the others: they are cold, and not stragglers.
    pub(super) cold: usize,
    /// The same as SQL: a table `alike` of these steps.
    pub(super) table: String,
}

/// The steps that differ in nothing that explains their durations: with recorded kernels or without, whichever are
/// more, and, where they do not decode, of about the same number of tokens.
pub(super) fn alike(scene: &Scene<'_>, step: &StepScene<'_>) -> ComparableSteps {
    let Some(series) = step.series else {
        return ComparableSteps { ns: Vec::new(), share: 0.0, cold: 0, table: String::new() };
    };
    let recorded = series.points.iter().filter(|point| point.recorded).count() * 2 > series.points.len();
    let all: Vec<&StepPoint> = series.points.iter().filter(|point| point.recorded == recorded).collect();
    let lengths: Vec<f64> = all.iter().filter_map(|point| point.tokens).map(f64::from).collect();
    let usual = percentile_of(&lengths, 0.5).filter(|_| !step.decodes());
    let fits = |point: &&StepPoint| match (usual, point.tokens) {
        (Some(usual), Some(tokens)) => of_a_length(f64::from(tokens), usual),
        (usual, _) => usual.is_none(),
    };
    let some_recorded = series.points.iter().any(|point| point.recorded);
    let whole: f64 = all.iter().map(|point| point.dur_ns as f64).sum();
    let points: Vec<&StepPoint> = all.into_iter().filter(fits).collect();
    let own: f64 = points.iter().map(|point| point.dur_ns as f64).sum();

    let trend = scene.analysis.tokens.trend.filter(|trend| step.decodes() && trend.slope_ns > trend.slope_ci95_ns);
    let contexts: Vec<f64> = points.iter().filter_map(|point| point.context_len).map(f64::from).collect();
    let mean = contexts.iter().sum::<f64>() / contexts.len().max(1) as f64;
    let one = |point: &&StepPoint| match (trend, point.context_len) {
        (Some(trend), Some(context)) => point.dur_ns as f64 - trend.slope_ns * (f64::from(context) - mean),
        _ => point.dur_ns as f64,
    };
    let ns: Vec<f64> = points.iter().map(one).collect();

    let mut condition = match (some_recorded, recorded) {
        (false, _) => String::new(),
        (true, true) => " AND (run, step) IN (SELECT run, step FROM recorded_steps)".to_string(),
        (true, false) => " AND (run, step) NOT IN (SELECT run, step FROM recorded_steps)".to_string(),
    };
    if let Some(usual) = usual {
        condition.push_str(&format!(" AND abs(tokens - {usual}) <= {}", LENGTHS_APART * usual));
    }
    let expression = match trend {
        Some(trend) => format!("host_dur_ns - coalesce({} * (context_len - {mean}), 0)", trend.slope_ns),
        None => "1.0 * host_dur_ns".to_string(),
    };
    let limit = quartiles(ns.clone()).filter(|_| ns.len() >= FEWEST).map(beyond);
    let cold = limit.map_or(0, |limit| ns.iter().take_while(|ns| **ns > limit).count());
    let table = table(step, &expression, &condition);
    ComparableSteps { ns, share: if whole > 0.0 { own / whole } else { 0.0 }, cold, table }
}
