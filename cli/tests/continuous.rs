//! Requests that are under way at once (`profile --concurrency`): the same texts as one after the other, prompts in pieces, and
//! beginnings of prompts that are computed once. And several tokens in one step (`--speculate`), and keys and values in 8 bits.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Records a run of the embedded model, and gives its `run.json`.
fn recorded(dir: &Path, name: &str, args: &[&str]) -> Value {
    let out = dir.join(name);
    let base = ["profile", "--no-progress", "--ignore-eos", "--stacks=off", "--out", out.to_str().expect("UTF-8")];
    ok(&[&base[..], args].concat());
    manifest(&out)
}

fn metrics(dir: &Path, name: &str) -> Value {
    json(&fs::read_to_string(dir.join(name).join("metrics.json")).expect("metrics.json"))
}

/// Measured steps of a phase.
fn steps(metrics: &Value, phase: &str) -> u64 {
    let rows = metrics["phases"]["rows"].as_array().expect("a list");
    rows.iter().find(|row| row["name"] == phase).and_then(|row| row["steps"].as_u64()).expect("steps of the phase")
}

/// Codes of what holds a run back.
fn advice(dir: &Path, name: &str) -> Vec<String> {
    let run = dir.join(name);
    let printed = json(&ok(&["analyze", run.to_str().expect("UTF-8"), "--json", "--top", "0"]));
    let of = |finding: &Value| finding["code"].as_str().expect("a code").to_string();
    printed["findings"].as_array().expect("a list").iter().map(of).collect()
}

#[test]
fn what_prompts_begin_with_is_computed_once_and_texts_stay_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Twelve prompts that begin alike, each with words of its own.
    let system =
        "You are a careful assistant that answers in one short sentence, in plain words and without any doubt. ";
    let line = |n: u8| format!("{{\"prompt\":\"{system}{} is the question\"}}\n", char::from(b'a' + n));
    let set = dir.join("prompts.jsonl");
    fs::write(&set, (0..12).map(line).collect::<String>()).unwrap();
    let of = |name: &str, more: &[&str]| {
        let args = [&["--dataset", set.to_str().unwrap(), "--max-new-tokens", "6"], more].concat();
        recorded(dir, name, &args)
    };
    let alone = of("alone", &[]);
    let three = of("three", &["--concurrency", "3"]);
    let reused = of("reused", &["--concurrency", "3", "--prefix-reuse"]);
    assert!(alone["results"]["output_sha256"].is_string(), "{:#}", alone["results"]);
    for other in [&three, &reused] {
        assert_eq!(other["results"]["output_sha256"], alone["results"]["output_sha256"]);
    }
    let sharing = |run: &Value, name: &str| {
        run["results"]["prompt_sharing"][name].as_u64().unwrap_or_else(|| panic!("{name} of {:#}", run["results"]))
    };
    let beginning = sharing(&alone, "shared") / 11;
    assert!(
        beginning as usize >= system.len() / 8 && sharing(&alone, "shared") == 11 * beginning,
        "of all but the first"
    );
    // The first three come into slots that hold nothing.
    assert_eq!((sharing(&three, "shared"), sharing(&three, "reused")), (9 * beginning, 0));
    assert_eq!((sharing(&reused, "shared"), sharing(&reused, "reused")), (9 * beginning, 9 * beginning));
    // What was computed again is a finding, and is none where it was not.
    assert!(advice(dir, "alone").contains(&"prefix_recomputed".to_string()), "{:?}", advice(dir, "alone"));
    assert!(!advice(dir, "reused").contains(&"prefix_recomputed".to_string()), "{:?}", advice(dir, "reused"));
    assert_eq!(alone["counts"]["requests"], reused["counts"]["requests"]);
}

