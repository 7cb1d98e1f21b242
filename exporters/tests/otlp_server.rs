//! The OTLP exporter against scripted servers in this process: good ones, bad ones and none.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::llm::{self, Request};
use candlescope_core::run::{ExporterReport, RunManifest};
use candlescope_core::{Batch, MemoryExporter, Outcome, RecordKind, Session, SpanId};
use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, OtlpLimits, send_run};
use candlescope_testkit::collector::{Got, nobody, ok, reply, serve};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn decoded(got: &Got) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(got.body.as_slice()).expect("OTLP")
}

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// One request with a prefill and three decode steps, each with an interval inside.
fn work() {
    let span = tracing::info_span!("linear");
    let request = Request::new("chat", "test-model").prompt_tokens(7).traceparent(CALLER);
    let _in_request = request.enter();
    for step in 0..4 {
        let _phase = if step == 0 {
            llm::prefill(llm::Tokens::new(7).context(7))
        } else {
            llm::decode(llm::Tokens::new(1).context(7 + step))
        };
        for _ in 0..3 {
            span.in_scope(|| std::thread::sleep(Duration::from_micros(50)));
        }
        request.token();
    }
}

fn config(address: SocketAddr) -> OtlpConfig {
    OtlpConfig::new(format!("http://{address}")).timeout(Duration::from_secs(2)).limits(OtlpLimits::none())
}

/// Runs `work` under a session with this exporter. Returns what was recorded, the manifest, the exporter's account.
fn profile(config: OtlpConfig) -> (Batch, RunManifest, ExporterReport) {
    let memory = MemoryExporter::new();
    let session = Session::builder().exporter(memory.clone()).exporter(OtlpExporter::new(config));
    let (layer, session) = session.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    let manifest = session.finish();
    let report = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account").clone();
    assert!(report.conserved(), "{report:?}");
    let unaccounted = report.dropped.values().flatten().any(|(reason, _)| reason == "unaccounted");
    assert!(!unaccounted, "{report:?}");
    (memory.batch(), manifest, report)
}

fn spans(got: &Arc<Mutex<Vec<Got>>>) -> Vec<Span> {
    let got = got.lock().unwrap();
    let resources = got.iter().flat_map(|g| decoded(g).resource_spans);
    resources.flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect()
}

fn dropped(report: &ExporterReport, reason: &str) -> u64 {
    report.dropped.values().filter_map(|reasons| reasons.get(reason)).sum()
}

#[test]
fn what_arrives_is_what_was_recorded() {
    let (address, got) = serve(ok);
    let config = config(address).service_name("tester").header("X-Tenant", "t1");
    let (batch, manifest, report) = profile(config);
    assert_eq!(report.exported["spans"], batch.spans.len() as u64);
    assert_eq!((report.exported["steps"], report.exported["requests"]), (4, 1));

    let request = &batch.requests[0];
    assert!(CALLER.contains(&request.trace_id.to_string()));
    assert_eq!(request.parent_span_id, Some(SpanId(0x00f0_67aa_0ba9_02b7)));
    let arrived = spans(&got);
    let by_id: HashMap<Vec<u8>, &Span> = arrived.iter().map(|s| (s.span_id.clone(), s)).collect();
    let root = by_id[request.span_id.0.to_be_bytes().as_slice()];
    assert_eq!(
        (root.name.as_str(), root.trace_id.as_slice()),
        ("chat test-model", &request.trace_id.0.to_be_bytes()[..])
    );
    assert_eq!(root.parent_span_id, 0x00f0_67aa_0ba9_02b7u64.to_be_bytes(), "below the caller's span");
    assert_eq!(root.flags & 0x300, 0x300, "which is known to be in another process");
    assert_eq!(root.start_time_unix_nano as i64, request.host_start.0);
    assert_eq!(root.end_time_unix_nano as i64, request.host_start.plus_ns(request.host_dur_ns).0);
    let records: HashMap<u64, _> = batch.spans.iter().map(|s| (s.seq, s)).collect();
    let mut compared = 0;
    for r in batch.spans.iter().filter(|s| s.step.is_some()) {
        let span = by_id[r.span_id.0.to_be_bytes().as_slice()];
        let parent = records[&r.parent_seq.expect("inside the request")];
        let parent = if parent.step.is_some() { parent.span_id } else { request.span_id };
        assert_eq!(span.parent_span_id, parent.0.to_be_bytes());
        assert_eq!(span.trace_id, request.trace_id.0.to_be_bytes());
        assert_eq!(span.start_time_unix_nano as i64, r.host_start.0);
        assert_eq!(span.end_time_unix_nano as i64, r.host_start.plus_ns(r.host_dur_ns).0);
        compared += 1;
    }
    assert_eq!(compared, 16);
    assert_eq!(arrived.len(), 17, "the request's own interval is an event of its span");

    let first = got.lock().unwrap()[0].clone();
    assert_eq!(first.path, "/v1/traces");
    assert_eq!(first.headers["content-type"], "application/x-protobuf");
    assert_eq!(first.headers["x-tenant"], "t1");
    let resource = decoded(&first).resource_spans[0].resource.clone().expect("a resource");
    let text = |key: &str| {
        let found = resource.attributes.iter().find(|a| a.key == key)?.value.clone()?.value?;
        if let Value::StringValue(text) = found { Some(text) } else { None }
    };
    assert_eq!(text("service.name").as_deref(), Some("tester"));
    assert_eq!(text("candlescope.run_id"), Some(manifest.run_id));
}

