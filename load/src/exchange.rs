//! One request and its answer, with the times at which its parts arrive.

use crate::answer::Answer;
use crate::budget::{Budget, Share};
use crate::chunk::error_text;
use crate::clock::Clock;
use crate::connect::{Connections, Sender};
use crate::failure::{Failure, FailureKind, cut};
use crate::options::ApiKey;
use crate::record::{RequestRecord, TokensBy};
use candlescope_core::RedactedUrl;
use candlescope_core::redacted_url::scrub;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, SERVER, USER_AGENT};
use hyper::{Method, Request, Response};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// Most of an answer with an error's status that is read.
const MOST_ERROR: usize = 64 << 10;

/// Longest answer to a question about the server itself.
pub(crate) const MOST_PLAIN: usize = 4 << 20;

/// After the end of an answer, a connection that does not end its body within this time is not used again.
const TAIL: Duration = Duration::from_millis(200);

/// A connection that was open before and ends within this time, without an answer, had been closed by the server before
/// the request came; one that ends later was closed because of the request. Longer than any way there and back.
const STALE: Duration = Duration::from_secs(1);

/// Sends requests to one server.
pub(crate) struct Client {
    pub(crate) clock: Clock,
    /// What the run may hold.
    pub(crate) budget: Budget,
    connections: Connections,
    authority: HeaderValue,
    authorization: Option<HeaderValue>,
    url: RedactedUrl,
    key: Option<ApiKey>,
    /// When something of an answer arrived last, in nanoseconds since the run began; 0 before that.
    heard: AtomicU64,
}

/// A whole answer that is no stream.
pub(crate) struct WholeAnswer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The header `Server`.
    pub(crate) server: Option<String>,
}

