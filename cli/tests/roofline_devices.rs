//! `candlescope roofline` for several devices, for this machine, and for models in files.
#![allow(missing_docs, reason = "a test")]
mod common;
use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use common::*;
use std::fs;
use std::path::Path;

#[test]
fn devices_make_a_table_with_prices() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let args = ["roofline", "qwen2.5-7b", "--gpu", "T4,A100,MI300X", "--price", "0.35,1.2,2"];
    let text = ok(&[&args[..], &["--out", out]].concat());
    for shown in ["T4", "A100-80GB-SXM", "MI300X", "output token", "price an hour", "of 10⁶ tokens", "≥ "] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let told = json(&fs::read_to_string(dir.path().join("devices.json")).unwrap());
    assert_eq!(told["devices"].as_array().map(Vec::len), Some(3));
    assert_eq!(told["devices"][0]["price_per_hour"], 0.35);
    assert_eq!(told["devices"][0]["fits"], false);
    let alone = json(&ok(&["roofline", "qwen2.5-7b", "--gpu", "A100", "--json"]));
    assert_eq!(told["devices"][1]["tpot_ns"], alone["decode"]["ns"], "as of the device alone");
    assert!(fs::read_to_string(dir.path().join("roofline.html")).unwrap().contains("MI300X"));
    let says = |args: &[&str], part: &str| {
        let message = fails(&[&["roofline", "gpt2"], args].concat());
        assert!(message.contains(part), "{args:?}: {message}");
    };
    says(&["--gpu", "T4,L4", "--price", "1"], "1 prices for 2 devices");
    says(&["--gpu", "T4,L44"], "did you mean");
    says(&["--gpu"], "bench peaks");
    says(&["--gpu", "T4", "--memory-share", "1.5"], "--memory-share");
}

/// The header of a file of which the tensors are never read.
fn gguf(path: &Path) {
    let tensor = |rows: usize, dtype: GgmlDType| {
        let plain = Tensor::zeros((rows, 64), DType::F32, &Device::Cpu).unwrap();
        QTensor::quantize(&plain, dtype).unwrap()
    };
    let text = |text: &str| Value::String(text.to_string());
    let metadata = [
        ("general.architecture", text("llama")),
        ("general.name", text("a tiny one")),
        ("llama.embedding_length", Value::U32(64)),
        ("llama.block_count", Value::U32(2)),
        ("llama.attention.head_count", Value::U32(4)),
        ("llama.attention.head_count_kv", Value::U32(2)),
        ("llama.feed_forward_length", Value::U32(128)),
        ("llama.context_length", Value::U32(256)),
    ];
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    // 6,144 values of 5 bits and 2,048 of 8.5: 5.875 on average.
    let (table, other) = (tensor(96, GgmlDType::Q4_1), tensor(32, GgmlDType::Q8_0));
    let tensors = [("token_embd.weight", &table), ("blk.0.attn_k.weight", &other)];
    write(&mut fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
}

#[test]
fn a_model_in_a_file_is_known_by_its_header() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tiny.gguf");
    gguf(&file);
    let told = json(&ok(&["roofline", file.to_str().unwrap(), "--gpu", "L4", "--json"]));
    let model = &told["model"];
    let sizes = ["vocab", "hidden", "layers", "heads", "kv_heads", "head_dim"].map(|key| model[key].as_u64().unwrap());
    assert_eq!(sizes, [96, 64, 2, 4, 2, 16]);
    assert_eq!(model["tied"], true);
    let weights = &told["scenario"]["weights"];
    assert_eq!((weights["name"].as_str(), weights["bits"].as_f64()), (Some("q4_1"), Some(5.875)));
    assert!(told["warnings"][0].as_str().unwrap().contains("256"), "a prompt of 512 is beyond its context");
    let said = told["warnings"].as_array().unwrap().iter().any(|w| w.as_str().unwrap().contains("5.88 bits"));
    assert!(said, "several types: {told}");
    let one = json(&ok(&["roofline", file.to_str().unwrap(), "--gpu", "L4", "--dtype", "q4_1", "--json"]));
    assert_eq!(one["scenario"]["weights"]["bits"], 5.0);
    // One that is elsewhere, as a server names it.
    let named = json(&ok(&["roofline", "/models/SmolLM2-135M-Instruct-Q4_K_M.gguf", "--gpu", "L4", "--json"]));
    assert_eq!(named["model"]["name"], "smollm2-135m");
    assert_eq!(named["scenario"]["weights"]["name"], "q4_k");
    for (name, format) in [("TheBloke/Llama-2-7B-AWQ", "int4"), ("config:tinyllama-1.1b", "bf16")] {
        let told = json(&ok(&["roofline", name, "--gpu", "L4", "--json"]));
        assert_eq!(told["scenario"]["weights"]["name"], format, "{name}");
    }
    let unsaid = ok(&["roofline", "TheBloke/Llama-2-7B-GGUF", "--gpu", "L4"]);
    assert!(unsaid.contains("--dtype q4_k"), "{unsaid}");
    let embedded = json(&ok(&["roofline", "config:embedded", "--gpu", "L4", "--json"]));
    assert_eq!(embedded["parameters"], 853_888);
}

