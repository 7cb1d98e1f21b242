//! What else used the machine while runs were recorded: a comparison of such runs begins with it.

use crate::passes::Analysis;
use candlescope_core::numbers::significant;
use candlescope_core::run::{Code, env_key};
use candlescope_core::{host_metric, metric};
use serde_json::Value;
use std::collections::BTreeMap;

/// Processors that others use from which they disturb.
const MOST_OTHERS: f64 = 0.3;
/// Findings of a run that say that it was disturbed.
const FINDINGS: [Code; 2] = [Code::MachineBusy, Code::CpuThrottled];

/// What disturbed the machine during a run, a short sentence each; the numbers are means over its measured steps.
pub(super) fn disturbances_of(analysis: &Analysis) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let told = analysis.manifest.environment.get(env_key::DISTURBANCES).and_then(Value::as_array);
    found.extend(told.into_iter().flatten().filter_map(Value::as_str).map(str::to_string));
    let mean = |metric: &str| {
        let series = analysis.memory.series.iter().find(|series| series.metric == metric)?;
        Some(series.in_steps.map_or(series.mean, |inside| inside.mean)).filter(|mean| mean.is_finite())
    };
    let cores = analysis.manifest.environment.get(env_key::CPU_AVAILABLE).and_then(Value::as_f64);
    match (mean(host_metric::OTHERS_RATIO), mean(metric::LOAD_1M), mean(metric::CPU_RATIO), cores) {
        (Some(others), ..) if others >= MOST_OTHERS => {
            found.push(format!("other processes used {} processors", significant(others)));
        }
        // Whoever waits for a processor counts in the load, the run's own threads among them.
        (None, Some(load), Some(own), Some(cores)) if load > cores && load - own >= 1.0 => {
            let (load, cores) = (significant(load), significant(cores));
            found.push(format!("the load average was {load} on {cores} processors"));
        }
        _ => {}
    }
    for finding in &analysis.verdict.findings {
        let code = finding.code.as_str();
        if FINDINGS.iter().any(|known| known.as_str() == code) && found.is_empty() {
            found.push(format!("the run's own verdict says {code}"));
        }
    }
    found
}

/// What disturbed the runs of both sides, a sentence for each side; of each run its own [`disturbances_of`].
pub(super) fn disturbances(a: &[&[String]], b: &[&[String]]) -> Vec<String> {
    let mut said = Vec::new();
    for (letter, runs) in [("A", a), ("B", b)] {
        let hit = runs.iter().filter(|causes| !causes.is_empty()).count();
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        runs.iter().copied().flatten().for_each(|cause| *causes.entry(cause).or_default() += 1);
        if hit > 0 {
            let causes: Vec<&str> = causes.into_keys().take(3).collect();
            said.push(format!("{hit} of {} runs of {letter} were disturbed: {}", runs.len(), causes.join("; ")));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_says_how_many_of_its_runs_were_disturbed() {
        let busy = ["other processes used 1.5 processors".to_string()];
        let found = disturbances(&[&busy, &[]], &[&[]]);
        assert_eq!(found, ["1 of 2 runs of A were disturbed: other processes used 1.5 processors"]);
        assert!(disturbances(&[&[]], &[&[]]).is_empty());
    }
}
