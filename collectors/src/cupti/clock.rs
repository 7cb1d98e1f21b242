//! From a clock that counts nanoseconds in its own way to the host's time line.
//!
//! CUPTI's times follow the system's wall clock, which may be set while a program runs; the host's time line is never
//! set. Both are read together from time to time, and times between two such anchors are mapped by the straight line
//! through them.
//!
//! The error bound of a mapped time is what can be measured from here: half the bracket around each reading, and how
//! far readings were from the line through their neighbours. CUPTI itself converts the device's clock to its own and
//! does not tell how exactly: an error there shows only if a kernel seems to begin before it was launched, which the
//! pipeline checks.

use candlescope_core::HostNs;
use std::collections::VecDeque;

/// Anchors kept, enough for hours of windows. Times before the oldest are mapped by the oldest.
const MOST: usize = 256;

/// How far two clocks may drift apart between two anchors: this share of the time, and this many nanoseconds for the
/// readings' own uncertainty. More means that one of them was set in between.
const DRIFT: f64 = 1e-3;
const UNCERTAINTY_NS: f64 = 100_000.0;

/// One clock's readings beside the host's, ascending.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    points: VecDeque<(u64, i64)>,
    /// Of all readings: half the widest bracket, and the farthest that one was from the line through its neighbours.
    /// Until there are three in a row, how far apart the clocks drifted between two.
    widest_ns: u64,
    bent_ns: Option<u64>,
    drifted_ns: u64,
}

impl Anchors {
    /// This clock read `at` when the host's read `host`, give or take `bound_ns`.
    pub(super) fn add(&mut self, at: u64, host: HostNs, bound_ns: u64) {
        self.widest_ns = self.widest_ns.max(bound_ns);
        if self.points.back().is_some_and(|(last, _)| at <= *last) {
            // The clock was set back: times from before cannot be told from those that come now.
            self.points.clear();
        }
        if self.points.len() >= MOST {
            self.points.pop_front();
        }
        self.points.push_back((at, host.0));
        self.judge();
    }

    /// Checks the mapping between the readings before the newest one against it.
    fn judge(&mut self) {
        let n = self.points.len();
        let last = |back: usize| n.checked_sub(back).and_then(|i| self.points.get(i)).copied();
        let Some((b, c)) = last(2).zip(last(1)) else { return };
        if was_set(b, c) {
            return;
        }
        match last(3).filter(|a| !was_set(*a, b)) {
            Some(a) => {
                let share = (b.0 - a.0) as f64 / (c.0 - a.0) as f64;
                let expected = a.1 as f64 + (c.1 - a.1) as f64 * share;
                let off = (b.1 as f64 - expected).abs() as u64;
                self.bent_ns = Some(self.bent_ns.unwrap_or(0).max(off));
            }
            None => self.drifted_ns = self.drifted_ns.max((c.1 - b.1).abs_diff(signed_difference(c.0, b.0))),
        }
    }

    /// How far a mapped time may be off, as the readings say; `None` before the first.
    pub(super) fn bound_ns(&self) -> Option<u64> {
        self.points.back()?;
        Some(self.widest_ns.saturating_add(self.bent_ns.unwrap_or(self.drifted_ns)))
    }

    /// The host's time at `at`; `None` before the first anchor was added.
    pub(super) fn host(&self, at: u64) -> Option<HostNs> {
        let after = self.points.partition_point(|(x, _)| *x <= at);
        let before = after.checked_sub(1).and_then(|i| self.points.get(i));
        let along = |(x, host): (u64, i64)| HostNs(host.saturating_add(signed_difference(at, x)));
        match (before.copied(), self.points.get(after).copied()) {
            (None, None) => None,
            // Before the first and after the last anchor both clocks are taken to run at the same speed: a line through
            // two anchors that lie close together would multiply the uncertainty of their readings.
            (Some(end), None) | (None, Some(end)) => Some(along(end)),
            (Some((x0, h0)), Some((x1, h1))) => {
                let (own, hosts) = ((x1 - x0) as f64, (h1 - h0) as f64);
                if was_set((x0, h0), (x1, h1)) {
                    return Some(along(if at - x0 < x1 - at { (x0, h0) } else { (x1, h1) }));
                }
                Some(HostNs(h0 + ((at - x0) as f64 * (hosts / own)) as i64))
            }
        }
    }
}

/// Whether one of the clocks was set between two readings.
fn was_set((x0, h0): (u64, i64), (x1, h1): (u64, i64)) -> bool {
    let (own, hosts) = ((x1 - x0) as f64, (h1 - h0) as f64);
    (hosts - own).abs() > own * DRIFT + UNCERTAINTY_NS
}

