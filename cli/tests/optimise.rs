//! `optimise`: the embedded model made faster, changes by hand, what goes wrong, interrupts, and the ledger of promises.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SHORT: &[&str] = &["--prompt-tokens", "8", "--max-new-tokens", "12", "--repeats", "2", "--no-progress"];

/// The command, with a cache of its own.
fn optimise(dir: &Path, args: &[&str]) -> Command {
    let mut command = candlescope();
    command.env("XDG_CACHE_HOME", dir.join("cache")).current_dir(dir).arg("optimise").args(args);
    command
}

fn done(dir: &Path, args: &[&str]) -> Output {
    let output = optimise(dir, args).output().expect("it runs");
    assert!(output.status.success(), "{args:?}\n{}", text(&output.stderr));
    output
}

fn account(study: &Path) -> Value {
    json(&fs::read_to_string(study.join("study.json")).expect("study.json"))["facts"]["account"].clone()
}

fn phases(account: &Value) -> &Vec<Value> {
    account["phases"].as_array().expect("a list")
}

/// What a run is held against, and a change of it, as a shell reads them.
fn profile(more: &str) -> String {
    format!("{BINARY} profile --model embedded {} {more} --out {{out}}", SHORT.join(" "))
}

#[test]
fn remedies_are_promised_applied_and_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let secret = ["--prompt", "nobody shall read this", "--max-new-tokens", "12", "--repeats", "2"];
    let args = [
        &["embedded", "--quality", "kl=0.05", "--pairs", "8", "--budget", "15m", "--json", "--out", "study"],
        &secret[..],
    ]
    .concat();
    let output = done(dir.path(), &args);
    let (printed, said) = (json(&text(&output.stdout)), text(&output.stderr));
    let account = account(&out);
    assert_eq!(printed["account"], account);
    // What is started is said before, with --json too: once in full, and never a text that nobody shall read.
    for number in ["1", "2"] {
        assert_eq!(said.matches(&format!("program {number}: ")).count(), 1, "{said}");
    }
    let first = said.lines().find(|line| line.starts_with("program 1: ")).unwrap();
    assert!(first.contains("candlescope profile --prompt=… ") && first.ends_with("--out {out}"), "{first}");
    assert!(said.contains("starts program 1 for first-start: once, for 900 s at most"), "{said}");
    assert!(said.contains("--max-num-seqs=1") && said.contains("in turns up to 8 times"), "{said}");
    assert!(!said.contains("nobody shall"), "{said}");
    hold_against_schemas(&json!({ "optimise": [printed] }), false);
    assert_eq!((&account["ended"], &account["device"]), (&json!("all_tried"), &json!("cpu")));
    let measured: Vec<&Value> = phases(&account).iter().filter(|phase| !phase["obtained"].is_null()).collect();
    assert!(measured.len() >= 3, "{account:#}");
    for phase in &measured {
        assert!(phase["samples_ns"].as_array().unwrap().len() >= 8, "{phase:#}");
        assert!(out.join("trials").join(phase["runs"].as_str().unwrap()).join("a/000/run.json").is_file());
        assert!(["kept", "rejected", "refused"].contains(&phase["verdict"].as_str().unwrap()), "{phase:#}");
    }
    // By themselves, or with others at once.
    let is_of = |phase: &Value, name: &str| {
        phase["remedy"] == name || phase["members"].as_array().is_some_and(|members| members.contains(&json!(name)))
    };
    // What changes no answer wrote the same tokens.
    assert!(measured.iter().any(|phase| is_of(phase, "slots")), "slots were tried: {account:#}");
    for same in measured.iter().filter(|phase| is_of(phase, "slots") && phase["answers"] == "same") {
        assert_eq!(same["same_tokens"], true, "{same:#}");
    }
    let bits = measured.iter().find(|phase| is_of(phase, "weight_bits")).expect("fewer bits were tried");
    assert_eq!(bits["quality"], Value::Null, "random weights: {bits:#}");
    assert!(bits["why"].as_str().unwrap().contains("nothing can be said about quality"), "{bits:#}");
    let graph = phases(&account).iter().find(|phase| phase["remedy"] == "cuda_graph").unwrap();
    assert!(graph["why"].as_str().unwrap().contains("not possible here: there is no GPU"), "{graph:#}");
    // The last state is the first with all that was kept.
    let mut setting = account["baseline"].clone();
    for phase in phases(&account).iter().filter(|phase| phase["verdict"] == "kept") {
        for (name, value) in phase["change"]["options"].as_object().unwrap() {
            let options = setting["options"].as_object_mut().unwrap();
            _ = if value.is_null() { options.remove(name) } else { options.insert(name.clone(), value.clone()) };
        }
    }
    assert_eq!(setting["options"], account["setting"]["options"]);
    let summary = fs::read_to_string(out.join("FINAL_OPTIMIZATION_SUMMARY.md")).unwrap();
    let study = fs::read_to_string(out.join("study.json")).unwrap();
    assert!(!(summary.clone() + &study).contains("nobody shall"), "the prompt is written nowhere");
    assert!(summary.contains("| Remedy | Change | Promised | Obtained |") && summary.contains("`--max-num-seqs=1`"));
    assert!(fs::read_to_string(out.join("optimization_impact.svg")).unwrap().contains("before"));
    if setting != account["baseline"] {
        let ran = Command::new("sh").arg(out.join("start.sh")).arg("--help").env("PATH", program_folder()).output();
        assert!(ran.unwrap().status.success(), "the script starts");
        let conf = out.join("conf");
        let groups: Vec<String> =
            fs::read_dir(&conf).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
        let chosen: Vec<String> = groups.iter().map(|group| format!("{group}=optimised")).collect();
        let mut args = vec!["profile", "--print-config", "--config-dir", conf.to_str().unwrap()];
        args.extend(chosen.iter().map(String::as_str));
        assert!(ok(&args).contains("optimised"), "groups of the last state are read");
    }
    // Nothing else was written: the study, and promises that were put to the test.
    let mut there: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    there.retain(|name| name != "cache");
    assert_eq!(there, ["study"]);
}

