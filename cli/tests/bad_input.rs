//! Bad input: every message names the thing and the remedy, and nothing already recorded is lost.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;

/// Runs `profile` into a fresh directory and returns the complaint. The run's directory must not be left behind.
fn profile_fails(dir: &Path, args: &[&str]) -> String {
    let out = dir.join("run");
    let mut all =
        vec!["profile", "--out", out.to_str().unwrap(), "--max-new-tokens", "2", "--repeats", "1", "--warmup", "0"];
    all.extend(args);
    let message = fails(&all);
    assert!(!out.exists(), "a run that recorded nothing is left in the way");
    message
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn models_that_are_not_there_or_not_right() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    assert_says(&profile_fails(d, &["--model", "nowhere.gguf"]), &["nowhere.gguf", "no such file"]);
    assert_says(&profile_fails(d, &["--model", "config:smolm2-135m"]), &["smolm2-135m", "smollm2-135m"]);
    assert_says(&profile_fails(d, &["--model", "config:gpt-5"]), &["gpt-5", "llama-3-8b"]);

    let text = d.join("notes.gguf");
    std::fs::write(&text, "this is no model at all, whatever its name says").unwrap();
    assert_says(&profile_fails(d, &["--model", text.to_str().unwrap()]), &["notes.gguf", "GGUF"]);

    let empty = d.join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_says(&profile_fails(d, &["--model", empty.to_str().unwrap()]), &["config.json"]);
}

#[test]
fn a_model_made_to_harm_leaves_no_run() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.gguf");
    let key = b"general.alignment";
    let entry = [&(key.len() as u64).to_le_bytes()[..], key, &4u32.to_le_bytes(), &0u32.to_le_bytes()].concat();
    let counts = [0u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
    std::fs::write(&model, [&b"GGUF\x03\0\0\0"[..], &counts, &entry].concat()).unwrap();
    let message = profile_fails(dir.path(), &["--model", model.to_str().unwrap()]);
    assert_says(&message, &["model.gguf", "`general.alignment` is 0", "power of two"]);
    assert_said_once(&message);
}

/// Asserts that the complaint is one line, and that no part of it, between colons or semicolons, comes twice.
#[track_caller]
fn assert_said_once(message: &str) {
    let lines: Vec<&str> = message.trim_end().lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("error: "), "not one line of error: {message}");
    let mut parts: Vec<&str> = lines[0].split([':', ';']).map(str::trim).filter(|p| p.contains(' ')).collect();
    let all = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert_eq!(parts.len(), all, "a part is repeated: {message}");
}

#[test]
fn errors_are_one_line_and_say_each_cause_once() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    // candle's own error, which carries a backtrace.
    let header = d.join("header.gguf");
    std::fs::write(&header, b"GGUF\x63\0\0\0 and so on and so on").unwrap();
    let message = profile_fails(d, &["--model", header.to_str().unwrap()]);
    assert_says(&message, &["header.gguf", "99"]);
    assert_said_once(&message);
    // An error within an error.
    let model = d.join("model");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join("config.json"), r#"{"model_type": "rwkv"}"#).unwrap();
    let message = profile_fails(d, &["--model", model.to_str().unwrap()]);
    assert_says(&message, &["config.json", "`rwkv` is not supported"]);
    assert_said_once(&message);
    assert_said_once(&profile_fails(d, &["--prompt-tokens", "100000"]));
    assert_said_once(&profile_fails(d, &["--perfetto", "/nonexistent/x"]));
}

