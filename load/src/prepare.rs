//! Before the load: what the server is, and first requests, which show how it is spoken to and count tokens of
//! synthetic prompts. They are in no figure.

use crate::address::{Address, CHAT, COMPLETIONS};
use crate::body::Body;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::connect::Connections;
use crate::drive::LoadContext;
use crate::error::LoadError;
use crate::exchange::{Client, MOST_PLAIN};
use crate::failure::{Failure, FailureKind};
use crate::options::{Endpoint, LoadOptions};
use crate::prompts::{Content, Prompt, PromptSource, Prompts, synthetic_text};
use crate::record::{Part, RequestRecord};
use crate::results::Target;
use crate::watch::Stop;
use candlescope_core::RedactedUrl;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait for the list of models.
const LIST: Duration = Duration::from_secs(15);
/// Longest that a server is asked which has no room yet.
const PATIENCE: Duration = Duration::from_secs(15);
/// Tokens of a first answer.
const FEW: u64 = 4;
/// Words of the short one of two prompts by which tokens are counted.
const SHORT: u64 = 16;

/// What a server that refuses a first request may want.
const KEY: &str = "; does it want a key? Name a variable with it by --api-key-env";

pub(crate) async fn prepare(
    options: &LoadOptions,
    clock: Clock,
    stop: &Stop,
) -> Result<(LoadContext, Target), LoadError> {
    options.check()?;
    let address = Address::parse(&options.url)?;
    let mut prompts = Prompts::read(&options.prompts, options.seed)?;
    let connections = Connections::to(&address, options.ca_file.as_deref()).await?;
    let (budget, url) = (Budget::new(options.memory_limit), options.url.clone());
    let client = Client::new(clock, budget, connections, &address.authority(), url, options.api_key.clone());
    let client = client.map_err(LoadError::Option)?;
    let listed = models(&client, &address).await?;
    let url = address.shown("/models");
    let model = match (&options.model, &listed) {
        (Some(model), _) => model.clone(),
        (None, Ok(listed)) => {
            let first = listed.first.clone();
            first.ok_or_else(|| LoadError::NoModel { url, why: "its list names none".to_string() })?
        }
        (None, Err(why)) => return Err(LoadError::NoModel { url, why: why.clone() }),
    };
    let mut first =
        FirstRequests { client: &client, address: &address, options, body: Body::new(options, &model), stop };
    let answer = first.settle(&prompts).await?;
    if let Prompts::Synthetic { seed, length } = &mut prompts {
        let long = length.wanted.max(SHORT * 4);
        if let (Some(short), Some(long)) = (first.count(*seed, SHORT).await?, first.count(*seed, long).await?) {
            length.learn(short, long);
        }
    }
    let body = first.body;
    let endpoint = path_of(body.endpoint);
    let (models, server) = listed.map_or_else(|why| (Err(why), None), |listed| (listed.whole, listed.server));
    let target = Target {
        url: address.shown(endpoint),
        endpoint: body.endpoint,
        model: client.scrub(&model),
        server,
        models_absent: models.as_ref().err().cloned(),
        models: models.ok().map(|models| client.scrub_json(models)),
        streams: answer.streamed,
        counts_tokens: answer.output_tokens_by == Some(crate::record::TokensBy::Usage),
        prompts: prompts.different(),
        prompt_tokens_counted: match (&options.prompts, &prompts) {
            (PromptSource::Tokens(_), Prompts::Synthetic { length, .. }) => Some(length.counted.is_some()),
            _ => None,
        },
    };
    let target_path = address.target(endpoint);
    Ok((LoadContext { client, body, target: target_path, prompts, options: options.clone() }, target))
}

fn path_of(endpoint: Endpoint) -> &'static str {
    if endpoint == Endpoint::Completions { COMPLETIONS } else { CHAT }
}

/// Longest list of models that is kept: as values, JSON takes up to seventy times its bytes.
const MOST_KEPT: usize = 256 << 10;

