//! One time for all ranks.

use super::reading::Seen;
use serde::Serialize;

/// What clocks are held together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AlignedBy {
    /// All ranks ran on one machine.
    OneMachine,
    /// By the ends of collectives, which no rank can leave before all have come.
    Collectives,
    /// By nothing: as the machines' clocks are, which NTP holds together to some milliseconds.
    Nothing,
}

/// Clocks of the ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Clocks {
    /// How they are held together.
    pub by: AlignedBy,
    /// What each rank's times are ahead of the first one's, nanoseconds. Taken off before ranks are compared.
    pub ahead_ns: Vec<i64>,
    /// How far the ends of one collective lie apart after that on the ranks, nanoseconds: 95 of 100 lie within. Clocks differ
    /// by no more than this; what remains is also that ranks leave a collective one after the other. `None` without
    /// collectives.
    pub bound_ns: Option<i64>,
    /// Collectives that this rests on.
    pub collectives: usize,
}

impl Clocks {
    /// Holds clocks together by collectives that all ranks took part in.
    pub(crate) fn of(hosts: &[&str], matched: &[Vec<&Seen>]) -> Self {
        let ranks = hosts.len();
        let one_machine = hosts.iter().all(|host| *host == hosts[0]) && !hosts[0].is_empty();
        let ends = |rank: usize| matched.iter().map(move |all| all[rank].end - all[0].end);
        let (by, ahead_ns) = match (one_machine, matched.is_empty()) {
            (true, _) => (AlignedBy::OneMachine, vec![0; ranks]),
            (false, true) => (AlignedBy::Nothing, vec![0; ranks]),
            (false, false) => (AlignedBy::Collectives, (0..ranks).map(|rank| median(ends(rank).collect())).collect()),
        };
        let mut apart: Vec<i64> = matched
            .iter()
            .map(|all| {
                let ends = all.iter().zip(&ahead_ns).map(|(seen, ahead)| seen.end - ahead);
                let (low, high) = ends.fold((i64::MAX, i64::MIN), |(low, high), end| (low.min(end), high.max(end)));
                high - low
            })
            .collect();
        apart.sort_unstable();
        let bound_ns = apart.get((apart.len() * 95 / 100).min(apart.len().saturating_sub(1))).copied();
        Self { by, ahead_ns, bound_ns, collectives: matched.len() }
    }

    /// In a sentence.
    pub fn text(&self) -> String {
        let bound = match self.bound_ns {
            Some(ns) => format!(
                ": the ends of a collective lie within {} of each other (95 % of {})",
                candlescope_schema::numbers::duration(ns as f64),
                self.collectives
            ),
            None => String::new(),
        };
        match self.by {
            AlignedBy::OneMachine => format!("All ranks have one machine's clock{bound}."),
            AlignedBy::Collectives => format!("Clocks are held together by the ends of collectives{bound}."),
            AlignedBy::Nothing => {
                "Clocks are those of the machines (NTP): times of different ranks may differ by milliseconds."
                    .to_string()
            }
        }
    }
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CollectiveKind;

    fn seen(start: i64, end: i64) -> Seen {
        Seen { kind: CollectiveKind::AllReduce, step: None, start, end, bytes: None, hidden: 0 }
    }

    #[test]
    fn another_machines_clock_is_found_by_what_ends_together() {
        // The second one is 5 ms ahead, and leaves up to 20 ns later.
        let all: Vec<[Seen; 2]> = (0..40i64)
            .map(|n| [seen(n * 1000, n * 1000 + 900), seen(n * 1000 + 5_000_100, n * 1000 + 5_000_900 + n % 3 * 10)])
            .collect();
        let matched: Vec<Vec<&Seen>> = all.iter().map(|pair| pair.iter().collect()).collect();
        let clocks = Clocks::of(&["a", "b"], &matched);
        assert_eq!((clocks.by, clocks.collectives), (AlignedBy::Collectives, 40));
        assert_eq!(clocks.ahead_ns, [0, 5_000_010]);
        assert!(clocks.bound_ns.unwrap() <= 10, "{clocks:?}");
        assert_eq!(Clocks::of(&["a", "a"], &matched).ahead_ns, [0, 0], "one machine has one clock");
        assert_eq!(Clocks::of(&["a", "b"], &[]).by, AlignedBy::Nothing);
    }
}
