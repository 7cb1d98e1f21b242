//! `bench kernels` and `bench peaks`, end to end, and what reports make of measured peaks.
#![allow(missing_docs, reason = "a test")]
#![cfg(feature = "lab")]
mod common;
use candlescope_lab::peaks::{Condition, DeviceIdentity, PeakFigure, Peaks};
use candlescope_work::devices::PeakKind;
use common::*;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// With a cache directory of its own.
fn bench(cache: &Path, args: &[&str]) -> Output {
    candlescope().args(args).env("XDG_CACHE_HOME", cache).env_remove("CANDLESCOPE").output().unwrap()
}

fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn bad(output: &Output) -> String {
    let err = text(&output.stderr);
    assert!(!output.status.success() && err.contains("error:") && !err.contains("panicked"), "{err}");
    err
}

fn columns(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    text.lines().next().unwrap().split(',').map(str::to_string).collect()
}

fn kept(cache: &Path) -> Vec<std::path::PathBuf> {
    let dir = std::fs::read_dir(cache.join("candlescope").join("peaks"));
    dir.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Writes peaks of this machine, as a full `bench peaks` would keep them, and returns the file.
fn keep_peaks(cache: &Path) -> std::path::PathBuf {
    let figure = |kind, dtype: Option<&str>, condition, value: f64| PeakFigure {
        kind,
        dtype: dtype.map(str::to_string),
        condition,
        value,
        at: "8x8x8".to_string(),
        n: 3,
        range: (value, value),
        measured_ns: None,
    };
    let mut peaks = Peaks::new(DeviceIdentity::cpu());
    peaks.figures = vec![
        figure(PeakKind::Flops, Some("f32"), Some(Condition::Boost), 123e15),
        figure(PeakKind::Read, None, None, 456e15),
    ];
    let name = candlescope_lab::peaks::path(&peaks.device).unwrap();
    let path = cache.join("candlescope").join("peaks").join(name.file_name().unwrap());
    candlescope_lab::peaks::write_file(&path, &peaks).unwrap();
    path
}

#[test]
fn kernels_end_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, out) = (dir.path().join("cache"), dir.path().join("study"));
    keep_peaks(&cache);
    let args = ["bench", "kernels", "--quick", "--warm", "--runs", "2", "--profiled", "1", "--out"];
    let shown = good(&bench(&cache, &[&args[..], &[out.to_str().unwrap()]].concat()));
    assert!(shown.contains("gemm f32 m=8 n=32 k=16: ") && shown.contains("of what measured"), "{shown}");

    let wanted = "op,dtype,shape,cache,n,processes,clock,median_ns,median_low_ns,median_high_ns,mean_ns,stddev_ns,min_ns,\
                  max_ns,host_ns,kernel_ns,kernels,memory_bytes,flops,io_bytes,flops_per_s,bytes_per_s,intensity,\
                  attainable_flops_per_s,utilisation,roof,peak_label,peak_source,stop_reason,detail";
    assert_eq!(columns(&out.join("kernels.csv")).join(","), wanted);
    let rows = json(&std::fs::read_to_string(out.join("kernels.json")).unwrap());
    let rows = rows["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 23, "22 kernels, one of them in two types");
    for row in rows {
        assert_eq!((row["n"].as_u64(), row["clock"].as_str()), (Some(2), Some("host")), "{row}");
        assert_eq!((row["cache"].as_str(), row["stop_reason"].as_str()), (Some("warm"), Some("runs_reached")));
        assert!(
            row["min_ns"].as_f64() <= row["median_ns"].as_f64() && row["median_ns"].as_f64() <= row["max_ns"].as_f64()
        );
        assert_eq!(row["kernel_ns"], Value::Null, "a CPU has no kernels to record");
    }
    let of = |op: &str| rows.iter().find(|row| row["op"] == op).unwrap();
    let gemm = of("gemm");
    assert_eq!((gemm["flops"].as_u64(), gemm["io_bytes"].as_u64()), (Some(8192), Some(3584)));
    assert_eq!((gemm["peak_label"].as_str(), gemm["roof"].as_str()), (Some("measured"), Some("compute")));
    let rate = gemm["flops_per_s"].as_f64().unwrap();
    let seconds = gemm["median_ns"].as_f64().unwrap() / 1e9;
    assert!((rate - 8192.0 / seconds).abs() < 1e-6 * rate);
    let utilisation = gemm["utilisation"].as_f64().unwrap();
    assert!((utilisation - rate / gemm["attainable_flops_per_s"].as_f64().unwrap()).abs() < 1e-9 * utilisation);
    assert_eq!(of("qmatmul")["utilisation"], Value::Null, "no peak of a quantised type");
    assert_eq!(of("argmax")["flops"], Value::Null);

    // The page and the charts that other studies have: each kernel, and what was reached beside its roof.
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("</html>") && !page.contains("src=\"http"), "{page}");
    for shown in [
        "<th scope=\"row\">gemm</th>",
        "<th scope=\"row\">argmax</th>",
        "compute, measured",
        "share of the roof",
        "no peak to hold it",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert_eq!(page.matches("<figure>").count(), 2);
    for chart in ["roof", "bandwidth"] {
        let svg = std::fs::read_to_string(out.join(format!("charts/{chart}.svg"))).unwrap();
        assert!(
            svg.contains("f32, reached") && (chart != "roof" || svg.contains("f32, allowed by the peaks")),
            "{svg}"
        );
        assert!(std::fs::read(out.join(format!("charts/{chart}.png"))).unwrap().starts_with(b"\x89PNG"));
    }

    // Every repetition, with the sizes as columns, and the recorded ones' runs.
    let results = columns(&out.join("results.csv"));
    for name in ["case", "op", "dtype", "m", "rows", "host_ns", "flops_per_s", "bytes_per_s", "run"] {
        assert!(results.iter().any(|column| column == name), "{name}: {results:?}");
    }
    assert!(out.join("results.parquet").exists() && out.join("study.json").exists());
    let runs = std::fs::read_dir(out.join("runs")).unwrap().flatten().collect::<Vec<_>>();
    assert_eq!(runs.len(), 23);
    assert!(runs[0].path().join("run.json").exists());

    // A second one into the same directory is refused, unless it goes on with the first, which is done.
    let again = bad(&bench(&cache, &[&args[..], &[out.to_str().unwrap()]].concat()));
    assert!(again.contains("is not empty") && again.contains("--resume"), "{again}");
    good(&bench(&cache, &[&args[..], &[out.to_str().unwrap(), "--resume"]].concat()));
}

