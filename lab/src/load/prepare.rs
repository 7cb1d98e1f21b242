//! Before the load: what the server is, and first requests, which show how it is spoken to and count tokens of
//! synthetic prompts. They are in no figure.

use super::address::{Address, CHAT, COMPLETIONS};
use super::body::Body;
use super::clock::Clock;
use super::connect::Connections;
use super::drive::Shared;
use super::error::LoadError;
use super::exchange::Client;
use super::failure::{Failure, FailureKind};
use super::options::{Endpoint, LoadOptions};
use super::prompts::{Content, Prompt, PromptSource, Prompts, synthetic_text};
use super::record::{Part, RequestRecord};
use super::results::Target;
use super::watch::Stop;
use candlescope_core::RedactedUrl;
use serde_json::Value;
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

pub(super) async fn prepare(options: &LoadOptions, clock: Clock, stop: &Stop) -> Result<(Shared, Target), LoadError> {
    options.check()?;
    let address = Address::parse(&options.url)?;
    let mut prompts = Prompts::read(&options.prompts, options.seed)?;
    let connections = Connections::to(&address, options.ca_file.as_deref()).await?;
    let client = Client::new(clock, connections, &address.authority(), options.url.clone(), options.api_key.clone());
    let client = client.map_err(LoadError::Option)?;
    let listed = models(&client, &address).await?;
    let url = address.shown("/models");
    let model = match (&options.model, &listed) {
        (Some(model), _) => model.clone(),
        (None, Ok((models, _))) => {
            first_model(models).ok_or_else(|| LoadError::NoModel { url, why: "its list names none".to_string() })?
        }
        (None, Err(why)) => return Err(LoadError::NoModel { url, why: why.clone() }),
    };
    let mut first = First { client: &client, address: &address, options, body: Body::new(options, &model), stop };
    let answer = first.settle(&prompts).await?;
    if let Prompts::Synthetic { seed, length } = &mut prompts {
        let long = length.wanted.max(SHORT * 4);
        if let (Some(short), Some(long)) = (first.count(*seed, SHORT).await?, first.count(*seed, long).await?) {
            length.learn(short, long);
        }
    }
    let body = first.body;
    let endpoint = path_of(body.endpoint);
    let (models, server) = listed.map_or_else(|why| (Err(why), None), |(models, server)| (Ok(models), server));
    let target = Target {
        url: address.shown(endpoint),
        endpoint: body.endpoint,
        model: client.scrub(&model),
        server,
        models_absent: models.as_ref().err().cloned(),
        models: models.ok().map(|models| client.scrub_json(models)),
        streams: answer.streamed,
        counts_tokens: answer.output_tokens_by == Some(super::record::TokensBy::Usage),
        prompts: prompts.different(),
        prompt_tokens_counted: match (&options.prompts, &prompts) {
            (PromptSource::Tokens(_), Prompts::Synthetic { length, .. }) => Some(length.counted.is_some()),
            _ => None,
        },
    };
    let target_path = address.target(endpoint);
    Ok((Shared { client, body, target: target_path, prompts, options: options.clone() }, target))
}

fn path_of(endpoint: Endpoint) -> &'static str {
    if endpoint == Endpoint::Completions { COMPLETIONS } else { CHAT }
}

/// The server's list of models with its header `Server`, or why there is none.
async fn models(client: &Client, address: &Address) -> Result<Result<(Value, Option<String>), String>, LoadError> {
    let shown = || address.shown("");
    match client.get(&address.target("/models"), LIST).await {
        Ok(plain) if plain.status == 200 => {
            let parsed = serde_json::from_slice(&plain.body);
            Ok(parsed.map(|models| (models, plain.server)).map_err(|e| format!("its list of models is no JSON: {e}")))
        }
        Ok(plain) if matches!(plain.status, 401 | 403) => {
            let message = client.told(&super::chunk::error_text(&plain.body));
            Err(LoadError::Refused { url: shown(), status: plain.status, message, remedy: KEY })
        }
        Ok(plain) => Ok(Err(format!("status {} to its list of models", plain.status))),
        Err(Failure { kind: FailureKind::Connect, message }) => {
            Err(LoadError::Unreachable { url: shown(), why: message })
        }
        Err(failure) => Ok(Err(failure.to_string())),
    }
}

fn first_model(models: &Value) -> Option<String> {
    let listed = models.get("data").or_else(|| models.get("models"))?.as_array()?;
    let id = listed.iter().find_map(|model| model.get("id").or_else(|| model.get("name"))?.as_str())?;
    Some(id.to_string())
}

/// Finds out how requests have to look.
struct First<'a> {
    client: &'a Client,
    address: &'a Address,
    options: &'a LoadOptions,
    body: Body,
    stop: &'a Stop,
}

impl First<'_> {
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
