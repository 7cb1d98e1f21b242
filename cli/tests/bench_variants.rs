//! `candlescope bench variants`, end to end with the embedded model.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::fs;
use std::path::{Path, PathBuf};

fn read(dir: &Path, name: &str) -> serde_json::Value {
    json(&fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The variant's object in one of the files of results.
fn variant(dir: &Path, file: &str, name: &str) -> serde_json::Value {
    let all = read(dir, file)["variants"].as_array().unwrap().clone();
    all.into_iter().find(|own| own["variant"] == name).unwrap_or_else(|| panic!("{name} in {file}"))
}

#[test]
fn a_quick_study_from_weights_to_report() {
    let dir = tempfile::tempdir().unwrap();
    let (out, keep, text) = (dir.path().join("study"), dir.path().join("files"), dir.path().join("text.txt"));
    fs::write(&text, "A text that is long enough for two pieces of sixty-four bytes each. ".repeat(3)).unwrap();
    let said = ok(&[
        "bench",
        "variants",
        "--quick",
        "--variants",
        "no_cache,q8_0,q4_k",
        "--text",
        text.to_str().unwrap(),
        "--keep",
        keep.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(said.contains("f32 with KV cache: ") && said.contains("INT8 (Q8_0): "), "{said}");
    assert!(said.contains("4 bits (Q4_K): absent; ") && said.contains("report.html"), "{said}");

    let q8 = variant(&out, "quantization_results.json", "q8_0");
    assert_eq!((&q8["latency_ms"]["n"], &q8["outcome"]), (&3.into(), &"ok".into()), "{q8}");
    assert!(q8["quality"]["kl"]["mean"]["value"].as_f64().unwrap() > 0.0, "{q8}");
    assert!(q8["energy_mj"].is_null() || q8["energy_mj"].as_f64().unwrap() > 0.0);
    assert!(variant(&out, "baseline_results.json", "kv_cache")["speedup_over_no_cache"]["ratio"].is_number());
    let q4 = variant(&out, "quantization_results.json", "q4_k");
    assert!(q4["latency_ms"].is_null() && q4["absent"].as_str().unwrap().contains("128"), "{q4}");
    for file in ["traces/trace_no_cache.json", "traces/trace_with_cache.json"] {
        let events = read(&out, file)["traceEvents"].as_array().map_or(0, Vec::len);
        assert!(events > 100, "{file} has {events} events");
    }
    let report = fs::read_to_string(out.join("profiling_report.md")).unwrap();
    for part in ["## Quality", "The weights are random", "text.txt", "## Where it begins to differ", "## Absent"] {
        assert!(report.contains(part), "{part} in {report}");
    }
    let operators = ["### Operators, f32 without KV cache", "### Operators, f32 with KV cache", "self time a request"];
    for part in operators.into_iter().chain(["What bounds", "### Layers without and with the cache", "| less by |"]) {
        assert!(report.contains(part), "{part} in {report}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let links: Vec<&str> = page.split("href=\"runs/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 2, "{page}");
    for link in &links {
        assert!(out.join("runs").join(link).is_file(), "{link}");
    }
    // Which of them has no cache, its own run says.
    let of =
        |found: &serde_json::Value| found["findings"].as_array().unwrap().iter().any(|one| one["code"] == "recomputed");
    let recomputes: Vec<bool> = links
        .iter()
        .map(|link| {
            of(&json(&ok(&["analyze", out.join("runs").join(link).parent().unwrap().to_str().unwrap(), "--json"])))
        })
        .collect();
    assert_eq!(recomputes.iter().filter(|recomputes| **recomputes).count(), 1, "{links:?}: {recomputes:?}");
    assert!(page.contains("<svg") && page.contains("<th>operator</th>") && !page.contains("| less by |"), "{page}");
    // Recorded repetitions are in the tables of the study too.
    let rows = read(&out, "results.json")["rows"].clone();
    assert_eq!(rows.as_array().unwrap().iter().filter(|row| row["profiled"] == true).count(), 2, "one of each base");
    assert!(!out.join("variant_files").exists(), "files to run from are gone");
    let kept: Vec<String> =
        fs::read_dir(&keep).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(kept.contains(&"model.q8_0.gguf".to_string()) && kept.contains(&"model.f32.gguf".to_string()), "{kept:?}");
    assert_eq!(fs::metadata(keep.join("model.q8_0.gguf")).unwrap().len(), q8["disk_bytes"].as_u64().unwrap());

    // The notebook reads the study.
    if let Some(python) = require(&PYTHON) {
        let output = std::process::Command::new(python)
            .arg(Path::new(ROOT).join("tests/python/run_notebook.py"))
            .arg(Path::new(ROOT).join("examples/notebooks/variants.ipynb"))
            .env("CANDLESCOPE_STUDIES", dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", common::text(&output.stderr));
        let figures = json(&common::text(&output.stdout))["figures"].clone();
        assert_eq!((&figures["studies"], &figures["variants"]), (&1.into(), &4.into()), "{figures}");
        assert!(figures["absent"]["q4_k"].is_string(), "{figures}");
        let found = figures["kl"].as_object().unwrap().values().next().unwrap().as_f64().unwrap();
        let kept = q8["quality"]["kl"]["mean"]["value"].as_f64().unwrap();
        assert!((found - kept).abs() < 1e-12 * kept, "{found} {kept}");
    }

    // A kept file is a model like any other, whose own type has nothing to lose.
    let file = keep.join("model.q8_0.gguf");
    let again = dir.path().join("again");
    ok(&[
        "bench",
        "variants",
        "--quick",
        "--model",
        file.to_str().unwrap(),
        "--variants",
        "q8_0",
        "--profiled",
        "0",
        "--out",
        again.to_str().unwrap(),
    ]);
    let q8 = variant(&again, "quantization_results.json", "q8_0");
    assert!(q8["quality_absent"].as_str().unwrap().contains("nothing can differ"), "{q8}");
    assert_eq!(read(&again, "study.json")["model"]["stored_as"][0], "q8_0");
}

#[test]
fn a_study_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args =
        ["bench", "variants", "--quick", "--variants", "q8_0", "--profiled", "0", "--out", out.to_str().unwrap()];
    ok(&args);
    let samples = || read(&out, "results.json")["rows"].as_array().unwrap().len();
    let before = samples();
    fs::remove_file(out.join("quality_results.json")).unwrap();
    fs::remove_file(out.join("profiling_report.md")).unwrap();
    let said = json(&ok(&[args.as_slice(), &["--resume", "--json"]].concat()));
    assert_eq!((samples(), said["variants"].as_array().unwrap().len()), (before, 2), "only what was missing");
    assert!(out.join("quality_results.json").is_file() && out.join("profiling_report.md").is_file());
}

#[test]
fn each_bad_input_is_named_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let base = ["bench", "variants", "--quick", "--out", out.to_str().unwrap()];
    let fail = |more: &[&str]| fails(&[&base[..], more].concat());
    let error = fail(&["--variants", "q8"]);
    assert!(error.contains("no variant `q8`") && error.contains("did you mean `q8_0`?"), "{error}");
    let error = fail(&["--dtype", "f16"]);
    assert!(error.contains("--variants"), "{error}");
    let help = ok(&["bench", "variants", "--help"]);
    let offered = |option: &str| help.lines().any(|line| line.trim_start().starts_with(option));
    assert!(!["--dtype", "--dequantize", "--engine"].into_iter().any(offered) && offered("--variants"), "{help}");
    let short = dir.path().join("short.txt");
    fs::write(&short, "short").unwrap();
    let error = fail(&["--text", short.to_str().unwrap()]);
    assert!(error.contains("short.txt has 5 bytes, and 64 tokens are needed"), "{error}");
    let error = fail(&["--text", "no/such/text"]);
    assert!(error.contains("no/such/text"), "{error}");
    let error = fail(&["--onnxruntime", "no/library.so"]);
    assert!(error.contains("no/library.so is not there"), "{error}");
    let error = fail(&["--keep", dir.path().to_str().unwrap()]);
    assert!(error.contains("not empty") && error.contains("--keep"), "{error}");
    let error = fail(&["--output-tokens", "0"]);
    assert!(error.contains("--output-tokens is 0"), "{error}");
    let error = fail(&["--model", "config:t5-small"]);
    assert!(!error.contains("what was measured"), "{error}");
    assert!(!out.exists(), "nothing is left behind");
}

/// A GPT-2 of two small layers in Hugging Face's form, whose tokenizer knows printable characters of ASCII.
fn tiny_gpt2(dir: &Path) {
    use candlescope_models::weights::{WeightSource, random::RandomWeights};
    let json = serde_json::json!({
        "model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "eos_token_id": 95,
    });
    let config = candlescope_models::ModelConfig::from_hf("tiny", &json).unwrap();
    let mut source = RandomWeights::new(&config, 7, candle_core::DType::F32, &candle_core::Device::Cpu);
    let weights: std::collections::HashMap<_, _> = config
        .weights()
        .into_iter()
        .map(|(name, shape)| (name.clone(), source.dense(&name, &shape).unwrap()))
        .collect();
    let vocab: serde_json::Map<String, serde_json::Value> =
        (0..96u32).map(|i| (char::from_u32(0x20 + i).unwrap().to_string(), i.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    });
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("config.json"), json.to_string()).unwrap();
    fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    candle_core::safetensors::save(&weights, dir.join("model.safetensors")).unwrap();
}

#[test]
fn a_text_of_too_few_tokens_costs_quality_only() {
    let dir = tempfile::tempdir().unwrap();
    let (out, model, text) = (dir.path().join("s"), dir.path().join("tiny"), dir.path().join("text.txt"));
    tiny_gpt2(&model);
    // Characters that this tokenizer does not know: how few tokens they are shows when the model is loaded.
    fs::write(&text, "ä".repeat(60) + "only this").unwrap();
    let error = fails(&[
        "bench",
        "variants",
        "--quick",
        "--model",
        model.to_str().unwrap(),
        "--variants",
        "q8_0",
        "--profiled",
        "0",
        "--text",
        text.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert!(error.contains("text.txt has 9 tokens, and 64 are needed") && error.contains("are kept"), "{error}");
    let q8 = variant(&out, "quantization_results.json", "q8_0");
    assert_eq!((&q8["latency_ms"]["n"], &q8["quality"]), (&3.into(), &serde_json::Value::Null), "{q8}");
    assert!(q8["quality_absent"].as_str().unwrap().contains("9 tokens") && q8["layers"][1].is_object(), "{q8}");
}

/// Where `onnxruntime` keeps its library in the Python of the tests.
fn onnx_runtime(python: &Path) -> Option<PathBuf> {
    let code = "import onnx, onnxruntime, glob, os; \
                print(glob.glob(os.path.dirname(onnxruntime.__file__) + '/capi/libonnxruntime.so*')[0])";
    let output = std::process::Command::new(python).args(["-c", code]).output().ok()?;
    output.status.success().then(|| PathBuf::from(text(&output.stdout).trim()))
}

#[test]
fn onnx_is_valid_and_computes_the_same() {
    let Some(python) = require(&PYTHON) else { return };
    let Some(library) = onnx_runtime(&python) else {
        candlescope_testkit::tools::missing("onnx and onnxruntime in the tests' Python", "make venv");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (out, keep, text) = (dir.path().join("study"), dir.path().join("files"), dir.path().join("text.txt"));
    fs::write(&text, "A text that is long enough for two pieces of sixty-four bytes each. ".repeat(3)).unwrap();
    let gpt2 = dir.path().join("tiny");
    tiny_gpt2(&gpt2);
    for (name, model) in [("llama", "embedded"), ("gpt2", gpt2.to_str().unwrap())] {
        let (out, keep) = (out.join(name), keep.join(name));
        let mut args = vec!["bench", "variants", "--quick", "--model", model, "--variants", "onnx", "--profiled", "0"];
        args.extend(["--runs", "1", "--keep", keep.to_str().unwrap(), "--out", out.to_str().unwrap()]);
        args.extend(["--onnxruntime", library.to_str().unwrap(), "--text", text.to_str().unwrap()]);
        ok(&args);
        let onnx = variant(&out, "onnx_results.json", "onnx");
        let runs_on = onnx["runs_on"].as_str().unwrap();
        assert!(runs_on.starts_with("ONNX Runtime") && runs_on.contains(library.to_str().unwrap()), "{onnx}");
        assert_eq!(onnx["outcome"], "ok", "{onnx}");
        // The same in another order of sums, with keys and values from one call to the next.
        for layer in onnx["layers"].as_array().unwrap() {
            assert!(layer["relative"]["value"].as_f64().unwrap() < 1e-4, "{layer}");
        }
        assert!(onnx["diverges_at_layer"].is_null());
        assert!(onnx["quality"]["kl"]["max"].as_f64().unwrap() < 1e-5, "{onnx}");
        assert_eq!(onnx["quality"]["same_top"]["value"], 1.0);
        assert_eq!(onnx["first_token"]["differ"]["value"], 0.0);
        let check = "import onnx, sys; onnx.checker.check_model(sys.argv[1], full_check=True); \
                     print(onnx.load(sys.argv[1], load_external_data=False).opset_import[0].version)";
        for file in ["model.onnx", "model.blocks.onnx"] {
            let output = std::process::Command::new(&python).args(["-c", check]).arg(keep.join(file)).output().unwrap();
            assert!(output.status.success(), "{file} of {model}: {}", common::text(&output.stderr));
            assert_eq!(common::text(&output.stdout).trim(), "17");
        }
    }
}

/// The same file by candle-onnx, beside ONNX Runtime where there is one. `make test-candle-onnx` builds it.
#[cfg(feature = "candle-onnx")]
#[test]
fn candle_onnx_computes_the_same() {
    let library = require(&PYTHON).and_then(|python| onnx_runtime(&python));
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.txt");
    fs::write(&text, "A text that is long enough for two pieces of sixty-four bytes each. ".repeat(3)).unwrap();
    let gpt2 = dir.path().join("tiny");
    tiny_gpt2(&gpt2);
    for (name, model) in [("llama", "embedded"), ("gpt2", gpt2.to_str().unwrap())] {
        let (out, keep) = (dir.path().join(name), dir.path().join(format!("{name}-files")));
        let mut args = vec!["bench", "variants", "--quick", "--model", model, "--profiled", "0", "--runs", "1"];
        args.extend([
            "--variants",
            "onnx,onnx-candle",
            "--keep",
            keep.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ]);
        args.extend(["--text", text.to_str().unwrap()]);
        if let Some(library) = &library {
            args.extend(["--onnxruntime", library.to_str().unwrap()]);
        }
        ok(&args);
        let own = variant(&out, "onnx_results.json", "onnx_candle");
        assert_eq!((&own["outcome"], &own["absent"]), (&"ok".into(), &serde_json::Value::Null), "{own}");
        assert!(own["runs_on"].as_str().unwrap().starts_with("candle-onnx 0."), "{own}");
        for layer in own["layers"].as_array().unwrap() {
            assert!(layer["relative"]["value"].as_f64().unwrap() < 1e-4, "{layer}");
        }
        assert!(own["quality"]["kl"]["max"].as_f64().unwrap() < 1e-5, "{own}");
        assert_eq!(own["first_token"]["differ"]["value"], 0.0);
        assert!(own["kv_bytes"].as_u64().unwrap() > 0 && own["latency_ms"]["n"] == 1, "{own}");
        if library.is_some() {
            let other = variant(&out, "onnx_results.json", "onnx");
            assert_eq!((&other["disk_bytes"], &other["outcome"]), (&own["disk_bytes"], &"ok".into()), "one file");
        }
        let report = fs::read_to_string(out.join("profiling_report.md")).unwrap();
        assert!(report.contains("ONNX f32 (candle-onnx) is run by candle-onnx 0."), "{report}");
    }
}

#[cfg(not(feature = "candle-onnx"))]
#[test]
fn a_build_without_candle_onnx_says_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let args = ["bench", "variants", "--quick", "--variants", "onnx_candle", "--profiled", "0", "--runs", "1", "--out"];
    let said = ok(&[&args[..], &[out.to_str().unwrap()]].concat());
    assert!(said.contains("ONNX f32 (candle-onnx): absent; this build has no candle-onnx"), "{said}");
    let own = variant(&out, "onnx_results.json", "onnx_candle");
    let absent = own["absent"].as_str().unwrap();
    assert!(absent.contains("--features candle-onnx") && absent.contains("protobuf-compiler"), "{absent}");
    assert_eq!(variant(&out, "baseline_results.json", "kv_cache")["latency_ms"]["n"], 1);
}

#[test]
fn a_missing_library_costs_the_onnx_variant_only() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("s");
    let output = candlescope()
        .args(["bench", "variants", "--quick", "--variants", "onnx", "--profiled", "0", "--runs", "1", "--out"])
        .arg(&out)
        .current_dir(dir.path())
        .envs([("ORT_DYLIB_PATH", "/no/such/libonnxruntime.so")])
        .env_remove("VIRTUAL_ENV")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let onnx = variant(&out, "onnx_results.json", "onnx");
    let absent = onnx["absent"].as_str().unwrap();
    assert!(absent.contains("/no/such/libonnxruntime.so") && absent.contains("--onnxruntime"), "{absent}");
    assert_eq!(variant(&out, "baseline_results.json", "kv_cache")["latency_ms"]["n"], 1);
}

/// A library runs code when it is opened: none is taken from below the working directory, unless it is named.
#[cfg(all(unix, feature = "onnx"))]
#[test]
fn a_library_in_the_working_directory_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let capi = dir.path().join(".venv/lib/python3.11/site-packages/onnxruntime/capi");
    fs::create_dir_all(&capi).unwrap();
    let (source, library, mark) =
        (dir.path().join("planted.c"), capi.join("libonnxruntime.so.1"), dir.path().join("RAN"));
    let constructor =
        "#include <stdio.h>\n__attribute__((constructor)) static void ran(void) { fclose(fopen(\"RAN\", \"w\")); }";
    fs::write(&source, constructor).unwrap();
    let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.expect("a C compiler, which links every Rust program").success());
    let study = |out: &str, variables: &[(&str, &str)], named: &[&str]| {
        let output = candlescope()
            .args([
                "bench",
                "variants",
                "--quick",
                "--variants",
                "onnx",
                "--profiled",
                "0",
                "--runs",
                "1",
                "--out",
                out,
            ])
            .args(named)
            .current_dir(dir.path())
            .env_remove("ORT_DYLIB_PATH")
            .env_remove("VIRTUAL_ENV")
            .env_remove("CONDA_PREFIX")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        variant(&dir.path().join(out), "onnx_results.json", "onnx")["absent"].as_str().unwrap().to_string()
    };
    let absent = study("none", &[], &[]);
    assert!(absent.contains("was not found") && absent.contains("--onnxruntime"), "{absent}");
    let absent = study("relative", &[("VIRTUAL_ENV", ".venv")], &[]);
    assert!(absent.contains("was not found"), "{absent}");
    let absent = study("path", &[("ORT_DYLIB_PATH", ".venv/libonnxruntime.so.1")], &[]);
    assert!(absent.contains("whole path"), "{absent}");
    assert!(!mark.exists(), "its constructor ran");
    // One that is named is opened: this is what the others must not do.
    let absent = study("named", &[], &["--onnxruntime", library.to_str().unwrap()]);
    assert!(mark.exists() && absent.contains("libonnxruntime.so.1"), "{absent}");
}
