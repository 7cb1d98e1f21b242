//! `profile --perturb`: what is made slower, what is told of it, and what stays untouched.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::Value;
use std::path::Path;

fn profiled(out: &Path, more: &[&str]) -> (String, String) {
    let short = ["--prompt-tokens", "8", "--max-new-tokens", "40", "--repeats", "6", "--threads", "1", "--no-progress"];
    let output = candlescope().args(["profile", "--out"]).arg(out).args(short).args(more).output().expect("it runs");
    assert!(output.status.success(), "{more:?}\n{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn json_of(args: &[&str], run: &Path) -> Value {
    let output = candlescope().args(args).arg(run).arg("--json").output().expect("it runs");
    assert!(output.status.success(), "{args:?}\n{}", text(&output.stderr));
    json(&text(&output.stdout))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn on_a_cpu_all_of_a_step_is_critical_and_the_rest_of_the_run_is_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let asked = "path=mlp:+50%,path=self_attn:+50%,path=nowhere:+50%";
    let (shown, said) = profiled(&run, &["--perturb", asked, "--perturb-pairs", "150", "--perturb-budget", "60%"]);
    assert!(shown.contains("Criticality, by experiment"), "{shown}");
    assert!(said.contains("path=nowhere on the host") && !said.contains("path=mlp"), "{said}");

    let analyzed = json_of(&["analyze"], &run);
    let rows = analyzed["runs"][0]["sensitivity"].as_array().expect("rows").clone();
    let of =
        |target: &str| rows.iter().find(|row| row["target"] == target).unwrap_or_else(|| panic!("{target}: {rows:#?}"));
    assert_eq!(rows.len(), 2);
    for target in ["path=mlp", "path=self_attn"] {
        let row = of(target);
        assert_eq!(
            (row["side"].as_str(), row["step"].as_str(), row["pairs"].as_u64()),
            (Some("host"), Some("decode"), Some(150))
        );
        // One thread computes, so each nanosecond counts; how sure that is says the interval, on a busy machine a wide one.
        let [low, high] = [&row["interval"][0], &row["interval"][1]].map(number);
        assert!(low < 1.15 && high > 0.85, "{row:#}");
        // A replay of one thread's step cannot say anything else.
        assert!((number(&row["replay"]["mid"]) - 1.0).abs() < 1e-6, "{row:#}");
        // Half of the share was added, give or take what spinning overshoots.
        let added = number(&row["added_ns"]) / number(&row["took_ns"]) / number(&row["share"]);
        assert!((0.45..0.7).contains(&added), "{row:#}");
    }
    let shares = number(&of("path=mlp")["share"]) + number(&of("path=self_attn")["share"]);
    assert!((0.4..1.0).contains(&shares), "{shares}");

    // The measured requests are as they would be without: whole, and no step of an experiment among their rows.
    let metrics = json(&std::fs::read_to_string(run.join("metrics.json")).unwrap());
    assert_eq!(metrics["sampling"]["is_sampled"], false);
    assert_eq!(metrics["requests"]["rows"].as_array().unwrap().len(), 7);
    let counts = &metrics["sampling"]["counts"];
    // Warm-up and six requests, of a prefill and 39 passes each.
    assert_eq!(counts["recorded"], 7 * 40, "{counts}");
    assert!(counts["perturbed"].as_u64().unwrap() >= 900, "{counts}");
    let count = |sql: &str| {
        let answer = candlescope().args(["query", sql]).arg(&run).arg("--json").output().expect("it runs");
        let answer = json(&text(&answer.stdout));
        answer["rows"][0]["n"].as_u64().unwrap_or_else(|| panic!("{sql}: {answer}"))
    };
    assert_eq!(count("select count(*) n from steps join perturbations using (step)"), 0);
    // Two of a pair, one of them delayed.
    let odd = "select count(*) n from (select pair, count(*) n, sum(delayed) d from perturbations group by pair) p where p.n > 2 or p.d > 1";
    assert_eq!(count(odd), 0);
    assert!(count("select count(*) n from requests where perturbed = 1") > 0);
}

#[test]
fn what_is_wrong_is_said_before_a_model_loads() {
    let dir = tempfile::tempdir().unwrap();
    for (args, said) in [
        (&["--perturb", "mlp:+5%"][..], "it names no path"),
        (&["--perturb", "path=mlp"], "by how much"),
        (&["--perturb", "path=block[1]/mlp:+5%"], "model.layers.3.mlp"),
        (&["--perturb", "path=mlp:+5%", "--perturb-budget", "0"], "--perturb-budget is 0"),
        (&["--perturb", "path=mlp:+5%", "--perturb-budget", "120%"], "--perturb-budget is 120%"),
        (&["--perturb", "path=mlp:+5%", "--perturb-pairs", "0"], "--perturb-pairs is 0"),
        (&["--perturb-step", "decode"], "--perturb"),
        (&["--perturb", "path=mlp@device:+5%"], "needs a GPU"),
    ] {
        let out = dir.path().join("run");
        let output = candlescope().args(["profile", "--out"]).arg(&out).args(args).output().expect("it runs");
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{args:?}: {error}");
        assert!(!out.exists(), "{args:?}");
    }
}
