//! `report RUN --request N` of a run that the program recorded: the account, its forms, and what it refuses.
#![allow(missing_docs, reason = "a test")]
mod common;

use common::*;

#[test]
fn a_request_is_taken_apart_and_an_unknown_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    ok(&["profile", "--model", "embedded", "--max-new-tokens", "8", "--repeats", "5", "--no-progress", "--out", run]);
    let shown = ok(&["report", run, "--request", "3"]);
    assert!(shown.contains("request 3") || shown.contains("Request 3"), "{shown}");
    for form in ["request-3.html", "request-3.md"] {
        let page = std::fs::read_to_string(dir.path().join("run").join(form)).unwrap();
        assert!(page.contains("equest 3"), "{form}");
    }
    let told = json(&ok(&["report", run, "--request", "3", "--json"]));
    assert_eq!(told["request"], 3);
    let parts = told["parts"].as_array().unwrap().iter().filter_map(|part| part["ns"].as_f64());
    let (sum, whole) = (parts.sum::<f64>(), told["difference_ns"].as_f64().unwrap());
    assert!((sum - whole).abs() < 1.0, "{told:#}");
    assert!(told["requests_like_it"].as_u64().is_some_and(|n| n >= 4), "{told:#}");
    let refused = fails(&["report", run, "--request", "99"]);
    assert!(refused.contains("99") && refused.contains("1 to"), "{refused}");
    assert!(fails(&["report", run, "--request", "x"]).contains("--request"), "a number is asked for");
}
