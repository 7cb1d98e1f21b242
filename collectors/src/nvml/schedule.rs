//! Which queries are due in which round. A state machine without clock or device: the caller passes the time.

use super::gpu_metrics::{Cadence, Query};
use std::time::Duration;

/// When the first of the rare queries is made: not at the start, while the application is busy loading.
const FIRST_RARE: Duration = Duration::from_secs(1);

/// The rare questions, each of which blocks.
const RARE: [Query; 2] = [Query::PcieReceive, Query::PcieTransmit];

/// What one round asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DueQueries {
    often: bool,
    second: bool,
    /// At most one rare question a round, of one GPU.
    rare: Option<(usize, Query)>,
}

impl DueQueries {
    /// Whether GPU number `gpu` is asked `query` in this round.
    pub(super) fn asks(&self, gpu: usize, query: Query) -> bool {
        match query.cadence() {
            Cadence::Round => true,
            Cadence::Often => self.often,
            Cadence::Second => self.second,
            Cadence::Rare => self.rare == Some((gpu, query)),
        }
    }
}

/// Decides what is due. Missed beats are skipped, not made up for.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    gpus: usize,
    often: Duration,
    second: Duration,
    rare: Duration,
    /// Which of the rare questions is next: they take turns, GPU by GPU.
    turn: usize,
}

impl Schedule {
    /// For so many GPUs; time begins at zero.
    pub(super) fn new(gpus: usize) -> Self {
        Self { gpus, often: Duration::ZERO, second: Duration::ZERO, rare: FIRST_RARE, turn: 0 }
    }

    /// What a usual round at `now` asks. The first one asks everything but the rare questions.
    pub(super) fn round(&mut self, now: Duration) -> DueQueries {
        let turns = self.gpus * RARE.len();
        let mut rare = None;
        if turns > 0 && beat(&mut self.rare, now, Cadence::Rare.interval() / turns as u32) {
            rare = Some((self.turn / RARE.len(), RARE[self.turn % RARE.len()]));
            self.turn = (self.turn + 1) % turns;
        }
        DueQueries {
            often: beat(&mut self.often, now, Cadence::Often.interval()),
            second: beat(&mut self.second, now, Cadence::Second.interval()),
            rare,
        }
    }

    /// What the last round asks: everything that does not block, the energy counter above all.
    pub(super) fn last() -> DueQueries {
        DueQueries { often: true, second: true, rare: None }
    }
}

/// Whether the time `next` has come; if so, moves it on, in fixed steps as long as the caller is on time.
fn beat(next: &mut Duration, now: Duration, interval: Duration) -> bool {
    if now < *next {
        return false;
    }
    *next += interval;
    if *next <= now {
        *next = now + interval;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// How often `query` was asked of `gpu` in rounds at these milliseconds.
    fn times(schedule: &mut Schedule, at: impl Iterator<Item = u64>, gpu: usize, query: Query) -> Vec<u64> {
        at.filter(|ms| schedule.round(millis(*ms)).asks(gpu, query)).collect()
    }

    #[test]
    fn cheap_questions_are_asked_in_every_round_and_dear_ones_at_their_own_pace() {
        let rounds = || (0..100).map(|n| n * 50);
        let asked = |query| times(&mut Schedule::new(1), rounds(), 0, query);
        assert_eq!(asked(Query::PowerInstant).len(), 100);
        assert_eq!(asked(Query::Throttle).len(), 25);
        assert_eq!(asked(Query::Energy), [0, 1000, 2000, 3000, 4000]);
        assert_eq!(asked(Query::PcieReceive), [1000], "every five seconds, not at the start");
        assert_eq!(asked(Query::PcieTransmit), [3500]);
    }

    #[test]
    fn the_pace_does_not_drift_with_rounds_that_come_late() {
        // Rounds of 51 ms: a query "one second after the last" would come only every 1.02 s.
        let asked = times(&mut Schedule::new(1), (0..1000).map(|n| n * 51), 0, Query::Energy);
        assert_eq!(asked.len(), 51);
    }

    #[test]
    fn missed_beats_are_not_made_up_for() {
        let asked = times(&mut Schedule::new(1), [0, 10_000, 10_050, 10_950, 11_000].into_iter(), 0, Query::Energy);
        assert_eq!(asked, [0, 10_000, 11_000]);
    }

    #[test]
    fn at_most_one_blocking_question_a_round_and_each_gpu_has_its_turn() {
        let mut schedule = Schedule::new(8);
        let mut asked = std::collections::BTreeMap::new();
        for round in 0..220 {
            let due = schedule.round(millis(round * 50));
            let blocking: Vec<_> =
                (0..8).flat_map(|gpu| RARE.map(|q| (gpu, q))).filter(|(g, q)| due.asks(*g, *q)).collect();
            assert!(blocking.len() <= 1, "{blocking:?}");
            blocking.into_iter().for_each(|(gpu, query)| *asked.entry((gpu, query as u8)).or_insert(0) += 1);
        }
        assert_eq!(asked.len(), 16, "{asked:?}");
        assert!(asked.values().all(|n| (1..=3).contains(n)), "eleven seconds, every five: {asked:?}");
    }

    #[test]
    fn the_last_round_reads_energy_and_does_not_block() {
        let due = Schedule::last();
        assert!(due.asks(0, Query::Energy) && due.asks(3, Query::PowerInstant) && due.asks(0, Query::Throttle));
        assert!(!due.asks(0, Query::PcieReceive) && !due.asks(0, Query::PcieTransmit));
    }

    #[test]
    fn without_gpus_nothing_is_divided() {
        assert_eq!(Schedule::new(0).round(millis(5_000)).rare, None);
    }
}
