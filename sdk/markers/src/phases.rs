//! Steps and their phases.

use crate::switch;
use crate::{Entered, Tokens};

/// The prompt's phase.
///
/// A phase is a *step* of the run unless it stands inside another phase. It lasts as long as the guard, on one thread:
/// a step that is computed by a future is marked where it computes, not around the future, whose every poll would be a
/// step. If prompts are padded to one length, state how many tokens are real ones right after this, as shown in
/// [`decode`].
#[must_use = "the phase ends when the guard is dropped"]
pub fn prefill(tokens: Tokens) -> Entered {
    Entered::new(switch::prefill(tokens))
}

/// One decoding step: one new token for each sequence.
///
/// The tokens are what the step passes through the model. If sequences of the batch have ended, state right after this
/// how many it still works for, because figures such as tokens a second count only those:
/// `annotate(Annotation::new().new_tokens(1).sequences(1).context_sum(128))` of candlescope, where one of four goes on.
#[must_use = "the phase ends when the guard is dropped"]
pub fn decode(tokens: Tokens) -> Entered {
    Entered::new(switch::decode(tokens))
}

/// Choosing the next token. Best placed inside the `prefill` or `decode` that it belongs to, so that one step is one
/// token.
#[must_use = "the phase ends when the guard is dropped"]
pub fn sample() -> Entered {
    Entered::new(switch::sample())
}

/// A forward pass that generates nothing: of an embedding model, or of the encoder that a decoder reads.
#[must_use = "the phase ends when the guard is dropped"]
pub fn encode(tokens: Tokens) -> Entered {
    Entered::new(switch::encode(tokens))
}

/// A pass of images through a model's vision tower, before the prompt that they are part of. Tokens are patches.
///
/// ```
/// use candlescope_markers::{self as llm, Tokens};
/// {
///     let _step = llm::vision(Tokens::new(14 * 14));
///     // let image = model.encode_image(&pixels)?;
/// }
/// let _step = llm::prefill(Tokens::new(49 + 12).context(49 + 12)); // four patches become one token
/// // model.forward(...)
/// ```
#[must_use = "the phase ends when the guard is dropped"]
pub fn vision(tokens: Tokens) -> Entered {
    Entered::new(switch::vision(tokens))
}

/// A step that is of no phase, such as one pass for prompts and for sequences that generate, where neither prevails.
///
/// It is recorded as a step with its tokens. Figures that tell phases apart (tokens a second while decoding, time of
/// prefills) leave it out, so call a step by the phase that most of its tokens have, if there is one. Do not put phases
/// inside: each of them is a step itself.
#[must_use = "the step ends when the guard is dropped"]
pub fn step(tokens: Tokens) -> Entered {
    Entered::new(switch::step(tokens))
}
