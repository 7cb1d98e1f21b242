//! Graphs that candle-onnx runs, held against the models they were written from. `make test-candle-onnx` runs this.
#![allow(missing_docs, reason = "a test")]
mod common;
use candle_core::{DType, Device, Tensor};
use candlescope_models::onnx::{Evaluator, OnnxFiles, write_onnx};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::weights::{Form, WeightError, WeightSource};
use candlescope_models::{HeldModel, Inspect, LoadOptions, LoadedModel, ModelConfig, ModelSource};
use common::{tiny, write_directory};
use std::collections::HashMap;
use std::path::Path;

/// Largest difference of a number from ours, over the largest of ours. The same products in another order and other
/// functions for powers and roots differ by some 1e-6.
const TOLERANCE: f32 = 2e-5;

fn hold(dir: &Path) -> HeldModel {
    let source = ModelSource::parse(dir.to_str().unwrap()).unwrap();
    LoadedModel::load_holding(&source, &LoadOptions::default()).unwrap()
}

fn tiny_llama(dir: &Path) -> HeldModel {
    write_directory(dir, &tiny(), false);
    hold(dir)
}

fn tiny_gpt2(dir: &Path) -> HeldModel {
    let json = serde_json::json!({
        "model_type": "gpt2", "vocab_size": 96, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "eos_token_id": 95,
    });
    let config = ModelConfig::from_hf("tiny", &json).unwrap();
    let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
    let mut weights = HashMap::new();
    for (name, shape) in config.weights() {
        let tensor = source.dense(&name, &shape).unwrap();
        // Random norms are ones and zeros, with which a forgotten factor would not show.
        let noise = Tensor::randn(0f32, 0.2, shape.as_slice(), &Device::Cpu).unwrap();
        weights.insert(name, (tensor + noise).unwrap());
    }
    std::fs::write(dir.join("config.json"), json.to_string()).unwrap();
    std::fs::write(dir.join("tokenizer.json"), common::tokenizer_json()).unwrap();
    candle_core::safetensors::save(&weights, dir.join("model.safetensors")).unwrap();
    hold(dir)
}

fn files(held: &HeldModel, dir: &Path) -> OnnxFiles {
    write_onnx(dir, "model", &held.loaded.config, &held.weights).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Largest difference of `ours` and `theirs`, over the largest of ours.
fn apart(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let largest = ours.iter().fold(0f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.0 && theirs.iter().all(|value| value.is_finite()));
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) / largest
}

/// Logits of all positions and each block's output, by our own model.
fn ours(held: &HeldModel, tokens: &[u32]) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let made = held.weights.model(&held.loaded.config, Form::Dense(DType::F32), &Device::Cpu).unwrap();
    let (mut model, mut blocks): (Box<dyn Inspect + Send>, _) = (made.model, Vec::new());
    model.reset();
    let tokens = Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let logits = model.inspect(&tokens, &mut |_, xs| {
        blocks.push(values(xs));
        Ok(())
    });
    let logits = logits.unwrap().squeeze(0).unwrap();
    let rows = (0..logits.dim(0).unwrap()).map(|row| values(&logits.get(row).unwrap())).collect();
    (rows, blocks)
}

fn is_the_same(held: &HeldModel, dir: &Path) {
    let mut graph = Evaluator::open(&files(held, dir)).unwrap();
    let text: Vec<u32> = (0..14).map(|n| 3 + (n * 29 + 7) % 90).collect();
    let (expected, expected_blocks) = ours(held, &text);
    let close = |what: &str, row: usize, theirs: &Tensor| {
        let off = apart(&expected[row], &values(theirs));
        assert!(off < TOLERANCE, "{what}, position {row}: {off}");
    };

    // The whole text at once: logits of three of its positions, and all blocks.
    let (logits, blocks) = graph.inspect(&text, &[0, 9, 13]).unwrap();
    for (at, row) in [0, 9, 13].into_iter().enumerate() {
        close("whole", row, &logits.get(at).unwrap());
    }
    assert_eq!(blocks.len(), expected_blocks.len());
    for (layer, (ours, theirs)) in expected_blocks.iter().zip(&blocks).enumerate() {
        let off = apart(ours, &values(theirs));
        assert!(off < TOLERANCE, "block {layer}: {off}");
    }
    assert_eq!((graph.past(), graph.kv_bytes()), (0, 0), "inspecting keeps nothing");

    // Prefill, then steps with keys and values: of one token, and of two.
    for _ in 0..2 {
        close("prefill", 8, &graph.forward(&text[..9], &[8]).unwrap());
        for row in 9..12 {
            close("decode", row, &graph.forward(&text[row..=row], &[0]).unwrap());
        }
        close("two tokens", 13, &graph.forward(&text[12..], &[1]).unwrap());
        let config = &held.loaded.config;
        let of_a_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 4;
        assert_eq!((graph.past(), graph.kv_bytes()), (14, 14 * of_a_token as u64));
        // The second time as a new text.
        graph.reset();
    }
    // A step that forgot its past is another one: the figures above can tell.
    let alone = graph.forward(&text[9..10], &[0]).unwrap();
    assert!(apart(&expected[9], &values(&alone)) > 100.0 * TOLERANCE);
}

#[test]
fn llama_is_the_same_in_prefill_and_decode() {
    let dir = tempfile::tempdir().unwrap();
    is_the_same(&tiny_llama(dir.path()), dir.path());
}

#[test]
fn gpt2_is_the_same_in_prefill_and_decode() {
    let dir = tempfile::tempdir().unwrap();
    is_the_same(&tiny_gpt2(dir.path()), dir.path());
}

#[test]
fn damaged_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let held = tiny_llama(dir.path());
    let files = files(&held, dir.path());
    let data = std::fs::read(&files.data).unwrap();
    std::fs::write(&files.data, &data[..data.len() - 4]).unwrap();
    let error = Evaluator::open(&files).unwrap_err();
    assert!(matches!(error, WeightError::Truncated { .. }), "{error:?}");
    assert!(error.to_string().contains("model.onnx.data"), "{error}");
    std::fs::write(&files.data, data).unwrap();
    std::fs::write(&files.blocks, "no graph").unwrap();
    let error = Evaluator::open(&files).unwrap_err().to_string();
    assert!(error.contains("model.blocks.onnx is not a valid ONNX file"), "{error}");
    std::fs::remove_file(&files.data).unwrap();
    let error = Evaluator::open(&files).unwrap_err().to_string();
    assert!(error.contains("model.blocks.onnx"), "the graphs first: {error}");
}
