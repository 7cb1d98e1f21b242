//! What else used the machine while runs were recorded: a comparison of such runs begins with it.

use candlescope_figures::Analysis;
use candlescope_schema::numbers::significant;
use candlescope_schema::run::{MachineUse, env_key};
use candlescope_schema::{host_metric, metric};
use serde_json::Value;
use std::collections::BTreeMap;

/// Processors that others use from which they disturb.
const MOST_OTHERS: f64 = 0.3;

/// What disturbed the machine during a run, a short sentence each. Where samples say what others took, they are asked, as
/// for the run's own verdict: a comparison must not call a run disturbed that its report calls free.
pub(super) fn disturbances_of(analysis: &Analysis) -> Vec<String> {
    let manifest = &analysis.manifest;
    let machine = manifest.machine.unwrap_or_default();
    let is_disturbed = machine.is_disturbed();
    let on_gpu = manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty());
    let mut found: Vec<String> = Vec::new();
    // What was seen before the work began: what others do on a GPU does not show in the host's samples.
    if is_disturbed.is_none() || on_gpu {
        let told = env_key::DISTURBANCES.of(&manifest.environment);
        found.extend(told.into_iter().flatten().filter_map(Value::as_str).map(str::to_string));
    }
    match is_disturbed {
        Some(true) => found.push(others_used(&machine)),
        Some(false) => {}
        None => found.extend(by_means(analysis)),
    }
    if found.is_empty() {
        found.extend(analysis.disturbance().map(|code| format!("the run's own verdict says {}", code.as_str())));
    }
    found
}

/// Of runs of earlier releases: means over their measured steps.
fn by_means(analysis: &Analysis) -> Option<String> {
    let mean = |metric: &str| {
        let series = analysis.memory.series.iter().find(|series| series.metric == metric)?;
        Some(series.in_steps.map_or(series.mean, |inside| inside.mean)).filter(|mean| mean.is_finite())
    };
    let cores = env_key::CPU_AVAILABLE.of(&analysis.manifest.environment).map(|cores| cores as f64);
    match (mean(host_metric::OTHERS_RATIO), mean(metric::LOAD_1M), mean(metric::CPU_RATIO), cores) {
        (Some(others), ..) => {
            (others >= MOST_OTHERS).then(|| format!("other processes used {} processors", significant(others)))
        }
        // Whoever waits for a processor counts in the load, the run's own threads among them.
        (None, Some(load), Some(own), Some(cores)) if load > cores && load - own >= 1.0 => {
            let load = significant(load);
            Some(format!("the load average was {load} on {cores} processors"))
        }
        _ => None,
    }
}

fn others_used(machine: &MachineUse) -> String {
    let of = machine.processors.map_or_else(String::new, |all| format!(" of {all}"));
    let others = significant(machine.others_cores().unwrap_or_default());
    format!("other processes used {others}{of} processors while steps ran")
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
            let causes = causes.join("; ");
            said.push(match runs.len() {
                1 => format!("The run of {letter} was disturbed: {causes}"),
                all => format!("{hit} of {all} runs of {letter} were disturbed: {causes}"),
            });
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
        assert_eq!(disturbances(&[&[]], &[&busy]), ["The run of B was disturbed: other processes used 1.5 processors"]);
        assert!(disturbances(&[&[]], &[&[]]).is_empty());
    }
}
