//! How far a study is: a bar on a terminal, and a line now and then if standard error is not one.

use super::pace::{Lines, left};
use super::still::StillWatch;
use crate::output::{note, printable};
use candlescope_lab::method::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Steps of the bar for one round.
const STEPS: f64 = 1_000.0;

/// A bar over all rounds of a study, of which this process measures one.
pub(super) struct Bar {
    bar: ProgressBar,
    rounds: f64,
    round: f64,
    lines: Lines,
    still: StillWatch,
}

impl Bar {
    /// A bar for round `round` of `rounds`, which begins `before` after the study did.
    pub(super) fn new(wanted: bool, round: u32, rounds: u32, before: Duration) -> Self {
        let bar = ProgressBar::new((f64::from(rounds) * STEPS) as u64);
        let on_terminal = std::io::stderr().is_terminal();
        if !wanted || !on_terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        // No steady tick: that thread wakes up many times a second, which takes time from what is measured.
        let style = ProgressStyle::with_template("{msg:<48} {wide_bar} {percent}% {prefix}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lines = Lines::new(wanted && !on_terminal, before);
        let still = StillWatch::new(wanted.then(|| (bar.clone(), on_terminal)));
        Self { bar, rounds: rounds.into(), round: round.into(), lines, still }
    }

    pub(super) fn loading(&self, what: &str) {
        self.bar.set_message(printable(&format!("loading {what}")).into_owned());
        self.bar.set_position((self.round * STEPS) as u64);
    }

    pub(super) fn show(&self, event: &Event<'_>) {
        match event {
            Event::Begins { case, first } => self.still.begins(case, *first),
            Event::WarmedUp { case, took, .. } => {
                self.still.ended();
                self.bar.set_message(format!("warm-up {}", case.key()));
                self.lines.tell(|| format!("{} warms up, {:.1} s a repetition", case.key(), took.as_secs_f64()));
            }
            Event::Sampled { sample, share } => {
                self.still.ended();
                self.at(&sample.case.key(), *share);
            }
            Event::Stopped { stopped, share } => {
                self.still.ended();
                self.at(&stopped.case.key(), *share);
            }
            _ => {}
        }
    }

    fn at(&self, case: &str, share: f64) {
        let done = (self.round + share) / self.rounds;
        self.bar.set_position((done * self.rounds * STEPS) as u64);
        self.bar.set_message(case.to_string());
        let left = left(self.lines.elapsed(), done).unwrap_or_default();
        self.lines.tell(|| match left.as_str() {
            "" => format!("{:.0} %: {case}", done * 100.0),
            left => format!("{:.0} %, {left}: {case}", done * 100.0),
        });
        self.bar.set_prefix(left);
    }

    /// Prints a line that stays, with the bar out of the way.
    pub(super) fn say(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    pub(super) fn clear(&self) {
        self.still.end();
        self.bar.finish_and_clear();
    }
}
