//! Steps that ran call by call where others of their kind were replays of a CUDA graph.

use super::draft::{Draft, Out};
use super::query::steps_of;
use super::scene::{Scene, StepScene};
use super::spread::quartiles;
use candlescope_figures::StepPoint;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};
use candlescope_schema::Ran;

/// Fewer replays do not say what one takes.
const FEWEST: usize = 10;

/// Why steps ran call by call; their number is a figure of that name. Other reasons hold for all steps of a model, so that
/// none is a replay.
const CAUSES: [Ran; 2] = [Ran::CaptureFailed, Ran::WarmUp];

pub(super) fn find(_: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let Some(series) = step.series else { return };
    // Recording kernels makes a step longer.
    let unrecorded = || series.points.iter().filter(|point| !point.recorded);
    let ns = |point: &StepPoint| point.dur_ns as f64;
    let replays: Vec<f64> = unrecorded().filter(|point| point.ran == Some(Ran::Replay)).map(ns).collect();
    if replays.len() < FEWEST {
        return;
    }
    let is_eager = |point: &&StepPoint| point.ran.is_some_and(|ran| CAUSES.contains(&ran));
    let eager: Vec<&StepPoint> = unrecorded().filter(is_eager).collect();
    let (n, of_replays) = (eager.len() as u64, replays.len() as u64);
    let Some((_, median, _)) = quartiles(replays).filter(|_| n > 0) else { return };
    let excess: f64 = eager.iter().map(|point| ns(point) - median).sum();
    let whole: f64 = unrecorded().map(ns).sum();
    let share = (excess / whole).max(0.0);
    let tokens = eager.iter().map(|point| u64::from(point.tokens.unwrap_or(0))).sum::<u64>();
    let mut draft = Draft::new(AdviceCode::LeftGraph, step)
        .steps(n + of_replays)
        .measured("eager_steps", "count", n as f64, n)
        .measured_if("eager_tokens", "count", (tokens > 0).then_some(tokens as f64), n)
        .measured("eager_mean_ns", "ns", eager.iter().map(|point| ns(point)).sum::<f64>() / n as f64, n)
        .measured("replay_ns", "ns", median, of_replays);
    for cause in CAUSES {
        let steps = eager.iter().filter(|point| point.ran == Some(cause)).count() as f64;
        draft = draft.measured_if(cause.as_str(), "count", (steps > 0.0).then_some(steps), n);
    }
    let draft = draft
        .derived("share", "ratio", share, n)
        .query(format!(
            "WITH own AS (SELECT ran, tokens, host_dur_ns FROM measured_steps WHERE (run, step) IN {} AND (run, step) NOT IN \
             (SELECT run, step FROM kernels WHERE step IS NOT NULL)), eager AS (SELECT ran, tokens, host_dur_ns FROM own \
             WHERE ran IN ('capture_failed', 'warm_up')) SELECT count(*) AS eager_steps, sum(tokens) AS eager_tokens, \
             avg(host_dur_ns) AS eager_mean_ns, (SELECT median(host_dur_ns) FROM own WHERE ran = 'replay') AS replay_ns, \
             sum(CASE WHEN ran = 'capture_failed' THEN 1 ELSE 0 END) AS capture_failed, \
             sum(CASE WHEN ran = 'warm_up' THEN 1 ELSE 0 END) AS warm_up FROM eager",
            steps_of(step)
        ))
        .sure(
            ConfidenceLevel::High,
            "both kinds of steps are measured; of other lengths or sizes a step takes longer anyhow",
        );
    out.found.push(draft.gain(|rate| share * rate));
}
