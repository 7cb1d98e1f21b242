//! Small random models on disk, and functions to compare models.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs, reason = "shared by several test binaries")]

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::weights::WeightSource;
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{CausalLm, ModelConfig, ModelSource};
pub use candlescope_testkit::tools::{SMOLLM2, require};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A Llama small enough to run in a blink: 3 layers, 4 query heads on 2 key/value heads, context of 300.
pub fn tiny() -> ModelConfig {
    let mut config = ModelConfig::named("embedded").unwrap();
    config.name = "tiny".into();
    config.vocab_size = 96;
    config.hidden_size = 64;
    config.feed_forward = candlescope_models::config::FeedForward::SwiGlu { intermediate: 128 };
    config.num_layers = 3;
    config.head_dim = 16;
    config.max_context = 300;
    config.bos = Some(1);
    config.eos = vec![2];
    config
}

pub fn weights(config: &ModelConfig) -> HashMap<String, Tensor> {
    let mut source = RandomWeights::new(config, 7, DType::F32, &Device::Cpu);
    config
        .weights()
        .into_iter()
        .map(|(name, shape)| {
            let t = source.dense(&name, &shape).unwrap();
            (name, t)
        })
        .collect()
}

/// A tokenizer of the 96 first printable characters and a few words, enough to be a valid file.
pub fn tokenizer_json() -> String {
    let vocab: HashMap<String, u32> = (0..96u32).map(|i| (char::from_u32(0x20 + i).unwrap().to_string(), i)).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    })
    .to_string()
}

pub fn config_json(config: &ModelConfig) -> serde_json::Value {
    let mut json = json!({
        "model_type": config.architecture, "vocab_size": config.vocab_size, "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate(), "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim, "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.rms_norm_eps, "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tie_embeddings, "bos_token_id": 1, "eos_token_id": 2,
    });
    if let Some(s) = config.rope.scaling {
        let mut scaling = serde_json::to_value(s).unwrap();
        scaling["rope_type"] = json!("llama3");
        json["rope_scaling"] = scaling;
    }
    json
}

/// Writes a model directory; the tensors in two shards when `sharded`.
pub fn write_directory(directory: &Path, config: &ModelConfig, sharded: bool) {
    std::fs::write(directory.join("config.json"), config_json(config).to_string()).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer_json()).unwrap();
    let all = weights(config);
    if !sharded {
        candle_core::safetensors::save(&all, directory.join("model.safetensors")).unwrap();
        return;
    }
    let (a, b): (HashMap<_, _>, HashMap<_, _>) = all.into_iter().partition(|(name, _)| name.contains("mlp"));
    candle_core::safetensors::save(&a, directory.join("model-00001-of-00002.safetensors")).unwrap();
    candle_core::safetensors::save(&b, directory.join("model-00002-of-00002.safetensors")).unwrap();
}

pub fn gguf_name(name: &str) -> String {
    let mut name = name.to_string();
    for (hf, gguf) in [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ] {
        name = name.replace(hf, gguf);
    }
    name
}

pub fn gguf_metadata(config: &ModelConfig) -> Vec<(String, Value)> {
    let arch = &config.architecture;
    let n = |value: usize| Value::U32(value as u32);
    vec![
        ("general.architecture".into(), Value::String(arch.clone())),
        ("general.name".into(), Value::String(config.name.clone())),
        (format!("{arch}.block_count"), n(config.num_layers)),
        (format!("{arch}.context_length"), n(config.max_context)),
        (format!("{arch}.embedding_length"), n(config.hidden_size)),
        (format!("{arch}.feed_forward_length"), n(config.intermediate())),
        (format!("{arch}.attention.head_count"), n(config.num_heads)),
        (format!("{arch}.attention.head_count_kv"), n(config.num_kv_heads)),
        (format!("{arch}.rope.dimension_count"), n(config.head_dim)),
        (format!("{arch}.rope.freq_base"), Value::F32(config.rope.theta)),
        (format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(config.rms_norm_eps as f32)),
        ("tokenizer.ggml.eos_token_id".into(), Value::U32(2)),
    ]
}

/// Writes a GGUF whose matrices are of `dtype` and whose vectors are f32. Returns the bytes of its tensors.
pub fn write_gguf(path: &Path, config: &ModelConfig, dtype: GgmlDType, metadata: &[(String, Value)]) -> u64 {
    let tensors: Vec<(String, QTensor)> = weights(config)
        .into_iter()
        .map(|(name, t)| {
            let dtype = if t.rank() == 2 { dtype } else { GgmlDType::F32 };
            (gguf_name(&name), QTensor::quantize(&t, dtype).unwrap())
        })
        .collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(n, t)| (n.as_str(), t)).collect();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = std::fs::File::create(path).unwrap();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
    tensors.iter().map(|(_, t)| t.storage_size_in_bytes() as u64).sum()
}

