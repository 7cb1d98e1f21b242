//! What a decoder of slots is asked for, and what it says of its steps.

use crate::slot_model::EagerCause;
use candlescope_core::Ran;
use serde::Serialize;

/// What a [`SlotDecoder`](super::SlotDecoder) is made for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotOptions {
    /// Sequences that are held at once; the most of them, if [`memory`](Self::memory) is given.
    pub slots: usize,
    /// Most tokens of a sequence; the model's own context if `None`.
    pub context: Option<usize>,
    /// As many slots as fit if so much of the device's memory may be in use with them, above 0 and at most 1, by this program
    /// and others: 0.9 leaves a tenth for activations and logits. `None` allocates all, or fails.
    pub memory: Option<f64>,
    /// Models that take as many slots each from the same memory, each with weights of its own: this one, and those that
    /// load after it.
    pub models: usize,
    /// Capture steps as CUDA graphs and replay them, where the device can.
    pub cuda_graph: bool,
}

impl Default for SlotOptions {
    fn default() -> Self {
        Self { slots: 1, context: None, memory: None, models: 1, cuda_graph: true }
    }
}

/// How a step ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SlotStepRun {
    /// As one launch of the graph that was captured for so many slots and so much context.
    Replay {
        /// Slots of the graph, used or not.
        slots: usize,
        /// Positions of the KV cache that the graph reads.
        context: usize,
    },
    /// Call by call, each kernel launched by itself, and why no graph was replayed.
    Eager(EagerCause),
}

impl From<SlotStepRun> for Ran {
    fn from(ran: SlotStepRun) -> Self {
        match ran {
            SlotStepRun::Replay { .. } => Self::Replay,
            SlotStepRun::Eager(cause) => match cause {
                EagerCause::NotAsked => Self::NotAsked,
                EagerCause::NoDevice => Self::NoDevice,
                EagerCause::WarmUp => Self::WarmUp,
                EagerCause::Stream => Self::Stream,
                EagerCause::CaptureFailed => Self::CaptureFailed,
                EagerCause::Quantized => Self::Quantized,
                EagerCause::Model => Self::Model,
            },
        }
    }
}
