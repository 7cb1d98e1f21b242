//! The server: one thread, non-blocking sockets, limits on everything that a client could exhaust.

use super::hosts::Hosts;
use super::http_request::{NamedHost, ParsedHead, Response, parse};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::AtomicI32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections at once.
///
/// Overload policy: one more closes the oldest connection that still waits for its client's request, so that hanging
/// clients can neither keep Prometheus out nor cut off a response that it reads. If all are being answered, the oldest
/// of them is closed.
const MAX_CONNECTIONS: usize = 32;

/// Time for a client to send its request.
const READ_TIME: Duration = Duration::from_secs(5);

/// Time for a client to read the response; Prometheus itself gives up after ten seconds.
const WRITE_TIME: Duration = Duration::from_secs(10);

/// Time after the response in which further input is read and discarded: closing at once could make the system discard
/// the response too.
const LINGER_TIME: Duration = Duration::from_millis(500);

/// Longest time between two rounds, and so the longest time for stopping if the wake-up is lost.
const IDLE: Duration = Duration::from_millis(500);

/// Descriptors of sockets that listen now, -1 where there is none. A forked child has them as well, and nobody there
/// answers who connects.
#[cfg(unix)]
static LISTENING: [AtomicI32; 8] = [const { AtomicI32::new(-1) }; 8];

/// Descriptors of the sockets that listen in this process. Takes no lock and allocates nothing.
#[cfg(unix)]
pub fn listening() -> impl Iterator<Item = RawFd> {
    LISTENING.iter().map(|socket| socket.load(Ordering::Relaxed)).filter(|socket| *socket >= 0)
}

/// A socket among those that listen, for as long as this lives.
#[cfg(unix)]
struct ListenerSlot(Option<&'static AtomicI32>);

#[cfg(unix)]
impl ListenerSlot {
    /// One for which there is no place is left in forked children.
    fn new(listener: &TcpListener) -> Self {
        let socket = listener.as_raw_fd();
        let take =
            |place: &&AtomicI32| place.compare_exchange(-1, socket, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        Self(LISTENING.iter().find(take))
    }
}

#[cfg(unix)]
impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|place| place.store(-1, Ordering::Relaxed));
    }
}

