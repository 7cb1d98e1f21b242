//! Takes connections and answers on them, with limits on everything that a client could exhaust: connections, the time
//! for a request's head, body and response, and the memory for its head and body. hyper reads and writes.

use crate::answer_time::{AnswerTime, Timed};
use crate::connections::{Busy, ConnectionPermit, Connections, Counts};
use crate::error::ApiError;
use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 32 * 1024;

/// Connections that are refused with a response at the same time. Further ones are closed without a response.
const MAX_REFUSALS: usize = 64;

/// Time for a refused connection to send its request, so that the refusal is a response to it.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Time in which the rest of a too large body is still read.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Shortest time between two log lines about refused connections.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Limits on clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Answer only requests whose `Host` names this machine: the address is of this machine only, and a page of somebody
    /// else's that a browser here shows could reach it by a name of its own.
    pub(crate) this_machine_only: bool,
    /// Further names that such requests may have, as a proxy on this machine hands them on.
    pub(crate) other_names: &'static [String],
    /// Connections at once.
    pub(crate) connections: usize,
    /// Time for a request's head, counted from the end of the response before; also the longest time that a connection
    /// may be idle.
    pub(crate) head: Duration,
    /// Time for its body.
    pub(crate) body: Duration,
    /// Size of its body, in bytes.
    pub(crate) body_bytes: usize,
    /// Time in which a client must read something of a response that waits for it.
    pub(crate) write: Duration,
    /// Time from a whole request to the last byte of its response.
    pub(crate) answer: Duration,
    /// Time for connections to end once the server stops.
    pub(crate) stop: Duration,
}

/// Serves until `stop` completes, then finishes the requests under way; returns what became of connections, and whether
/// some had to be abandoned.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> (Counts, bool) {
    let connections = Connections::new(limits.connections);
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let (tell, stopping) = watch::channel(());
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    let mut said: Option<Instant> = None;
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The client left already, or there are no file descriptors: waiting connections stay in the backlog.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        while tasks.try_join_next().is_some() {}
        // Else the system would hold a token back until the client has acknowledged the one before, which takes up to
        // 40 ms. A connection that refuses this has ended.
        let _ = stream.set_nodelay(true);
        if let Some(place) = connections.admit() {
            tasks.spawn(answer(stream, router.clone(), place, limits, stopping.clone()));
            continue;
        }
        if said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            let refused = connections.counts().refused;
            eprintln!(
                "connections are refused ({refused} so far): requests are under way on all {} of --connections",
                limits.connections
            );
            said = Some(Instant::now());
        }
        if let Ok(permit) = refusals.clone().try_acquire_owned() {
            tasks.spawn(async move {
                refuse(stream, limits).await;
                drop(permit);
            });
        }
    }
    drop(listener);
    drop((tell, stopping));
    let ended = tokio::time::timeout(limits.stop, async { while tasks.join_next().await.is_some() {} }).await;
    // The remaining connections end with their tasks.
    tasks.shutdown().await;
    (connections.counts(), ended.is_err())
}

fn builder(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_header_size(MAX_HEAD).max_buf_size(2 * MAX_HEAD);
    builder
}

/// One connection, from its first request to its last.
async fn answer(
    stream: TcpStream,
    router: Router,
    place: Arc<ConnectionPermit>,
    limits: Limits,
    mut stopping: watch::Receiver<()>,
) {
    let mut io = TimeoutStream::new(stream);
    io.set_write_timeout(Some(limits.write));
    let time = AnswerTime::new(limits.answer);
    let io = Timed::new(Box::pin(io), time.clone());
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (mut router, place, time) = (router.clone(), place.clone(), time.clone());
        async move {
            let request = read(request, limits).await;
            time.begin();
            let busy = place.busy();
            let response = match request {
                Ok(request)
                    if limits.this_machine_only && !names_this_machine(request.headers(), limits.other_names) =>
                {
                    let message = "this address is of this machine only, and Host does not name it: --allow-host NAME";
                    last(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message.to_string()))
                }
                Ok(request) => router.call(request).await?,
                Err(error) => last(error),
            };
            Ok::<_, Infallible>(response.map(|body| Body::new(CountedBody { body, time, _busy: busy })))
        }
    });
    let mut connection = pin!(builder(limits.head).serve_connection(TokioIo::new(io), service));
    let mut lost = pin!(place.lost());
    tokio::select! {
        // A client that disconnects is not worth reporting.
        _ = connection.as_mut() => return,
        () = lost.as_mut() => return,
        // Its other end is dropped when the server stops.
        _ = stopping.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Whether there is one `Host`, and it is `localhost`, an address of this machine only, or one of the `others`.
fn names_this_machine(headers: &HeaderMap, others: &[String]) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is_here = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(is_here)
        || others.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// Answers one request with status 503.
async fn refuse(stream: TcpStream, limits: Limits) {
    let service = service_fn(async |_: hyper::Request<Incoming>| {
        let message = format!(
            "requests are under way on all {} connections; try again later, or start the server with more --connections",
            limits.connections
        );
        let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_connection_free", message);
        Ok::<_, Infallible>(last(error))
    });
    let connection = builder(REFUSAL_TIME).keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(2 * REFUSAL_TIME, connection).await;
}

/// A response after which the connection is closed, without reading what else the client sends.
fn last(error: ApiError) -> Response {
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// Reads the body into one buffer: a client may send it in many small pieces, which would take many times its size.
async fn read(request: hyper::Request<Incoming>, limits: Limits) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    let (says, waits) = (body.size_hint().lower(), parts.headers.contains_key(header::EXPECT));
    let mut pieces = Body::new(body).into_data_stream();
    let whole = async {
        let mut bytes = Vec::new();
        if says > limits.body_bytes as u64 {
            return Ok(None);
        }
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| ApiError::invalid("the request's body broke off"))?;
            if piece.len() > limits.body_bytes - bytes.len() {
                return Ok(None);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes))
    };
    let slow = |_| {
        let message = format!("the request's body took longer than {} s to arrive", limits.body.as_secs_f64());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
    };
    if let Some(bytes) = tokio::time::timeout(limits.body, whole).await.map_err(slow)?? {
        return Ok(Request::from_parts(parts, Body::from(bytes)));
    }
    if !waits {
        let _ = tokio::time::timeout(LINGER_TIME, discard(&mut pieces, limits.body_bytes)).await;
    }
    let message = format!("the request's body is larger than {} bytes", limits.body_bytes);
    Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message))
}

/// Reads as much again and discards it: if the connection were closed while the client still sends, the client's system
/// would discard the response.
async fn discard(pieces: &mut BodyDataStream, most: usize) {
    let mut left = 2 * most;
    while let Some(Ok(piece)) = pieces.next().await {
        let Some(less) = left.checked_sub(piece.len()) else { return };
        left = less;
    }
}

/// A response's body: its request counts as under way until this is sent.
struct CountedBody {
    body: Body,
    time: Arc<AnswerTime>,
    _busy: Busy,
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.time.end();
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
