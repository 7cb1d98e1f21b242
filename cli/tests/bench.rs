//! `candlescope bench`, end to end with the embedded model.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn study(dir: &Path) -> serde_json::Value {
    json(&fs::read_to_string(dir.join("study.json")).expect("study.json"))
}

fn rows(dir: &Path) -> serde_json::Value {
    json(&fs::read_to_string(dir.join("results.json")).expect("results.json"))["rows"].clone()
}

#[test]
fn a_quick_suite_from_requests_to_report() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("results");
    let text = ok(&["bench", "suite", "--quick", "--price-per-hour", "3.6", "--out", out.to_str().unwrap()]);
    for told in ["at US$ 3.60 an hour, one request at a time: US$ ", "; least at ", " at a batch of 4"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(text.contains("Latency: TTFT = "), "{text}");
    for batch in [1, 2, 4] {
        assert!(text.contains(&format!("Batch size {batch}: Throughput = ")), "{text}");
    }
    assert!(text.contains("(1.0x)") && text.contains("Prompt 40 + output 8 tokens: TTFT = "), "{text}");
    assert!(text.contains("no 95 % interval"), "one start claims none: {text}");
    let six = "that takes 6 (--processes 6 --runs 6).";
    assert!(text.contains(six), "three requests have three starts at most: {text}");

    // 1 + 3 + 3·2 cases, of each three plain requests and a recorded one.
    let manifest = study(&out);
    assert_eq!((&manifest["state"], manifest["cases"].as_array().unwrap().len()), (&"done".into(), 10));
    assert_eq!(manifest["model"]["name"], "embedded");
    assert!(manifest["environment"]["candle"].is_string() && manifest["surroundings"].is_string());
    let rows = rows(&out);
    let of = |profiled: bool| rows.as_array().unwrap().iter().filter(|r| r["profiled"] == profiled).collect::<Vec<_>>();
    assert_eq!((of(false).len(), of(true).len()), (30, 10));
    for row in of(false) {
        assert_eq!((&row["verdict"], &row["stop_reason"]), (&"ok".into(), &"runs_reached".into()), "{row}");
        assert!(row["ttft_ns"].as_f64().unwrap() < row["host_ns"].as_f64().unwrap(), "{row}");
        // Read in the first repetition of a case: in another sample it would be no further observation.
        let memory = row["memory_bytes"].as_u64();
        assert_eq!(memory.map(|bytes| bytes > 1 << 20), (row["repetition"] == 0).then_some(true), "{row}");
        assert!(row["run"].is_null(), "{row}");
    }
    let file = fs::File::open(out.join("results.parquet")).unwrap();
    let table = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(table.metadata().file_metadata().num_rows(), 40);
    let names: Vec<String> = table.schema().fields().iter().map(|f| f.name().clone()).collect();
    for name in ["study", "case", "suite", "batch", "prompt_tokens", "output_tokens", "host_ns", "process", "tpot_ns"] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }

    let metrics = json(&fs::read_to_string(out.join("baseline_metrics.json")).unwrap());
    assert_eq!(metrics["efficiency"]["cost"]["usd_per_hour"], 3.6);
    assert_eq!(metrics["efficiency"]["cost"]["cases"].as_array().map(Vec::len), Some(10));
    // Each recorded case has a run with all of its steps, which the reader opens.
    for row in of(true) {
        let run = out.join(row["run"].as_str().unwrap());
        assert_eq!(common::manifest(&run)["options"]["price-per-hour"], 3.6, "{}", run.display());
        assert_eq!(common::manifest(&run)["counts"]["steps"], row["output_tokens"], "{}", run.display());
        assert!(run.join("report.html").exists());
    }
    let head = |name: &str| fs::read_to_string(out.join(name)).unwrap().lines().next().unwrap().to_string();
    assert!(head("latency_results.csv").starts_with("process,repetition,profiled,prompt_tokens,output_tokens,ttft_ms"));
    assert!(
        head("throughput_results.csv").starts_with("batch,prompt_tokens,output_tokens,samples,processes,output_tps")
    );
    assert!(head("throughput_results.csv").contains(
        ",speedup,speedup_low,speedup_high,efficiency,memory_bytes,process_cpu_ratio,hw_gpu_utilization_ratio,"
    ));
    assert!(head("sequence_length_results.csv").contains("ttft_ms,ttft_ms_low,ttft_ms_high"));
    // The costs of the JSON, with each suite.
    let usd = metrics["efficiency"]["cost"]["cases"].as_array().unwrap();
    let usd = usd.iter().map(|case| case["usd_per_million_output_tokens"].as_f64().unwrap());
    let of_json: Vec<f64> = usd.collect();
    for (name, rows) in [("throughput_results.csv", 3), ("sequence_length_results.csv", 6), ("latency_results.csv", 4)]
    {
        let text = fs::read_to_string(out.join(name)).unwrap();
        let mut costs = text.lines().map(|line| line.rsplit(',').next().unwrap());
        assert_eq!(costs.next(), Some("usd_per_million_output_tokens"), "{name}");
        let costs: Vec<f64> = costs.map(|cost| cost.parse().unwrap()).collect();
        assert_eq!(costs.len(), rows, "{name}");
        let is_of_json = |cost: &f64| of_json.iter().any(|of_json| (of_json / cost - 1.0).abs() < 1e-9);
        assert!(costs.iter().all(|cost| *cost > 0.0 && (name.starts_with("latency") || is_of_json(cost))), "{costs:?}");
    }
    for chart in ["latency", "throughput", "tpot_by_batch", "sequence_length"] {
        assert!(fs::read_to_string(out.join(format!("charts/{chart}.svg"))).unwrap().contains("<svg"));
        assert!(fs::read(out.join(format!("charts/{chart}.png"))).unwrap().starts_with(b"\x89PNG"));
    }
    let metrics = json(&fs::read_to_string(out.join("baseline_metrics.json")).unwrap());
    for group in ["user_experience", "capacity", "efficiency", "reliability"] {
        assert!(metrics[group].is_object(), "{group}");
    }
    assert_eq!(metrics["user_experience"]["ttft_ms"]["n"], 3);
    assert_eq!(metrics["reliability"]["cases"], 10);
    assert!(metrics["efficiency"]["energy_mj"].is_null(), "no sensor, no zero");
    let html = fs::read_to_string(out.join("report.html")).unwrap();
    for question in ["batching stop paying", "twice as long", "GPU busy", "arithmetic or by memory", "the spread"] {
        assert!(html.contains(question), "{question}");
    }
    assert!(html.contains("no kernels of a GPU were recorded") && !html.contains("src=\"http"));
    // The head of a run's page, plain words, and an interval is only called so where it is one.
    assert!(html.contains("<p class=\"brand\">") && html.contains("</html>"), "{html}");
    assert!(html.contains("all samples asked for were taken") && html.contains("in 1 start<"), "{html}");
    for odd in ["runs_reached", "time_limit", "1 starts", "95 % interval of the median over process starts"] {
        assert!(!html.contains(odd), "{odd}: {html}");
    }
}