/// The folder of the program, first on the search path.
fn program_folder() -> String {
    let folder = Path::new(BINARY).parent().unwrap().display().to_string();
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn prompts_that_begin_alike_lead_to_slots_that_keep_what_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    // Long beginnings, short questions, short answers: most of the time is spent on what was read before.
    let system = "Answer as a careful clerk would, in plain words, and name the page of the register. ".repeat(5);
    let line = |n: u8| format!("{{\"prompt\":\"{system}{} is asked\"}}\n", char::from(b'a' + n));
    fs::write(dir.path().join("prompts.jsonl"), (0..8).map(line).collect::<String>()).unwrap();
    let args = ["embedded", "--dataset", "prompts.jsonl", "--max-new-tokens", "3", "--pairs", "8", "--budget", "90s"];
    done(dir.path(), &[&args[..], &["--no-progress", "--out", "study"]].concat());
    let account = account(&dir.path().join("study"));
    let is_of = |phase: &&Value| {
        phase["remedy"] == "prefix_reuse"
            || phase["members"].as_array().is_some_and(|members| members.contains(&json!("prefix_reuse")))
    };
    let phase = phases(&account).iter().find(is_of).unwrap_or_else(|| panic!("it is a row: {account:#}"));
    assert_eq!(phase["change"]["options"]["prefix-reuse"], "true", "{phase:#}");
    assert_eq!(phase["change"]["options"]["concurrency"], "1", "{phase:#}");
    assert!(phase["promised"]["mid"].as_f64().is_some_and(|gain| gain > 0.1), "{phase:#}");
    assert!(["kept", "rejected"].contains(&phase["verdict"].as_str().unwrap()), "{phase:#}");
    assert!(phase["obtained"]["gain"].is_number() && phase["other_steps"] == true, "{phase:#}");
    // Nobody waits for another's prompt where requests come one after the other.
    let chunks = phases(&account).iter().find(|phase| phase["remedy"] == "chunked_prefill");
    assert!(chunks.is_none_or(|phase| phase["verdict"] == "not_tried"), "{chunks:#?}");
}

