//! Steps that ran call by call although CUDA graphs were asked for: some of a kind, beside replays, or all of them.

use super::draft::{Draft, RuleResults};
use super::query::{quoted, steps_of};
use super::scene::{Scene, StepScene};
use super::spread::quartiles;
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, LeftShape, Missing};
use candlescope_figures::{FEWEST_LEFT, LEFT_FOR, StepPoint, left_graph};
use candlescope_predict::simulation::Change;
use candlescope_schema::Ran;

/// From fewer replays what one takes is not known well.
const FEWEST: u64 = 10;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let Some(series) = step.series else { return };
    // Recording kernels makes a step longer: those without count, if there are any.
    let recorded = series.points.iter().all(|point| point.recorded);
    let alike = || series.points.iter().filter(|point| point.recorded == recorded);
    let eager: Vec<&StepPoint> = alike().filter(|point| left_graph(point.ran)).collect();
    let is_replay = |point: &&StepPoint| point.ran == Some(Ran::Replay);
    if eager.is_empty() {
        return;
    }
    if !series.points.iter().any(|point| is_replay(&point)) {
        return none_replayed(scene, step, &eager, recorded, out);
    }
    let ns = |point: &StepPoint| point.dur_ns as f64;
    let replays: Vec<f64> = alike().filter(is_replay).map(ns).collect();
    let (n, of_replays) = (eager.len() as u64, replays.len() as u64);
    let Some((_, median, _)) = quartiles(replays) else { return };
    let excess: f64 = eager.iter().map(|point| ns(point) - median).sum();
    let whole: f64 = alike().map(ns).sum();
    let share = (excess / whole).max(0.0);
    let (level, reason) = if of_replays < FEWEST {
        (ConfidenceLevel::Low, "what a replay takes rests on fewer than ten")
    } else {
        (
            ConfidenceLevel::High,
            "both kinds of steps are measured; of other lengths or sizes a step takes longer anyhow",
        )
    };
    let draft = causes(scene, step, &eager, Some(median))
        .steps(n + of_replays)
        .measured("replay_ns", "ns", median, of_replays)
        .derived("excess_ns", "ns", excess.max(0.0), n)
        .derived("share", "ratio", share, n)
        .query(sql(step, recorded, true))
        .sure(level, reason);
    out.found.push(draft.gain(|rate| share * rate));
}

/// Graphs were asked for, and no step is one.
fn none_replayed(scene: &Scene<'_>, step: &StepScene<'_>, eager: &[&StepPoint], recorded: bool, out: &mut RuleResults) {
    if !scene.on_gpu || eager.len() < FEWEST_LEFT {
        return;
    }
    // What a graph would take follows from kernels alone. That there is none, the verdict says.
    if step.work.is_none() {
        return out.abstain(AdviceCode::LeftGraph, step, Missing::Kernels);
    }
    let draft = causes(scene, step, eager, None)
        .steps(eager.len() as u64)
        .query(sql(step, recorded, false))
        .sure(ConfidenceLevel::Medium, "what a step would take as a graph is simulated: none of this run was one");
    out.found.push(draft.replayed(Relief::Graph, |_| Some(vec![Change::Graph])));
}

/// Which steps ran call by call, and why. `replay_ns`: what a replay takes, if there is one.
fn causes<'s>(scene: &Scene<'_>, step: &'s StepScene<'_>, eager: &[&StepPoint], replay_ns: Option<f64>) -> Draft<'s> {
    let n = eager.len() as u64;
    let tokens = eager.iter().map(|point| u64::from(point.tokens.unwrap_or(0))).sum::<u64>();
    let mean = eager.iter().map(|point| point.dur_ns as f64).sum::<f64>() / n as f64;
    let shapes = shapes(scene, eager, replay_ns);
    let mut draft = Draft::new(AdviceCode::LeftGraph, step)
        .at(|place| place.shapes(shapes))
        .measured("eager_steps", "count", n as f64, n)
        .measured_if("eager_tokens", "count", (tokens > 0).then_some(tokens as f64), n)
        .measured("eager_mean_ns", "ns", mean, n);
    // The number of steps with a cause is a figure of that name.
    for cause in LEFT_FOR {
        let steps = eager.iter().filter(|point| point.ran == Some(cause)).count() as f64;
        draft = draft.measured_if(cause.as_str(), "count", (steps > 0.0).then_some(steps), n);
    }
    draft
}

/// The shapes of these steps as far as they are known, the one that took the most time first.
fn shapes(scene: &Scene<'_>, eager: &[&StepPoint], replay_ns: Option<f64>) -> Vec<LeftShape> {
    let mut all: Vec<LeftShape> = Vec::new();
    for point in eager {
        let known = &scene.analysis.graph_shapes;
        let shape = match point.ran {
            // Its graph was made right after it.
            Some(Ran::WarmUp) => known.of_step(point.step, point.batch, point.context_len),
            _ => known.stated(point.step),
        };
        let Some(shape) = shape.map(|shape| shape.to_string()) else { continue };
        let at = all.iter().position(|known| known.shape == shape).unwrap_or_else(|| {
            all.push(LeftShape { shape, ..LeftShape::default() });
            all.len() - 1
        });
        let known = &mut all[at];
        known.steps += 1;
        known.tokens += u64::from(point.tokens.unwrap_or(0));
        known.took_ns = known.took_ns.saturating_add(point.dur_ns);
    }
    for shape in &mut all {
        let excess = |replay: f64| (shape.took_ns as f64 - replay * shape.steps as f64).max(0.0) as u64;
        shape.excess_ns = replay_ns.map(excess);
    }
    all.sort_by(|a, b| b.took_ns.cmp(&a.took_ns).then_with(|| a.shape.cmp(&b.shape)));
    all
}

fn sql(step: &StepScene<'_>, recorded: bool, has_replays: bool) -> String {
    let causes = LEFT_FOR.map(Ran::as_str);
    let of_cause = causes.map(|cause| format!("sum(CASE WHEN ran = {} THEN 1 ELSE 0 END) AS {cause}", quoted(cause)));
    let unrecorded = " AND (run, step) NOT IN (SELECT run, step FROM kernels WHERE step IS NOT NULL)";
    let replays = "(SELECT median(host_dur_ns) FROM own WHERE ran = 'replay') AS replay_ns, ";
    format!(
        "WITH own AS (SELECT ran, tokens, host_dur_ns FROM measured_steps WHERE (run, step) IN {}{}), eager AS (SELECT ran, \
         tokens, host_dur_ns FROM own WHERE ran IN ({})) SELECT count(*) AS eager_steps, sum(tokens) AS eager_tokens, \
         avg(host_dur_ns) AS eager_mean_ns, {}{} FROM eager",
        steps_of(step),
        if recorded { "" } else { unrecorded },
        causes.map(quoted).join(", "),
        if has_replays { replays } else { "" },
        of_cause.join(", ")
    )
}
