//! A model that looks at an image.

use super::{PromptError, PromptTooLong, random_tokens};
use crate::candle_models::CandlePaddleOcrVl;
use crate::image::{Image, ImageError, Picture};
use crate::info::ModelInfo;
use crate::tokenizer::Tokenizer;

/// A model that looks at an image and writes a text about it, with everything that this needs.
pub struct LoadedVision {
    /// PaddleOCR-VL, of our layers or as candle-transformers' own model, as `info` says.
    pub model: CandlePaddleOcrVl,
    /// Its tokenizer, if it has one.
    pub tokenizer: Option<Tokenizer>,
    /// Facts about it for `run.json`; its layers are those of the decoder, not of the tower.
    pub info: ModelInfo,
    no_tokenizer: String,
}

impl std::fmt::Debug for LoadedVision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedVision").field("info", &self.info).finish_non_exhaustive()
    }
}

impl LoadedVision {
    pub(super) const fn new(
        model: CandlePaddleOcrVl,
        tokenizer: Option<Tokenizer>,
        info: ModelInfo,
        no_tokenizer: String,
    ) -> Self {
        Self { model, tokenizer, info, no_tokenizer }
    }

    /// A picture scaled to a size that the model takes.
    ///
    /// # Errors
    /// As [`Image::scaled`].
    pub fn image(&self, picture: &Picture) -> Result<Image, ImageError> {
        Image::scaled(picture, self.model.frame())
    }

    /// Seeded random pixels: the smallest square that the model takes.
    pub fn random_image(&self, seed: u64) -> Image {
        Image::random(self.model.frame(), seed)
    }

    /// Tokens of a text about an image that `image` tokens stand for, in PaddleOCR-VL's form of a conversation.
    ///
    /// # Errors
    /// If the text is empty, or there is no tokenizer.
    pub fn encode_prompt(&self, text: &str, image: usize) -> Result<Vec<u32>, PromptError> {
        if text.is_empty() {
            return Err(PromptError::Empty);
        }
        let tokenizer = self.tokenizer.as_ref().ok_or_else(|| PromptError::NoTokenizer {
            model: self.info.name.clone(),
            reason: self.no_tokenizer.clone(),
        })?;
        let mut tokens: Vec<u32> = tokenizer.token_id("<|begin_of_sentence|>").into_iter().collect();
        tokens.extend(tokenizer.encode("User: ", false)?);
        tokens.extend(self.around(image));
        tokens.extend(tokenizer.encode(text, false)?);
        tokens.extend(tokenizer.encode("\nAssistant: ", false)?);
        Ok(tokens)
    }

    /// As [`encode_prompt`](Self::encode_prompt), of `count` seeded random tokens in place of the text, none of which
    /// has a meaning of its own.
    ///
    /// # Errors
    /// If so many do not fit the model's context, before anything is allocated.
    pub fn random_prompt(&self, count: usize, image: usize, seed: u64) -> Result<Vec<u32>, PromptTooLong> {
        let dimensions = self.model.dimensions();
        PromptTooLong::check(count.saturating_add(image).saturating_add(2), dimensions.positions)?;
        let special = self.model.special();
        let mut end = dimensions.eos.clone();
        end.extend([special.image, special.video, special.start, special.end]);
        let mut tokens: Vec<u32> = self.around(image).collect();
        tokens.extend(random_tokens(count, dimensions.vocab_size, &end, seed));
        Ok(tokens)
    }

    /// The image's place in a prompt.
    fn around(&self, image: usize) -> impl Iterator<Item = u32> {
        let special = self.model.special();
        std::iter::once(special.start)
            .chain(std::iter::repeat_n(special.image, image))
            .chain(std::iter::once(special.end))
    }
}
