//! What only warmed up: the one switch that every figure goes by.
//!
//! The option `warmup` of a run says how many requests came before those that count. Their steps, intervals and kernels are in no
//! other figure of a report; here they are listed apart, so that a cold start can be seen.

use super::latency::warmup_requests;
use super::stats::{Distribution, total};
use super::step_rows::StepRow;
use candlescope_core::RequestRecord;
use candlescope_core::run::RunManifest;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Requests and steps that are left out of every other figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Warmup {
    requests: BTreeSet<u64>,
    steps: HashSet<u64>,
    /// Its steps by phase or name, in order of their first start.
    pub rows: Vec<WarmupRow>,
    /// Intervals of these steps.
    pub intervals: u64,
    /// Kernels, copies and memsets of these steps.
    pub kernels: u64,
}

/// Warm-up steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmupRow {
    /// The phase, or the steps' name.
    pub name: String,
    /// How many.
    pub steps: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub total_ns: u64,
    /// Durations of single steps in nanoseconds.
    pub duration: Option<Distribution>,
}

impl Warmup {
    /// What of `requests` and `steps` (in order of start) warmed up. A step belongs to its request; one without a request counts.
    pub fn of(manifest: &RunManifest, requests: &[RequestRecord], steps: &[StepRow]) -> Self {
        let requests = warmup_requests(manifest, requests);
        let is_warmup = |step: &&StepRow| step.request.is_some_and(|request| requests.contains(&request));
        let mut first: Vec<&str> = Vec::new();
        let mut groups: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for step in steps.iter().filter(is_warmup) {
            let group = groups.entry(step.group()).or_default();
            if group.is_empty() {
                first.push(step.group());
            }
            group.push(step.dur_ns);
        }
        let rows = first.into_iter().filter_map(|name| {
            let durations = groups.remove(name)?;
            Some(WarmupRow {
                name: name.to_string(),
                steps: durations.len() as u64,
                total_ns: total(durations.iter().copied()),
                duration: Distribution::of(durations.into_iter().map(|ns| ns as f64).collect()),
            })
        });
        let rows = rows.collect();
        let steps = steps.iter().filter(is_warmup).map(|step| step.step).collect();
        Self { requests, steps, rows, intervals: 0, kernels: 0 }
    }

    /// Numbers of the requests that warmed up.
    pub fn requests(&self) -> &BTreeSet<u64> {
        &self.requests
    }

    /// Whether a step only warmed up.
    pub fn has_step(&self, step: Option<u64>) -> bool {
        step.is_some_and(|step| self.steps.contains(&step))
    }

    /// Steps that only warmed up.
    pub fn steps(&self) -> u64 {
        self.steps.len() as u64
    }

    /// The steps that count.
    pub fn measured(&self, steps: &[StepRow]) -> Vec<StepRow> {
        steps.iter().filter(|step| !self.steps.contains(&step.step)).cloned().collect()
    }
}
