//! `compare` and `gate` on the command line.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;

/// A short run of the built-in model.
fn profile(out: &Path) {
    profile_of(out, "12");
}

fn profile_of(out: &Path, tokens: &str) {
    let out = out.to_str().unwrap();
    ok(&["profile", "--out", out, "--max-new-tokens", tokens, "--repeats", "4", "--warmup", "1", "--no-progress"]);
}

/// Status, standard output and standard error.
fn status(args: &[&str]) -> (i32, String, String) {
    let output = run(args);
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A step for four sequences does four times the work: what one of them takes is a fair question.
#[test]
fn another_batch_is_compared_by_what_one_sequence_takes() {
    let dir = tempfile::tempdir().unwrap();
    let (one, four) = (dir.path().join("one"), dir.path().join("four"));
    for (out, batch) in [(&one, "1"), (&four, "4")] {
        let out = out.to_str().unwrap();
        let short = ["--max-new-tokens", "8", "--repeats", "2", "--warmup", "1", "--ignore-eos", "--no-progress"];
        ok(&[&["profile", "--out", out, "--batch", batch], &short[..]].concat());
    }
    let (one, four) = (one.to_str().unwrap(), four.to_str().unwrap());
    let (code, _, err) = status(&["compare", one, four]);
    assert!(code != 0 && err.contains("say --allow batch"), "{code}: {err}");
    assert!(err.contains("cannot be compared: batch of ") && err.contains(" is 1 in A, and 4 in B"), "{err}");
    for allow in ["batch", "all"] {
        let (code, out, err) = status(&["compare", one, four, "--allow", allow, "--json"]);
        assert_eq!((code, err.as_str()), (2, ""), "one run of each decides nothing");
        let object = json(&out);
        assert_eq!(object["per_sequence"], true);
        let counts = object["counts"].as_array().unwrap();
        let of = |name: &str| counts.iter().find(|c| c["kind"] == "decode" && c["name"] == name).unwrap();
        // Each sequence gets one token in each step, whatever the batch.
        assert_eq!((of("tokens")["a"].as_f64(), of("tokens")["b"].as_f64()), (Some(1.0), Some(1.0)));
        assert!(of("intervals")["b"].as_f64() < of("intervals")["a"].as_f64(), "{counts:?}");
    }
    let (_, out, _) = status(&["compare", one, four, "--allow", "batch"]);
    assert!(
        out.contains("divided by the sequences") && out.contains("for each of its sequences, a step takes"),
        "{out}"
    );
    assert!(out.contains("(as allowed): batch of decode: 1 → 4") && !out.contains("batch batch"), "{out}");
}

#[test]
fn two_runs_a_folder_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    profile(&at("a/1"));
    profile(&at("a/2"));
    profile(&at("b"));
    let (a, b, html) = (at("a"), at("b"), at("compare.html"));
    let (a, b, html) = (a.to_str().unwrap(), b.to_str().unwrap(), html.to_str().unwrap());
    let (code, out, err) = status(&["compare", a, b, "--html", html]);
    assert!([0, 1, 2].contains(&code) && err.is_empty(), "{code}\n{out}\n{err}");
    for shown in ["A/A floor", "Counts", "Times", "Paths that changed", "(2 runs)"] {
        assert!(out.contains(shown), "`{shown}` is not in\n{out}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("Flame graph of A") && page.contains("Flame graph of B less A"));
    let (code, out, _) = status(&["compare", a, b, "--json"]);
    let object = json(&out);
    let expected = match object["outcome"].as_str().unwrap() {
        "worse" => 1,
        "undecided" => 2,
        _ => 0,
    };
    assert_eq!((code, object["schema"].as_u64()), (expected, Some(1)));
    // The same program does the same work, whatever it took.
    let counts = object["counts"].as_array().unwrap();
    assert!(counts.len() > 4 && counts.iter().all(|count| count["equal"] == true), "{counts:?}");
    // One run of each does not decide, whichever way round, and names no path: what hours and starts differ by is not
    // known.
    for (one, other) in [(at("a/1"), at("b")), (at("b"), at("a/1"))] {
        let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
        let (code, out, _) = status(&["compare", one, other]);
        assert!(code == 2 && out.contains("One run of each does not show"), "{code}\n{out}");
        let (code, out, _) = status(&["compare", one, other, "--json"]);
        let object = json(&out);
        assert_eq!((code, object["outcome"].as_str()), (2, Some("undecided")));
        assert_eq!(object["step"]["estimate"]["doubt"]["why"], "one_run_of_each");
        assert!(
            object["step"]["estimate"]["low"].is_null() && object["paths"]["changed"].as_array().unwrap().is_empty()
        );
        // The user may know what starts differ by.
        let (code, out, _) = status(&["compare", one, other, "--floor", "99", "--within", "99"]);
        assert!(code == 2 || code == 0, "{out}");
    }
    // A margin of 99 % makes them equivalent, if anything was measured at all.
    let (code, out, _) = status(&["compare", a, b, "--within", "99"]);
    assert!(code == 0 || code == 2, "{out}");
}

#[test]
fn programs_in_turns_and_what_they_leave() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("turns");
    let out = out.to_str().unwrap();
    let short = format!("{BINARY} profile --max-new-tokens 6 --repeats 2 --warmup 1");
    let with_out = format!("TEST_KEY=sk-very-secret {short} --no-progress --out {{out}}");
    let (code, said, err) = status(&["compare", "--run", &short, &with_out, "--pairs", "3", "--out", out]);
    assert!((0..=2).contains(&code), "{said}\n{err}");
    let page = std::fs::read_to_string(Path::new(out).join("compare.html")).unwrap();
    let object = std::fs::read_to_string(Path::new(out).join("compare.json")).unwrap();
    for text in [&said, &err, &page, &object] {
        assert!(!text.contains("sk-very-secret"), "{text}");
    }
    assert!(page.contains("<h1>candlescope (command A) → candlescope (command B)</h1>"), "a short title");
    assert!(page.contains("the change is that within pairs of runs"), "medians of the sides are not what is compared");
    assert!(said.contains("3 pairs") && said.contains("compare.json"), "{said}");
    let kept = json(&std::fs::read_to_string(Path::new(out).join("compare.json")).unwrap());
    assert_eq!(kept["step"]["estimate"]["basis"], "pairs");
    // Three pairs are too few for an interval.
    assert_eq!((kept["step"]["estimate"]["low"].as_f64(), kept["outcome"].as_str()), (None, Some("undecided")));
    assert!(Path::new(out).join("compare.html").exists());
    // What was kept is paired again by when it started.
    let (a, b) = (format!("{out}/a"), format!("{out}/b"));
    let (_, again, _) = status(&["compare", &a, &b, "--json"]);
    assert_eq!(json(&again)["step"]["estimate"]["n"], kept["step"]["estimate"]["n"]);
    // The directory is in use now.
    let (code, _, err) = status(&["compare", "--run", &short, &short, "--out", out]);
    assert!(code == 3 && err.contains("is not empty"), "{err}");
}

#[test]
fn a_gate_keeps_a_baseline_and_a_history() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    profile(Path::new(&at("main")));
    profile(Path::new(&at("today")));
    let (main, today, baseline) = (at("main"), at("today"), at("baseline"));
    let (code, _, err) = status(&["gate", &today, "--baseline", &baseline]);
    assert!(code == 3 && err.contains("no baseline") && err.contains("--save"), "{err}");
    let (code, out, _) = status(&["gate", &main, "--save", &baseline]);
    assert!(code == 0 && out.contains("Saved 1 run"), "{out}");
    for n in 1..=2u64 {
        let (code, out, err) = status(&["gate", &today, "--baseline", &baseline, "--json"]);
        assert!((0..=2).contains(&code), "{out}\n{err}");
        let object = json(&out);
        assert_eq!((object["history"].as_u64(), object["not_kept"].is_null()), (Some(n), true));
    }
    // The runs themselves are needed no more.
    std::fs::remove_dir_all(&main).unwrap();
    let (code, out, _) = status(&["gate", &today, "--baseline", &baseline]);
    assert!((0..=2).contains(&code) && out.contains("History: 3 entries"), "{out}");

    // A link at the place of the history is neither read nor written through, which is said, whatever is printed.
    #[cfg(unix)]
    {
        let history = Path::new(&baseline).join("history.jsonl");
        let elsewhere = dir.path().join("elsewhere.jsonl");
        std::fs::rename(&history, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &history).unwrap();
        let before = std::fs::read(&elsewhere).unwrap();
        let gate = ["gate", today.as_str(), "--baseline", baseline.as_str()];
        let ways: [&[&str]; 2] = [&[], &["--json"]];
        for more in ways {
            let (code, out, err) = status(&[&gate[..], more].concat());
            assert!((0..=2).contains(&code), "{out}\n{err}");
            let said = "warning: the history was left alone, and no earlier day is known, nor is this one kept: ";
            assert!(err.contains(said) && err.contains("history.jsonl: it is a symbolic link"), "{err}");
            assert!(!err.contains("lacks this entry"), "once: {err}");
        }
        assert_eq!(std::fs::read(&elsewhere).unwrap(), before);
    }

    // A baseline of another machine.
    let file = Path::new(&baseline).join("baseline.json");
    let mut stored = json(&std::fs::read_to_string(&file).unwrap());
    stored["runs"][0]["fingerprint"]["machine"]["cpu_model"] = "Another CPU".into();
    std::fs::write(&file, stored.to_string()).unwrap();
    let (code, _, err) = status(&["gate", &today, "--baseline", &baseline]);
    assert!(code == 3 && err.contains("Another CPU") && err.contains("Save a baseline on this machine"), "{err}");
    // And one that is damaged.
    std::fs::write(&file, "{\"schema\": 1, \"runs\": [").unwrap();
    let (code, _, err) = status(&["gate", &today, "--baseline", &baseline]);
    assert!(code == 3 && err.contains("baseline.json"), "{err}");
}

