//! How far a study is, on a terminal; nothing if standard error is not one.

use crate::output::printable;
use candlescope_lab::method::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Steps of the bar for one round.
const STEPS: f64 = 1_000.0;

/// A bar over all rounds of a study, of which this process measures one.
pub(super) struct Bar {
    bar: ProgressBar,
    rounds: f64,
    round: f64,
    /// Time that the study took before this process.
    before: Duration,
    began: Instant,
}

impl Bar {
    /// A bar for round `round` of `rounds`, which begins `before` after the study did.
    pub(super) fn new(wanted: bool, round: u32, rounds: u32, before: Duration) -> Self {
        let bar = ProgressBar::new((f64::from(rounds) * STEPS) as u64);
        if !wanted || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        // No steady tick: that is a thread, which would take time from what is measured.
        let style = ProgressStyle::with_template("{msg:<48} {wide_bar} {percent}% {prefix}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, rounds: rounds.into(), round: round.into(), before, began: Instant::now() }
    }

    pub(super) fn loading(&self, what: &str) {
        self.bar.set_message(printable(&format!("loading {what}")).into_owned());
        self.bar.set_position((self.round * STEPS) as u64);
    }

    pub(super) fn show(&self, event: &Event<'_>) {
        match event {
            Event::WarmedUp { case, .. } => self.bar.set_message(format!("warm-up {}", case.key())),
            Event::Sampled { sample, share } => self.at(&sample.case.key(), *share),
            Event::Stopped { stopped, share } => self.at(&stopped.case.key(), *share),
            _ => {}
        }
    }

    fn at(&self, case: &str, share: f64) {
        let done = (self.round + share) / self.rounds;
        self.bar.set_position((done * self.rounds * STEPS) as u64);
        self.bar.set_message(case.to_string());
        let left = (self.before + self.began.elapsed()).as_secs_f64() * (1.0 / done.max(1e-3) - 1.0);
        self.bar.set_prefix(format!("at most {:.0}:{:02.0} left", (left / 60.0).floor(), left % 60.0));
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
