//! Steps wait for data on its way.

use super::WORTH;
use super::collectives_query::times_of_ranks;
use super::ranks_scene::RanksScene;
use crate::facts::{JudgedTimes, mean};
use crate::reading::Source;
use candlescope_figures::advice::{Advice, AdviceCode, AdviceFigure, RATES};
use candlescope_work::estimate::Estimate;

pub(super) fn find(scene: &RanksScene<'_>) -> Vec<Advice> {
    of(scene).into_iter().collect()
}

fn of(scene: &RanksScene<'_>) -> Option<Advice> {
    let steps = scene.steps()?;
    // Who does nothing else meanwhile.
    let name = match scene.analysis.source {
        Source::Host => "host_exposed_ns",
        Source::Kernels => "device_exposed_ns",
        // What else the device did is only known from its kernels.
        Source::DeviceTime | Source::Unknown => return None,
    };
    let shown = |step: &JudgedTimes| mean(step.exposed_transfer.iter().copied());
    let share = scene.share(shown);
    if share.mid <= WORTH {
        return None;
    }
    let n = steps.len() as u64;
    let evidence = vec![
        AdviceFigure::derived(name, "ns", mean(steps.iter().map(shown)), n),
        AdviceFigure::derived("share", "ratio", share.mid, n),
    ];
    let [low, mid, high] = RATES;
    let gain = Estimate { low: low * share.low, mid: mid * share.mid, high: high * share.high };
    Some(scene.advice(AdviceCode::ExposedCommunication, gain, evidence, times_of_ranks(scene.analysis)))
}