#[test]
fn prompts_pass_in_pieces_and_who_waits_for_them_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let base =
        ["--prompt-tokens", "400", "--max-new-tokens", "24", "--repeats", "8", "--warmup", "4", "--concurrency", "4"];
    let whole = recorded(dir, "whole", &[&base[..], &["--prompt-piece", "400"]].concat());
    let pieces = recorded(dir, "pieces", &[&base[..], &["--prompt-piece", "32"]].concat());
    assert_eq!(whole["results"]["output_sha256"], pieces["results"]["output_sha256"]);
    assert_eq!((&whole["counts"]["requests"], &pieces["options"]["prompt-piece"]), (&12.into(), &32.into()));
    let (whole, pieces) = (metrics(dir, "whole"), metrics(dir, "pieces"));
    assert_eq!(
        (steps(&whole, "prefill"), steps(&pieces, "prefill")),
        (8, 8 * 13),
        "400 tokens in 13 pieces of up to 32"
    );
    let findings = whole["verdict"]["findings"].as_array().expect("a list");
    let told = findings.iter().find(|finding| finding["code"] == "prompts_hold_up");
    let told = told.unwrap_or_else(|| panic!("sequences wait for a prompt of 400 tokens: {findings:#?}"));
    assert!(told["remedy"].as_str().is_some_and(|remedy| remedy.contains("--prompt-piece")), "{told:#}");
}

#[test]
fn looked_up_tokens_write_the_same_in_the_steps_that_a_run_without_them_foretells() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let base = ["--prompt", "to be or not to be or not to be or not", "--max-new-tokens", "90", "--repeats", "2"];
    let plain = recorded(dir, "plain", &base);
    let ahead = recorded(dir, "ahead", &[&base[..], &["--speculate", "4"]].concat());
    assert_eq!(plain["results"]["output_sha256"], ahead["results"]["output_sha256"]);
    let foretold = &plain["results"]["ngram_lookup"];
    assert_eq!((&foretold["ahead"], &foretold["tokens"]), (&4.into(), &(2 * 89).into()), "{foretold:#}");
    assert_eq!(foretold, &ahead["results"]["ngram_lookup"]);
    assert_eq!(steps(&metrics(dir, "plain"), "decode"), 2 * 89);
    assert_eq!(steps(&metrics(dir, "ahead"), "decode"), foretold["steps"].as_u64().unwrap());
    assert!(foretold["steps"].as_u64().unwrap() <= 2 * 89, "{foretold:#}");
    // A step that checks tokens saves four at most, and one that checks none saves none.
    let of = |name: &str| foretold[name].as_f64().unwrap();
    assert!(of("tokens") - of("steps") <= 4.0 * of("checks") && of("checks") <= of("steps"), "{foretold:#}");
}

#[test]
fn the_throughput_suite_drives_requests_that_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("results");
    let shape = ["--prompt-tokens", "24", "--output-tokens", "6", "--batches", "1,3"];
    let how = ["--continuous", "--prompt-piece", "8", "--cuda-graph", "--out", out.to_str().unwrap()];
    let done = run(&[&["bench", "throughput", "--quick"][..], &shape, &how].concat());
    let err = text(&done.stderr);
    assert!(done.status.success(), "{err}");
    assert!(err.contains("steps run call by call, not as CUDA graphs: cpu is no CUDA device"), "{err}");
    let study = json(&fs::read_to_string(out.join("study.json")).unwrap());
    let continuous = &study["options"]["continuous"];
    assert_eq!((&continuous["prompt-piece"], &continuous["requests-each"]), (&8.into(), &4.into()), "{continuous:#}");
    let results = json(&fs::read_to_string(out.join("results.json")).unwrap());
    let rows = results["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 4, "of each case three repetitions and a recorded one");
    for row in rows {
        assert!(row["profiled"] == true || row["verdict"] == "ok", "{row:#}");
        // Of four requests for each at once, six tokens each.
        let tokens = 4.0 * 6.0 * row["batch"].as_f64().unwrap();
        let seconds = row["host_ns"].as_f64().unwrap() / 1e9;
        let rate = row["output_tps"].as_f64().unwrap();
        assert!((rate * seconds / tokens - 1.0).abs() < 1e-6, "{row:#}");
        assert!(row["ttft_ns"].as_f64().unwrap() < row["host_ns"].as_f64().unwrap(), "{row:#}");
    }
    let recorded = rows.iter().find(|row| row["batch"] == 3 && row["profiled"] == true).expect("a recorded repetition");
    let passed = metrics(&out, recorded["run"].as_str().expect("a run"));
    assert_eq!(steps(&passed, "prefill"), 12 * 3, "twelve prompts of three pieces");
    assert!((20..=60).contains(&steps(&passed, "decode")), "of 60 tokens, several in most steps");
    assert_eq!(continuous["cuda-graph"], true, "the processes that measure ask for it too: {continuous:#}");
    let alone = run(&["bench", "throughput", "--cuda-graph"]);
    assert!(!alone.status.success() && text(&alone.stderr).contains("--continuous"), "batches are held in no slots");
    let wrong = ["bench", "throughput", "--continuous", "--prompt-tokens", "8", "--shared-tokens", "9"];
    assert!(fails(&wrong).contains("--shared-tokens is 9, and a prompt has 8"));
}

