//! Configurations composed of groups, files, arguments and flags; runs of several combinations; data sets.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

/// Runs the command in `dir`.
fn run_in(dir: &Path, args: &[&str]) -> Output {
    candlescope()
        .args(args)
        .current_dir(dir)
        .env_remove("CANDLESCOPE")
        .env_remove("RUST_LOG")
        .output()
        .expect("the command runs")
}

fn ok_in(dir: &Path, args: &[&str]) -> String {
    let output = run_in(dir, args);
    assert!(output.status.success(), "{args:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn fails_in(dir: &Path, args: &[&str]) -> String {
    let output = run_in(dir, args);
    let err = text(&output.stderr);
    assert!(!output.status.success() && err.starts_with("error: ") && err.lines().count() == 1, "{args:?}: {err}");
    err
}

/// The keys of a composed configuration.
fn composed(dir: &Path, args: &[&str]) -> Value {
    let args = [&["profile", "--print-config", "--json"], args].concat();
    json(&ok_in(dir, &args))["keys"].clone()
}

/// The variant of every combination of `-m`.
fn composed_all(dir: &Path, args: &[&str]) -> Vec<String> {
    let shown = ok_in(dir, &[&["profile", "-m", "--print-config", "--json"], args].concat());
    let lines = shown.lines().map(json);
    lines.map(|all| all["keys"]["dataset.variant"]["value"].as_str().unwrap_or_default().to_string()).collect()
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A run of the embedded model that takes a moment.
const SHORT: [&str; 3] = ["max_new_tokens=3", "repeats=1", "warmup=0"];

#[test]
fn later_layers_win_and_say_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(
        dir,
        "conf/runtime/mine.toml",
        "# mine\nmax_new_tokens = 11\nrepeats = 12\nwarmup = 13\nbatch = 14\nseed = 15\n",
    );
    write(dir, "a.toml", "repeats = 22\n[runtime]\nwarmup = 23\nbatch = 24\nseed = 25\n");
    let args = [
        "runtime=mine",
        "--config",
        "a.toml",
        "runtime.warmup=33",
        "batch=34",
        "seed=35",
        "--batch",
        "44",
        "--seed",
        "45",
        "--set",
        "seed=36",
    ];
    let keys = composed(dir, &args);
    let key = |name: &str| (keys[name]["value"].clone(), keys[name]["origin"].as_str().unwrap_or_default().to_string());
    assert_eq!(key("runtime.max_new_tokens"), (json!(11), "conf/runtime/mine.toml:2".to_string()));
    assert_eq!(key("runtime.repeats"), (json!(22), "a.toml:1".to_string()));
    assert_eq!(key("runtime.warmup"), (json!(33), "command line".to_string()));
    assert_eq!(key("runtime.batch"), (json!(44), "--batch".to_string()));
    assert_eq!(key("runtime.seed"), (json!(45), "--seed".to_string()));
    assert_eq!(key("runtime.temperature"), (json!(0.0), "default".to_string()));
    let toml = ok_in(dir, &[&["profile", "--print-config"], &args[..]].concat());
    assert!(toml.contains("# group files: runtime=mine") && toml.contains("# a.toml:1"), "{toml}");
    // What is shown can be used, and says the same.
    write(dir, "b.toml", &toml);
    let again = composed(dir, &["--config", "b.toml"]);
    for (name, setting) in keys.as_object().unwrap() {
        assert_eq!(again[name]["value"], setting["value"], "{name}");
    }
}

#[test]
fn groups_are_built_in_and_overridden_by_folders() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let model = |args: &[&str]| {
        let keys = composed(dir, args);
        (keys["model.path"]["value"].clone(), keys["model.path"]["origin"].as_str().unwrap().to_string())
    };
    let built_in = model(&["model=gpt2"]);
    assert_eq!(built_in, (json!("openai-community/gpt2"), "built-in conf/model/gpt2.toml:2".to_string()));
    write(dir, "conf/model/gpt2.toml", "path = \"embedded\"\n");
    assert_eq!(model(&["model=gpt2"]), (json!("embedded"), "conf/model/gpt2.toml:1".to_string()));
    write(dir, "other/model/gpt2.toml", "\npath = \"config:gpt2\"\n");
    let given = model(&["model=gpt2", "--config-dir", "other"]);
    assert_eq!(given, (json!("config:gpt2"), "other/model/gpt2.toml:2".to_string()));
    // A file can choose groups, and the command line others.
    write(dir, "a.toml", "[groups]\nmodel = \"gpt2\"\nruntime = \"short\"\n");
    let keys = composed(dir, &["--config", "a.toml", "runtime=long"]);
    assert_eq!((&keys["model.path"]["value"], &keys["runtime.repeats"]["value"]), (&json!("embedded"), &json!(20)));
    for group in ["model", "dataset", "runtime", "hardware", "profiling"] {
        for entry in fs::read_dir(Path::new(ROOT).join("conf").join(group)).unwrap().flatten() {
            let name = entry.path().file_stem().unwrap().display().to_string();
            let choice = format!("{group}={name}");
            // What needs a GPU is shown with one.
            if entry.path().is_file() {
                ok_in(dir, &["profile", "--print-config", &choice, "device=cuda:0"]);
            }
        }
    }
}

