//! A figure of a run, and of parts of the run.

use candlescope_figures::stats::percentile_of;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Steps of a kind in a part, at least: a median of fewer jumps.
const STEPS_IN_PART: usize = 3;

/// A figure of a run: its value, and the same over parts of the run one after the other, which show how steady it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunFigure {
    /// Over the whole run.
    pub value: f64,
    /// Over each part; empty if there are too few steps, or the figure has no parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<f64>,
}

impl RunFigure {
    /// A figure without parts.
    pub fn whole(value: f64) -> Self {
        Self { value, parts: Vec::new() }
    }
}

/// The median of values by step, over all of them and over each part. Parts with too few values leave all parts out.
pub(super) fn medians(known: &[(u64, f64)], parts: &HashMap<u64, usize>) -> RunFigure {
    let all: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
    let last = parts.values().max().map_or(0, |last| last + 1);
    let mut by_part: Vec<Vec<f64>> = vec![Vec::new(); last];
    for (step, value) in known {
        if let Some(part) = parts.get(step) {
            by_part[*part].push(*value);
        }
    }
    let enough = by_part.len() > 1 && by_part.iter().all(|values| values.len() >= STEPS_IN_PART);
    let of_parts = by_part.iter().filter_map(|values| percentile_of(values, 0.5));
    RunFigure {
        value: percentile_of(&all, 0.5).unwrap_or_default(),
        parts: if enough { of_parts.collect() } else { Vec::new() },
    }
}
