//! An application that enters intervals at a steady rate, a step at a time.

use crate::work::CHILDREN;
use candlescope_core::{Annotation, DType, annotate};
use std::time::{Duration, Instant};
use tracing::{Span, trace_span};

/// Intervals in a step: a step, eight blocks, and layers in them.
pub const STEP: u64 = 1 + BLOCKS as u64 + (BLOCKS * LAYERS) as u64;
const BLOCKS: usize = 8;
const LAYERS: usize = CHILDREN / BLOCKS - 1;

/// The spans of a model, made once.
#[derive(Debug)]
pub struct Application {
    step: Span,
    blocks: Vec<(Span, Vec<Span>)>,
    annotated: bool,
}

/// The result of a paced run.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// Intervals entered and left.
    pub intervals: u64,
    /// Time from the first step's beginning to the last one's end.
    pub elapsed: Duration,
}

impl Paced {
    /// Intervals a second.
    pub fn rate(&self) -> f64 {
        self.intervals as f64 / self.elapsed.as_secs_f64()
    }
}

impl Application {
    /// Makes the spans under the current subscriber. `annotated`: every layer says its FLOPs, bytes, type and shape, as
    /// the wrapped layers do; otherwise they have no fields, like candle's own.
    pub fn new(annotated: bool) -> Self {
        let blocks =
            (0..BLOCKS).map(|_| (trace_span!("block"), (0..LAYERS).map(|_| trace_span!("linear")).collect())).collect();
        Self { step: trace_span!("model"), blocks, annotated }
    }

    /// One step of [`STEP`] intervals.
    pub fn step(&self) {
        let _step = self.step.enter();
        for (block, layers) in &self.blocks {
            let _block = block.enter();
            for layer in layers {
                let _layer = layer.enter();
                if self.annotated {
                    annotate(Annotation::new().flops(1_990_656).bytes(1_003_392).dtype(DType::F32).shape(&[1, 1, 576]));
                }
            }
        }
    }

    /// Steps at `rate` intervals a second for `duration`; after a delay it catches up. `each` runs after every step.
    pub fn run(&self, rate: f64, duration: Duration, mut each: impl FnMut()) -> Paced {
        let between = Duration::from_secs_f64(STEP as f64 / rate);
        let start = Instant::now();
        let mut steps = 0u32;
        loop {
            self.step();
            each();
            steps += 1;
            let due = between * steps;
            if due >= duration {
                return Paced { intervals: u64::from(steps) * STEP, elapsed: start.elapsed() };
            }
            // Waking up takes about fifty microseconds, so short waits are busy.
            loop {
                let left = due.saturating_sub(start.elapsed());
                if left.is_zero() {
                    break;
                } else if left > Duration::from_micros(200) {
                    std::thread::sleep(left - Duration::from_micros(100));
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }
}
