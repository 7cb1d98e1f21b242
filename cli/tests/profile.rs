//! The main job, end to end: profile, report, export, read by other tools.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;
use std::process::Command;

fn profile(out: &Path, more: &[&str]) -> serde_json::Value {
    let mut args = vec!["profile", "--out", out.to_str().unwrap(), "--json"];
    args.extend(more);
    json(&ok(&args))
}

#[test]
fn embedded_model_from_prompt_to_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let result =
        profile(&run, &["--max-new-tokens", "12", "--repeats", "2", "--ignore-eos", "--queue-records", "300000"]);
    let m = manifest(&run);
    assert_eq!(m["complete"], true);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!(m["loss"]["emitted"], m["counts"]["spans"]);
    // Warm-up and two requests, each a prefill and eleven decodes.
    assert_eq!(m["counts"]["requests"], 3);
    assert_eq!(m["counts"]["steps"], 3 * 12);
    assert_eq!(m["model"]["architecture"], "llama");
    assert_eq!(m["options"]["queue_records"], 300_000);
    // A command that generates has more room than a program that serves.
    assert_eq!(m["options"]["ring_capacity"], 262_144);
    assert!(!result["text"][0].as_str().unwrap().is_empty());
    for file in ["report.html", "report.md", "operators.md", "metrics.json"] {
        assert!(run.join(file).metadata().unwrap().len() > 100, "{file}");
    }
    let html = std::fs::read_to_string(run.join("report.html")).unwrap();
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(outside), "the report must be self-contained, but has {outside}");
    }
    // The prompt itself is nowhere in the run.
    assert!(!std::fs::read_to_string(run.join("run.json")).unwrap().contains("lighthouse"));

    let text = ok(&["report", run.to_str().unwrap()]);
    for word in ["time to first token", "time per output token", "inter-token latency", "decode", "verdict"] {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "{word} is not in\n{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_text_and_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--max-new-tokens", "8", "--repeats", "1", "--temperature", "0.8", "--seed", "7"];
    let runs: Vec<_> = (0..2).map(|i| profile(&dir.path().join(i.to_string()), &args)).collect();
    assert_eq!(runs[0]["text"], runs[1]["text"]);
    let counts: Vec<_> = (0..2).map(|i| manifest(&dir.path().join(i.to_string()))["counts"]["spans"].clone()).collect();
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn timelines() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    profile(&run, &["--max-new-tokens", "4", "--repeats", "1"]);
    let run_arg = run.to_str().unwrap();
    let chrome = json(&ok(&["export", "chrome", run_arg, "--json"]));
    let file = chrome["file"].as_str().unwrap();
    let trace = json(&std::fs::read_to_string(file).unwrap());
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").count() as u64;
    assert!(slices >= manifest(&run)["counts"]["spans"].as_u64().unwrap());
    let out = dir.path().join("t.pftrace");
    ok(&["export", "perfetto", run_arg, "--out", out.to_str().unwrap()]);
    assert!(out.metadata().unwrap().len() > 1000);
    if let Some(python) = require(&PYTHON) {
        let output = Command::new(python)
            .arg(Path::new(ROOT).join("tests/python/check_perfetto.py"))
            .arg(&out)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn duckdb_and_polars_agree_with_the_manifest() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    profile(&run, &["--max-new-tokens", "16", "--repeats", "2"]);
    let output =
        Command::new(python).arg(Path::new(ROOT).join("tests/python/check_run.py")).arg(&run).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Every figure of metrics.json that can be computed in SQL, computed again by DuckDB from the tables alone.
#[test]
fn the_reports_figures_are_those_of_sql() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    for (name, args) in [
        ("plain", &["--max-new-tokens", "24", "--repeats", "12", "--warmup", "2"][..]),
        ("batch", &["--max-new-tokens", "8", "--repeats", "3", "--warmup", "1", "--batch", "3"][..]),
    ] {
        let run = dir.path().join(name);
        profile(&run, args);
        let output =
            Command::new(&python).arg(Path::new(ROOT).join("tests/python/sql_truth.py")).arg(&run).output().unwrap();
        assert!(output.status.success(), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn overhead_is_measured_in_place_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let text = ok(&[
        "profile",
        "--model",
        "embedded",
        "--overhead-probe",
        "5",
        "--max-new-tokens",
        "100",
        "--out",
        run.to_str().unwrap(),
    ]);
    let m = manifest(&run);
    let in_place = &m["overhead"]["in_place"];
    assert!(in_place["n_plain"].as_u64().unwrap() >= 50 && in_place["ratio"].is_number(), "{in_place}");
    assert_eq!(m["steps"]["left_plain"], in_place["left_plain"]);
    assert!(text.contains("measured in place"), "{text}");
    assert!(
        fails(&["profile", "--overhead-probe", "1", "--out", "/nonexistent/x"]).contains("a number of steps from 2")
    );
}

#[test]
fn real_model_every_engine() {
    let Some(model) = require(&SMOLLM2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let model = model.to_str().unwrap();
    let args = [
        "--model",
        model,
        "--max-new-tokens",
        "12",
        "--repeats",
        "1",
        "--warmup",
        "0",
        "--prompt",
        "The capital of France is",
    ];
    let mut texts = Vec::new();
    for (engine, spans_per_token) in [("instrumented", None), ("candle", Some(394))] {
        let run = dir.path().join(engine);
        let mut args = args.to_vec();
        args.extend(["--engine", engine]);
        let result = profile(&run, &args);
        let m = manifest(&run);
        assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
        assert_eq!(m["counts"]["steps"], 12);
        texts.push(result["text"][0].as_str().unwrap().to_string());
        if let Some(n) = spans_per_token {
            // Each token: the model's own spans, its step and the sampling inside; and one entry of the request.
            assert_eq!(m["counts"]["spans"].as_u64().unwrap(), 12 * (n + 2) + 1);
        }
    }
    assert_eq!(texts[0], texts[1], "our layers compute what candle's do");
    assert!(texts[0].contains("Paris"), "{}", texts[0]);
}

#[test]
fn a_configuration_file_and_set() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    std::fs::write(&file, "max-new-tokens = 3\nrepeats = 9\nwarmup = 0\nprompt-tokens = 20\nignore-eos = true\n")
        .unwrap();
    let run = dir.path().join("run");
    profile(&run, &["--config", file.to_str().unwrap(), "--set", "repeats=2"]);
    let m = manifest(&run);
    assert_eq!(m["counts"]["steps"], 6);
    assert_eq!(m["options"]["repeats"], 2);
    assert_eq!(m["results"]["prompt_tokens"], 20);
}

#[test]
fn help_shows_how_to_begin() {
    let help = ok(&["profile", "--help"]);
    assert!(help.contains("candlescope profile --model embedded") && help.contains(".gguf"), "{help}");
}

#[test]
fn doctor_says_what_is_there() {
    let text = ok(&["doctor"]);
    assert!(text.contains("cost of an interval") && text.contains("NVIDIA driver"), "{text}");
    for told in ["Processors and memory", "threads", "memory", "other users", "exporters", "RAPL", "peaks of the CPU"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    for told in ["model hub", "ONNX Runtime"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains(" found. Whatever"), "{text}");
    let checks = json(&ok(&["doctor", "--json"]));
    let checks = checks["checks"].as_array().unwrap();
    let named = |name: &str| checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name}: {checks:?}"));
    assert_eq!(named("clock")["group"], "recording");
    // Where there is no GPU, one line says so, and nothing is wrong with that.
    if named("NVIDIA driver")["ok"] == false && named("CUDA devices")["ok"] == false {
        assert!(text.contains("none: no NVIDIA driver is loaded") && !text.contains("libcu"), "{text}");
        let of_gpu = checks.iter().filter(|c| c["group"] == "gpu");
        assert!(of_gpu.clone().count() >= 6 && of_gpu.clone().all(|c| c["ok"] == true || c["optional"] == true));
    }
}

/// A library is code: where it is said to be depends on what is named or activated, never on the working directory.
#[cfg(feature = "onnx")]
#[test]
fn doctor_finds_onnx_runtime_where_it_is_activated_only() {
    let dir = tempfile::tempdir().unwrap();
    let capi = dir.path().join("lib/python3.13/site-packages/onnxruntime/capi");
    std::fs::create_dir_all(&capi).unwrap();
    std::fs::write(capi.join("libonnxruntime.so.1.22.0"), "").unwrap();
    let found = |variable: Option<(&str, &str)>| {
        let mut command = candlescope();
        command.args(["doctor", "--json"]).current_dir(dir.path());
        for name in ["ORT_DYLIB_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"] {
            command.env_remove(name);
        }
        command.envs(variable);
        let checks = json(&text(&command.output().unwrap().stdout));
        let checks = checks["checks"].as_array().unwrap().clone();
        let check = checks.into_iter().find(|c| c["name"] == "ONNX Runtime").unwrap();
        (check["ok"] == true, check["found"].as_str().unwrap().to_string())
    };
    let here = dir.path().to_str().unwrap();
    let (ok, said) = found(Some(("VIRTUAL_ENV", here)));
    assert!(ok && said.contains("libonnxruntime.so.1.22.0 (the activated Python environment)"), "{said}");
    assert!(!found(Some(("VIRTUAL_ENV", "."))).0 && !found(None).0);
    let (ok, said) = found(Some(("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so")));
    assert!(!ok && said.contains("where no file is"), "{said}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let child = candlescope()
        .args(["profile", "--out", run.to_str().unwrap(), "--repeats", "100000", "--max-new-tokens", "32"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(|| run.join("spans").is_dir(), "the run has begun");
    // In the middle of the work, not at its first interval.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ended = child.wait_with_output().unwrap();
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains(&format!("Run: {0}   Report: candlescope report {0}", run.display())), "{told}");
    // The run was closed as the process exited, and says why it ended; everything up to the interrupt can be read.
    let metrics = json(&ok(&["report", run.to_str().unwrap(), "--json"]));
    assert_eq!(manifest(&run)["complete"], true);
    assert!(metrics.to_string().contains("the program was interrupted"), "{metrics}");
    let shown = ok(&["report", run.to_str().unwrap()]);
    let busy = shown.contains("the machine was busy");
    assert!(
        busy || shown
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("trusted up to where the program was ended"),
        "{shown}"
    );
    let findings = manifest(&run)["verdict"]["findings"].clone();
    let is = |code: &str| findings.as_array().unwrap().iter().any(|f| f["code"] == code);
    assert!(is("interrupted") && !is("program_failed"), "whoever interrupts made no error: {findings}");
    assert_eq!(manifest(&run)["model"]["name"], "embedded", "what is known of the run is in run.json while it goes on");
}
