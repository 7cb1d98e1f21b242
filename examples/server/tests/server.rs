//! The server as a client, a Prometheus and an operator see it: a process of its own, spoken to over HTTP.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope::Outcome;
use candlescope::sdk::{Batch, RequestRecord, StepRecord};
use candlescope_reader::Run;
use candlescope_testkit::records::join;
use candlescope_testkit::services::{free_addresses, get};
use candlescope_testkit::{SOON, wait_for, wait_until};
use common::Server;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Requests of clients.
impl Server {
    fn post(&self, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> (u16, Value) {
        let mut request = agent().post(&format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.set(name, value);
        }
        outcome(match body {
            Some(body) => request.send_json(body),
            None => request.call(),
        })
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let mut request = agent().get(&format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.set(name, value);
        }
        outcome(request.call())
    }

    fn complete(&self, body: Value) -> (u16, Value) {
        self.post("/v1/completions", &[], Some(body))
    }

    /// Clients that send one request after the other until the guard is dropped.
    fn busy(&self, clients: usize) -> Busy {
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(0);
        let stopped = std::sync::Arc::new(std::sync::Mutex::new(stopped));
        let threads = (0..clients)
            .map(|_| {
                let (url, stopped) = (self.url.clone(), stopped.clone());
                std::thread::spawn(move || {
                    let mut answers = 0;
                    let goes_on = || {
                        let received = stopped.lock().expect("no panic").try_recv();
                        received == Err(std::sync::mpsc::TryRecvError::Empty)
                    };
                    while goes_on() {
                        let body = json!({ "prompt": "Hello", "max_tokens": 16, "ignore_eos": true });
                        let (status, _) = outcome(agent().post(&format!("{url}/v1/completions")).send_json(body));
                        assert_eq!(status, 200);
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        Busy { stop: Some(stop), threads }
    }
}

struct Busy {
    stop: Option<std::sync::mpsc::SyncSender<()>>,
    threads: Vec<std::thread::JoinHandle<usize>>,
}

impl Busy {
    fn stop(mut self) -> usize {
        self.stop = None;
        self.threads.drain(..).map(|t| t.join().expect("a client")).sum()
    }
}

fn agent() -> ureq::Agent {
    ureq::AgentBuilder::new().timeout(SOON).build()
}

fn outcome(result: Result<ureq::Response, ureq::Error>) -> (u16, Value) {
    let response = match result {
        Ok(response) | Err(ureq::Error::Status(_, response)) => response,
        Err(error) => panic!("no answer: {error}"),
    };
    let status = response.status();
    let text = response.into_string().expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The data lines of a stream.
fn stream(url: &str, body: Value) -> Vec<String> {
    let response = agent().post(&format!("{url}/v1/completions")).send_json(body).expect("an answer");
    assert_eq!(response.content_type(), "text/event-stream");
    let lines = BufReader::new(response.into_reader()).lines().map(|l| l.expect("a line"));
    lines.filter_map(|l| l.strip_prefix("data: ").map(str::to_string)).collect()
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no error in {answer}"))
}

#[test]
fn answers_whole_or_streamed_are_the_same_text() {
    let server = Server::start::<&str>(&[]);
    let body = json!({ "prompt": "Hello", "max_tokens": 12, "temperature": 0, "ignore_eos": true });
    let (status, whole) = server.complete(body.clone());
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    let prompt = whole["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(whole["usage"]["total_tokens"], prompt + 12);
    let text = whole["choices"][0]["text"].as_str().expect("a text");
    assert!(!text.is_empty());

    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({ "include_usage": true });
    let mut chunks = stream(&server.url, streamed);
    assert_eq!(chunks.pop().as_deref(), Some("[DONE]"));
    let chunks: Vec<Value> = chunks.iter().map(|c| serde_json::from_str(c).expect("JSON")).collect();
    let usage = chunks.last().expect("chunks");
    assert_eq!((&usage["usage"]["completion_tokens"], &usage["choices"]), (&json!(12), &json!([])));
    let pieces: String = chunks.iter().filter_map(|c| c["choices"][0]["text"].as_str()).collect();
    assert_eq!(pieces, text);
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "length");
    assert!(chunks.iter().all(|c| c["id"] == chunks[0]["id"]));

    let (status, models) = server.get("/v1/models", &[]);
    assert_eq!((status, &models["data"][0]["id"]), (200, &whole["model"]));
    assert_eq!(server.get("/healthz", &[]).0, 200);
    server.stop();
}

#[test]
fn what_cannot_be_answered_is_said() {
    let server = Server::start(&["--most-tokens", "50"]);
    let path = format!("{}/v1/completions", server.url);
    let (status, answer) = outcome(agent().post(&path).send_string("{}"));
    assert_eq!((status, &answer["error"]["type"]), (415, &json!("invalid_request_error")), "{answer}");
    // A little more than is accepted, so that all of it is sent before the response comes.
    let huge = json!({ "prompt": "x".repeat((2 << 20) + 4_096) });
    assert_eq!(outcome(agent().post(&path).send_json(huge)).0, 413);
    let refused = |body: Value, status: u16, says: &str| {
        let (got, answer) = server.complete(body);
        assert_eq!(got, status, "{answer}");
        assert!(message(&answer).contains(says), "{answer}");
    };
    refused(json!({ "max_tokens": 5 }), 400, "prompt");
    refused(json!({ "prompt": "" }), 400, "empty; pass a text");
    refused(json!({ "prompt": [] }), 400, "empty; pass a text");
    refused(json!({ "prompt": "Hello", "max_tokens": 51 }), 400, "from 1 to 50");
    refused(json!({ "prompt": "Hello", "max_tokens": 0 }), 400, "from 1 to 50");
    refused(json!({ "prompt": "Hello", "model": "gpt-4" }), 404, "gpt-4");
    refused(json!({ "prompt": "Hello", "n": 2 }), 400, "`n`");
    refused(json!({ "prompt": "Hello", "stop": ["."] }), 400, "`stop`");
    refused(json!({ "prompt": ["a", "b"] }), 400, "2 prompts");
    refused(json!({ "prompt": [4_000_000_000_u32] }), 400, "4000000000");
    refused(json!({ "prompt": "Hello", "stream": true, "temperature": -1.0 }), 400, "temperature");
    refused(json!({ "prompt": [4_000_000_000_u32], "stream": true }), 400, "4000000000");
    // The server goes on, and no text to stop at is none, however it is written.
    for stop in [Value::Null, json!([])] {
        let (status, answer) = server.complete(json!({ "prompt": "Hello", "stop": stop }));
        assert_eq!(status, 200, "{stop}: {answer}");
    }
    assert_eq!(server.complete(json!({ "prompt": ["Hello"] })).0, 200);
}

#[test]
fn a_full_queue_refuses_and_a_client_that_goes_away_frees_the_model() {
    let server = Server::start(&["--queue", "1", "--most-tokens", "1000000"]);
    // As many tokens as the context allows, again and again: the model is busy until its client goes away.
    let long = json!({ "prompt": "Hello", "max_tokens": 100_000, "ignore_eos": true, "stream": true });
    let deadline = Instant::now() + SOON;
    let mut open = Vec::new();
    let refused = loop {
        assert!(Instant::now() < deadline, "never full");
        let (url, long) = (server.url.clone(), long.clone());
        // Each on a thread, because a response begins only when the model gets to the request.
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            let _ = tell.send(agent().post(&format!("{url}/v1/completions")).send_json(long).map_err(Box::new));
        });
        match heard.recv_timeout(Duration::from_millis(30)) {
            Ok(Err(error)) => break error,
            other => open.push((other.ok(), heard)),
        }
    };
    let (status, answer) = outcome(Err(*refused));
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("queue_full")));
    drop(open);
    // All clients are gone: the next one is answered.
    loop {
        assert!(Instant::now() < deadline, "the model is not free again");
        let (status, _) = server.complete(json!({ "prompt": "Hello", "max_tokens": 2, "ignore_eos": true }));
        if status == 200 {
            break;
        }
    }
}

/// A request that the client can abandon at any time, which `agent` cannot do.
fn ask(url: &str) -> TcpStream {
    let address = url.trim_start_matches("http://");
    let body = json!({ "prompt": "Hello", "max_tokens": 2, "ignore_eos": true }).to_string();
    let mut stream = TcpStream::connect(address).expect("connects");
    let length = body.len();
    let head = "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
    stream
}

/// The status of a response; `None` if there is none yet.
fn status(stream: &mut TcpStream, patience: Duration) -> Option<String> {
    stream.set_read_timeout(Some(patience)).expect("set");
    let mut line = [0; 12];
    match stream.read_exact(&mut line) {
        Ok(()) => Some(String::from_utf8_lossy(&line[9..]).to_string()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("no answer: {error}"),
    }
}

#[test]
fn a_client_that_leaves_the_queue_makes_room_at_once() {
    leaves_the_queue("");
}

/// What it sent after its request is not read before that is answered, and its end lies behind it.
#[test]
fn a_client_that_leaves_with_bytes_unread_makes_room_too() {
    leaves_the_queue("\r\nGET /");
}

fn leaves_the_queue(unread: &str) {
    let server = Server::start(&["--queue", "1", "--most-tokens", "1000000"]);
    let deadline = Instant::now() + SOON;
    let long = json!({ "prompt": "Hello", "max_tokens": 100_000, "ignore_eos": true, "stream": true });
    // The model is busy for a second or two, until its context is full. What follows may take longer on a busy machine,
    // and is then tried again.
    loop {
        assert!(Instant::now() < deadline, "nobody was let in while the model was busy");
        let response = agent().post(&format!("{}/v1/completions", server.url)).send_json(&long).expect("an answer");
        let mut first = response.into_reader();
        first.read_exact(&mut [0; 16]).expect("a first token");
        let busy = std::thread::spawn(move || std::io::copy(&mut first, &mut std::io::sink()));

        let moment = Duration::from_millis(60);
        let mut let_in = None;
        let mut waiting = ask(&server.url);
        if status(&mut waiting, moment).is_none() && status(&mut ask(&server.url), SOON).as_deref() == Some("429") {
            waiting.write_all(unread.as_bytes()).expect("sent");
            drop(waiting);
            // It takes the server a moment to notice.
            while let_in.is_none() && !busy.is_finished() {
                let mut next = ask(&server.url);
                let_in = status(&mut next, moment).is_none().then_some(next);
            }
        }
        let in_time = !busy.is_finished();
        busy.join().expect("no panic").expect("a whole answer");
        if let Some(mut next) = let_in
            && status(&mut next, SOON).as_deref() == Some("200")
            && in_time
        {
            break;
        }
    }
}

#[test]
fn a_signal_while_the_model_loads_does_no_harm() {
    let server = Server::launch(&["--model", "config:smollm2-135m"], None);
    // The operating system lists the signals that a process handles: SIGUSR1 is the tenth.
    let takes = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
        let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).unwrap_or_default();
        u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & (1 << 9) != 0)
    };
    wait_until(takes, "the signal is taken");
    // The model loads for about a second now.
    server.signal("-USR1");
    let (mut captures, mut listens) = (false, false);
    while !(captures && listens) {
        let line = server.hears("");
        captures |= line.starts_with("capturing: ");
        listens |= line.starts_with("listening on ");
    }
}

fn run_of(answer: &Value) -> PathBuf {
    answer["run"].as_str().expect("a run").into()
}

/// Intervals that a step made, recorded or not.
fn made(step: &StepRecord) -> u64 {
    step.intervals + step.intervals_lost.expect("known in new runs")
}

/// Number of steps of a run, and whether each has all its layers or states how many of them were lost.
fn steps_in(run: &Path) -> (usize, bool) {
    let opened = Run::open(run).expect("a run");
    let manifest = opened.manifest().expect("a manifest").clone();
    assert!(manifest.complete);
    let Batch { steps, spans, .. } = join(opened.batches());
    let mut inside = std::collections::HashMap::<u64, u64>::new();
    spans.iter().filter_map(|s| s.step).for_each(|step| *inside.entry(step).or_default() += 1);
    // Every step makes the same number of intervals, even if some were lost because the machine was stalled.
    let mut of_phase = std::collections::HashMap::new();
    let whole = steps.iter().all(|step| {
        let usual = *of_phase.entry(step.phase).or_insert_with(|| made(step));
        inside.get(&step.step) == Some(&step.intervals) && made(step) == usual && usual > 10
    });
    let (lost, theirs) = (manifest.loss.lost(), steps.iter().filter_map(|s| s.intervals_lost).sum::<u64>());
    let steps_lost = manifest.verdict.findings.iter().any(|f| f.remedy().contains("others were dropped"));
    assert!(lost == theirs || (lost > theirs && steps_lost), "{lost} lost, {theirs} of these steps: {manifest:?}");
    assert_eq!(manifest.verdict.ok, lost == 0 && !steps.is_empty(), "{:?}", manifest.verdict);
    (steps.len(), whole)
}

#[test]
fn a_capture_on_demand_is_a_run_of_the_next_steps_while_the_server_goes_on() {
    let server = Server::start(&["--capture-token", "secret", "--workers", "2"]);
    let token = [("Authorization", "Bearer secret")];
    let busy = server.busy(2);

    let (status, answer) = server.post("/debug/capture?steps=5", &[], None);
    assert_eq!(status, 401, "{answer}");
    let (status, answer) = server.post("/debug/capture?steps=5", &[("Authorization", "Bearer secreT")], None);
    assert_eq!(status, 401, "{answer}");
    assert_eq!(server.get("/debug/capture", &[]).0, 401);
    for (query, says) in [("", "steps"), ("?steps=0", "from 1"), ("?steps=many", "steps"), ("?steps=100001", "100000")]
    {
        let (status, answer) = server.post(&format!("/debug/capture{query}"), &token, None);
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(message(&answer).contains(says), "{query}: {answer}");
    }

    let asked = Instant::now();
    let (status, answer) = server.post("/debug/capture?steps=25&wait=true", &token, None);
    println!("a capture of 25 steps was written after {:?}", asked.elapsed());
    assert_eq!((status, &answer["state"], &answer["ok"]), (200, &json!("written"), &json!(true)), "{answer}");
    assert_eq!(answer["steps"], 25);
    assert_eq!(steps_in(&run_of(&answer)), (25, true));
    let (_, latest) = server.get("/debug/capture", &token);
    assert_eq!(latest, answer);

    // A long capture, and a second one meanwhile.
    let (status, first) = server.post("/debug/capture?steps=100000", &token, None);
    assert_eq!((status, &first["state"]), (202, &json!("running")), "{first}");
    let (status, second) = server.post("/debug/capture?steps=5", &token, None);
    assert_eq!((status, &second["error"]["code"]), (409, &json!("capture_under_way")), "{second}");
    assert!(message(&second).contains("more steps"), "{second}");
    assert!(busy.stop() > 2);

    // The capture ends with the server, and nothing of it is lost.
    let _kept = server.dir.clone();
    server.stop();
    let (steps, whole) = steps_in(&run_of(&first));
    assert!(steps > 0 && whole, "{steps} steps");
}

#[test]
fn a_server_that_stops_lets_go_of_whoever_waits() {
    let server = Server::start(&["--capture-token", "secret"]);
    let (dir, url) = (server.dir.clone(), server.url.clone());
    let waiting = std::thread::spawn(move || {
        let path = format!("{url}/debug/capture?steps=50&wait=true");
        outcome(agent().post(&path).set("Authorization", "Bearer secret").call())
    });
    let captures = dir.path().join("captures");
    wait_until(|| std::fs::read_dir(&captures).map_or(0, Iterator::count) > 0, "a capture begins");
    // Two of the fifty steps.
    assert_eq!(server.complete(json!({ "prompt": "Hello", "max_tokens": 2, "ignore_eos": true })).0, 200);
    server.stop();
    let (status, answer) = waiting.join().expect("a client");
    assert_eq!((status, &answer["state"]), (202, &json!("running")), "{answer}");
    let (steps, whole) = steps_in(&run_of(&answer));
    assert!(steps <= 2 && whole, "{steps} steps");
}

/// Every answer has to begin within the time of a request, that to a client which waits for a capture too.
#[test]
fn a_client_that_waits_for_a_capture_is_answered_within_a_request_s_time() {
    let server = Server::start(&["--capture-token", "secret", "--request-seconds", "2", "--write-seconds", "20"]);
    let asked = Instant::now();
    let (status, answer) =
        server.post("/debug/capture?steps=50&wait=true", &[("Authorization", "Bearer secret")], None);
    assert_eq!((status, &answer["state"]), (202, &json!("running")), "{answer}");
    assert!(asked.elapsed() >= Duration::from_secs(2), "it waited as long as it could");
    server.stop();
}

#[test]
fn a_signal_captures_too_and_without_a_token_http_does_not() {
    let server = Server::start(&["--signal-steps", "7"]);
    let (status, answer) = server.post("/debug/capture?steps=5", &[("Authorization", "Bearer ")], None);
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("capture_off")), "{answer}");
    server.signal("-USR1");
    server.hears("capturing: ");
    let busy = server.busy(1);
    let written = server.hears("captured: ");
    let answer: Value = serde_json::from_str(written.trim_start_matches("captured: ")).expect("JSON");
    assert_eq!(steps_in(&run_of(&answer)), (7, true));
    assert!(run_of(&answer).starts_with(server.dir.path()));
    busy.stop();
}

