//! `candlescope journey`: studies of `bench` and results of vLLM's benchmark of a server, in the order in which they were made.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Value, json as object};
use std::fs;
use std::path::{Path, PathBuf};

/// A study of `bench`, eight starts with a request each.
fn study(dir: &Path) -> PathBuf {
    let out = dir.join("study");
    let case = ["--prompt-tokens", "4", "--output-tokens", "3", "--runs", "8", "--processes", "8", "--profiled", "0"];
    let more = ["--no-progress", "--out", out.to_str().unwrap()];
    ok(&[&["bench", "latency"], &case[..], &more].concat());
    out
}

/// The same study with requests of `ms` milliseconds, 0.4 % more in every third start: what comes of it is known then,
/// however busy the machine is.
fn with_requests_of(study: &Path, name: &str, ms: f64) -> String {
    let to = study.with_file_name(name);
    copy(study, &to);
    let journal = fs::read_to_string(study.join("journal.jsonl")).unwrap();
    let mut samples = 0;
    let lines = journal.lines().map(|line| {
        let mut line = json(line);
        if line["kind"] == "sample" {
            samples += 1;
            let more = 1.0 + 0.002 * (line["process"].as_u64().unwrap() % 3) as f64;
            let measured = &mut line["measurement"];
            assert!(measured["host_ns"].is_u64() && measured["figures"]["tpot_ns"].is_f64(), "{measured}");
            measured["host_ns"] = ((ms * 1e6 * more) as u64).into();
            measured["figures"] = object!({ "tpot_ns": ms * 1e5 * more });
        }
        line.to_string() + "\n"
    });
    let text: String = lines.collect();
    assert_eq!(samples, 8);
    fs::write(to.join("journal.jsonl"), text).unwrap();
    to.to_str().unwrap().to_string()
}

/// What `vllm bench serve --save-result` writes, as vLLM names it.
fn vllm(dir: &Path, name: &str, output_tps: f64, tpot_ms: f64) -> String {
    let result = object!({
        "date": "20260105-101500", "endpoint_type": "openai", "backend": "openai", "label": null,
        "model_id": "HuggingFaceTB/SmolLM2-135M", "tokenizer_id": "HuggingFaceTB/SmolLM2-135M", "num_prompts": 200,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": null, "duration": 12.5, "completed": 200,
        "total_input_tokens": 25600, "total_output_tokens": 25600, "request_throughput": 16.0, "request_goodput": null,
        "output_throughput": output_tps, "total_token_throughput": 2.0 * output_tps,
        "mean_ttft_ms": 310.0, "median_ttft_ms": 300.0, "std_ttft_ms": 20.0, "p99_ttft_ms": 350.0,
        "mean_tpot_ms": tpot_ms + 0.1, "median_tpot_ms": tpot_ms, "std_tpot_ms": 0.4, "p99_tpot_ms": tpot_ms + 1.0,
        "mean_itl_ms": tpot_ms, "median_itl_ms": tpot_ms - 0.1, "std_itl_ms": 0.6, "p99_itl_ms": tpot_ms + 4.0,
    });
    let path = dir.join(name);
    fs::write(&path, result.to_string()).unwrap();
    path.to_str().unwrap().to_string()
}

fn written(out: &Path) -> Value {
    json(&fs::read_to_string(out.join("study.json")).unwrap())["facts"]["account"].clone()
}

fn near(value: &Value, right: f64, within: f64) {
    let value = value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    assert!((value - right).abs() <= within, "{value} is not {right}");
}

