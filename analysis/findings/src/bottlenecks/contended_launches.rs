//! Threads that launch at once wait for one another in the driver.

use super::draft::{Draft, RuleResults};
use super::query::calls_by_thread;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::{CallTime, LaunchContention};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, RATES};

/// A call has to take so many times as long as one beside which no other thread launches.
const LEAST_RATIO: f64 = 2.0;
/// What calls take more has to be this share of a step.
const LEAST_SHARE: f64 = 0.1;
/// A device that is busy for more of the time makes calls wait for room in its queue.
const BUSY: f64 = 0.8;
/// Calls have to overlap those of other threads in this share at least.
const BESIDE: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let Some(work) = step.work.filter(|_| scene.on_gpu) else { return };
    let Some(contention) = work.contention.filter(|contention| contention.beside_share >= BESIDE) else { return };
    let busy = step.line.filter(|line| line.wall_ns > 0).map_or(0.0, |line| line.busy_ns as f64 / line.wall_ns as f64);
    if busy > BUSY {
        return;
    }
    let (alone, is_known) = alone(&contention);
    let beside = contention.beside;
    let calls = step.each(contention.calls);
    // Means against means, as both have long tails; a call that is as long in the middle is not held up by others.
    let is_longer = beside.median_ns >= LEAST_RATIO * alone.median_ns;
    let by_calls_ns =
        if is_longer { (beside.mean_ns - alone.mean_ns).max(0.0) * calls * contention.beside_share } else { 0.0 };
    // Launches are not the only calls that take the driver's locks: allocations, events and look-ups do, too.
    let parts = step.launches.as_ref();
    let of_step = |ns: f64| ns / step.row.steps.max(1) as f64;
    let [locks_ns, off_cpu_ns] = parts.map_or([0.0; 2], |parts| [parts.locks_ns, parts.off_cpu_ns].map(of_step));
    let held_up_ns = (locks_ns + off_cpu_ns) * step.slowed();
    let more_ns = held_up_ns.max(by_calls_ns * step.slowed());
    if more_ns < LEAST_SHARE * step.lines.t {
        return;
    }
    let by_samples = held_up_ns >= more_ns;
    let (level, reason) = match (by_samples, is_known) {
        (true, _) => (
            ConfidenceLevel::Medium,
            "sampled: locks of the driver, and time off the CPU; a thread that launches alone takes its locks, too, and is hardly \
             ever off the CPU",
        ),
        (false, true) => (
            ConfidenceLevel::Medium,
            "calls were timed, those beside other threads' and those alone; recording kernels takes locks of its own",
        ),
        (false, false) => (
            ConfidenceLevel::Low,
            "calls were timed; nearly none was alone, so that the quickest twentieth stands for one that is",
        ),
    };
    let samples = parts.map_or(0, |parts| parts.samples);
    let seen = |ns: f64| (ns > 0.0).then_some(ns);
    let draft = Draft::new(AdviceCode::ContendedLaunches, step)
        // The query has the rows that these are made of: which calls overlap is told by looking at all of them.
        .derived("threads", "count", contention.threads as f64, contention.looked_at)
        .derived("call_ns", "ns", beside.mean_ns, beside.n)
        .derived("alone_ns", "ns", alone.mean_ns, alone.n)
        .derived("beside_share", "ratio", contention.beside_share, contention.looked_at)
        .derived("calls", "count", calls, work.steps)
        .derived_if("locks_ns", "ns", seen(locks_ns), samples)
        .derived_if("off_cpu_ns", "ns", seen(off_cpu_ns), samples)
        .derived("more_ns", "ns", more_ns, contention.looked_at)
        .derived_if("blocked_ns", "ns", blocked_ns(scene, step), step.row.steps)
        .query(calls_by_thread(step))
        .sure(level, reason);
    // The least of it is what is off the CPU: some of the locks' own work stays.
    let least_ns = if by_samples { off_cpu_ns * step.slowed() } else { more_ns };
    out.found.push(draft.relief(|rate| {
        let ns = more_ns * rate;
        Relief::Host(if rate <= RATES[0] { ns.min(least_ns) } else { ns })
    }));
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
