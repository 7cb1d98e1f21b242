//! Windows of a server from a scripted Prometheus: what is asked, what is read, and what is said where nothing comes.
#![allow(missing_docs, reason = "a test")]

use candlescope_monitor::{EarlierWindows, PrometheusError, ServerReading, Span, WindowOptions, read_windows};
use candlescope_testkit::collector::{Got, nobody, reply, serve};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOW: i64 = 1_700_000_000;
const DAY: i64 = 86_400;
const RUNS: &str =
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]}}"#;
const NOTHING: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
/// As a Prometheus 2.42 answers it: one figure, and another one with a point that is no number.
const FIGURES: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"figure":"ttft_ns"},"values":[[1699999820,"200000000"],[1699999880,"210000000"],[1699999940,"190000000"],[1700000000,"2e8"]]},{"metric":{"figure":"requests_per_s"},"values":[[1699999820,"2.5"],[1699999880,"NaN"]]}]}}"#;
const LAYERS: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"path":"decode","root":"decode"},"value":[1700000000,"1"]},{"metric":{"path":"decode/attn","root":"decode"},"value":[1700000000,"0.4"]}]}}"#;

/// A Prometheus that gives these answers one after the other, and the last one from there on.
fn scripted(answers: &[(&'static str, &str)]) -> (String, Arc<Mutex<Vec<Got>>>) {
    let answers: Vec<(&'static str, String)> =
        answers.iter().map(|(status, body)| (*status, body.to_string())).collect();
    let (address, got) = serve(move |n, stream| {
        let (status, body) = &answers[n.min(answers.len() - 1)];
        reply(stream, status, "content-type: application/json\r\n", body.as_bytes());
    });
    (format!("http://{address}"), got)
}

fn read(options: &WindowOptions) -> Result<ServerReading, PrometheusError> {
    read_windows(options, NOW, 3)
}

/// What is said of answers that are none.
fn said(answers: &[(&'static str, &str)]) -> String {
    let (url, _) = scripted(answers);
    let error = read(&WindowOptions::new(url)).expect_err("nothing to read").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

fn decoded(path: &str, name: &str) -> String {
    let url = path.split_once('?').expect("arguments").1;
    let value = url.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}="))).expect("the argument");
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let hex = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap()
            }
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_same_time_of_two_days_is_asked_for_and_read() {
    let ok = "200 OK";
    let (url, got) = scripted(&[(ok, RUNS), (ok, FIGURES), (ok, FIGURES), (ok, FIGURES), (ok, LAYERS)]);
    let options = WindowOptions::new(url.replace("http://", "http://user:pass@") + "/")
        .select("job=\"api\"")
        .last(Duration::from_secs(250))
        .windows(2)
        .key("sesame-1");
    let reading = read(&options).expect("windows");
    assert_eq!(reading.plan.now, Span { from_s: NOW - 240, to_s: NOW });
    let ttft = reading.figures.iter().find(|figure| figure.name == "ttft_ns").expect("ttft");
    assert_eq!((ttft.now.values.as_slice(), ttft.before.len()), (&[2e8, 2.1e8, 1.9e8, 2e8][..], 2));
    assert_eq!(ttft.before[0].from_s, NOW - 240 - 2 * DAY);
    let requests = reading.traffic.iter().find(|traffic| traffic.name == "requests_per_s").expect("requests");
    assert_eq!(requests.now.values, [2.5], "what is no number is left out");
    let [layer] = &reading.layers[..] else { panic!("{:?}", reading.layers) };
    assert_eq!((layer.name.as_str(), layer.now.values.as_slice(), layer.before.len()), ("decode/attn", &[0.4][..], 2));

    let got = got.lock().unwrap();
    let paths: Vec<&str> = got.iter().map(|request| request.path.split('?').next().unwrap()).collect();
    assert_eq!(
        paths[..5],
        ["/api/v1/query", "/api/v1/query_range", "/api/v1/query_range", "/api/v1/query_range", "/api/v1/query"]
    );
    // The points are the ends of the parts.
    let (first, second) = (&got[1].path, &got[2].path);
    assert_eq!(["start", "end", "step"].map(|name| decoded(first, name)), [NOW - 180, NOW, 60].map(|n| n.to_string()));
    assert_eq!(decoded(second, "end"), (NOW - 2 * DAY).to_string());
    assert!(
        decoded(first, "query").contains("candlescope_inter_token_latency_seconds_sum{job=\"api\"}[60s]"),
        "{first}"
    );
    assert!(got.iter().all(|request| request.headers["authorization"] == "Bearer sesame-1"));
    let shown = format!("{options:?} {} {:?}", reading.url, reading);
    assert!(!shown.contains("sesame") && !shown.contains("pass"), "{shown}");
}

#[test]
fn the_time_before_the_last_start_is_asked_for() {
    let ok = "200 OK";
    let start = NOW - 1000;
    let starts = format!(
        r#"{{"status":"success","data":{{"result":[{{"metric":{{"run_id":"a"}},"value":[1,"{}"]}},{{"metric":{{"run_id":"b"}},"value":[1,"{start}"]}}]}}}}"#,
        NOW - 3 * DAY
    );
    let (url, got) = scripted(&[(ok, RUNS), (ok, &starts), (ok, FIGURES), (ok, FIGURES)]);
    let options = WindowOptions::new(url).last(Duration::from_secs(600)).against(EarlierWindows::LastStart).windows(3);
    let reading = read(&options).expect("windows");
    assert_eq!(reading.plan.started_s, Some(start));
    assert_eq!(reading.plan.before.last(), Some(&Span { from_s: start - 660, to_s: start - 60 }));
    assert!(decoded(&got.lock().unwrap()[1].path, "query").contains("timestamp(candlescope_run_info{})"));

    // The only run that is known may be older than what Prometheus keeps.
    let (url, _) =
        scripted(&[(ok, RUNS), (ok, &starts.replace(&format!("\"{start}\""), &format!("\"{}\"", NOW - 3 * DAY)))]);
    let error = read(&WindowOptions::new(url).against(EarlierWindows::LastStart)).expect_err("no start").to_string();
    assert!(error.contains("no start of candlescope programs") && error.contains("--against 24h"), "{error}");
}

#[test]
fn every_error_names_the_thing_and_the_remedy() {
    for url in ["localhost:9090", "ftp://h", "http://", "http://h?x=secret-1"] {
        let error = read(&WindowOptions::new(url)).expect_err("no address").to_string();
        assert!(error.contains("http:// or https://") && !error.contains("secret"), "{url}: {error}");
    }
    let url = format!("http://user:secret-1@{}", nobody());
    let error = read(&WindowOptions::new(url).key("secret-2")).expect_err("nobody").to_string();
    assert!(error.contains("does not answer") && error.contains("refused") && !error.contains("secret"), "{error}");

    let parse = r#"{"status":"error","errorType":"bad_data","error":"1:9: parse error: unexpected \"x\""}"#;
    let error = said(&[("400 Bad Request", parse)]);
    assert!(error.contains("parse error") && error.contains("--select"), "{error}");
    let error =
        said(&[("503 Service Unavailable", r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#)]);
    assert!(error.contains("query timed out") && error.contains("shorter --last"), "{error}");
    let error = said(&[("401 Unauthorized", "who?")]);
    assert!(error.contains("401") && error.contains("--api-key-env"), "{error}");
    for page in [("200 OK", "<html>"), ("302 Found", ""), ("404 Not Found", "404 page not found")] {
        let error = said(&[page]);
        assert!(error.contains("is no Prometheus") && error.contains("not JSON"), "{error}");
    }
    let error = said(&[("200 OK", NOTHING)]);
    assert!(error.contains("no series candlescope_run_info{}") && error.contains("--select"), "{error}");
    let error = said(&[("200 OK", RUNS), ("200 OK", NOTHING)]);
    assert!(error.contains("no figure of candlescope programs") && error.contains("a longer --last"), "{error}");

    let of = |last: u64, by: u64| {
        let options = WindowOptions::new(scripted(&[("200 OK", RUNS)]).0).last(Duration::from_secs(last));
        read(&options.against(EarlierWindows::Earlier(Duration::from_secs(by)))).expect_err("no windows").to_string()
    };
    assert!(of(100, 3600).contains("give 3m or more"));
    assert!(of(1800, 600).contains("would overlap"));
}