#[test]
fn other_names_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "p.txt", "one\n");
    let args = ["infer.max_new_tokens=7", "dataset.root=p.txt", "model.path=config:gpt2", "device=cpu", "top-k=3"];
    let keys = composed(dir.path(), &args);
    for (name, value) in [
        ("runtime.max_new_tokens", json!(7)),
        ("dataset.path", json!("p.txt")),
        ("model.path", json!("config:gpt2")),
        ("hardware.device", json!("cpu")),
        ("runtime.top_k", json!(3)),
    ] {
        assert_eq!((&keys[name]["value"], &keys[name]["origin"]), (&value, &json!("command line")), "{name}");
    }
}

#[test]
fn mistakes_name_the_nearest_and_the_choices() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let fails = |args: &[&str]| fails_in(dir, &[&["profile"], args].concat());
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in {text}");
        }
    };
    has(fails(&["model=smolm2"]), &["did you mean `smollm2`", "embedded, gpt2", "conf/model", "model.path=smolm2"]);
    has(fails(&["modell=smollm2"]), &["`modell` is no key", "did you mean `model", "groups are model, dataset"]);
    has(fails(&["runtime.max_tokens=3"]), &["did you mean `runtime.max_new_tokens`", "temperature"]);
    has(fails(&["repeats=many"]), &["`runtime.repeats` is \"many\"", "a whole number"]);
    has(fails(&["embedded"]), &["`embedded` is no KEY=VALUE", "model=embedded"]);
    has(fails(&["--config-dir", "nowhere"]), &["--config-dir nowhere", "model, dataset"]);
    has(fails(&["model=../x"]), &["has no `../x`"]);
    has(fails(&["hardware.price_per_hour=-1"]), &["price_per_hour is -1"]);
    write(dir, "conf/runtime/bad.toml", "# a comment\nmax_new_token = 3\n");
    has(fails(&["runtime=bad"]), &["conf/runtime/bad.toml:2", "did you mean `max_new_tokens`", "its keys are"]);
    write(dir, "conf/runtime/worse.toml", "batch = 1\nrepeats = \n");
    has(fails(&["runtime=worse"]), &["conf/runtime/worse.toml is not valid TOML", "line 2"]);
    write(dir, "c.yaml", "runtime:\n  repeats: [1]\n");
    has(fails(&["--config", "c.yaml"]), &["c.yaml is not valid YAML", "line 2: it has a list"]);
    write(dir, "d.toml", "[groups]\nmodell = \"x\"\n");
    has(fails(&["--config", "d.toml"]), &["d.toml:2: `groups.modell` chooses no group file"]);
    write(dir, "e.yaml", "# nothing\n");
    has(fails(&["--config", "e.yaml"]), &["e.yaml sets nothing"]);
    has(fails(&["model=gpt2,smollm2"]), &["has no `gpt2,smollm2`", "-m takes several values"]);
    has(fails(&["dataset.limit=3"]), &["dataset.limit is about a data set, and there is none"]);
    has(fails(&["-m", "batch=1,,2"]), &["`batch=1,,2` has an empty value"]);
    // A mistake in one combination ends all, before the first.
    has(fails(&["-m", "batch=1,0", "out=all"]), &["--batch is 0"]);
    assert!(!dir.join("all").exists());
}

