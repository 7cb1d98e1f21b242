//! What load to put on which server.

use crate::error::LoadError;
use crate::level::{Amount, Level, Plan};
use crate::prompts::PromptSource;
use candlescope_core::RedactedUrl;
use candlescope_work::slo::Slo;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes that a run may hold.
const MEMORY_LIMIT: u64 = 128 << 20;
/// Longest synthetic prompt.
const MOST_PROMPT_TOKENS: u64 = 1 << 22;

/// Which of the API's endpoints gets the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// Chat, if a first request to it succeeds; else completions.
    #[default]
    Auto,
    /// `/v1/chat/completions`, without a try of the other one: refused there, the load does not begin.
    Chat,
    /// `/v1/completions`, which takes a plain text, likewise without a try of the other one.
    Completions,
}

/// A key that is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey(pub(crate) String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn names<S: Serializer>(fields: &Map<String, Value>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(fields.keys())
}

/// What load to put on which server. Serialized for the results: the key is left out and addresses show no
/// credentials.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct LoadOptions {
    pub(crate) url: RedactedUrl,
    pub(crate) endpoint: Endpoint,
    pub(crate) model: Option<String>,
    #[serde(skip)]
    pub(crate) api_key: Option<ApiKey>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) plan: Plan,
    pub(crate) amount: Amount,
    pub(crate) warmup: Option<Amount>,
    pub(crate) prompts: PromptSource,
    pub(crate) seed: u64,
    pub(crate) max_tokens: u64,
    pub(crate) ignore_eos: bool,
    /// A field's value may be a prompt.
    #[serde(serialize_with = "names")]
    pub(crate) extra: Map<String, Value>,
    #[serde(rename = "timeout_s", serialize_with = "crate::level::seconds")]
    pub(crate) timeout: Duration,
    pub(crate) max_in_flight: usize,
    #[serde(rename = "memory_limit_bytes")]
    pub(crate) memory_limit: u64,
    pub(crate) slo: Option<Slo>,
    /// US dollars.
    pub(crate) price_per_hour: Option<f64>,
    pub(crate) metrics: Option<RedactedUrl>,
    pub(crate) keep_prompts: bool,
}

impl LoadOptions {
    /// One client for 30 s with synthetic prompts of 128 tokens and answers of at most 128 tokens, on the server at
    /// `url`.
    pub fn new(url: impl Into<RedactedUrl>) -> Self {
        Self {
            url: url.into(),
            endpoint: Endpoint::Auto,
            model: None,
            api_key: None,
            ca_file: None,
            plan: Plan::Levels(vec![Level::Concurrency(1)]),
            amount: Amount::Seconds(Duration::from_secs(30)),
            warmup: None,
            prompts: PromptSource::Tokens(128),
            // Short enough for every reader of JSON.
            seed: rand::random::<u32>().into(),
            max_tokens: 128,
            ignore_eos: false,
            extra: Map::new(),
            timeout: Duration::from_secs(120),
            max_in_flight: 512,
            memory_limit: MEMORY_LIMIT,
            slo: None,
            price_per_hour: None,
            metrics: None,
            keep_prompts: false,
        }
    }

