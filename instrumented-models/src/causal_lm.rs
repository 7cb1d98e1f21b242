//! What the generation loop needs from a model.

use crate::sampling::{self, Sampler};
use candle_core::{Device, Result, Tensor, bail};

/// A language model that continues texts.
pub trait CausalLm {
    /// Logits of the last position, (batch, vocabulary) in f32, for `tokens` (batch, new tokens) of type u32, the first
    /// of which is at `position`. Position 0 starts a new text, a later one continues what was passed before.
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor>;

    /// Passes the tokens of `texts` from `position` on, equally many of each, and chooses the next token of each.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the logits of a text are no numbers.
    fn advance(&mut self, texts: &[Vec<u32>], position: usize, sampler: &Sampler) -> Result<Vec<u32>> {
        let device = self.device().clone();
        sampling::pass(|tokens| self.forward(tokens, position), &device, sampler, texts, position)
    }

    /// Logits of every one of `tokens` (1, new tokens), (new tokens, vocabulary) in f32, where
    /// [`forward`](Self::forward) has those of the last: by them tokens are checked that somebody guessed. The next
    /// pass may begin within these tokens, and replaces those from there on. `None` from a model that has no such pass,
    /// or cannot go back.
    fn forward_each(&mut self, tokens: &Tensor, position: usize) -> Option<Result<Tensor>> {
        let _ = (tokens, position);
        None
    }

    /// Whether [`forward_each`](Self::forward_each) has logits: not, unless a model says so.
    fn checks_tokens(&self) -> bool {
        false
    }

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