/// The server's list of models.
struct ListedModels {
    first: Option<String>,
    /// As it was answered, or why it is not kept.
    whole: Result<Value, String>,
    /// The header `Server`.
    server: Option<String>,
}

/// The first name in a list of models; of the others nothing is held.
struct FirstName(Option<String>);

impl<'de> Deserialize<'de> for FirstName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Models;
        impl<'de> Visitor<'de> for Models {
            type Value = FirstName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of models")
            }

            fn visit_unit<E>(self) -> Result<FirstName, E> {
                Ok(FirstName(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<FirstName, A::Error> {
                let mut first = None;
                while first.is_none() {
                    let Some(model) = items.next_element::<Value>()? else { break };
                    first = model.get("id").or_else(|| model.get("name")).and_then(Value::as_str).map(str::to_string);
                }
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FirstName(first))
            }
        }
        from.deserialize_any(Models)
    }
}

/// Of a list of models, what names them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    data: Option<FirstName>,
    models: Option<FirstName>,
}

/// The server's list of models with its header `Server`, or why there is none.
async fn models(client: &Client, address: &Address) -> Result<Result<ListedModels, String>, LoadError> {
    let shown = || address.shown("");
    match client.get(&address.target("/models"), LIST).await {
        Ok(plain) if plain.status == 200 => Ok(listed(&plain.body, plain.server)),
        Ok(plain) if matches!(plain.status, 401 | 403) => {
            let message = client.told(&crate::chunk::error_text(&plain.body));
            Err(LoadError::Refused { url: shown(), status: plain.status, message, remedy: KEY })
        }
        Ok(plain) => Ok(Err(format!("status {} to its list of models", plain.status))),
        Err(Failure { kind: FailureKind::Connect, message }) => {
            Err(LoadError::Unreachable { url: shown(), why: message })
        }
        Err(failure) => Ok(Err(failure.to_string())),
    }
}

fn listed(body: &[u8], server: Option<String>) -> Result<ListedModels, String> {
    let no_json = |error: serde_json::Error| {
        // What was cut off is no JSON, whatever it was.
        if body.len() >= MOST_PLAIN {
            return format!("its list of models is longer than the {MOST_PLAIN} bytes that are read of it");
        }
        format!("its list of models is no JSON: {error}")
    };
    let first = match serde_json::from_slice::<Names>(body) {
        Ok(names) => names.data.or(names.models).and_then(|names| names.0),
        // JSON of another form names none.
        Err(error) if error.is_data() => None,
        Err(error) => return Err(no_json(error)),
    };
    let whole = match body.len() {
        0..=MOST_KEPT => Ok(serde_json::from_slice(body).map_err(no_json)?),
        bytes => Err(format!("its list of models has {bytes} bytes, and more than {MOST_KEPT} are not kept")),
    };
    Ok(ListedModels { first, whole, server })
}

/// Finds out how requests have to look.
struct FirstRequests<'a> {
    client: &'a Client,
    address: &'a Address,
    options: &'a LoadOptions,
    body: Body,
    stop: &'a Stop,
}

