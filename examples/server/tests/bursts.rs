//! The server when a thousand clients come at once: whoever sends a whole request gets a status, and nothing is stuck.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_testkit::wait_until;
use common::Server;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS: usize = 1_000;

/// Files that this process has open besides them.
const OTHER_FILES: usize = 256;

/// Time for all of them.
const LONGEST: Duration = Duration::from_secs(30);

/// One burst at a time: together they would take the files, and the processors, that each needs.
static ALONE: Mutex<()> = Mutex::new(());

/// As many clients as there may be, if this process may have a file open for each, and the server one for each that
/// waits.
fn clients() -> (MutexGuard<'static, ()>, usize) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let clients = CLIENTS.min(most.saturating_sub(OTHER_FILES) / 4);
    let files = (clients + OTHER_FILES) as u64;
    if limit.current.is_some_and(|current| current < files) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..limit }).expect("as many files as allowed");
    }
    (alone, clients)
}

fn request() -> Vec<u8> {
    let body = json!({ "prompt": "Hello", "max_tokens": 2, "ignore_eos": true }).to_string();
    let head =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
    format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// What came of those that stayed: how many got each status. Every `leaves`th client leaves once all have sent their
/// requests.
fn burst(server: &Server, clients: usize, leaves: Option<usize>) -> BTreeMap<u16, usize> {
    let (started, request) = (Instant::now(), request());
    // Each sends its request at once: where the system has the next one wait for a second to connect, it would be idle for as
    // long, after which it may be closed. One that has got its response already may have been; that is looked at below.
    let connected = |_| {
        let mut stream = TcpStream::connect(server.address()).expect("connects");
        stream.set_read_timeout(Some(LONGEST)).expect("set");
        let _ = stream.write_all(&request);
        stream
    };
    let open: Vec<TcpStream> = (0..clients).map(connected).collect();
    let stays = |number: usize| leaves.is_none_or(|every| !number.is_multiple_of(every));
    // The others are dropped, and closed.
    let staying: Vec<TcpStream> = open.into_iter().enumerate().filter(|(n, _)| stays(*n)).map(|(_, s)| s).collect();
    let count = staying.len();
    let mut statuses = BTreeMap::new();
    for (number, stream) in staying.into_iter().enumerate() {
        *statuses.entry(status(number, stream)).or_insert(0) += 1;
    }
    let took = started.elapsed();
    println!("{clients} clients, {count} of which stayed, took {took:?}: {statuses:?}");
    assert!(took < LONGEST, "it took {took:?}");
    assert_eq!(statuses.values().sum::<usize>(), count);
    statuses
}

/// The status of a whole response, of which refusals are JSON and say when to come again.
fn status(number: usize, mut stream: TcpStream) -> u16 {
    let mut response = String::new();
    let read = stream.read_to_string(&mut response);
    assert!(read.is_ok() && !response.is_empty(), "client {number} got no response: {read:?} {response}");
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole head");
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body: Value = serde_json::from_str(body).expect("JSON");
    match status {
        200 => assert_eq!(body["usage"]["completion_tokens"], 2, "{response}"),
        429 => assert_eq!(body["error"]["code"], "queue_full", "{response}"),
        503 => assert_eq!(body["error"]["code"], "no_connection_free", "{response}"),
        _ => panic!("client {number}: {response}"),
    }
    assert_eq!(head.to_lowercase().contains("\r\nretry-after: 1"), status != 200, "{head}");
    status
}

/// The end of each of these tests: everything is freed, the next client is served, and the server stops. Returns what
/// it says of its connections.
fn again(server: Server, files: usize) -> String {
    wait_until(|| server.open_files() <= files, &format!("no more than {files} files are open"));
    assert_eq!(burst(&server, 1, None), BTreeMap::from([(200, 1)]));
    let said = server.stop();
    said.into_iter().find(|line| line.starts_with("connections: ")).expect("a summary")
}

#[test]
fn a_thousand_at_once_wait_for_their_answers_if_the_queue_has_room() {
    let (_alone, clients) = clients();
    let server = Server::start(&["--max-num-seqs", "8", "--queue", "2000"]);
    let files = server.open_files();
    assert_eq!(burst(&server, clients, None), BTreeMap::from([(200, clients)]));
    let said = again(server, files);
    assert_eq!(
        said,
        format!(
            "connections: {} accepted, 0 closed without a request to make room; 0 requests refused for want of one",
            clients + 1
        )
    );
}

#[test]
fn a_thousand_at_once_are_told_if_there_are_not_as_many_connections() {
    let (_alone, clients) = clients();
    let server = Server::launch(&["--max-num-seqs", "8", "--queue", "2000", "--connections", "64"], None);
    server.hears("less than the 2008 requests");
    let server = server.listening();
    let files = server.open_files();
    let statuses = burst(&server, clients, None);
    let refused = statuses.get(&503).copied().unwrap_or(0);
    assert!(statuses.get(&200).is_some_and(|n| *n >= 64.min(clients)) && !statuses.contains_key(&429), "{statuses:?}");
    let said = again(server, files);
    assert!(
        said.ends_with(&format!("0 closed without a request to make room; {refused} requests refused for want of one")),
        "{said}"
    );
}

#[test]
fn a_full_queue_answers_everybody_and_a_fifth_that_leaves_harms_nobody() {
    let (_alone, clients) = clients();
    let server = Server::start(&["--max-num-seqs", "8", "--queue", "200"]);
    let files = server.open_files();
    let statuses = burst(&server, clients, Some(5));
    assert!(statuses.get(&200).is_some_and(|n| *n > 0), "{statuses:?}");
    again(server, files);
}
