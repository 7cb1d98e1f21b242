//! Counts: exact figures that need no statistics. They are shown before times, and decide where times cannot.

use super::run_facts::RunFacts;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Counts that differ by less than this share are equal: means over steps are rounded.
const EQUAL: f64 = 1e-9;
/// Counts of work: more of them is worse. Of the others, such as intervals, neither is.
const OF_WORK: [&str; 9] = [
    "kernels",
    "launches",
    "copies",
    "memsets",
    "copied_bytes",
    "flops",
    "flops_executed",
    "bytes_per_token",
    "io_bytes",
];
/// Why allocations are in no comparison.
pub(super) const NO_ALLOCATIONS: &str = "runs do not record the calls that allocate; peak memory is compared instead";

/// One count of the steps of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountChange {
    /// Phase of the steps that it is of, or their name where no phases are marked.
    pub kind: String,
    /// What was counted: `kernels`, `launches`, `copied_bytes`, `flops`, `tokens`, …
    pub name: String,
    /// For each step on side A, or for each token where the name says so; absent if A does not know it.
    pub a: Option<f64>,
    /// The same on side B, a mean over its runs; absent if B does not know it.
    pub b: Option<f64>,
    /// B ÷ A − 1, if both are known and A is not 0.
    pub change: Option<f64>,
    /// Whether they are equal.
    pub equal: bool,
    /// Whether all runs of a side agree. If not, the means are compared, and nothing follows from them.
    pub exact: bool,
    /// Whether more of it is more work.
    pub is_work: bool,
}

impl CountChange {
    /// How much more work it is, where that can be said.
    pub fn more_work(&self) -> Option<f64> {
        let from_nothing = self.a == Some(0.0) && self.b.is_some_and(|b| b > 0.0);
        let change = if from_nothing { Some(f64::INFINITY) } else { self.change };
        change.filter(|_| self.is_work && self.exact && !self.equal)
    }
}

/// Counts of all kinds of step that a side has.
pub(super) fn count_changes(a: &[RunFacts], b: &[RunFacts]) -> Vec<CountChange> {
    let (a, b) = (side(a), side(b));
    let keys: BTreeSet<&(String, String)> = a.keys().chain(b.keys()).collect();
    let changes = keys.into_iter().map(|key| {
        let (one, other) = (a.get(key), b.get(key));
        let mean = |values: Option<&Vec<f64>>| values.map(|values| values.iter().sum::<f64>() / values.len() as f64);
        let steady =
            |values: Option<&Vec<f64>>| values.is_none_or(|values| values.iter().all(|value| same(*value, values[0])));
        let (mean_a, mean_b) = (mean(one), mean(other));
        CountChange {
            kind: key.0.clone(),
            name: key.1.clone(),
            a: mean_a,
            b: mean_b,
            change: mean_a.zip(mean_b).filter(|(a, _)| *a != 0.0).map(|(a, b)| b / a - 1.0),
            equal: mean_a.zip(mean_b).is_some_and(|(a, b)| same(a, b)),
            exact: steady(one) && steady(other),
            is_work: OF_WORK.contains(&key.1.as_str()),
        }
    });
    changes.collect()
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= EQUAL * a.abs().max(b.abs())
}

/// Values of each count over the runs that have it.
fn side(runs: &[RunFacts]) -> BTreeMap<(String, String), Vec<f64>> {
    let mut values: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for (kind, facts) in runs.iter().flat_map(|run| &run.kinds) {
        let per_token = facts.bytes_per_token.map(|bytes| ("bytes_per_token".to_string(), bytes));
        let counts = facts.counts.iter().filter(|(name, _)| *name != "bytes").map(|(name, n)| (name.clone(), *n));
        for (name, value) in counts.chain(per_token) {
            values.entry((kind.clone(), name)).or_default().push(value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::step_times::KindFacts;
    use super::*;

    fn run(counts: &[(&str, f64)]) -> RunFacts {
        let counts = counts.iter().map(|(name, n)| (name.to_string(), *n)).collect();
        let kinds = BTreeMap::from([("decode".to_string(), KindFacts { counts, ..KindFacts::default() })]);
        RunFacts { kinds, ..RunFacts::default() }
    }

    #[test]
    fn one_kernel_more_is_seen_without_statistics() {
        let found = count_changes(&[run(&[("kernels", 300.0)])], &[run(&[("kernels", 301.0)])]);
        assert!(!found[0].equal && (found[0].more_work().unwrap() - 1.0 / 300.0).abs() < 1e-12);
        let more = count_changes(&[run(&[("copies", 0.0)])], &[run(&[("copies", 2.0)])]);
        assert_eq!(more[0].more_work(), Some(f64::INFINITY));
        // More intervals are not more work.
        assert_eq!(count_changes(&[run(&[("intervals", 3.0)])], &[run(&[("intervals", 4.0)])])[0].more_work(), None);
    }

    #[test]
    fn what_varies_within_a_side_proves_nothing() {
        let a = [run(&[("kernels", 300.0)]), run(&[("kernels", 310.0)])];
        let found = count_changes(&a, &[run(&[("kernels", 320.0)])]);
        assert!(!found[0].exact && found[0].more_work().is_none());
        let absent = count_changes(&a, &[run(&[])]);
        assert_eq!((absent[0].b, absent[0].change, absent[0].equal), (None, None, false));
    }
}