#[test]
fn a_run_can_be_made_again_from_its_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = [&["profile", "dataset=samples", "dataset.limit=2", "seed=7", "--out", "a"], &SHORT[..]].concat();
    ok_in(dir, &args);
    for file in ["report.md", "operators.md", "metrics.json", "stakeholder_summary.md", "env.json", "assumptions.md"] {
        assert!(dir.join("a").join(file).metadata().unwrap().len() > 100, "{file}");
    }
    let a = manifest(&dir.join("a"));
    ok_in(dir, &["profile", "--config", "a/inputs.yaml", "--out", "b"]);
    let b = manifest(&dir.join("b"));
    for key in ["inputs", "repeats", "seed"] {
        assert_eq!(a["options"][key], b["options"][key], "{key}");
    }
    // How many samples there are depends on how long it took.
    for table in ["requests", "steps", "spans"] {
        assert_eq!(a["counts"][table], b["counts"][table], "{table}");
    }
    assert_eq!(a["results"]["dataset"]["sha256"], b["results"]["dataset"]["sha256"]);
    // A text that was not kept has to be given again.
    let args = [&["profile", "--prompt", "a secret text", "--out", "c"], &SHORT[..]].concat();
    ok_in(dir, &args);
    for file in ["inputs.yaml", "run.json", "metrics.json", "report.md"] {
        assert!(!fs::read_to_string(dir.join("c").join(file)).unwrap().contains("secret"), "{file}");
    }
    let error = fails_in(dir, &["profile", "--config", "c/inputs.yaml", "--out", "d"]);
    assert!(error.contains("a prompt that it does not keep") && error.contains("--prompt"), "{error}");
    ok_in(dir, &["profile", "--config", "c/inputs.yaml", "--prompt", "another", "--out", "d"]);
    let args = [&["profile", "--prompt", "a kept text", "dataset.keep_text=true", "--out", "e"], &SHORT[..]].concat();
    ok_in(dir, &args);
    assert!(fs::read_to_string(dir.join("e/inputs.yaml")).unwrap().contains("a kept text"));
    ok_in(dir, &["profile", "--config", "e/inputs.yaml", "--out", "f"]);
    // The built-in prompt is what runs without any.
    let args = [&["profile", "dataset=default", "--out", "g"], &SHORT[..]].concat();
    ok_in(dir, &args);
    ok_in(dir, &["profile", "--config", "g/inputs.yaml", "--out", "h"]);
    // Where a run went is not kept either, and credentials are not even shown.
    let args = [&["profile", "--perfetto", "t.pftrace", "--out", "i"], &SHORT[..]].concat();
    ok_in(dir, &args);
    assert!(!fs::read_to_string(dir.join("i/inputs.yaml")).unwrap().contains("pftrace"));
    let keys = composed(dir, &["profiling.otlp=http://me:hush@host:4318"]);
    assert_eq!(keys["profiling.otlp"]["value"], "http://***@host:4318");
}

#[test]
fn every_combination_has_a_run_and_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = [&["profile", "-m", "model=embedded", "batch=1,2", "seed=3,4", "--out", "all"], &SHORT[..]].concat();
    let shown = ok_in(dir, &args);
    for n in ["1_batch=1_seed=3", "2_batch=1_seed=4", "3_batch=2_seed=3", "4_batch=2_seed=4"] {
        assert!(shown.contains(n), "{shown}");
        let run = dir.join("all").join(n);
        assert_eq!(manifest(&run)["complete"], true);
        assert!(run.join("report.html").is_file());
    }
    assert_eq!(manifest(&dir.join("all/3_batch=2_seed=3"))["options"]["batch"], 2);
    let summary = json(&fs::read_to_string(dir.join("all/summary.json")).unwrap());
    assert_eq!(summary["runs"].as_array().unwrap().len(), 4);
    assert!(summary["runs"][3]["figures"]["ttft"]["median"].as_f64().unwrap() > 0.0, "{summary}");
    let error = run_in(dir, &args);
    assert!(text(&error.stderr).contains("all is not empty"), "{}", text(&error.stderr));
}