#[test]
fn a_study_of_several_starts_has_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "latency", "--prompt-tokens", "4", "--output-tokens", "3", "--runs", "12", "--processes", "6"];
    let more = ["--profiled", "0", "--json", "--out", out.to_str().unwrap()];
    let result = json(&ok(&[args.as_slice(), &more].concat()));
    let ttft = &result["metrics"]["user_experience"]["ttft_ms"];
    assert_eq!((&ttft["n"], &ttft["units"], &ttft["interval_of"]), (&12.into(), &6.into(), &"processes".into()));
    let (low, high) = (ttft["median_ci95"][0].as_f64().unwrap(), ttft["median_ci95"][1].as_f64().unwrap());
    assert!(low <= ttft["median"].as_f64().unwrap() && ttft["median"].as_f64().unwrap() <= high);
    assert_eq!(study(&out)["processes"].as_array().unwrap().len(), 6);
    let starts: std::collections::BTreeSet<i64> =
        rows(&out).as_array().unwrap().iter().map(|r| r["process"].as_i64().unwrap()).collect();
    assert_eq!(starts.len(), 6);

    // The directory has a study now.
    let error = fails(&["bench", "latency", "--quick", "--out", out.to_str().unwrap()]);
    assert!(error.contains("not empty") && error.contains("--resume"), "{error}");
    let error = fails(&["bench", "latency", "--quick", "--resume", "--out", out.to_str().unwrap()]);
    assert!(error.contains("something else"), "{error}");
    // Nothing is left to measure: the same again adds nothing.
    ok(&[args.as_slice(), &more, &["--resume"]].concat());
    assert_eq!(rows(&out).as_array().unwrap().len(), 12);
}