#[test]
fn what_cannot_be_compared_says_why_with_a_status_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    profile(Path::new(&at("a")));
    profile_of(Path::new(&at("longer")), "13");
    std::fs::create_dir(at("empty")).unwrap();
    let a = at("a");
    let wrong = |args: &[&str], said: &str| {
        let (code, out, err) = status(args);
        assert!(code == 3 && err.contains(said) && out.is_empty(), "{args:?}: {code}\n{out}\n{err}");
        assert!(!err.contains("panicked"), "{err}");
    };
    wrong(&["compare", &a, &at("longer")], "--allow");
    wrong(&["compare", &a, &at("missing")], "there is no such directory");
    wrong(&["compare", &a, &at("empty")], "neither run.json nor study.json");
    wrong(&["compare", &a, &format!("{a}/run.json")], "it is a file");
    wrong(&["compare", &a], "required");
    wrong(&["compare", &a, &a, "--allow", "model"], "wants one of");
    wrong(&["compare", &a, &a, "--within", "0"], "wants a percentage");
    wrong(&["compare", "--run", "exit 7", "true", "--out", &at("x")], "`exit (command A)` ended with");
    wrong(&["compare", "--run", "true", "true", "--out", &at("y")], "`true (command A)` wrote no run");
    wrong(&["gate", &a], "--baseline");
    wrong(&["gate", &a, "--save", &at("baseline"), "--html", &at("page.html")], "cannot be used with");
    assert!(!Path::new(&at("baseline")).exists() && !Path::new(&at("page.html")).exists());
    // A run of another model: its manifest says so.
    let file = Path::new(&at("longer")).join("run.json");
    let mut manifest = json(&std::fs::read_to_string(&file).unwrap());
    manifest["model"]["layers"] = 99.into();
    std::fs::write(&file, manifest.to_string()).unwrap();
    wrong(&["compare", &a, &at("longer"), "--allow", "all"], "model layers is 4 in A, and 99 in B");
}

