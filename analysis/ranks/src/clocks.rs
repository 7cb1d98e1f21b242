//! One time for all ranks.

use super::reading::SeenCollective;
use serde::Serialize;

/// What times of one machine may contradict each other by, nanoseconds: how far device and host clocks are held together.
const TOLERANCE: i64 = 2 * candlescope_schema::run::GPU_CLOCK_BOUND_NS as i64;

/// How far the time lines of two processes of one machine may lie apart, nanoseconds: both follow its monotonic clock,
/// each from a reading of its own, and for a tenth of a second by its own calibration.
const PROCESSES: i64 = 20_000;

/// What clocks are held together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AlignedBy {
    /// All ranks ran on one machine.
    OneMachine,
    /// By collectives, which no rank can leave before all have come.
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
    /// How far that may be wrong at most, nanoseconds: nobody leaves a collective before all have come, which leaves no more
    /// room. 0 of threads; `None` without collectives on several machines.
    pub bound_ns: Option<i64>,
    /// How far the ends of one collective lie apart after that: 95 of 100 lie within, nanoseconds.
    pub ends_apart_ns: Option<i64>,
    /// Collectives that this rests on.
    pub collectives: usize,
    /// Whether all of them agree. Otherwise clocks drift, or what was taken for one collective was several.
    pub agrees: bool,
}

impl Clocks {
    /// Holds clocks together by collectives that all ranks took part in; threads of one process have one.
    pub(crate) fn of(hosts: &[&str], threads: bool, matched: &[Vec<&SeenCollective>]) -> Self {
        let ranks = hosts.len();
        // What a rank is ahead of the first one lies within.
        let room = |rank: usize| {
            let low = matched.iter().map(|all| all[rank].start - all[0].end).max();
            let high = matched.iter().map(|all| all[rank].end - all[0].start).min();
            low.zip(high)
        };
        let rooms: Vec<Option<(i64, i64)>> = (0..ranks).map(room).collect();
        // Machines may be called alike.
        let fits = |room: &Option<(i64, i64)>| room.is_none_or(|(low, high)| low <= TOLERANCE && high >= -TOLERANCE);
        let one_host = hosts.iter().all(|host| *host == hosts[0]) && !hosts[0].is_empty();
        let one_machine = threads || one_host && rooms.iter().all(fits);
        let (by, ahead_ns, bound_ns, agrees) = match (one_machine, matched.is_empty()) {
            (true, _) => (AlignedBy::OneMachine, vec![0; ranks], Some(if threads { 0 } else { PROCESSES }), true),
            (false, true) => (AlignedBy::Nothing, vec![0; ranks], None, true),
            (false, false) => {
                let mut bound = 0;
                let mut agrees = true;
                let ahead = rooms.iter().enumerate().map(|(rank, room)| {
                    let (low, high) = room.unwrap_or_default();
                    agrees &= low <= high + TOLERANCE;
                    // Ends are what lies closest together, as far as there is room.
                    let ends = median(matched.iter().map(|all| all[rank].end - all[0].end).collect());
                    let ahead = ends.clamp(low.min(high), low.max(high));
                    bound = bound.max((high - ahead).abs()).max((ahead - low).abs());
                    ahead
                });
                let ahead: Vec<i64> = ahead.collect();
                (AlignedBy::Collectives, ahead, Some(bound), agrees)
            }
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
        let ends_apart_ns = apart.get((apart.len() * 95 / 100).min(apart.len().saturating_sub(1))).copied();
        Self { by, ahead_ns, bound_ns, ends_apart_ns, collectives: matched.len(), agrees }
    }

    /// In sentences: what holds clocks together, how closely, and how far apart the ends of a collective lie.
    pub fn text(&self) -> String {
        let time = |ns: i64| candlescope_schema::numbers::duration(ns as f64);
        let ends = match self.ends_apart_ns {
            Some(ns) => {
                format!(
                    " The ends of a collective lie within {} of each other (95 % of {}).",
                    time(ns),
                    self.collectives
                )
            }
            None => String::new(),
        };
        match self.by {
            AlignedBy::OneMachine => match self.bound_ns {
                Some(ns) if ns > 0 => {
                    format!("All ranks have one machine's clock, which processes read to {}.{ends}", time(ns))
                }
                _ => format!("All ranks have one clock.{ends}"),
            },
            AlignedBy::Collectives if !self.agrees => format!(
                "Clocks contradict each other: they drift, or collectives of different groups of ranks were taken for one. What is \
                 said of waiting may be wrong.{ends}"
            ),
            AlignedBy::Collectives => format!(
                "Clocks of several machines are held together by collectives, to {} at most.{ends}",
                time(self.bound_ns.unwrap_or(0))
            ),
            AlignedBy::Nothing => {
                "Clocks are those of the machines (NTP): times of different ranks may differ by milliseconds."
                    .to_string()
            }
        }
    }
}

/// The upper of the middle ones, so that it is one of them; 0 of nothing.
fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CollectiveKind;