/// The option, what a run and a study say of it, and that runs with and without it are two things.
#[test]
fn keys_and_values_in_8_bits_are_named_wherever_they_make_a_difference() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let base = ["--max-new-tokens", "12", "--repeats", "2"];
    let of = |name: &str, more: &[&str]| recorded(dir, name, &[&base[..], more].concat());
    let (full, auto) = (of("full", &[]), of("auto", &["--kv-cache-dtype", "auto"]));
    let small = of("small", &["--kv-cache-dtype", "q8"]);
    let slots = of("slots", &["--kv-cache-dtype", "q8", "--max-num-seqs", "2", "--max-model-len", "64"]);
    for run in [&small, &slots] {
        assert_eq!((&run["options"]["kv-cache-dtype"], &run["model"]["kv_cache_dtype"]), (&"q8".into(), &"q8".into()));
    }
    for run in [&full, &auto] {
        assert!(run["model"].get("kv_cache_dtype").is_none(), "{:#}", run["model"]);
    }
    assert_eq!(full["results"]["output_sha256"], auto["results"]["output_sha256"]);
    let at = |name: &str| dir.join(name).display().to_string();
    let err = fails(&["compare", &at("full"), &at("small")]);
    assert!(err.contains("kv_cache_dtype") && err.contains("--allow dtype"), "{err}");
    let told = run(&["compare", &at("full"), &at("small"), "--allow", "dtype"]);
    assert!(text(&told.stdout).contains("(as allowed): kv cache dtype: unknown → q8"), "{}", text(&told.stdout));
    let told = run(&["compare", &at("full"), &at("auto"), "--json"]);
    assert_eq!(text(&told.stderr), "", "`auto` is what there is without it");
    // Studies hand it on to the processes that measure.
    let out = at("results");
    ok(&["bench", "latency", "--quick", "--kv-cache-dtype", "q8", "--profiled", "0", "--out", &out]);
    let study = json(&fs::read_to_string(dir.join("results/study.json")).unwrap());
    assert_eq!(
        (&study["options"]["kv-cache-dtype"], &study["model"]["kv_cache_dtype"]),
        (&"q8".into(), &"q8".into()),
        "{study:#}"
    );
    // candle's own models cannot.
    let out = at("candle");
    let err = fails(&["profile", "--engine", "candle", "--kv-cache-dtype", "q8", "--out", &out]);
    assert!(err.contains("--kv-cache-dtype q8") && err.contains("engine `instrumented`"), "{err}");
    let err = fails(&["bench", "variants", "--kv-cache-dtype", "q8"]);
    assert!(err.contains("name them with --variants"), "{err}");
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (args, said) in [
        (&["--concurrency", "0"][..], "--concurrency is 0"),
        (&["--concurrency", "2", "--batch", "2", "--max-num-seqs", "2"], "leave --batch out"),
        (&["--concurrency", "2", "--perturb", "path=mlp:+20%"], "leave --concurrency out"),
        (&["--prefix-reuse"], "say how many are under way with --concurrency"),
        (&["--concurrency", "2", "--prefix-reuse", "--prompt-tokens", "9"], "choose some with --dataset"),
        (&["--prompt-piece", "0"], "--prompt-piece is 0"),
        (&["--kv-cache-dtype", "fp8"], "keys and values are held as auto or q8"),
        (&["--prompt-piece", "32"], "say how many with --concurrency"),
        (&["--speculate", "4", "--max-num-seqs", "2"], "in a cache that grows"),
        (&["--speculate", "4", "--batch", "2"], "leave --batch and --temperature out"),
        (&["--speculate", "4", "--temperature", "0.5"], "leave --batch and --temperature out"),
    ] {
        let err = fails(&[&["profile", "--out", "/nowhere/to/be/written"][..], args].concat());
        assert!(err.contains(said), "{args:?}: {err}");
    }
}

