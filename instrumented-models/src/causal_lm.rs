//! What the generation loop needs from a model.

use crate::layers::{Place, SlotPlaces, SlotStep};
use crate::slots::{EagerCause, SlotDecoder};
use candle_core::{Device, Result, Tensor, bail};
use candlescope_work::operation::Cost;
use std::ops::Range;

/// A language model that continues texts.
pub trait CausalLm {
    /// Logits of the last position, (batch, vocabulary) in f32, for `tokens` (batch, new tokens) of type u32, the first
    /// of which is at `position`. Position 0 starts a new text, a later one continues what was passed before.
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor>;

    /// Forgets everything passed so far.
    fn reset(&mut self);

    /// Announces that up to `tokens` tokens will be passed, so that memory can be allocated once.
    fn reserve(&mut self, tokens: usize) {
        let _ = tokens;
    }

    /// Whether several prompts of several tokens can be passed at once.
    fn takes_batches_of_prompts(&self) -> bool {
        true
    }

    /// The slots of a [decoder of slots](crate::slots::SlotDecoder), which can do nothing afterwards; `None` for any other
    /// model.
    fn take_slots(&mut self) -> Option<SlotDecoder> {
        None
    }

    /// Longest context in tokens.
    fn max_context(&self) -> usize;

    /// Entries of the vocabulary.
    fn vocab_size(&self) -> usize;

    /// The device that the model is on.
    fn device(&self) -> &Device;
}

/// What a model shows of its inside when it is asked to.
pub trait Inspect: CausalLm {
    /// Logits of every position, (batch, tokens, vocabulary) in f32, for `tokens` (batch, tokens) of a new text: those
    /// that a text of a known continuation is judged by (teacher forcing). `see` gets each block's number and its output
    /// (batch, tokens, features), in order.
    ///
    /// # Errors
    /// As [`forward`](CausalLm::forward), and those of `see`.
    fn inspect(&mut self, tokens: &Tensor, see: &mut See<'_>) -> Result<Tensor>;

    /// Bytes allocated for keys and values.
    fn kv_bytes(&self) -> u64;
}

/// A model that holds several sequences, each in a slot of its own, and advances them together by a step whose shape does
/// not depend on where they are.
pub trait SlotModel: CausalLm + Send {
    /// Allocates keys and values of `slots` sequences of up to `context` tokens, and whatever else a step needs.
    ///
    /// # Errors
    /// If the device has not enough memory, or the model has no such context.
    fn hold(&mut self, slots: usize, context: usize) -> Result<()>;

    /// Logits of the last position, (batch, vocabulary) in f32, for `tokens` (batch, new tokens) at their place.
    ///
    /// # Errors
    /// If the place lies outside of what is [held](Self::hold), or an operation fails.
    fn forward_at(&mut self, tokens: &Tensor, place: Place<'_>) -> Result<Tensor>;

    /// What the layers share in a step of slots.
    ///
    /// # Errors
    /// If an operation fails.
    fn slot_step(&self, places: SlotPlaces) -> Result<SlotStep>;

    /// Makes zeros of the keys and values of slots from position `from` up to `to`.
    ///
    /// # Errors
    /// If there is no such slot or position.
    fn erase(&mut self, slots: Range<usize>, from: usize, to: usize) -> Result<()>;

    /// Bytes of keys and values of one token.
    fn kv_bytes_per_token(&self) -> u64;

    /// Analytic cost of a step of `rows` slots that attends to `context` positions: what its layers annotate where they are
    /// entered. Of a replay nothing else tells it.
    fn step_cost(&self, rows: u64, context: u64) -> Cost;

    /// Whether its steps may be captured as a graph, which reads and writes the same addresses ever after.
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
    /// They may not.
    pub const NO: Self = Self { cause: Some(EagerCause::Model) };

    /// A step uses tensors only that live as long as the model, and stay where they are once memory for slots is held.
    /// Products of quantised weights do not: candle keeps their scratch memory for all models of a device, and frees it
    /// where more is wanted.
    pub(crate) const fn unless_quantized(is_quantized: bool) -> Self {
        Self { cause: if is_quantized { Some(EagerCause::Quantized) } else { None } }
    }
}

/// What is called with each block's number and its output.
pub type See<'a> = dyn FnMut(usize, &Tensor) -> Result<()> + 'a;

/// The context after `tokens` (batch, new tokens) from `position` on. Fails if a model has no room for so many.
pub(crate) fn context_after(tokens: &Tensor, position: usize, most: usize) -> Result<usize> {
    let context = position.saturating_add(tokens.dim(1)?);
    if context > most {
        bail!("{context} tokens exceed the context of {most} tokens")
    }
    Ok(context)
}