#[test]
fn candles_own_quantised_model_with_a_batch_of_prompts() {
    let Some(model) = require(&SMOLLM2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let args = ["--model", model.to_str().unwrap(), "--engine", "candle", "--batch", "2"];
    let message = profile_fails(dir.path(), &args);
    assert_says(&message, &["batch of 2 prompts", "instrumented model"]);
    assert_said_once(&message);
}

#[test]
fn a_truncated_gguf() {
    let Some(model) = require(&SMOLLM2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(model).unwrap();
    let cut = dir.path().join("cut.gguf");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let message = profile_fails(dir.path(), &["--model", cut.to_str().unwrap()]);
    assert_says(&message, &["cut.gguf", "truncated"]);
}

/// The real model, with another chat template.
#[test]
fn a_chat_template_that_takes_all_memory() {
    let Some(model) = require(&SMOLLM2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(model).unwrap();
    let start = bytes.windows(8).position(|found| found == b"{% for m").expect("its template");
    let length = bytes[start..].windows(12).position(|found| found == b"{% endif %}\x1c").expect("its end") + 11;
    let mut put = |template: &str| {
        bytes[start..start + length].fill(b' ');
        bytes[start..start + template.len()].copy_from_slice(template.as_bytes());
        let path = dir.path().join("template.gguf");
        std::fs::write(&path, &bytes).unwrap();
        path.to_str().unwrap().to_string()
    };
    let grow = "{% set n = namespace(x='word') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}";
    let message = profile_fails(dir.path(), &["--chat", "--model", &put(grow)]);
    assert_says(&message, &["chat template", "limit of 384 MB", "without a chat template"]);
    let honest = "{% set t = messages[0].content | trim %}{{ '<|im_start|>user\n' ~ t ~ '<|im_end|>\n' }}";
    let run = dir.path().join("honest");
    ok(&[
        "profile",
        "--chat",
        "--max-new-tokens=1",
        "--repeats=1",
        "--model",
        &put(honest),
        "--out",
        run.to_str().unwrap(),
    ]);
}

#[test]
fn prompts() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    assert_says(&profile_fails(d, &["--prompt", ""]), &["prompt is empty", "--prompt-tokens"]);
    assert_says(&profile_fails(d, &["--prompt-tokens", "100000"]), &["100000", "context", "shorten"]);
    let huge = profile_fails(d, &["--prompt-tokens", "99999999999"]);
    assert_says(&huge, &["99999999999", "2048", "shorten"]);
    assert_says(&profile_fails(d, &["--prompt-file", "/nowhere.txt"]), &["/nowhere.txt"]);
}

#[test]
fn options_and_devices() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    assert_says(&profile_fails(d, &["--nonsense"]), &["--nonsense"]);
    assert_says(&profile_fails(d, &["--device", "tpu"]), &["tpu", "cuda:N"]);
    assert_says(&profile_fails(d, &["--device", "cuda:9"]), &["cuda:9"]);
    assert_says(&profile_fails(d, &["--dtype", "int3"]), &["int3", "bf16"]);
    assert_says(&profile_fails(d, &["--engine", "steam"]), &["steam", "instrumented"]);
    assert_says(&profile_fails(d, &["--top-p", "7", "--temperature", "1"]), &["top-p"]);
    assert_says(&profile_fails(d, &["--temperature", "-1"]), &["temperature is -1", "0 or more"]);
    assert_says(&profile_fails(d, &["--batch", "99999999999"]), &["--batch is 99999999999", "65536"]);
    assert_says(&profile_fails(d, &["--disk-budget-mb", "0"]), &["--disk-budget-mb is 0", "at least 1"]);
    assert_says(&fails(&["frobnicate"]), &["frobnicate"]);
}

#[test]
fn places_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let below = file.join("run");
    assert_says(&fails(&["profile", "--out", below.to_str().unwrap()]), &["file/run"]);
    assert_says(&fails(&["profile", "--out", "/proc/candlescope-run"]), &["/proc/candlescope-run"]);

    let used = dir.path().join("used");
    std::fs::create_dir(&used).unwrap();
    std::fs::write(used.join("precious"), "data").unwrap();
    assert_says(&fails(&["profile", "--out", used.to_str().unwrap()]), &["used"]);
    assert_eq!(std::fs::read_to_string(used.join("precious")).unwrap(), "data", "what was there is untouched");
}

#[test]
fn a_directory_that_was_there_outlives_a_run_of_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine");
    std::fs::create_dir(&mine).unwrap();
    let out = mine.to_str().unwrap();
    for bad in [["--top-p", "7", "--temperature", "1"], ["--perfetto", "/nonexistent/x", "--seed", "1"]] {
        fails(&[&["profile", "--out", out][..], &bad].concat());
        assert_eq!(std::fs::read_dir(&mine).expect("it is still there").count(), 0, "{bad:?}");
    }
    // The directory can be used for the next try.
    ok(&["profile", "--out", out, "--max-new-tokens", "2", "--repeats", "1"]);
    // The run after it does not touch it, whatever fails first.
    let before = manifest(&mine);
    fails(&["profile", "--out", out, "--perfetto", "/nonexistent/x"]);
    assert_eq!(manifest(&mine), before);
    assert!(mine.join("spans/part-00000.parquet").is_file());
}

#[test]
fn a_timeline_that_cannot_be_written_leaves_nothing_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("runs/first");
    let out = run.to_str().unwrap();
    for _ in 0..3 {
        let message = fails(&["profile", "--out", out, "--perfetto", "/nonexistent/x"]);
        assert_says(&message, &["/nonexistent/x"]);
        assert!(!dir.path().join("runs").exists(), "the run directory blocks the retry");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk() {
    // A file system of 300 kB.
    let Some(disk) = SmallDisk::mount("300k") else { return };
    let run = disk.path().join("run");
    let run_arg = run.to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    // Far more than fits: several segments fill the disk, the rest is dropped and counted.
    let message = fails(&["profile", "--out", run_arg, "--repeats", "60", "--max-new-tokens", "64", "--ignore-eos"]);
    assert_says(&message, &["parquet", "space"]);
    // What had been finished before can be read, once there is room for the report.
    let manifest = manifest(&run);
    assert_eq!(manifest["schema_version"], 1);
    let finished = std::fs::read_dir(run.join("spans"))
        .unwrap()
        .flatten()
        .any(|e| e.path().extension().is_some_and(|x| x == "parquet"));
    if finished {
        ok(&["report", run_arg, "--out", elsewhere.path().to_str().unwrap()]);
    }
}

#[test]
fn runs_that_are_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let run_arg = run.to_str().unwrap();
    ok(&["profile", "--out", run_arg, "--max-new-tokens", "4", "--repeats", "1"]);
    // A corrupt, a foreign and an unfinished file among those of the run.
    std::fs::write(run.join("spans/part-00007.parquet"), b"PAR1 this is not what it says").unwrap();
    std::fs::copy(run.join("samples/part-00000.parquet"), run.join("spans/part-00008.parquet")).unwrap();
    std::fs::write(run.join("spans/part-00009.parquet.inprogress"), b"half").unwrap();
    let metrics = ok(&["report", run_arg, "--json"]);
    assert_says(&metrics, &["part-00007.parquet", "part-00008.parquet", "part-00009.parquet.inprogress"]);
    assert!(run.join("report.html").is_file());
    ok(&["export", "chrome", run_arg]);

    assert_says(&fails(&["report", "/nowhere"]), &["/nowhere"]);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_says(&fails(&["report", empty.to_str().unwrap()]), &["empty"]);
    assert_says(&fails(&["export", "perfetto", run_arg, "--out", "/nowhere/x.pftrace"]), &["/nowhere/x.pftrace"]);
}
