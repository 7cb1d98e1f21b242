//! `analyze --what-if`: scenarios on the command line, and what is said where there is no answer.
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
    let error = fails(&["analyze", RUN, "--what-if", "kernel=(×2"]);
    assert!(error.contains("`kernel=(×2` is not a change: ") && error.contains("unclosed group"), "{error}");
    // Without scenarios a run without kernels has no account, as ever.
    assert!(fails(&["analyze", RUN]).contains("--cupti"));
    let missing = fails(&["analyze", RUN, "--what-if", "graph", "--peaks", "/nowhere/peaks.json"]);
    assert!(missing.contains("cannot read `/nowhere/peaks.json`"), "{missing}");
}
