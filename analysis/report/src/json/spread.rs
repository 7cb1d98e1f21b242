//! A distribution, as `metrics.json` has it.

use candlescope_figures::Distribution;
use serde_json::{Value, json};

/// If there are more samples than this, they are in the Parquet tables only.
pub(super) const MOST_SAMPLES: usize = 20_000;

pub(super) fn spread(d: &Distribution, with_samples: bool) -> Value {
    let mut value = json!({
        "n": d.n,
        "units": d.units,
        "median": d.median,
        "p50": d.median,
        "p90": d.p90,
        "p95": d.p95,
        "p99": d.p99,
        "min": d.min,
        "max": d.max,
        "mean": d.mean,
        "stddev": d.stddev,
        "median_ci95": d.median_ci95,
        "range": d.range.map(|range| (range.low, range.high)),
        "range_of": d.range.map(|range| range.of.as_str()),
    });
    if with_samples && d.n <= MOST_SAMPLES {
        value["samples"] = json!(d.samples);
    }
    value
}