    fn seen(start: i64, end: i64) -> SeenCollective {
        SeenCollective { kind: CollectiveKind::AllReduce, step: None, start, end, bytes: None, device: None }
    }

    fn of(hosts: &[&str; 2], all: &[[SeenCollective; 2]]) -> Clocks {
        let matched: Vec<Vec<&SeenCollective>> = all.iter().map(|pair| pair.iter().collect()).collect();
        Clocks::of(hosts, false, &matched)
    }

    #[test]
    fn another_machines_clock_is_found_and_how_far_it_may_be_wrong() {
        // The second one is an hour ahead. Each is the last to come now and then, and a transfer takes 800 ns.
        const AHEAD: i64 = 3_600_000_000_000;
        let one = |n: i64| {
            let (a, b) = if n % 2 == 0 { (0, 50_000) } else { (50_000, 0) };
            let (at, end) = (n * 1_000_000, n * 1_000_000 + 50_800);
            [seen(at + a, end), seen(at + b + AHEAD, end + AHEAD + n % 3 * 10)]
        };
        let all: Vec<[SeenCollective; 2]> = (0..40).map(one).collect();
        let clocks = of(&["a", "b"], &all);
        assert_eq!((clocks.by, clocks.collectives, clocks.agrees), (AlignedBy::Collectives, 40, true));
        assert!(
            (clocks.ahead_ns[1] - AHEAD).abs() <= clocks.bound_ns.unwrap() && clocks.bound_ns.unwrap() <= 820,
            "{clocks:?}"
        );
        // Machines of one name are still two, and one machine's clock needs no change.
        assert_eq!(of(&["localhost", "localhost"], &all).by, AlignedBy::Collectives);
        let here: Vec<[SeenCollective; 2]> =
            (0..9).map(|n| [seen(n * 1000, n * 1000 + 900), seen(n * 1000, n * 1000 + 880)]).collect();
        let clocks = of(&["a", "a"], &here);
        assert_eq!((clocks.ahead_ns, clocks.bound_ns), (vec![0, 0], Some(PROCESSES)));
        assert_eq!(of(&["a", "b"], &[]).by, AlignedBy::Nothing);
        // Threads have one clock, whatever was taken for one collective.
        let matched: Vec<Vec<&SeenCollective>> = all.iter().map(|pair| pair.iter().collect()).collect();
        let threads = Clocks::of(&["a", "a"], true, &matched);
        assert_eq!((threads.by, threads.ahead_ns, threads.bound_ns), (AlignedBy::OneMachine, vec![0, 0], Some(0)));
    }

    #[test]
    fn one_that_is_always_last_leaves_room_that_is_told() {
        // The second one comes 3 ms later each time, and both end together: its clock, or its work.
        let all: Vec<[SeenCollective; 2]> = (0..20)
            .map(|n| {
                [
                    seen(n * 10_000_000, n * 10_000_000 + 3_100_000),
                    seen(n * 10_000_000 + 3_000_000, n * 10_000_000 + 3_100_000),
                ]
            })
            .collect();
        let clocks = of(&["a", "b"], &all);
        assert_eq!(clocks.ahead_ns, [0, 0]);
        assert!(clocks.bound_ns.unwrap() >= 3_000_000, "{clocks:?}");
    }

    #[test]
    fn what_cannot_be_is_told() {
        let all = [[seen(0, 100_000), seen(0, 100_000)], [seen(1_000_000, 1_100_000), seen(9_000_000, 9_100_000)]];
        assert!(!of(&["a", "b"], &all).agrees);
    }
}