#[test]
fn mistakes_of_any_combination_are_found_first() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let refused = |args: &[&str]| fails_in(dir, &[&["profile", "-m"], args].concat());
    assert!(refused(&["engine=instrumented,candel"]).contains("candel"));
    assert!(refused(&["temperature=0,-1"]).contains("temperature is -1"));
    assert!(refused(&["batch=1,2", "--perfetto", "t.pftrace"]).contains("export perfetto"));
    assert!(refused(&["out=a,b"]).contains("the folder of all runs"));
    assert!(fs::read_dir(dir).unwrap().next().is_none(), "nothing ran");
}

#[test]
fn texts_that_are_varied_stand_in_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = ["profile", "-m", "dataset.prompt=my secret A,my secret B", "--out", "all"];
    ok_in(dir, &[&args[..], &SHORT[..]].concat());
    let all = dir.join("all");
    assert!(all.join("1_dataset.prompt=value-1/report.html").is_file());
    for file in ["summary.json", "1_dataset.prompt=value-1/run.json", "1_dataset.prompt=value-1/inputs.yaml"] {
        let text = fs::read_to_string(all.join(file)).unwrap();
        assert!(!text.contains("secret"), "{file}: {text}");
    }
}

#[test]
fn a_run_that_fails_does_not_end_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "broken.gguf", "GGUF and no more");
    let args = [&["profile", "-m", "model.path=broken.gguf,embedded", "--json", "--out", "all"], &SHORT[..]].concat();
    let output = run_in(dir, &args);
    assert!(!output.status.success());
    let summary = json(&text(&output.stdout));
    assert_eq!((&summary["runs"][0]["status"], &summary["runs"][1]["status"]), (&json!("failed"), &json!("done")));
    assert!(summary["runs"][0]["error"].as_str().unwrap().contains("broken.gguf"), "{summary}");
    assert!(text(&output.stderr).contains("error: 1 of 2 runs failed"), "{}", text(&output.stderr));
    assert!(dir.join("all/2_model.path=embedded/report.html").is_file());
}

/// The signal goes to the command alone, as from a script; a terminal tells the run under way as well.
#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = candlescope()
        .args(["profile", "-m", "max_new_tokens=2,400", "repeats=1,100000", "warmup=0", "--out", "all", "--ignore-eos"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first run is short, the second would take hours.
    let second = dir.path().join("all/2_max_new_tokens=2_repeats=100000/spans");
    wait_until(|| second.is_dir(), "the second run");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    let mut shown = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut shown).unwrap();
    let row = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap_or_default().to_string();
    assert!(row("2_max_new_tokens=2_repeats=100000").contains("interrupted"), "{shown}");
    assert!(row("4_max_new_tokens=400_repeats=100000").contains("interrupted"), "{shown}");
    let summary = json(&fs::read_to_string(dir.path().join("all/summary.json")).unwrap());
    assert_eq!(summary["runs"][0]["status"], "done");
    // What the second one recorded can be read.
    ok_in(dir.path(), &["report", "all/2_max_new_tokens=2_repeats=100000"]);
}