#[test]
fn what_does_not_fit_is_a_row_with_the_figures() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "throughput", "--batches", "1,64", "--prompt-tokens", "8", "--output-tokens", "2"];
    let more = ["--runs", "1", "--profiled", "0", "--memory-limit", "8", "--out", out.to_str().unwrap()];
    let text = ok(&[args.as_slice(), &more].concat());
    assert!(text.contains("Batch size 1: Throughput = "), "{text}");
    assert!(text.contains("Batch size 64: not tried: ") && text.contains("8.0 MiB are available"), "{text}");
    let rows = rows(&out);
    let refused = rows.as_array().unwrap().iter().find(|row| row["batch"] == 64).expect("a row");
    assert_eq!((&refused["verdict"], &refused["host_ns"]), (&"refused".into(), &serde_json::Value::Null));
    assert!(refused["detail"].as_str().unwrap().contains("predicted"), "{refused}");

    // A model that does not fit is refused before it is loaded.
    let out = dir.path().join("t");
    let error = fails(&["bench", "latency", "--quick", "--memory-limit", "1", "--out", out.to_str().unwrap()]);
    assert!(error.contains("weights need") && error.contains("no case could be measured"), "{error}");
    // A context that is too short for one of two cases.
    let out = dir.path().join("u");
    let args = ["bench", "seqlen", "--prompts", "8,2048", "--outputs", "2", "--quick", "--out", out.to_str().unwrap()];
    let text = ok(&args);
    assert!(text.contains("do not fit the model's context of 2048") || text.contains("context is 2048"), "{text}");
}

#[test]
fn an_interrupt_keeps_what_there_is_and_the_study_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "latency", "--prompt-tokens", "4", "--output-tokens", "4", "--runs", "400"];
    let more = ["--processes", "1", "--profiled", "0", "--out", out.to_str().unwrap()];
    let args = [args.as_slice(), &more].concat();
    let mut child = candlescope().args(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = out.join("journal.jsonl");
    let samples = || {
        fs::read_to_string(&journal)
            .map_or(0, |text| text.lines().filter(|l| l.contains("\"kind\":\"sample\"")).count())
    };
    wait_until(|| samples() >= 5, "some samples");
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let ended = child.wait().unwrap();
    // On a very fast machine it may have been done by then.
    if ended.code() == Some(0) {
        return;
    }
    assert_eq!(ended.code(), Some(130));
    let kept = samples();
    assert_eq!(rows(&out).as_array().unwrap().len(), kept);
    assert_eq!(study(&out)["state"], "cancelled");
    assert!(out.join("report.html").exists());

    ok(&[args.as_slice(), &["--resume"]].concat());
    assert_eq!(study(&out)["state"], "done");
    assert_eq!(rows(&out).as_array().unwrap().len(), kept + 400, "the round is measured anew; what was taken stays");
}

/// Whoever asked for the study was killed, and could not tell the process that measures: that one notices.
#[cfg(target_os = "linux")]
#[test]
fn a_round_ends_when_the_command_that_started_it_was_killed() {
    ends_with_its_command(&["latency"]);
    ends_with_its_command(&["variants", "--variants", "no_cache", "--no-quality"]);
}

#[cfg(target_os = "linux")]
fn ends_with_its_command(of: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["--prompt-tokens", "4", "--output-tokens", "4", "--runs", "100000000"];
    let more = ["--time-limit", "80000", "--processes", "1", "--profiled", "0", "--out", out.to_str().unwrap()];
    let mut command = candlescope();
    command.arg("bench").args(of).args(args).args(more);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = out.join("journal.jsonl");
    let bytes = || fs::metadata(&journal).map_or(0, |file| file.len());
    wait_until(|| bytes() > 2_000, "some samples");
    let own = child.id().to_string();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap();
    let measuring: Vec<&str> = children.split_whitespace().collect();
    assert_eq!(measuring.len(), 1, "a process measures: {children}");
    child.kill().unwrap();
    child.wait().unwrap();
    // Where nobody collects it, it stays as a zombie.
    let stat = format!("/proc/{}/stat", measuring[0]);
    let is_gone = || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z"));
    wait_until(is_gone, "the process that measures has ended");
    let kept = bytes();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(bytes(), kept, "nobody measures any more");
}

