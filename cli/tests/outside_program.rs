//! What the commands make of a program that does not link candlescope: PyTorch, as it was recorded on a GPU, of which no module, no
//! request and no layer is known.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the run: some commands write into it.
fn torch(dir: &Path) -> PathBuf {
    let run = dir.join("torch");
    copy(&Path::new(ROOT).join("cli/tests/recorded/programs/torch"), &run);
    run
}

/// The only row of an answer by SQL.
fn row(run: &Path, sql: &str) -> Value {
    json(&ok(&["query", sql, run.to_str().unwrap(), "--json"]))["rows"][0].clone()
}

fn near(a: &Value, b: f64) -> bool {
    a.as_f64().is_some_and(|a| (a - b).abs() <= 1e-6 * b.abs())
}

/// Nanoseconds that kernels and copies of a decoding step take.
const DEVICE: &str = "SELECT sum(k.gpu_dur_ns) / count(DISTINCT s.step) AS ns, sum(CASE WHEN k.kind = 'kernel' THEN 1.0 END) / count(DISTINCT s.step) AS kernels \
                      FROM kernels k JOIN steps s ON s.step = k.step WHERE s.phase = 'decode'";

#[test]
fn rooflines_have_its_tokens_and_none_of_its_operations() {
    let dir = tempfile::tempdir().unwrap();
    let run = torch(dir.path());
    let told = json(&ok(&["roofline", run.to_str().unwrap(), "--json"]))["runs"][0].clone();
    let points = told["points"].as_array().unwrap();
    assert!(points.iter().all(|point| point["kind"] != "operator" && point["predicted_ns"].is_null()), "{points:#?}");
    let of_decode = |over: &str| {
        let is_it = |point: &&Value| point["kind"] == "phase" && point["name"] == "decode" && point["over"] == over;
        points.iter().find(is_it).unwrap_or_else(|| panic!("no point over {over}: {points:#?}"))
    };
    let stated = row(
        &run,
        "SELECT avg(flops) AS flops, avg(io_bytes) AS bytes, avg(host_dur_ns) AS ns FROM steps WHERE phase = 'decode'",
    );
    let of = |key: &str| stated[key].as_f64().unwrap();
    for (over, ns) in [("wall", of("ns")), ("kernels", row(&run, DEVICE)["ns"].as_f64().unwrap())] {
        let point = of_decode(over);
        assert!(near(&point["ns"], ns), "{ns}: {point:#}");
        assert!(near(&point["flops_per_s"], of("flops") / ns * 1e9), "{stated}: {point:#}");
        assert!(near(&point["bytes_per_s"], of("bytes") / ns * 1e9), "{stated}: {point:#}");
        assert_eq!((&point["calls"], &point["under"][0]["status"]), (&9.into(), &"ok".into()), "{point:#}");
    }
    // What is not known is said: it made no request.
    assert_eq!(told["outlook_missing"], "prompt tokens of a request");
}

#[test]
fn a_step_is_replayed_as_a_graph_and_what_needs_its_operations_is_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let run = torch(dir.path());
    let told = json(&ok(&["analyze", run.to_str().unwrap(), "--what-if", "graph", "--json"]));
    let steps = told["runs"][0]["what_if"]["steps"].as_array().unwrap();
    let decode = steps.iter().find(|steps| steps["name"] == "decode").unwrap();
    let typical = &decode["typical"];
    let device = row(&run, DEVICE);
    assert!(near(&typical["kernels"], device["kernels"].as_f64().unwrap()), "{device}: {typical:#}");
    let graph = &decode["scenarios"][0]["outcome"]["seconds"];
    let of = |bound: &str| graph[bound].as_f64().unwrap();
    let works = typical["kernel_seconds"].as_f64().unwrap();
    assert!((works * 1e9 - device["ns"].as_f64().unwrap()).abs() < 0.01 * works * 1e9, "{device}: {typical:#}");
    // No shorter than what its kernels take, and far from what they wait for now.
    assert!(works <= of("low") && of("low") <= of("mid") && of("mid") <= of("high"), "{works}: {graph}");
    assert!(of("high") < 0.5 * typical["measured_seconds"].as_f64().unwrap(), "{graph}: {typical:#}");
    let codes = |key: &str| -> Vec<String> {
        let all = told[key].as_array().unwrap().iter();
        all.map(|each| format!("{} {}", each["code"].as_str().unwrap(), each["missing"].as_str().unwrap_or("")))
            .collect()
    };
    assert!(codes("findings").contains(&"launch_bound ".to_string()), "{:?}", codes("findings"));
    for unjudged in ["below_roof work", "kv_bandwidth work", "weight_streaming work"] {
        assert!(codes("abstained").contains(&unjudged.to_string()), "{:?}", codes("abstained"));
    }
}

#[test]
fn timelines_have_every_kernel_with_the_call_that_launched_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = torch(dir.path());
    let n = |kind: &str| {
        let sql = format!("SELECT count(*) AS n FROM kernels WHERE kind = '{kind}'");
        row(&run, &sql)["n"].as_u64().unwrap() as usize
    };
    let (kernels, copies, sets) = (n("kernel"), n("memcpy"), n("memset"));
    let all = kernels + copies + sets;
    let export = |format: &str, file: &Path| {
        json(&ok(&["export", format, run.to_str().unwrap(), "--out", file.to_str().unwrap(), "--json"]))
    };
    let kineto = dir.path().join("kineto.json");
    let said = export("kineto", &kineto);
    assert_eq!(
        (&said["kernels"], &said["launches"], &said["findings"]),
        (&all.into(), &all.into(), &serde_json::json!([]))
    );
    let trace = json(&std::fs::read_to_string(&kineto).unwrap());
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |category: &str, phase: &str| {
        events.iter().filter(|event| event["cat"] == category && event["ph"] == phase).count()
    };
    assert_eq!((of("kernel", "X"), of("gpu_memcpy", "X"), of("gpu_memset", "X")), (kernels, copies, sets));
    assert_eq!(
        (of("cuda_runtime", "X"), of("ac2g", "s"), of("ac2g", "f")),
        (all, all, all),
        "calls, and arrows from them"
    );
    assert_eq!(of("user_annotation", "X") as u64, row(&run, "SELECT count(*) AS n FROM steps")["n"].as_u64().unwrap());

    let perfetto = dir.path().join("torch.pftrace");
    assert_eq!(export("perfetto", &perfetto)["kernels"], all);
    let Some(python) = require(&PYTHON) else { return };
    let expected = dir.path().join("kernels.json");
    let process = format!("candlescope {}", manifest(&run)["run_id"].as_str().unwrap());
    std::fs::write(&expected, serde_json::json!({ process: kernels }).to_string()).unwrap();
    let output = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_perfetto.py"))
        .arg(&perfetto)
        .arg("--kernels")
        .arg(&expected)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
