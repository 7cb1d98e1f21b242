//! The server with malicious or broken clients: it answers others quickly, in bounded memory, and frees what it was
//! sent.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_testkit::{SOON, wait_until};
use common::Server;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("connects");
    stream.set_read_timeout(Some(SOON)).expect("set");
    stream
}

/// Everything that comes until the server closes; after a reset, what came until then.
fn rest(mut stream: &TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
        Err(error) => panic!("never closed: {error}; so far {}", String::from_utf8_lossy(&answer)),
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends `request` on a connection of its own, which is closed after the answer.
fn ask(server: &Server, request: &[u8]) -> String {
    let mut stream = connect(server);
    // A server that has responded already may close the connection while a long request is still being sent.
    let _ = stream.write_all(request);
    rest(&stream)
}

fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close");
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn complete(tokens: u32, stream: bool) -> Vec<u8> {
    let body = json!({ "prompt": "Hello", "max_tokens": tokens, "ignore_eos": true, "stream": stream });
    post("/v1/completions", &body)
}

/// Asserts that another client is still served, and soon.
fn is_well(server: &Server) {
    let started = Instant::now();
    let health = ask(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with("ok\n"), "{health}");
    let answer = ask(server, &complete(4, false));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"completion_tokens\":4"), "{answer}");
    let took = started.elapsed();
    println!("health and an answer took {took:?}");
    assert!(took < Duration::from_secs(10), "others wait for {took:?}");
}

/// A page that a browser here shows can reach the server by a name of its own: only this machine's are answered.
#[test]
fn requests_that_name_another_machine() {
    let server = Server::start(&["--allow-host", "models.example"]);
    let asked =
        |hosts: &str| ask(&server, format!("GET /v1/models HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n").as_bytes());
    for wrong in
        ["Host: evil.example\r\n", "Host: localhost.evil.example\r\n", "Host: localhost\r\nHost: localhost\r\n"]
    {
        let answer = asked(wrong);
        assert!(answer.starts_with("HTTP/1.1 421 "), "{wrong}: {answer}");
    }
    for right in ["Host: localhost\r\n", "Host: 127.0.0.1:8080\r\n", "Host: [::1]:1\r\n", "Host: Models.Example\r\n"] {
        let answer = asked(right);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{right}: {answer}");
    }
}

/// Asserts that no more files are open than before, once everything from those clients is freed.
fn lets_go(server: &Server, before: usize) {
    wait_until(|| server.open_files() <= before, &format!("no more than {before} files are open"));
}

fn stopping(server: Server) {
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(12), "stopping took {:?}", started.elapsed());
}

/// The state of a server before its clients did anything.
struct Before {
    files: usize,
    memory: f64,
}

impl Before {
    fn of(server: &Server) -> Self {
        Self { files: server.open_files(), memory: server.memory() }
    }

    /// The end of each of these tests: others are served, memory stayed bounded, everything is freed, and the server
    /// stops.
    fn again(self, server: Server) {
        is_well(&server);
        let grown = server.peak_memory() - self.memory;
        assert!(grown < 64.0, "{grown} MiB more");
        lets_go(&server, self.files);
        stopping(server);
    }
}

