//! Timeline files: written while a session runs, complete at any moment, and read back by other parsers.
#![cfg(all(feature = "chrome", feature = "perfetto"))]
#![allow(missing_docs, reason = "tests")]

use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, Exporter, HostNs, KernelKind, Ledger, Ran};
use candlescope_exporters::chrome::{self, ChromeExporter};
#[cfg(feature = "kineto")]
use candlescope_exporters::kineto;
use candlescope_exporters::perfetto::{self, PerfettoExporter};
use candlescope_testkit::Decoder;
use candlescope_testkit::records::{T0, join, kernel, kernel_of};
use candlescope_testkit::tools::{PYTHON, require};
use candlescope_testkit::{ROOT, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn manifest() -> RunManifest {
    RunManifest { run_id: "run \"1\"".into(), started_ns: T0, ..RunManifest::default() }
}

fn batches() -> Vec<Batch> {
    let mut source = Decoder::new(4);
    (source.annotated, source.gpu) = (true, true);
    let mut other = Decoder::new(5).on_thread(2, "worker \"é\"");
    other.seq = 1 << 32;
    let mut batches = vec![source.step("prefill"), join([source.decode(), other.step("warm-up"), source.decode()])];
    batches[1].samples = source.samples();
    batches[1].requests = vec![source.request(1, HostNs(T0))];
    batches
}

/// Nanoseconds of a number of microseconds with three decimals.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

#[test]
fn chrome_events_parse_and_nest() {
    let batches = batches();
    let mut bytes = Vec::new();
    chrome::write(&mut bytes, &manifest(), &batches).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut by_thread: BTreeMap<u64, Vec<(i64, i64)>> = BTreeMap::new();
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let start = ns(&event["ts"]);
        by_thread.entry(event["tid"].as_u64().unwrap()).or_default().push((start, start + ns(&event["dur"])));
    }
    let spans: Vec<_> = batches.iter().flat_map(|b| &b.spans).collect();
    let gpu = spans.iter().filter(|s| s.gpu.is_some()).count();
    assert_eq!(by_thread.values().map(Vec::len).sum::<usize>(), spans.len() + gpu);
    assert_eq!(by_thread.len(), 3, "two threads and one device track");
    for (tid, slices) in by_thread {
        let mut open: Vec<i64> = Vec::new();
        for (start, end) in slices {
            while open.last().is_some_and(|o| *o <= start) {
                open.pop();
            }
            assert!(open.last().is_none_or(|o| end <= *o), "slice {start}..{end} of thread {tid} crosses its parent");
            open.push(end);
        }
    }
    let first = events.iter().find(|e| e["ph"] == "X").unwrap();
    assert_eq!(ns(&first["ts"]), 0);
    assert_eq!(first["args"]["path"], "prefill");
    let linear = events.iter().find(|e| e["args"]["path"] == "prefill/block[3]/attn/linear[1]").unwrap();
    assert_eq!(
        (&linear["args"]["flops"], &linear["args"]["dtype"], &linear["args"]["shape"]),
        (&221_184.into(), &"bf16".into(), &"1x1x192".into())
    );
    assert_eq!((&linear["args"]["bytes"], &linear["args"]["io_bytes"]), (&221_184.into(), &222_720.into()));
    let names: Vec<_> =
        events.iter().filter(|e| e["name"] == "thread_name").map(|e| e["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "GPU: stream of main", "worker \"é\""]);
    let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
    assert_eq!((of("C"), of("b"), of("e")), (2, 1, 1));
}

#[test]
fn exporters_keep_the_file_whole_and_account() {
    let dir = tempfile::tempdir().unwrap();
    let (json, proto) = (dir.path().join("t.json"), dir.path().join("t.pftrace"));
    let (mut chrome, mut perfetto) = (ChromeExporter::new(&json), PerfettoExporter::new(&proto));
    let (a, b) = (Ledger::new(), Ledger::new());
    chrome.start(&manifest()).unwrap();
    perfetto.start(&manifest()).unwrap();
    for batch in batches() {
        // Between batches the file is complete, in case the process is killed.
        assert!(serde_json::from_slice::<Value>(&fs::read(&json).unwrap()).is_ok());
        a.received(&batch);
        b.received(&batch);
        chrome.export(&batch, &a).unwrap();
        perfetto.export(&batch, &b).unwrap();
    }
    chrome.close(&a).unwrap();
    perfetto.close(&b).unwrap();
    assert!(a.report("chrome").conserved() && b.report("perfetto").conserved());
    let mut whole = Vec::new();
    chrome::write(&mut whole, &manifest(), batches()).unwrap();
    assert!(fs::read(&json).unwrap() == whole, "exporter and converter write the same");
    whole.clear();
    perfetto::write(&mut whole, &manifest(), batches()).unwrap();
    assert!(fs::read(&proto).unwrap() == whole);
}

