//! What bounds a phase, from made runs whose figures are known.

use candlescope::parquet::{ParquetConfig, ParquetExporter};
use candlescope_core::run::{GpuAccount, KernelAccount, RunManifest};
use candlescope_core::{Batch, Exporter, GpuSource, GpuTime, Ledger, Phase};
use candlescope_lab::method::*;
use candlescope_lab::study::{Manifest, Records, summaries};
use candlescope_lab::suites::{Answer, answers, baseline_metrics};
use candlescope_testkit::records::{kernel_of, manifest, span, step};
use serde_json::{Value, json};
use std::path::Path;

const MS: u64 = 1_000_000;

/// Ten decoding steps of 10 ms that do 80 MFLOP on 80 MB each. With `kernels`, each has one of so many milliseconds.
fn decoding(kernels: Option<u64>) -> Batch {
    recorded(kernels, 10)
}

/// The same with kernels of the first `of` steps only.
fn recorded(kernels: Option<u64>, of: u64) -> Batch {
    let mut batch = Batch::default();
    for at in 0..10u64 {
        let start = (10 * at * MS) as i64;
        let mut made = step(at, "decode", start, 10 * MS);
        (made.phase, made.tokens, made.batch) = (Some(Phase::Decode), Some(1), Some(1));
        (made.flops, made.bytes, made.io_bytes) = (Some(80_000_000), Some(70_000_000), Some(80_000_000));
        let mut whole = span(at, None, "decode", start, 10 * MS);
        (whole.step, whole.phase) = (Some(at), Some(Phase::Decode));
        if let Some(ms) = kernels.filter(|_| at < of) {
            batch.kernels.push(kernel_of(&whole, "GPU-1", ms * MS));
            let time = GpuTime { start: whole.host_start, dur_ns: ms * MS, source: GpuSource::Cupti };
            (made.gpu, whole.gpu) = (Some(time), Some(time));
        }
        batch.steps.push(made);
        batch.spans.push(whole);
    }
    batch
}

fn bandwidth(label: &str, value: f64) -> Value {
    json!({ "kind": "bandwidth", "value": value, "label": label, "source": "made up" })
}

fn flops(label: &str, value: f64) -> Value {
    json!({ "kind": "flops", "value": value, "label": label, "source": "made up", "dtype": "f32" })
}

fn write(run: &Path, batch: &Batch, peaks: Value, measured: Value) {
    let mut manifest: RunManifest = manifest(batch);
    manifest.environment.insert("peaks".into(), peaks);
    manifest.environment.insert("measured_peaks".into(), measured);
    manifest.model = [("dtype".to_string(), json!("f32")), ("quantization".to_string(), json!("f32"))].into();
    if !batch.kernels.is_empty() {
        let kernels = KernelAccount { clock_bound_ns: Some(100), ..KernelAccount::default() };
        manifest.gpu = Some(GpuAccount { kernels: Some(kernels), ..GpuAccount::default() });
    }
    std::fs::create_dir_all(run).unwrap();
    let (mut exporter, ledger) = (ParquetExporter::new(ParquetConfig::new(run)), Ledger::new());
    exporter.start(&manifest).unwrap();
    ledger.received(batch);
    exporter.export(batch, &ledger).unwrap();
    exporter.close(&ledger).unwrap();
    exporter.finish(&manifest).unwrap();
}

/// A request of the case with so many tokens of prompt, whose tokens take `tpot_ms`; a recorded one if it has a run.
fn request(prompt: u64, tpot_ms: f64, run: Option<&str>) -> Sample {
    let case = CaseId::new("latency").param("batch", 1u64).param("prompt_tokens", prompt).param("output_tokens", 11u64);
    let mut measurement = Measurement::new(100 * MS).figure("ttft_ns", 5e6).figure("tpot_ns", tpot_ms * 1e6);
    measurement = measurement.figure("prefill_tps", 1600.0);
    measurement.run = run.map(str::to_string);
    let mode = if run.is_some() { Mode::Profiled } else { Mode::Plain };
    let (reading, verdict) = (Reading::default(), SampleVerdict::Ok);
    Sample { case, process: 0, repetition: 0, mode, ended_ns: 1, measurement, reading, verdict }
}

fn answered(study: &Path, samples: Vec<Sample>, code: &str) -> Answer {
    let mut ids: Vec<CaseId> = Vec::new();
    for sample in &samples {
        if !ids.contains(&sample.case) {
            ids.push(sample.case.clone());
        }
    }
    let summaries = summaries(&ids, &Records { samples, ..Records::default() });
    answers(study, &summaries).into_iter().find(|answer| answer.code == code).unwrap()
}

/// One case, whose plain requests take `tpot_ms` a token.
fn one(tpot_ms: f64, kernels: Option<u64>, peaks: Value, measured: Value) -> Answer {
    let study = tempfile::tempdir().unwrap();
    write(&study.path().join("runs/a"), &decoding(kernels), peaks, measured);
    answered(study.path(), vec![request(8, tpot_ms, None), request(8, 10.0, Some("runs/a"))], "bound")
}

