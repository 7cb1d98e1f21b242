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
pub enum EagerCause {
    /// Graphs were not asked for.
    NotAsked,
    /// The device, or this build, has no CUDA graphs.
    NoDevice,
    /// The first steps of a shape: they load kernels and fill caches that a capture needs.
    WarmUp,
    /// The device's stream cannot be captured: the legacy default stream, or one whose events are tracked.
    Stream,
    /// A capture of this shape failed.
    CaptureFailed,
}

impl EagerCause {
    /// As in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAsked => "not_asked",
            Self::NoDevice => "no_device",
            Self::WarmUp => "warm_up",
            Self::Stream => "stream",
            Self::CaptureFailed => "capture_failed",
        }
    }
}
