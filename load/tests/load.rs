//! The load generator against servers that answer by a script, whose pauses are known.
#![allow(missing_docs, reason = "a test")]

use candlescope_load::{
    Amount, End, Endpoint, FailureKind, Figures, Level, LoadError, LoadOptions, LoadResults, NoWatch, Part,
    PromptSource, REQUESTS_FILE, RESULTS_FILE, RequestRecord, Spread, Stop, TokensBy, run,
};
use candlescope_testkit::completions::{Act, JSON, Request, SSE, Server, models, stream, token};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const MS: f64 = 1e6;

/// Few requests and no warm-up.
fn options(server: &Server, requests: u64) -> LoadOptions {
    LoadOptions::new(server.url())
        .amount(Amount::Requests(requests))
        .warmup(Amount::Requests(0))
        .prompts(PromptSource::Text("Say something.".into()))
        .max_tokens(8)
        .seed(42)
        .timeout(Duration::from_secs(20))
}

fn load(options: &LoadOptions) -> LoadResults {
    run(options, &Stop::new(), &NoWatch).expect("the load begins")
}

fn fails(options: &LoadOptions) -> LoadError {
    run(options, &Stop::new(), &NoWatch).expect_err("the load cannot begin")
}

fn figures(results: &LoadResults) -> &Figures {
    results.stages[0].figures.as_ref().expect("figures")
}

fn median(spread: &Option<Spread>) -> f64 {
    spread.as_ref().expect("a spread").median
}

fn measured(results: &LoadResults) -> Vec<&RequestRecord> {
    results.requests.iter().filter(|r| r.part == Part::Measured).collect()
}

/// A server that streams after `first` ms, with `gap` ms between tokens.
fn streaming(n: u64, first: u64, gap: u64) -> Server {
    Server::start(move |request| models(request).unwrap_or_else(|| stream(n, first, gap, 5)))
}

#[test]
fn figures_are_those_of_the_schedule() {
    let server = streaming(6, 60, 30);
    let slo = "ttft=10s,tpot=10s,e2e=20s".parse().expect("limits");
    let options = options(&server, 10).levels([Level::Concurrency(2)]).warmup(Amount::Requests(2)).slo(slo);
    let results = load(&options);
    assert_eq!(results.end, End::Complete);
    let f = figures(&results);
    assert_eq!((f.measured, f.ok, f.failed.len()), (10, 10, 0));
    // The script's pauses are the least that can be; what comes on top is the machine's.
    let bounds = |what: &str, value: f64, least: f64, most: f64| {
        assert!((least * MS..most * MS).contains(&value), "{what}: {} ms", value / MS);
    };
    bounds("TTFT", median(&f.ttft_ns), 60.0, 120.0);
    bounds("TPOT", median(&f.tpot_ns), 27.0, 60.0);
    bounds("ITL", median(&f.itl_ns), 25.0, 60.0);
    bounds("E2E", median(&f.e2e_ns), 205.0, 420.0);
    assert_eq!((median(&f.output_tokens), median(&f.prompt_tokens)), (6.0, 5.0));
    assert_eq!((f.output_tokens_by, f.chunks_per_token), (Some(TokensBy::Usage), Some(1.0)));
    assert_eq!(f.itl_ns.as_ref().map(|s| s.n), Some(50));
    assert!(f.ttft_ns.as_ref().is_some_and(|s| s.p90.is_some() && s.p95.is_none()), "10 samples have no p95");
    assert_eq!(f.goodput.as_ref().expect("limits were given").share, 1.0);
    // Two at once, all the time: tokens a second follow from the end-to-end latency.
    assert!((1.7..2.05).contains(&f.in_flight), "{}", f.in_flight);
    let expected = 2.0 * 6.0 / (f.e2e_ns.as_ref().expect("e2e").mean / 1e9);
    let tokens = f.output_tokens_per_s.expect("counted");
    assert!((0.7 * expected..1.15 * expected).contains(&tokens), "{tokens} {expected}");

    let slow = options.slo("ttft=30ms".parse().expect("limits"));
    assert_eq!(figures(&load(&slow)).goodput.as_ref().expect("limits were given").share, 0.0);
}

