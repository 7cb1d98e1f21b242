//! A device that ran at a lower clock than it could.

use super::draft::{Draft, Out};
use super::operations::{lacking, operations};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::Device;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_schema::metric;

/// Below this share of its highest, a clock is low.
const LOW: f64 = 0.75;
/// From this share of samples on, a reason for lowered clocks counts.
const OFTEN: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut Out) {
    let code = AdviceCode::ClocksLow;
    if !scene.on_gpu {
        return;
    }
    let own = |device: &&Device| scene.device.is_none_or(|uuid| device.uuid == uuid);
    let sampled = scene.analysis.devices.iter().filter(own).find_map(|device| Some((device, device.clock_hertz?)));
    let Some((device, (_, mean, in_steps))) = sampled else { return out.abstain(code, step, Missing::ClockSamples) };
    let series = scene.analysis.memory.series.iter().filter(|series| {
        series.device == device.uuid
            && series.metric.starts_with(metric::GPU_CLOCK_OF)
            && !series.metric.ends_with("memory")
    });
    // The highest that was seen is the least that the device can do.
    let seen = series.map(|series| series.max).fold(in_steps, f64::max);
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
        .measured("clock_hertz", "hertz", mean, device.power_samples.max(1))
        .measured("highest_hertz", "hertz", highest, 1)
        .derived("compute_bound_ns", "ns", computing, step.work.map_or(0, |work| work.steps))
        .measured("lowered_share", "ratio", reason.map_or(0.0, |(_, share)| *share), 1)
        .query(format!(
            "SELECT metric, count(*) AS n, avg(value) AS mean, max(value) AS highest FROM \
             samples WHERE device = {} AND \
             (starts_with(metric, 'candlescope_gpu_clock_hertz') OR starts_with(metric, \
             'candlescope_gpu_throttled')) GROUP BY metric",
            super::query::quoted(&device.uuid)
        ))
        .sure(ConfidenceLevel::Low, "time is taken to be in proportion to the clock where computing is the limit");
    out.found.push(draft.relief(|rate| Relief::Device(computing * (1.0 - ratio) * rate)));
}

/// As the driver tells it, for the GPU of this UUID.
fn highest_clock(scene: &Scene<'_>, uuid: &str) -> Option<f64> {
    scene.analysis.manifest.gpu(uuid)?.get("highest_clock_hertz")?.as_f64()
}
