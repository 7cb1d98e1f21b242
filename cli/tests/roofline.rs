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
    assert!(message.contains("--batch") && message.contains("leave it out"), "{message}");
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
    let results = dir.path().join("load_test_results.json");
    fs::write(&results, "{}").unwrap();
    says(&[results.to_str().unwrap()], &["load test", "config.json"]);
    // The FLOP/s of this one are not published: no figure, and no failure either.
    let text = ok(&["roofline", "llama-3.2-1b", "--gpu", "M4", "--memory-gb", "16"]);
    assert!(text.contains("no FLOP/s for bf16"), "{text}");
}