#[test]
fn times_are_those_that_the_server_saw() {
    let server = streaming(5, 20, 15);
    let results = load(&options(&server, 12).levels([Level::Concurrency(1)]));
    // One client: requests are answered in the order in which they were sent.
    let mut late = Vec::new();
    for (r, sent) in measured(&results).iter().zip(server.sent()) {
        assert_eq!(r.token_ns.len(), 5);
        for (seen, sent) in r.token_ns.iter().zip(&sent) {
            let sent = sent.as_nanos() as f64;
            assert!(*seen as f64 >= sent, "received after {seen} ns, but sent after {sent}");
            late.push(*seen as f64 - sent);
        }
    }
    late.sort_by(f64::total_cmp);
    assert!(late[late.len() / 2] < 10.0 * MS, "half of the tokens were seen late: {} ms", late[late.len() / 2] / MS);
}

#[test]
fn arrivals_do_not_wait_for_a_slow_server() {
    // Answers one at a time, in 40 ms: 25 a second at best.
    let slow = Server::one_at_a_time(|r| models(r).unwrap_or_else(|| stream(2, 20, 20, 5)));
    let fast = streaming(2, 0, 0);
    let limits = || "ttft=80ms".parse().expect("limits");
    let loaded = |server: &Server, room| {
        load(&options(server, 50).levels([Level::Rate(50.0)]).max_in_flight(room).slo(limits()).seed(3))
    };
    let (one, many) = (loaded(&slow, 1), loaded(&fast, 100));
    // With room for one request, sending waits for the server, and planned arrivals do not.
    let planned = |results: &LoadResults| -> Vec<u64> {
        let times: Vec<u64> = measured(results).iter().map(|r| r.planned_ns.expect("planned")).collect();
        times.iter().map(|t| t - times[0]).collect()
    };
    for (a, b) in planned(&one).iter().zip(planned(&many)) {
        assert!(a.abs_diff(b) <= 1, "{a} {b}: the same seed plans the same times");
    }
    let f = figures(&one);
    let (sent, planned) = (median(&f.ttft_ns), median(&f.ttft_from_planned_ns));
    assert!(planned > 4.0 * sent && planned > 200.0 * MS, "sent {sent}, planned {planned}");
    assert!(f.goodput.as_ref().expect("limits").share < 0.5, "goodput counts from the planned arrival");
    assert!(f.generator.material, "waiting for room is told");
    assert!(one.summary().contains("late"), "{}", one.summary());
    assert_eq!(f.saturation.saturated, Some(true), "{:?}", f.saturation);
    let f = figures(&many);
    assert_eq!(f.saturation.saturated, Some(false), "{:?}", f.saturation);
    assert!(f.goodput.as_ref().expect("limits").share > 0.8, "{:?}", f.ttft_from_planned_ns);
}

#[test]
fn a_sweep_finds_what_the_server_carries() {
    // 25 ms a request, one at a time: 40 a second at best.
    let server = Server::one_at_a_time(|r| models(r).unwrap_or_else(|| stream(2, 15, 10, 5)));
    let results = load(&options(&server, 40).sweep());
    assert_eq!(results.end, End::Complete);
    let (carried, not) = (results.carried_per_s.expect("a rate"), results.saturated_per_s.expect("a rate"));
    assert!(carried < not && (5.0..45.0).contains(&carried) && (15.0..200.0).contains(&not), "{carried} {not}");
    assert_eq!(results.stages[0].level, Level::Concurrency(1));
    assert!(results.summary().contains("the server carries"), "{}", results.summary());
}

#[test]
fn a_sweep_of_too_few_requests_says_so() {
    let server = streaming(2, 5, 5);
    let results = load(&options(&server, 3).sweep());
    assert_eq!((results.end.clone(), results.stages.len()), (End::Complete, 2));
    assert_eq!((results.carried_per_s, results.saturated_per_s), (None, None));
    assert!(results.summary().contains("too few requests to tell"), "{}", results.summary());
}