/// Serves until dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `answer` of the requested path for requests with one of `hosts`, on the thread `cs-prom-http`.
    pub(super) fn start(
        listener: TcpListener,
        hosts: Hosts,
        answer: impl Fn(&str) -> Response + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let answer = move |path: &str, host: &NamedHost<'_>| hosts.refuse(host).unwrap_or_else(|| answer(path));
        // It listens already: a child may be forked before the thread runs.
        #[cfg(unix)]
        let listed = ListenerSlot::new(&listener);
        let thread = std::thread::Builder::new().name("cs-prom-http".into()).spawn(move || {
            // Taken off before the socket is closed, whose number another file may have then.
            #[cfg(unix)]
            let _listed = listed;
            let mut connections: Vec<Connection> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                wait(&listener, &connections);
                accept(&listener, &mut connections);
                let now = Instant::now();
                connections.retain_mut(|connection| connection.advance(now, &answer));
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The address it listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut wake = self.address;
        if wake.ip().is_unspecified() {
            wake.set_ip(if wake.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
        }
        let _ = TcpStream::connect_timeout(&wake, IDLE);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts every waiting connection.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if connections.len() >= MAX_CONNECTIONS {
                    let idle = connections.iter().position(|c| !matches!(c.state, State::Writing { .. }));
                    connections.remove(idle.unwrap_or(0));
                }
                connections.push(Connection {
                    stream,
                    state: State::Reading(Vec::new()),
                    deadline: Instant::now() + READ_TIME,
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            // Probably out of file descriptors. The connection stays in the backlog, so without a pause this would wake
            // up again and again.
            Err(_) => return std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Waits until a socket has something to do or a deadline is near.
#[cfg(unix)]
fn wait(listener: &TcpListener, connections: &[Connection]) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Instant::now();
    let next = connections.iter().map(|c| c.deadline.saturating_duration_since(now)).min().unwrap_or(IDLE).min(IDLE);
    let mut sockets = vec![PollFd::new(listener, PollFlags::IN)];
    sockets.extend(connections.iter().map(|c| {
        let writing = matches!(c.state, State::Writing { .. });
        PollFd::new(&c.stream, if writing { PollFlags::OUT } else { PollFlags::IN })
    }));
    let timeout = Timespec::try_from(next).ok();
    match poll(&mut sockets, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(_) => std::thread::sleep(Duration::from_millis(50)),
    }
}

/// Without `poll` the sockets are checked periodically.
#[cfg(not(unix))]
fn wait(_: &TcpListener, connections: &[Connection]) {
    std::thread::sleep(Duration::from_millis(if connections.is_empty() { 50 } else { 2 }));
}

struct Connection {
    stream: TcpStream,
    state: State,
    deadline: Instant,
}

enum State {
    Reading(Vec<u8>),
    Writing { bytes: Vec<u8>, sent: usize },
    Lingering,
}

impl Connection {
    /// Does what can be done without waiting. Returns `false` if the connection is to be closed.
    fn advance(&mut self, now: Instant, answer: &impl Fn(&str, &NamedHost<'_>) -> Response) -> bool {
        if now >= self.deadline {
            match self.state {
                // A client that sent something is told about the timeout; one that sent nothing is closed.
                State::Reading(ref head) if !head.is_empty() => {
                    self.respond(Response::text(408, "the request took too long"))
                }
                _ => return false,
            }
        }
        loop {
            let go_on = match &mut self.state {
                State::Reading(_) => self.read(answer),
                State::Writing { .. } => self.write(),
                State::Lingering => self.linger(),
            };
            match go_on {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn read(&mut self, answer: &impl Fn(&str, &NamedHost<'_>) -> Response) -> io::Result<bool> {
        let State::Reading(head) = &mut self.state else { return Ok(true) };
        let mut chunk = [0; 2048];
        let n = self.stream.read(&mut chunk)?;
        if n == 0 {
            return Ok(false);
        }
        head.extend_from_slice(&chunk[..n]);
        let (response, head_only) = match parse(head) {
            ParsedHead::Partial => return Ok(true),
            ParsedHead::TooLarge => (Response::text(431, "the request's head is too large"), false),
            ParsedHead::Malformed => (Response::text(400, "not an HTTP/1 request"), false),
            ParsedHead::Request { method: "GET", path, host } => (answer(path, &host), false),
            ParsedHead::Request { method: "HEAD", path, host } => (answer(path, &host), true),
            ParsedHead::Request { .. } => (Response::text(405, "only GET and HEAD are served"), false),
        };
        self.state = State::Writing { bytes: response.into_bytes(head_only), sent: 0 };
        self.deadline = Instant::now() + WRITE_TIME;
        Ok(true)
    }

    fn respond(&mut self, response: Response) {
        self.state = State::Writing { bytes: response.into_bytes(false), sent: 0 };
        self.deadline = Instant::now() + WRITE_TIME;
    }

    fn write(&mut self) -> io::Result<bool> {
        let State::Writing { bytes, sent } = &mut self.state else { return Ok(true) };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..])? {
                0 => return Ok(false),
                n => *sent += n,
            }
        }
        self.stream.shutdown(std::net::Shutdown::Write)?;
        self.state = State::Lingering;
        self.deadline = Instant::now() + LINGER_TIME;
        Ok(true)
    }

    fn linger(&mut self) -> io::Result<bool> {
        // One chunk per round, so that a client that sends endlessly does not keep the others waiting; the deadline
        // ends it.
        let n = self.stream.read(&mut [0; 16 * 1024])?;
        if n == 0 {
            return Ok(false);
        }
        Err(ErrorKind::WouldBlock.into())
    }
}
