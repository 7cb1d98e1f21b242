//! `roofline`: predictions without a run, runs against their roofs, and what it says where it cannot.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::fs;

#[test]
fn a_prediction_for_a_well_known_model() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/folder");
    let model = "meta-llama/Llama-2-7b-hf";
    let text =
        ok(&["roofline", model, "--gpu", "H100-SXM", "--slo", "ttft=1s,tpot=20ms", "--out", out.to_str().unwrap()]);
    for shown in
        ["6,738,415,616 parameters", "not measured here", "recommended batch: ", "Assumptions", "roofline.html"]
    {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let written = json(&fs::read_to_string(out.join("static_analysis.json")).unwrap());
    assert_eq!(written["parameters"], 6_738_415_616u64);
    assert!(fs::read_to_string(out.join("roofline.html")).unwrap().contains("llama-2-7b on H100-SXM"));
    let printed = json(&ok(&["roofline", model, "--gpu", "H100-SXM", "--slo", "ttft=1s,tpot=20ms", "--json"]));
    assert_eq!(printed, written);
    // More sequences, longer contexts and narrower weights change what they should.
    let ns = |more: &[&str]| {
        let all = [&["roofline", model, "--gpu", "H100-SXM", "--json"][..], more].concat();
        json(&ok(&all))["decode"]["device_ns"].as_f64().unwrap()
    };
    assert!(ns(&["--batch", "64"]) > ns(&[]) && ns(&["--context", "4000"]) > ns(&[]));
    assert!(ns(&["--dtype", "q4_k"]) < ns(&[]) && ns(&["--tp", "2"]) < ns(&[]));
}

