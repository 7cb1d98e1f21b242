//! What steps take where something is made slower by a known time: the criticality of paths, by experiment.
//!
//! Of each pair the delayed stretch is compared with its control. The slope of the differences in time over what was added
//! ([`slope`]) is the criticality. Which of the two came first was drawn by lot, so a drift of the machine gives as many
//! differences of one sign as of the other, and a pair in which the machine was busy with something else counts as one.

use crate::stats::{Distribution, slope};
use candlescope_schema::{PerturbationRecord, Side};
use candlescope_work::estimate::Estimate;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeMap;

/// Replay and experiment are said to disagree if they are further apart than the interval of the experiment, the
/// replay's own bounds, and this.
pub const AGREES_WITHIN: f64 = 0.1;

/// How critical the time of a path is on one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Criticality {
    /// What was made slower, as it was asked for: `path=mlp`.
    pub target: String,
    /// Whether threads were kept busy on the host, or kernels that only wait were put on the device.
    pub side: Side,
    /// The steps that stretches began with: their phase, or their name.
    pub step: String,
    /// Pairs of a control and a delayed stretch that can be compared, and in which time was added.
    pub pairs: u64,
    /// What a control took, to the next step of its kind, nanoseconds: the median.
    pub took_ns: f64,
    /// The share of it that the path's intervals take on this side, without what was added.
    pub share: f64,
    /// What was added in a delayed stretch, nanoseconds: the median.
    pub added_ns: f64,
    /// By how much longer steps take for each nanosecond that is added: 1 if all of it is waited for, 0 if none is.
    pub criticality: f64,
    /// Its 95 % interval; `None` with fewer than six pairs.
    pub interval: Option<(f64, f64)>,
    /// What a replay of the step says, if there is one.
    pub replay: Option<Estimate>,
}

impl Criticality {
    /// Whether replay and experiment say different things; `None` if one of them says nothing.
    pub fn disagrees(&self) -> Option<bool> {
        let ((low, high), replay) = (self.interval?, self.replay?);
        Some(replay.high + AGREES_WITHIN < low || replay.low - AGREES_WITHIN > high)
    }
}

/// Control and delayed stretch of each pair, by its number.
type Pairs<'a> = BTreeMap<u64, [Option<&'a PerturbationRecord>; 2]>;

/// Every path and side that was tried, in the order in which they were.
pub fn sensitivity(stretches: &[PerturbationRecord]) -> Vec<Criticality> {
    let mut order: Vec<(&str, Side, &str)> = Vec::new();
    let mut of: FxHashMap<(&str, Side, &str), Pairs<'_>> = FxHashMap::default();
    for stretch in stretches {
        let step = stretch.phase.map_or(&*stretch.name, |phase| phase.as_str());
        let key = (&*stretch.target, stretch.side, step);
        let pairs = of.entry(key).or_insert_with(|| {
            order.push(key);
            BTreeMap::new()
        });
        pairs.entry(stretch.pair).or_default()[usize::from(stretch.delayed)] = Some(stretch);
    }
    order.into_iter().filter_map(|key| criticality(key, &of[&key])).collect()
}

fn criticality((target, side, step): (&str, Side, &str), pairs: &Pairs<'_>) -> Option<Criticality> {
    let pairs: Vec<(&PerturbationRecord, &PerturbationRecord)> = pairs
        .values()
        .filter_map(|pair| Some((pair[0]?, pair[1]?)))
        // One to the next step of its kind, and one of its step alone, are no pair; nor is one in which nothing was added.
        .filter(|(control, delayed)| {
            control.period_ns.is_some() == delayed.period_ns.is_some() && delayed.added_ns > control.added_ns
        })
        .collect();
    let median = |values: Vec<f64>| Distribution::of(values).map(|all| all.median);
    let more = |of: fn(&PerturbationRecord) -> u64, pair: &(&PerturbationRecord, &PerturbationRecord)| {
        of(pair.1) as f64 - of(pair.0) as f64
    };
    let differences: Vec<(f64, f64)> = pairs
        .iter()
        .map(|pair| (more(|stretch| stretch.added_ns, pair), more(PerturbationRecord::took_ns, pair)))
        .collect();
    let added_ns = median(differences.iter().map(|(added, _)| *added).collect())?;
    let (criticality, interval) = slope(&differences)?;
    Some(Criticality {
        target: target.to_string(),
        side,
        step: step.to_string(),
        pairs: pairs.len() as u64,
        took_ns: median(pairs.iter().map(|(control, _)| control.took_ns() as f64).collect())?,
        share: median(
            pairs.iter().map(|(control, _)| control.interval_ns as f64 / (control.took_ns() as f64).max(1.0)).collect(),
        )?,
        added_ns,
        criticality,
        interval,
        replay: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::{HostNs, Phase};

    fn stretch(target: &str, pair: u64, delayed: bool, took: u64, added: u64) -> PerturbationRecord {
        let period = Some(took);
        PerturbationRecord::of_fields(
            target.into(),
            Side::Host,
            pair,
            delayed,
            pair,
            Some(Phase::Decode),
            "decode".into(),
            HostNs(0),
            took / 2,
            period,
            3,
            took / 4,
            added,
        )
    }

    #[test]
    fn a_slope_by_hand() {
        // Steps of 1000, and of 1100 where 200 were added: half of it is waited for.
        let of = |pair| [stretch("path=a", pair, false, 1000, 0), stretch("path=a", pair, true, 1100, 200)];
        let mut all: Vec<PerturbationRecord> = (0..8).flat_map(of).collect();
        // Alone, or unlike its control, or nothing was added.
        all.push(stretch("path=a", 100, true, 9_000, 200));
        let mut alone = stretch("path=a", 101, true, 9_000, 200);
        alone.period_ns = None;
        all.extend([stretch("path=a", 101, false, 1000, 0), alone]);
        all.extend([stretch("path=b", 102, false, 1000, 0), stretch("path=b", 102, true, 1000, 0)]);
        let found = sensitivity(&all);
        let [a] = &found[..] else { panic!("{found:?}") };
        assert_eq!((a.target.as_str(), a.step.as_str(), a.pairs), ("path=a", "decode", 8));
        assert_eq!((a.took_ns, a.share, a.added_ns, a.criticality), (1000.0, 0.25, 200.0, 0.5));
        assert_eq!(a.interval, Some((0.5, 0.5)));
        let with =
            |low: f64, mid: f64, high: f64| Criticality { replay: Some(Estimate { low, mid, high }), ..a.clone() };
        assert_eq!(a.disagrees(), None);
        assert_eq!(with(0.55, 0.6, 0.7).disagrees(), Some(false));
        assert_eq!(with(0.9, 1.0, 1.0).disagrees(), Some(true));
        assert_eq!(with(0.0, 0.1, 0.2).disagrees(), Some(true));
    }
}