#[test]
fn as_many_requests_are_under_way_as_were_asked_for_or_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let refused = |args: &[&str]| {
        let base = ["profile", "--no-progress", "--max-new-tokens", "2", "--out", out.to_str().unwrap()];
        fails(&[&base[..], args].concat())
    };
    let few = refused(&["--concurrency", "8", "--repeats", "7", "--prompt-tokens", "4"]);
    assert!(few.contains("there are 7 requests: give --repeats 8 or more"), "{few}");
    let set = dir.path().join("prompts.jsonl");
    fs::write(&set, "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n{\"prompt\":\"three\"}\n").unwrap();
    let few = refused(&["--concurrency", "4", "--repeats", "7", "--dataset", set.to_str().unwrap()]);
    assert!(few.contains("has 3 requests") && few.contains("--concurrency 3 or less"), "{few}");
}

#[test]
fn nothing_begins_after_the_time_and_only_prompts_that_ran_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("prompts.jsonl");
    let (prompts, words) = (2_000, "the same words again ".repeat(6));
    fs::write(&set, (0..prompts).map(|n| format!("{{\"prompt\":\"{words}{n}\"}}\n")).collect::<String>()).unwrap();
    let set = format!("dataset.path={}", set.display());
    for at_once in [None, Some("concurrency=2")] {
        let out = dir.path().join(at_once.unwrap_or("alone"));
        let args =
            ["analyze", "--full", "embedded", "--duration", "1", "--no-progress", "--out", out.to_str().unwrap()];
        let more = ["--set", set.as_str(), "--set", "max-new-tokens=16", "--set", "stacks=off"];
        let at_once: Vec<&str> = at_once.into_iter().flat_map(|set| ["--set", set]).collect();
        ok(&[&args[..], &more, &at_once].concat());
        let run = manifest(&out.join("run"));
        let measured = run["counts"]["requests"].as_u64().unwrap() - 1;
        assert!((2..prompts).contains(&measured), "{measured} requests of a pass");
        let sharing = &run["results"]["prompt_sharing"];
        let each = sharing["tokens"].as_f64().unwrap() / measured as f64;
        // The byte tokenizer or another one: a prompt has as many tokens as it has, whichever of them ran.
        let told = run["results"]["prompt_tokens"].as_f64().unwrap();
        assert!((each / told - 1.0).abs() < 0.1, "{each} tokens a prompt, {told} of the first: {sharing:#}");
    }
}

#[test]
fn a_model_that_checks_no_tokens_is_refused_before_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    for model in [&["--engine", "candle"][..], &["--model", "config:minilm"], &["--model", "config:t5-small"]] {
        // A single token looks nothing up.
        let args = ["profile", "--no-progress", "--speculate", "4", "--max-new-tokens", "1", "--prompt-tokens", "9"];
        let err = fails(&[&args[..], model, &["--out", out.to_str().unwrap()]].concat());
        assert!(err.contains("leave --speculate out"), "{model:?}: {err}");
    }
}
