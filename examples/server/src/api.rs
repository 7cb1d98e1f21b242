//! The part of OpenAI's API that clients need: completions and chat, whole or streamed.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::job::{Event, Failure, Job, Prompt, Usage};
use crate::queue::QueueError;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use candlescope::Outcome;
use candlescope::llm::Request;
use candlescope_models::chat::Message;
use candlescope_models::{FinishReason, GenerateOptions, SamplingOptions};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::Instant;

struct Api {
    engine: Arc<Engine>,
    most_tokens: usize,
    /// Longest time from a request's arrival to the end of its response.
    longest: Duration,
    answered: AtomicU64,
}

pub(crate) fn router(engine: Arc<Engine>, most_tokens: usize, longest: Duration) -> Router {
    let api = Arc::new(Api { engine, most_tokens, longest, answered: AtomicU64::new(0) });
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/healthz", get(async || "ok\n"))
        // Where clients of other servers look.
        .route("/health", get(async || "ok\n"))
        .with_state(api)
}

/// The fields that both kinds of request have. Unknown fields are ignored, as OpenAI's servers do.
#[derive(Debug, Deserialize)]
struct Common {
    model: Option<String>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    seed: Option<u64>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    stop: Option<Value>,
    /// Goes on past the model's end tokens: an extension, for loads with a given number of tokens.
    #[serde(default)]
    ignore_eos: bool,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct CompletionRequest {
    prompt: PromptField,
    #[serde(flatten)]
    common: Common,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PromptField {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(flatten)]
    common: Common,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: String,
}

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Completion,
    Chat,
}

impl Kind {
    const fn operation(self) -> &'static str {
        match self {
            Kind::Completion => "text_completion",
            Kind::Chat => "chat",
        }
    }

    /// One choice of a response: whole, or a `chunk` of a stream.
    fn choice(self, text: &str, finish: Option<&str>, chunk: bool) -> Value {
        match (self, chunk) {
            (Kind::Completion, _) => json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": finish }),
            (Kind::Chat, true) if finish.is_some() => json!({ "index": 0, "delta": {}, "finish_reason": finish }),
            (Kind::Chat, true) => {
                json!({ "index": 0, "delta": { "role": "assistant", "content": text }, "finish_reason": null })
            }
            (Kind::Chat, false) => {
                json!({ "index": 0, "message": { "role": "assistant", "content": text }, "finish_reason": finish })
            }
        }
    }
}

async fn models(State(api): State<Arc<Api>>) -> Json<Value> {
    let model = json!({ "id": api.engine.model.name, "object": "model", "created": 0, "owned_by": "candle" });
    Json(json!({ "object": "list", "data": [model] }))
}

async fn completions(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Result<Json<CompletionRequest>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(CompletionRequest { prompt, common }) = body.map_err(|e| malformed(&e))?;
    let prompt = match prompt {
        PromptField::Text(text) => Prompt::Text(text),
        PromptField::Tokens(tokens) => Prompt::Tokens(tokens),
        PromptField::Texts(mut texts) if texts.len() == 1 => Prompt::Text(texts.remove(0)),
        PromptField::Texts(texts) => {
            return Err(ApiError::invalid(format!("{} prompts in one request: send them one by one", texts.len())));
        }
    };
    respond(&api, &headers, Kind::Completion, prompt, &common).await
}

async fn chat(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    body: Result<Json<ChatRequest>, JsonRejection>,
) -> Result<Response, ApiError> {
    let Json(ChatRequest { messages, common }) = body.map_err(|e| malformed(&e))?;
    if !api.engine.model.chats {
        let message = format!("{} has no chat template: use /v1/completions", api.engine.model.name);
        return Err(ApiError::invalid(message));
    }
    let messages = messages.iter().map(|m| Message::new(&m.role, &m.content)).collect();
    respond(&api, &headers, Kind::Chat, Prompt::Chat(messages), &common).await
}

async fn respond(
    api: &Arc<Api>,
    headers: &HeaderMap,
    kind: Kind,
    prompt: Prompt,
    common: &Common,
) -> Result<Response, ApiError> {
    let options = options(api, kind, common)?;
    let model = &api.engine.model.name;
    // One event a token, a last piece of text, and one that ends it.
    let (events, receive) = mpsc::channel(options.max_new_tokens + 2);
    let mut receive = Events { receive, end: Instant::now() + api.longest, longest: api.longest };
    let job = || {
        let mut request = Request::new(kind.operation(), model);
        // A client that leaves while its request waits removes it from the queue.
        request.outcome(Outcome::Cancelled);
        if let Some(caller) = headers.get("traceparent").and_then(|h| h.to_str().ok()) {
            request = request.traceparent(caller);
        }
        Job { request, prompt, options, events }
    };
    // Held until there is an event: if the client leaves, its request is removed from the queue.
    let _waiting = api.engine.submit(job).map_err(refused)?;
    let number = api.answered.fetch_add(1, Ordering::Relaxed);
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let answer = Answer { kind, id: format!("{}-{created}-{number}", kind.operation()), created, model: model.clone() };
    if !common.stream {
        return whole(&answer, receive).await;
    }
    // The first event decides the status: a prompt that cannot be processed is the client's error.
    let first = match receive.next().await {
        Some(Event::Failed(failure)) => return Err(failed(failure)),
        Some(event) => event,
        None => return Err(cut_off()),
    };
    let usage = common.stream_options.as_ref().is_some_and(|o| o.include_usage);
    let rest = stream::unfold(receive, async |mut receive| Some((receive.next().await?, receive)));
    let events = stream::once(async { first }).chain(rest);
    let data = events.flat_map(move |event| stream::iter(answer.chunks(event, usage)));
    Ok(Sse::new(data.map(|data| Ok::<_, Infallible>(sse::Event::default().data(data)))).into_response())
}