#[test]
fn each_study_is_held_against_the_best_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = study(dir.path());
    let of = |name: &str, ms: f64| with_requests_of(&first, name, ms);
    let (slow, fast, back) = (of("slow", 10.0), of("fast", 5.0), of("back", 10.01));
    let server = vllm(dir.path(), "vllm.json", 2048.0, 10.0);
    let (fast, back, server) = (format!("{fast}=--dtype f16"), format!("{back}=as before"), format!("{server}=vLLM"));
    let out = dir.path().join("out");
    let stations = [slow.as_str(), fast.as_str(), back.as_str(), server.as_str()];
    let told = ok(&[&["journey"], &stations[..], &["--out", out.to_str().unwrap()]].concat());

    let account = written(&out);
    let phases = account["phases"].as_array().unwrap();
    let of = |key: &str| phases.iter().map(|phase| phase[key].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("title"), ["--dtype f16", "as before", "vLLM"]);
    assert_eq!(of("verdict"), ["kept", "rejected", "not_tried"]);
    assert_eq!(of("why")[..2], ["better", "worse"]);
    // Requests of a study and tokens of a server under load are no common figure.
    assert_eq!(of("why")[2], "it has no figure in common with --dtype f16");
    // Half of 10 ms, with an interval over the starts; then twice as long as the best, which stays.
    near(&phases[0]["obtained"]["gain"], 0.5, 0.005);
    near(&phases[1]["obtained"]["gain"], -1.0, 0.02);
    for phase in &phases[..2] {
        let obtained = ["low", "gain", "high"].map(|key| phase["obtained"][key].as_f64().unwrap());
        assert!(obtained.is_sorted() && obtained[2] - obtained[0] < 0.1, "{phase:#}");
        let figures = phase["figures"].as_array().unwrap();
        let host = figures.iter().find(|figure| figure["name"].as_str().unwrap().ends_with(" host_ns")).unwrap();
        near(&host["after"], if phase["verdict"] == "kept" { 5.01e6 } else { 10.03e6 }, 1e4);
    }
    assert_eq!((&phases[2]["obtained"], &account["ended"]), (&Value::Null, &object!("all_tried")));

    assert!(told.contains("kept  --dtype f16, obtained 50.0 %: better"), "{told}");
    assert!(told.contains("rejected  as before, obtained −100.") && told.contains("not tried  vLLM: "), "{told}");
    assert!(told.contains("Step time: 50.0 % less, 2.00 times as fast."), "{told}");
    let page = fs::read_to_string(out.join("FINAL_OPTIMIZATION_SUMMARY.md")).unwrap();
    let row = |at: &str| page.lines().find(|line| line.starts_with(at)).unwrap_or_else(|| panic!("{at}: {page}"));
    let head = page.lines().nth(2).unwrap_or_default();
    assert!(head.contains(", for latency, 0 s. Everything was tried.") && !head.contains("()"), "{page}");
    assert!(page.contains("| # | Remedy | Change | Promised | Obtained |"), "{page}");
    assert!(page.contains("**50.0 % of the step time is gone (2.00 times as fast)**"), "{page}");
    assert!(row("| 1 | --dtype f16 | – | – | 50.0 % (49.").contains("| **kept**: better |"), "{page}");
    assert!(row("| 2 | as before | – | – | −100.").contains("| **rejected**: worse |"), "{page}");
    assert!(row("| 3 | vLLM | – | – | – |").contains("**not tried**"), "{page}");
    assert!(fs::read_to_string(out.join("optimization_impact.svg")).unwrap().contains("before"));
}

#[test]
fn results_of_a_server_are_judged_by_the_goal() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let before = vllm(dir.path(), "default.json", 2048.0, 10.0);
    let after = vllm(dir.path(), "64.json", 4096.0, 12.5) + "=--max-num-seqs 64";
    let (for_tokens, for_time) = (path("for-tokens"), path("for-time"));
    let of = |goal: &str, out: &str| json(&ok(&["journey", &before, &after, "--goal", goal, "--out", out, "--json"]));
    // Twice the tokens a second in half the time for each, which costs a sequence a quarter more.
    let printed = of("throughput", &for_tokens);
    assert_eq!((&printed["schema"], &printed["study"]), (&object!(1), &object!(for_tokens)));
    assert_eq!(printed["account"], written(Path::new(&for_tokens)));
    assert_eq!(printed["total_gain"], 0.5);
    let account = &printed["account"];
    assert_eq!((&account["model"], &account["aim"]), (&object!("HuggingFaceTB/SmolLM2-135M"), &object!("throughput")));
    let phase = &account["phases"][0];
    assert_eq!((&phase["title"], &phase["verdict"]), (&object!("--max-num-seqs 64"), &object!("kept")));
    assert_eq!(phase["obtained"], object!({ "gain": 0.5, "low": null, "high": null }));
    let figure = |name: &str| {
        let figures = phase["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name}: {phase:#}")).clone()
    };
    assert_eq!((&figure("output_tps")["before"], &figure("output_tps")["after"]), (&object!(2048.0), &object!(4096.0)));
    assert_eq!((&figure("tpot_ns")["before"], &figure("tpot_ns")["after"]), (&object!(1e7), &object!(1.25e7)));
    assert_eq!(figure("ttft_ns")["change"], object!([0.0, null, null]));
    let page = fs::read_to_string(Path::new(&for_tokens).join("FINAL_OPTIMIZATION_SUMMARY.md")).unwrap();
    assert!(page.contains("| 1 | --max-num-seqs 64 | – | – | 50.0 % | – |"), "no interval is made up: {page}");
    assert!(page.contains("one measurement of each has no interval"), "{page}");

    let printed = of("latency", &for_time);
    let phase = &printed["account"]["phases"][0];
    assert_eq!((&phase["verdict"], &printed["total_gain"]), (&object!("rejected"), &Value::Null));
    near(&phase["obtained"]["gain"], -0.25, 1e-9);
    assert!(phase["why"].as_str().unwrap().starts_with("tpot_ns changes by +25.0 %"), "{phase:#}");
}

#[test]
fn what_is_no_journey_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let one = vllm(dir.path(), "one.json", 2048.0, 10.0);
    let out = dir.path().join("out").to_str().unwrap().to_string();
    let error = |args: &[&str]| fails(&[&["journey", "--out", &out], args].concat());
    assert!(error(&[&one]).contains("one state alone is no journey"));
    let missing = dir.path().join("missing").to_str().unwrap().to_string();
    assert!(error(&[&one, &missing]).contains("missing"));
    let other = dir.path().join("other.json").to_str().unwrap().to_string();
    fs::write(&other, "{\"a\": 1}").unwrap();
    let told = error(&[&one, &other]);
    assert!(told.contains("other.json") && told.contains("output_throughput"), "{told}");
    assert!(!Path::new(&out).exists());
}
