//! Runs and archives in object stores, of servers on this machine that speak as S3, Google's and Azure's do and WebDAV; what is
//! said when they fail in the middle.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

/// A server that has what lies in a directory.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// One that a script plays; `kind` is what it is told before the directory.
    fn new(script: &str, kind: &str, dir: &Path) -> Option<Self> {
        let python = require(&PYTHON)?;
        let mut child = Command::new(python)
            .arg(Path::new(ROOT).join("tests/python").join(script))
            .args([kind, dir.to_str().unwrap()])
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
    let endpoint = format!("http://127.0.0.1:{port}");
    let variables = [
        ("AWS_ACCESS_KEY_ID", "somebody"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-key"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    ask_with(&variables, args)
}

/// `a-secret-key` in Base64, as Azure hands out keys.
const AZURE_KEY: &str = "YS1zZWNyZXQta2V5";

fn ask_with(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let output = candlescope().args(args).envs(variables.iter().copied()).output().unwrap();
    let told = text(&output.stderr);
    assert!(!told.contains("a-secret-key") && !told.contains(AZURE_KEY), "{told}");
    output
}

/// Two runs in a folder, one of a machine whose name has to be quoted in a URL, and an archive of them.
fn recorded(dir: &Path) -> (PathBuf, PathBuf) {
    let (runs, archive) = (dir.join("runs"), dir.join("archive"));
    for name in ["one", "two"] {
        let args =
            ["profile", "--model", "embedded", "--max-new-tokens", "3", "--repeats", "1", "--no-progress", "--out"];
        ok(&[&args[..], &[runs.join(name).to_str().unwrap()]].concat());
    }
    let mut other = manifest(&runs.join("two"));
    other["host"] = "a/b c%".into();
    std::fs::write(runs.join("two/run.json"), other.to_string()).unwrap();
    ok(&["archive", runs.to_str().unwrap(), "--to", archive.to_str().unwrap(), "--keep-source"]);
    (runs, archive)
}

fn answered(port: u16, args: &[&str]) -> String {
    let output = ask(port, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn runs_and_archives_in_a_bucket_are_asked_as_on_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, archive) = recorded(dir.path());
    let Some(server) = Server::new("bucket.py", BUCKET, dir.path()) else { return };
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
    let args = ["query", QUESTIONS[0], "s3://traces/archive", "--json"];
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

/// A store that `stores.py` plays.
struct Store<'a> {
    kind: &'a str,
    /// With the key of a service account in it.
    dir: &'a Path,
}

impl Store<'_> {
    /// What it is called where it listens on a port.
    fn url(&self, port: u16) -> String {
        match self.kind {
            "gs" | "az" => format!("{}://{BUCKET}", self.kind),
            _ => format!("http://127.0.0.1:{port}"),
        }
    }

    fn ask(&self, port: u16, args: &[&str]) -> Output {
        let endpoint = format!("http://127.0.0.1:{port}");
        let account = self.dir.join(".account.json");
        let variables = match self.kind {
            "gs" => vec![("GOOGLE_SERVICE_ACCOUNT", account.to_str().unwrap()), ("GOOGLE_BASE_URL", &endpoint)],
            "az" => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", "somebody"),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY),
                ("AZURE_STORAGE_ENDPOINT", &endpoint),
                ("AZURE_ALLOW_HTTP", "true"),
            ],
            _ => Vec::new(),
        };
        ask_with(&variables, args)
    }

    /// The answer to a question about its archive.
    #[track_caller]
    fn answered(&self, port: u16, sql: &str, folder: &str) -> String {
        let output = self.ask(port, &["query", sql, &format!("{}/{folder}", self.url(port)), "--json"]);
        assert!(output.status.success(), "{sql} of {} in {folder}: {}", self.kind, text(&output.stderr));
        text(&output.stdout)
    }
}