#[test]
fn kernels_say_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, out) = (dir.path().join("cache"), dir.path().join("study"));
    let out = out.to_str().unwrap();
    let fails = |args: &[&str]| bad(&bench(&cache, &[&["bench", "kernels", "--out", out], args].concat()));
    assert!(fails(&["--ops", "gem"]).contains("kernels are gemm, linear"));
    assert!(fails(&["--dtype", "f8"]).contains("types are f32, f16, bf16, q4_k, q8_0"));
    assert!(fails(&["--ops", "gemm", "--sizes", "rows=2"]).contains("gemm's, which are k, m, n"));
    assert!(fails(&["--ops", "gemm", "--dtype", "q4_k"]).contains("name a type among f32, f16, bf16"));
    assert!(fails(&["--device", "tpu"]).contains("devices are cpu and cuda:N"));
    assert!(fails(&["--peaks", "nowhere.json"]).contains("candlescope bench peaks"));
    assert!(!Path::new(out).exists(), "nothing is made for what cannot be measured");
    assert!(good(&bench(&cache, &["bench", "kernels", "--list"])).contains("attention_decode"));
}

/// Whoever asked for figures is told by the exit status that there are none.
#[test]
fn kernels_of_which_none_could_be_measured_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, out) = (dir.path().join("cache"), dir.path().join("study"));
    let too_large = ["--ops", "gemm", "--dtype", "f32", "--sizes", "m=1048576;n=1048576;k=1048576", "--warm"];
    let args = ["bench", "kernels", "--runs", "1", "--out", out.to_str().unwrap()];
    let refused = bench(&cache, &[&args[..], &too_large[..]].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stdout));
    let told = bad(&refused);
    assert!(told.contains("no case could be measured: ") && told.contains("13194.14 GB"), "{told}");
    // The study says the same.
    assert!(text(&refused.stdout).contains("refused"), "{}", text(&refused.stdout));
    assert!(out.join("kernels.csv").exists());
}

