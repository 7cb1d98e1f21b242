//! Small candle models with random weights, and a function that records what they do.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by several test binaries")]

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::{bert, llama, quantized_llama};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, MemoryExporter, Session, SpanRecord};
use std::io::{Cursor, Read, Seek};
use tracing_subscriber::prelude::*;

pub const LAYERS: usize = 3;

/// Runs `f` under a session of its own and returns what was recorded.
pub fn record<R>(f: impl FnOnce() -> R) -> (Batch, RunManifest, R) {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().expect("starts");
    let result = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), f);
    let manifest = session.finish();
    for e in &manifest.exporters {
        assert!(e.conserved(), "{e:?}");
    }
    assert_eq!(manifest.loss.emitted, manifest.counts["spans"], "nothing is lost, {:?}", manifest.loss);
    (memory.batch(), manifest, result)
}

/// Paths in enter order, of one step if given.
pub fn paths(batch: &Batch, step: Option<u64>) -> Vec<&str> {
    let mut spans: Vec<&SpanRecord> = batch.spans.iter().filter(|s| step.is_none() || s.step == step).collect();
    spans.sort_by_key(|s| s.seq);
    spans.into_iter().map(|s| s.path.path.as_str()).collect()
}

pub fn llama_config() -> llama::Config {
    llama::Config {
        hidden_size: 32,
        intermediate_size: 64,
        vocab_size: 96,
        num_hidden_layers: LAYERS,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 128,
        tie_word_embeddings: false,
    }
}

pub fn llama() -> (llama::Llama, llama::Cache) {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let config = llama_config();
    let cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("cache");
    (llama::Llama::load(vb, &config).expect("llama loads"), cache)
}

pub fn bert_config() -> bert::Config {
    bert::Config {
        vocab_size: 96,
        hidden_size: 32,
        num_hidden_layers: LAYERS,
        num_attention_heads: 4,
        intermediate_size: 64,
        max_position_embeddings: 64,
        model_type: None,
        ..bert::Config::default()
    }
}

pub fn bert() -> bert::BertModel {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    bert::BertModel::load(vb, &bert_config()).expect("bert loads")
}

/// A tiny GGUF in memory, loaded by candle's own reader.
pub fn quantized_llama() -> quantized_llama::ModelWeights {
    quantized_llama_of(|file| file)
}

/// The same with a reader around the file.
pub fn quantized_llama_of<R: Read + Seek>(around: impl FnOnce(Cursor<Vec<u8>>) -> R) -> quantized_llama::ModelWeights {
    let (hidden, ffn, vocab, kv) = (32, 64, 96, 16);
    let random = |rows: usize, cols: usize| {
        let t = Tensor::randn(0f32, 0.05, (rows, cols), &Device::Cpu).expect("random");
        QTensor::quantize(&t, GgmlDType::Q8_0).expect("quantize")
    };
    let ones = |n: usize| {
        let t = Tensor::ones(n, DType::F32, &Device::Cpu).expect("ones");
        QTensor::quantize(&t, GgmlDType::F32).expect("f32")
    };
    let mut tensors = vec![
        ("token_embd.weight".to_string(), random(vocab, hidden)),
        ("output_norm.weight".to_string(), ones(hidden)),
        ("output.weight".to_string(), random(vocab, hidden)),
    ];
    for l in 0..LAYERS {
        for (name, rows, cols) in [
            ("attn_q", hidden, hidden),
            ("attn_k", kv, hidden),
            ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", ffn, hidden),
            ("ffn_up", ffn, hidden),
            ("ffn_down", hidden, ffn),
        ] {
            tensors.push((format!("blk.{l}.{name}.weight"), random(rows, cols)));
        }
        for name in ["attn_norm", "ffn_norm"] {
            tensors.push((format!("blk.{l}.{name}.weight"), ones(hidden)));
        }
    }
    let metadata = [
        ("general.architecture", Value::String("llama".into())),
        ("llama.attention.head_count", Value::U32(4)),
        ("llama.attention.head_count_kv", Value::U32(2)),
        ("llama.block_count", Value::U32(LAYERS as u32)),
        ("llama.embedding_length", Value::U32(hidden as u32)),
        ("llama.rope.dimension_count", Value::U32(8)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
    ];
    let mut file = Cursor::new(Vec::new());
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    gguf_file::write(&mut file, &metadata, &tensors).expect("written");
    file.set_position(0);
    let mut file = around(file);
    let content = gguf_file::Content::read(&mut file).expect("read back");
    quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu).expect("quantized llama loads")
}

pub fn tokens(n: usize) -> Tensor {
    let ids: Vec<u32> = (0..n as u32).map(|i| (i * 7 + 3) % 96).collect();
    Tensor::new(ids.as_slice(), &Device::Cpu).and_then(|t| t.unsqueeze(0)).expect("tokens")
}