#[test]
fn studies_are_compared_case_by_case() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    for name in ["a", "b"] {
        let common = ["--quick", "--runs", "3", "--no-progress", "--output-tokens", "6", "--prompt-tokens", "8"];
        ok(&[&["bench", "latency", "--model", "embedded", "--out", &at(name)], &common[..]].concat());
    }
    let (code, out, err) = status(&["compare", &at("a"), &at("b"), "--json"]);
    assert!((0..=2).contains(&code), "{out}\n{err}");
    let object = json(&out);
    let cases = object["cases"].as_array().unwrap();
    assert!(!cases.is_empty() && cases[0]["decisive"]["name"] == "host_ns", "{out}");
    let (code, out, _) = status(&["compare", &at("a"), &at("b")]);
    assert!((0..=2).contains(&code) && out.contains("Cases"), "{out}");
    let (code, out, err) = status(&["compare", &at("a"), &at("b"), "--programs"]);
    assert!(code == 3 && out.is_empty() && err.contains("are studies: give one run of each"), "{out}\n{err}");
    profile(Path::new(&at("run")));
    let (code, _, err) = status(&["compare", &at("a"), &at("run")]);
    assert!(code == 3 && err.contains("A is studies and B is runs"), "{err}");
    // A study that was copied without its samples.
    std::fs::remove_file(Path::new(&at("b")).join("journal.jsonl")).unwrap();
    for (a, b) in [("a", "b"), ("b", "a")] {
        let (code, out, err) = status(&["compare", &at(a), &at(b)]);
        assert!(code == 3 && out.is_empty(), "{out}\n{err}");
        assert!(err.contains(&at("b")) && err.contains("its journal.jsonl, which has the samples"), "{err}");
    }
    // As many threads on both sides, or a word that this is the change.
    for threads in ["1", "2"] {
        let common = ["--quick", "--runs", "2", "--no-progress", "--output-tokens", "6", "--prompt-tokens", "8"];
        ok(&[&["bench", "latency", "--model", "embedded", "--threads", threads, "--out", &at(threads)], &common[..]]
            .concat());
    }
    let (code, out, err) = status(&["compare", &at("1"), &at("2")]);
    assert!(code == 3 && out.is_empty(), "{out}\n{err}");
    assert!(err.contains("is 1 in A, and 2 in B") && err.contains("--allow threads"), "{err}");
    let (code, out, err) = status(&["compare", &at("1"), &at("2"), "--allow", "threads"]);
    assert!((0..=2).contains(&code) && out.contains("Cases"), "{out}\n{err}");
}