#[test]
fn a_config_file_and_peaks_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let text = r#"{"model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": true}"#;
    fs::write(&config, text).unwrap();
    let peaks = dir.path().join("peaks.json");
    fs::write(&peaks, r#"{"device": "my board", "flops": {"f32": 1e12}, "bandwidth": 5e10}"#).unwrap();
    let args = ["roofline", config.to_str().unwrap(), "--peaks", peaks.to_str().unwrap(), "--dtype", "f32", "--json"];
    let told = json(&ok(&args));
    assert_eq!(told["parameters"], 134_515_008);
    assert_eq!(
        (told["device"]["origin"].as_str(), told["device"]["name"].as_str()),
        (Some("measured"), Some("my board"))
    );
    // The directory of a model will do.
    let by_directory = json(&ok(&[&["roofline", dir.path().to_str().unwrap()], &args[2..]].concat()));
    assert_eq!(by_directory["decode"], told["decode"]);

    fs::write(&config, text.replace("vocab_size", "words")).unwrap();
    let message = fails(&args);
    assert!(message.contains("config.json") && message.contains("`vocab_size`"), "{message}");
    fs::write(&config, text).unwrap();
    fs::write(&peaks, r#"{"flops": {"f32": 1e12}}"#).unwrap();
    let message = fails(&args);
    assert!(message.contains("peaks.json") && message.contains("`bandwidth`"), "{message}");
}

#[test]
fn a_run_against_its_roofs() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    ok(&["profile", "--out", run, "--max-new-tokens", "8", "--repeats", "2", "--warmup", "1"]);
    // No peaks: nothing is guessed.
    let bare = json(&ok(&["roofline", run, "--json"]));
    let points = bare["runs"][0]["points"].as_array().unwrap();
    assert!(points.len() > 10 && points.iter().all(|point| point["under"].as_array().unwrap().is_empty()), "{bare}");
    assert!(bare["runs"][0]["outlook_missing"].as_str().unwrap().contains("--gpu"));
    // Roofs that no machine reaches: every point is below them, and the embedded model is predicted.
    let peaks = dir.path().join("peaks.json");
    fs::write(&peaks, r#"{"name": "a test", "kind": "cpu", "flops": {"f32": 1e15}, "bandwidth": 1e15}"#).unwrap();
    let args = ["roofline", run, "--peaks", peaks.to_str().unwrap()];
    let text = ok(&[&args[..], &["--rate", "ttft=100000,200000"]].concat());
    for shown in [
        "Bottleneck",
        "Ratings",
        "good",
        "Measured against predicted",
        "time per output token",
        "dynamic_analysis.json",
    ] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let told = json(&fs::read_to_string(dir.path().join("run/dynamic_analysis.json")).unwrap());
    let points = told["runs"][0]["points"].as_array().unwrap();
    let operators: Vec<_> = points.iter().filter(|p| p["name"].as_str().unwrap().ends_with("down_proj")).collect();
    assert_eq!(operators.len(), 2, "prefill and decode");
    for point in operators {
        assert_eq!(point["under"][0]["status"], "ok", "{point}");
        let share = point["under"][0]["utilisation"].as_f64().unwrap();
        assert!(share > 0.0 && share < 1.0 && point["predicted_ns"].as_f64().unwrap() > 0.0, "{point}");
    }
    assert_eq!(told["runs"][0]["layers"][0]["rows"].as_array().unwrap().len(), 4, "layers of the embedded model");
    let predicted = json(&fs::read_to_string(dir.path().join("run/static_analysis.json")).unwrap());
    assert_eq!(predicted["model"]["layers"], 4);
    // Roofs that every machine exceeds: nothing is clipped.
    fs::write(&peaks, r#"{"name": "a test", "kind": "cpu", "flops": {"f32": 1}, "bandwidth": 1}"#).unwrap();
    let told = json(&ok(&[&args[..], &["--json"]].concat()));
    let invalid = told["runs"][0]["points"].as_array().unwrap().iter().filter(|p| p["under"][0]["status"] == "invalid");
    assert!(invalid.count() > 5, "{told}");
    let message = fails(&[&args[..], &["--batch", "4"]].concat());
    assert!(message.contains("--batch") && message.contains("says itself"), "{message}");
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let says = |args: &[&str], parts: &[&str]| {
        let message = fails(&[&["roofline"], args].concat());
        assert!(parts.iter().all(|part| message.contains(part)), "{args:?}: {message}");
    };
    says(&["llama-3-8b"], &["--gpu", "--peaks"]);
    says(&["lama-3-8b", "--gpu", "H200"], &["lama-3-8b", "did you mean `llama-3-8b`"]);
    says(&["llama-3-8b", "--gpu", "H20O"], &["H20O", "H200-SXM"]);
    says(&["llama-3-8b", "--gpu", "H200", "--dtype", "int3"], &["int3", "q4_k"]);
    says(&["llama-3-8b", "--gpu", "H200", "--slo", "fast"], &["--slo", "ttft=TIME"]);
    says(&["llama-3-8b", "--gpu", "H200", "--batch", "0"], &["--batch"]);
    says(&["llama-3-8b", "gpt2", "--gpu", "H200"], &["one model at a time"]);
    says(&["llama-3-8b", "--peaks", "/nowhere.json"], &["/nowhere.json"]);
    says(&["/nowhere/config.json", "--gpu", "H200"], &["/nowhere/config.json"]);
    let dir = tempfile::tempdir().unwrap();
    says(&[dir.path().to_str().unwrap()], &["holds no run"]);
    // The FLOP/s of this one are not published: no figure, and no failure either.
    let text = ok(&["roofline", "llama-3.2-1b", "--gpu", "M4", "--memory-gb", "16"]);
    assert!(text.contains("no FLOP/s for bf16"), "{text}");
}

/// Two stages of a load test: a client alone, and eight.
const LOAD: &str = r#"{ "schema_version": 1, "candlescope": "0.1.0",
    "target": { "url": "http://server", "model": "meta-llama/Llama-3.1-8B-Instruct", "streams": true },
    "stages": [
        { "level": { "kind": "concurrency", "value": 1 }, "figures": { "in_flight": 0.98, "output_tokens_per_s": 120.5,
            "ttft_ns": { "n": 30, "median": 6e7, "p95": 9e7 }, "tpot_ns": { "n": 30, "median": 8e6, "p95": null },
            "prompt_tokens": { "n": 30, "median": 128 }, "output_tokens": { "n": 30, "median": 64 } } },
        { "level": { "kind": "concurrency", "value": 8 }, "figures": { "in_flight": 7.9, "output_tokens_per_s": 800,
            "ttft_ns": { "n": 200, "median": 2e8, "p95": 3e8 }, "tpot_ns": { "n": 200, "median": 9e6, "p95": 1e7 },
            "prompt_tokens": null, "output_tokens": { "n": 30, "median": 64 } } },
        { "level": { "kind": "rate", "value": 2.5 }, "figures": null } ],
    "requests": [ { "id": 1, "tokens_ns": [1, 2, 3] } ] }"#;

#[test]
fn a_load_test_against_its_prediction() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("load_test_results.json");
    fs::write(&file, LOAD).unwrap();
    let results = file.to_str().unwrap();
    let text = ok(&["roofline", results, "--gpu", "H200", "--rate", "ttft=50,70"]);
    for shown in ["1 client", "8 clients", "fair", "8 clients: no prediction", "dynamic_analysis.json"] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let told = json(&fs::read_to_string(dir.path().join("dynamic_analysis.json")).unwrap());
    let alone = &told["load"][0];
    let predicted =
        json(&ok(&["roofline", "llama-3.1-8b", "--gpu", "H200", "--prompt", "128", "--output", "64", "--json"]));
    assert_eq!(alone["tpot"]["predicted_ns"], predicted["decode"]["ns"], "as of the model alone");
    let error = predicted["decode"]["ns"]["mid"].as_f64().unwrap() / 8e6 - 1.0;
    assert!((alone["tpot"]["error"].as_f64().unwrap() - error).abs() < 1e-12);
    assert_eq!(told["load"].as_array().map(Vec::len), Some(2), "the stage without figures is left out");
    assert!(told["load"][1]["tpot"]["predicted_ns"].is_null() && told["load"][1]["tpot"]["median_ns"] == 9e6);
    assert!(fs::read_to_string(dir.path().join("roofline.html")).unwrap().contains("under load"));

    let says = |args: &[&str], part: &str| {
        let message = fails(&[&["roofline", results], args].concat());
        assert!(message.contains(part), "{args:?}: {message}");
    };
    says(&[], "--gpu");
    says(&["--gpu", "H200", "--batch", "8"], "--batch cannot be given here");
    fs::write(&file, LOAD.replace("meta-llama/Llama-3.1-8B-Instruct", "my-fine-tune-of-something-else")).unwrap();
    says(&["--gpu", "H200"], "RESULTS MODEL");
    ok(&["roofline", results, "llama-3-8b", "--gpu", "H200", "--out", dir.path().join("b").to_str().unwrap()]);
    fs::write(&file, LOAD.replace("\"schema_version\": 1", "\"schema_version\": 9")).unwrap();
    says(&["llama-3-8b", "--gpu", "H200"], "schema version 9");
    fs::write(&file, "{}").unwrap();
    says(&["llama-3-8b", "--gpu", "H200"], "not the result of a load test");
}