#[test]
fn a_processor_s_share_of_its_roof_is_over_the_time_of_plain_requests() {
    // 80 MB in the 5 ms that a token takes are 16 of 20 GB/s measured; of the datasheet's 40 GB/s it would be less.
    let peaks = || json!([flops("datasheet", 2e12), bandwidth("datasheet", 40e9)]);
    let measured = || json!([flops("measured", 1e12), bandwidth("measured", 20e9)]);
    let memory = one(5.0, None, peaks(), measured());
    let found = &memory.figures["phases"][0];
    assert_eq!((&found["bound"], &found["roof"]), (&json!("memory"), &json!("measured")), "{found}");
    assert!((found["share_of_roof"].as_f64().unwrap() - 0.8).abs() < 1e-9, "{found}");
    let text = "What bounds decode: memory (1.00 FLOP/B, the ridge at 50; 80 % of the roof at that intensity \
                (measured) over the time in plain requests).";
    assert_eq!(memory.text, text);
    // Both peaks are denominators, in the recorded request: 7 GB/s of 20 and of 40.
    let mbu: Vec<(&str, f64)> = memory.figures["utilisation"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["metric"] == "MBU" && row["over"] == "wall")
        .map(|row| (row["label"].as_str().unwrap(), row["ratio"].as_f64().unwrap()))
        .collect();
    assert_eq!(mbu.iter().map(|row| row.0).collect::<Vec<_>>(), ["datasheet", "measured"]);
    assert!((mbu[0].1 - 0.175).abs() < 1e-9 && (mbu[1].1 - 0.35).abs() < 1e-9, "{mbu:?}");

    // As slow as it was recorded: 8 of 20 GB/s, far from any roof.
    let neither = one(10.0, None, peaks(), measured());
    assert_eq!(neither.figures["phases"][0]["bound"], "overhead", "{}", neither.text);
    assert!(neither.text.contains("neither memory nor computing"), "{}", neither.text);
    // Computing: the ridge at 0.1 FLOP/B, 16 of 20 GFLOP/s.
    let computing = one(5.0, None, json!([]), json!([flops("measured", 20e9), bandwidth("measured", 200e9)]));
    assert!(
        computing.text.starts_with("What bounds decode: compute (1.00 FLOP/B, the ridge at 0.10;"),
        "{}",
        computing.text
    );
    // More than the roof allows is an error of measurement, and nothing is told.
    let above = one(2.0, None, json!([]), measured());
    assert!(above.figures["phases"][0]["bound"].is_null(), "{}", above.text);
    assert!(above.text.contains("these are more than the roof allows"), "{}", above.text);
    assert!(above.text.contains("200 % of the roof"), "{}", above.text);
    // A type that was not measured has the roof of the datasheet.
    let sheet = json!([flops("datasheet", 1e12), bandwidth("datasheet", 20e9)]);
    let only = one(5.0, None, sheet, json!([bandwidth("measured", 20e9)]));
    let found = &only.figures["phases"][0];
    assert_eq!((&found["bound"], &found["roof"]), (&json!("memory"), &json!("datasheet")), "{found}");
    // Without peaks: where the work stands, and what to do.
    let bare = one(5.0, None, json!([]), json!([]));
    assert!(
        bare.text.contains("not known (1.00 FLOP/B): no peaks") && bare.text.contains("bench peaks"),
        "{}",
        bare.text
    );
    assert!(bare.text.contains("(1.00 FLOP/B)"), "{}", bare.text);
}

#[test]
fn a_gpu_that_waits_for_launches_is_bound_by_them() {
    // Kernels of 2 ms: 80 MB in them are 40 of 50 GB/s.
    let peaks = || json!([flops("datasheet", 1e12), bandwidth("datasheet", 50e9)]);
    let waits = one(4.0, Some(2), peaks(), json!([]));
    let found = &waits.figures["phases"][0];
    assert_eq!((&found["bound"], &found["kernels_share"]), (&json!("host"), &json!(0.5)), "{found}");
    let text = "What bounds decode: launches on the host (kernels run for 50 % of the time of a token; 1.00 FLOP/B, the \
                ridge at 20; 80 % of the roof at that intensity (datasheet) over the time of kernels).";
    assert_eq!(waits.text, text);
    // Kernels for 80 % of a token's time: what they do is what counts, however long recording made the steps.
    let busy = one(2.5, Some(2), peaks(), json!([]));
    assert_eq!(busy.figures["phases"][0]["bound"], "memory", "{}", busy.text);
    let far = one(2.5, Some(2), json!([flops("datasheet", 1e12), bandwidth("datasheet", 100e9)]), json!([]));
    assert_eq!(far.figures["phases"][0]["bound"], "overhead", "40 % of the roof: {}", far.text);
}

