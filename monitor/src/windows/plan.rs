//! Which windows of time are read. Pure.

/// Parts of a window, at most.
const PARTS: i64 = 12;
/// Seconds of a part, at least: a rate needs several scrapes.
const SHORTEST_PART: i64 = 60;
/// Parts that a window has at least.
const FEWEST_PARTS: i64 = 3;
/// Seconds after a start that are left out: caches are cold, and rates begin.
const SETTLES: i64 = 60;
/// Starts of several instances that are no further apart than this many seconds are one deployment.
const ROLLS_OUT: i64 = 600;
/// A start is seen up to so many seconds late.
const SEEN_LATE: i64 = 60;

/// A stretch of time in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its beginning: rates of its first part are over the time from here on.
    pub from_s: i64,
    /// Its end, at which the value of its last part is read.
    pub to_s: i64,
}

/// Windows of the same length and number of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Seconds of a part.
    pub every_s: i64,
    /// The windows before, in order of time.
    pub before: Vec<Span>,
    /// The window that is judged.
    pub now: Span,
    /// The start that it comes after, if that is how it was chosen.
    pub started_s: Option<i64>,
}

impl Plan {
    /// Parts of each window.
    pub fn parts(&self) -> i64 {
        (self.now.to_s - self.now.from_s) / self.every_s
    }

    /// The last `last` seconds, and as much `against` seconds before that, twice as many, and so on.
    pub(super) fn earlier(now_s: i64, last: i64, against: i64, windows: usize) -> Self {
        let (every_s, length) = parts_of(last);
        let span = |to_s: i64| Span { from_s: to_s - length, to_s };
        let before = (1..=windows as i64).rev().map(|n| span(now_s - n * against)).collect();
        Self { every_s, before, now: span(now_s), started_s: None }
    }

    /// Time since the last of `starts`, at most `last` seconds of it, and windows of the same length right before it,
    /// up to the start before. `known_from` is where the knowledge of starts begins.
    pub(super) fn since_start(
        now_s: i64,
        last: i64,
        starts: &[i64],
        known_from: i64,
        windows: usize,
    ) -> Result<Self, NoPlan> {
        let mut starts: Vec<i64> = starts.to_vec();
        starts.sort_unstable();
        let Some(newest) = starts.last().copied() else { return Err(NoPlan::NoStart) };
        // The first of those that were started together, before which all were as they had been.
        let first =
            starts.iter().rev().zip(starts.iter().rev().skip(1)).find(|(later, start)| *later - *start > ROLLS_OUT);
        let (begin, before) = first.map_or((starts[0], known_from), |(later, start)| (*later, *start));
        let end = begin - SEEN_LATE;
        let room = now_s - newest - SETTLES;
        let needed = FEWEST_PARTS * SHORTEST_PART;
        if room < needed {
            return Err(NoPlan::TooSoon { ago: now_s - newest, needed: needed + SETTLES });
        }
        let (every_s, length) = parts_of(last.min(room));
        let span = |n: i64| Span { from_s: end - n * length, to_s: end - (n - 1) * length };
        let all = (1..=windows as i64).rev().map(span);
        let before: Vec<Span> = all.filter(|span| span.from_s >= before + SETTLES).collect();
        if before.is_empty() {
            return Err(NoPlan::NothingBefore { window: length });
        }
        Ok(Self { every_s, before, now: Span { from_s: now_s - length, to_s: now_s }, started_s: Some(newest) })
    }
}

/// Why there are no windows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlan {
    NoStart,
    TooSoon { ago: i64, needed: i64 },
    NothingBefore { window: i64 },
}

/// Seconds that a window has to have.
pub(super) fn shortest() -> i64 {
    FEWEST_PARTS * SHORTEST_PART
}

/// Length of a part, and of the window that has whole parts only.
fn parts_of(last: i64) -> (i64, i64) {
    let every = (last / PARTS).max(SHORTEST_PART);
    (every, last / every * every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_time_of_earlier_days() {
        let plan = Plan::earlier(1_000_000, 1800, 86_400, 2);
        assert_eq!((plan.every_s, plan.parts()), (150, 12));
        assert_eq!(plan.now, Span { from_s: 998_200, to_s: 1_000_000 });
        let at = |days: i64| Span { from_s: 998_200 - days * 86_400, to_s: 1_000_000 - days * 86_400 };
        assert_eq!(plan.before, [at(2), at(1)]);
        assert_eq!(Plan::earlier(0, 290, 3600, 1).now, Span { from_s: -240, to_s: 0 }, "four whole parts");
    }

    #[test]
    fn right_before_the_last_start_and_no_further_than_the_one_before() {
        // Two instances started together; the start before them was an hour earlier.
        let starts = [7_000, 3_000, 6_900];
        let plan = Plan::since_start(7_660, 1_800, &starts, 0, 7).unwrap();
        assert_eq!((plan.started_s, plan.every_s), (Some(7_000), 60));
        assert_eq!(plan.now, Span { from_s: 7_060, to_s: 7_660 });
        let first = plan.before.first().unwrap();
        assert_eq!((plan.before.len(), plan.before.last().unwrap().to_s), (6, 6_840));
        assert!(first.from_s >= 3_060, "{first:?}");
        let soon = Plan::since_start(7_100, 1_800, &starts, 0, 7);
        assert_eq!(soon, Err(NoPlan::TooSoon { ago: 100, needed: 240 }));
        assert_eq!(Plan::since_start(7_100, 1_800, &[], 0, 7), Err(NoPlan::NoStart));
        let close = Plan::since_start(9_000, 1_800, &[3_000, 4_000], 0, 7);
        assert_eq!(close, Err(NoPlan::NothingBefore { window: 1_800 }));
    }
}