#[test]
fn peaks_end_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, out) = (dir.path().join("cache"), dir.path().join("study"));
    let args = ["bench", "peaks", "--quick", "--json", "--dtype", "f32", "--out", out.to_str().unwrap()];
    let shown = json(&good(&bench(&cache, &args)));
    assert_eq!(shown["kept"], Value::Null, "figures of a quick run are no peaks");
    assert_eq!(kept(&cache), Vec::<std::path::PathBuf>::new());
    assert_eq!(columns(&out.join("peaks.csv")).join(","), "peak,dtype,condition,value,unit,at,n,min,max,label,reason");
    let peaks = json(&std::fs::read_to_string(out.join("peaks.json")).unwrap());
    assert_eq!((peaks["format"].as_str(), &peaks["device"]["kind"]), (Some("candlescope-peaks"), &Value::from("cpu")));
    let (flops, read) = (largest(&peaks, "flops"), largest(&peaks, "read"));
    let ridge = peaks["ridge"]["f32"].as_f64().unwrap();
    assert!((ridge - flops / read).abs() < 1e-9 * ridge);
    assert!(peaks["absent"].as_array().unwrap().iter().any(|row| row["kind"] == "graph_gap"));
    assert!(columns(&out.join("results.csv")).iter().any(|column| column == "value"));
}

fn largest(peaks: &Value, kind: &str) -> f64 {
    let of = peaks["figures"].as_array().unwrap().iter().filter(|figure| figure["kind"] == kind);
    of.map(|figure| figure["value"].as_f64().unwrap()).fold(0.0, f64::max)
}

