//! Bad models: each a clear error that names the thing and the remedy.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::{GenerateOptions, ModelConfig, ModelSource, generate};
use common::*;
use std::path::Path;

fn refuse_with(path: &Path, options: LoadOptions) -> String {
    let source = ModelSource::parse(path.to_str().unwrap()).unwrap();
    LoadedModel::load(&source, &options).unwrap_err().to_string()
}

fn refuse(path: &Path) -> String {
    refuse_with(path, LoadOptions::default())
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

fn gguf_config() -> ModelConfig {
    let mut config = tiny();
    config.rope.interleaved = true;
    config
}

#[test]
fn truncated_gguf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let config = gguf_config();
    write_gguf(&path, &config, GgmlDType::Q8_0, &gguf_metadata(&config));
    let whole = std::fs::read(&path).unwrap();
    // Within the tensors: the first truncated one is named.
    std::fs::write(&path, &whole[..whole.len() - 1000]).unwrap();
    let message = refuse(&path);
    assert_says(&message, &["model.gguf is truncated: tensor `", "download or copy it again"]);
    assert_says(&message, &[&format!("this one has {};", whole.len() - 1000)]);
    // Within the header, at every length: never a panic, always the file's name.
    for length in (0..600).step_by(7) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let message = refuse(&path);
        assert!(
            message.contains("model.gguf is truncated: the header") || message.contains("is not a GGUF file"),
            "{message}"
        );
    }
}

#[test]
fn not_a_gguf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    std::fs::write(&path, "version https://git-lfs.github.com/spec/v1").unwrap();
    assert_says(&refuse(&path), &["model.gguf is not a GGUF file", "begins with `vers`"]);
    std::fs::write(&path, b"GGUF\x63\0\0\0 and so on and so on").unwrap();
    assert_says(&refuse(&path), &["model.gguf is not a GGUF file", "99"]);
    std::fs::write(&path, b"GG").unwrap();
    assert_says(&refuse(&path), &["2 bytes, less than a GGUF header"]);
}

#[test]
fn foreign_architecture() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let mut metadata = gguf_metadata(&gguf_config());
    metadata[0].1 = Value::String("mamba".into());
    write_gguf(&path, &gguf_config(), GgmlDType::Q8_0, &metadata);
    assert_says(&refuse(&path), &["model.gguf", "architecture `mamba` is not supported", "supported are llama, qwen2"]);
    let mut metadata = gguf_metadata(&gguf_config());
    metadata.push(("llama.expert_count".into(), Value::U32(8)));
    write_gguf(&path, &gguf_config(), GgmlDType::Q8_0, &metadata);
    assert_says(&refuse(&path), &["mixture of 8 experts", "not supported"]);
}

#[test]
fn gguf_lacking_metadata_or_of_other_dimensions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let config = gguf_config();
    let mut metadata = gguf_metadata(&config);
    metadata.retain(|(key, _)| key != "llama.block_count");
    write_gguf(&path, &config, GgmlDType::Q8_0, &metadata);
    assert_says(&refuse(&path), &["`llama.block_count`", "convert the model again"]);
    let mut metadata = gguf_metadata(&config);
    metadata.iter_mut().filter(|(k, _)| k == "llama.block_count").for_each(|(_, v)| *v = Value::U32(9));
    write_gguf(&path, &config, GgmlDType::Q8_0, &metadata);
    assert_says(&refuse(&path), &["tensor `blk.3.attn_norm.weight` is missing from"]);
    let mut metadata = gguf_metadata(&config);
    metadata.iter_mut().filter(|(k, _)| k == "llama.feed_forward_length").for_each(|(_, v)| *v = Value::U32(160));
    write_gguf(&path, &config, GgmlDType::Q8_0, &metadata);
    assert_says(&refuse(&path), &["tensor `blk.0.ffn_gate.weight`", "[128, 64]", "[160, 64]"]);
}

#[test]
fn gguf_with_rope_scaling_is_refused_not_run_wrongly() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let config = gguf_config();
    let write = |extra: &[(&str, Value)]| {
        let mut metadata = gguf_metadata(&config);
        metadata.extend(extra.iter().map(|(k, v)| (format!("llama.rope.{k}"), v.clone())));
        write_gguf(&path, &config, GgmlDType::Q8_0, &metadata);
    };
    let word = |w: &str| Value::String(w.into());
    for (key, value, shown) in [
        ("scaling.type", word("yarn"), "yarn"),
        ("scaling.type", word("linear"), "linear"),
        ("scaling.type", Value::U32(2), "2"),
        // Without a type, llama.cpp takes a factor for linear scaling; the second is an older name of it.
        ("scaling.factor", Value::F32(4.), "4"),
        ("scale_linear", Value::F32(0.5), "0.5"),
        ("scaling.attn_factor", word("x"), "x"),
    ] {
        write(&[(key, value)]);
        let options = |engine| LoadOptions { engine, ..LoadOptions::default() };
        for engine in [Engine::Instrumented, Engine::Candle] {
            let message = refuse_with(&path, options(engine));
            let parts =
                ["model.gguf", &format!("`llama.rope.{key}`"), shown, "without rope scaling", "original length"];
            assert_says(&message, &parts);
        }
    }
    for harmless in [
        &[("scaling.type", word("none")), ("scaling.factor", Value::F32(8.))][..],
        &[("scaling.factor", Value::F32(1.)), ("scaling.original_context_length", Value::U32(300))],
        &[("scale_linear", Value::F32(0.))],
    ] {
        write(harmless);
        load(&path, Engine::Instrumented, DType::F32, false);
    }
}

