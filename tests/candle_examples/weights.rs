//! Makes a model's directory: `weights qwen2|t5 small|full DIR` writes config.json, random weights and a tokenizer whose
//! words are w0, w1, … `weights peaks` measures what this machine's CPU reaches, as JSON.
//!
//! The token that ends a text is none that the model knows: a text is as long as the program allows.

use anyhow::{Context, Result, bail};
use candle::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::{qwen2, t5};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["peaks"] => peaks(),
        [kind @ ("qwen2" | "t5"), size @ ("small" | "full"), folder] => make(kind, *size == "full", folder.as_ref()),
        _ => bail!("usage: weights qwen2|t5 small|full DIR, or weights peaks"),
    }
}

fn make(kind: &str, full: bool, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let config = if kind == "qwen2" { qwen2_config(full) } else { t5_config(full) };
    let vocabulary = config["vocab_size"].as_u64().context("vocab_size")?;
    if kind == "qwen2" {
        qwen2::ModelForCausalLM::new(&serde_json::from_value(config.clone())?, vb)?;
    } else {
        let width = config["d_model"].as_u64().context("d_model")? as usize;
        vb.get((vocabulary as usize, width), "shared.weight")?;
        t5::T5ForConditionalGeneration::load(vb, &serde_json::from_value(config.clone())?)?;
    }
    map.save(folder.join("model.safetensors"))?;
    std::fs::write(folder.join("config.json"), config.to_string())?;
    std::fs::write(folder.join("tokenizer.json"), tokenizer(vocabulary).to_string())?;
    Ok(())
}

/// Qwen2 0.5B, or one with the same parts.
fn qwen2_config(full: bool) -> Value {
    let [vocabulary, hidden, inside, layers, heads] =
        if full { [151_936, 896, 4_864, 24, 14] } else { [256, 64, 128, 4, 4] };
    json!({
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": vocabulary, "hidden_size": hidden,
        "intermediate_size": inside, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": 2, "max_position_embeddings": 4096, "sliding_window": 4096, "max_window_layers": layers,
        "tie_word_embeddings": true, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "use_sliding_window": false,
        "hidden_act": "silu",
    })
}

/// T5 small, or one with the same parts.
fn t5_config(full: bool) -> Value {
    let [vocabulary, width, inside, layers, heads] = if full { [32_128, 512, 2_048, 6, 8] } else { [256, 64, 128, 2, 4] };
    json!({
        "model_type": "t5", "vocab_size": vocabulary, "d_model": width, "d_kv": width / heads, "d_ff": inside,
        "num_layers": layers, "num_decoder_layers": layers, "num_heads": heads, "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6,
        "initializer_factor": 1.0, "feed_forward_proj": "relu", "tie_word_embeddings": true, "is_decoder": false,
        "is_encoder_decoder": true, "use_cache": true, "pad_token_id": 0, "eos_token_id": vocabulary + 1,
        "decoder_start_token_id": 0,
    })
}

fn tokenizer(vocabulary: u64) -> Value {
    let mut words: Map<String, Value> = (0..vocabulary).map(|id| (format!("w{id}"), id.into())).collect();
    for (id, word) in (vocabulary..).zip(["<|endoftext|>", "<|im_end|>"]) {
        words.insert(word.into(), id.into());
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    })
}

/// The best of some products of matrices, and of some passes over memory.
fn peaks() -> Result<()> {
    let best = |work: &dyn Fn() -> Result<()>| -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            work()?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    let (a, b) = (matrix(768)?, matrix(768)?);
    let flops = 2. * 768f64.powi(3) / best(&|| Ok(drop(a.matmul(&b)?)))?;
    let (long, vector) = (matrix(4_096)?, Tensor::ones((4_096, 1), DType::F32, &Device::Cpu)?);
    let bandwidth = 4. * 4_096f64.powi(2) / best(&|| Ok(drop(long.matmul(&vector)?)))?;
    let peak = |kind: &str, value: f64, source: &str| json!({"kind": kind, "value": value, "label": "measured", "source": source});
    let mut product = peak("flops", flops, "candle, 768 x 768 x 768");
    product["dtype"] = "f32".into();
    println!("{}", json!([product, peak("bandwidth", bandwidth, "candle, 4096 x 4096 by a vector")]));
    Ok(())
}

fn matrix(n: usize) -> Result<Tensor> {
    Ok(Tensor::randn(0f32, 1., (n, n), &Device::Cpu)?)
}
