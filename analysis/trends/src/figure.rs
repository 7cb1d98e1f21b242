//! Which figures of a run are followed.

use serde::Serialize;

/// A headline figure of a run: a column of the view `headlines`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// Its column in the view `headlines`, and in the index of archives.
    pub name: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// The unit in which it is shown.
    pub unit: &'static str,
    /// What its column is divided by for that.
    #[serde(skip)]
    pub per: f64,
    /// Whether less is better.
    pub lower_is_better: bool,
    /// Its metric for Prometheus, in base units, after `candlescope_fleet_`.
    #[serde(skip)]
    pub metric: &'static str,
    /// What a value as it is shown is multiplied by for that.
    #[serde(skip)]
    pub to_base: f64,
}

const fn time(name: &'static str, title: &'static str, metric: &'static str) -> Figure {
    Figure { name, title, unit: "ms", per: 1e6, lower_is_better: true, metric, to_base: 1e-3 }
}

/// All figures that are followed, in the order in which [`Headline::values`](crate::Headline::values) has them.
pub const FIGURES: &[Figure] = &[
    time("ttft_ns", "Time to first token (TTFT)", "ttft_seconds"),
    time("tpot_ns", "Time per output token (TPOT)", "tpot_seconds"),
    time("prefill_step_ns", "Prefill step", "prefill_step_seconds"),
    time("decode_step_ns", "Decode step", "decode_step_seconds"),
    Figure {
        name: "decode_tokens_per_s",
        title: "Decode throughput",
        unit: "tokens/s",
        per: 1.0,
        lower_is_better: false,
        metric: "decode_tokens_per_second",
        to_base: 1.0,
    },
    Figure {
        name: "energy_mj_per_token",
        title: "Energy an output token",
        unit: "mJ a token",
        per: 1.0,
        lower_is_better: true,
        metric: "energy_joules_per_token",
        to_base: 1e-3,
    },
];

impl Figure {
    /// The figure of a column; its unit may be left out (`tpot`).
    pub fn named(name: &str) -> Option<&'static Self> {
        let short = |of: &Self| of.name.strip_suffix("_ns").unwrap_or(of.name);
        FIGURES.iter().find(|of| of.name == name || short(of) == name)
    }
}