#[test]
fn runs_calibrate_the_machine_that_they_ran_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let runs = [("a", "8"), ("b", "100"), ("c", "400")].map(|(name, prompt)| {
        let (out, tokens) = (path(name), ["--max-new-tokens", "6", "--repeats", "2", "--warmup", "1"]);
        ok(&[&["profile", "--out", &out, "--prompt-tokens", prompt, "--ignore-eos"][..], &tokens].concat());
        out
    });
    let [a, b, c] = &runs;
    let peaks = path("peaks");
    let text = ok(&["roofline", "--calibrate", a, b, c, "--out", &peaks]);
    assert!(text.contains("bandwidth") && text.contains("Left out, one at a time"), "{text}");
    let file = path("peaks/calibrated-peaks.json");
    let written = json(&fs::read_to_string(&file).unwrap());
    let held_out = written["held_out"].as_array().unwrap();
    let without = held_out.iter().filter(|held| held["left_out"] == "case").count();
    assert_eq!(without, 6, "first token and output token of three runs");
    assert!(
        fs::read_to_string(path("peaks/calibration.md")).unwrap().contains("| time per output token | the case | 3 |")
    );
    // The file is what the next prediction takes; what noisy runs left undetermined is a datasheet's.
    let told = json(&ok(&["roofline", b, "--gpu", "EPYC-9654", "--peaks", &file, "--json"]));
    assert!(told["runs"][0]["comparisons"].as_array().is_some_and(|all| all.len() == 2), "{told}");
    ok(&["roofline", "gpt2", "--gpu", "EPYC-9654", "--calibration", &file]);
    let message = fails(&["roofline", "--calibrate", a, "--gpu", "H200"]);
    assert!(message.contains("leave out --gpu"), "{message}");
    let message = fails(&["roofline", "--calibrate", a, b, "--out", &path("few")]);
    assert!(message.contains("2 cases") && !std::path::Path::new(&path("few")).exists(), "{message}");
    let message = fails(&["roofline", "--calibrate", a, b, &path("nowhere")]);
    assert!(message.contains("nowhere"), "{message}");
}

