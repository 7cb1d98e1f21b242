//! Runs of which a file cannot be read, in every form that they go out in and every command that reads them: the file
//! is named, and the rest is there.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::ranks::MadeRanks;
use common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A run with every table, its call stacks and kernels among them.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/gpu/host");

const FORMATS: [&str; 6] = ["chrome", "perfetto", "kineto", "firefox", "pprof", "stacks"];

/// Cuts the end off a file, as a copy that was stopped has it.
fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 100]).unwrap();
}

/// Puts a file that was cut beside the last one of a table.
fn put_cut(run: &Path, table: &str) -> String {
    let mut parts: Vec<PathBuf> = fs::read_dir(run.join(table)).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    let file = run.join(table).join("part-00009.parquet");
    fs::copy(parts.last().unwrap(), &file).unwrap();
    cut(&file);
    file.to_str().unwrap().to_string()
}

/// The run whole, and the same with two files more that are cut; which these are.
struct Runs {
    _dir: tempfile::TempDir,
    whole: String,
    damaged: String,
    files: [String; 2],
}

impl Runs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [whole, damaged] = ["whole", "damaged"].map(|name| dir.path().join(name));
        copy(Path::new(RECORDED), &whole);
        copy(Path::new(RECORDED), &damaged);
        let files = ["spans", "stack_samples"].map(|table| put_cut(&damaged, table));
        let [whole, damaged] = [whole, damaged].map(|run| run.to_str().unwrap().to_string());
        Self { _dir: dir, whole, damaged, files }
    }
}

/// Files that an answer's findings name.
fn named(told: &Value) -> Vec<&str> {
    let findings = told["findings"].as_array().unwrap_or_else(|| panic!("no findings: {told}"));
    findings.iter().map(|finding| finding["place"]["file"].as_str().unwrap_or_default()).collect()
}

/// The answer without what differs between two runs of the same records.
fn rest(mut told: Value) -> Value {
    for key in ["findings", "file", "files"] {
        told.as_object_mut().unwrap().remove(key);
    }
    told
}

/// Runs the command, expects success, and returns standard output and standard error.
#[track_caller]
fn both(args: &[&str]) -> (String, String) {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    (out, err)
}

#[track_caller]
fn assert_warns(args: &[&str], err: &str, files: &[String]) {
    for file in files {
        let told = err.lines().any(|line| line.starts_with("warning: ") && line.contains(file.as_str()));
        assert!(told, "{args:?} does not tell of {file}: {err}");
    }
}

#[test]
fn every_export_names_the_files_it_cannot_read_and_has_the_rest() {
    let runs = Runs::new();
    for format in FORMATS {
        let whole = json(&ok(&["export", format, &runs.whole, "--json"]));
        let damaged = json(&ok(&["export", format, &runs.damaged, "--json"]));
        assert_eq!(whole["findings"], json!([]), "{format}");
        assert_eq!(named(&damaged), runs.files.each_ref().map(String::as_str), "{format}: {damaged}");
        let files = [&whole, &damaged].map(|told| fs::read(told["file"].as_str().unwrap()).unwrap());
        assert!(files[0] == files[1] && files[0].len() > 1_000, "{format}: the rest is not the same");
        assert_eq!(rest(whole), rest(damaged), "{format}");

        let args = ["export", format, &runs.damaged];
        assert_warns(&args, &both(&args).1, &runs.files);
        let (_, err) = both(&["export", format, &runs.whole]);
        assert!(!err.contains("warning"), "{format}: {err}");
    }
}

#[cfg(feature = "otlp")]
#[test]
fn traces_that_are_sent_are_those_of_the_files_that_can_be_read() {
    use candlescope_testkit::collector;
    let runs = Runs::new();
    let (address, _) = collector::serve(collector::ok);
    let endpoint = format!("http://{address}");
    let sent = |run: &str| json(&ok(&["export", "otlp", run, "--endpoint", &endpoint, "--json"]));
    let (whole, damaged) = (sent(&runs.whole), sent(&runs.damaged));
    assert!(whole["spans"].as_u64().unwrap() > 0, "{whole}");
    assert_eq!((&whole["spans"], &whole["findings"]), (&damaged["spans"], &json!([])));
    assert_eq!(named(&damaged), runs.files.each_ref().map(String::as_str));
    let args = ["export", "otlp", &runs.damaged, "--endpoint", &endpoint];
    assert_warns(&args, &both(&args).1, &runs.files);
}

