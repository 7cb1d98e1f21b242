//! How much a tokenizer may make of a text. A `tokenizer.json` is a program by whoever made the model: twelve
//! replacements of a letter by sixteen make a text of four letters longer than any memory.
//!
//! Every step has a bound on how many times longer it makes a text. Their product is limited when the file is read; when
//! a text is so long that the product could matter, its normalisation is followed step by step first. The usual
//! tokenizer of the usual text costs a walk over a handful of steps.

use base64::Engine as _;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::processors::PostProcessorWrapper;
use tokenizers::{NormalizedString, Normalizer, PostProcessor};

/// Steps of a normalizer, a pre-tokenizer or a decoder.
const MOST_STEPS: usize = 64;
/// How many times longer all steps together may make a text, by their bounds: those of ALBERT, which has the most, come to
/// 45,000, of which no text makes use.
const MOST_GROWTH: u64 = 1 << 20;
/// Bytes that tokens may become, and added tokens while a file is read.
const MOST_BYTES: u64 = 16 << 20;
/// Bytes that any text may become: each may be a token, for which the library takes 350 bytes, …
const MOST_OF_SHORT: u64 = 256 << 10;
/// … and how many times longer one may become that is longer itself.
const LONGER: u64 = 8;
/// Bytes that a part of a text may become while it is followed.
const MOST_OF_A_PIECE: u64 = 4 << 20;
/// Longest text that is put before each part of a text: SentencePiece's blank has 3 bytes.
const MOST_PREPENDED: usize = 16;
/// Characters of an entry of a Unigram vocabulary, of which each place of a text tries all that fit: known ones have up to
/// 50.
const MOST_OF_AN_ENTRY: usize = 128;
/// Tokens that are put around a text.
const MOST_AROUND: usize = 4096;
/// How many times the text itself may stand between them.
const MOST_COPIES: usize = 4;
/// Bytes of all added tokens, for each of which the normalizer runs when the file is read.
const MOST_ADDED: u64 = 4 << 20;
/// Characters of a word that WordPiece looks at: it takes time with the third power of these.
const MOST_OF_A_WORD: u64 = 1000;
/// Longest replacement in a table of SentencePiece: the longest of NFKC has 33 bytes.
const MOST_REPLACED: usize = 64;
/// Text that is followed through the steps at a time: short, so that a step's bound on it is near to what it does.
const PIECE: usize = 512;

/// What has to be known of a file before the library reads it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    normalizer: Option<Value>,
    added_tokens: Option<Vec<AddedToken>>,
    model: Option<Model>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AddedToken {
    content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    max_input_chars_per_word: Option<u64>,
    vocab: LongestEntry,
}

/// Characters of the longest entry of a vocabulary that is a list, as Unigram's is: `[["▁the", -3.2], …]`.
#[derive(Default)]
struct LongestEntry(usize);

