//! Converts text to tokens and back, with streaming that never emits half a character.

mod limits;

use crate::candle_message;
use crate::config::{BYTES_BOS, BYTES_VOCAB};
use crate::untrusted::{caught, read_text};
use crate::weights::gguf::GgufFile;
use candle_core::quantized::tokenizer::TokenizerFromGguf;
use std::path::{Path, PathBuf};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;

/// Largest `tokenizer.json`, in bytes. One of 256,000 tokens has some 33 MB.
const MAX_FILE: u64 = 64 << 20;

/// Tokens that may wait for the rest of a character before they are emitted as they are.
const MAX_PENDING: usize = 16;

/// Why text and tokens could not be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum TokenizerError {
    /// `tokenizer.json` cannot be read.
    #[error("cannot read the tokenizer {path}: {reason}; put the model's own tokenizer.json there", path = path.display())]
    File { path: PathBuf, reason: String },
    /// The GGUF's tokenizer cannot be built.
    #[error(
        "cannot build a tokenizer from the metadata of {path}: {reason}; put the model's tokenizer.json beside the file, \
         or give a number of prompt tokens in place of a text",
        path = path.display()
    )]
    Gguf { path: PathBuf, reason: String },
    /// The library failed on a text or on tokens.
    #[error("the tokenizer failed: {0}")]
    Failed(String),
}

/// A tokenizer, from the library or built in.
#[derive(Debug, Clone)]
pub enum Tokenizer {
    /// One of the `tokenizers` library.
    Library(Box<tokenizers::Tokenizer>),
    /// A token for each byte of UTF-8, and [`BYTES_BOS`], [`BYTES_EOS`](crate::config::BYTES_EOS).
    Bytes,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Its padding and truncation, which are meant for training batches, are ignored.
    ///
    /// # Errors
    /// If it cannot be read, or if it can make more of a text than any tokenizer does: both are checked here, and each
    /// text and each list of tokens again when it is converted.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        let fail = |reason: String| TokenizerError::File { path: path.to_path_buf(), reason };
        let text = read_text(path, MAX_FILE).map_err(|reason| fail(format!("it {reason}")))?;
        // The library panics here as well, on a normalizer that it does not read.
        caught(|| limits::check_text_of_file(&text)).unwrap_or(Ok(())).map_err(&fail)?;
        let made = caught(|| text.parse::<tokenizers::Tokenizer>())
            .map_err(|panic| fail(format!("the library panicked ({panic})")))?;
        let mut tokenizer = made.map_err(|e| fail(e.to_string()))?;
        limits::check(&tokenizer).map_err(&fail)?;
        let _ = tokenizer.with_padding(None).with_truncation(None);
        Ok(Self::Library(Box::new(tokenizer)))
    }

    /// Builds the tokenizer that a GGUF file's metadata describes.
    #[doc(hidden)]
    pub fn from_gguf(file: &GgufFile) -> Result<Self, TokenizerError> {
        let fail = |reason: String| TokenizerError::Gguf { path: file.path().to_path_buf(), reason };
        let mut tokenizer = caught(|| tokenizers::Tokenizer::from_gguf(file.content()))
            .map_err(|panic| fail(format!("the library panicked ({panic})")))?
            .map_err(|e| fail(candle_message(&e)))?;
        // candle knows the splitting rules of qwen2 and llama3 only; everything else falls back to GPT-2's with a
        // space put before every piece, which is wrong after special tokens (`<|im_start|> user`).
        match file.text("tokenizer.ggml.pre").unwrap_or("default") {
            "qwen2" | "llama3" | "llama-bpe" | "smaug-bpe" | "lfm2" => {}
            // For these, llama.cpp splits numbers into single digits first (`LLAMA_VOCAB_PRE_TYPE_SMOLLM` and similar
            // types).
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" => {
                let steps = vec![Digits::new(true).into(), ByteLevel::new(false, true, true).into()];
                tokenizer.with_pre_tokenizer(Some(Sequence::new(steps)));
            }
            _ => {
                tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
            }
        }
        Ok(Self::Library(Box::new(tokenizer)))
    }

    /// Tokens of `text`. With `special` the tokenizer adds its special tokens around the text; special tokens in the
    /// text are recognised either way.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Bytes => Ok(special.then_some(BYTES_BOS).into_iter().chain(text.bytes().map(u32::from)).collect()),
            Self::Library(t) => {
                library(|| limits::check_text(t, text).map_err(Into::into))?;
                let encoding = library(|| t.encode_fast(text, special))?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// Text of `tokens`, special ones left out. Bytes that are not UTF-8 become `U+FFFD`.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = tokens.iter().filter_map(|&t| u8::try_from(t).ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::Library(t) => {
                library(|| limits::check_tokens(t, tokens).map_err(Into::into))?;
                library(|| t.decode(tokens, true))
            }
        }
    }

    /// The id of a token by its text, such as `<|im_end|>`.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Bytes => None,
            Self::Library(t) => t.token_to_id(token),
        }
    }

    /// The text of a token.
    pub fn token(&self, id: u32) -> Option<String> {
        match self {
            Self::Bytes => None,
            Self::Library(t) => t.id_to_token(id),
        }
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Bytes => BYTES_VOCAB,
            Self::Library(t) => t.get_vocab_size(true),
        }
    }

    /// Begins decoding token by token.
    #[doc(hidden)]
    pub fn stream(&self) -> DecodeStream<'_> {
        DecodeStream { tokenizer: self, tokens: Vec::new(), prefix: 0, emitted: 0 }
    }
}