#[test]
fn every_form_of_a_data_set_runs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "p.jsonl", "{\"prompt\":\"first\",\"max_tokens\":2}\n{\"text\":\"a second prompt\"}\n");
    write(dir, "s.json", r#"[{"conversations":[{"from":"human","value":"hello"},{"from":"gpt","value":"ho"}]}]"#);
    write(dir, "l.txt", "one line\nanother line\n");
    write(dir, "many/a.txt", "a whole\nfile");
    write(dir, "sets/metadata.toml", "default = 'a'\n[variants]\na = 'a.jsonl'\nb = 'b.jsonl'\n");
    write(dir, "sets/a.jsonl", "{\"prompt\":\"of a\"}\n");
    write(dir, "sets/b.jsonl", "{\"prompt\":\"of b\"}\n{\"prompt\":\"of b too\"}\n{\"prompt\":\"of b as well\"}\n");
    let run = |name: &str, args: &[&str]| {
        let args = [&["profile", "max_new_tokens=3", "warmup=1", "--out", name][..], args].concat();
        ok_in(dir, &args);
        manifest(&dir.join(name))
    };
    for (name, args, requests) in [
        ("jsonl", &["dataset.path=p.jsonl"][..], 3),
        ("sharegpt", &["--dataset", "s.json", "repeats=2"], 3),
        ("lines", &["--dataset", "l.txt"], 3),
        ("files", &["--dataset", "many"], 2),
        ("default", &["dataset.root=sets"], 2),
        ("variant", &["dataset.root=sets", "--variant", "b"], 4),
        ("samples", &["dataset=samples", "dataset.limit=3"], 4),
    ] {
        let m = run(name, args);
        assert_eq!(m["counts"]["requests"], requests, "{name}: a warm-up, and each prompt");
        assert_eq!(
            m["results"]["dataset"]["prompts_used"].as_u64(),
            Some(if name == "sharegpt" { 1 } else { requests - 1 })
        );
        let kept = fs::read_to_string(dir.join(name).join("run.json")).unwrap();
        assert!(!kept.contains("second prompt") && !kept.contains("a whole"), "{name} keeps texts");
    }
    let facts = manifest(&dir.join("jsonl"))["results"]["dataset"].clone();
    // The embedded model has a token a byte, and one before them.
    assert_eq!((&facts["prompts"][0]["tokens"], &facts["prompts"][0]["characters"]), (&json!(6), &json!(5)));
    assert_eq!(facts["prompts"][0]["sha256"].as_str().unwrap().len(), 64);
    let metrics = json(&fs::read_to_string(dir.join("jsonl/metrics.json")).unwrap());
    let outputs: Vec<_> =
        metrics["requests"]["rows"].as_array().unwrap().iter().map(|r| r["output_tokens"].as_u64().unwrap()).collect();
    assert!(outputs[0] <= 2 && outputs[1] <= 2, "a prompt's own limit counts: {outputs:?}");
    let swept = composed_all(dir, &["dataset.variant=a,b", "dataset.path=sets"]);
    assert_eq!(swept, ["a", "b"], "in whichever order they are given");
    let kept = run("kept", &["dataset.path=p.jsonl", "dataset.keep_text=true"]);
    assert_eq!(kept["results"]["dataset"]["prompts"][1]["content"], "a second prompt");
}

#[test]
fn some_prompts_are_chosen_by_length_and_seed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lines: Vec<String> = (1..=20).map(|n| "x".repeat(n)).collect();
    write(dir, "l.txt", &lines.join("\n"));
    let ids = |name: &str, args: &[&str]| -> Vec<u64> {
        let args =
            [&["profile", "max_new_tokens=1", "warmup=0", "dataset.path=l.txt", "--out", name][..], args].concat();
        ok_in(dir, &args);
        let facts = manifest(&dir.join(name))["results"]["dataset"].clone();
        facts["prompts"].as_array().unwrap().iter().map(|p| p["id"].as_u64().unwrap()).collect()
    };
    assert_eq!(ids("a", &["dataset.limit=3"]), [1, 2, 3]);
    let shuffled = ids("b", &["dataset.limit=6", "dataset.shuffle=true"]);
    assert_eq!(shuffled, ids("c", &["dataset.limit=6", "dataset.shuffle=true"]), "the seed decides");
    assert_ne!(shuffled, ids("d", &["dataset.limit=6", "dataset.shuffle=true", "seed=43"]));
    assert_eq!(ids("e", &["dataset.max_prompt_tokens=4"]), [1, 2, 3], "one token is the beginning's");
    let fails = |args: &[&str]| fails_in(dir, &[&["profile", "--out", "x", "dataset.path=l.txt"], args].concat());
    let error = fails(&["dataset.max_prompt_tokens=1"]);
    assert!(error.contains("all 20 prompts of the data set l.txt are longer"), "{error}");
    assert!(fails(&["dataset.limit=0"]).contains("dataset.limit is 0"));
    assert!(!dir.join("x").exists());
}