impl Client {
    pub(crate) fn new(
        clock: Clock,
        budget: Budget,
        connections: Connections,
        authority: &str,
        url: RedactedUrl,
        key: Option<ApiKey>,
    ) -> Result<Self, String> {
        let authorization = key.as_ref().map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.0))
                .map_err(|_| "the API key has characters that no header can have".to_string())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let authority = HeaderValue::from_str(authority).map_err(|e| e.to_string())?;
        let (authorization, heard) = (authorization.transpose()?, AtomicU64::new(0));
        Ok(Self { clock, budget, connections, authority, authorization, url, key, heard })
    }

    /// When something of any answer to a request arrived last, in nanoseconds since the run began; 0 before that.
    pub(crate) fn heard_at(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    /// Something of an answer is there: the time since its request's start.
    fn hear(&self, start: u64) -> u64 {
        let now = self.clock.now();
        self.heard.fetch_max(now, Ordering::Relaxed);
        now - start
    }

    /// `text` of a server or a library without credentials.
    pub(crate) fn scrub(&self, text: &str) -> String {
        scrub(&self.url.scrub(text), self.key.iter().map(|key| key.0.as_str()))
    }

    /// The same of every text in `value`.
    pub(crate) fn scrub_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.scrub(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.scrub_json(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(key, item)| (self.scrub(&key), self.scrub_json(item))).collect())
            }
            other => other,
        }
    }

    /// As much of what a server or a library says as is kept, without credentials.
    pub(crate) fn told(&self, text: &str) -> String {
        cut(self.scrub(text))
    }

    fn failure(&self, kind: FailureKind, text: &str) -> Failure {
        Failure::new(kind, self.told(text))
    }

    fn request(&self, method: Method, target: &str, body: Vec<u8>) -> Result<Request<Full<Bytes>>, Failure> {
        let has_body = method == Method::POST;
        let mut request = Request::builder().method(method).uri(target).header(HOST, &self.authority);
        request = request.header(USER_AGENT, concat!("candlescope/", env!("CARGO_PKG_VERSION")));
        if has_body {
            request = request.header(CONTENT_TYPE, "application/json");
            request = request.header(ACCEPT, "text/event-stream, application/json");
        }
        if let Some(key) = &self.authorization {
            request = request.header(AUTHORIZATION, key);
        }
        request
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| Failure::new(FailureKind::Malformed, format!("the request cannot be sent: {e}")))
    }

    /// Sends one request and fills `record`; ends at the time limit, or when `cancel` becomes true. What had arrived
    /// by then is kept.
    pub(crate) async fn exchange(
        &self,
        target: &str,
        body: Vec<u8>,
        timeout: Duration,
        cancel: &mut watch::Receiver<Option<FailureKind>>,
        record: &mut RequestRecord,
    ) {
        let mut answer = None;
        let mut share = Share::of(&self.budget);
        let outcome = tokio::select! {
            biased;
            outcome = self.receive(target, body, record, &mut answer, &mut share) => outcome,
            kind = cancelled(cancel) => Err(Failure::new(kind, match kind {
                FailureKind::Unfinished => "it had not ended when the stage did",
                _ => "the load was ended",
            })),
            () = tokio::time::sleep(timeout) => {
                Err(Failure::new(FailureKind::Timeout, format!("not done after {} s", timeout.as_secs_f64())))
            }
        };
        if record.end_ns == 0 {
            record.end_ns = self.clock.now() - record.start_ns;
        }
        record.failure = outcome.err().map(|failure| self.failure(failure.kind, &failure.message));
        if let Some(answer) = answer {
            keep(answer, record);
            record.finish = record.finish.take().map(|finish| self.told(&finish));
            record.shorten();
        }
    }

    async fn receive(
        &self,
        target: &str,
        body: Vec<u8>,
        record: &mut RequestRecord,
        answer: &mut Option<Answer>,
        share: &mut Share<'_>,
    ) -> Result<(), Failure> {
        let request = self.request(Method::POST, target, body)?;
        let (response, sender) = self.send(request, record).await?;
        record.head_ns = Some(self.hear(record.start_ns));
        let status = response.status();
        record.status = Some(status.as_u16());
        if !status.is_success() {
            let body = limited(response.into_body(), MOST_ERROR).await.unwrap_or_default();
            return Err(Failure::new(FailureKind::Status(status.as_u16()), error_text(&body)));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let answer = answer.insert(Answer::new(kind));
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Failure::new(FailureKind::HungUp, with_cause(&e)))?;
            let at = self.hear(record.start_ns);
            let Ok(bytes) = frame.into_data() else { continue };
            answer.feed(&bytes, at)?;
            if !share.set(answer.held()) {
                return Err(Failure::new(FailureKind::Cancelled, "the load holds as much as it may"));
            }
            if answer.state().done {
                record.end_ns = at;
                break;
            }
        }
        if record.end_ns == 0 {
            record.end_ns = self.clock.now() - record.start_ns;
        }
        answer.end()?;
        let rest = async { while body.frame().await.is_some_and(|frame| frame.is_ok()) {} };
        if tokio::time::timeout(TAIL, rest).await.is_ok() {
            self.connections.keep(sender);
        }
        Ok(())
    }

    /// Sends a request on an idle connection, or on a new one. A server may close an idle connection just before a
    /// request comes (llama.cpp's does so after each stream, without announcing it): then the request is sent once
    /// more, on a new connection, as other clients do.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        record: &mut RequestRecord,
    ) -> Result<(Response<Incoming>, Sender), Failure> {
        while let Some(mut sender) = self.connections.idle().await {
            let sent = self.clock.now();
            match sender.try_send_request(request.clone()).await {
                Ok(response) => return Ok((response, sender)),
                // The server has seen nothing of it.
                Err(error) if error.message().is_some() => {}
                Err(error) if was_closed(error.error()) && self.clock.now() - sent < STALE.as_nanos() as u64 => {
                    record.sent_again = true;
                    break;
                }
                Err(error) => return Err(Failure::new(FailureKind::HungUp, with_cause(error.error()))),
            }
        }
        let mut sender = self.connections.open().await?;
        record.connect_ns = Some(self.clock.now() - record.start_ns);
        let sent = sender.send_request(request).await;
        sent.map(|response| (response, sender)).map_err(|e| Failure::new(FailureKind::HungUp, with_cause(&e)))
    }

    /// Asks for something that is no completion.
    pub(crate) async fn get(&self, target: &str, timeout: Duration) -> Result<WholeAnswer, Failure> {
        let asked = async {
            let request = self.request(Method::GET, target, Vec::new())?;
            let mut sender = self.connections.open().await?;
            let sent = sender.send_request(request).await;
            let response = sent.map_err(|e| Failure::new(FailureKind::HungUp, with_cause(&e)))?;
            let status = response.status().as_u16();
            let server = response.headers().get(SERVER).and_then(|v| v.to_str().ok()).map(|text| self.scrub(text));
            let body = limited(response.into_body(), MOST_PLAIN).await;
            let body = body.map_err(|e| Failure::new(FailureKind::HungUp, e))?;
            Ok(WholeAnswer { status, body, server })
        };
        let late = || Failure::new(FailureKind::Timeout, format!("no answer within {} s", timeout.as_secs_f64()));
        let outcome = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(late()));
        outcome.map_err(|failure: Failure| self.failure(failure.kind, &failure.message))
    }
}

/// Waits until the load is ended, and returns why.
async fn cancelled(cancel: &mut watch::Receiver<Option<FailureKind>>) -> FailureKind {
    let ended = cancel.wait_for(Option::is_some).await.map(|kind| *kind);
    match ended {
        Ok(kind) => kind.unwrap_or(FailureKind::Cancelled),
        // Nobody can end it any more.
        Err(_) => std::future::pending().await,
    }
}

/// Moves what an answer held into the record.
fn keep(answer: Answer, record: &mut RequestRecord) {
    let state = answer.into_state();
    let usage = state.usage.unwrap_or_default();
    let chunks = state.token_ns.len() as u64;
    record.streamed = state.streamed;
    record.prompt_tokens = usage.prompt_tokens;
    record.cached_tokens = usage.cached_tokens;
    (record.output_tokens, record.output_tokens_by) = match usage.completion_tokens {
        Some(tokens) => (Some(tokens), Some(TokensBy::Usage)),
        None if state.streamed => (Some(chunks), Some(TokensBy::Chunks)),
        None => (None, None),
    };
    record.finish = state.finish;
    record.token_ns = state.token_ns;
}

/// A body up to a limit; the rest is not read.
async fn limited(mut body: Incoming, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|e| with_cause(&e))?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > most {
            bytes.truncate(most);
            break;
        }
    }
    Ok(bytes)
}

/// Whether the connection ended, rather than brought something that is no answer.
fn was_closed(error: &hyper::Error) -> bool {
    let by_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    by_io || error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

/// An error of the HTTP library with what caused it.
fn with_cause(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
