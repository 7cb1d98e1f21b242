//! When requests are to be sent: a thread of its own that wakes up at each planned arrival, because the runtime's
//! timers are good to a millisecond only. Between arrivals it sends beats, which show how late the sender gets to run.

use crate::clock::Clock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc::Sender;

/// Time between beats.
const BEAT_NS: u64 = 10_000_000;

/// What the pacer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tick {
    /// A request is to be sent now; it was planned for this time.
    Arrival(u64),
    /// Planned for this time.
    Beat(u64),
}

/// Arrivals of a Poisson process: gaps are exponentially distributed and independent.
pub(crate) struct Arrivals {
    random: StdRng,
    rate: f64,
    next: f64,
}

impl Arrivals {
    /// `rate` a second from `start`, in nanoseconds.
    pub(crate) fn new(rate: f64, seed: u64, start: u64) -> Self {
        let mut arrivals = Self { random: StdRng::seed_from_u64(seed), rate, next: start as f64 };
        arrivals.advance();
        arrivals
    }

    fn advance(&mut self) {
        // 1 − u is never zero.
        let u: f64 = self.random.random();
        self.next += -(1.0 - u).ln() / self.rate * 1e9;
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = self.next as u64;
        self.advance();
        Some(at)
    }
}

/// Starts the thread. It ends when nobody listens any more.
pub(crate) fn start(clock: Clock, arrivals: Option<Arrivals>, ticks: Sender<Tick>) -> std::io::Result<()> {
    let mut arrivals = arrivals.map(Iterator::peekable);
    let pace = move || {
        let mut beat = clock.now() + BEAT_NS;
        loop {
            let arrival = arrivals.as_mut().and_then(|a| a.peek().copied()).unwrap_or(u64::MAX);
            let at = arrival.min(beat);
            if let Some(left) = at.checked_sub(clock.now()).filter(|left| *left > 0) {
                std::thread::sleep(std::time::Duration::from_nanos(left));
            }
            let tick = if arrival <= beat {
                arrivals.as_mut().map(Iterator::next);
                Tick::Arrival(arrival)
            } else {
                // Beats that were slept through are left out.
                beat = (beat + BEAT_NS).max(clock.now());
                Tick::Beat(at)
            };
            if ticks.blocking_send(tick).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("cs-load-pacer".into()).spawn(pace).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_those_of_their_rate_and_the_same_for_a_seed() {
        let take = |seed, n| Arrivals::new(50.0, seed, 7).take(n).collect::<Vec<_>>();
        assert_eq!(take(1, 100), take(1, 100));
        assert_ne!(take(1, 100), take(2, 100));
        let times = take(3, 20_000);
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e9).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // An exponential distribution's deviation is its mean; both are known to 1 % here.
        assert!((mean - 0.02).abs() < 0.001 && (deviation - 0.02).abs() < 0.001, "{mean} {deviation}");
    }
}