/// What is refused for want of rows may have had them in a file that cannot be read.
#[test]
fn a_refusal_names_the_files_whose_rows_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for (table, formats) in [
        ("stack_samples", &["firefox", "pprof", "stacks"][..]),
        ("kernels", &["kineto"]),
        // The intervals of measured steps carry the stacks.
        ("spans", &["stacks"]),
    ] {
        let damaged = dir.path().join(table);
        copy(Path::new(RECORDED), &damaged);
        let mut files = Vec::new();
        for entry in fs::read_dir(damaged.join(table)).unwrap() {
            let file = entry.unwrap().path();
            cut(&file);
            files.push(file.to_str().unwrap().to_string());
        }
        let damaged = damaged.to_str().unwrap();
        for format in formats {
            let args = ["export", format, damaged];
            let err = fails(&args);
            assert!(err.contains("error: ") && err.contains(damaged), "{err}");
            assert_warns(&args, &err, &files);
        }
        // What is left goes out.
        let args = ["export", "perfetto", damaged, "--json"];
        let told = json(&ok(&args));
        let lost = told[if table == "spans" { "spans" } else { "kernels" }].as_u64().unwrap();
        assert_eq!(lost == 0, table != "stack_samples", "{told}");
        assert!(told["kernels"].as_u64().unwrap() + told["spans"].as_u64().unwrap() > 0, "{told}");
        assert_eq!(named(&told).len(), files.len(), "{told}");
    }
}

#[test]
fn exports_of_ranks_name_the_file_of_the_rank_that_it_belongs_to() {
    let dir = tempfile::tempdir().unwrap();
    let folders = ["whole", "damaged"].map(|name| dir.path().join(name));
    let made = MadeRanks { steps: 6, ..MadeRanks::default() }.make();
    folders.iter().for_each(|folder| write_ranks(folder, &made));
    let file = put_cut(&folders[1].join("rank-1"), "spans");
    let [whole, damaged] = folders.each_ref().map(|folder| folder.to_str().unwrap());
    for format in ["perfetto", "kineto"] {
        let [whole, told] = [whole, damaged].map(|folder| json(&ok(&["export", format, folder, "--json"])));
        assert_eq!((&whole["findings"], named(&told)), (&json!([]), vec![file.as_str()]), "{format}: {told}");
        assert_eq!(rest(whole), rest(told), "{format}");
        let args = ["export", format, damaged];
        assert_warns(&args, &both(&args).1, std::slice::from_ref(&file));
    }
}

#[test]
fn every_command_that_reads_a_run_names_the_files_it_cannot_read() {
    let runs = Runs::new();
    let (dir, run) = (tempfile::tempdir().unwrap(), runs.damaged.as_str());
    let out = dir.path().to_str().unwrap();
    // In what they say, on either output.
    for args in
        [&["report", run][..], &["report", run, "--request", "2"], &["analyze", run], &["analyze", run, "--json"]]
    {
        let (said, err) = both(args);
        for file in &runs.files {
            assert!(format!("{said}{err}").replace('\n', " ").contains(file.as_str()), "{args:?}: {said}{err}");
        }
    }
    for args in [
        &["overview", run][..],
        &["report", run, "--request", "2", "--json"],
        &["roofline", run, "--out", out],
        &["roofline", run, "--out", out, "--json"],
    ] {
        assert_warns(args, &both(args).1, &runs.files);
    }
    // A request that is not there may be in one of them.
    let args = ["report", run, "--request", "77"];
    assert_warns(&args, &fails(&args), &runs.files);
}

#[cfg(feature = "lab")]
#[test]
fn comparisons_name_the_files_of_either_side() {
    let runs = Runs::new();
    let (dir, run) = (tempfile::tempdir().unwrap(), runs.damaged.as_str());
    let baseline = dir.path().join("baseline");
    for args in [
        &["compare", run, run][..],
        &["compare", run, run, "--json"],
        // Refused, as one side is whole.
        &["compare", &runs.whole, run],
        &["compare", run, run, "--programs"],
        &["gate", run, "--save", baseline.to_str().unwrap()],
    ] {
        assert_warns(args, &text(&common::run(args).stderr), &runs.files);
    }
}

#[cfg(feature = "query")]
#[test]
fn answers_in_sql_name_the_files_of_the_tables_that_were_asked() {
    let runs = Runs::new();
    let [spans, samples] = &runs.files;
    let run = runs.damaged.as_str();
    let err = |args: &[&str]| both(args).1;
    for sql in ["SELECT count(*) FROM spans", "SELECT count(*) FROM self_time"] {
        for args in [&["query", sql, run][..], &["query", sql, run, "--json"]] {
            let told = err(args);
            assert_warns(args, &told, std::slice::from_ref(spans));
            assert!(!told.contains(samples.as_str()), "{told}");
        }
    }
    let told = err(&["query", "SELECT count(*) FROM requests", run]);
    assert!(!told.contains("part-00009"), "what is asked is whole: {told}");
    let args = ["views", "duckdb", run];
    assert_warns(&args, &err(&args), &runs.files);

    // Figures of many runs stand on steps and requests.
    let steps = put_cut(Path::new(run), "steps");
    for args in [&["summary", run][..], &["summary", run, "--json"], &["trend", "decode_step", run]] {
        assert_warns(args, &err(args), std::slice::from_ref(&steps));
    }
}
