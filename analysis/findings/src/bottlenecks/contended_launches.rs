//! Threads that launch at once wait for one another in the driver.

use super::draft::{Draft, Out};
use super::query::calls_by_thread;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::{CallTime, LaunchContention};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel};

/// A call has to take so many times as long as one beside which no other thread launches.
const LEAST_RATIO: f64 = 2.0;
/// What calls take more has to be this share of a step.
const LEAST_SHARE: f64 = 0.1;
/// A device that is busy for more of the time makes calls wait for room in its queue.
const BUSY: f64 = 0.8;
/// Calls have to overlap those of other threads in this share at least.
const BESIDE: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let Some(work) = step.work.filter(|_| scene.on_gpu) else { return };
    let Some(contention) = work.contention.filter(|contention| contention.beside_share >= BESIDE) else { return };
    let busy = step.line.filter(|line| line.wall_ns > 0).map_or(0.0, |line| line.busy_ns as f64 / line.wall_ns as f64);
    let (alone, is_known) = alone(&contention);
    let beside = contention.beside;
    let calls = step.each(contention.calls);
    // Means against means, as both have long tails; a call that is as long in the middle is not held up by others.
    let more_ns = (beside.mean_ns - alone.mean_ns).max(0.0) * calls * contention.beside_share * step.slowed();
    if busy > BUSY || beside.median_ns < LEAST_RATIO * alone.median_ns || more_ns < LEAST_SHARE * step.lines.t {
        return;
    }
    let (level, reason) = match is_known {
        true => (
            ConfidenceLevel::Medium,
            "calls were timed, those beside other threads' and those alone; recording kernels takes locks of its own",
        ),
        false => (
            ConfidenceLevel::Low,
            "calls were timed; nearly none was alone, so that the quickest twentieth stands for one that is",
        ),
    };
    let draft = Draft::new(AdviceCode::ContendedLaunches, step)
        .measured("threads", "count", contention.threads as f64, contention.looked_at)
        .measured("call_ns", "ns", beside.mean_ns, beside.n)
        .derived("alone_ns", "ns", alone.mean_ns, alone.n)
        .measured("beside_share", "ratio", contention.beside_share, contention.looked_at)
        .derived("calls", "count", calls, work.steps)
        .derived("more_ns", "ns", more_ns, contention.looked_at)
        .derived_if("blocked_ns", "ns", blocked_ns(scene, step), step.row.steps)
        .query(calls_by_thread(step))
        .sure(level, reason);
    out.found.push(draft.relief(|rate| Relief::Host(more_ns * rate)));
}

/// What a call takes while no other thread launches, and whether such calls were seen.
fn alone(contention: &LaunchContention) -> (CallTime, bool) {
    let quickest =
        CallTime { n: contention.looked_at / 20, median_ns: contention.quick_ns, mean_ns: contention.quick_ns };
    contention.alone.map_or((quickest, false), |alone| (alone, true))
}

/// Time of a step in which its thread waited, where switches were recorded.
fn blocked_ns(scene: &Scene<'_>, step: &StepScene<'_>) -> Option<f64> {
    let threads = scene.totals(step.name)?.threads;
    Some(threads.share(threads.blocked_ns)? * step.lines.t)
}
