//! What decoding in slots needs from a model, and why it may run call by call.

use crate::causal_lm::CausalLm;
use crate::layers::{Place, SlotPlaces, SlotStep};
use candle_core::{Result, Tensor};
use candlescope_work::operation::Cost;
use serde::Serialize;
use std::ops::Range;

/// A model that holds several sequences, each in a slot of its own, and advances them together by a step whose shape does
/// not depend on where they are.
pub trait SlotModel: CausalLm + Send {
    /// Allocates keys and values of `slots` sequences of up to `context` tokens, and whatever else a step needs.
    ///
    /// # Errors
    /// If the device has not enough memory, or the model has no such context.
    #[doc(hidden)]
    fn hold(&mut self, slots: usize, context: usize) -> Result<()>;

    /// Logits of the last position, (batch, vocabulary) in f32, for `tokens` (batch, new tokens) at their place.
    ///
    /// # Errors
    /// If the place lies outside of what is [held](Self::hold), or an operation fails.
    #[doc(hidden)]
    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor>;

    /// What the layers share in a step of slots.
    ///
    /// # Errors
    /// If an operation fails.
    #[doc(hidden)]
    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep>;

    /// Makes zeros of the keys and values of slots from position `from` up to `to`.
    ///
    /// # Errors
    /// If there is no such slot or position.
    #[doc(hidden)]
    fn erase(&mut self, slots: Range<usize>, from: usize, to: usize) -> Result<()>;

    /// Exchanges what two slots hold, of each its first so many positions: (slot, positions). The memory of slots stays
    /// where it is, because graphs read and write it.
    ///
    /// # Errors
    /// If there is no such slot or position, or no memory for a copy of one layer's.
    #[doc(hidden)]
    fn exchange(&mut self, a: (usize, usize), b: (usize, usize)) -> Result<()>;

    /// Bytes of keys and values of one token.
    #[doc(hidden)]
    fn kv_bytes_per_token(&self) -> u64;

    /// The same with what reading them takes of memory in a step: more than they do where they are held in fewer bits.
    #[doc(hidden)]
    fn kv_bytes_in_a_step(&self) -> u64 {
        self.kv_bytes_per_token()
    }

    /// Analytic cost of a step of `rows` slots that attends to `context` positions: what its layers annotate where they are
    /// entered. Of a replay nothing else tells it.
    #[doc(hidden)]
    fn step_cost(&self, rows: u64, context: u64) -> Cost;

    /// Whether its steps may be captured as a graph, which reads and writes the same addresses ever after.
    #[doc(hidden)]
    fn capturable(&self) -> Capturable {
        Capturable::NO
    }
}

/// Whether a model's steps may be captured. Only a model of this crate can say that nothing moves or is freed that a step
/// uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capturable {
    /// Why not.
    pub(crate) cause: Option<EagerCause>,
}

impl Capturable {
    /// They may not: the model does not say that a step always uses the same memory.
    pub const NO: Self = Self { cause: Some(EagerCause::Model) };

    /// A step uses tensors only that live as long as the model, and stay where they are once memory for slots is held.
    /// Products of quantised weights do not: candle keeps their scratch memory for all models of a device, and frees it
    /// where more is wanted.
    pub(crate) const fn unless_quantized(is_quantized: bool) -> Self {
        Self { cause: if is_quantized { Some(EagerCause::Quantized) } else { None } }
    }
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
    pub(crate) const fn explained(self) -> &'static str {
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
}
