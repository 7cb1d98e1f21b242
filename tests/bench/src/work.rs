//! The work that is timed: steps of [`CHILDREN`] intervals each, as many as candle's SmolLM2 enters for a token.

use std::hint::black_box;
use tracing::{Span, trace_span};

/// Intervals inside a step.
pub const CHILDREN: usize = 400;
/// Steps in a burst. A ring of the default size holds several bursts, so nothing is dropped.
pub const STEPS: usize = 10;
/// Enter/exit pairs in a burst, the steps' own included.
pub const PAIRS: usize = STEPS * (CHILDREN + 1);

/// How spans are used.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One span, entered again and again.
    Reenter,
    /// Four hundred spans made beforehand and entered in turn: what candle does.
    Many,
    /// A span made, entered, left and closed each time: what `#[instrument]` does.
    New,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Reenter, Mode::Many, Mode::New];

    /// The word used in results.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Reenter => "reenter",
            Mode::Many => "many",
            Mode::New => "new",
        }
    }
}

/// Spans made under the subscriber of the case.
#[derive(Debug)]
pub struct Spans {
    mode: Mode,
    step: Span,
    spans: Vec<Span>,
}

impl Spans {
    /// Makes the spans; the subscriber must be installed already, because a span made without one stays disabled.
    pub fn new(mode: Mode) -> Self {
        let n = match mode {
            Mode::Many => CHILDREN,
            Mode::Reenter | Mode::New => 1,
        };
        Self { mode, step: trace_span!("step"), spans: (0..n).map(|_| trace_span!("linear")).collect() }
    }

    /// One burst; `inside` runs in every interval.
    #[inline(never)]
    pub fn burst(&self, inside: impl Fn()) {
        let children: Vec<&Span> = match self.mode {
            Mode::Reenter => vec![&self.spans[0]; CHILDREN],
            Mode::Many => self.spans.iter().collect(),
            Mode::New => Vec::new(),
        };
        for _ in 0..STEPS {
            let _step = self.step.enter();
            if self.mode == Mode::New {
                for _ in 0..CHILDREN {
                    let span = trace_span!("linear");
                    let _enter = span.enter();
                    inside();
                    black_box(&span);
                }
            } else {
                for span in &children {
                    let _enter = span.enter();
                    inside();
                    black_box(span);
                }
            }
        }
    }
}