#[test]
fn a_text_that_repeats_itself_says_what_looking_tokens_up_gains_requests() {
    let dir = tempfile::tempdir().unwrap();
    let row = |study: &str, args: &[&str]| {
        // Enough for the run that says it, and for no trial.
        done(dir.path(), &[args, &["--budget", "1s", "--no-progress", "--out", study]].concat());
        let account = account(&dir.path().join(study));
        let phase = phases(&account).iter().find(|phase| phase["remedy"] == "ngram_speculation").cloned();
        let phase = phase.unwrap_or_else(|| panic!("it is a row: {account:#}"));
        let said = (&phase["change"]["options"]["speculate"], &phase["other_steps"], &phase["verdict"]);
        assert_eq!(said, (&json!("4"), &json!(true), &json!("not_tried")), "{phase:#}");
        phase
    };
    let text = "one two three four one two three four one two three";
    let small = row("small", &["embedded", "--prompt", text, "--max-new-tokens", "64", "--repeats", "1"]);
    let why = small["why"].as_str().unwrap();
    assert!(small["promised"].is_null() && why.contains("nothing was promised: weights stay in"), "{small:#}");
    // With random weights, too, a greedy text comes back to itself.
    let length = ["--dtype", "f32", "--prompt-tokens", "32", "--max-new-tokens", "48", "--repeats", "1"];
    let large = row("large", &[&["config:distilgpt2"], &length[..]].concat());
    let why = large["why"].as_str().unwrap();
    match large["promised"]["low"].as_f64() {
        // A promise is of a gain, and of requests' time, of which the prompt's is none.
        Some(low) => {
            let high = large["promised"]["high"].as_f64().unwrap();
            assert!(low > 0.0 && high < 1.0 && large["promised"]["code"] == "ngram_lookup", "{large:#}");
        }
        None => {
            let judged = why.contains("steps for 100 tokens") && why.contains("times as long");
            assert!(judged || why.contains("the machine was busy while the run was recorded"), "{large:#}");
        }
    }
}