#[test]
fn a_profile_has_the_measured_peaks_of_its_device() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let profile = |name: &str| {
        let run = dir.path().join(name);
        let args = ["--max-new-tokens", "4", "--repeats", "1", "--warmup", "0", "--ignore-eos", "--out"];
        let output = bench(&cache, &[&["profile"], &args[..], &[run.to_str().unwrap()]].concat());
        (output, run)
    };
    let (output, run) = profile("before");
    good(&output);
    assert_eq!(manifest(&run)["environment"].get("measured_peaks"), None, "none have been measured");

    let file = keep_peaks(&cache);
    let (output, run) = profile("after");
    let summary = good(&output);
    assert!(summary.contains("MFU of prefill (measured)") && summary.contains("MBU of decode (measured)"), "{summary}");
    let recorded = manifest(&run)["environment"]["measured_peaks"].clone();
    assert_eq!((recorded[0]["value"].as_f64(), recorded[1]["value"].as_f64()), (Some(123e15), Some(456e15)));
    assert!(recorded[0]["source"].as_str().unwrap().contains("measured on"));
    let report = std::fs::read_to_string(run.join("operators.md")).unwrap();
    assert!(report.contains("MFU (measured)") && report.contains("MBU (measured)"));

    // Runs made before have none in their files, and get those that are kept of their device: in findings, and in reports.
    let before = dir.path().join("before");
    let name = before.to_str().unwrap();
    let analyzed = |more: &[&str]| good(&bench(&cache, &[&["analyze", name, "--top", "0"], more].concat()));
    assert!(!analyzed(&[]).contains("measure them once"), "{}", analyzed(&[]));
    let summary = good(&bench(&cache, &["report", name, "--out", dir.path().join("report").to_str().unwrap()]));
    assert!(summary.contains("MBU of decode (measured)"), "{summary}");
    assert_eq!(manifest(&before)["environment"].get("measured_peaks"), None, "the run stays as it is");
    // A file of peaks is used without a scenario, too, and one that cannot be is refused.
    let nothing = dir.path().join("nothing");
    let with = |cache: &Path, file: &str| bench(cache, &["analyze", name, "--top", "0", "--peaks", file]);
    let alone = good(&bench(&nothing, &["analyze", name, "--top", "0"]));
    assert!(alone.contains("measure them once"), "{alone}");
    let given = good(&with(&nothing, file.to_str().unwrap()));
    assert!(!given.contains("measure them once"), "{given}");
    let wrong = dir.path().join("wrong.json");
    std::fs::write(&wrong, "{}").unwrap();
    assert!(bad(&with(&nothing, wrong.to_str().unwrap())).contains("wrong.json"));

    // Peaks of another device, or a damaged file, are never used: nothing runs.
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replace("\"kind\": \"cpu\"", "\"kind\": \"cuda\"")).unwrap();
    let (output, run) = profile("other");
    let message = bad(&output);
    assert!(message.contains("holds peaks of") && message.contains(file.to_str().unwrap()), "{message}");
    assert!(!run.exists());
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let message = bad(&profile("damaged").0);
    assert!(message.contains("does not hold measured peaks") && message.contains("bench peaks"), "{message}");
}

#[test]
fn recorded_requests_of_a_benchmark_have_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let latency = |name: &str| {
        let study = dir.path().join(name);
        let out = study.to_str().unwrap();
        (bench(&cache, &["bench", "latency", "--quick", "--no-progress", "--out", out]), study)
    };
    let answers = |study: &Path| {
        let metrics = json(&std::fs::read_to_string(study.join("baseline_metrics.json")).unwrap());
        let find = |answers: &Value| answers.as_array().unwrap().iter().find(|a| a["code"] == "bound").unwrap().clone();
        find(&metrics["answers"])
    };
    let (output, study) = latency("before");
    good(&output);
    let answer = answers(&study);
    assert!(answer["answer"].as_str().unwrap().contains("no peaks of this device are known"), "{answer}");

    let file = keep_peaks(&cache);
    let (output, study) = latency("after");
    good(&output);
    let run = std::fs::read_dir(study.join("runs")).unwrap().next().unwrap().unwrap().path();
    assert_eq!(manifest(&run)["environment"]["measured_peaks"][1]["value"].as_f64(), Some(456e15));
    let answer = answers(&study);
    let phases = answer["figures"]["phases"].as_array().unwrap();
    assert_eq!(phases.iter().map(|row| row["phase"].as_str().unwrap()).collect::<Vec<_>>(), ["prefill", "decode"]);
    for row in phases {
        assert_eq!((&row["roof"], &row["bound"]), (&"measured".into(), &"overhead".into()), "{row}");
        assert!((row["ridge"].as_f64().unwrap() - 123.0 / 456.0).abs() < 1e-9, "{row}");
    }
    let text = answer["answer"].as_str().unwrap();
    assert!(text.contains("What bounds decode: neither memory nor computing"), "{text}");
    let page = std::fs::read_to_string(study.join("report.html")).unwrap();
    assert!(page.contains("<span>machine: cpu: ") && page.contains(" cores"), "what it ran on");

    // A file of peaks that cannot be used is told before minutes of measuring.
    std::fs::write(&file, "half a file").unwrap();
    let (output, study) = latency("damaged");
    assert!(bad(&output).contains("does not hold measured peaks") && !study.exists());
}

