//! Takes connections and answers on them, with limits on everything that a client could exhaust: connections, the time
//! for a request's head, body and response, and the memory for its head and body. hyper reads and writes.

use crate::answer_time::{AnswerTime, TimedStream};
use crate::connections::{ConnectionPermit, Connections, Counts, RequestPermit};
use crate::error::ApiError;
use crate::shared_stream::SharedStream;
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
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 32 * 1024;

/// Time in which the rest of what a client sends is still read, once it gets no more responses.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Time between two looks for connections that may be closed, while there are too many.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Limits on clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Answer only requests whose `Host` names this machine: the address is of this machine only, and a page of somebody
    /// else's that a browser here shows could reach it by a name of its own.
    pub(crate) this_machine_only: bool,
    /// Further names that such requests may have, as a proxy on this machine hands them on.
    pub(crate) other_names: &'static [String],
    /// Requests under way at once, and connections that stay open.
    pub(crate) connections: usize,
    /// Connections beyond these that may be open for a moment.
    pub(crate) momentary: usize,
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
    let connections = Connections::new(limits.connections, limits.connections.saturating_add(limits.momentary));
    let (tell, stopping) = watch::channel(());
    let mut tasks = JoinSet::new();
    let mut stop = pin!(stop);
    let mut look = tokio::time::interval(LOOK_AGAIN);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Further connections wait in the system's backlog.
        let has_room = connections.has_room();
        let stream = tokio::select! {
            accepted = listener.accept(), if has_room => match accepted {
                Ok((stream, _)) => stream,
                // The client left already, or there are no file descriptors: waiting connections stay in the backlog.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
            () = connections.one_has_ended(), if !has_room => continue,
            _ = look.tick(), if connections.are_too_many() => {
                connections.make_room(Instant::now());
                continue;
            }
            () = &mut stop => break,
        };
        while tasks.try_join_next().is_some() {}
        // Else the system would hold a token back until the client has acknowledged the one before, which takes up to
        // 40 ms. A connection that refuses this has ended.
        let _ = stream.set_nodelay(true);
        let place = connections.admit(Instant::now());
        tasks.spawn(answer(stream, router.clone(), place, limits, stopping.clone()));
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
    let stream = SharedStream::new(stream);
    let mut io = TimeoutStream::new(stream.clone());
    io.set_write_timeout(Some(limits.write));
    let time = AnswerTime::new(limits.answer);
    let heard = {
        let place = place.clone();
        move || place.heard(Instant::now())
    };
    let io = TimedStream::new(Box::pin(io), time.clone(), heard);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (mut router, place, time) = (router.clone(), place.clone(), time.clone());
        async move {
            let permit = place.request(Instant::now());
            let request = match &permit {
                Some(permit) => read(request, permit, limits).await,
                // Its body is not read: that takes memory.
                None => Err(no_connection_free(place.connections(), limits)),
            };
            time.begin();
            if let Some(permit) = &permit {
                permit.is_whole();
            }
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
            Ok::<_, Infallible>(response.map(|body| Body::new(CountedBody { body, time, _permit: permit })))
        }
    });
    let mut connection = builder(limits.head).serve_connection(TokioIo::new(io), service);
    let mut left = pin!(stream.is_left(&time));
    let ended = loop {
        tokio::select! {
            // What has arrived is looked at before the connection leaves.
            biased;
            ended = &mut connection => break Some(ended),
            () = place.told_to_leave() => {
                if place.leaves(time.is_unsent()) {
                    return;
                }
            }
            // Nobody waits for what is under way.
            () = &mut left => return,
            // Its other end is dropped when the server stops.
            _ = stopping.changed() => break None,
        }
    };
    match ended {
        // A client that disconnects is not worth reporting.
        Some(Err(error)) if !error.is_parse() => {}
        Some(_) => linger(connection.into_parts().io.into_inner(), limits.body_bytes).await,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Reads and discards what a client still sends after the last response: if the connection were closed with some of it
/// unread, the client's system would discard the response. The client knows that this is the end, because writing has
/// been shut down, and closes its side.
async fn linger(mut stream: impl AsyncRead + Unpin, body_bytes: usize) {
    let discarded = async {
        let (mut buffer, mut left) = (vec![0u8; 4096], 2 * body_bytes);
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            let Some(less) = left.checked_sub(read) else { return };
            left = less;
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME, discarded).await;
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

/// The refusal of a request because others are under way on as many connections as there may be; the log says so now
/// and then.
fn no_connection_free(connections: &Connections, limits: Limits) -> ApiError {
    let most = limits.connections;
    if let Some(refused) = connections.refused_to_say(Instant::now()) {
        eprintln!("requests are refused ({refused} so far): others are under way on all {most} of --connections");
    }
    let message = format!(
        "requests are under way on all {most} connections; try again later, or start the server with more --connections"
    );
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no_connection_free", message)
}

/// A response after which the connection is closed, without reading what else the client sends.
fn last(error: ApiError) -> Response {
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// Reads the body into one buffer: a client may send it in many small pieces, which would take many times its size.
async fn read(request: hyper::Request<Incoming>, permit: &RequestPermit, limits: Limits) -> Result<Request, ApiError> {
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
    let whole = tokio::select! {
        // What has arrived is not refused.
        biased;
        whole = tokio::time::timeout(limits.body, whole) => whole.map_err(slow)??,
        () = permit.lost() => {
            let message = "the request's body took long to arrive while others waited for its place; try again later";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "body_too_slow", message));
        }
    };
    if let Some(bytes) = whole {
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
    /// `None` for the refusal of one that has no place.
    _permit: Option<RequestPermit>,
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
