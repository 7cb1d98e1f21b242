//! The device waits for the host to launch work: a CUDA graph would launch all of it at once.

use super::draft::{Draft, RuleResults};
use super::query::{each_recorded, steps_of};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::Line;
use candlescope_figures::advice::{AdviceCode, AdviceFigure, Confidence, ConfidenceLevel, Missing, RATES};
use candlescope_figures::busy::LAUNCH_BOUND;
use candlescope_predict::simulation::Change;
use candlescope_work::estimate::Estimate;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::LaunchBound;
    if !scene.on_gpu || step.runs_as_graph() {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    if work.launch_every.is_none() {
        return out.abstain(code, step, Missing::LaunchCalls);
    }
    let Some(line) = step.line else { return out.abstain(code, step, Missing::CommonClock) };
    let gaps = &line.gaps;
    let share = |ns: u64| late_share(step, line, ns);
    // Gaps that the clocks cannot judge may all have waited for the host, or none. How long they are is measured on the
    // device's own clock, and whether a graph closes them is simulated, so they count where the replay holds.
    // A graph closes such a gap as a whole, with the way of the launch to the device.
    let waited = gaps.late_ns();
    let (late, late_at_most) = (share(waited), share(waited.saturating_add(gaps.uncertain.ns)));
    if late_at_most <= LAUNCH_BOUND {
        return;
    }
    if late <= LAUNCH_BOUND && step.replays.is_none() {
        return out.abstain(code, step, Missing::CommonClock);
    }
    let n = work.steps;
    let level = match () {
        () if late <= LAUNCH_BOUND => ConfidenceLevel::Low,
        () if work.plain.is_some() => ConfidenceLevel::High,
        () => ConfidenceLevel::Medium,
    };
    let reason = match level {
        ConfidenceLevel::Low => {
            "the clocks of host and device cannot tell which gaps waited for the host; that a graph closes them is \
             simulated"
        }
        ConfidenceLevel::High => {
            "kernels were measured, and the step's time agrees with that of steps without recorded kernels"
        }
        _ => "kernels were measured, but all steps are slowed by recording them, so the gain is rather too large",
    };
    let draft = Draft::new(code, step)
        .derived("late", "ratio", late, n)
        .derived("late_at_most", "ratio", late_at_most, n)
        .measured("device_ns", "ns", step.each(work.busy_ns), n)
        .measured("kernels", "count", step.each(work.kernels), n)
        .derived("step_ns", "ns", step.time.unobserved_ns, step.time.n)
        .derived("host_outside_ns", "ns", step.lines.host_outside, n)
        .query(sql(scene, step))
        .sure(level, reason);
    let mut found = draft.replayed(Relief::Graph, |_| Some(vec![Change::Graph]));
    // A graph also shortens the way between kernels that were queued in time: no part of what waits for the host.
    let gain = found.advice.gain.at_most(late_at_most);
    found.advice.gain = match step.replays.filter(|_| found.replay.is_some()) {
        Some(group) => {
            let n = group.models().len();
            found.advice.evidence.push(AdviceFigure::derived("replayed_steps", "count", n as f64, n as u64));
            gain
        }
        // How much of the waiting a graph closes is not replayed: the parts of it that others are given for.
        None => {
            let sure = &mut found.advice.confidence;
            if sure.level == ConfidenceLevel::High {
                let reason = "kernels were measured; how much of the waiting a graph closes could not be simulated";
                *sure = Confidence { level: ConfidenceLevel::Medium, reason };
            }
            let [low, mid, high] = RATES.map(|rate| rate * late_at_most);
            Estimate { low: gain.low.min(low), mid: gain.mid.min(mid), high: gain.high.min(high) }
        }
    };
    out.found.push(found);
}

/// Whether the device waits for launches of these steps for long enough to be told.
pub(super) fn is_late(step: &StepScene<'_>) -> bool {
    let known = step.line.filter(|_| step.work.is_some_and(|work| work.launch_every.is_some()));
    known.is_some_and(|line| {
        let waited = line.gaps.late_ns();
        late_share(step, line, waited.saturating_add(line.gaps.uncertain.ns)) > LAUNCH_BOUND
    })
}