/// Calls the library, which may still panic here because of the file that it has read.
fn library<T>(work: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, TokenizerError> {
    caught(work)
        .map_err(|panic| TokenizerError::Failed(format!("the library panicked ({panic})")))?
        .map_err(|e| TokenizerError::Failed(e.to_string()))
}

/// Decodes token by token. The pieces together are the same as decoding all tokens at once.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<u32>,
    /// Tokens from here on are decoded together: some tokenizers need the previous token to get spaces right.
    prefix: usize,
    /// Tokens before here have been emitted.
    emitted: usize,
}

impl DecodeStream<'_> {
    /// Takes one more token and returns the text that it completes: nothing while a character is incomplete.
    pub fn push(&mut self, token: u32) -> Result<Option<String>, TokenizerError> {
        self.tokens.push(token);
        let pending = self.tokens.len() - self.emitted;
        self.emit(pending >= MAX_PENDING)
    }

    /// Ends the text and returns what was still waiting.
    pub fn finish(&mut self) -> Result<Option<String>, TokenizerError> {
        self.emit(true)
    }

    fn emit(&mut self, incomplete_too: bool) -> Result<Option<String>, TokenizerError> {
        let before = self.tokenizer.decode(&self.tokens[self.prefix..self.emitted])?;
        let now = self.tokenizer.decode(&self.tokens[self.prefix..])?;
        if now.ends_with('\u{fffd}') && !incomplete_too {
            return Ok(None);
        }
        let new = now.strip_prefix(before.as_str()).unwrap_or(&now).to_string();
        self.prefix = self.emitted;
        self.emitted = self.tokens.len();
        Ok((!new.is_empty()).then_some(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(tokens: &[u32]) -> Vec<String> {
        let tokenizer = Tokenizer::Bytes;
        let mut stream = tokenizer.stream();
        let mut pieces: Vec<String> = tokens.iter().filter_map(|&t| stream.push(t).unwrap()).collect();
        pieces.extend(stream.finish().unwrap());
        pieces
    }

    #[test]
    fn bytes_round_trip() {
        let text = "naïve 🕯️ scope";
        let tokens = Tokenizer::Bytes.encode(text, true).unwrap();
        assert_eq!(tokens[0], BYTES_BOS);
        assert_eq!(Tokenizer::Bytes.decode(&tokens).unwrap(), text);
    }

    #[test]
    fn streaming_waits_for_whole_characters() {
        let text = "aé🕯b";
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        assert_eq!(stream(&tokens), ["a", "é", "🕯", "b"]);
    }

    #[test]
    fn streaming_gives_up_on_broken_bytes() {
        // A lone start byte at the end, and a run of continuation bytes that never becomes a character.
        assert_eq!(stream(&[0x61, 0xf0]).concat(), "a\u{fffd}");
        let run = vec![0x80u32; 40];
        assert_eq!(stream(&run).concat().chars().count(), 40);
        assert!(stream(&run).len() > 1, "text must not be withheld for ever");
    }
}