#[test]
fn failures_by_kind_keep_what_had_arrived() {
    let begun = |then: Vec<Act>| [vec![Act::Head(200, SSE), token("a"), Act::Wait(5), token("b")], then].concat();
    let server = Server::start(move |request| {
        if let Some(answer) = models(request) {
            return answer;
        }
        if request.is_first() {
            return stream(2, 0, 0, 5);
        }
        match request.number % 10 {
            0 => vec![Act::Whole(500, JSON, json!({ "error": { "message": "it broke" } }).to_string())],
            1 => vec![Act::Whole(429, JSON, json!({ "detail": "too many" }).to_string())],
            2 => begun(vec![Act::HangUp]),
            3 => begun(vec![Act::Send("data: {\"choices\": nonsense}\n\n".into()), Act::End]),
            4 => begun(vec![Act::Send("data: {\"error\":{\"message\":\"out of memory\"}}\n\n".into()), Act::End]),
            // Never ends.
            5 => begun((0..200).flat_map(|_| [Act::Wait(20), token("c")]).collect()),
            // The head comes too late.
            6 => vec![Act::Wait(3000), Act::HangUp],
            7 => vec![Act::Head(200, SSE), Act::Send("data: [DONE]\n\n".into()), Act::End],
            8 => vec![Act::HangUp],
            _ => stream(3, 0, 0, 5),
        }
    });
    let options = options(&server, 20).levels([Level::Concurrency(5)]).timeout(Duration::from_millis(1200));
    let results = load(&options);
    assert_eq!(results.end, End::Complete, "a server with failures is still there");
    let f = figures(&results);
    let kinds: BTreeMap<&str, u64> = f.failed.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    let expected = [
        ("empty", 2),
        ("error_in_stream", 2),
        ("hung_up", 4),
        ("malformed", 2),
        ("status_429", 2),
        ("status_500", 2),
        ("timeout", 4),
    ];
    assert_eq!((kinds, f.ok), (BTreeMap::from(expected), 2));
    let said = |kind: FailureKind| {
        let failures = results.requests.iter().filter_map(|r| Some((r, r.failure.as_ref()?)));
        failures.filter(|(_, f)| f.kind == kind).map(|(r, f)| (f.message.clone(), r.token_ns.len())).max_by_key(|f| f.1)
    };
    assert_eq!(said(FailureKind::Status(500)), Some(("it broke".into(), 0)));
    assert_eq!(said(FailureKind::Status(429)), Some(("too many".into(), 0)));
    assert_eq!(said(FailureKind::ErrorInStream), Some(("out of memory".into(), 2)));
    assert_eq!(said(FailureKind::HungUp).map(|f| f.1), Some(2));
    assert!(said(FailureKind::Malformed).is_some_and(|(text, tokens)| text.contains("in 21 bytes") && tokens == 2));
    assert!(said(FailureKind::Timeout).is_some_and(|(text, tokens)| text.contains("1.2 s") && tokens > 5));
    // A latency of an answer that is not whole is in no figure.
    assert_eq!(f.e2e_ns.as_ref().map(|s| s.n), Some(2));
}

#[test]
fn a_server_that_dies_leaves_its_results() {
    let server = Server::start(|request| {
        if request.path == "/metrics" {
            return vec![Act::Whole(200, "text/plain", "candlescope_run_info{run_id=\"r-8\"} 1\n".into())];
        }
        models(request).unwrap_or_else(|| stream(4, 5, 5, 5))
    });
    let options = options(&server, 1).levels([Level::Concurrency(2), Level::Concurrency(3)]);
    let options = options.amount(Amount::Seconds(Duration::from_secs(30)));
    let results = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&options));
        candlescope_testkit::wait_until(|| server.seen().len() > 30, "the load is on");
        server.die();
        loaded.join().expect("no panic")
    });
    let End::ServerGone { since_ns, why, .. } = &results.end else { panic!("{:?}", results.end) };
    assert!(!why.is_empty() && results.stages.len() == 1, "there is no second stage: {why}");
    let ok: Vec<_> = results.requests.iter().filter(|r| r.is_ok()).collect();
    assert!(ok.len() >= 20 && figures(&results).ok >= 20);
    let last = ok.iter().map(|r| r.ended_at()).max().expect("some");
    assert!(last <= *since_ns, "the last answer at {last}, gone since {since_ns}");
    let summary = results.summary();
    assert!(summary.contains("did not answer any more"), "{summary}");
    assert!(summary.contains("as the run r-8"), "{summary}");
    assert!(summary.contains("read before the load, and not after it"), "{summary}");
    assert!(!summary.contains("--metrics URL"), "its metrics had been found: {summary}");
}

#[test]
fn a_server_that_refuses_some_and_answers_others_is_there() {
    let begun = std::sync::atomic::AtomicBool::new(false);
    let server = Server::start(move |request| {
        if let Some(answer) = models(request) {
            return answer;
        }
        if request.is_first() {
            return stream(2, 0, 0, 5);
        }
        // One answer lasts longer than the window.
        let refused = begun.swap(true, std::sync::atomic::Ordering::Relaxed);
        if refused { vec![Act::Wait(40), Act::HangUp] } else { stream(50, 0, 50, 5) }
    });
    let options = options(&server, 1).levels([Level::Concurrency(2)]).amount(Amount::Seconds(Duration::from_secs(2)));
    let results = load(&options);
    assert_eq!(results.end, End::Complete);
    let f = figures(&results);
    assert!(f.ok == 1 && f.failed["hung_up"] > 10, "{:?}", f.failed);
}