#[test]
fn metrics_and_the_run_say_what_the_clients_saw() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let [address] = free_addresses();
    let port = address.port();
    let server = Server::start(&[
        "--prometheus",
        &port.to_string(),
        "--parquet",
        run.to_str().expect("UTF-8"),
        "--most-tokens",
        "1000000",
    ]);
    let caller = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traceparent = format!("00-{caller}-00f067aa0ba902b7-01");
    for _ in 0..3 {
        let body = json!({ "prompt": "Hello", "max_tokens": 8, "ignore_eos": true });
        assert_eq!(server.post("/v1/completions", &[("traceparent", &traceparent)], Some(body)).0, 200);
    }
    // A client that leaves after its first token.
    let body = json!({ "prompt": "Hello", "max_tokens": 100_000, "ignore_eos": true, "stream": true });
    let mut left =
        agent().post(&format!("{}/v1/completions", server.url)).send_json(body).expect("an answer").into_reader();
    left.read_exact(&mut [0; 16]).expect("a first token");
    drop(left);

    let four_requests = || {
        let page = get(address, "/metrics").expect("metrics");
        let value = |name: &str| {
            let of = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(f64::NAN);
            page.lines().filter(|l| l.starts_with(name)).map(of).sum::<f64>()
        };
        let all = value("gen_ai_server_request_duration_seconds_count") == 4.0;
        all.then(|| value("candlescope_tokens_total{"))
    };
    assert!(wait_for(four_requests, "four requests are on the page") > 24.0);
    let said = server.stop();
    assert!(said.iter().any(|l| l.contains(" 0 lost")), "{said:?}");

    let opened = Run::open(&run).expect("a run");
    let requests = join(opened.batches()).requests;
    assert_eq!(requests.len(), 4);
    let tokens: Vec<Option<u64>> = requests.iter().map(|r| r.output_tokens).collect();
    assert_eq!(tokens[..3], [Some(8); 3]);
    // The context ends at 2,048 tokens.
    assert!(tokens[3].is_some_and(|n| n < 2_000), "it went on without its client: {tokens:?}");
    assert!(requests[..3].iter().all(|r| r.trace_id.to_string() == caller && r.ttft_ns.is_some()));
    let manifest = opened.manifest().expect("a manifest");
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    assert_eq!(manifest.model["name"], json!("embedded"));
}