#[test]
fn changes_by_hand_are_held_against_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (run, fails, other) = (profile(""), "exit 3".to_string(), profile("--seed 7"));
    // A variable that the program does not know.
    let ignored = format!("NOBODY_READS_THIS=1 {}", profile(""));
    // Nothing here makes the host a hundred times as fast, however uneven the machine is.
    let promise = ["--promise", "host×0.01"];
    let args = [
        "--run",
        &run,
        "--try",
        &fails,
        "--try",
        &other,
        "--try",
        &ignored,
        promise[0],
        promise[1],
        promise[0],
        promise[1],
        promise[0],
        promise[1],
        "--pairs",
        "8",
        "--out",
        "s",
        "--no-progress",
    ];
    let output = done(dir.path(), &args);
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    for command in [&run, &fails, &other, &ignored] {
        assert!(said.lines().any(|line| line.starts_with("program ") && line.ends_with(command.as_str())), "{said}");
    }
    assert!(said.contains("CANDLESCOPE=") && said.contains("starts programs 1 and 2 for 1-by-hand"), "{said}");
    let account = account(&dir.path().join("s"));
    let verdicts: Vec<&str> = phases(&account).iter().map(|phase| phase["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts[..2], ["failed", "refused"], "{account:#}");
    assert!(phases(&account)[0]["why"].as_str().unwrap().contains("exit status: 3"), "{account:#}");
    assert!(phases(&account)[1]["why"].as_str().unwrap().contains("other tokens"), "{account:#}");
    let nothing = &phases(&account)[2];
    assert_eq!(nothing["same_tokens"], true);
    assert_ne!(nothing["verdict"], "refused", "{nothing:#}");
    assert!(nothing["why"].as_str().is_some_and(|why| !why.is_empty()));
    // A promise that did not come true is held against what the replay said of each kind of step, and of each path.
    let looked = nothing["second_look"][0].as_str().unwrap();
    assert!(looked.starts_with("less than promised") && looked.contains("99.0 %"), "{nothing:#}");
    let differences = nothing["differences"].as_array().unwrap();
    let step = differences.iter().find(|one| one["within"] == "step" && one["name"] == "decode").unwrap();
    let (before, said) = (step["before_ns"].as_f64().unwrap(), step["said_ns"].as_f64().unwrap());
    assert!((said / before - 0.01).abs() < 0.001, "{step:#}");
    assert!(differences.iter().any(|one| one["within"] == "path" && one["said_ns"].is_f64()), "{nothing:#}");
    assert!(printed.contains("failed  Command 1") && printed.contains("refused  Command 2"), "{printed}");
    // What it is held against does not run.
    let output =
        optimise(dir.path(), &["--run", "exit 4", "--try", &run, "--out", "t", "--no-progress"]).output().unwrap();
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("exit status: 4"), "{error}");
    assert!(dir.path().join("t/study.json").is_file(), "what is known is kept");
}

#[test]
fn a_command_that_takes_other_steps_is_judged_by_its_requests() {
    let dir = tempfile::tempdir().unwrap();
    // A text in which the next tokens stood before: fewer and longer steps for the same tokens.
    let prompt = "one two three four one two three four one two three";
    let of = |more: &str| {
        let text = format!("--prompt '{prompt}' --max-new-tokens 64 --repeats 2 --no-progress");
        format!("{BINARY} profile --model embedded {text} {more} --out {{out}}")
    };
    let (run, ahead) = (of(""), of("--speculate 4"));
    let args = ["--run", &run, "--try", &ahead, "--pairs", "8", "--no-progress", "--out", "s"];
    done(dir.path(), &args);
    let account = account(&dir.path().join("s"));
    let phase = &phases(&account)[0];
    assert_eq!((&phase["other_steps"], &phase["same_tokens"]), (&json!(true), &json!(true)), "{phase:#}");
    assert!(["kept", "rejected"].contains(&phase["verdict"].as_str().unwrap()), "{phase:#}");
    assert!(phase["why"].as_str().unwrap().contains("the mean request"), "{phase:#}");
    // What the run's texts foretell can be named as what it obtains; of this model, they foretell nothing.
    let args = ["--run", &run, "--try", &ahead, "--promise", "ngram_lookup", "--no-progress", "--out", "t"];
    let error = text(&optimise(dir.path(), &args).output().unwrap().stderr);
    assert!(error.contains("--promise: nothing was promised: weights stay in the processor's caches"), "{error}");
}

#[test]
fn each_command_has_a_row_where_the_time_is_too_short() {
    let dir = tempfile::tempdir().unwrap();
    let (run, one, other) = (profile(""), profile("--seed 7"), profile("--threads 1"));
    let args = ["--run", &run, "--try", &one, "--try", &other, "--budget", "1s", "--no-progress", "--out", "s"];
    let output = done(dir.path(), &args);
    let account = account(&dir.path().join("s"));
    assert_eq!((account["ended"].as_str(), phases(&account).len()), (Some("budget"), 2), "{account:#}");
    for (at, phase) in phases(&account).iter().enumerate() {
        assert_eq!((&phase["verdict"], &phase["title"]), (&json!("not_tried"), &json!(format!("Command {}", at + 1))));
        let why = phase["why"].as_str().unwrap();
        assert!(why.starts_with("8 pairs of runs take about") && why.ends_with("are left of the time"), "{why}");
    }
    assert!(text(&output.stdout).contains("--resume with a larger --budget goes on"), "{}", text(&output.stdout));
}

#[test]
fn what_gains_rest_on_has_to_be_the_same_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("conf/runtime/mine.toml");
    fs::create_dir_all(group.parent().unwrap()).unwrap();
    let says = |tokens: u8| fs::write(&group, format!("max_new_tokens = {tokens}\nrepeats = 2\n")).unwrap();
    says(12);
    let args =
        ["embedded", "runtime=mine", "--prompt-tokens", "8", "--budget", "1s", "--no-progress", "--out", "study"];
    done(dir.path(), &args);
    let rests_on = account(&dir.path().join("study"))["rests_on"].clone();
    assert!(rests_on["candlescope"].as_str().is_some_and(|told| told.contains(" bytes, written at ")), "{rests_on}");
    let again = [&args[..], &["--resume"]].concat();
    says(13);
    let error = text(&optimise(dir.path(), &again).output().unwrap().stderr);
    let named = error.contains("was begun with another conf/runtime/mine.toml (");
    assert!(named && error.contains("begin anew with another --out"), "{error}");
    // Written anew, and says the same.
    says(12);
    done(dir.path(), &again);
}