/// Of two commands at once, the second one is told; the processes that the first one starts are its own.
#[cfg(unix)]
#[test]
fn one_command_measures_into_a_study_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let of_latency = ["bench", "latency", "--prompt-tokens", "4", "--output-tokens", "2", "--runs", "1"];
    let latency = [of_latency.as_slice(), &["--profiled", "0", "--out", out.to_str().unwrap()]].concat();
    let kernels = ["bench", "kernels", "--quick", "--warm", "--ops", "add", "--out", out.to_str().unwrap()];
    let peaks = ["bench", "peaks", "--quick", "--dtype", "f32", "--out", out.to_str().unwrap()];
    let batch = ["tune", "batch", "--quick", "--end", "2", "--out", out.to_str().unwrap()];
    let locked = || candlescope_core::files::lock_directory(&out).unwrap().expect("a lock");
    let refused = |args: &[&str]| {
        let told = fails(args);
        assert!(told.contains("another process is writing into it") && told.contains("--out"), "{args:?}: {told}");
        assert!(told.contains(out.to_str().unwrap()), "{args:?}: {told}");
    };
    fs::create_dir(&out).unwrap();
    let lock = locked();
    for args in [latency.as_slice(), &kernels, &peaks, &batch] {
        refused(args);
    }
    drop(lock);
    ok(&latency);
    let lock = locked();
    refused(&[latency.as_slice(), &["--resume"]].concat());
    drop(lock);
    ok(&[latency.as_slice(), &["--resume"]].concat());
}

#[test]
fn what_failed_is_tried_again_when_the_study_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "latency", "--prompt-tokens", "4", "--output-tokens", "2", "--runs", "2", "--profiled", "0"];
    let args = [args.as_slice(), &["--processes", "1", "--out", out.to_str().unwrap()]].concat();
    ok(&args);
    let journal = out.join("journal.jsonl");
    let written = fs::read_to_string(&journal).unwrap();
    let failed = written.replace("\"reason\":\"runs_reached\"", "\"reason\":\"failed\",\"detail\":\"no more handles\"");
    assert_ne!(failed, written);
    fs::write(&journal, failed).unwrap();
    ok(&[args.as_slice(), &["--resume"]].concat());
    assert_eq!((study(&out)["state"].as_str(), rows(&out).as_array().unwrap().len()), (Some("done"), 4));
}

/// The facts that the processes of a study find out are those that a `--resume` is held against.
#[test]
fn a_study_of_another_machine_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "latency", "--prompt-tokens", "4", "--output-tokens", "2", "--runs", "2", "--profiled", "0"];
    let args = [args.as_slice(), &["--processes", "1", "--out", out.to_str().unwrap(), "--resume"]].concat();
    ok(&args[..args.len() - 1]);
    ok(&args);
    let journal = out.join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let lines = text.lines().map(|line| {
        let mut line = json(line);
        if line["kind"] == "facts" {
            line["environment"]["cpu_available"] = 4096.into();
        }
        format!("{line}\n")
    });
    let elsewhere: String = lines.collect();
    fs::write(&journal, &elsewhere).unwrap();
    let before = fs::read(out.join("study.json")).unwrap();
    let error = fails(&args);
    assert!(error.contains("begun elsewhere (cpu_available was 4096, and now is "), "{error}");
    assert_eq!(fs::read(out.join("study.json")).unwrap(), before);
    assert_eq!(fs::read_to_string(&journal).unwrap(), elsewhere);
}

#[test]
fn mistakes_are_named_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let error = |args: &[&str]| fails(&[&["bench"], args, &["--out", out.to_str().unwrap()]].concat());
    for (args, words) in [
        (vec!["latency", "--model", "emebdded"], "config:NAME"),
        (vec!["latency", "--engine", "fast"], "auto, instrumented and candle"),
        (vec!["latency", "--dtype", "q4"], "f32, f16 or bf16"),
        (vec!["latency", "--runs", "0"], "--runs is 0"),
        (vec!["latency", "--prompt-tokens", "0"], "--prompt-tokens is 0"),
        (vec!["latency", "--time-limit", "-1"], "--time-limit"),
        (vec!["latency", "--time-limit", "8x"], "write 30s, 200ms or 2m"),
        (vec!["latency", "--processes", "0"], "--processes is 0"),
        (vec!["throughput", "--batches", "4-1"], "ends behind"),
        (vec!["throughput", "--batches", "99999999"], "at most 65536"),
        (vec!["seqlen", "--prompts", "x"], "no whole number"),
    ] {
        let text = error(&args);
        assert!(text.contains(words), "{args:?}: {text}");
    }
    assert!(!out.exists());
    // Found out by the process that measures, and told as one error.
    let text = error(&["latency", "--quick", "--device", "tpu"]);
    assert!(text.contains("device `tpu` is not known"), "{text}");
    let text = fails(&["bench", "latency", "--quick", "--out", "/proc/nowhere/s"]);
    assert!(text.contains("/proc/nowhere/s") && text.contains("cannot write"), "{text}");
}