#[test]
fn an_address_in_use_is_the_only_thing_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_candlescope-server"));
    let output = command.args(["--model", "embedded", "--listen", &address]).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(&format!("cannot listen on {address}")), "{text}");
    assert!(!text.contains("no_spans") && !text.contains("install the layer"), "{text}");
}

#[test]
fn slots_are_as_many_as_the_memory_that_may_be_used_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let start = |share: &str, workers: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_candlescope-server"));
        command.args([
            "--model",
            "embedded",
            "--listen",
            "127.0.0.1:0",
            "--max-num-seqs",
            "8",
            "--max-model-len",
            "200",
        ]);
        command.args(["--gpu-memory-utilization", share, "--workers", workers]);
        command.output().expect("starts")
    };
    for (share, workers, said) in [
        ("0.000001", "1", "no slot of 200 tokens"),
        // Each of them has its part.
        ("0.000001", "3", "for each of 3 models fits"),
        ("1.5", "1", "above 0 and up to 1"),
        ("nan", "1", "above 0 and up to 1"),
    ] {
        let output = start(share, workers);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{share}: {text}");
    }
    let run_text = run.to_str().expect("UTF-8");
    let options = ["--max-num-seqs", "3", "--max-model-len", "200", "--gpu-memory-utilization", "1"];
    let server = Server::start(&[&options[..], &["--record", "cost=100%", "--parquet", run_text]].concat());
    let (status, answer) = server.complete(json!({ "prompt": "Hello", "max_tokens": 190, "ignore_eos": true }));
    assert_eq!(status, 200, "{answer}");
    // What is held shows in a sample: they are taken ten times a second.
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.stop();
    let opened = Run::open(&run).expect("a run");
    let batch = join(opened.batches());
    let most = |metric: &str| {
        let values = batch.samples.iter().filter(|sample| sample.metric == metric).map(|sample| sample.value);
        values.fold(0.0, f64::max)
    };
    let (allocated, used) = (most("candlescope_kv_cache_allocated_bytes"), most("candlescope_kv_cache_used_bytes"));
    // Of three slots of 200 tokens one holds all but the last of a text's tokens, which are 190 and the prompt.
    assert!(used > allocated * 190.0 / 600.0 && used <= allocated / 3.0, "{used} of {allocated} bytes");
    let manifest = opened.manifest().expect("a manifest");
    assert_eq!(manifest.overhead.budget.map(|budget| budget.target), Some(1.0));
}

