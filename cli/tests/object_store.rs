//! Runs and archives in a bucket, of a server on this machine that speaks S3; what is said when it fails in the middle.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUCKET: &str = "traces";
const QUESTIONS: [&str; 4] = [
    "SELECT count(*) AS spans, CAST(sum(host_dur_ns) AS BIGINT) AS ns FROM spans",
    "SELECT operator, count(*) AS calls FROM self_time GROUP BY operator ORDER BY operator",
    "SELECT model_name, started_day, count(*) AS runs FROM runs GROUP BY model_name, started_day ORDER BY 1, 2",
    "SELECT run_id, sum(tokens) AS tokens FROM steps GROUP BY run_id ORDER BY run_id",
];

/// A server with one bucket, which has what lies in a directory.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn new(dir: &Path) -> Option<Self> {
        let python = require(&PYTHON)?;
        let mut child = Command::new(python)
            .arg(Path::new(ROOT).join("tests/python/bucket.py"))
            .args([BUCKET, dir.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("the server says {line:?}"));
        Some(Self { child, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes requests on to a server, and answers with an error from the `fails_from`th on, `fails` times.
struct Between {
    port: u16,
    asked: Arc<AtomicU64>,
}

impl Between {
    fn new(to: u16, fails_from: u64, fails: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || pass_on(client, to, &counted, fails_from, fails));
            }
        });
        Self { port, asked }
    }
}

/// One request of a connection; it is closed then, so that each request is seen.
fn pass_on(mut client: TcpStream, to: u16, asked: &AtomicU64, fails_from: u64, fails: u64) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match client.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return,
        }
    }
    let nth = asked.fetch_add(1, Ordering::SeqCst);
    if (fails_from..fails_from.saturating_add(fails)).contains(&nth) {
        let _ = client.write_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        return;
    }
    let text = String::from_utf8_lossy(&request).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", to)) else { return };
    if server.write_all(text.as_bytes()).is_ok() {
        let _ = std::io::copy(&mut server, &mut client);
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn ask(port: u16, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_candlescope"))
        .args(args)
        .env("AWS_ACCESS_KEY_ID", "somebody")
        .env("AWS_SECRET_ACCESS_KEY", "a-secret-key")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ALLOW_HTTP", "true")
        .output()
        .unwrap();
    assert!(!text(&output.stderr).contains("a-secret-key"), "{}", text(&output.stderr));
    output
}

fn answered(port: u16, args: &[&str]) -> String {
    let output = ask(port, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn runs_and_archives_in_a_bucket_are_asked_as_on_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, archive) = (dir.path().join("runs"), dir.path().join("archive"));
    for name in ["one", "two"] {
        let args =
            ["profile", "--model", "embedded", "--max-new-tokens", "3", "--repeats", "1", "--no-progress", "--out"];
        ok(&[&args[..], &[runs.join(name).to_str().unwrap()]].concat());
    }
    ok(&["archive", runs.to_str().unwrap(), "--to", archive.to_str().unwrap(), "--keep-source"]);
    let Some(server) = Server::new(dir.path()) else { return };
    for (local, remote) in [(&runs, "s3://traces/runs/"), (&archive, "s3://traces/archive")] {
        for sql in QUESTIONS {
            let expected = ok(&["query", sql, local.to_str().unwrap(), "--json"]);
            assert!(expected.len() > 40, "{expected}");
            assert_eq!(answered(server.port, &["query", sql, remote, "--json"]), expected, "{sql} of {remote}");
        }
    }
    // Both together are told to be the same runs, and the bucket's archive stands beside the disk's.
    let sql = "SELECT count(*) AS runs, count(DISTINCT run) AS names FROM runs";
    let output = ask(server.port, &["query", sql, "s3://traces", archive.to_str().unwrap(), "--json"]);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains(r#""names":6,"runs":6"#), "{said}{told}");
    assert!(told.contains("are the same run"), "{told}");
    // What changed over time, and scripts for other engines.
    let summary = answered(server.port, &["summary", "s3://traces/archive"]);
    assert!(summary.contains("Decode step"), "{summary}");
    let script = answered(server.port, &["views", "duckdb", "s3://traces/archive", "s3://traces/runs/one"]);
    assert!(
        script.contains("s3://traces/archive/spans/date=") && script.contains("s3://traces/runs/one/spans/part-"),
        "{script}"
    );

    // A request that fails once is made again; a store that goes on failing is told of.
    let whole = Between::new(server.port, u64::MAX, 0);
    let args = ["query", QUESTIONS[1], "s3://traces/archive", "--json"];
    let expected = answered(whole.port, &args);
    let requests = whole.asked.load(Ordering::SeqCst);
    assert!(requests >= 4, "{requests}");
    for nth in 0..requests {
        let once = Between::new(server.port, nth, 1);
        assert_eq!(answered(once.port, &args), expected, "the request {nth} of {requests} failed once");
    }
    for nth in [0, requests / 2, requests - 1] {
        let from_there = Between::new(server.port, nth, u64::MAX);
        let output = ask(from_there.port, &args);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{told}");
        assert!(told.contains("cannot be read") && told.contains("archive"), "{nth}: {told}");
    }
    // Wrong names, and a server that is not there.
    for (port, url, why) in [
        (server.port, "s3://traces/nothing", "holds neither a run nor a study"),
        (server.port, "s3://other/runs", "cannot be read"),
        (server.port, "ftp://traces/runs", "none of s3, gs, az"),
        (1, "s3://traces/runs", "cannot be read"),
        (server.port, "http://me:a-secret-key@127.0.0.1:1/runs", "put credentials into the environment"),
        (server.port, "http://127.0.0.1:1/runs?sig=a-secret-key", "put credentials into the environment"),
        (server.port, "http://me:a-secret-key@127.0.0.1:99999/runs", "cannot be read"),
    ] {
        let output = ask(port, &["query", "SELECT 1", url]);
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{url}: {}", text(&output.stderr));
    }
}
