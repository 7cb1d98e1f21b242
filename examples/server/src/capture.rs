//! Captures the next steps as a run on demand, while the server goes on: `POST /debug/capture?steps=N` with the token,
//! or SIGUSR1.

use crate::error::{ApiError, UNOBSERVED};
use crate::shelf::Shelf;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use candlescope::Handle;
use candlescope::error::CaptureError;
use candlescope::parquet::{ParquetConfig, ParquetExporter};
use candlescope::run::RunManifest;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// Steps that one capture may have.
pub(crate) const MOST_STEPS: u64 = 100_000;

/// Longest that a client waits for a capture. Less where requests have less time, as every answer has to begin within that.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

pub(crate) struct Captures {
    handle: Option<Handle>,
    shelf: Shelf,
    token: Option<String>,
    longest: Duration,
    number: AtomicU64,
    /// The number and state of the latest capture.
    latest: Mutex<(u64, Value)>,
    /// Notified when the server stops, so that no client waits for steps that never come.
    stopping: tokio::sync::Notify,
}

impl Captures {
    /// `longest` is the time that requests have.
    pub(crate) fn new(handle: Option<Handle>, shelf: Shelf, token: Option<String>, longest: Duration) -> Self {
        let latest = Mutex::new((0, json!({ "state": "none" })));
        let longest = longest.min(LONGEST_WAIT);
        Self { handle, shelf, token, longest, number: AtomicU64::new(0), latest, stopping: tokio::sync::Notify::new() }
    }

    /// Begins a capture; `done` is called when it is written.
    fn begin(self: &Arc<Self>, steps: u64, done: impl FnOnce(Value) + Send + 'static) -> Result<Value, ApiError> {
        let handle = self.handle.as_ref().ok_or_else(|| {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, UNOBSERVED, "the server was started with --unobserved")
        })?;
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis());
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let run = self.shelf.dir.join(format!("capture-{millis}-{number}"));
        let full = |message| ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "captures_full", message);
        // If a capture grows beyond this, its oldest intervals are deleted, and its verdict says so.
        let config = ParquetConfig::new(&run).disk_budget(self.shelf.room().map_err(full)?);
        let capture = handle.capture(ParquetExporter::new(config), steps).map_err(|error| match &error {
            CaptureError::Busy(_) => ApiError::new(StatusCode::CONFLICT, "capture_under_way", error.to_string()),
            CaptureError::NoSteps => ApiError::invalid(error.to_string()),
            _ => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "capture_failed", error.to_string()),
        })?;
        let (first, end) = (capture.steps().start, capture.steps().end);
        let begun = json!({ "state": "running", "run": run, "first_step": first, "steps": end - first });
        self.note(number, &begun);
        let this = self.clone();
        let spawned = std::thread::Builder::new().name("capture".into()).spawn(move || {
            let manifest = capture.wait(Duration::MAX);
            let result = manifest.map_or_else(|| json!({ "state": "lost", "run": run }), |m| result(&run, &m));
            eprintln!("captured: {result}");
            this.note(number, &result);
            done(result);
        });
        // The capture goes on by itself, but nothing will report when it is done.
        if let Err(error) = spawned {
            eprintln!("the capture into {} is not watched: {error}", self.shelf.dir.display());
        }
        Ok(begun)
    }

    /// Releases clients that wait for a capture. What was captured is written when the session ends.
    pub(crate) fn stop(&self) {
        self.stopping.notify_waiters();
    }

    /// The state of the later of two captures is kept, whichever is reported last.
    fn note(&self, number: u64, state: &Value) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if number >= latest.0 {
            *latest = (number, state.clone());
        }
    }

    fn allow(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let token = self.token.as_ref().filter(|t| !t.is_empty()).ok_or_else(|| {
            let message = "captures over HTTP are off: start the server with --capture-token";
            ApiError::new(StatusCode::FORBIDDEN, "capture_off", message)
        })?;
        let given = headers.get(header::AUTHORIZATION).and_then(|h| h.as_bytes().strip_prefix(b"Bearer "));
        // In constant time, so that the duration of the comparison reveals nothing about the token.
        if given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes()))) {
            return Ok(());
        }
        let message = "captures need the header `Authorization: Bearer TOKEN`, with the server's --capture-token";
        Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message))
    }
}

fn result(run: &Path, manifest: &RunManifest) -> Value {
    json!({
        "state": "written",
        "run": run,
        "steps": manifest.counts.get("steps"),
        "intervals": manifest.counts.get("spans"),
        "ok": manifest.verdict.ok,
        "findings": manifest.verdict.findings,
    })
}

pub(crate) fn router(captures: Arc<Captures>) -> Router {
    Router::new().route("/debug/capture", post(capture).get(latest)).with_state(captures)
}

#[derive(Debug, Deserialize)]
struct CaptureQuery {
    steps: u64,
    /// Respond when the run is written instead of at once.
    #[serde(default)]
    wait: bool,
}

async fn capture(
    State(captures): State<Arc<Captures>>,
    headers: HeaderMap,
    query: Result<Query<CaptureQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, ApiError> {
    captures.allow(&headers)?;
    let Query(CaptureQuery { steps, wait }) =
        query.map_err(|e| ApiError::invalid(format!("{}; write ?steps=50 or ?steps=50&wait=true", e.body_text())))?;
    if !(1..=MOST_STEPS).contains(&steps) {
        return Err(ApiError::invalid(format!("steps must be from 1 to {MOST_STEPS}, not {steps}")));
    }
    let (done, written) = tokio::sync::oneshot::channel();
    // Opening files and waiting for the recorder of kernels would block the runtime's threads.
    let (stopping, until) = (captures.clone(), tokio::time::Instant::now() + captures.longest);
    let stopping = stopping.stopping.notified();
    let begun = tokio::task::spawn_blocking(move || captures.begin(steps, |result| _ = done.send(result)))
        .await
        .map_err(|e| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "capture_failed", e.to_string()))??;
    if !wait {
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    tokio::select! {
        Ok(result) = written => Ok(Json(result).into_response()),
        () = stopping => Ok((StatusCode::ACCEPTED, Json(begun)).into_response()),
        () = tokio::time::sleep_until(until) => Ok((StatusCode::ACCEPTED, Json(begun)).into_response()),
    }
}

async fn latest(State(captures): State<Arc<Captures>>, headers: HeaderMap) -> Result<Json<Value>, ApiError> {
    captures.allow(&headers)?;
    let latest = captures.latest.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Json(latest.1.clone()))
}

/// Captures `steps` steps at every SIGUSR1. This needs no token, because only authorised users can send the signal.
/// Called within the runtime and before the model loads, because until then the signal ends the process.
pub(crate) fn at_signal(captures: Arc<Captures>, steps: u64) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut signals = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1())?;
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let captures = captures.clone();
                let begun = tokio::task::spawn_blocking(move || captures.begin(steps, |_| ())).await;
                match begun {
                    Ok(Ok(begun)) => eprintln!("capturing: {begun}"),
                    Ok(Err(error)) => eprintln!("no capture: {}", error.message),
                    Err(error) => eprintln!("no capture: {error}"),
                }
            }
        });
    }
    Ok(())
}
