//! What the generation loop needs from a model that reads a source before it writes.

use crate::info::Dimensions;
use candle_core::{Device, Result, Tensor};

/// What an encoder reads, of a batch of equal lengths.
#[derive(Debug, Clone)]
pub enum Source {
    /// Tokens (batch, tokens) of type u32.
    Text(Tensor),
    /// Sound as a mel spectrum (batch, bins, frames) in f32, two frames for each position of the encoder.
    Sound(Tensor),
}

impl Source {
    /// Sequences, and positions of the encoder that each takes.
    ///
    /// # Errors
    /// If the tensor has other dimensions than it says.
    pub fn size(&self) -> Result<(usize, usize)> {
        match self {
            Source::Text(tokens) => tokens.dims2(),
            Source::Sound(mel) => mel.dims3().map(|(batch, _, frames)| (batch, frames.div_ceil(2))),
        }
    }
}

/// A model that encodes a source as a whole and writes a text about it, token by token.
pub trait EncoderDecoder {
    /// Encodes `source` for a new text, and forgets everything before.
    ///
    /// # Errors
    /// If the source is of a kind that the model does not read, or as candle's.
    fn encode(&mut self, source: &Source) -> Result<()>;

    /// Logits of the last position, (batch, vocabulary) in f32, for `tokens` (batch, new tokens) of type u32, the first
    /// of which is at `position` of the text. Position 0 starts a new text about the same source.
    ///
    /// # Errors
    /// If nothing was encoded, if `position` is not 0 though [`keeps_keys`](Self::keeps_keys) is false, or as candle's.
    fn decode(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor>;

    /// Forgets source and text.
    fn reset(&mut self);

    /// Whether keys and values of the text are kept; otherwise each step passes all of it.
    fn keeps_keys(&self) -> bool;

    /// Bands of the spectrum, if the model reads sound.
    fn mel_bins(&self) -> Option<usize> {
        None
    }

    /// Dimensions.
    fn dimensions(&self) -> &Dimensions;

    /// The device that the model is on.
    fn device(&self) -> &Device;
}