#[test]
fn an_interrupt_of_kernels_keeps_what_there_is_and_names_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, out) = (dir.path().join("cache"), dir.path().join("study"));
    let args =
        ["bench", "kernels", "--ops", "gemm,linear,softmax,gelu,swiglu,add,rmsnorm", "--runs", "16000000", "--warm"];
    let sizes = ["--sizes", "m=8;n=8;k=8;rows=1;width=8", "--profiled", "0", "--out", out.to_str().unwrap()];
    let mut command = candlescope();
    command.args(args).args(sizes).env("XDG_CACHE_HOME", &cache);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let journal = out.join("journal.jsonl");
    let sampled =
        || std::fs::read_to_string(&journal).is_ok_and(|text| text.matches("\"kind\":\"sample\"").count() > 20);
    wait_until(sampled, "some samples");
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let (shown, told) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!(ended.status.code(), Some(130), "{shown}{told}");
    assert!(told.contains("keeps what was measured") && !told.contains("error:"), "{told}");
    // Four cases are measured at once; the others were not begun and have no line.
    let cases: Vec<&str> = shown.lines().filter(|line| line.contains(" f32 ")).collect();
    assert!((1..=4).contains(&cases.len()), "{shown}");
    assert!(cases.iter().all(|line| line.contains("B/s")), "each has figures: {shown}");
    assert!(out.join("kernels.csv").exists());
}

#[test]
fn results_without_a_place_have_a_directory_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |args: &[&str]| {
        let mut command = candlescope();
        let output =
            command.args(args).env("XDG_CACHE_HOME", dir.path().join("cache")).current_dir(dir.path()).output();
        output.unwrap()
    };
    let kernels = ["bench", "kernels", "--quick", "--warm", "--ops", "add", "--runs", "1"];
    good(&bench(&kernels));
    good(&bench(&kernels));
    good(&bench(&["bench", "latency", "--quick", "--profiled", "0"]));
    good(&bench(&["tune", "batch", "--end", "2", "--quick"]));
    let mut made: Vec<String> = std::fs::read_dir(dir.path().join("results"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(char::is_numeric).to_string())
        .collect();
    made.sort();
    assert_eq!(made, ["kernels-", "kernels-", "latency-", "tune-batch-"]);
    let refused = bad(&bench(&["bench", "latency", "--quick", "--resume"]));
    assert!(refused.contains("--resume") && refused.contains("--out"), "{refused}");
}

/// Weights of 8 bits are multiplied in 8 bits, for which `bench peaks` has no figure on a CPU.
#[test]
fn a_quantised_model_stands_under_the_roof_of_wider_types() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (cache, keep, study) = (dir.path().join("cache"), path("files"), path("study"));
    keep_peaks(&cache);
    let variants = ["bench", "variants", "--quick", "--variants", "q8_0", "--no-quality", "--profiled", "0"];
    good(&bench(&cache, &[&variants[..], &["--keep", &keep, "--out", &path("variants")]].concat()));
    let model = format!("{keep}/model.q8_0.gguf");
    let latency = ["bench", "latency", "--quick", "--no-progress", "--model", &model, "--out", &study];
    good(&bench(&cache, &latency));
    let metrics = json(&std::fs::read_to_string(Path::new(&study).join("baseline_metrics.json")).unwrap());
    let answer = metrics["answers"].as_array().unwrap().iter().find(|answer| answer["code"] == "bound").unwrap();
    for phase in answer["figures"]["phases"].as_array().unwrap() {
        assert_eq!(
            (&phase["flops_stand_in"], &phase["bound"]),
            (&"f32 for int8".into(), &"overhead".into()),
            "{phase}"
        );
        assert!(phase["share_of_roof"].is_number() && phase["why_not_known"].is_null(), "{phase}");
    }
    assert!(answer["answer"].as_str().unwrap().contains("with FLOP/s of f32 for int8"), "{answer}");
}