#[test]
fn bad_data_sets_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "empty.jsonl", "\n\n");
    write(dir, "broken.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\n");
    write(dir, "mixed.jsonl", "{\"prompt\":\"a\"}\n{\"image\":\"i.png\"}\n");
    write(dir, "i.png", "");
    write(dir, "pictures/i.png", "");
    write(dir, "both/i.png", "");
    write(dir, "both/t.txt", "text");
    write(dir, "chat.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}\n");
    write(dir, "long.txt", &"x".repeat(5000));
    let fails = |args: &[&str]| fails_in(dir, &[&["profile", "--out", "x", "--dataset"], args].concat());
    for (args, told) in [
        (&["empty.jsonl"][..], "empty.jsonl has no prompts"),
        (&["broken.jsonl"], "broken.jsonl, line 2: it is no JSON"),
        (&["mixed.jsonl"], "mixes texts and images: line 1 is a text, line 2 an image"),
        (&["both"], "mixes texts and images"),
        (&["nowhere"], "cannot read nowhere"),
        (&["empty.jsonl", "--variant", "v"], "has no variant v"),
        (&["pictures"], "it is the image pictures/i.png, and embedded reads texts"),
        (&["chat.jsonl"], "prompt 1 of the data set chat.jsonl: embedded has no chat template"),
        (&["long.txt"], "dataset.max_prompt_tokens="),
    ] {
        let error = fails(args);
        assert!(error.contains(told), "{args:?}: {error}");
        assert!(!dir.join("x").exists(), "{args:?} leaves no run");
    }
    let error = run_in(dir, &["profile", "--dataset", "chat.jsonl", "--prompt", "x"]);
    assert_eq!(error.status.code(), Some(2), "{}", text(&error.stderr));
}