#[test]
fn heads_that_trickle_in_are_cut_off() {
    let server = Server::start(&["--head-seconds", "1"]);
    let before = Before::of(&server);
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    let deadline = Instant::now() + SOON;
    // One byte at a time, so that no connection is ever idle.
    let mut byte = b"GET /healthz HTTP/1.1\r\nX: ".iter().copied().chain(std::iter::repeat(b'x'));
    let mut healthy = false;
    while !slow.is_empty() {
        assert!(Instant::now() < deadline, "{} heads trickle on", slow.len());
        let byte = byte.next().expect("endless");
        slow.retain_mut(|stream| {
            stream.set_nonblocking(true).expect("set");
            let sent = stream.write(&[byte]).is_ok();
            let closed = stream.read(&mut [0; 512]).is_ok()
                || stream.peek(&mut [0]).is_err_and(|e| e.kind() != ErrorKind::WouldBlock);
            sent && !closed
        });
        if !healthy {
            is_well(&server);
            healthy = true;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    before.again(server);
}

#[test]
fn thousands_of_idle_connections_make_way() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(8_192, |m| m.min(8_192));
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).expect("as many files as allowed");
    let server = Server::start(&["--connections", "50", "--head-seconds", "600"]);
    is_well(&server);
    let before = Before::of(&server);
    let idle: Vec<TcpStream> = (0..2_000).map(|_| connect(&server)).collect();
    is_well(&server);
    let (open, grown) = (server.open_files(), server.memory() - before.memory);
    println!("2,000 idle connections: {open} open files, {} before, {grown:.1} MiB more", before.files);
    // A connection that just lost its place may still be closing.
    lets_go(&server, before.files + 50);
    // The newest connections have kept their places.
    let last = idle.last().expect("some");
    last.set_nonblocking(true).expect("set");
    assert!(last.peek(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "the newest was closed");
    drop(idle);
    before.again(server);
}

#[test]
fn requests_under_way_keep_their_place_and_one_more_is_told() {
    let server = Server::start(&["--connections", "2", "--most-tokens", "1000000"]);
    let deadline = Instant::now() + SOON;
    // The model is busy for a second or two with each; on a busy machine that may be over before it is checked.
    loop {
        assert!(Instant::now() < deadline, "nobody was refused while requests were under way");
        let mut under_way = [(); 2].map(|()| connect(&server));
        for stream in &mut under_way {
            stream.write_all(&complete(100_000, true)).expect("sent");
        }
        // Its first token: the other one waits in the queue.
        under_way[0].read_exact(&mut [0; 15]).expect("an answer");
        let refused = ask(&server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if refused.starts_with("HTTP/1.1 503 ") {
            for part in ["no_connection_free", "--connections", "connection: close"] {
                assert!(refused.contains(part), "{refused}");
            }
            break;
        }
    }
    // All have gone: there is room.
    let health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    wait_until(|| ask(&server, health).starts_with("HTTP/1.1 200 "), "there is room");
    is_well(&server);
    stopping(server);
}

#[test]
fn heads_and_bodies_that_are_too_large_are_refused() {
    let server = Server::start(&["--body-kb", "256"]);
    let before = Before::of(&server);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(2_000));
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let declared = format!("{head}Content-Length: 9999999999999\r\n\r\n");
    let chunks =
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", format!("10000\r\n{}\r\n", "x".repeat(65_536)).repeat(8));
    for (what, request, status) in [
        ("a long head", long, "431"),
        ("many fields", many, "431"),
        ("a body that says it is large", declared, "413"),
        ("a body that never says its size", chunks, "413"),
    ] {
        let answer = ask(&server, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
    }
    // Deep enough to overflow the stack of a recursive parser.
    for opening in ["[", "{\"a\":"] {
        let deep = opening.repeat(40_000);
        for body in [deep.clone(), format!("{{\"prompt\":{deep}"), format!("{{\"prompt\":\"a\",\"stop\":{deep}")] {
            let request = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let answer = ask(&server, request.as_bytes());
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        }
    }
    before.again(server);
}

#[test]
fn a_body_in_many_pieces_takes_no_more_than_its_size() {
    let server = Server::start::<&str>(&[]);
    is_well(&server);
    let before = Before::of(&server);
    // A million pieces of a byte each, of which the last is never sent.
    let mut request =
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    request.extend(b"1\r\nx\r\n".repeat(1_000_000));
    let open: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(&request).expect("sent");
            stream
        })
        .collect();
    is_well(&server);
    let grown = server.peak_memory() - before.memory;
    println!("three bodies of a million pieces: {grown:.1} MiB more");
    // Twice their size if a buffer has just grown, plus the memory of sockets and the allocator.
    assert!(grown < 40.0, "{grown} MiB more for 3 MB");
    drop(open);
    before.again(server);
}

#[test]
fn bodies_that_trickle_in_are_cut_off() {
    let server = Server::start(&["--body-seconds", "1"]);
    let before = Before::of(&server);
    let mut slow: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    for stream in &mut slow {
        let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999";
        stream.write_all(format!("{head}\r\n\r\n{{\"prompt\": \"").as_bytes()).expect("sent");
    }
    is_well(&server);
    for stream in &slow {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("longer than 1 s"), "{answer}");
    }
    before.again(server);
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let server = Server::start(&["--write-seconds", "1"]);
    let before = Before::of(&server);
    // Sends requests without reading, until the responses fill every buffer on the way.
    let mut stream = connect(&server);
    stream.set_write_timeout(Some(SOON)).expect("set");
    let requests = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let deadline = Instant::now() + SOON;
    while stream.write_all(&requests).is_ok() {
        assert!(Instant::now() < deadline, "it takes requests without end");
    }
    before.again(server);
}

/// The run is complete all the same.
#[test]
fn a_client_that_does_not_go_is_left_behind_when_the_server_stops() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let server = Server::start(&["--write-seconds", "600", "--stop-seconds", "1", "--parquet", &run.to_string_lossy()]);
    is_well(&server);
    let mut stream = connect(&server);
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("set");
    let requests = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let deadline = Instant::now() + SOON;
    while stream.write_all(&requests).is_ok() {
        assert!(Instant::now() < deadline, "it takes requests without end");
    }
    let started = Instant::now();
    let (status, _) = server.end();
    assert!(started.elapsed() < SOON, "stopping took {:?}", started.elapsed());
    assert_eq!(status.code(), Some(1), "{status}");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(run.join("run.json")).expect("a manifest")).expect("JSON");
    assert_eq!(manifest["complete"], true, "{manifest}");
    drop(stream);
}

