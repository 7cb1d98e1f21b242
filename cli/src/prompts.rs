//! What a model is asked: one prompt over and over, or those of a data set in order.

use crate::options::{Dataset, Options};
use anyhow::{Context, Result, bail};
use candlescope_models::chat::Message;
use candlescope_prompts::{Content, Prompt, sha256};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Most prompts of which a run keeps facts one by one.
const MOST_FACTS: usize = 2000;

/// What is asked in one request.
#[derive(Debug, Clone)]
pub(crate) struct PromptInput {
    pub(crate) tokens: Vec<u32>,
    /// Most tokens of the answer.
    pub(crate) max_new_tokens: usize,
    /// The image that it is about, if each request has its own.
    pub(crate) image: Option<PathBuf>,
    /// Whether it is a conversation, whatever the options say.
    pub(crate) is_chat: bool,
}

/// What a model is asked, and what the run keeps about that.
#[derive(Debug)]
pub(crate) struct AskedPrompts {
    pub(crate) all: Vec<PromptInput>,
    /// About a data set.
    pub(crate) facts: Option<Value>,
}

/// Makes tokens of a conversation.
type Chat<'a> = &'a dyn Fn(&[Message]) -> Result<Vec<u32>>;

/// Makes tokens of an image and of what is asked about it.
type Image<'a> = &'a dyn Fn(&Path, Option<&str>) -> Result<Vec<u32>>;

/// How a model takes prompts.
pub(crate) struct Encoder<'a> {
    /// Name of the model, for messages.
    pub(crate) model: &'a str,
    /// Most tokens of a prompt, so that one can be generated.
    pub(crate) most: usize,
    pub(crate) text: &'a dyn Fn(&str) -> Result<Vec<u32>>,
    /// A conversation, if it takes any.
    pub(crate) chat: Option<Chat<'a>>,
    /// An image, if it looks at any.
    pub(crate) image: Option<Image<'a>>,
}

impl Encoder<'_> {
    /// Tokens of a text, as a chat if that is wanted.
    pub(crate) fn say(&self, text: &str, chat: bool) -> Result<Vec<u32>> {
        if !chat {
            return (self.text)(text);
        }
        match self.chat {
            Some(encode) => encode(&[Message::new("user", text)]),
            None => bail!("{} has no chat template; leave --chat out", self.model),
        }
    }

    fn content(&self, content: &Content, chat: bool) -> Result<Vec<u32>> {
        match content {
            Content::Text(text) => self.say(text, chat),
            Content::Messages(messages) => {
                let messages = messages.iter().map(message).collect::<Result<Vec<_>>>()?;
                match self.chat {
                    Some(encode) => encode(&messages),
                    None => bail!("it is a conversation, and {} takes texts", self.model),
                }
            }
            Content::Image { path, text } => match self.image {
                Some(encode) => encode(path, text.as_deref()),
                None => {
                    bail!(
                        "it is the image {}, and {} reads texts: take a data set of texts",
                        path.display(),
                        self.model
                    )
                }
            },
        }
    }
}

fn message(value: &Value) -> Result<Message> {
    let role = value["role"].as_str().context("a message has no `role`")?;
    let content =
        value["content"].as_str().context("a message's `content` is no text; parts and images are not read")?;
    Ok(Message::new(role, content))
}

/// The prompts of a data set as tokens: in order or shuffled by the seed, without those that are too long, at most as
/// many as wanted.
pub(crate) fn of_dataset(set: &Dataset, options: &Options, encoder: &Encoder<'_>) -> Result<AskedPrompts> {
    let given = &options.given.dataset;
    let shuffle = given.shuffle.unwrap_or_default();
    let mut order: Vec<&Prompt> = set.prompts.iter().collect();
    if shuffle {
        order.shuffle(&mut StdRng::seed_from_u64(options.given.runtime.seed));
    }
    let limit = given.limit.unwrap_or(usize::MAX);
    let (mut all, mut facts, mut too_long) = (Vec::new(), Vec::new(), 0usize);
    for prompt in order {
        if all.len() == limit {
            break;
        }
        let place = || format!("prompt {} of the data set {}", prompt.id, set.name);
        let tokens = encoder.content(&prompt.content, options.given.runtime.chat).with_context(place)?;
        if given.max_prompt_tokens.is_some_and(|most| tokens.len() > most) {
            too_long += 1;
            continue;
        }
        if tokens.len() > encoder.most {
            bail!(
                "{} has {} tokens, and {} takes at most {}: dataset.max_prompt_tokens={} leaves such prompts out",
                place(),
                tokens.len(),
                encoder.model,
                encoder.most,
                encoder.most
            );
        }
        if facts.len() < MOST_FACTS {
            facts.push(fact(prompt, tokens.len(), given.keep_text));
        }
        let own = prompt.max_tokens.and_then(|n| usize::try_from(n).ok());
        let max_new_tokens =
            own.map_or(options.given.runtime.max_new_tokens, |n| n.min(options.given.runtime.max_new_tokens));
        let image = match &prompt.content {
            Content::Image { path, .. } => Some(path.clone()),
            _ => None,
        };
        let is_chat = matches!(prompt.content, Content::Messages(_));
        all.push(PromptInput { tokens, max_new_tokens, image, is_chat });
    }
    if all.is_empty() {
        bail!(
            "all {too_long} prompts of the data set {} are longer than dataset.max_prompt_tokens={}; raise it",
            set.name,
            given.max_prompt_tokens.unwrap_or_default()
        );
    }
    let facts = json!({
        "name": set.name,
        "prompts_there": set.prompts.len(),
        "prompts_used": all.len(),
        "left_out_too_long": too_long,
        "shuffled": shuffle,
        "sha256": whole_sha256(&set.prompts),
        "prompts_listed": facts.len(),
        "prompts": facts,
    });
    Ok(AskedPrompts { all, facts: Some(facts) })
}

/// A hash over all prompts of a data set, so that two runs can be told to have had the same.
fn whole_sha256(prompts: &[Prompt]) -> Option<String> {
    let all: Option<Vec<String>> = prompts.iter().map(Prompt::sha256).collect();
    all.map(|all| sha256(&all.join("\n")))
}

/// What a run keeps of a prompt: never its text, unless asked.
fn fact(prompt: &Prompt, tokens: usize, keep_text: bool) -> Value {
    let mut fact = json!({
        "id": prompt.id,
        "tokens": tokens,
        "characters": prompt.characters(),
        "sha256": prompt.sha256(),
    });
    if keep_text {
        fact["content"] = match &prompt.content {
            Content::Text(text) => json!(text),
            Content::Messages(messages) => json!(messages),
            Content::Image { path, text } => json!({ "image": path, "text": text }),
        };
    }
    fact
}

/// One prompt for every request.
pub(crate) fn always(tokens: Vec<u32>, options: &Options) -> AskedPrompts {
    AskedPrompts {
        all: vec![PromptInput {
            tokens,
            max_new_tokens: options.given.runtime.max_new_tokens,
            image: None,
            is_chat: false,
        }],
        facts: None,
    }
}