#[test]
fn a_full_device_is_counted() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let error = PerfettoExporter::new(full).start(&manifest()).unwrap_err();
    assert!(
        error.is_fatal() && error.to_string().contains("/dev/full") && error.to_string().contains("free some space"),
        "{error}"
    );
    let error = ChromeExporter::new("/").start(&manifest()).unwrap_err().to_string();
    assert!(error.contains("name a file, not a directory"), "{error}");
}

/// Perfetto's own definitions can read the trace, if the Python packages are available.
#[test]
fn perfetto_reads_the_trace() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pftrace");
    let batches = batches();
    perfetto::write(fs::File::create(&path).unwrap(), &manifest(), &batches).unwrap();
    let spans: usize = batches.iter().map(|b| b.spans.len() + b.spans.iter().filter(|s| s.gpu.is_some()).count()).sum();
    let output = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_perfetto.py"))
        .arg(&path)
        .args(["--slices", &(spans + 1).to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// A decode step whose kernels were recorded: the second of two kernels has no launch call.
fn recorded() -> Batch {
    let mut batch = Decoder::new(6).decode();
    for (at, span) in batch.spans.iter_mut().enumerate() {
        span.seq = (1 << 40) + at as u64;
        span.parent_seq = span.parent_seq.map(|_| 1 << 40);
    }
    batch.steps[0].seq = 1 << 40;
    let mut called = kernel_of(&batch.spans[1], "GPU", 700);
    (called.launch, called.launch_start, called.launch_dur_ns) =
        (Some("cuLaunchKernel"), Some(batch.spans[1].host_start), Some(300));
    called.correlation = 41;
    let mut copy = kernel_of(&batch.spans[2], "GPU", 500);
    (copy.kind, copy.name, copy.bytes) = (KernelKind::Memcpy, "dtoh".into(), Some(1_000));
    (copy.correlation, copy.stream, copy.gpu_start) = (42, 8, copy.gpu_start.plus_ns(5_000));
    (called.graph, called.graph_node) = (Some(3), Some((3 << 32) + 7));
    batch.steps[0].ran = Some(Ran::Replay);
    batch.kernels = vec![called, copy];
    batch
}

#[test]
fn kernels_have_a_track_a_stream_and_arrows_from_what_launched_them() {
    let batch = recorded();
    let mut bytes = Vec::new();
    chrome::write(&mut bytes, &manifest(), [&batch]).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of =
        |ph: &str, cat: &str| -> Vec<&Value> { events.iter().filter(|e| e["ph"] == ph && e["cat"] == cat).collect() };
    let (kernel, copy, call) = (of("X", "kernel"), of("X", "memcpy"), of("X", "launch"));
    assert_eq!((kernel.len(), copy.len(), call.len()), (1, 1, 1));
    assert_eq!((&copy[0]["name"], &copy[0]["args"]["bytes"]), (&"memcpy dtoh".into(), &1_000.into()));
    assert_ne!(kernel[0]["tid"], copy[0]["tid"], "a track a stream");
    let node = (3u64 << 32) + 7;
    assert_eq!((&kernel[0]["args"]["graph"], &kernel[0]["args"]["graph_node"]), (&3.into(), &node.into()));
    let ran: Vec<_> = events.iter().filter(|e| !e["args"]["ran"].is_null()).collect();
    assert_eq!(ran.len(), 1, "of the step's interval alone");
    assert_eq!((&ran[0]["args"]["ran"], &ran[0]["args"]["seq"]), (&"replay".into(), &batch.steps[0].seq.into()));
    let (begins, ends) = (of("s", "launch"), of("f", "launch"));
    assert_eq!((begins.len(), ends.len()), (2, 2));
    for (end, slice) in ends.iter().zip([kernel[0], copy[0]]) {
        assert_eq!((&end["tid"], &end["ts"]), (&slice["tid"], &slice["ts"]));
        let begin = begins.iter().find(|begin| begin["id"] == end["id"]).expect("an arrow has two ends");
        let from = if end["tid"] == kernel[0]["tid"] { call[0] } else { of_seq(events, batch.spans[2].seq) };
        assert_eq!((&begin["tid"], &begin["ts"]), (&from["tid"], &from["ts"]));
    }
    // Without kernels, nothing of this.
    let mut plain = batch;
    plain.kernels.clear();
    let mut bytes = Vec::new();
    chrome::write(&mut bytes, &manifest(), [&plain]).unwrap();
    assert!(!String::from_utf8(bytes).unwrap().contains("\"launch\""));
}

fn of_seq(events: &[Value], seq: u64) -> &Value {
    events.iter().find(|e| e["ph"] == "X" && e["args"]["seq"] == seq && e["cat"] != "memcpy").expect("an interval")
}

/// Two calls at the same time, of which nobody knows the threads, in every format.
#[test]
fn launch_calls_outside_every_interval_are_beside_the_threads() {
    let mut batch = recorded();
    let outside = |at: i64, correlation| {
        candlescope_testkit::with(kernel("GPU", at + 1_000, 100), |r| {
            (r.launch, r.launch_start, r.launch_dur_ns) = (Some("cuLaunchKernel"), Some(HostNs(T0 + at)), Some(50));
            r.correlation = correlation;
        })
    };
    batch.kernels.extend([outside(90_000, 50), outside(90_020, 51), outside(91_000, 52)]);
    let events =
        |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap()["traceEvents"].as_array().unwrap().clone();
    let tracks = |events: &[Value], cat: &str, correlations: [u64; 3]| -> Vec<String> {
        let call = |id: u64| {
            let is = |e: &&Value| e["ph"] == "X" && e["cat"] == cat && e["args"]["correlation"] == id;
            events.iter().find(is).expect("the call has a slice")
        };
        let name_of = |tid: &Value| {
            let is = |e: &&Value| e["name"] == "thread_name" && &e["tid"] == tid;
            events.iter().find(is).expect("the track has a name")["args"]["name"].as_str().unwrap().to_string()
        };
        correlations.map(|id| name_of(&call(id)["tid"])).to_vec()
    };
    let expected = ["", " (overlapping)", ""].map(|more| format!("launch calls outside every interval{more}"));
    let mut bytes = Vec::new();
    chrome::write(&mut bytes, &manifest(), [&batch]).unwrap();
    let chrome = events(&bytes);
    assert_eq!(tracks(&chrome, "launch", [50, 51, 52]), expected);
    let ends = |ph: &str| chrome.iter().filter(|e| e["ph"] == ph && e["cat"] == "launch").count();
    assert_eq!((ends("s"), ends("f")), (5, 5), "an arrow has two ends");
    bytes.clear();
    perfetto::write(&mut bytes, &manifest(), [&batch]).unwrap();
    let name = |text: &str| bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
    assert_eq!((name("launch calls outside every interval"), name(&expected[1])), (2, 1), "two tracks");

    #[cfg(feature = "kineto")]
    {
        bytes.clear();
        let written = kineto::write(&mut bytes, &manifest(), [&batch]).unwrap();
        assert_eq!((written.launches, written.launches_outside, written.steps), (4, 3, 1));
        let kineto = events(&bytes);
        assert_eq!(tracks(&kineto, "cuda_runtime", [50, 51, 52]), expected);
        let outside = kineto.iter().find(|e| e["cat"] == "cuda_runtime" && e["args"]["correlation"] == 50).unwrap();
        assert_eq!(outside["args"]["External id"], Value::Null, "no interval is around it");
    }
}

/// Tools add start and duration as doubles: what ends as something else begins must still do so.
#[cfg(feature = "kineto")]
#[test]
fn times_of_kineto_add_up_in_doubles() {
    let mut batch = recorded();
    // Intervals that end and begin at the same nanosecond, at odd places.
    let mut at = T0 + 2_497_467_151;
    for (number, span) in batch.spans.iter_mut().enumerate() {
        span.host_dur_ns = 1_018 + 37 * number as u64;
        span.host_start = HostNs(at);
        at = span.host_start.plus_ns(span.host_dur_ns).0;
    }
    let mut bytes = Vec::new();
    kineto::write(&mut bytes, &manifest(), [&batch]).unwrap();
    // From the text, an event a line: serde_json may miss a double by its last bit, which other tools' parsers do not.
    let text = String::from_utf8(bytes).unwrap();
    let number = |event: &str, key: &str| -> f64 {
        let (_, rest) = event.split_once(&format!("\"{key}\":")).expect("the event has it");
        rest[..rest.find(',').expect("more follows")].parse().unwrap()
    };
    let spans: Vec<(f64, f64)> = text
        .lines()
        .filter(|event| event.contains("\"cat\":\"cpu_op\""))
        .map(|event| (number(event, "ts"), number(event, "dur")))
        .collect();
    assert_eq!(spans.len(), batch.spans.len());
    // HolisticTraceAnalysis makes times relative to the first before it adds.
    let start = |at: usize| spans[at].0 - spans[0].0;
    for (at, span) in batch.spans.iter().enumerate() {
        let (ts, dur) = spans[at];
        if at + 1 < spans.len() {
            assert_eq!(start(at) + dur, start(at + 1), "{ts} {dur}");
        }
        let ns = |micros: f64| (micros * 1000.0).round() as i64;
        assert_eq!((ns(ts), ns(dur)), (span.host_start.0 - T0, span.host_dur_ns as i64), "to the nanosecond");
    }
}

#[cfg(feature = "kineto")]
#[test]
fn kineto_has_what_other_tools_look_for() {
    let batch = recorded();
    let unrecorded = Decoder::new(7).decode();
    let mut bytes = Vec::new();
    let (mut steps, mut kernels, mut last) = (batch.clone(), batch.clone(), batch.clone());
    (steps.spans, steps.kernels) = (Vec::new(), Vec::new());
    (kernels.spans, kernels.steps) = (Vec::new(), Vec::new());
    (last.kernels, last.steps) = (Vec::new(), Vec::new());
    steps.steps.extend(unrecorded.steps.iter().cloned().map(|step| {
        candlescope_testkit::with(step, |r| {
            r.step = 9;
        })
    }));
    let spans: Vec<_> = unrecorded
        .spans
        .into_iter()
        .map(|span| {
            candlescope_testkit::with(span, |r| {
                r.step = Some(9);
            })
        })
        .collect();
    let mut other = Batch::default();
    other.spans = spans;
    let written = kineto::write(&mut bytes, &manifest(), [steps, kernels, last, other]).unwrap();
    assert_eq!((written.kernels, written.launches, written.steps), (2, 1, 1), "the other step has no kernels");
    assert_eq!(written.intervals, batch.spans.len() as u64);
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &str| events.iter().filter(|e| e["cat"] == cat && e["ph"] == "X").collect::<Vec<_>>();
    let (kernel, call) = (of("kernel")[0], of("cuda_runtime")[0]);
    assert_eq!((&call["name"], &call["args"]["call"]), (&"cudaLaunchKernel".into(), &"cuLaunchKernel".into()));
    assert_eq!(kernel["args"]["correlation"], call["args"]["correlation"]);
    assert_eq!((kernel["args"]["stream"].as_u64(), kernel["tid"].as_u64()), (Some(7), Some(7)));
    assert_eq!(of("gpu_memcpy")[0]["name"], "Memcpy DtoH");
    assert_eq!(of("gpu_memcpy")[0]["args"]["memory bandwidth (GB/s)"], 2.0);
    let step = of("user_annotation")[0];
    assert_eq!(step["name"], format!("ProfilerStep#{}", batch.steps[0].step));
    assert_eq!(step["tid"], call["tid"], "a step is on the thread that launches");
    assert_eq!(step["args"]["ran"], "replay");
    let node = (3u64 << 32) + 7;
    assert_eq!((&kernel["args"]["graph id"], &kernel["args"]["graph node id"]), (&3.into(), &node.into()));
    assert_eq!(trace["baseTimeNanoseconds"], T0);
    assert_eq!(trace["distributedInfo"]["rank"], 0);
}