/// Keys and values in 8 bits: the same answers can be had, in memory of a byte for each value and four for each head.
#[test]
fn slots_in_8_bits_take_as_much_less_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let allocated = |dtype: &str| {
        let run = dir.path().join(dtype);
        let slots = ["--max-num-seqs", "3", "--max-model-len", "200", "--kv-cache-dtype", dtype];
        let recorded = ["--record", "cost=100%", "--parquet", run.to_str().expect("UTF-8")];
        let server = Server::start(&[&slots[..], &recorded].concat());
        let (status, answer) = server.complete(json!({ "prompt": "Hello", "max_tokens": 20, "ignore_eos": true }));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 20, "{answer}");
        std::thread::sleep(std::time::Duration::from_millis(300));
        server.stop();
        let batch = join(Run::open(&run).expect("a run").batches());
        let all = batch.samples.iter().filter(|sample| sample.metric == "candlescope_kv_cache_allocated_bytes");
        all.map(|sample| sample.value).fold(0.0, f64::max)
    };
    // Of f32, in heads of 32: a byte each and a scale of four.
    assert_eq!(allocated("q8") * 32.0 * 4.0, allocated("auto") * (32.0 + 4.0));
}

#[test]
fn a_prompt_s_beginning_that_a_slot_holds_is_not_computed_again() {
    let cached = |options: &[&str]| {
        let server = Server::start(&[&["--max-num-seqs", "2", "--max-model-len", "200"], options].concat());
        let ask = |end: &str| {
            let prompt = format!("The same words stand before every question that is asked here. {end}");
            let (status, answer) = server.complete(json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 }));
            assert_eq!(status, 200, "{answer}");
            let text = answer["choices"][0]["text"].as_str().expect("a text").to_string();
            (answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number"), text)
        };
        (ask("One"), ask("Two"))
    };
    let ((first, _), (second, text)) = cached(&[]);
    assert!(first == 0 && second >= 16, "{first}, {second}");
    // Pieces of any length and whole prompts give the same text.
    for options in [&["--no-prefix-reuse"][..], &["--no-prefix-reuse", "--prompt-piece", "5"]] {
        let (_, whole) = cached(options);
        assert_eq!(whole, (0, text.clone()), "{options:?}");
    }
}

