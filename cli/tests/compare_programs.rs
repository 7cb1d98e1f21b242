//! Two programs side by side: candle and PyTorch on the same model, as they were recorded on a GPU.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn program(name: &str) -> PathBuf {
    Path::new(ROOT).join("cli/tests/recorded/programs").join(name)
}

fn compared(a: &Path, b: &Path, options: &[&str]) -> std::process::Output {
    let paths = [a.to_str().unwrap(), b.to_str().unwrap()];
    candlescope().args([&["compare"], &paths[..], options].concat()).output().unwrap()
}

/// Kernels of a decoding step, by SQL.
fn kernels(run: &Path) -> f64 {
    let sql = "SELECT count(*) / count(DISTINCT k.step) AS n FROM kernels k JOIN steps s ON k.step = s.step \
               WHERE k.kind = 'kernel' AND s.phase = 'decode'";
    let found = json(&ok(&["query", sql, run.to_str().unwrap(), "--json"]));
    found["rows"][0]["n"].as_f64().unwrap()
}

#[test]
fn the_same_model_in_two_programs() {
    let (candle, torch) = (program("candle"), program("torch"));
    let output = compared(&candle, &torch, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found = json(&text(&output.stdout));
    assert_eq!(found["kinds"], serde_json::json!(["decode", "decode"]));
    let decode = |side: &str| {
        let steps = found[side]["steps"].as_array().unwrap();
        steps.iter().find(|steps| steps["kind"] == "decode").unwrap().clone()
    };
    let (a, b) = (decode("a"), decode("b"));
    for (run, steps) in [(&candle, &a), (&torch, &b)] {
        let counted = steps["counts"]["kernels"].as_f64().unwrap();
        assert!((counted - kernels(run)).abs() < 1.0, "{counted} and {}", kernels(run));
        // All of them by what they compute.
        let classes = steps["classes"].as_object().unwrap();
        let sum: f64 = classes.values().map(|class| class["kernels"].as_f64().unwrap()).sum();
        let copies = steps["counts"]["copies"].as_f64().unwrap() + steps["counts"]["memsets"].as_f64().unwrap();
        assert!((sum - counted - copies).abs() < 0.01, "{sum} of {counted} and {copies}");
        let unknown = classes.get("other").map_or(0.0, |class| class["ns"].as_f64().unwrap());
        let all: f64 = classes.values().map(|class| class["ns"].as_f64().unwrap()).sum();
        assert!(unknown < 0.02 * all, "{classes:#?}");
        assert!(steps["graph"]["mid"].as_f64().unwrap() * 1e9 < steps["host_ns"]["value"].as_f64().unwrap());
        assert_eq!(steps["work"]["tokens"], 1.0);
    }
    // PyTorch launches more and takes longer, which both runs show; it multiplies the same matrices.
    assert!(b["counts"]["kernels"].as_f64() > a["counts"]["kernels"].as_f64());
    assert_eq!(found["b"]["program"], "python3.12");
    assert_eq!(found["unknown"], serde_json::json!([]));
    assert_eq!(found["differences"], serde_json::json!([]));
}

#[test]
fn it_ends_in_a_sentence_and_makes_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("programs.html");
    let (candle, torch) = (program("candle"), program("torch"));
    let output = compared(&candle, &torch, &["--html", page.to_str().unwrap()]);
    let said = text(&output.stdout);
    for part in [
        "andle: 695 kernels a step",
        "torch: ",
        "As CUDA graphs",
        "torch takes",
        "matrix products",
        "nothing: one run of each",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("torch takes") && page.contains("matrix products"));
}

/// A copy of a run with other facts.
fn changed(run: &Path, to: &Path, change: impl Fn(&mut Value)) {
    copy(run, to);
    let file = to.join("run.json");
    let mut manifest = json(&std::fs::read_to_string(&file).unwrap());
    change(&mut manifest);
    std::fs::write(file, manifest.to_string()).unwrap();
}

#[test]
fn another_model_is_refused_another_format_has_to_be_allowed_and_what_nobody_knows_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (candle, torch) = (program("candle"), program("torch"));
    let other = dir.path().join("larger");
    changed(&torch, &other, |manifest| manifest["model"]["layers"] = 32.into());
    let output = compared(&candle, &other, &["--allow", "all"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("model layers is 30 in A, and 32 in B"), "{}", text(&output.stderr));

    let other = dir.path().join("f32");
    changed(&torch, &other, |manifest| manifest["model"]["dtype"] = "f32".into());
    let output = compared(&candle, &other, &[]);
    assert!(text(&output.stderr).contains("--allow dtype"), "{}", text(&output.stderr));
    let output = compared(&candle, &other, &["--allow", "dtype"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("as allowed"), "{}", text(&output.stdout));

    let other = dir.path().join("unknown");
    changed(&torch, &other, |manifest| manifest["model"] = serde_json::json!({}));
    let said = text(&compared(&candle, &other, &[]).stdout);
    assert!(said.contains("Not known on both sides") && said.contains("--model-config"), "{said}");
}

/// Programs of one kind are judged as ever, unless that is what somebody wants.
#[test]
fn two_runs_of_one_program_are_put_side_by_side_on_demand_only() {
    let candle = program("candle");
    let judged = text(&compared(&candle, &candle, &[]).stdout);
    assert!(judged.contains("A/A floor"), "{judged}");
    let beside = text(&compared(&candle, &candle, &["--programs"]).stdout);
    assert!(beside.contains("nothing: one run of each"), "{beside}");
    let output = compared(Path::new(ROOT).join("cli/tests/recorded/gpu").as_path(), &candle, &["--programs"]);
    assert!(text(&output.stderr).contains("give one run of each"), "{}", text(&output.stderr));
}