#[test]
fn a_connection_that_the_server_closed_between_answers_costs_no_request() {
    // The first request leaves an open connection behind. Then each odd one finds it closed.
    let server = Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.number % 2 == 1 => vec![Act::HangUp],
        None => stream(2, 0, 0, 5),
    });
    let results = load(&options(&server, 4));
    let f = figures(&results);
    assert_eq!((f.ok, f.sent_again, f.failed.len(), server.seen().len()), (4, 4, 0, 1 + 2 * 4), "{:?}", f.failed);
    assert!(measured(&results).iter().all(|r| r.sent_again && r.connect_ns.is_some()));
    assert!(results.summary().contains("4 of 4 requests were sent twice"), "{}", results.summary());

    // As llama.cpp's server does it: closed after each stream, without a word. Whoever sees it first, nothing fails.
    let closing = Server::start(|r| models(r).unwrap_or_else(|| [stream(2, 0, 0, 5), vec![Act::HangUp]].concat()));
    let results = load(&options(&closing, 20).levels([Level::Concurrency(2)]));
    assert_eq!((figures(&results).ok, figures(&results).failed.len()), (20, 0), "{:?}", figures(&results).failed);

    // One that was closed because of the request is a failure.
    let server = Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.is_first() => stream(2, 0, 0, 5),
        None => vec![Act::Wait(1100), Act::HangUp],
    });
    let results = load(&options(&server, 1));
    let failed = measured(&results).iter().filter_map(|r| Some((r.failure.as_ref()?.kind, r.sent_again))).next();
    assert_eq!((failed, server.seen().len()), (Some((FailureKind::HungUp, false)), 2));
}

#[test]
fn a_stopped_load_keeps_what_there_is() {
    let server = streaming(100, 5, 20);
    let stop = Stop::new();
    let options = options(&server, 1000).levels([Level::Concurrency(3)]);
    let results = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| run(&options, &stop, &NoWatch).expect("it had begun"));
        candlescope_testkit::wait_until(|| server.seen().len() >= 4, "the load is on");
        std::thread::sleep(Duration::from_millis(300));
        stop.stop();
        loaded.join().expect("no panic")
    });
    assert_eq!(results.end, End::Stopped);
    assert_eq!(results.requests.len(), 3);
    for r in &results.requests {
        assert_eq!(r.failure.as_ref().map(|f| f.kind), Some(FailureKind::Cancelled));
        assert!((3..90).contains(&r.token_ns.len()), "{}", r.token_ns.len());
    }
    let f = figures(&results);
    assert_eq!((f.measured, f.ok, f.failed.len()), (0, 0, 0), "what was given up is no failure of the server");
    assert!(f.output_tokens_per_s.is_some_and(|n| n > 10.0), "tokens that arrived count");
}

