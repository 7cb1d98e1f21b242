//! The functions that took a run's time on the CPU, by path.

use candlescope_figures::HostTime;
use candlescope_figures::host_time::{FrameName, Weights};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Functions of a run that are kept, those with the most time in themselves.
const MOST_KEPT: usize = 400;

/// Time on the CPU that a function took in itself, with the functions of `core` that it calls, inside the intervals of one
/// rollup path, in nanoseconds for each typical step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FunctionFacts {
    /// Rollup path of the intervals that it ran in, those inside them left out.
    pub path: String,
    /// Path of the function as far as symbols tell it, or its binary in brackets.
    pub function: String,
    /// Its crate, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crate_name: Option<String>,
    /// The time, of all threads.
    pub ns: f64,
    /// The part of it on threads of a pool, which passes beside the step's own time.
    #[serde(default)]
    pub pool_ns: f64,
    /// Samples that it is the sum of.
    pub samples: u64,
}

/// What was sampled of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// Nanoseconds for each typical step that one sample stands for.
    pub sample_ns: f64,
    /// Functions by path, most time first.
    pub functions: Vec<FunctionFacts>,
}

impl HostFacts {
    /// Of a run with `per_step` typical steps; `None` without samples.
    pub(super) fn of(host: &HostTime, per_step: f64) -> Option<Self> {
        if host.all.samples == 0 || per_step <= 0.0 {
            return None;
        }
        let mut functions = Vec::new();
        for (path, place) in &host.places {
            let mut sums: BTreeMap<&FrameName, Weights> = BTreeMap::new();
            for node in &place.calls.nodes {
                let sum = sums.entry(place.calls.body_of(node)).or_default();
                *sum = sum.plus(&node.own);
            }
            let known = sums.into_iter().filter(|(_, time)| time.samples > 0);
            functions.extend(known.map(|(name, time)| FunctionFacts {
                path: path.clone(),
                function: name.function.to_string(),
                crate_name: name.crate_name.as_deref().map(str::to_string),
                ns: time.cpu_ns() as f64 / per_step,
                pool_ns: time.pool_ns as f64 / per_step,
                samples: time.samples,
            }));
        }
        functions
            .sort_by(|a, b| b.ns.total_cmp(&a.ns).then_with(|| (&a.path, &a.function).cmp(&(&b.path, &b.function))));
        functions.truncate(MOST_KEPT);
        Some(Self { sample_ns: host.all.cpu_ns() as f64 / per_step / host.all.samples as f64, functions })
    }

    /// For one of `n` sequences of each step.
    pub(super) fn divide(&mut self, n: f64) {
        self.sample_ns /= n;
        for function in &mut self.functions {
            function.ns /= n;
            function.pool_ns /= n;
        }
    }

    /// What a function may have had that was not kept, nanoseconds; 0 if all were.
    pub(super) fn least_kept_ns(&self) -> f64 {
        if self.functions.len() < MOST_KEPT { 0.0 } else { self.functions.last().map_or(0.0, |function| function.ns) }
    }
}