#[test]
fn garbage_is_answered_as_such_and_harms_nobody() {
    let server = Server::start::<&str>(&[]);
    let before = Before::of(&server);
    let mut mixed = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
    mixed.extend(b"\0\xff\x13GARBAGE\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
    let answer = ask(&server, &mixed);
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400 Bad Request").count(), 1, "{answer}");
    // Random bytes, the same ones each time.
    let mut random = StdRng::seed_from_u64(1);
    let head =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    for round in 0..200 {
        let noise: Vec<u8> = (&mut random).random_iter().take(round * 7).collect();
        let mut request = match round % 4 {
            0 => Vec::new(),
            1 => format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes(),
            2 => format!("{head}Content-Length: {}\r\n\r\n", noise.len()).into_bytes(),
            // Two contradicting lengths: request smuggling.
            _ => format!("{head}Content-Length: 3\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n")
                .into_bytes(),
        };
        request.extend(noise);
        let mut stream = connect(&server);
        let _ = stream.write_all(&request);
        let _ = stream.shutdown(Shutdown::Write);
        let answer = rest(&stream);
        assert!(!answer.contains(" 200 ") && !answer.contains(" 500 "), "{round}: {answer}");
    }
    before.again(server);
}

#[test]
fn half_closed_connections_are_let_go() {
    // Only the time limit on their sending can free these connections.
    let server = Server::start(&["--head-seconds", "600", "--body-seconds", "600", "--most-tokens", "1000000"]);
    let before = Before::of(&server);
    let whole = complete(100_000, true);
    let half = &whole[..whole.len() - 1];
    let open: Vec<TcpStream> = [&b""[..], b"GET /heal", half, &whole[..]]
        .iter()
        .cycle()
        .take(100)
        .map(|request| {
            let mut stream = connect(&server);
            stream.write_all(request).expect("sent");
            stream.shutdown(Shutdown::Write).expect("half closed");
            stream
        })
        .collect();
    lets_go(&server, before.files);
    for stream in &open {
        rest(stream);
    }
    before.again(server);
}

#[test]
fn a_request_ends_when_its_time_is_over_and_the_model_goes_on() {
    let server = Server::start(&["--request-seconds", "0.05", "--most-tokens", "1000000"]);
    let whole = ask(&server, &complete(100_000, false));
    assert!(whole.starts_with("HTTP/1.1 504 ") && whole.contains("--request-seconds"), "{whole}");
    let deadline = Instant::now() + SOON;
    // A request whose response has begun gets the error in the stream; others get the same status.
    loop {
        let streamed = ask(&server, &complete(100_000, true));
        assert!(streamed.contains("request_timeout") && !streamed.contains("[DONE]"), "{streamed}");
        if streamed.starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(Instant::now() < deadline, "no token within the time, ever");
    }
    // The model is free at its next token: a short request is answered, though not at once.
    wait_until(|| ask(&server, &complete(1, false)).starts_with("HTTP/1.1 200 "), "the model is free again");
    stopping(server);
}

#[test]
fn captures_fill_their_directory_and_no_more() {
    let server = Server::start(&["--capture-token", "secret", "--captures-most", "3"]);
    let captures = server.dir.path().join("captures");
    // Runs made by others count, and stay.
    std::fs::create_dir_all(captures.join("yesterday")).expect("made");
    let capture = |wait: bool| {
        let head = format!(
            "POST /debug/capture?steps=2&wait={wait} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret"
        );
        format!("{head}\r\nConnection: close\r\n\r\n")
    };
    let latest =
        "GET /debug/capture HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n";
    let (mut written, mut refused) = (0, 0);
    for _ in 0..30 {
        let answer = ask(&server, capture(false).as_bytes());
        if answer.starts_with("HTTP/1.1 202 ") {
            written += 1;
            is_well(&server);
            wait_until(|| ask(&server, latest.as_bytes()).contains("\"written\""), "the capture is written");
            continue;
        }
        assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
        for part in ["captures_full", "3 runs of 3", "--captures-most", "remove them"] {
            assert!(answer.contains(part), "{part}: {answer}");
        }
        refused += 1;
    }
    assert_eq!((written, refused), (2, 28));
    assert_eq!(std::fs::read_dir(&captures).expect("there").count(), 3);
    std::fs::remove_dir(captures.join("yesterday")).expect("somebody makes room");
    assert!(ask(&server, capture(false).as_bytes()).starts_with("HTTP/1.1 202 "));
    is_well(&server);
    stopping(server);
}