impl FirstRequests<'_> {
    /// Tries the endpoints that come into question, until one answers.
    async fn settle(&mut self, prompts: &Prompts) -> Result<RequestRecord, LoadError> {
        let prompt = prompts.nth(0, 0);
        let named = match self.address.endpoint {
            Some(CHAT) => Endpoint::Chat,
            Some(_) => Endpoint::Completions,
            None => Endpoint::Auto,
        };
        let endpoint = if self.options.endpoint == Endpoint::Auto { named } else { self.options.endpoint };
        if endpoint != Endpoint::Auto {
            self.body.endpoint = endpoint;
            return self.once(&prompt).await;
        }
        self.body.endpoint = Endpoint::Chat;
        match self.once(&prompt).await {
            Err(LoadError::Refused { status: 400 | 404 | 405 | 415 | 422 | 500 | 501, message, .. }) => {
                self.body.endpoint = Endpoint::Completions;
                self.once(&prompt).await.map_err(|error| match error {
                    LoadError::Refused { url, status, message: second, remedy } if second != message => {
                        LoadError::Refused { url, status, message: format!("{second} (chat: {message})"), remedy }
                    }
                    error => error,
                })
            }
            outcome => outcome,
        }
    }

    /// The tokens that the server counts in a synthetic prompt of so many words.
    async fn count(&mut self, seed: u64, words: u64) -> Result<Option<(u64, u64)>, LoadError> {
        // A number that no stage uses.
        let text = synthetic_text(seed, u64::MAX - words, words);
        let prompt = Prompt { content: Content::Text(text), ..Prompt::default() };
        Ok(self.once(&prompt).await?.prompt_tokens.map(|tokens| (words, tokens)))
    }

    /// One request; again, where the server has no room yet, or does not know the option to count tokens.
    async fn once(&mut self, prompt: &Prompt) -> Result<RequestRecord, LoadError> {
        let path = path_of(self.body.endpoint);
        let url: RedactedUrl = self.address.shown(path);
        let begun = tokio::time::Instant::now();
        loop {
            if self.stop.is_stopped() {
                return Err(LoadError::Stopped);
            }
            let body = self.body.limited(prompt, FEW.min(self.options.max_tokens));
            let mut record = RequestRecord::new(0, 0, Part::Warmup, prompt.id, self.client.clock.now());
            let (_never, mut cancel) = watch::channel(None);
            let target = self.address.target(path);
            self.client.exchange(&target, body, self.options.timeout, &mut cancel, &mut record).await;
            let Some(failure) = record.failure.clone() else { return Ok(record) };
            let message = failure.message.clone();
            match failure.kind {
                // Four tokens may have no text.
                FailureKind::Empty => return Ok(record),
                FailureKind::Status(400 | 422)
                    if self.body.with_usage
                        && ["stream_options", "include_usage"].iter().any(|word| message.contains(word)) =>
                {
                    self.body.with_usage = false;
                }
                FailureKind::Status(status @ (429 | 503)) => {
                    if begun.elapsed() > PATIENCE {
                        return Err(LoadError::Busy { url, status, message, waited: PATIENCE });
                    }
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
                FailureKind::Status(status) => {
                    let remedy = if matches!(status, 401 | 403) { KEY } else { "" };
                    return Err(LoadError::Refused { url, status, message, remedy });
                }
                FailureKind::Connect => return Err(LoadError::Unreachable { url, why: message }),
                _ => return Err(LoadError::FirstRequest { url, why: failure.to_string() }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_models_is_not_kept() {
        let of = |count: usize| {
            let models = vec!["{\"id\":\"m\"}"; count].join(",");
            listed(format!("{{\"object\":\"list\",\"data\":[{models}]}}").as_bytes(), None).unwrap()
        };
        let few = of(3);
        assert_eq!((few.first.as_deref(), few.whole.unwrap()["data"].as_array().unwrap().len()), (Some("m"), 3));
        let many = of(300_000);
        assert_eq!(many.first.as_deref(), Some("m"));
        assert!(many.whole.unwrap_err().contains("are not kept"));
        assert_eq!(listed(b"{\"models\":[{\"x\":1},{\"name\":\"n\"}]}", None).unwrap().first.as_deref(), Some("n"));
        assert_eq!(listed(b"[1]", None).ok().and_then(|listed| listed.first), None);
        assert!(listed(b"<html>", None).err().unwrap().starts_with("its list of models is no JSON"));
        let cut = format!("{{\"data\":[{}", "{\"id\":\"m\"},".repeat(MOST_PLAIN / 11 + 1));
        let cut = listed(&cut.as_bytes()[..MOST_PLAIN], None).err().unwrap();
        assert!(cut.contains("longer than the 4194304 bytes"), "{cut}");
    }
}