/// Peaks that are kept of this machine are taken where none is named, and for runs of any program.
#[test]
fn kept_peaks_are_this_machines() {
    let dir = tempfile::tempdir().unwrap();
    let cached = |args: &[&str]| {
        let output = candlescope().args(args).env("XDG_CACHE_HOME", dir.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    // Recorded before anything was measured.
    cached(&["profile", "--out", run, "--max-new-tokens", "4", "--repeats", "1", "--warmup", "0"]);
    let manifest = json(&fs::read_to_string(dir.path().join("run/run.json")).unwrap());
    let environment = &manifest["environment"];
    assert!(environment["measured_peaks"].is_null());
    let device = serde_json::json!({ "kind": "cpu", "id": environment["cpu_model"], "name": environment["cpu_model"],
        "host": manifest["host"] });
    let name = format!("cpu-{}-{}", environment["cpu_model"].as_str().unwrap(), manifest["host"].as_str().unwrap());
    let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(180).map(keep).collect();
    let figure = |kind: &str, dtype: Option<&str>, value: f64| {
        let mut figure =
            serde_json::json!({ "kind": kind, "value": value, "at": "a test", "n": 5, "range": [value, value] });
        if let Some(dtype) = dtype {
            figure["dtype"] = dtype.into();
        }
        figure
    };
    let peaks = serde_json::json!({
        "format": "candlescope-peaks", "format_version": 1, "device": device, "candle": "0.11.1", "measured_ns": 1,
        "threads": 2, "absent": [],
        "figures": [figure("flops", Some("f32"), 1e15), figure("read", None, 1e15)],
    });
    let place = dir.path().join("candlescope/peaks");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join(name + ".json"), peaks.to_string()).unwrap();

    let told = json(&cached(&["roofline", "smollm2-135m", "--gpu", "--json"]));
    assert_eq!(told["device"]["bandwidth"], 1e15);
    assert_eq!(told["device"]["origin"], "measured");
    let bare = json(&cached(&["roofline", "smollm2-135m", "--json"]));
    assert_eq!(bare["device"], told["device"]);
    let held = json(&cached(&["roofline", run, "--json"]));
    assert_eq!(held["runs"][0]["roofs"][0]["origin"], "measured", "{}", held["runs"][0]["roofs"]);
    // A run on this processor is not held against a GPU.
    let other = cached(&["roofline", run, "--gpu", "L4"]);
    assert!(other.contains("L4 is not the device of this run"), "{other}");
    // The prediction that was asked for follows.
    assert!(other.contains("device   L4 · "), "{other}");
}
