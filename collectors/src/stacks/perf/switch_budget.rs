//! How long switches of a thread are recorded: all the time where there are few, else in turns. No system call.

/// What a switch costs, nanoseconds: its record 0.5 to 1 µs of the thread's time, and as much again to read it, on a virtual
/// machine with two processors.
const EACH_NS: u64 = 2_000;
/// Of a thread's time, one part in so many may go into it.
const PARTS: u64 = 500;
/// Switches are counted over so long before it is decided, nanoseconds.
const COUNTED_NS: u64 = 100_000_000;
/// Recording pauses for no longer, nanoseconds.
const LONGEST_NS: u64 = 5_000_000_000;

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Off,
    On,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SwitchBudget {
    since: u64,
    switches: u64,
    /// When recording goes on; `None` while it does.
    resumes: Option<u64>,
}

impl SwitchBudget {
    pub(super) fn new(now: u64) -> Self {
        Self { since: now, switches: 0, resumes: None }
    }

    /// A switch was recorded.
    pub(super) fn count(&mut self) {
        self.switches += 1;
    }

    /// Recording cannot go on now: it is tried again later.
    pub(super) fn postpone(&mut self, now: u64) {
        self.resumes = Some(now + COUNTED_NS);
    }

    /// Whether recording is to pause or to go on.
    pub(super) fn turn(&mut self, now: u64) -> Option<Turn> {
        if let Some(resumes) = self.resumes {
            if now < resumes {
                return None;
            }
            *self = Self::new(now);
            return Some(Turn::On);
        }
        let elapsed = now.saturating_sub(self.since);
        // For what was recorded, so much time has to pass.
        let worth = self.switches * EACH_NS * PARTS;
        if worth > elapsed.max(COUNTED_NS) {
            self.resumes = Some(now + (worth - elapsed).min(LONGEST_NS));
            return Some(Turn::Off);
        }
        if elapsed >= COUNTED_NS {
            (self.since, self.switches) = (now, 0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn few_switches_are_recorded_all_the_time() {
        let mut budget = SwitchBudget::new(0);
        for poll in 1..1_000 {
            // 900 a second.
            (0..9).for_each(|_| budget.count());
            assert_eq!(budget.turn(poll * 10 * MS), None, "poll {poll}");
        }
    }

    #[test]
    fn many_are_recorded_in_turns_that_keep_the_budget() {
        let (mut budget, mut on, mut recorded) = (SwitchBudget::new(0), true, 0u64);
        let all = 60_000;
        for ms in (10..=all).step_by(10) {
            if on {
                (0..3_000).for_each(|_| budget.count());
                recorded += 3_000;
            }
            match budget.turn(ms * MS) {
                Some(Turn::Off) => on = false,
                Some(Turn::On) => on = true,
                None => {}
            }
        }
        let cost = recorded * EACH_NS;
        assert!(cost < all * MS / PARTS * 3 / 2 && cost > all * MS / PARTS / 3, "{cost} ns of {all} ms");
    }
}