#[test]
fn requests_at_once_share_steps_and_each_gets_its_own_text() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("run");
    let prompts = ["Hello", "Once upon a time there was", "A", "The quick brown fox", "Zebras"];
    let asked = |prompt: &str| json!({ "prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": true });
    let text = |answer: &Value| answer["choices"][0]["text"].as_str().expect("a text").to_string();
    let one_by_one: Vec<String> = {
        let server = Server::start::<&str>(&[]);
        prompts.iter().map(|prompt| text(&server.complete(asked(prompt)).1)).collect()
    };

    let run_text = run.to_str().expect("UTF-8");
    let server = Server::start(&["--max-num-seqs", "3", "--max-model-len", "200", "--parquet", run_text]);
    let path = format!("{}/v1/completions", server.url);
    let together: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let ask = |prompt: &&str| outcome(agent().post(&path).send_json(asked(prompt)));
        let asking: Vec<_> = prompts.iter().map(|prompt| scope.spawn(move || ask(prompt))).collect();
        asking.into_iter().map(|client| client.join().expect("an answer")).collect()
    });
    for ((status, answer), alone) in together.iter().zip(&one_by_one) {
        assert_eq!((*status, text(answer)), (200, alone.clone()), "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 60);
    }
    // The client's mistakes are said as ever, and a client that leaves frees its slot.
    let (status, answer) = server.complete(json!({ "prompt": [4_000_000_000_u32] }));
    assert_eq!(status, 400, "{answer}");
    let (status, answer) = server.complete(json!({ "prompt": vec![1; 200] }));
    assert!(status == 400 && message(&answer).contains("context is 200"), "{answer}");
    for _ in 0..4 {
        let body = json!({ "prompt": "Hello", "max_tokens": 190, "ignore_eos": true, "stream": true });
        let mut left =
            agent().post(&format!("{}/v1/completions", server.url)).send_json(body).expect("an answer").into_reader();
        left.read_exact(&mut [0; 16]).expect("a first token");
    }
    assert_eq!(server.complete(asked("Hello")).0, 200);
    server.stop();

    let opened = Run::open(&run).expect("a run");
    let batch = join(opened.batches());
    let whole = |request: &&RequestRecord| request.outcome == Some(Outcome::Done);
    assert_eq!(batch.requests.iter().filter(whole).count(), prompts.len() + 1);
    let most = batch.steps.iter().map(|step| step.serves.len()).max();
    assert!(most >= Some(2), "no step was shared");
    for request in batch.requests.iter().filter(whole) {
        let served =
            batch.steps.iter().flat_map(|step| &step.serves).filter(|served| served.request == request.request);
        assert_eq!(served.map(|served| u64::from(served.output_tokens)).sum::<u64>(), 60, "every token has its step");
        assert!(request.queue_ns.is_some() && request.ttft_ns.is_some() && request.prompt_tokens.is_some());
    }
    let manifest = opened.manifest().expect("a manifest");
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}