#[test]
fn measured_kernels_beside_the_roofs() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (study, run, peaks) = (path("study"), path("run"), path("peaks.json"));
    let sizes = "m=1;n=128;k=128;rows=1;width=128";
    ok(&[
        "bench",
        "kernels",
        "--ops",
        "linear,rmsnorm",
        "--sizes",
        sizes,
        "--runs",
        "2",
        "--out",
        &study,
        "--no-progress",
    ]);
    ok(&["profile", "--out", &run, "--max-new-tokens", "4", "--repeats", "1", "--warmup", "0"]);
    fs::write(&peaks, r#"{"name": "a test", "kind": "cpu", "flops": {"f32": 1e11}, "bandwidth": 1e10}"#).unwrap();
    let args = ["roofline", &run, "--peaks", &peaks, "--kernels", &study];
    let told = json(&ok(&[&args[..], &["--json"]].concat()));
    // Most shapes were not measured: no time from kernels, and no guess. The roofline's stands.
    let comparisons = told["runs"][0]["comparisons"].as_array().unwrap();
    let tpot = comparisons.iter().find(|c| c["code"] == "tpot").unwrap();
    assert!(tpot["error"].is_number() && tpot.get("from_kernels_ns").is_none(), "{tpot}");
    let text = ok(&args);
    let command = one_command(&text);
    assert_eq!(command, ["bench", "kernels", "--for", run.as_str()], "{text}");
    let predicted = json(&fs::read_to_string(path("run/static_analysis.json")).unwrap());
    let operations = predicted["from_kernels"]["decode"]["operations"].as_array().unwrap();
    let from = |name: &str| operations.iter().find(|o| o["operation"] == name).unwrap()["from"].clone();
    assert_eq!(
        (from("q_proj"), from("norm"), from("gate_proj")),
        ("measured".into(), "measured".into(), "missing".into())
    );

    let says = |args: &[&str], part: &str| {
        let message = fails(&[&["roofline"], args].concat());
        assert!(message.contains(part), "{args:?}: {message}");
    };
    says(&["gpt2", "--gpu", "H200", "--kernels", &path("nowhere")], "bench kernels --out");
    says(&["gpt2", "--gpu", "H200", "--kernels", &peaks], "no table of kernels");
    // What is missing is measured by that command, in one more study.
    let second = path("second");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    ok(&[&command[..], &["--runs", "1", "--warm", "--no-progress", "--out", &second]].concat());
    let told = json(&ok(&[&args[..], &["--kernels", &second, "--json"]].concat()));
    let comparisons = told["runs"][0]["comparisons"].as_array().unwrap();
    assert!(comparisons.iter().all(|c| c["from_kernels_ns"].is_number()), "{comparisons:?}");
    let predicted = json(&fs::read_to_string(path("run/static_analysis.json")).unwrap());
    assert_eq!(predicted["from_kernels"]["to_measure"], serde_json::json!([]));
    // The study's own device is a processor that no table has.
    says(&["gpt2", "--kernels", &study], "--peaks FILE");
    says(&["--calibrate", &run, "--kernels", &study], "leave out --kernels");
}