impl<'de> Deserialize<'de> for LongestEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = LongestEntry;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a vocabulary")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<LongestEntry, A::Error> {
                let mut longest = 0;
                while let Some((text, _)) = entries.next_element::<(Cow<'de, str>, IgnoredAny)>()? {
                    longest = longest.max(text.chars().count());
                }
                Ok(LongestEntry(longest))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<LongestEntry, A::Error> {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(LongestEntry(0))
            }

            fn visit_unit<E>(self) -> Result<LongestEntry, E> {
                Ok(LongestEntry(0))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

/// Refuses the text of a file that would take too much while the library reads it.
pub(super) fn check_text_of_file(text: &str) -> Result<(), String> {
    let head: Head = match serde_json::from_str(text) {
        Ok(head) => head,
        // A field that is there twice would be read here and not there.
        Err(error) if error.is_data() => return Err(error.to_string()),
        // What is no JSON at all, the library says in its own words.
        Err(_) => return Ok(()),
    };
    let model = head.model.unwrap_or_default();
    if model.vocab.0 > MOST_OF_AN_ENTRY {
        return Err(format!(
            "its vocabulary has an entry of {} characters, more than the limit of {MOST_OF_AN_ENTRY}",
            model.vocab.0
        ));
    }
    let characters = model.max_input_chars_per_word.unwrap_or(0);
    if characters > MOST_OF_A_WORD {
        return Err(format!(
            "its model looks at words of {characters} characters, more than the limit of {MOST_OF_A_WORD}"
        ));
    }
    let Some(normalizer) = head.normalizer.filter(|normalizer| !normalizer.is_null()) else { return Ok(()) };
    check_tables(&normalizer)?;
    let Ok(normalizer) = serde_json::from_value::<NormalizerWrapper>(normalizer) else { return Ok(()) };
    let growth = normalizing(Some(&normalizer))?;
    let added = || head.added_tokens.iter().flatten().map(|token| token.content.as_str());
    let mut steps = Vec::new();
    flatten(&normalizer, &mut steps);
    if let Some(longest) = steps.iter().filter_map(|step| prepended(step)).max().filter(|len| *len > MOST_PREPENDED) {
        return Err(format!(
            "its normalizer puts {longest} bytes before a text, more than the limit of {MOST_PREPENDED}"
        ));
    }
    let bytes: u64 = added().map(|content| content.len() as u64).sum();
    if bytes > MOST_ADDED {
        return Err(format!("its added tokens have {bytes} bytes, more than the limit of {MOST_ADDED}"));
    }
    let is_short = bytes.saturating_mul(growth) <= MOST_BYTES;
    if is_short || follow(Some(&normalizer), 1, added().flat_map(|text| pieces(text, PIECE)), MOST_BYTES)? {
        return Ok(());
    }
    Err(format!("its added tokens have {bytes} bytes, of which its normalizer makes more than {MOST_BYTES}"))
}

/// Refuses tables of SentencePiece that claim more than they have, or replace a character by a whole text.
fn check_tables(normalizer: &Value) -> Result<(), String> {
    match normalizer {
        Value::Array(items) => items.iter().try_for_each(check_tables),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value {
            Value::String(table) if name == "precompiled_charsmap" => check_table(table),
            value => check_tables(value),
        }),
        _ => Ok(()),
    }
}

fn check_table(table: &str) -> Result<(), String> {
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(table) else { return Ok(()) };
    let claimed = bytes.first_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let Some(texts) = bytes.get(4..).and_then(|rest| rest.get(claimed..)) else {
        return Err(format!("its table of characters claims {claimed} bytes and has {}", bytes.len()));
    };
    match texts.split(|byte| *byte == 0).map(<[u8]>::len).max() {
        Some(longest) if longest > MOST_REPLACED => Err(format!(
            "its table of characters replaces one by {longest} bytes, more than the limit of {MOST_REPLACED}"
        )),
        _ => Ok(()),
    }
}

/// Refuses a tokenizer that makes too much of any text.
pub(super) fn check(tokenizer: &tokenizers::Tokenizer) -> Result<(), String> {
    let within = |what: &str, growth: u64| match growth {
        0..=MOST_GROWTH => Ok(()),
        _ => Err(format!("its {what} can make a text {growth} times longer, more than the limit of {MOST_GROWTH}")),
    };
    let normalized = normalizing(tokenizer.get_normalizer())?;
    within("normalizer", normalized)?;
    let split = splitting(tokenizer.get_pre_tokenizer())?;
    within("normalizer and pre_tokenizer", normalized.saturating_mul(split))?;
    within("decoder", decoding(tokenizer.get_decoder())?)?;
    let Some(processor) = tokenizer.get_post_processor() else { return Ok(()) };
    let (around, copies) = (processor.added_tokens(false), copies(processor));
    if around > MOST_AROUND || copies > MOST_COPIES {
        return Err(format!(
            "its post_processor puts {around} tokens around a text that stands there {copies} times, more than the limits \
             of {MOST_AROUND} and {MOST_COPIES}"
        ));
    }
    Ok(())
}

