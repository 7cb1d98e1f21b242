//! Prompts: one text, synthetic texts of a given length, or a data set. The same seed gives the same prompts.

mod synthetic;

pub use candlescope_prompts::DatasetError;
pub(crate) use candlescope_prompts::{Content, Prompt};
pub(crate) use synthetic::{Length, text as synthetic_text};

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Where prompts come from.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptSource {
    /// The same text for every request.
    Text(#[serde(serialize_with = "length")] String),
    /// Synthetic texts of about this many tokens, each of them different.
    Tokens(u64),
    /// A file or a directory with prompts, taken in random order.
    Dataset {
        /// JSONL, ShareGPT's JSON, plain text, or a directory of such files.
        path: PathBuf,
        /// Which of a directory's variants.
        variant: Option<String>,
    },
}

/// Prompts are not written into results unless that was asked for.
fn length<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{} characters", text.chars().count()))
}

impl std::fmt::Debug for PromptSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} characters)", text.chars().count()),
            Self::Tokens(tokens) => write!(f, "Tokens({tokens})"),
            Self::Dataset { path, variant } => write!(f, "Dataset({}, {variant:?})", path.display()),
        }
    }
}

/// Prompts by number.
pub(crate) enum Prompts {
    One(Prompt),
    Synthetic { seed: u64, length: Length },
    Set { seed: u64, prompts: Vec<Prompt>, order: Mutex<Order> },
}

/// The order in which a stage goes through a data set, for one pass.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pass: Option<(usize, u64)>,
    indices: Vec<usize>,
}

impl Prompts {
    /// Reads what `source` names. How long synthetic texts are to be is not known before the server has counted some:
    /// until then a word counts as a token.
    pub(crate) fn read(source: &PromptSource, seed: u64) -> Result<Self, DatasetError> {
        Ok(match source {
            PromptSource::Text(text) => Self::One(Prompt { content: Content::Text(text.clone()), ..Prompt::default() }),
            PromptSource::Tokens(tokens) => Self::Synthetic { seed, length: Length::guess(*tokens) },
            PromptSource::Dataset { path, variant } => {
                let prompts = candlescope_prompts::read(path, variant.as_deref())?;
                without_images(path, &prompts)?;
                Self::Set { seed, prompts, order: Mutex::default() }
            }
        })
    }

    /// The prompt of a stage's request.
    pub(crate) fn nth(&self, stage: usize, number: u64) -> Prompt {
        match self {
            Self::One(prompt) => prompt.clone(),
            Self::Synthetic { seed, length } => {
                let id = synthetic_id(stage, number);
                Prompt { id, content: Content::Text(synthetic::text(*seed, id, length.words())), max_tokens: None }
            }
            Self::Set { seed, prompts, order } => {
                let n = prompts.len() as u64;
                let pass = (stage, number / n);
                let mut order = order.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if order.pass != Some(pass) {
                    let mixed = seed.wrapping_add((stage as u64) << 32).wrapping_add(pass.1);
                    order.indices = (0..prompts.len()).collect();
                    order.indices.shuffle(&mut StdRng::seed_from_u64(mixed));
                    order.pass = Some(pass);
                }
                prompts[order.indices[(number % n) as usize]].clone()
            }
        }
    }

    /// Which prompt that is, without making it.
    pub(crate) fn id_of(&self, stage: usize, number: u64) -> u64 {
        match self {
            Self::Synthetic { .. } => synthetic_id(stage, number),
            Self::One(_) | Self::Set { .. } => self.nth(stage, number).id,
        }
    }

    /// How many different prompts there are; absent where each is new.
    pub(crate) fn different(&self) -> Option<usize> {
        match self {
            Self::One(_) => Some(1),
            Self::Synthetic { .. } => None,
            Self::Set { prompts, .. } => Some(prompts.len()),
        }
    }
}

fn synthetic_id(stage: usize, number: u64) -> u64 {
    ((stage as u64) << 40) | number
}

/// Requests carry texts.
fn without_images(path: &Path, prompts: &[Prompt]) -> Result<(), DatasetError> {
    match prompts.iter().find(|prompt| matches!(prompt.content, Content::Image { .. })) {
        Some(image) => Err(DatasetError::Entry {
            path: path.to_path_buf(),
            place: format!("prompt {}", image.id),
            why: "it is an image, and requests carry texts only: take a data set of texts".to_string(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(n: u64) -> Prompts {
        let prompts = (0..n).map(|id| Prompt { id, ..Prompt::default() }).collect();
        Prompts::Set { seed: 7, prompts, order: Mutex::default() }
    }

    #[test]
    fn each_pass_has_every_prompt_once_in_an_order_of_its_own() {
        let ids = |stage, numbers: std::ops::Range<u64>| -> Vec<u64> {
            let set = set(50);
            numbers.map(|n| set.nth(stage, n).id).collect()
        };
        let first = ids(0, 0..50);
        assert_eq!(first, ids(0, 0..50), "the seed decides");
        assert_ne!(first, ids(0, 50..100));
        assert_ne!(first, ids(1, 0..50));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_text_is_not_shown() {
        let source = PromptSource::Text("secret".into());
        assert_eq!(serde_json::to_string(&source).unwrap(), r#"{"text":"6 characters"}"#);
        assert_eq!(format!("{source:?}"), "Text(6 characters)");
    }
}
