//! Figures of a request beside medians.

use crate::latency::RequestFigures;
use crate::stats::percentile_of;

/// A figure of a request beside the median of those like it.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureBeside {
    /// Its name; the unit is nanoseconds where that says so, else tokens.
    pub name: &'static str,
    /// The request's; `None` if it is not known.
    pub own: Option<f64>,
    /// The median over the requests that have it.
    pub median: Option<f64>,
}

/// Reads a figure of a request.
type Figure = fn(&RequestFigures) -> Option<f64>;

pub(super) fn beside(own: &RequestFigures, like: &[RequestFigures]) -> Vec<FigureBeside> {
    fn gaps(one: &RequestFigures) -> Vec<f64> {
        one.itl_ns.iter().map(|ns| *ns as f64).collect()
    }
    let figures: [(&'static str, Figure); 8] = [
        ("prompt_tokens", |one| one.prompt_tokens.map(|n| n as f64)),
        ("output_tokens", |one| one.output_tokens.map(|n| n as f64)),
        ("queue_ns", |one| one.queue_ns.map(|ns| ns as f64)),
        ("ttft_ns", |one| one.ttft_ns.map(|ns| ns as f64)),
        ("tpot_ns", |one| one.tpot_ns),
        ("itl_median_ns", |one| percentile_of(&gaps(one), 0.5)),
        ("itl_max_ns", |one| percentile_of(&gaps(one), 1.0)),
        ("e2e_ns", |one| one.e2e_ns.map(|ns| ns as f64)),
    ];
    let of = |(name, figure): (&'static str, Figure)| {
        let median = percentile_of(&like.iter().filter_map(figure).collect::<Vec<_>>(), 0.5);
        FigureBeside { name, own: figure(own), median }
    };
    figures.into_iter().map(of).collect()
}