#[test]
fn an_interrupt_keeps_what_is_known_and_it_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let args = [&["embedded", "--pairs", "8", "--budget", "5m", "--out", "study"], SHORT].concat();
    let child = optimise(dir.path(), &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| out.join("trials").is_dir(), "a trial began");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    let before = account(&out);
    assert_eq!(before["ended"], "interrupted");
    let error = {
        let output = optimise(dir.path(), &args).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    assert!(error.contains("is not empty") && error.contains("--resume"), "{error}");
    let other = [&["embedded", "--seed", "9", "--out", "study", "--resume"], SHORT].concat();
    let error = text(&optimise(dir.path(), &other).output().unwrap().stderr);
    assert!(error.contains("was begun with other options"), "{error}");
    done(dir.path(), &[&args[..], &["--resume"]].concat());
    let after = account(&out);
    assert_eq!(after["ended"], "all_tried");
    let tried = |account: &Value| -> Vec<Value> {
        phases(account).iter().filter(|phase| phase["verdict"] != "not_tried").cloned().collect()
    };
    let (before, after) = (tried(&before), tried(&after));
    assert_eq!(after[..before.len()], before[..], "nothing was done twice");
    assert!(after.len() > before.len());
}

#[test]
fn mistakes_are_named_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let error = |args: &[&str]| {
        let output = optimise(dir.path(), args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        text(&output.stderr)
    };
    assert!(error(&["embedded", "--quality", "0.05"]).contains("kl=0.05"));
    assert!(error(&["embedded", "--goal", "goodput"]).contains("--slo tpot=50ms"));
    assert!(error(&["embedded", "--budget", "soon"]).contains("is no time"));
    assert!(error(&["embedded", "rest"]).contains("`rest` is neither"));
    assert!(error(&["--run", "x"]).contains("--try"));
    assert!(error(&["no-such.gguf", "--out", "a", "--no-progress"]).contains("model `no-such.gguf` is not there"));
    assert!(error(&["embedded", "--resume"]).contains("--out"));
    assert!(error(&["embedded", "--resume", "--out", "b"]).contains("holds no optimisation"));
}

#[test]
fn findings_say_how_promises_of_their_kind_came_out() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let of = |args: &[&str]| {
        let output = candlescope().env("XDG_CACHE_HOME", dir.path().join("cache")).args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    of(&[
        &["profile", "--model", "embedded", "--out", run.to_str().unwrap()],
        &["--max-new-tokens", "48", "--no-progress"][..],
    ]
    .concat());
    let findings = |told: &str| json(told)["findings"].as_array().unwrap().clone();
    let before = findings(&of(&["analyze", run.to_str().unwrap(), "--json"]));
    let found = before.iter().find(|finding| finding["confidence"]["level"] != "low").unwrap_or(&before[0]);
    assert_eq!(found["record"], Value::Null, "nothing was put to the test yet");
    // Three promises of this kind that failed, as `optimise` keeps them.
    let device = manifest(&run)["environment"]["cpu_model"].as_str().unwrap().to_string();
    let code = found["code"].as_str().unwrap();
    let line = |model: &str| {
        json!({
            "format": 1, "time_ns": 1, "version": "0.1.0", "device": device, "model": model, "remedy": "--threads=1",
            "code": code, "low": 0.3, "mid": 0.4, "high": 0.5, "obtained": 0.02, "obtained_low": 0.01, "obtained_high": 0.03,
        })
        .to_string()
    };
    let lines = ["a", "b", "c"].map(line).join("\n") + "\n";
    fs::create_dir_all(dir.path().join("cache/candlescope")).unwrap();
    fs::write(dir.path().join("cache/candlescope/advice.jsonl"), lines).unwrap();
    let after = findings(&of(&["analyze", run.to_str().unwrap(), "--json"]));
    let same = after.iter().find(|finding| finding["code"] == code).unwrap();
    assert_eq!(same["record"], json!({ "promises": 3, "came_true": 0 }));
    assert_eq!(same["confidence"]["level"], "low");
    let message = same["message"].as_str().unwrap();
    assert!(message.contains("of 3 promises of this kind on this device 0 came true"), "{message}");
    assert!(!message.contains("0 came true within"), "what was obtained may lie outside the bounds itself: {message}");
}
