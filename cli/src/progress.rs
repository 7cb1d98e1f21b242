//! Progress on a terminal; nothing if standard error is not one.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A progress bar, or nothing.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether it is wanted and there is no terminal for it.
    #[cfg(feature = "lab")]
    in_lines: bool,
}

impl Progress {
    pub(crate) fn new(wanted: bool) -> Self {
        let bar = ProgressBar::no_length();
        let on_terminal = std::io::stderr().is_terminal();
        if !wanted || !on_terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self {
            bar,
            #[cfg(feature = "lab")]
            in_lines: wanted && !on_terminal,
        }
    }

    /// Whether lines stand in for the bar.
    #[cfg(feature = "lab")]
    pub(crate) fn in_lines(&self) -> bool {
        self.in_lines
    }

    /// Something of unknown length.
    pub(crate) fn wait(&self, what: &str) {
        self.bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        self.bar.set_message(what.to_string());
        // A hidden bar does not need the thread that this starts, and starting it would panic if no thread is
        // available.
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(Duration::from_millis(120));
        }
    }

    /// `tokens` tokens to come.
    pub(crate) fn count(&self, tokens: u64) {
        // A steady tick is a thread of its own: it would take CPU time from the model.
        self.bar.disable_steady_tick();
        self.bar.set_style(
            ProgressStyle::with_template("{msg:<14} {wide_bar} {pos}/{len} tokens {per_sec} eta {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_length(tokens);
        self.bar.set_position(0);
        self.bar.reset();
    }

    /// Something of which a share is known: [`at`](Self::at) takes thousandths of it.
    pub(crate) fn share(&self) {
        self.bar.disable_steady_tick();
        self.bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_length(1000);
    }

    pub(crate) fn message(&self, what: String) {
        self.bar.set_message(what);
    }

    pub(crate) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Jumps to `position`: a generation may end early.
    pub(crate) fn at(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Prints something while the bar is out of the way.
    #[cfg(feature = "lab")]
    pub(crate) fn aside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