#[test]
fn a_busy_collector_is_asked_again() {
    let (address, got) = serve(|n, stream| match n {
        0 => reply(stream, "503 Service Unavailable", "", b"overloaded"),
        1 => reply(stream, "429 Too Many Requests", "retry-after: 0\r\n", b""),
        _ => ok(n, stream),
    });
    let (batch, _, report) = profile(config(address));
    assert_eq!(report.exported["spans"], batch.spans.len() as u64);
    assert_eq!(dropped(&report, "io"), 0);
    let got = got.lock().unwrap();
    assert_eq!(got.len(), 3);
    assert_eq!(got[0].body, got[2].body, "the same spans again");
}

#[test]
fn refusals_and_nonsense_are_counted_and_named() {
    type Answer = fn(usize, &mut TcpStream);
    let cases: [(&str, Answer, &str); 5] = [
        ("400", |_, s| reply(s, "400 Bad Request", "", b"no such thing"), "status 400 (no such thing)"),
        ("500", |_, s| reply(s, "500 Internal Server Error", "", b""), "status 500"),
        ("redirect", |_, s| reply(s, "302 Found", "location: http://127.0.0.1:1/\r\n", b""), "status 302"),
        ("a web page", |_, s| reply(s, "200 OK", "content-type: text/html\r\n", b"<html>hello</html>"), "not OTLP"),
        ("not HTTP", |_, s| drop(s.write_all(b"\x00\x01\x02 SSH-2.0 whatever\r\n\r\n")), "not OTLP"),
    ];
    for (name, answer, message) in cases {
        let (address, _) = serve(answer);
        let (batch, manifest, report) = profile(config(address));
        assert_eq!(report.exported["spans"], 0, "{name}");
        assert_eq!(dropped(&report, "io"), batch.spans.len() as u64 + 4 + 1, "{name}: {report:?}");
        let error = report.last_error.expect("an error");
        assert!(error.contains(message) && error.contains(&address.to_string()), "{name}: {error}");
        assert!(manifest.verdict.findings.iter().any(|f| f.code == "exporter_dropped"), "{name}");
    }
}

#[test]
fn spans_that_the_collector_rejects_are_not_called_exported() {
    let (address, _) = serve(|_, stream| {
        let partial = ExportTracePartialSuccess { rejected_spans: 5, error_message: "too old".into() };
        reply(stream, "200 OK", "", &ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec());
    });
    let (batch, _, report) = profile(config(address));
    assert_eq!(report.exported["spans"], batch.spans.len() as u64 - 5);
    assert_eq!(report.dropped["spans"]["io"], 5);
    assert!(report.last_error.expect("an error").contains("rejected 5 spans"));
}

#[test]
fn nobody_listening_costs_neither_the_application_nor_the_end() {
    let started = Instant::now();
    let (batch, _, report) = profile(config(nobody()));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(dropped(&report, "io"), batch.spans.len() as u64 + 4 + 1);
    let error = report.last_error.expect("an error");
    assert!(error.contains("is a collector listening there?"), "{error}");
}

#[test]
fn a_collector_that_never_answers_is_given_up() {
    let (address, got) = serve(|_, _| std::thread::sleep(Duration::from_secs(60)));
    let started = Instant::now();
    let (batch, _, report) = profile(config(address));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(got.lock().unwrap().len(), 1, "no second attempt fits into the time");
    assert_eq!(dropped(&report, "io"), batch.spans.len() as u64 + 4 + 1, "{report:?}");
}

#[test]
fn a_collector_that_dribbles_is_given_up_too() {
    let (address, _) = serve(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(100));
            if stream.write_all(b"\x00").is_err() {
                return;
            }
        }
    });
    let started = Instant::now();
    let (batch, _, report) = profile(config(address));
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(dropped(&report, "io"), batch.spans.len() as u64 + 4 + 1, "{report:?}");
}