/// The events of a request, up to its time limit. Dropping this ends the request at the next token.
struct Events {
    receive: mpsc::Receiver<Event>,
    end: Instant,
    longest: Duration,
}

impl Events {
    async fn next(&mut self) -> Option<Event> {
        if self.receive.is_closed() && self.receive.is_empty() {
            return None;
        }
        tokio::time::timeout_at(self.end, self.receive.recv()).await.unwrap_or_else(|_| {
            // No more events are needed: the model is free at the next token.
            self.receive.close();
            while self.receive.try_recv().is_ok() {}
            Some(Event::Failed(Failure::Late(self.longest)))
        })
    }
}

fn refused(why: QueueError) -> ApiError {
    match why {
        QueueError::Full(waiting) => ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            format!("{waiting} requests are waiting already; try again later"),
        ),
        QueueError::Stopping => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is stopping"),
    }
}

fn failed(failure: Failure) -> ApiError {
    match failure {
        Failure::Request(message) => ApiError::invalid(message),
        Failure::Model(message) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "model_failed", message),
        Failure::Late(longest) => {
            let message = format!(
                "the request took longer than {} s, the server's --request-seconds: ask for fewer tokens, or try again when fewer \
                 requests wait",
                longest.as_secs_f64()
            );
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "request_timeout", message)
        }
    }
}

/// OpenAI's servers answer 400 to a body of the wrong shape. One that is too large, or of another type, has its own
/// status.
fn malformed(body: &JsonRejection) -> ApiError {
    let error = ApiError::invalid(body.body_text());
    match body.status() {
        status @ (StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE) => ApiError { status, ..error },
        _ => error,
    }
}

fn cut_off() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server stopped before the answer was whole")
}

fn options(api: &Api, kind: Kind, common: &Common) -> Result<GenerateOptions, ApiError> {
    let model = &api.engine.model.name;
    if let Some(other) = common.model.as_ref().filter(|other| *other != model) {
        let message = format!("the model `{other}` is not available; this server has `{model}`");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message));
    }
    if common.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("`n` must be 1: send a request for each choice"));
    }
    // No text to stop at is what OpenAI's servers take null and an empty list for, which clients send for "none".
    let stops = |stop: &Value| !stop.is_null() && stop.as_array().is_none_or(|texts| !texts.is_empty());
    if common.stop.as_ref().is_some_and(stops) {
        return Err(ApiError::invalid(
            "`stop` is not supported: answers end at the model's end token or at max_tokens",
        ));
    }
    // OpenAI's default for completions is 16; chats have none, so they get a limit of our own.
    let default = if kind == Kind::Chat { 256 } else { 16 };
    let max_new_tokens = common.max_completion_tokens.or(common.max_tokens).unwrap_or(default.min(api.most_tokens));
    if !(1..=api.most_tokens).contains(&max_new_tokens) {
        let message = format!("max_tokens must be from 1 to {}, not {max_new_tokens}", api.most_tokens);
        return Err(ApiError::invalid(message));
    }
    let temperature = common.temperature.unwrap_or(1.0);
    let sampling = SamplingOptions {
        temperature: (temperature != 0.0).then_some(temperature),
        top_p: common.top_p,
        ..SamplingOptions::default()
    };
    sampling.check().map_err(ApiError::invalid)?;
    Ok(GenerateOptions {
        max_new_tokens,
        sampling,
        seed: common.seed.unwrap_or_else(|| api.answered.load(Ordering::Relaxed)),
        ignore_eos: common.ignore_eos,
        operation: kind.operation().into(),
        ..GenerateOptions::default()
    })
}

async fn whole(answer: &Answer, mut events: Events) -> Result<Response, ApiError> {
    let mut text = String::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Token(piece) => text.push_str(&piece),
            Event::Failed(failure) => return Err(failed(failure)),
            Event::Done(Usage { finish: FinishReason::Cancelled, .. }) => break,
            Event::Done(usage) => {
                let choice = answer.kind.choice(&text, Some(finish(usage.finish)), false);
                return Ok(Json(answer.object(&[choice], Some(usage), false)).into_response());
            }
        }
    }
    Err(cut_off())
}

const fn finish(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        _ => "length",
    }
}

struct Answer {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
}

impl Answer {
    fn object(&self, choices: &[Value], usage: Option<Usage>, chunk: bool) -> Value {
        let object = match (self.kind, chunk) {
            (Kind::Completion, _) => "text_completion",
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
        };
        let usage = usage.map(|u| {
            json!({
                "prompt_tokens": u.prompt_tokens,
                "prompt_tokens_details": { "cached_tokens": u.cached_tokens },
                "completion_tokens": u.completion_tokens,
                "total_tokens": u.prompt_tokens + u.completion_tokens,
            })
        });
        let (id, created, model) = (&self.id, self.created, &self.model);
        let mut answer = json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }

    /// The chunks that one event adds to a stream.
    fn chunks(&self, event: Event, with_usage: bool) -> Vec<String> {
        let chunk = |choice: Value| self.object(&[choice], None, true).to_string();
        match event {
            Event::Token(text) if text.is_empty() => Vec::new(),
            Event::Token(text) => vec![chunk(self.kind.choice(&text, None, true))],
            Event::Failed(failure) => vec![failed(failure).body().to_string()],
            Event::Done(Usage { finish: FinishReason::Cancelled, .. }) => vec![cut_off().body().to_string()],
            Event::Done(usage) => {
                let mut last = vec![chunk(self.kind.choice("", Some(finish(usage.finish)), true))];
                if with_usage {
                    last.push(self.object(&[], Some(usage), true).to_string());
                }
                last.push("[DONE]".to_string());
                last
            }
        }
    }
}
