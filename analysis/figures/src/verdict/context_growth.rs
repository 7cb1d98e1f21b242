//! Decoding that slows down as the context grows.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

/// From this growth on, of the time of a decoding step from the shortest to the longest context, there is a finding.
const GROWTH: f64 = 0.10;
/// A slope below so many times its 95 % error is not told from noise.
const TOLD: f64 = 2.0;
/// Tokens that the slope is given for.
const TOKENS: f64 = 100.0;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    // What others take from single steps, few as they may be, makes a line of any slope.
    let Some(trend) = run.tokens.trend.filter(|_| run.disturbance().is_none()) else { return Vec::new() };
    let at = |context: u32| trend.intercept_ns + trend.slope_ns * f64::from(context);
    let growth = at(trend.context.1) / at(trend.context.0) - 1.0;
    if growth <= GROWTH || trend.slope_ns < TOLD * trend.slope_ci95_ns {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::DecodeSlowsWithContext,
        "a decoding step takes {growth:.0%} longer at a context of {longest:raw} than at {shortest:raw}: {slope} ± {error} \
         for each 100 tokens",
        "Attention over the cache grows with the context; a cache that is copied at every token (Tensor::cat) grows faster",
    );
    vec![
        finding
            .ratio("growth", growth)
            .count("longest", trend.context.1.into())
            .count("shortest", trend.context.0.into())
            .number("slope", "ns", trend.slope_ns * TOKENS)
            .number("error", "ns", trend.slope_ci95_ns * TOKENS),
    ]
}
