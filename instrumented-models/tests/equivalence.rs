//! Logits equal candle-transformers' for the same weights, with and without a cache, batched.
//!
//! Tolerances are differences over the largest logit. In f32 they come only from the order of summation.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::qwen2;
use candlescope_models::config::Llama3Scaling;
use candlescope_models::load::Engine;
use candlescope_models::{CausalLm, ModelConfig};
use common::*;

const F32: f32 = 2e-6;
const F16: f32 = 4e-3;
const BF16: f32 = 4e-2;
const QUANTISED: f32 = 2e-2;

fn against_candle(config: &ModelConfig, dtype: DType, sharded: bool) -> Differences {
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), config, sharded);
    let mut ours = load(directory.path(), Engine::Instrumented, dtype, false);
    let mut theirs = load(directory.path(), Engine::Candle, dtype, false);
    let [one, three] = [1, 3].map(|batch| compare(ours.model.as_mut(), theirs.model.as_mut(), batch));
    Differences { theirs: one.theirs.max(three.theirs), cache: one.cache.max(three.cache) }
}

#[track_caller]
fn assert_within(what: &str, found: Differences, tolerance: f32) {
    eprintln!("{what}: {:.2e} from candle, {:.2e} by the cache (tolerance {tolerance:.0e})", found.theirs, found.cache);
    assert!(found.theirs <= tolerance && found.cache <= tolerance, "{what}: {found:?}, tolerance {tolerance:e}");
}

#[test]
fn dense_weights_equal_candles_llama() {
    assert_within("f32", against_candle(&tiny(), DType::F32, false), F32);
    assert_within("f32, two shards", against_candle(&tiny(), DType::F32, true), F32);
    assert_within("f16", against_candle(&tiny(), DType::F16, false), F16);
    assert_within("bf16", against_candle(&tiny(), DType::BF16, false), BF16);
}

#[test]
fn tied_embeddings_and_stretched_rotary_equal_candles_llama() {
    let mut config = tiny();
    config.tie_embeddings = true;
    config.rope.scaling = Some(Llama3Scaling {
        factor: 8.,
        low_freq_factor: 1.,
        high_freq_factor: 4.,
        original_max_position_embeddings: 64,
    });
    assert_within("tied, llama3 rope", against_candle(&config, DType::F32, false), F32);
    config.num_kv_heads = config.num_heads;
    assert_within("no grouping of heads", against_candle(&config, DType::F32, false), F32);
    config.num_kv_heads = 1;
    assert_within("one key/value head", against_candle(&config, DType::F32, false), F32);
}

#[test]
fn quantised_weights_equal_candles_quantized_llama() {
    let mut config = tiny();
    config.rope.interleaved = true;
    // K-quants need rows of a multiple of 256.
    let mut wide = config.clone();
    (wide.hidden_size, wide.head_dim, wide.num_layers) = (256, 64, 2);
    wide.feed_forward = candlescope_models::config::FeedForward::SwiGlu { intermediate: 256 };
    for (dtype, config) in [
        (GgmlDType::F32, &config),
        (GgmlDType::F16, &config),
        (GgmlDType::Q4_0, &config),
        (GgmlDType::Q4_1, &config),
        (GgmlDType::Q8_0, &config),
        (GgmlDType::Q4K, &wide),
        (GgmlDType::Q6K, &wide),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        write_gguf(&path, config, dtype, &gguf_metadata(config));
        let mut ours = load(&path, Engine::Instrumented, DType::F32, false);
        for batch in [1, 3] {
            // candle's model refuses a batch of prompts.
            let mut theirs = one_by_one(&path, DType::F32, batch);
            let difference = compare(ours.model.as_mut(), &mut theirs, batch);
            // Activations are quantised too, to 8 bits: a difference in the last digit can change one by a whole
            // quantisation step, so passing tokens one at a time and all at once agree less closely than two models
            // that do the same.
            let tolerance = if matches!(dtype, GgmlDType::F32 | GgmlDType::F16) { F32 } else { QUANTISED };
            assert_within(&format!("{dtype:?}, batch {batch}"), difference, tolerance);
        }
    }
}