#[test]
fn variations_of_servers() {
    let whole = json!({
        "choices": [{ "message": { "content": "ab" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 7 },
    });
    let text = |text: &str| Act::Send(text.to_string());
    // No usage and no [DONE], lines that end in CR LF, comments, an empty delta first, two chunks at once.
    let odd = vec![
        Act::Head(200, SSE),
        text(": ping\r\n\r\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n"),
        Act::Wait(30),
        text("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\r\n\r\n: ping\r\n\r\n"),
        text(
            "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\r\n\r\n",
        ),
        text("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n"),
        Act::End,
    ];
    // Several tokens a chunk, and usage that grows with each of them.
    let several = vec![
        Act::Head(200, SSE),
        text("data: {\"choices\":[{\"delta\":{\"content\":\"a b c\"}}],\"usage\":{\"completion_tokens\":3}}\n\n"),
        text(
            "data: {\"choices\":[{\"delta\":{\"content\":\"d e\"},\"finish_reason\":\"length\"}],\"usage\":{\"completion_tokens\":5}}\n\n",
        ),
        text("data: [DONE]\n\n"),
        Act::End,
    ];
    let of = |acts: Vec<Act>| {
        let server = Server::start(move |request| models(request).unwrap_or_else(|| acts.clone()));
        let results = load(&options(&server, 2));
        assert_eq!(results.end, End::Complete);
        results
    };
    let results = of(vec![Act::Whole(200, JSON, whole.to_string())]);
    let (r, f) = (measured(&results)[0], figures(&results));
    assert!(!results.target.streams && !r.streamed && r.ttft_ns().is_none() && f.ttft_ns.is_none());
    assert_eq!((r.output_tokens, r.output_tokens_by, f.ok), (Some(7), Some(TokensBy::Usage), 2));
    assert!(results.summary().contains("no streams"));

    let results = of(odd);
    let r = measured(&results)[0];
    assert_eq!((r.token_ns.len(), r.output_tokens, r.output_tokens_by), (3, Some(3), Some(TokensBy::Chunks)));
    assert!(r.ttft_ns().is_some_and(|ns| ns as f64 >= 30.0 * MS), "an empty delta is no token");
    assert_eq!((r.finish.as_deref(), results.target.counts_tokens), (Some("stop"), false));
    assert!(results.summary().contains("counts no tokens"));

    let results = of(several);
    let r = measured(&results)[0];
    assert_eq!((r.token_ns.len(), r.output_tokens), (2, Some(5)));
    assert_eq!(figures(&results).chunks_per_token, Some(0.4));
    assert!(results.summary().contains("chunks a token"));
}

#[test]
fn how_a_server_is_spoken_to_is_found_out() {
    // No list of models, no chat, and an option that is not known.
    let server = Server::start(|request| match request.path.as_str() {
        "/api/v1/completions" if request.body.get("stream_options").is_some() => {
            let told = json!({ "error": { "message": "Unrecognized request argument: stream_options" } });
            vec![Act::Whole(400, JSON, told.to_string())]
        }
        "/api/v1/completions" => stream(2, 0, 0, 5),
        _ => vec![Act::Whole(404, JSON, json!({ "detail": "Not Found" }).to_string())],
    });
    let base = || LoadOptions::new(format!("{}/api", server.url())).amount(Amount::Requests(2));
    let error = fails(&base()).to_string();
    assert!(error.contains("status 404") && error.contains("--model"), "{error}");
    let results = load(&base().model("mine").prompts(PromptSource::Text("x".into())));
    assert_eq!(results.target.endpoint, Endpoint::Completions);
    assert_eq!(results.target.models_absent.as_deref(), Some("status 404 to its list of models"));
    let last = server.seen().pop().expect("requests");
    assert_eq!((&last.body["model"], last.body.get("stream_options")), (&json!("mine"), None));
    let metrics = results.server_metrics.expect("looked for");
    assert_eq!((metrics.absent.as_deref(), metrics.run), (Some("status 404"), None));
}

#[test]
fn a_load_that_cannot_begin_says_why() {
    let unused = Server::start(|_| Vec::new());
    let address = unused.address;
    unused.die();
    drop(unused);
    candlescope_testkit::wait_until(|| std::net::TcpStream::connect(address).is_err(), "the port is closed");
    let error = fails(&LoadOptions::new(format!("http://{address}"))).to_string();
    assert!(error.contains("no answer from") && error.contains("refused"), "{error}");

    let refusing = |status: u16, message: &'static str| {
        Server::start(move |request| {
            models(request).unwrap_or_else(|| vec![Act::Whole(status, JSON, json!({ "error": message }).to_string())])
        })
    };
    let server = refusing(401, "no key");
    let error = fails(&options(&server, 1)).to_string();
    assert!(error.contains("401") && error.contains("no key") && error.contains("--api-key-env"), "{error}");
    let server = refusing(404, "no such model");
    let error = fails(&options(&server, 1).model("other")).to_string();
    assert!(error.contains("no such model") && error.contains("/v1/completions"), "{error}");

    let server = streaming(2, 0, 0);
    for (options, told) in [
        (options(&server, 0), "at least one request"),
        (options(&server, 1).levels([]), "no level of load"),
        (options(&server, 1).levels([Level::Rate(f64::NAN)]), "not possible"),
        (options(&server, 1).levels([Level::Concurrency(0)]), "not possible"),
        (options(&server, 1).api_key("a\nb"), "no header"),
    ] {
        let error = fails(&options).to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
    let empty = tempfile::tempdir().expect("a directory");
    let set = PromptSource::Dataset { path: empty.path().into(), variant: None };
    let error = fails(&options(&server, 1).prompts(set)).to_string();
    assert!(error.contains("has no prompts"), "{error}");
}

#[test]
fn what_a_server_says_is_kept_to_a_limit() {
    // An error object without a message would be kept with all that it repeats.
    let long = json!({ "error": { "code": 401, "input": "x".repeat(30_000) } }).to_string();
    let answer = long.clone();
    let refusing = Server::start(move |_| vec![Act::Whole(401, JSON, answer.clone())]);
    let error = fails(&options(&refusing, 1)).to_string();
    assert!(error.contains("… (truncated)") && error.contains("--api-key-env"), "{error}");
    assert!(error.len() < 1000, "{} bytes", error.len());

    let failing = Server::start(move |request| match models(request) {
        Some(answer) => answer,
        None if !request.is_first() => vec![Act::Whole(500, JSON, long.clone())],
        None => stream(2, 0, 0, 3),
    });
    let results = load(&options(&failing, 1));
    let message = &results.requests.iter().find_map(|r| r.failure.as_ref()).expect("a failure").message;
    assert!(message.starts_with("{\"code\":401") && message.ends_with("… (truncated)"), "{message}");
    assert_eq!(message.chars().count(), 512 + "… (truncated)".chars().count());
}

#[test]
fn prompts_have_the_length_that_the_server_counts_and_keys_stay_secret() {
    const KEY: &str = "sk-hunter22";
    // 2 tokens a word, and 7 besides. Every third request fails, with the key in its words, once across the 512
    // characters after which they are cut.
    let tired = format!("Bearer {KEY} is tired");
    let tired = format!("{tired:.<502}{KEY}");
    let server = Server::start(move |request| {
        let words = request.prompt().split_whitespace().count() as u64;
        match models(request) {
            Some(answer) => answer,
            None if !request.is_first() && request.number.is_multiple_of(3) => {
                vec![Act::Whole(500, JSON, json!({ "error": tired }).to_string())]
            }
            None => stream(2, 0, 0, 7 + 2 * words),
        }
    });
    let extra = json!({ "documents": "a text of mine" }).as_object().expect("fields").clone();
    let options = options(&server, 9).prompts(PromptSource::Tokens(101)).api_key(KEY).extra(extra);
    let results = load(&options);
    assert_eq!((median(&figures(&results).prompt_tokens), results.target.prompt_tokens_counted), (101.0, Some(true)));
    let seen = server.seen();
    assert!(seen.iter().all(|r| r.header("authorization") == Some("Bearer sk-hunter22")));
    let texts: std::collections::BTreeSet<&str> = seen.iter().map(Request::prompt).collect();
    assert_eq!(texts.len(), seen.len(), "no text comes twice, so that no cache of prefixes helps");
    let dir = tempfile::tempdir().expect("a directory");
    results.write(dir.path()).expect("written");
    let file = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("a file");
    let written = file(RESULTS_FILE) + &file(REQUESTS_FILE) + &results.summary() + &format!("{options:?}");
    assert!(written.contains("*** is tired") && !written.contains("hunter2"), "{written}");
    assert!(!texts.iter().any(|text| written.contains(text)), "prompts are not kept");
    assert!(file(RESULTS_FILE).contains(r#""extra":["documents"]"#) && !file(RESULTS_FILE).contains("text of mine"));

    let kept = load(&options.keep_prompts(true));
    kept.write(dir.path()).expect("written");
    let text = server.seen().pop().expect("requests").prompt().to_string();
    assert!(file(RESULTS_FILE).contains(&text));
}

#[test]
fn each_run_has_prompts_of_its_own_unless_it_has_a_seed() {
    let server = streaming(1, 0, 0);
    let sent = |options: LoadOptions| {
        let before = server.seen().len();
        let results = load(&options.amount(Amount::Requests(1)).warmup(Amount::Requests(0)));
        let written = serde_json::to_value(&results).expect("JSON");
        let seen = server.seen().split_off(before);
        let prompts: Vec<String> = seen.iter().map(|r| r.prompt().to_string()).filter(|p| !p.is_empty()).collect();
        (written["options"]["seed"].as_u64().expect("recorded"), prompts)
    };
    let (first, second) = (sent(LoadOptions::new(server.url())), sent(LoadOptions::new(server.url())));
    assert!(first.0 != second.0 && first.1.iter().all(|text| !second.1.contains(text)), "{first:?} {second:?}");
    let again = sent(LoadOptions::new(server.url()).seed(first.0));
    assert_eq!((again.0, again.1.first()), (first.0, first.1.first()));
}

#[test]
fn files_have_every_request_and_every_token() {
    let metrics = std::sync::atomic::AtomicU64::new(1);
    let server = Server::start(move |request| {
        if request.path == "/metrics" {
            let n = metrics.fetch_add(4, std::sync::atomic::Ordering::Relaxed);
            let text = format!("h_sum {n}\nh_count {}\ncandlescope_run_info{{run_id=\"r-7\"}} 1\n", n * 2);
            return vec![Act::Whole(200, "text/plain", text)];
        }
        models(request).unwrap_or_else(|| stream(4, 2, 2, 5))
    });
    let set = tempfile::tempdir().expect("a directory");
    let lines = "{\"prompt\":\"one\"}\n{\"messages\":[{\"role\":\"user\",\"content\":\"two\"}]}\n";
    std::fs::write(set.path().join("p.jsonl"), lines).expect("written");
    let source = PromptSource::Dataset { path: set.path().into(), variant: None };
    let levels = [Level::Concurrency(1), Level::Concurrency(2), Level::Rate(40.0)];
    let results = load(&options(&server, 10).levels(levels).prompts(source).warmup(Amount::Requests(3)));
    let dir = tempfile::tempdir().expect("a directory");
    let files = results.write(&dir.path().join("new/place")).expect("written");
    assert_eq!(files.len(), 4, "with a chart in two forms: {files:?}");
    let text = std::fs::read_to_string(&files[0]).expect("the results");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&written["schema_version"], &written["end"]["how"]), (&json!(1), &json!("complete")));
    assert_eq!(written["target"]["models"]["data"][0]["id"], "scripted");
    assert!(written["machine"]["cpu_available"].is_number(), "{}", written["machine"]);
    assert_eq!(written["stages"][2]["level"], json!({ "kind": "rate", "value": 40.0 }));
    assert_eq!(written["server_metrics"]["run"], "r-7");
    assert_eq!(written["server_metrics"]["means"], json!({ "h": 0.5 }));
    let requests = written["requests"].as_array().expect("requests");
    assert_eq!(requests.len(), results.requests.len());
    for stage in 0..3 {
        let of = |part: &str| requests.iter().filter(|r| r["stage"] == stage && r["part"] == part).count();
        assert_eq!(of("measured"), 10);
        assert!(of("warmup") >= 3);
    }
    for r in requests.iter().filter(|r| r.get("failure").is_none()) {
        let times: Vec<u64> = r["token_ns"].as_array().expect("times").iter().filter_map(Value::as_u64).collect();
        assert!(times.len() == 4 && times.is_sorted(), "{r}");
        assert!(["1", "2"].contains(&r["prompt"].to_string().as_str()), "which of the prompts: {r}");
    }
    let rows = std::fs::read_to_string(&files[1]).expect("rows");
    assert_eq!(rows.lines().count(), 1 + requests.len());
    let columns = rows.lines().next().map(|head| head.split(',').count());
    assert!(rows.lines().all(|row| Some(row.split(',').count()) == columns), "{rows}");
    let chart = std::fs::read_to_string(&files[2]).expect("a chart");
    assert!(chart.starts_with("<svg"));
    // The load of each stage stands at its points.
    for stage in &results.stages {
        let load = match stage.level {
            Level::Concurrency(clients) => format!("\n{clients}\n</text>"),
            Level::Rate(_) => "/s\n</text>".to_string(),
        };
        assert!(chart.contains(&load), "{load:?}: {chart}");
    }
    // The measured ones lie within the window, and their load was never less.
    for (stage, s) in results.stages.iter().enumerate() {
        let (from, to) = s.window_ns.expect("a window");
        let of: Vec<_> = measured(&results).into_iter().filter(|r| r.stage == stage).collect();
        assert!(of.iter().all(|r| r.planned_ns.unwrap_or(r.start_ns) >= from && r.ended_at() <= to + 1_000_000));
    }
    let without = results.to_json_without_requests().expect("JSON");
    assert!(without.get("requests").is_none() && without["stages"].as_array().is_some_and(|s| s.len() == 3));
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let server = streaming(2, 0, 0);
    let results = load(&options(&server, 1));
    let dir = tempfile::tempdir().expect("a directory");
    let chart = dir.path().join("load_latency.svg");
    std::fs::write(&chart, "of an earlier run").expect("written");
    assert_eq!(results.write(dir.path()).expect("written").len(), 2);
    assert!(chart.exists(), "one stage has no chart, and whose this is nobody knows here");
    LoadResults::remove_chart(dir.path()).expect("removed");
    assert!(!chart.exists() && LoadResults::remove_chart(dir.path()).is_ok());
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("written");
    assert!(results.write(&file).is_err());
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "x");
}

/// A server that sends more chunks than any answer has.
fn endless() -> Server {
    Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.is_first() => stream(2, 0, 0, 3),
        None => {
            let chunks = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n".repeat(10_000);
            let mut acts = vec![Act::Head(200, SSE)];
            acts.extend((0..30).map(|_| Act::Send(chunks.clone())));
            acts
        }
    })
}