#[test]
fn compression_is_said_in_the_header() {
    let (address, got) = serve(ok);
    let (batch, _, report) = profile(config(address).gzip(true));
    assert_eq!(report.exported["spans"], batch.spans.len() as u64);
    let got = got.lock().unwrap();
    assert_eq!(got[0].headers["content-encoding"], "gzip");
    assert_eq!(got[0].body[..2], [0x1f, 0x8b]);
}

#[test]
fn what_the_limits_leave_out_is_booked_as_such() {
    let (address, got) = serve(ok);
    let (batch, manifest, report) = profile(config(address).limits(OtlpLimits::default().max_spans(6)));
    assert_eq!(spans(&got).len(), 6);
    // The request's interval is an event; four steps and one interval fit beside the request.
    assert_eq!(report.exported["spans"], 1 + 4 + 1);
    assert_eq!(report.dropped["spans"]["limit"], batch.spans.len() as u64 - 6);
    assert_eq!(report.dropped_total(RecordKind::Step), 0);
    assert!(manifest.verdict.ok, "limits somebody set are no failure: {:?}", manifest.verdict);
}

#[test]
fn a_bad_endpoint_is_an_error_at_the_start() {
    let exporter = OtlpExporter::new(OtlpConfig::new("localhost:4317"));
    let error = Session::builder().exporter(exporter).start().map(|_| ()).expect_err("no address");
    let text = format!("{error:?}");
    assert!(text.contains("http://localhost:4318"), "{text}");
}

#[test]
fn a_run_read_back_arrives_too_and_a_missing_collector_is_an_error() {
    let (address, got) = serve(ok);
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    let manifest = session.finish();
    let all = memory.batch();
    let tables = || {
        let mut tables = [Batch::default(), Batch::default(), Batch::default()];
        tables[0].requests.clone_from(&all.requests);
        tables[1].steps.clone_from(&all.steps);
        tables[2].spans.clone_from(&all.spans);
        tables
    };
    let sent = send_run(config(address), &manifest, tables()).expect("sent");
    let report = sent.report;
    assert!(report.conserved() && report.last_error.is_none(), "{report:?}");
    assert_eq!(report.exported["spans"], all.spans.len() as u64);
    assert_eq!((spans(&got).len(), sent.spans), (17, 17), "not the intervals, which are {}", all.spans.len());
    let root = spans(&got).into_iter().find(|span| span.name == "chat test-model").expect("the request");
    assert_eq!(root.parent_span_id, 0x00f0_67aa_0ba9_02b7u64.to_be_bytes(), "below its caller");

    let nobody = nobody();
    let error = send_run(config(nobody), &manifest, tables()).expect_err("nobody is there");
    assert!(error.to_string().contains(&nobody.to_string()), "{error}");
}

#[test]
fn an_answer_without_end_and_one_cut_short_are_no_success() {
    type Answer = fn(usize, &mut TcpStream);
    let cases: [(&str, Answer); 2] = [
        ("endless", |_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while s.write_all(&[b'x'; 4_096]).is_ok() {}
        }),
        ("cut short", |_, s| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n\x00");
            let _ = s.shutdown(std::net::Shutdown::Both);
        }),
    ];
    for (name, answer) in cases {
        let (address, _) = serve(answer);
        let started = Instant::now();
        let (batch, _, report) = profile(config(address));
        assert!(started.elapsed() < Duration::from_secs(15), "{name}: {:?}", started.elapsed());
        assert_eq!(dropped(&report, "io"), batch.spans.len() as u64 + 4 + 1, "{name}: {report:?}");
    }
}

/// Everything that was recorded arrived or is accounted for, and the program was not slowed down.
#[test]
fn a_collector_slower_than_the_program_costs_records_and_no_time() {
    let (address, got) = serve(|n, stream| {
        std::thread::sleep(Duration::from_millis(100));
        ok(n, stream);
    });
    let memory = MemoryExporter::new();
    let config = config(address).timeout(Duration::from_secs(5));
    // A queue that fills quickly because the collector is slow.
    let session = Session::builder().queue_records(2_000).exporter(memory.clone()).exporter(OtlpExporter::new(config));
    let (layer, session) = session.start().expect("starts");
    let took = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let span = tracing::info_span!("linear");
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(1) {
            let _phase = llm::decode(llm::Tokens::new(1).context(1));
            (0..50).for_each(|_| span.in_scope(|| ()));
            std::thread::sleep(Duration::from_micros(200));
        }
        started.elapsed()
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    let manifest = session.finish();
    let report = manifest.exporters.iter().find(|e| e.name == "otlp").expect("an account");
    assert!(report.conserved(), "{report:?}");
    // It is not known whether a batch that was not acknowledged in time arrived: that is one batch at most.
    let arrived = spans(&got).len() as u64;
    assert!((0..=512).contains(&(arrived as i64 - report.exported["spans"] as i64)), "{arrived} arrived: {report:?}");
    assert!(report.dropped["spans"]["queue_full"] > 0, "{report:?}");
    assert!(!report.dropped["spans"].contains_key("unaccounted"), "{report:?}");
    let received = report.exported["spans"] + report.dropped_total(RecordKind::Span);
    assert_eq!(report.received["spans"], received);
    assert_eq!(received + manifest.loss.lost(), manifest.loss.emitted, "{:?}", manifest.loss);
}