#[test]
fn other_stores_than_s3_are_asked_as_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, archive) = recorded(dir.path());
    let here = |sql: &str, folder: &Path| ok(&["query", sql, folder.to_str().unwrap(), "--json"]);
    let expected = QUESTIONS.map(|sql| here(sql, &archive));
    let of_runs = here(QUESTIONS[0], &runs);
    for kind in ["dav", "dav1", "gs", "az"] {
        let store = Store { kind, dir: dir.path() };
        let Some(server) = Server::new("stores.py", kind, dir.path()) else { return };
        for (sql, expected) in QUESTIONS.iter().zip(&expected) {
            assert_eq!(&store.answered(server.port, sql, "archive"), expected, "{sql} of {kind}");
        }
        assert_eq!(store.answered(server.port, QUESTIONS[0], "runs/"), of_runs, "{kind}");
        let nothing = store.ask(server.port, &["query", "SELECT 1", &format!("{}/nothing", store.url(server.port))]);
        assert!(text(&nothing.stderr).contains("holds neither a run nor a study"), "{}", text(&nothing.stderr));

        // A request that fails once is made again, whichever it is; a store that goes on failing is told of.
        let (sql, answer) = (QUESTIONS[3], &expected[3]);
        let whole = Between::new(server.port, u64::MAX, 0);
        assert_eq!(&store.answered(whole.port, sql, "archive"), answer, "{kind}");
        let requests = whole.asked.load(Ordering::SeqCst);
        assert!(requests >= 4, "{kind}: {requests}");
        // Each kind has its own requests for listing; those for files are the same code.
        let all = if kind == "dav" { requests } else { 2 };
        for nth in (0..all).chain([requests - 1]) {
            let once = Between::new(server.port, nth, 1);
            let said = store.answered(once.port, sql, "archive");
            assert_eq!(&said, answer, "{kind}: the request {nth} of {requests} failed once");
            assert!(once.asked.load(Ordering::SeqCst) > requests, "{kind}: {nth} of {requests} was not made again");
        }
        for nth in [0, requests - 1] {
            let from_there = Between::new(server.port, nth, u64::MAX);
            let url = format!("{}/archive", store.url(from_there.port));
            let output = store.ask(from_there.port, &["query", sql, &url, "--json"]);
            let told = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{kind}: {told}");
            assert!(told.contains("cannot be read") && told.contains("archive"), "{kind}: {nth}: {told}");
        }
        // Who may not read is told so, and so is who names another bucket.
        let refused = |variables: &[(&str, &str)], url: &str, status: &str| {
            let endpoint = format!("http://127.0.0.1:{}", server.port);
            let named = [("GOOGLE_BASE_URL", endpoint.as_str()), ("AZURE_STORAGE_ENDPOINT", endpoint.as_str())];
            let more = [("AZURE_ALLOW_HTTP", "true"), ("AZURE_STORAGE_ACCOUNT_NAME", "somebody")];
            let output = ask_with(&[&named[..], &more, variables].concat(), &["query", "SELECT 1", url]);
            let told = text(&output.stderr);
            assert!(output.status.code() == Some(1) && told.contains("cannot be read"), "{url}: {told}");
            assert!(told.contains(status), "{url}: {told}");
        };
        match kind {
            "gs" => refused(&[("GOOGLE_SKIP_SIGNATURE", "true")], "gs://traces/archive", "403"),
            "az" => {
                refused(&[("AZURE_STORAGE_ACCOUNT_KEY", "YW5vdGhlcg==")], "az://traces/archive", "403");
                refused(&[("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)], "az://other/archive", "404");
            }
            _ => {}
        }
    }
}

/// What opening a run shows is told of one in a store as of one on a disk, and a file without a footer has no rows.
#[test]
fn damaged_runs_of_a_store_are_told_of_and_the_others_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, _) = recorded(dir.path());
    let store = Store { kind: "dav", dir: dir.path() };
    let Some(server) = Server::new("stores.py", store.kind, dir.path()) else { return };
    let whole = store.answered(server.port, QUESTIONS[0], "runs");
    let first = |table: &Path| std::fs::read_dir(table).unwrap().next().unwrap().unwrap().path();
    let cut = |file: &Path| {
        let bytes = std::fs::read(file).unwrap();
        std::fs::write(file, &bytes[..bytes.len() - 100]).unwrap();
    };
    for name in ["bare", "cut", "hollow", "newer"] {
        copy(&runs.join("one"), &runs.join(name));
    }
    std::fs::remove_file(runs.join("bare/run.json")).unwrap();
    let spans = first(&runs.join("cut/spans"));
    std::fs::copy(&spans, spans.with_extension("parquet.inprogress")).unwrap();
    cut(&spans);
    std::fs::remove_dir_all(runs.join("hollow")).unwrap();
    std::fs::create_dir_all(runs.join("hollow")).unwrap();
    std::fs::write(runs.join("hollow/run.json"), "").unwrap();
    std::fs::write(runs.join("newer/run.json"), r#"{"schema_version": 1000}"#).unwrap();

    let url = format!("{}/runs", store.url(server.port));
    let asked = |sql: &str| {
        let output = store.ask(server.port, &["query", sql, &url, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (json(&text(&output.stdout)), text(&output.stderr))
    };
    let (answer, told) = asked(QUESTIONS[0]);
    // The two that were there, and the one without its run.json, which is the first of them again.
    let spans_of = |name: &str| json(&ok(&["query", QUESTIONS[0], runs.join(name).to_str().unwrap(), "--json"]));
    let expected =
        json(&whole)["rows"][0]["spans"].as_i64().unwrap() + spans_of("one")["rows"][0]["spans"].as_i64().unwrap();
    assert_eq!(answer["rows"][0]["spans"], expected, "{answer} {told}");
    let left_out: Vec<&str> =
        answer["left_out"].as_array().unwrap().iter().map(|one| one["run"].as_str().unwrap()).collect();
    assert_eq!(left_out, ["hollow", "newer"].map(|name| format!("{url}/{name}")), "{answer}");
    for line in [
        format!("warning: `{url}/hollow` is left out: nothing in `{url}/hollow` can be read"),
        format!("warning: `{url}/newer` is left out: `{url}/newer/run.json` has schema version 1000"),
        format!("warning: `{url}/cut/spans/{}` is damaged (", spans.file_name().unwrap().to_str().unwrap()),
        format!(
            "warning: `{url}/cut/spans/{}.inprogress` was not finished",
            spans.file_name().unwrap().to_str().unwrap()
        ),
    ] {
        assert!(told.lines().any(|told| told.starts_with(&line)), "{line}:\n{told}");
    }
    assert!(!told.contains("bare/run.json"), "its rows are all there: {told}");
    // What a table lacks is told where that table is asked.
    let (_, told) = asked("SELECT count(*) FROM runs");
    assert!(told.contains("bare/run.json` is missing") && !told.contains("cut/spans"), "{told}");
    let output = store.ask(server.port, &["query", "SELECT 1", &format!("{url}/hollow")]);
    assert!(text(&output.stderr).contains("holds no run that can be read (1 cannot)"), "{}", text(&output.stderr));
    let summary = store.ask(server.port, &["summary", &url, "--json"]);
    let summary = json(&text(&summary.stdout));
    assert_eq!((&summary["runs"], summary["left_out"].as_array().map(Vec::len)), (&3.into(), Some(3)), "{summary}");
}