/// The binary prints errors with their causes: what a message already contains must not be repeated as its source.
#[test]
fn no_cause_is_said_twice() {
    let directory = tempfile::tempdir().unwrap();
    let d = directory.path();
    std::fs::write(d.join("config.json"), r#"{"model_type": "rwkv"}"#).unwrap();
    let foreign = LoadedModel::load(&ModelSource::Directory(d.into()), &LoadOptions::default()).unwrap_err();
    let missing = ModelSource::Gguf(d.join("absent.gguf"));
    let missing = LoadedModel::load(&missing, &LoadOptions::default()).unwrap_err();
    for (error, cause) in [(&foreign as &dyn std::error::Error, "`rwkv` is not supported"), (&missing, "No such file")]
    {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        assert_eq!(text.matches(cause).count(), 1, "{text}");
    }
}

#[test]
fn gguf_without_a_tokenizer_runs_on_token_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    write_gguf(&path, &gguf_config(), GgmlDType::Q8_0, &gguf_metadata(&gguf_config()));
    let loaded = load(&path, Engine::Instrumented, DType::F32, false);
    let message = loaded.encode_prompt("hello").unwrap_err().to_string();
    assert_says(&message, &["tiny has no tokenizer", "tokenizer.json beside the file", "number of prompt tokens"]);
    std::fs::write(directory.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    let loaded = load(&path, Engine::Instrumented, DType::F32, false);
    assert_eq!(loaded.encode_prompt("ab").unwrap(), [65, 66]);
}

#[test]
fn directory_lacking_a_part() {
    let made = |without: &str| {
        let directory = tempfile::tempdir().unwrap();
        write_directory(directory.path(), &tiny(), true);
        std::fs::remove_file(directory.path().join(without)).unwrap();
        refuse(directory.path())
    };
    assert_says(&made("config.json"), &["config.json is missing", "a model directory holds"]);
    assert_says(&made("tokenizer.json"), &["tokenizer.json is missing", "a model directory holds"]);
    assert_says(
        &made("model-00001-of-00002.safetensors"),
        &["tensor `model.layers.0.mlp.gate_proj.weight` is missing from"],
    );
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), &tiny(), false);
    std::fs::remove_file(directory.path().join("model.safetensors")).unwrap();
    assert_says(&refuse(directory.path()), &["*.safetensors", "there is none in it", "or a .gguf file"]);
}

#[test]
fn directory_with_broken_parts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_directory(path, &tiny(), false);
    let whole = std::fs::read(path.join("model.safetensors")).unwrap();
    std::fs::write(path.join("model.safetensors"), &whole[..whole.len() - 10]).unwrap();
    assert_says(&refuse(path), &["model.safetensors is truncated: tensor `", "download or copy it again"]);
    std::fs::write(path.join("model.safetensors"), &whole[..100]).unwrap();
    assert_says(&refuse(path), &["model.safetensors is truncated: the header"]);
    std::fs::write(path.join("model.safetensors"), "version https://git-lfs").unwrap();
    assert_says(&refuse(path), &["model.safetensors is not a safetensors file", "Git LFS pointer"]);
    std::fs::write(path.join("model.safetensors"), &whole).unwrap();

    let mut wide = config_json(&tiny());
    wide["intermediate_size"] = 256.into();
    std::fs::write(path.join("config.json"), wide.to_string()).unwrap();
    assert_says(
        &refuse(path),
        &["`model.layers.0.mlp.gate_proj.weight`", "[128, 64]", "[256, 64]", "different models"],
    );
    std::fs::write(path.join("config.json"), "{").unwrap();
    assert_says(&refuse(path), &["config.json is not JSON"]);
    std::fs::write(path.join("config.json"), r#"{"model_type": "rwkv"}"#).unwrap();
    assert_says(&refuse(path), &["config.json", "`rwkv` is not supported; supported are llama, mistral, qwen2"]);
    std::fs::write(path.join("config.json"), config_json(&tiny()).to_string()).unwrap();
    std::fs::write(path.join("tokenizer.json"), "{}").unwrap();
    assert_says(&refuse(path), &["cannot read the tokenizer", "tokenizer.json"]);
}

#[test]
fn unknown_names_types_and_engines() {
    let load = |text: &str, options: LoadOptions| {
        LoadedModel::load(&ModelSource::parse(text).unwrap(), &options).unwrap_err().to_string()
    };
    assert_says(&load("config:smolm2-135m", LoadOptions::default()), &["did you mean `smollm2-135m`?", "llama-3-8b"]);
    // What is known, and cannot be used here, is not called unknown.
    let message = load("config:t5-small", LoadOptions::default());
    assert_says(&message, &["has an encoder", "candlescope profile --model config:t5-small"]);
    assert!(!message.contains("did you mean"), "{message}");
    let options = LoadOptions { dtype: Some(DType::U8), ..LoadOptions::default() };
    assert_says(&load("embedded", options), &["cannot run in U8; pass f32, f16 or bf16"]);
    let options = LoadOptions { engine: Engine::Candle, ..LoadOptions::default() };
    assert_says(&load("config:gpt2", options), &["candle-transformers has no GPT-2", "`instrumented`"]);
}

#[test]
fn candles_quantised_model_refuses_a_batch_of_prompts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    write_gguf(&path, &gguf_config(), GgmlDType::Q8_0, &gguf_metadata(&gguf_config()));
    let mut loaded = load(&path, Engine::Candle, DType::F32, false);
    let message = loaded.model.forward(&tokens(2, 3, 0, 96), 0).unwrap_err().to_string();
    assert_says(&message, &["batch of prompts", "instrumented model"]);
    // The loop refuses before it begins, so that nothing incomplete is recorded.
    let prompts = vec![vec![1, 2, 3]; 2];
    let message = generate(&mut loaded, &prompts, &GenerateOptions::default(), &mut |_| {}).unwrap_err().to_string();
    assert_says(&message, &["batch of 2 prompts", "instrumented model"]);
}