    /// Which endpoint; without it, the one that answers.
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// The model's name; without it, the first that the server lists.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sent as `Authorization: Bearer`, and shown nowhere.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(ApiKey(key.into()));
        self
    }

    /// Certificates, in PEM, of authorities that are trusted in place of the public ones.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// A stage for each of these levels.
    pub fn levels(mut self, levels: impl IntoIterator<Item = Level>) -> Self {
        self.plan = Plan::Levels(levels.into_iter().collect());
        self
    }

    /// Stages until the server is saturated: see [`Plan::Sweep`].
    pub fn sweep(mut self) -> Self {
        self.plan = Plan::Sweep;
        self
    }

    /// How long each stage is measured.
    pub fn amount(mut self, amount: Amount) -> Self {
        self.amount = amount;
        self
    }

    /// How long each stage warms up; without it, until the first requests have ended: two for each client, or ten at a
    /// given rate.
    pub fn warmup(mut self, amount: Amount) -> Self {
        self.warmup = Some(amount);
        self
    }

    /// Where prompts come from.
    pub fn prompts(mut self, prompts: PromptSource) -> Self {
        self.prompts = prompts;
        self
    }

    /// Seed of the prompts and of the times at which requests arrive. Without it, one that [`Self::new`] draws: a server
    /// that caches prefixes answers prompts that it has seen faster.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Most tokens of an answer.
    pub fn max_tokens(mut self, tokens: u64) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// Asks the server to go on past the model's end token, so that answers have the same length. An extension that
    /// most servers know, and that OpenAI's refuses.
    pub fn ignore_eos(mut self, on: bool) -> Self {
        self.ignore_eos = on;
        self
    }

    /// Further fields of each request. Null removes one that is sent otherwise. Results have only their names.
    pub fn extra(mut self, fields: Map<String, Value>) -> Self {
        self.extra = fields;
        self
    }

    /// The longest that a request may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Most requests under way at once, at a given rate; further ones wait here, which counts in the latency from
    /// their planned arrival.
    pub fn max_in_flight(mut self, most: usize) -> Self {
        self.max_in_flight = most;
        self
    }

    /// Bytes of times and records that the run may hold, 128 MiB by default: some 16 million chunks, or half a million
    /// requests. A run that needs more ends, and what it has by then is returned. Figures take up to four times as much
    /// for a moment, and the file of results up to twice.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = bytes;
        self
    }

    /// Limits that a request has to keep all of to count as goodput; without them there is no goodput.
    pub fn slo(mut self, slo: Slo) -> Self {
        self.slo = Some(slo);
        self
    }

    /// What the server costs in US dollars an hour, for the cost of a million output tokens; a price that is negative or no
    /// number counts as none.
    pub fn price_per_hour(mut self, usd: Option<f64>) -> Self {
        self.price_per_hour = usd;
        self
    }

    /// Where the server shows its metrics; without it, `/metrics` at the same address is tried.
    pub fn metrics(mut self, url: impl Into<RedactedUrl>) -> Self {
        self.metrics = Some(url.into());
        self
    }

    /// Keeps prompts' texts in the results.
    pub fn keep_prompts(mut self, on: bool) -> Self {
        self.keep_prompts = on;
        self
    }

    /// The warm-up of a stage.
    pub(crate) fn warmup_of(&self, level: Level) -> Amount {
        self.warmup.unwrap_or(match level {
            Level::Concurrency(clients) => Amount::Requests(u64::from(clients) * 2),
            Level::Rate(_) => Amount::Requests(10),
        })
    }

    /// Refuses what cannot be followed.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Option(text));
        let Plan::Levels(levels) = &self.plan else { return self.check_rest() };
        if levels.is_empty() {
            return wrong("no level of load: give a concurrency, a rate, or a sweep".to_string());
        }
        for level in levels {
            match level {
                Level::Concurrency(n) if !(1..=100_000).contains(n) => {
                    return wrong(format!("a concurrency of {n} is not possible: give 1 to 100,000 clients"));
                }
                Level::Rate(r) if !(r.is_finite() && (0.001..=100_000.0).contains(r)) => {
                    return wrong(format!("a rate of {r} is not possible: give 0.001 to 100,000 requests a second"));
                }
                _ => {}
            }
        }
        self.check_rest()
    }

    fn check_rest(&self) -> Result<(), LoadError> {
        let wrong = |text: &str| Err(LoadError::Option(text.to_string()));
        match self.amount {
            Amount::Requests(0) => return wrong("a stage needs at least one request"),
            Amount::Seconds(time) if time.is_zero() => return wrong("a stage needs a time above zero"),
            _ => {}
        }
        if self.max_tokens == 0 {
            return wrong("answers need at least one token");
        }
        if self.timeout.is_zero() || self.max_in_flight == 0 {
            return wrong("the time limit of requests and the number of those under way must be above zero");
        }
        match self.prompts {
            PromptSource::Tokens(0) => return wrong("a synthetic prompt needs at least one token"),
            PromptSource::Tokens(n) if n > MOST_PROMPT_TOKENS => {
                return Err(LoadError::Option(format!(
                    "a synthetic prompt of {n} tokens is not possible: give at most {MOST_PROMPT_TOKENS}"
                )));
            }
            _ => {}
        }
        Ok(())
    }
}
