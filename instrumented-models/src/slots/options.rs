//! What a decoder of slots is asked for, and what it says of its steps.

use serde::Serialize;

/// What a [`SlotDecoder`](super::SlotDecoder) is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotOptions {
    /// Sequences that are held at once.
    pub slots: usize,
    /// Most tokens of a sequence; the model's own context if `None`.
    pub context: Option<usize>,
    /// Capture steps as CUDA graphs and replay them, where the device can.
    pub cuda_graph: bool,
}

impl Default for SlotOptions {
    fn default() -> Self {
        Self { slots: 1, context: None, cuda_graph: true }
    }
}

/// How a step ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ran {
    /// As one launch of the graph that was captured for so many slots and so much context.
    Replay {
        /// Slots.
        slots: usize,
        /// Positions.
        context: usize,
    },
    /// Call by call.
    Eager(EagerCause),
}

/// Why a step ran call by call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EagerCause {
    /// Graphs were not asked for.
    NotAsked,
    /// The device, or this build, has no CUDA graphs.
    NoDevice,
    /// The first steps of a shape: they load kernels and fill caches that a capture needs.
    WarmUp,
    /// The device's stream cannot be captured: a default one, which is another on each thread, or one whose events are tracked.
    Stream,
    /// A capture of this shape failed, or a graph of it could not be launched.
    CaptureFailed,
    /// Weights are quantised: candle frees memory that their products' kernels use while a graph would still point at it.
    Quantized,
    /// The model does not say that a step always uses the same memory.
    Model,
}

impl EagerCause {
    /// For a message.
    pub(super) const fn explained(self) -> &'static str {
        match self {
            Self::NotAsked => "they were not asked for",
            Self::NoDevice => "the model is on no CUDA device, or this build has no CUDA (feature `cuda`)",
            Self::WarmUp => "the first steps of a shape do",
            Self::Stream => "the device's stream cannot be captured; `slots::capturable_device` makes one whose can",
            Self::CaptureFailed => "a capture failed",
            Self::Quantized => {
                "its weights are quantised, and candle frees memory that a graph of them would still use; load them widened (`--dequantize`)"
            }
            Self::Model => "the model does not say that its steps always use the same memory",
        }
    }

    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAsked => "not_asked",
            Self::NoDevice => "no_device",
            Self::WarmUp => "warm_up",
            Self::Stream => "stream",
            Self::CaptureFailed => "capture_failed",
            Self::Quantized => "quantized",
            Self::Model => "model",
        }
    }
}
