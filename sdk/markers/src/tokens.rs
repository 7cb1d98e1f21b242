//! The tokens of a step.

/// The tokens that a step passes through the model.
///
/// ```
/// use candlescope_markers::Tokens;
/// let one_sequence = Tokens::new(1).context(128); // one new token, which is the 128th
/// let four = Tokens::new(4).context(128).batch(4); // one for each of four sequences
/// # let _ = (one_sequence, four);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Tokens {
    pub(crate) new: usize,
    pub(crate) context: Option<usize>,
    pub(crate) batch: usize,
}

impl Tokens {
    /// `tokens` new tokens, over all sequences together; one sequence, unless [`batch`](Tokens::batch) says otherwise.
    pub const fn new(tokens: usize) -> Self {
        Self { new: tokens, context: None, batch: 1 }
    }

    /// Tokens that a sequence has after the step, including the new ones. Unknown by default.
    pub const fn context(self, tokens: usize) -> Self {
        Self { context: Some(tokens), ..self }
    }

    /// Sequences that the step processes at once; default 1.
    pub const fn batch(self, sequences: usize) -> Self {
        Self { batch: sequences, ..self }
    }
}
