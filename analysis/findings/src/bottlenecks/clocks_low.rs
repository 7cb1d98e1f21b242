//! A device that ran at a lower clock than it could.

use super::draft::{Draft, RuleResults};
use super::operations::{lacking, operations};
use super::query::quoted;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::{Device, Series};
use candlescope_schema::metric;

/// Below this share of its highest, a clock is low.
const LOW: f64 = 0.75;
/// From this share of samples on, a reason for lowered clocks counts.
const OFTEN: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::ClocksLow;
    if !scene.on_gpu {
        return;
    }
    let own = |device: &&Device| scene.device.is_none_or(|uuid| device.uuid == uuid);
    let sampled = scene.analysis.devices.iter().filter(own).find_map(|device| Some((device, device.clock_hertz?)));
    let Some((device, (_, mean, in_steps))) = sampled else { return out.abstain(code, step, Missing::ClockSamples) };
    // The highest that was seen is the least that the device can do. Engines for video and memory have clocks of their own.
    let clock = clock_series(scene, &device.uuid);
    let seen = clock.map_or(in_steps, |series| series.max.max(in_steps));
    let told = highest_clock(scene, &device.uuid);
    let highest = told.unwrap_or(seen).max(seen);
    let reason = device.throttled.iter().find(|(_, share)| *share >= OFTEN);
    let ratio = mean / highest;
    if ratio >= LOW && reason.is_none() {
        if !device.throttling_known && told.is_none() {
            out.abstain(code, step, Missing::HighestClock);
        }
        return;
    }
    // What a higher clock would bring rests on what computes.
    let all = operations(scene, step);
    if let Some(missing) = lacking(scene, step, &all) {
        return out.abstain(code, step, missing);
    }
    let under: Vec<_> = all.iter().filter_map(|one| Some((one.ns, one.under(scene, step)?))).collect();
    if under.is_empty() {
        return out.abstain(code, step, Missing::Peaks);
    }
    let computing: f64 = under.iter().filter(|(_, (_, limit))| limit.is_flops()).map(|(ns, _)| ns).sum();
    let draft = Draft::new(code, step)
        .measured("clock_hertz", "hertz", mean, clock.and_then(|series| series.in_steps).map_or(1, |within| within.n))
        // The driver tells it, or else it is the highest that was seen.
        .derived("highest_hertz", "hertz", highest, 1)
        .derived("compute_bound_ns", "ns", computing, step.work.map_or(0, |work| work.steps))
        .measured("lowered_share", "ratio", reason.map_or(0.0, |(_, share)| *share), 1)
        .query(samples(scene, &device.uuid, reason.map(|(reason, _)| reason.as_str())))
        .sure(ConfidenceLevel::Low, "time is taken to be in proportion to the clock where computing is the limit");
    out.found.push(draft.relief(|rate| Relief::Device(computing * (1.0 - ratio) * rate)));
}

/// The clock of what computes, as it was sampled while steps ran.
fn clock_series<'a>(scene: &Scene<'a>, uuid: &str) -> Option<&'a Series> {
    let sampled = |name: &str| {
        let mut series = scene.analysis.memory.series.iter();
        series.find(|series| series.device == uuid && *series.metric == *name && series.in_steps.is_some())
    };
    [metric::GPU_CLOCK_SM, metric::GPU_CLOCK_GRAPHICS].into_iter().find_map(sampled)
}

/// SQL that finds the samples again which were taken while measured steps ran: of the clock, and of the reason that
/// lowered it.
fn samples(scene: &Scene<'_>, uuid: &str, reason: Option<&str>) -> String {
    let clock = clock_series(scene, uuid).map_or("", |series| &*series.metric);
    let (clock, lowered) =
        (quoted(clock), quoted(&format!("{}{}", metric::GPU_THROTTLED_BY, reason.unwrap_or_default())));
    format!(
        "SELECT run, count(*) AS n, avg(CASE WHEN metric = {clock} THEN value END) AS clock_hertz, max(CASE WHEN metric = \
         {clock} THEN value END) AS highest_seen, coalesce(avg(CASE WHEN metric = {lowered} THEN value END), 0.0) AS \
         lowered_share FROM samples AS s WHERE device = {} AND metric IN ({clock}, {lowered}) AND EXISTS (SELECT 1 FROM \
         measured_steps AS m WHERE m.run = s.run AND m.host_start_ns <= s.time_ns AND s.time_ns < m.host_start_ns + \
         m.host_dur_ns) GROUP BY run",
        quoted(uuid)
    )
}

/// As the driver tells it, for the GPU of this UUID.
fn highest_clock(scene: &Scene<'_>, uuid: &str) -> Option<f64> {
    scene.analysis.manifest.gpu(uuid)?.get("highest_clock_hertz")?.as_f64()
}