#[test]
fn dequantised_weights_equal_both_of_candles() {
    let mut config = tiny();
    config.rope.interleaved = true;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    write_gguf(&path, &config, GgmlDType::F32, &gguf_metadata(&config));
    let mut ours = load(&path, Engine::Instrumented, DType::F32, true);
    let mut quantised = one_by_one(&path, DType::F32, 2);
    let mut dense = load(&path, Engine::Candle, DType::F32, true);
    assert_within("de-quantised, quantized_llama", compare(ours.model.as_mut(), &mut quantised, 2), F32);
    assert_within("de-quantised, llama", compare(ours.model.as_mut(), dense.model.as_mut(), 2), F32);
    let mut half = load(&path, Engine::Instrumented, DType::F16, true);
    assert_within("de-quantised to f16", compare(half.model.as_mut(), dense.model.as_mut(), 2), F16);
}

/// candle's Qwen 2 behind our trait.
struct Qwen(qwen2::ModelForCausalLM, ModelConfig);

impl CausalLm for Qwen {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        if position == 0 {
            self.0.clear_kv_cache();
        }
        self.0.forward(tokens, position)?.squeeze(1)
    }
    fn reset(&mut self) {
        self.0.clear_kv_cache();
    }
    fn max_context(&self) -> usize {
        self.1.max_context
    }
    fn vocab_size(&self) -> usize {
        self.1.vocab_size
    }
    fn device(&self) -> &Device {
        &Device::Cpu
    }
}

fn qwen() -> ModelConfig {
    let mut config = tiny();
    config.architecture = "qwen2".into();
    config.qkv_bias = true;
    config.rms_norm_eps = 1e-6;
    config.tie_embeddings = true;
    config
}

#[test]
fn biases_equal_candles_qwen2() {
    let config = qwen();
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), &config, false);
    let mut ours = load(directory.path(), Engine::Instrumented, DType::F32, false);
    let mut json = config_json(&config);
    for (key, value) in [
        ("sliding_window", serde_json::json!(1000)),
        ("max_window_layers", serde_json::json!(0)),
        ("use_sliding_window", serde_json::json!(false)),
        ("hidden_act", serde_json::json!("silu")),
    ] {
        json[key] = value;
    }
    let vb = VarBuilder::from_tensors(weights(&config), DType::F32, &Device::Cpu);
    let model = qwen2::ModelForCausalLM::new(&serde_json::from_value(json).unwrap(), vb).unwrap();
    let mut theirs = Qwen(model, config);
    assert_within("qwen2", compare(ours.model.as_mut(), &mut theirs, 1), F32);
}

#[test]
fn a_qwen2_gguf_equals_its_directory() {
    let config = qwen();
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), &config, false);
    let path = directory.path().join("model.gguf");
    write_gguf(&path, &config, GgmlDType::F32, &gguf_metadata(&config));
    let mut dense = load(directory.path(), Engine::Instrumented, DType::F32, false);
    for dequantize in [false, true] {
        let mut gguf = load(&path, Engine::Instrumented, DType::F32, dequantize);
        assert_within("qwen2 gguf", compare(gguf.model.as_mut(), dense.model.as_mut(), 2), F32);
    }
}

#[test]
fn clones_run_beside_each_other() {
    use candlescope_models::Llama;
    use candlescope_models::weights::random::RandomWeights;
    let config = tiny();
    let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
    let model = Llama::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
    let run = |mut model: Llama, from: usize| {
        let mut out = model.forward(&tokens(1, 5, from, 96), 0).unwrap();
        for position in 5..40 {
            out = model.forward(&tokens(1, 1, from + position, 96), position).unwrap();
        }
        out.to_vec2::<f32>().unwrap()
    };
    let alone: Vec<_> = (0..2).map(|from| run(model.clone(), from)).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|from| {
                let model = model.clone();
                scope.spawn(move || run(model, from))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}