/// With several requests under way, what a request waits has steps of others in it.
#[test]
fn requests_that_are_under_way_together_tell_nothing_of_a_step_s_time() {
    let study = tempfile::tempdir().unwrap();
    let peaks = json!([flops("datasheet", 1e12), bandwidth("datasheet", 50e9)]);
    write(&study.path().join("runs/a"), &decoding(Some(2)), peaks, json!([]));
    let together = |run: Option<&str>| {
        let mut sample = request(8, 4.0, run);
        sample.measurement.figures.remove("prefill_tps");
        sample
    };
    let found = answered(study.path(), vec![together(None), together(Some("runs/a"))], "bound");
    let phase = &found.figures["phases"][0];
    assert_eq!((&phase["bound"], &phase["kernels_share"]), (&json!("memory"), &Value::Null), "{}", found.text);
}

/// Marks without kernels: gaps between launches are in the time of the stream.
#[test]
fn without_kernels_waiting_is_not_told_from_working() {
    let study = tempfile::tempdir().unwrap();
    let mut batch = decoding(None);
    for (span, step) in batch.spans.iter_mut().zip(&mut batch.steps) {
        let time = GpuTime { start: span.host_start, dur_ns: 8 * MS, source: GpuSource::Event };
        (span.gpu, step.gpu) = (Some(time), Some(time));
    }
    let peaks = json!([flops("datasheet", 1e12), bandwidth("datasheet", 50e9)]);
    write(&study.path().join("runs/a"), &batch, peaks, json!([]));
    let found = answered(study.path(), vec![request(8, 4.0, None), request(8, 10.0, Some("runs/a"))], "bound");
    assert!(found.figures["phases"][0]["bound"].is_null(), "{}", found.text);
    assert!(found.text.contains("kernels were not recorded") && found.text.contains("in the stream"), "{}", found.text);
}

/// Ten kernels of 2 ms in a plain request of 100 ms, whether all of them were recorded or some.
#[test]
fn steps_with_kernels_stand_for_those_without() {
    for of in [10, 4] {
        let study = tempfile::tempdir().unwrap();
        write(&study.path().join("runs/a"), &recorded(Some(2), of), json!([]), json!([]));
        let found = answered(study.path(), vec![request(8, 4.0, None), request(8, 10.0, Some("runs/a"))], "gpu_busy");
        let busy = found.figures["cases"][0]["busy"].as_f64().unwrap();
        assert!((busy - 0.2).abs() < 1e-9, "{of} steps: {busy}");
        assert!(found.text.ends_with("(under-used)."), "a single case is no range: {}", found.text);
    }
}

#[test]
fn cases_that_differ_are_counted_with_their_ranges() {
    let study = tempfile::tempdir().unwrap();
    let peaks = || json!([flops("datasheet", 1e12), bandwidth("datasheet", 50e9)]);
    for run in ["a", "b", "c"] {
        write(&study.path().join("runs").join(run), &decoding(Some(2)), peaks(), json!([]));
    }
    let cases = [(8, 4.0, "runs/a"), (16, 5.0, "runs/b"), (32, 2.5, "runs/c")];
    let samples = |(prompt, tpot, run)| [request(prompt, tpot, None), request(prompt, 10.0, Some(run))];
    let all = answered(study.path(), cases.into_iter().flat_map(samples).collect(), "bound");
    assert!(all.text.contains("launches on the host in 2 of 3 cases (kernels run for 40 to 50 % of"), "{}", all.text);
    assert!(all.text.contains("; memory in 1 of 3 cases (kernels run for 80 %"), "{}", all.text);
    assert_eq!(all.figures["phases"].as_array().map(Vec::len), Some(3));
}

/// What a study of a GPU says of memory and energy is not what one of a processor says.
#[test]
fn figures_name_the_device_that_they_are_of() {
    let metrics = |device: &str, host_ms: u64| {
        let mut sample = request(8, 5.0, None);
        (sample.measurement.host_ns, sample.measurement.memory_bytes) = (host_ms * MS, Some(1 << 20));
        let ids = [sample.case.clone()];
        let mut manifest = Manifest::new("one", ids.to_vec(), &Method::default()).option("device", device);
        manifest.environment.insert("cpu_model".into(), "a processor".into());
        if device != "cpu" {
            manifest.environment.insert("gpus".into(), json!([{ "name": "NVIDIA H200", "uuid": "GPU-1" }]));
        }
        let summaries = summaries(&ids, &Records { samples: vec![sample], ..Records::default() });
        baseline_metrics(&manifest, &summaries, &[])
    };
    let of = |metrics: &Value, key: &str| metrics["efficiency"][key].as_str().unwrap().to_string();
    let (cpu, gpu) = (metrics("cpu", 500), metrics("cuda:0", 500));
    assert!(of(&cpu, "peak_memory_of").contains("VmHWM") && of(&gpu, "peak_memory_of").contains("device memory"));
    assert!(of(&cpu, "energy_absent").contains("no sensor"), "{cpu}");
    assert!(of(&gpu, "energy_absent").contains("less than the 1 s"), "{gpu}");
    assert!(of(&metrics("cuda:0", 1_500), "energy_absent").contains("no sensor"), "a long one would have had it");
    assert_eq!((&cpu["machine"], &gpu["machine"]), (&json!("a processor"), &json!("a processor, NVIDIA H200")));
}
