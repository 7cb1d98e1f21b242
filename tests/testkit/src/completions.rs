//! A server for completions that answers by a script, with exact pauses, and notes when it really sent what.

use crate::http_request::{HttpRequest, read};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number among the requests for completions, from 0; first requests included.
    pub number: u64,
    /// Path and query.
    pub path: String,
    /// With names in lower case.
    pub headers: Vec<(String, String)>,
    /// Null where it is no JSON.
    pub body: Value,
}

impl Request {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is one of those before the load, which ask for few tokens.
    pub fn is_first(&self) -> bool {
        self.body["max_tokens"] == 4
    }

    /// The prompt's text.
    pub fn prompt(&self) -> &str {
        self.body["prompt"].as_str().or(self.body["messages"][0]["content"].as_str()).unwrap_or_default()
    }
}

/// What the server does, one after another.
#[derive(Debug, Clone)]
pub enum Act {
    /// Head of an answer in chunks: status and type.
    Head(u16, &'static str),
    /// A whole answer.
    Whole(u16, &'static str, String),
    /// A pause in milliseconds.
    Wait(u64),
    /// A part of the body.
    Send(String),
    /// The end of the body; the connection stays open.
    End,
    /// The connection is closed.
    HangUp,
}

/// Type of a stream.
pub const SSE: &str = "text/event-stream";
/// Type of an answer that is none.
pub const JSON: &str = "application/json";

/// A chunk of a stream with text.
pub fn token(text: &str) -> Act {
    Act::Send(format!(
        "data: {}\n\n",
        json!({ "choices": [{ "index": 0, "text": text, "delta": { "content": text } }] })
    ))
}

/// `n` tokens, the first after `first` ms and the others `gap` ms apart, then the usage.
pub fn stream(n: u64, first: u64, gap: u64, prompt_tokens: u64) -> Vec<Act> {
    let mut acts = vec![Act::Head(200, SSE)];
    for i in 0..n {
        acts.extend([Act::Wait(if i == 0 { first } else { gap }), token("a ")]);
    }
    let usage = json!({ "prompt_tokens": prompt_tokens, "completion_tokens": n });
    let last = json!({ "choices": [{ "index": 0, "text": "", "finish_reason": "length" }] });
    acts.push(Act::Send(format!("data: {last}\n\ndata: {}\n\n", json!({ "choices": [], "usage": usage }))));
    acts.extend([Act::Send("data: [DONE]\n\n".into()), Act::End]);
    acts
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

type Script = dyn Fn(&Request) -> Vec<Act> + Send + Sync;

/// A server of the test's own. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    dead: AtomicBool,
    numbers: AtomicU64,
    seen: Mutex<Vec<Request>>,
    /// Held while answering, where there is to be one answer at a time.
    alone: Option<Mutex<()>>,
    /// For each answer in order of arrival: from the request to each part of the body, as it really was.
    sent: Mutex<Vec<Vec<Duration>>>,
}

impl Server {
    /// A server that answers as many requests at once as there are.
    ///
    /// # Panics
    /// If there is no port.
    pub fn start(script: impl Fn(&Request) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::launch(Box::new(script), None)
    }

    /// A server that answers one request at a time.
    ///
    /// # Panics
    /// If there is no port.
    pub fn one_at_a_time(script: impl Fn(&Request) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::launch(Box::new(script), Some(Mutex::new(())))
    }

    fn launch(script: Box<Script>, alone: Option<Mutex<()>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            script,
            dead: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            seen: Mutex::default(),
            alone,
            sent: Mutex::default(),
        });
        let these = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if these.dead.load(Ordering::Relaxed) {
                    return;
                }
                let these = these.clone();
                // A client that went away is no matter of the server's.
                std::thread::spawn(move || drop(serve(&these, &stream.expect("a connection"))));
            }
        });
        Self { address, shared }
    }

    /// Its address as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests for completions so far.
    ///
    /// # Panics
    /// If a script did.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().expect("no panic").clone()
    }

    /// For each answer to a request of the load, the times of its parts since the request arrived.
    ///
    /// # Panics
    /// If a script did.
    pub fn sent(&self) -> Vec<Vec<Duration>> {
        self.shared.sent.lock().expect("no panic").clone()
    }

    /// Closes its port and every connection.
    pub fn die(&self) {
        self.shared.dead.store(true, Ordering::Relaxed);
        // So that the listener notices.
        drop(TcpStream::connect(self.address));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(shared: &Shared, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream.try_clone()?;
    loop {
        let Some(HttpRequest { method, path, headers, body }) = read(&mut reader)? else { return Ok(()) };
        let arrived = Instant::now();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let mut request = Request { number: 0, path, headers, body };
        let is_completion = method == "POST";
        if is_completion {
            request.number = shared.numbers.fetch_add(1, Ordering::Relaxed);
            shared.seen.lock().expect("no panic").push(request.clone());
        }
        let acts = (shared.script)(&request);
        let mut sent = Vec::new();
        // First requests are not to wait for the load of another run.
        let guard = shared.alone.as_ref().filter(|_| is_completion).map(|alone| alone.lock().expect("no panic"));
        for act in acts {
            if shared.dead.load(Ordering::Relaxed) {
                return stream.shutdown(std::net::Shutdown::Both);
            }
            match act {
                Act::Head(status, kind) => {
                    write!(out, "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n")?
                }
                Act::Whole(status, kind, body) => {
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}");
                    write!(out, "{head}\r\n\r\n{body}")?;
                }
                Act::Wait(ms) => std::thread::sleep(Duration::from_millis(ms)),
                Act::Send(text) => {
                    sent.push(arrived.elapsed());
                    out.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())?;
                }
                Act::End => out.write_all(b"0\r\n\r\n")?,
                Act::HangUp => return stream.shutdown(std::net::Shutdown::Both),
            }
        }
        drop(guard);
        if is_completion && !request.is_first() {
            shared.sent.lock().expect("no panic").push(sent);
        }
    }
}

/// The list of models, where that is what is asked for.
pub fn models(request: &Request) -> Option<Vec<Act>> {
    let list = json!({ "object": "list", "data": [{ "id": "scripted" }] }).to_string();
    match request.path.as_str() {
        "/v1/models" => Some(vec![Act::Whole(200, JSON, list)]),
        "/metrics" => Some(vec![Act::Whole(404, JSON, "{}".into())]),
        _ => None,
    }
}
