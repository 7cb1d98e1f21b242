//! What is told of a measurement on the way where there is no terminal to draw a bar on, and how long it goes on.

use crate::output::note;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The shortest time between two lines: a log of a study of an hour has some hundreds.
const EVERY: Duration = Duration::from_secs(10);

/// Lines on standard error, now and then.
pub(crate) struct Lines {
    wanted: bool,
    /// Time that the study took before this process.
    before: Duration,
    began: Instant,
    /// Periods of which a line was told, or which are over.
    told: Cell<u128>,
}

impl Lines {
    /// Lines for a process that begins `before` after its study did: short processes in a row have them as well.
    pub(crate) fn new(wanted: bool, before: Duration) -> Self {
        Self { wanted, before, began: Instant::now(), told: Cell::new(period(before)) }
    }

    /// Time since the study began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.before + self.began.elapsed()
    }

    /// Tells `text`, unless there was a line a short time ago.
    pub(crate) fn tell(&self, text: impl FnOnce() -> String) {
        if self.due(self.elapsed()) {
            note(&format!("progress: {}", text()));
        }
    }

    fn due(&self, now: Duration) -> bool {
        self.wanted && self.told.replace(period(now)) < period(now)
    }
}

fn period(time: Duration) -> u128 {
    time.as_nanos() / EVERY.as_nanos()
}

/// `at most 3:05 left`, after `elapsed` for a share of the work; nothing while the share says nothing yet.
pub(crate) fn left(elapsed: Duration, share: f64) -> Option<String> {
    let seconds = elapsed.as_secs_f64() * (1.0 / share - 1.0);
    (share >= 0.005 && seconds.is_finite()).then(|| format!("at most {} left", clock(seconds)))
}

/// `3:05`, or `1:02:05`.
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3_600, whole / 60 % 60, whole % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_far_apart_also_over_processes() {
        let seconds = Duration::from_secs;
        let lines = Lines::new(true, seconds(25));
        let due: Vec<bool> = [25, 29, 30, 31, 39, 55, 59, 60].map(|at| lines.due(seconds(at))).into();
        assert_eq!(due, [false, false, true, false, false, true, false, true]);
        assert!(!Lines::new(false, seconds(0)).due(seconds(90)), "nobody wants them");
    }

    #[test]
    fn what_is_left_follows_from_the_share() {
        let minute = Duration::from_secs(60);
        assert_eq!(left(minute, 0.25).as_deref(), Some("at most 3:00 left"));
        assert_eq!(left(minute, 1.0).as_deref(), Some("at most 0:00 left"));
        assert_eq!(left(minute, 0.01).as_deref(), Some("at most 1:39:00 left"));
        assert_eq!(left(minute, 0.0), None);
    }
}
