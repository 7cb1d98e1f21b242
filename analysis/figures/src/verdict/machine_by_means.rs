//! Others at work beside a run of which nothing says so but means of its samples: one of an earlier release.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, env_key, is_overloaded};
use candlescope_schema::{host_metric, metric};

/// Processors that others use from which they disturb.
const MOST_OTHERS: f64 = 0.3;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    // What others took is known, or the run was too short to know it: `run.json` alone says what follows from that.
    if run.manifest.machine.is_some_and(|machine| machine.others_s.is_some()) {
        return Vec::new();
    }
    let mean = |metric: &str| {
        let series = run.memory.series.iter().find(|series| series.metric == metric)?;
        Some(series.in_steps.map_or(series.mean, |inside| inside.mean)).filter(|mean| mean.is_finite())
    };
    let cores = env_key::CPU_AVAILABLE.of(&run.manifest.environment).map(|cores| cores as f64);
    let finding = |message| {
        let remedy = "end the other programs, or use processors that they do not use, and record again";
        Finding::new(Code::MachineBusy, message, remedy)
    };
    let found = match (mean(host_metric::OTHERS_RATIO), mean(metric::LOAD_1M), mean(metric::CPU_RATIO), cores) {
        (Some(others), ..) => (others >= MOST_OTHERS).then(|| {
            finding(
                "the machine was busy: other processes used {others:.1} processors while steps ran: times are not the \
                 program's alone",
            )
            .number("others", "cores", others)
        }),
        // Whoever waits for a processor counts in the load, the run's own threads among them.
        (None, Some(load), Some(own), Some(cores)) => is_overloaded(load, own, cores).then(|| {
            finding(
                "the machine was busy: the load average was {load:.1} on {processors:raw} processors: times may not be \
                 the program's alone",
            )
            .number("load", "threads", load)
            .count("processors", cores as u64)
        }),
        _ => None,
    };
    found.into_iter().collect()
}
