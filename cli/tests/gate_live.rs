//! `gate --prometheus` on the command line, against a scripted Prometheus.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::collector::nobody;
use common::*;
use serde_json::json;

/// Status, standard output and standard error.
fn gate(url: &str, more: &[&str]) -> (i32, String, String) {
    let output = run(&[&["gate", "--prometheus", url], more].concat());
    let said = (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr));
    assert!(!said.1.contains("sesame") && !said.2.contains("sesame"), "{said:?}");
    said
}

const STEADY: [f64; 7] = [100.0, 101.0, 99.0, 100.5, 99.5, 100.0, 101.0];

fn now(ms: f64) -> Vec<f64> {
    [&[ms], &STEADY[..]].concat()
}

#[test]
fn a_slower_server_is_worse_a_steady_one_is_not_and_few_windows_decide_nothing() {
    let (code, out, err) = gate(&prometheus(now(130.0)), &["--windows", "7", "--json", "--select", "job=\"api\""]);
    assert_eq!((code, err.as_str()), (1, ""), "{out}");
    let object = json(&out);
    assert_eq!(
        (&object["schema"], &object["outcome"], &object["select"]),
        (&json!(1), &json!("worse"), &json!("job=\"api\""))
    );
    assert_eq!(object["before"].as_array().map(Vec::len), Some(7));
    let figure = &object["comparison"]["figures"][0];
    assert_eq!(
        (&figure["name"], &figure["windows"], &figure["outcome"]),
        (&json!("ttft_ns"), &json!(7), &json!("worse"))
    );
    assert_eq!((&figure["estimate"]["basis"], &figure["floor"]["source"]), (&json!("windows"), &json!("windows")));
    assert!((figure["estimate"]["change"].as_f64().unwrap() - 0.3).abs() < 0.03, "{figure}");

    let (code, out, err) = gate(&prometheus(now(100.2)), &["--windows", "7", "--within", "5"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("Equivalent") && out.contains("http://***@127.0.0.1"), "{out}");
    let (code, out, _) = gate(&prometheus(now(70.0)), &["--windows", "7"]);
    assert!(code == 0 && out.contains("Better: time to first token −"), "{out}");

    let few = || prometheus(vec![130.0, 100.0, 101.0]);
    let (code, out, _) = gate(&few(), &["--windows", "2"]);
    assert!(code == 2 && out.contains("there are 2 windows before with values, and it takes 4"), "{out}");
    let (code, out, _) = gate(&few(), &["--windows", "2", "--floor", "5"]);
    assert_eq!(code, 1, "{out}");
}

#[test]
fn what_cannot_be_asked_says_so_in_one_line_with_status_3() {
    let url = format!("http://user:sesame-1@{}", nobody());
    let wrong = |url: &str, more: &[&str], says: &str| {
        let (code, out, err) = gate(url, more);
        assert_eq!((code, out.as_str()), (3, ""), "{more:?}: {err}");
        assert!(err.contains(says), "{more:?}: {err}");
    };
    wrong(&url, &[], "does not answer");
    wrong("localhost:9090", &[], "is no address of Prometheus");
    wrong(&url, &["--last", "soon"], "--last");
    wrong(&url, &["--api-key-env", "NO_SUCH_KEY_HERE"], "export NO_SUCH_KEY_HERE=KEY");
    wrong(&url, &["--save", "here"], "cannot be used with");
    wrong(&url, &["--against", "1h", "--since-deploy"], "cannot be used with");
    let output = run(&["gate", "runs", "--baseline", "b", "--select", "x"]);
    assert_eq!(output.status.code(), Some(3), "--select is of a live server only");
}