/// Such gaps as a share of the step as it runs unobserved. What recording adds to a step it adds to gaps that wait for
/// the host: those of this kind lose their part of it.
fn late_share(step: &StepScene<'_>, line: &Line, ns: u64) -> f64 {
    let t = step.time.unobserved_ns;
    if line.wall_ns == 0 || line.steps == 0 || t <= 0.0 {
        return 0.0;
    }
    let recorded = line.open_ns as f64 / line.steps as f64;
    let part = ns as f64 / (ns.saturating_add(line.gaps.sync.ns)).max(1) as f64;
    let late = ns as f64 / line.wall_ns as f64 * recorded - (recorded - t).max(0.0) * part;
    (late / t).clamp(0.0, 1.0)
}

/// What each operation launches in a step, how long the device works on it, and for how long it had waited before: gaps
/// within a step that ended with work whose launch had returned only after the device had run out of work, beyond the
/// error of the clocks, and that no wait for a copy preceded.
fn sql(scene: &Scene<'_>, step: &StepScene<'_>) -> String {
    let kernels = scene.analysis.manifest.gpu.as_ref().and_then(|gpu| gpu.kernels.as_ref());
    let bound_ns = kernels.and_then(|kernels| kernels.clock_bound_ns).unwrap_or(0);
    let steps = steps_of(step);
    // Work that runs beside other work of its step takes the time by which it outlasts that; what the steps of other
    // threads run meanwhile is theirs.
    let columns = [
        ("kernels", "sum(CASE WHEN kind = 'kernel' THEN 1 ELSE 0 END)"),
        ("device_ns", "sum(greatest(0, gpu_end_ns - greatest(gpu_start_ns, coalesce(own_until_ns, gpu_start_ns))))"),
        ("late_gaps", "count(gap_ns)"),
        ("late_ns", "coalesce(sum(gap_ns), 0)"),
    ];
    let columns: Vec<String> =
        columns.iter().map(|(name, value)| format!("{} AS {name}", each_recorded(value))).collect();
    format!(
        "WITH recorded AS (SELECT DISTINCT run, step FROM kernels WHERE (run, step) IN {steps}), \
         placed AS (SELECT *, gpu_start_ns + gpu_dur_ns AS gpu_end_ns, \
         max(gpu_start_ns + gpu_dur_ns) OVER (PARTITION BY run, device ORDER BY gpu_start_ns, \
         correlation ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS idle_from_ns, \
         max(gpu_start_ns + gpu_dur_ns) OVER (PARTITION BY run, device, step ORDER BY gpu_start_ns, \
         correlation ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS own_until_ns, \
         lag((kind = 'memcpy' AND name = 'dtoh' AND launch_start_ns + launch_dur_ns >= gpu_start_ns + gpu_dur_ns)) \
         OVER (PARTITION BY run, device ORDER BY gpu_start_ns, correlation) AS after_wait FROM kernels), \
         late AS (SELECT k.*, CASE WHEN CASE \
         WHEN launch_start_ns + coalesce(launch_dur_ns, 0) <= gpu_start_ns \
         THEN launch_start_ns + coalesce(launch_dur_ns, 0) \
         WHEN kind = 'kernel' AND graph IS NULL THEN gpu_start_ns ELSE launch_start_ns END > idle_from_ns + {bound_ns} \
         AND idle_from_ns >= s.begun_ns AND NOT coalesce(after_wait, false) \
         THEN gpu_start_ns - idle_from_ns END AS gap_ns \
         FROM placed AS k JOIN (SELECT run, step, host_start_ns AS begun_ns FROM measured_steps) \
         AS s ON k.run = s.run AND k.step = s.step) \
         SELECT operator, name, {} FROM late \
         WHERE (run, step) IN (SELECT run, step FROM recorded) GROUP BY 1, 2 ORDER BY late_ns DESC",
        columns.join(", ")
    )
}