#[test]
fn a_price_an_hour_makes_the_price_of_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let args = [&["profile", "--ignore-eos", "--price-per-hour", "3.6", "--out", "a"], &SHORT[..]].concat();
    ok_in(dir, &args);
    let metrics = |run: &str| json(&fs::read_to_string(dir.join(run).join("metrics.json")).unwrap());
    let a = metrics("a");
    let (usd, tps) = (&a["cost"]["usd_per_million_output_tokens"], &a["figures"]["output_tps"]["value"]);
    let expected = 3.6 / (tps.as_f64().unwrap() * 3600.0) * 1e6;
    assert!((usd.as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{usd} {expected}");
    assert_eq!(a["cost"]["label"], "derived");
    let page = fs::read_to_string(dir.join("a/stakeholder_summary.md")).unwrap();
    assert!(page.contains("for 1M output tokens (derived: $3.60 an hour"), "{page}");
    let args = [&["profile", "--out", "b"], &SHORT[..]].concat();
    ok_in(dir, &args);
    let b = metrics("b");
    assert!(b["cost"]["usd_per_million_output_tokens"].is_null() && b["cost"]["absent_because"].is_string(), "{b}");
    assert!(b["figures"].get("usd_per_million_output_tokens").is_none());
    // For a report alone, and without changing the run.
    let given = json(&ok_in(dir, &["report", "b", "--price-per-hour", "2", "--out", "r", "--json"]));
    assert_eq!(given["cost"]["usd_per_hour"], 2.0);
    assert!(manifest(&dir.join("b"))["options"]["price-per-hour"].is_null());
    // A report in the run's own place keeps it for the next one, and changes nothing else.
    let before = manifest(&dir.join("b"));
    ok_in(dir, &["report", "b", "--price-per-hour", "2"]);
    let again = json(&ok_in(dir, &["report", "b", "--json"]));
    assert_eq!((&again["cost"]["usd_per_hour"], &again["cost"]["given_for_report"]), (&2.0.into(), &false.into()));
    let mut after = manifest(&dir.join("b"));
    assert_eq!(
        after["options"].as_object_mut().unwrap().insert("price-per-hour".into(), serde_json::Value::Null),
        Some(2.0.into())
    );
    assert_eq!(after["options"]["price-per-hour"], before["options"]["price-per-hour"]);
    after["options"] = before["options"].clone();
    assert_eq!(after, before);
    // What a machine costs is no difference between runs of it.
    let compared = run_in(dir, &["compare", "a", "b", "--allow", "tokens,options", "--json"]);
    assert!(!text(&compared.stdout).contains("price"), "{}", text(&compared.stdout));
    let output = run_in(dir, &["report", "b", "--price-per-hour", "-2"]);
    assert!(text(&output.stderr).contains("--price-per-hour is -2"), "{}", text(&output.stderr));
}

/// The page's commands are understood as they stand there.
#[test]
fn the_pages_commands_compose() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "conf/model/mine.toml", "path = \"embedded\"\n");
    write(dir, "prompts.jsonl", "{\"prompt\":\"a\"}\n");
    write(dir, "runs/first/inputs.yaml", "runtime:\n  repeats: 2\n");
    let page = fs::read_to_string(Path::new(ROOT).join("docs/configuration.md")).unwrap();
    let mut seen = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("candlescope profile ")) {
        let mut args = vec!["profile"];
        args.extend(line.split_whitespace());
        if !args.contains(&"--print-config") {
            args.push("--print-config");
        }
        let shown = ok_in(dir, &args);
        if line.contains("runtime=short repeats=5") {
            let example = page.split("```toml\n# later ones win").nth(1).unwrap().split("```").next().unwrap();
            assert!(shown.contains(example), "the page shows\n{example}\nand the command says\n{shown}");
        }
        seen += 1;
    }
    assert!(seen >= 9, "commands are found on the page: {seen}");
    // The built-in names that the page lists are those that there are.
    for group in ["model", "dataset", "runtime", "hardware", "profiling"] {
        let row = page.split("| built in |").nth(1).unwrap();
        let row = row.lines().find(|line| line.starts_with(&format!("| `{group}`"))).unwrap();
        let mut said: Vec<&str> = row.split('`').skip(3).step_by(2).collect();
        let folder = fs::read_dir(Path::new(ROOT).join("conf").join(group)).unwrap().flatten();
        let files = folder.map(|entry| entry.path()).filter(|path| path.is_file());
        let mut names: Vec<String> = files.map(|path| path.file_stem().unwrap().display().to_string()).collect();
        said.sort_unstable();
        names.sort();
        assert_eq!(said, names, "{group}");
    }
}

/// Of several commands that write into one folder, one has it to itself.
#[cfg(unix)]
#[test]
fn several_runs_have_their_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    let args = [&["profile", "-m", "model=embedded", "batch=1,2", "--out", "all"], &SHORT[..]].concat();
    let start = || {
        let mut command = candlescope();
        command.args(&args).current_dir(dir.path()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let started = [start(), start(), start()];
    let ended = started.map(|child| child.wait_with_output().unwrap());
    let (won, lost): (Vec<_>, Vec<_>) = ended.iter().partition(|output| output.status.success());
    assert_eq!(won.len(), 1, "{:?}", ended.iter().map(|output| text(&output.stderr)).collect::<Vec<_>>());
    for output in lost {
        let said = text(&output.stderr);
        assert!(said.contains("another process is writing into it") || said.contains("is not empty"), "{said}");
    }
    let all = dir.path().join("all");
    let summary: Value = json(&fs::read_to_string(all.join("summary.json")).unwrap());
    assert!(summary["runs"].as_array().unwrap().iter().all(|run| run["status"] == "done"), "{summary}");
    assert!(["1_batch=1", "2_batch=2"].iter().all(|run| manifest(&all.join(run))["complete"] == true));
}
