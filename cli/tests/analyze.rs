//! `analyze`: scenarios and findings on the command line, and what is said where there is no answer.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;

/// A run of a CPU that is kept in the repository.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/fixtures/schema-v1");

#[test]
fn scenarios_of_a_run_without_a_gpu() {
    let text = ok(&["analyze", RUN, "--what-if", "host×0.5", "--what-if", "graph"]);
    for shown in ["as recorded", "replayed unchanged", "unobserved", "host×0.5", "No answer to graph", "host×f"] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let object = json(&ok(&["analyze", RUN, "--what-if", "host*0.5+path=decode*1", "--json"]));
    let run = &object["runs"][0];
    assert_eq!((object["schema"].as_u64(), run["devices"].as_array().map(Vec::len)), (Some(1), Some(0)));
    let steps = run["what_if"]["steps"].as_array().unwrap();
    let decode = steps.iter().find(|steps| steps["name"] == "decode").unwrap();
    let scenario = &decode["scenarios"][0];
    assert_eq!(scenario["changes"], "host×0.5+path=decode×1");
    let share = scenario["outcome"]["share_of_step"]["mid"].as_f64().unwrap();
    assert!((share - 0.5).abs() < 1e-6, "{scenario}");
    // Asked only for the step as it runs unobserved.
    assert!(ok(&["analyze", RUN, "--unobserved"]).contains("unobserved"));
}

#[test]
fn a_bad_scenario_is_named_with_the_forms() {
    let error = fails(&["analyze", RUN, "--what-if", "graph+kernl=gemv×0.5"]);
    assert!(error.contains("`kernl=gemv×0.5` is not a change") && error.contains("kernel=REGEX×f"), "{error}");
    let many = vec!["host×0.5"; 65].join("+");
    let error = fails(&["analyze", RUN, "--what-if", &many]);
    assert!(error.contains("65 changes") && error.contains("limit of 64"), "{error}");
    let error = fails(&["analyze", RUN, "--what-if", "kernel=(×2"]);
    assert!(error.contains("`kernel=(×2` is not a change: ") && error.contains("unclosed group"), "{error}");
    let missing = fails(&["analyze", RUN, "--what-if", "graph", "--peaks", "/nowhere/peaks.json"]);
    assert!(missing.contains("cannot read `/nowhere/peaks.json`"), "{missing}");
}

/// The built-in model on the processor: what is found is of a processor, and what is missing says how to record it.
#[test]
fn analyze_finds_no_gpu_in_a_run_on_a_processor() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let out = out.to_str().unwrap();
    ok(&["profile", "--out", out, "--max-new-tokens", "40", "--repeats", "2", "--warmup", "1"]);
    let object = json(&ok(&["analyze", out, "--json", "--top", "0"]));
    let of_gpu = [
        "launch_bound",
        "kernel_count",
        "unfused",
        "sync_drain",
        "exposed_copy",
        "wave_tail",
        "clocks_low",
        "allocator",
        "upcast",
        "data_movement",
        "dequantise",
    ];
    for list in ["findings", "abstained"] {
        for one in object[list].as_array().unwrap() {
            let code = one["code"].as_str().unwrap();
            assert!(!of_gpu.contains(&code), "{one}");
        }
    }
    for finding in object["findings"].as_array().unwrap() {
        let gain = |key: &str| finding["gain"][key].as_f64().unwrap();
        assert!(0.0 <= gain("low") && gain("low") <= gain("mid") && gain("mid") <= gain("high"), "{finding}");
        assert!(gain("high") <= 1.0 && finding["remedy"].as_str().unwrap().len() > 10, "{finding}");
    }
    for abstained in object["abstained"].as_array().unwrap() {
        assert!(!abstained["record"].as_str().unwrap().is_empty(), "{abstained}");
    }
    let steps = object["runs"][0]["steps"].as_array().unwrap();
    let decode = steps.iter().find(|step| step["phase"] == "decode").unwrap();
    let (observed, unobserved) = (decode["observed_ns"].as_f64().unwrap(), decode["unobserved_ns"].as_f64().unwrap());
    assert!(unobserved > 0.0 && unobserved <= observed * 1.1, "{decode}");
    let text = ok(&["analyze", out]);
    // Whether the run can be trusted stands before what it says.
    let trust = object["runs"][0]["trust"]["text"].as_str().unwrap();
    let first = text.lines().next().unwrap();
    assert_eq!(first.trim_end_matches('.').to_lowercase(), trust.to_lowercase(), "{text}");
    assert!(text.contains("\nWhat to change") && text.contains("a step `decode` takes"), "{text}");
}