pub fn load(path: &Path, engine: Engine, dtype: DType, dequantize: bool) -> LoadedModel {
    let source = ModelSource::parse(path.to_str().unwrap()).unwrap();
    let options = LoadOptions { engine, dtype: Some(dtype), dequantize, ..LoadOptions::default() };
    LoadedModel::load(&source, &options).unwrap()
}

/// Token ids (batch, count) that are the same in every run.
pub fn tokens(batch: usize, count: usize, from: usize, vocabulary: usize) -> Tensor {
    let ids: Vec<u32> = (0..batch * count).map(|i| ((i * 37 + from * 11 + 5) % vocabulary) as u32).collect();
    Tensor::from_vec(ids, (batch, count), &Device::Cpu).unwrap()
}

/// Largest difference of two tensors and the largest magnitude in the first.
pub fn difference(a: &Tensor, b: &Tensor) -> (f32, f32) {
    assert_eq!(a.dims(), b.dims());
    let max = |t: Tensor| t.abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
    (max((a - b).unwrap()), max(a.clone()))
}

/// One model per sequence: the reference for a batch if the model itself cannot run one.
pub struct OneByOne(pub Vec<candlescope_models::TextModel>);

impl CausalLm for OneByOne {
    fn forward(&mut self, tokens: &Tensor, position: usize) -> candle_core::Result<Tensor> {
        let rows: candle_core::Result<Vec<Tensor>> =
            self.0.iter_mut().enumerate().map(|(i, model)| model.forward(&tokens.narrow(0, i, 1)?, position)).collect();
        Tensor::cat(&rows?, 0)
    }
    fn reset(&mut self) {
        self.0.iter_mut().for_each(|model| model.reset());
    }
    fn max_context(&self) -> usize {
        self.0[0].max_context()
    }
    fn vocab_size(&self) -> usize {
        self.0[0].vocab_size()
    }
    fn device(&self) -> &Device {
        &Device::Cpu
    }
}

/// A model of its own for each of `batch` sequences.
pub fn one_by_one(path: &Path, dtype: DType, batch: usize) -> OneByOne {
    OneByOne((0..batch).map(|_| load(path, Engine::Candle, dtype, false).model).collect())
}

/// Largest differences found by [`compare`], relative to the largest logit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Differences {
    /// Our model and theirs, with the same tokens passed in the same way.
    pub theirs: f32,
    /// Our model with a cache compared with no cache, and with the prompt in two pieces.
    pub cache: f32,
}

/// Runs both models over a prompt and then token by token, over everything again without a cache, and ours over the
/// prompt in two pieces.
pub fn compare(ours: &mut dyn CausalLm, theirs: &mut dyn CausalLm, batch: usize) -> Differences {
    let vocabulary = ours.vocab_size();
    let (prompt, all_tokens) = (9, 15);
    let all = tokens(batch, all_tokens, batch, vocabulary);
    let piece = |from: usize, to: usize| all.narrow(1, from, to - from).unwrap().contiguous().unwrap();
    let relative = |a: &Tensor, b: &Tensor| {
        let (difference, magnitude) = difference(a, b);
        assert!(magnitude.is_finite() && magnitude > 0., "logits are {magnitude}");
        difference / magnitude
    };
    let mut found = Differences::default();
    let mut both = |from: usize, to: usize| {
        let (tokens, position) = (piece(from, to), from);
        let a = ours.forward(&tokens, position).unwrap();
        found.theirs = found.theirs.max(relative(&a, &theirs.forward(&tokens, position).unwrap()));
        a
    };
    both(0, prompt);
    let mut cached = None;
    for position in prompt..all_tokens {
        cached = Some(both(position, position + 1));
    }
    let whole = both(0, all_tokens);
    found.cache = relative(&whole, &cached.unwrap());
    ours.forward(&piece(0, 4), 0).unwrap();
    let pieces = ours.forward(&piece(4, all_tokens), 4).unwrap();
    found.cache = found.cache.max(relative(&whole, &pieces));
    found
}

/// Runs `f` with `subscriber` on this thread.
///
/// A second one is held meanwhile: with one alone, tracing lets the thread that comes upon a span first decide for all
/// threads whether anybody listens to it, and a test beside this one has nobody who does.
pub fn listening<T>(subscriber: impl tracing::Subscriber + Send + Sync + 'static, f: impl FnOnce() -> T) -> T {
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    tracing::subscriber::with_default(subscriber, f)
}