/// Run by the test below, in a process of its own.
#[test]
#[ignore = "run by another test"]
fn child_that_fails_to_send_many_times() {
    let config = config(nobody()).timeout(Duration::from_millis(20));
    let builder = Session::builder().on_problem(candlescope_core::diagnostics::to_stderr);
    let (layer, session) = builder.exporter(OtlpExporter::new(config)).start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..20 {
            work();
            session.handle().flush(Duration::from_secs(5)).expect("flushed");
        }
    });
    session.finish();
}

#[test]
fn many_failures_are_one_line_in_the_log() {
    let output = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "child_that_fails_to_send_many_times", "--ignored", "--nocapture"])
        .output()
        .expect("runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("candlescope: otlp")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("is a collector listening there?"), "{log}");
}

/// Two requests in three steps, the first of which passes a chunk of the second one's prompt.
#[test]
fn a_request_has_links_to_the_steps_that_it_shares() {
    let (address, got) = serve(ok);
    let memory = MemoryExporter::new();
    let session = Session::builder().exporter(memory.clone()).exporter(OtlpExporter::new(config(address)));
    let (layer, session) = session.start().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (old, new) = (Request::new("chat", "old"), Request::new("chat", "new"));
        for (passed, out) in [(6, 0), (2, 1), (1, 1)] {
            let _step = llm::decode(llm::Tokens::new(1 + passed).batch(2));
            std::thread::sleep(Duration::from_micros(200));
            llm::serves(&old, llm::Tokens::new(1), 1);
            llm::serves(&new, llm::Tokens::new(passed), out);
        }
        old.outcome(Outcome::Done);
        new.outcome(Outcome::Failed);
    });
    let manifest = session.finish();
    let check = |arrived: &[Span]| {
        let steps: Vec<&Span> = arrived.iter().filter(|span| span.name == "decode").collect();
        assert_eq!((arrived.len(), steps.len()), (5, 3));
        let attribute = |span: &Span, key: &str| {
            let found = span.attributes.iter().find(|a| a.key == key).and_then(|a| a.value.clone()?.value);
            found.unwrap_or_else(|| panic!("{key} of {}", span.name))
        };
        let mut shares = 0.0;
        for (name, outcome) in [("chat old", "done"), ("chat new", "failed")] {
            let request = arrived.iter().find(|span| span.name == name).expect(name);
            let linked: Vec<_> = request.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
            let of_steps: Vec<_> = steps.iter().map(|step| (&step.trace_id, &step.span_id)).collect();
            assert_eq!(linked, of_steps, "{name}");
            assert_eq!(attribute(request, "candlescope.shared.steps"), Value::IntValue(3));
            assert_eq!(attribute(request, "candlescope.outcome"), Value::StringValue(outcome.into()));
            assert_eq!(request.status.as_ref().is_some_and(|status| status.code == 2), outcome == "failed");
            let Value::DoubleValue(share) = attribute(request, "candlescope.shared.step_share") else { panic!() };
            shares += share;
        }
        let all: u64 = steps.iter().map(|step| step.end_time_unix_nano - step.start_time_unix_nano).sum();
        assert!((shares - all as f64 / 1e9).abs() < 1e-8, "{shares} s of {all} ns");
        assert_eq!(attribute(steps[0], "candlescope.shared.requests"), Value::IntValue(2));
    };
    check(&spans(&got));

    // The same from a run, whose tables come one after the other.
    let (address, got) = serve(ok);
    let all = memory.batch();
    let mut tables = [Batch::default(), Batch::default(), Batch::default()];
    tables[0].requests.clone_from(&all.requests);
    tables[1].steps.clone_from(&all.steps);
    tables[2].spans.clone_from(&all.spans);
    send_run(config(address), &manifest, tables).expect("sent");
    check(&spans(&got));
}