/// Each study of a folder is held against that of the same name in the other one, not the first ones alone.
#[test]
fn folders_of_studies_are_compared_study_by_study() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let common = ["--quick", "--runs", "2", "--profiled", "0", "--no-progress", "--output-tokens", "3"];
    ok(&[&["bench", "latency", "--out", at("a/one").to_str().unwrap()], &common[..]].concat());
    for name in ["a/two", "b/one", "b/two"] {
        copy(&at("a/one"), &at(name));
    }
    let (a, b) = (at("a"), at("b"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let (code, out, err) = status(&["compare", a, b]);
    assert!((0..=2).contains(&code), "{out}\n{err}");
    let file = at("b/two").join("study.json");
    let mut study = json(&std::fs::read_to_string(&file).unwrap());
    study["environment"]["cpu_model"] = "Another CPU".into();
    std::fs::write(&file, study.to_string()).unwrap();
    let (code, out, err) = status(&["compare", a, b]);
    assert!(code == 3 && out.is_empty(), "{out}\n{err}");
    assert!(err.contains("cpu_model of two is ") && err.contains("Another CPU in B"), "{err}");
    assert!(err.contains("--allow machine"), "{err}");
    let (code, out, err) = status(&["compare", a, b, "--allow", "machine"]);
    assert!((0..=2).contains(&code) && out.contains("Another CPU"), "{out}\n{err}");
}