/// Refuses a text that would become too long.
pub(super) fn check_text(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<(), String> {
    let normalizer = tokenizer.get_normalizer();
    let split = splitting(tokenizer.get_pre_tokenizer())?;
    let allowed = (text.len() as u64).saturating_mul(LONGER).max(MOST_OF_SHORT);
    let bound = normalizing(normalizer)?.saturating_mul(split).saturating_mul(text.len() as u64);
    if bound <= allowed {
        return Ok(());
    }
    match follow(normalizer, split, pieces(text, piece_of(tokenizer)), allowed)? {
        true => Ok(()),
        false => Err(format!("the text of {} bytes would become more than {allowed} bytes long", text.len())),
    }
}

/// Takes a text through the steps of a normalizer, and returns whether it has at most `allowed` bytes after each of them,
/// and `split` times as many after the last.
fn follow<'a>(
    normalizer: Option<&NormalizerWrapper>,
    split: u64,
    text: impl Iterator<Item = &'a str>,
    allowed: u64,
) -> Result<bool, String> {
    let mut steps = Vec::new();
    normalizer.into_iter().for_each(|normalizer| flatten(normalizer, &mut steps));
    let mut lengths = vec![0u64; steps.len() + 1];
    for piece in text {
        let mut now = NormalizedString::from(piece);
        for (step, length) in steps.iter().zip(&mut lengths) {
            let before = now.get().len() as u64;
            if before.saturating_mul(of_normalizer(step)) > allowed.max(MOST_OF_A_PIECE) {
                return Ok(false);
            }
            step.normalize(&mut now).map_err(|error| error.to_string())?;
            *length += now.get().len() as u64;
        }
        if let Some(last) = lengths.last_mut() {
            *last += (now.get().len() as u64).saturating_mul(split);
        }
        if lengths.iter().any(|length| *length > allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses tokens whose text would become too long.
pub(super) fn check_tokens(tokenizer: &tokenizers::Tokenizer, tokens: &[u32]) -> Result<(), String> {
    let growth = decoding(tokenizer.get_decoder())?;
    if growth <= LONGER {
        return Ok(());
    }
    let text =
        tokens.iter().filter_map(|token| tokenizer.id_to_token(*token)).map(|text| text.len() as u64).sum::<u64>();
    match text.saturating_mul(growth) {
        0..=MOST_BYTES => Ok(()),
        bytes => Err(format!("the text of {} tokens could become {bytes} bytes long", tokens.len())),
    }
}

/// The text in pieces that end between characters.
fn pieces(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        // At least one character.
        let end = rest.floor_char_boundary(bytes).max(rest.chars().next().map_or(0, char::len_utf8));
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Bytes that are followed at a time: where something is put before each text between added tokens, no more than from
/// one such token to the next at least.
fn piece_of(tokenizer: &tokenizers::Tokenizer) -> usize {
    let mut steps = Vec::new();
    tokenizer.get_normalizer().into_iter().for_each(|normalizer| flatten(normalizer, &mut steps));
    if !steps.iter().any(|step| prepended(step).is_some()) {
        return PIECE;
    }
    let shortest = tokenizer.get_added_tokens_decoder().values().map(|token| token.content.len()).min();
    shortest.map_or(PIECE, |shortest| (shortest + 1).min(PIECE))
}

/// Bytes that a step puts before each text; `None` if it puts nothing there.
fn prepended(step: &NormalizerWrapper) -> Option<usize> {
    match step {
        NormalizerWrapper::Prepend(prepend) => Some(prepend.prepend.len()),
        _ => None,
    }
}

fn flatten<'a>(normalizer: &'a NormalizerWrapper, steps: &mut Vec<&'a NormalizerWrapper>) {
    match normalizer {
        NormalizerWrapper::Sequence(inside) => inside.as_ref().iter().for_each(|step| flatten(step, steps)),
        step => steps.push(step),
    }
}

/// How many times longer a normalizer makes a text at most.
fn normalizing(normalizer: Option<&NormalizerWrapper>) -> Result<u64, String> {
    let mut steps = Vec::new();
    normalizer.into_iter().for_each(|normalizer| flatten(normalizer, &mut steps));
    product("normalizer", steps.len(), steps.iter().map(|step| of_normalizer(step)))
}

fn of_normalizer(step: &NormalizerWrapper) -> u64 {
    match step {
        NormalizerWrapper::Sequence(inside) => inside.as_ref().iter().map(of_normalizer).fold(1, u64::saturating_mul),
        // A pattern may match nothing, between any two bytes.
        NormalizerWrapper::Replace(replace) => 1 + replace.content.len() as u64,
        // Once for each text between added tokens, which has one byte at least.
        NormalizerWrapper::Prepend(prepend) => 1 + prepend.prepend.len() as u64,
        NormalizerWrapper::Precompiled(_) => MOST_REPLACED as u64,
        // U+FDFA, three bytes, becomes 33.
        NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFKD(_)
        | NormalizerWrapper::NFKC(_) => 11,
        NormalizerWrapper::BertNormalizer(_) => 4,
        NormalizerWrapper::Lowercase(_) | NormalizerWrapper::ByteLevel(_) => 2,
        NormalizerWrapper::StripNormalizer(_) | NormalizerWrapper::StripAccents(_) | NormalizerWrapper::Nmt(_) => 1,
    }
}

fn splitting(splitter: Option<&PreTokenizerWrapper>) -> Result<u64, String> {
    fn flatten<'a>(splitter: &'a PreTokenizerWrapper, steps: &mut Vec<&'a PreTokenizerWrapper>) {
        match splitter {
            PreTokenizerWrapper::Sequence(inside) => inside.as_ref().iter().for_each(|step| flatten(step, steps)),
            step => steps.push(step),
        }
    }
    let mut steps = Vec::new();
    splitter.into_iter().for_each(|splitter| flatten(splitter, &mut steps));
    let growth = steps.iter().map(|step| match step {
        PreTokenizerWrapper::ByteLevel(_) => 2,
        PreTokenizerWrapper::Metaspace(_) => 4,
        _ => 1,
    });
    product("pre_tokenizer", steps.len(), growth)
}

fn decoding(decoder: Option<&DecoderWrapper>) -> Result<u64, String> {
    fn flatten<'a>(decoder: &'a DecoderWrapper, steps: &mut Vec<&'a DecoderWrapper>) {
        match decoder {
            DecoderWrapper::Sequence(inside) => inside.get_decoders().iter().for_each(|step| flatten(step, steps)),
            step => steps.push(step),
        }
    }
    let mut steps = Vec::new();
    decoder.into_iter().for_each(|decoder| flatten(decoder, &mut steps));
    let growth = steps.iter().map(|step| match step {
        DecoderWrapper::Replace(replace) => 1 + replace.content.len() as u64,
        DecoderWrapper::ByteLevel(_) => 3,
        // Each may put a blank into every gap.
        DecoderWrapper::BPE(_) | DecoderWrapper::CTC(_) | DecoderWrapper::WordPiece(_) => 2,
        _ => 1,
    });
    product("decoder", steps.len(), growth)
}

fn product(what: &str, steps: usize, growth: impl Iterator<Item = u64>) -> Result<u64, String> {
    if steps > MOST_STEPS {
        return Err(format!("its {what} has {steps} steps, more than the limit of {MOST_STEPS}"));
    }
    Ok(growth.fold(1, u64::saturating_mul))
}

/// How many times a text stands in what is made of it.
fn copies(processor: &PostProcessorWrapper) -> usize {
    match processor {
        PostProcessorWrapper::Template(template) => template.get_single().matches("Sequence {").count().max(1),
        PostProcessorWrapper::Sequence(inside) => inside.as_ref().iter().map(copies).fold(1, usize::saturating_mul),
        _ => 1,
    }
}