/// The one command that a text names for what kernels lack, as a shell would pass it.
fn one_command(text: &str) -> Vec<String> {
    // A terminal's lines may be broken at spaces.
    let after = text.split("candlescope bench kernels ").nth(1).unwrap_or_else(|| panic!("no command: {text}"));
    assert!(!after.contains("candlescope bench kernels"), "one command: {text}");
    let words = after.lines().take_while(|line| !line.trim().is_empty()).flat_map(str::split_whitespace);
    let words = words.take_while(|word| !word.starts_with("wrote")).map(str::to_string);
    ["bench", "kernels"].map(str::to_string).into_iter().chain(words).collect()
}

#[test]
fn the_kernels_of_a_model_are_measured_by_one_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (few, rest, peaks, config) = (path("few"), path("rest"), path("peaks.json"), path("config.json"));
    fs::write(&peaks, r#"{"name": "a test", "kind": "cpu", "flops": {"f32": 1e11}, "bandwidth": 1e10}"#).unwrap();
    let model = serde_json::json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    });
    fs::write(&config, model.to_string()).unwrap();
    let measure = ["--runs", "1", "--warm", "--no-progress"];
    ok(&[&["bench", "kernels", "--ops", "add", "--sizes", "rows=1;width=64", "--out", &few], &measure[..]].concat());
    let asked = ["--peaks", &peaks, "--batch", "2", "--prompt", "6", "--context", "9", "--kernels", &few];
    let text = ok(&[&["roofline", &config], &asked[..]].concat());
    let command = one_command(&text);
    let words = ["--for", &config, "--batch", "2", "--prompt", "6", "--context", "9", "--dtype", "f32"];
    assert_eq!(command[2..], words, "{text}");
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let shown = ok(&[&command[..], &measure, &["--out", &rest]].concat());
    assert!(shown.contains("linear f32 m=12 n=64 k=64: "), "a product of the prompts' step: {shown}");
    let told = json(&ok(&[&["roofline", &config], &asked[..], &["--kernels", &rest, "--json"]].concat()));
    let found = &told["from_kernels"];
    assert_eq!(
        (found["to_measure"].as_array().map(Vec::len), &found["measure_all"]),
        (Some(0), &serde_json::Value::Null)
    );
    for step in ["prefill", "decode"] {
        assert!(found[step]["ns"].is_object() || found[step]["ns"].is_number(), "{step}: {}", found[step]["ns"]);
    }
    let says = |args: &[&str], part: &str| {
        let message = fails(&[&["bench", "kernels"], args].concat());
        assert!(message.contains(part), "{args:?}: {message}");
    };
    says(&["--for", &config, "--ops", "add"], "--ops");
    says(&["--batch", "2"], "--for");
    says(&["--for", "nosuchmodel-7b"], "nosuchmodel-7b");
    // The name by which other commands know the model that is built in.
    let of = |name: &str| json(&ok(&["roofline", name, "--gpu", "H100-SXM", "--json"]))["parameters"].clone();
    assert!(of("embedded").as_u64() > Some(0) && of("embedded") == of("config:embedded"));
    says(&["--for", &config, "--dtype", "f32,bf16"], "one format");
}
