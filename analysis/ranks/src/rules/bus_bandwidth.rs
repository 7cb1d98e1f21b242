//! The link carries less than it can.

use super::collectives_query::large_ones;
use super::ranks_scene::RanksScene;
use crate::facts::CollectiveSum;
use candlescope_figures::advice::{Advice, AdviceCode, AdviceFigure, Confidence, ConfidenceLevel, Coverage};
use candlescope_work::estimate::Estimate;

/// A link that carries less than this share of what it can is told of.
const SLOW_LINK: f64 = 0.5;

pub(super) fn find(scene: &RanksScene<'_>) -> Vec<Advice> {
    let analysis = scene.analysis;
    let slow = analysis.collectives.iter().filter_map(|of| {
        let (bus, link) = (of.bus_bytes_per_s?, of.link_bytes_per_s?);
        (bus < SLOW_LINK * link).then_some((of, bus, link))
    });
    let advice = |(of, bus, link): (&CollectiveSum, f64, f64)| {
        let evidence = vec![
            AdviceFigure::derived("bus_bandwidth", "B/s", bus, of.count as u64),
            AdviceFigure::peak("link_bandwidth", "B/s", link, false),
        ];
        // What it gains is not known: a step may do something else meanwhile.
        let mut advice =
            scene.advice(AdviceCode::BusBandwidth, Estimate::default(), evidence, large_ones(&of.phase, of.kind));
        advice.place.phase.clone_from(&of.phase);
        advice.place = advice.place.kernel(of.kind.name());
        if of.phase != analysis.phase {
            // Its steps are not those that are judged.
            advice.coverage = Coverage::default();
        }
        advice.confidence =
            Confidence { level: ConfidenceLevel::Low, reason: "what the link carries is its datasheet's" };
        advice
    };
    slow.map(advice).collect()
}