#[test]
fn a_run_holds_no_more_than_it_may_and_keeps_its_stages() {
    // The first stage is within the limit, the second is not.
    let server = streaming(50, 0, 0);
    let within = options(&server, 20).levels([Level::Concurrency(1)]).memory_limit(60_000);
    assert_eq!(load(&within).end, End::Complete);
    let beyond = within.levels([Level::Concurrency(1), Level::Concurrency(4), Level::Concurrency(8)]);
    let results = load(&beyond.amount(Amount::Requests(60)));
    assert_eq!(results.end, End::OutOfRoom { limit_bytes: 60_000 });
    let all: usize = results.requests.iter().map(|r| size_of::<RequestRecord>() + r.token_ns.len() * 8).sum();
    assert!(all < 80_000, "{all} bytes are held");
    assert!(!results.stages.is_empty() && results.stages.iter().map(|s| s.requests).sum::<u64>() > 20);
    assert!(results.summary().contains("--memory-limit"), "{}", results.summary());
}

#[test]
fn chunks_without_end_fill_neither_memory_nor_results() {
    let server = endless();
    let results = load(&options(&server, 6).levels([Level::Concurrency(2)]));
    assert_eq!((results.end.clone(), figures(&results).failed["malformed"]), (End::Complete, 6));
    for r in measured(&results) {
        assert!(r.token_ns.len() == 4096 && r.untimed_chunks > 200_000, "{} {}", r.token_ns.len(), r.untimed_chunks);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let files = results.write(dir.path()).expect("written");
    let bytes: u64 = files.iter().map(|file| std::fs::metadata(file).expect("there").len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes");
    // Many at once hold as much as one run may.
    let many = load(&options(&server, 16).levels([Level::Concurrency(16)]).memory_limit(1 << 20));
    assert_eq!(many.end, End::OutOfRoom { limit_bytes: 1 << 20 });
}

#[test]
fn requests_that_wait_here_are_bounded() {
    let silent = Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.is_first() => stream(2, 0, 0, 3),
        None => vec![Act::Wait(30_000)],
    });
    let options = options(&silent, 1_000_000).levels([Level::Rate(50_000.0)]).max_in_flight(4).memory_limit(1 << 20);
    let results = load(&options);
    assert_eq!(results.end, End::OutOfRoom { limit_bytes: 1 << 20 });
    // Each that arrived has its record, those that were never sent too.
    let (n, most) = (results.requests.len(), (1 << 20) / size_of::<RequestRecord>());
    assert!(n >= most / 2 && n <= most + 2, "{n} of {most}");
    let numbers: Vec<u64> = results.requests.iter().map(|r| r.number).collect();
    assert_eq!(numbers, (0..n as u64).collect::<Vec<_>>());
}

#[test]
fn a_usage_that_no_answer_has_costs_the_answer_and_not_the_run() {
    let server = Server::start(|request| match models(request) {
        Some(answer) => answer,
        None if request.is_first() => stream(2, 0, 0, 3),
        None => {
            let usage = json!({ "choices": [], "usage": { "completion_tokens": u64::MAX, "prompt_tokens": u64::MAX } });
            vec![Act::Head(200, SSE), token("a"), Act::Send(format!("data: {usage}\n\ndata: [DONE]\n\n")), Act::End]
        }
    });
    let results = load(&options(&server, 4));
    assert_eq!((figures(&results).failed["malformed"], results.end), (4, End::Complete));
}

#[test]
fn a_prompt_that_no_machine_holds_is_refused() {
    let server = streaming(2, 0, 0);
    for tokens in [u64::MAX, 1_000_000_000] {
        let error = fails(&options(&server, 1).prompts(PromptSource::Tokens(tokens))).to_string();
        assert!(error.contains("is not possible: give at most 4194304"), "{error}");
    }
}