fn signed_difference(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

/// A reading of a clock, the host's in the middle of the bracket around it, and half the bracket.
pub(super) type Reading = (u64, HostNs, u64);

/// A wider bracket than this is worth more tries, because something delayed the reading.
const WIDE_NS: u64 = 20_000;

/// Reads `clock` between two readings of the host's clock, and takes the narrowest bracket of four tries, or of up to
/// sixteen as long as all were wide.
pub(super) fn bracketed(host: &dyn Fn() -> HostNs, clock: &dyn Fn() -> Option<u64>) -> Option<Reading> {
    let mut best: Option<(u64, Reading)> = None;
    for attempt in 0..16 {
        if attempt >= 4 && best.is_some_and(|(narrowest, _)| narrowest <= WIDE_NS) {
            break;
        }
        let before = host();
        let at = clock()?;
        let width = host().since(before);
        if best.is_none_or(|(narrowest, _)| width < narrowest) {
            best = Some((width, (at, before.plus_ns(width / 2), width / 2)));
        }
    }
    best.map(|(_, anchor)| anchor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn anchors(points: &[(u64, i64)]) -> Anchors {
        let mut anchors = Anchors::default();
        points.iter().for_each(|(at, host)| anchors.add(*at, HostNs(*host), 40));
        anchors
    }

    #[test]
    fn between_anchors_it_is_linear() {
        // 200 parts per million fast.
        let anchors = anchors(&[(1_000_000_000, 5_000_000_000), (2_000_000_000, 6_000_200_000)]);
        assert_eq!(anchors.host(1_000_000_000), Some(HostNs(5_000_000_000)));
        assert_eq!(anchors.host(1_500_000_000), Some(HostNs(5_500_100_000)));
        assert_eq!(anchors.host(2_000_000_000), Some(HostNs(6_000_200_000)));
    }

    #[test]
    fn outside_anchors_both_run_alike() {
        // Anchors a microsecond apart, read 100 ns wrong: the line through them would be 10 % off.
        let anchors = anchors(&[(1_000_000, 7_000_000), (1_001_000, 7_001_100)]);
        assert_eq!(anchors.host(3_001_000), Some(HostNs(9_001_100)));
        assert_eq!(anchors.host(0), Some(HostNs(6_000_000)));
        assert_eq!(Anchors::default().host(5), None);
    }

    #[test]
    fn a_clock_that_was_set_is_not_smeared_out() {
        // Set forward by ten seconds between the anchors, a second apart on the host's line.
        let anchors = anchors(&[(1_000_000_000, 1_000_000_000), (12_000_000_000, 2_000_000_000)]);
        assert_eq!(anchors.host(1_300_000_000), Some(HostNs(1_300_000_000)));
        assert_eq!(anchors.host(11_900_000_000), Some(HostNs(1_900_000_000)));
    }

    #[test]
    fn a_clock_that_was_set_back_starts_anew() {
        let anchors = anchors(&[(9_000, 1_000), (10_000, 2_000), (4_000, 3_000)]);
        assert_eq!(anchors.host(4_500), Some(HostNs(3_500)));
        assert_eq!(anchors.points.len(), 1);
    }

    #[test]
    fn old_anchors_go() {
        let many: Vec<(u64, i64)> = (0..2 * MOST as u64).map(|n| (n * 1000, n as i64 * 1000 + 50)).collect();
        let anchors = anchors(&many);
        assert_eq!(anchors.points.len(), MOST);
        assert_eq!(anchors.host(400_500), Some(HostNs(400_550)));
        assert_eq!(anchors.host(100), Some(HostNs(150)), "older than all");
    }

    #[test]
    fn the_bound_is_what_readings_show() {
        assert_eq!(Anchors::default().bound_ns(), None);
        assert_eq!(anchors(&[(1_000, 5_000)]).bound_ns(), Some(40));
        // Two readings: the whole drift may have happened at any moment between them.
        assert_eq!(anchors(&[(0, 0), (1_000_000, 1_000_300)]).bound_ns(), Some(340));
        // Three on a line: drift is no error of the line.
        let straight = [(0, 0), (1_000_000, 1_000_300), (3_000_000, 3_000_900)];
        assert_eq!(anchors(&straight).bound_ns(), Some(40));
        // The one in the middle is 500 ns off.
        let bent = [(0, 0), (1_000_000, 1_000_800), (3_000_000, 3_000_900)];
        assert_eq!(anchors(&bent).bound_ns(), Some(540));
        // Setting a clock by an hour is not a drift of an hour.
        let set = [(0, 0), (1_000_000, 1_000_000), (3_600_002_000_000, 2_000_000)];
        assert_eq!(anchors(&set).bound_ns(), Some(40));
        let mut wide = anchors(&straight);
        wide.add(4_000_000, HostNs(4_001_200), 250_000);
        assert_eq!(wide.bound_ns(), Some(250_000));
    }

    #[test]
    fn a_reading_that_was_held_up_is_taken_again() {
        // The first six brackets are 1 ms wide, then one is 100 ns.
        let (now, reads) = (Cell::new(0i64), Cell::new(0));
        let host = || {
            reads.set(reads.get() + 1);
            now.set(now.get() + if reads.get() <= 12 { 1_000_000 } else { 100 });
            HostNs(now.get())
        };
        assert_eq!(bracketed(&host, &|| Some(1)).map(|(.., half)| half), Some(50));
        // The number of tries is bounded.
        let slow = || {
            now.set(now.get() + 1_000_000);
            HostNs(now.get())
        };
        assert_eq!(bracketed(&slow, &|| Some(1)).map(|(.., half)| half), Some(500_000));
    }

    #[test]
    fn the_narrowest_bracket_wins() {
        // Readings of the host's clock around each of the tries; the third try is the quickest.
        let readings = [0, 900, 1000, 1500, 2000, 2010, 3000, 3300];
        let next = Cell::new(0);
        let host = || HostNs(readings[next.replace(next.get() + 1)]);
        assert_eq!(bracketed(&host, &|| Some(next.get() as u64)), Some((5, HostNs(2005), 5)));
        assert_eq!(bracketed(&|| HostNs(1), &|| None), None);
    }
}
