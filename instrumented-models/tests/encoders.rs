//! candle's T5, BERT and whisper, and its decoders qwen2, qwen3 and mistral, from directories that the tests write and
//! from named configurations: phases, tokens, FLOPs, and each bad input by its name.
#![allow(missing_docs, reason = "a test")]
mod common;
#[path = "encoders/minilm.rs"]
mod minilm;
#[path = "encoders/vision.rs"]
mod vision;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, t5};
use candlescope_core::{Batch, MemoryExporter, Phase, Session};
use candlescope_models::config::{FeedForward, ModelConfig};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::weights::WeightSource;
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{AnyModel, GenerateOptions, Image, ModelSource, encode, generate, generate_from};
use common::*;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use tracing_subscriber::prelude::*;

fn record<T>(f: impl FnOnce() -> T) -> (Batch, T) {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    let result = common::listening(tracing_subscriber::registry().with(layer), f);
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    let mut batch = memory.batch();
    batch.steps.sort_by_key(|step| step.step);
    (batch, result)
}

fn options(max_new_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_new_tokens, ignore_eos: true, ..GenerateOptions::default() }
}

fn candle() -> LoadOptions {
    LoadOptions { engine: Engine::Candle, ..LoadOptions::default() }
}

fn ours() -> LoadOptions {
    LoadOptions { engine: Engine::Instrumented, ..LoadOptions::default() }
}

fn at(directory: &Path) -> ModelSource {
    ModelSource::parse(directory.to_str().unwrap()).unwrap()
}

fn t5_json() -> Value {
    json!({
        "model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2,
        "num_decoder_layers": 3, "num_heads": 4, "relative_attention_num_buckets": 8, "n_positions": 40,
        "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0, "feed_forward_proj": "relu",
        "is_encoder_decoder": true, "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1,
    })
}

fn bert_json() -> Value {
    json!({
        "model_type": "bert", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "max_position_embeddings": 40,
        "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    })
}

/// Names and shapes of T5's weights, as the configuration above has them.
fn t5_shapes() -> Vec<(String, Vec<usize>)> {
    let mut all = vec![("shared.weight".to_string(), vec![96, 32])];
    for (stack, layers) in [("encoder", 2), ("decoder", 3)] {
        for block in 0..layers {
            let kinds = if stack == "encoder" { &["SelfAttention"][..] } else { &["SelfAttention", "EncDecAttention"] };
            for (layer, kind) in kinds.iter().enumerate() {
                let path = format!("{stack}.block.{block}.layer.{layer}");
                all.extend(["q", "k", "v", "o"].map(|part| (format!("{path}.{kind}.{part}.weight"), vec![32, 32])));
                all.push((format!("{path}.layer_norm.weight"), vec![32]));
            }
            let path = format!("{stack}.block.{block}.layer.{}", kinds.len());
            all.push((format!("{path}.DenseReluDense.wi.weight"), vec![64, 32]));
            all.push((format!("{path}.DenseReluDense.wo.weight"), vec![32, 64]));
            all.push((format!("{path}.layer_norm.weight"), vec![32]));
        }
        let bias = format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        all.push((bias, vec![8, 4]));
        all.push((format!("{stack}.final_layer_norm.weight"), vec![32]));
    }
    all
}

fn bert_shapes(prefix: &str) -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    let mut add = |name: String, shape: &[usize]| all.push((format!("{prefix}{name}"), shape.to_vec()));
    for (name, rows) in [("word", 96), ("position", 40), ("token_type", 2)] {
        add(format!("embeddings.{name}_embeddings.weight"), &[rows, 32]);
    }
    let mut norms = vec!["embeddings.LayerNorm".to_string()];
    for layer in 0..2 {
        let path = format!("encoder.layer.{layer}");
        for (name, shape) in [
            ("attention.self.query", [32, 32]),
            ("attention.self.key", [32, 32]),
            ("attention.self.value", [32, 32]),
            ("attention.output.dense", [32, 32]),
            ("intermediate.dense", [64, 32]),
            ("output.dense", [32, 64]),
        ] {
            add(format!("{path}.{name}.weight"), &shape);
            add(format!("{path}.{name}.bias"), &shape[..1]);
        }
        norms.extend(["attention.output", "output"].map(|name| format!("{path}.{name}.LayerNorm")));
    }
    for norm in norms {
        add(format!("{norm}.weight"), &[32]);
        add(format!("{norm}.bias"), &[32]);
    }
    all
}

fn write(directory: &Path, json: &Value, shapes: &[(String, Vec<usize>)]) -> HashMap<String, Tensor> {
    let mut source = RandomWeights::of_any_model(true, 7, DType::F32, &Device::Cpu);
    let tensors: HashMap<String, Tensor> =
        shapes.iter().map(|(name, shape)| (name.clone(), source.dense(name, shape).unwrap())).collect();
    std::fs::write(directory.join("config.json"), json.to_string()).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer_json()).unwrap();
    candle_core::safetensors::save(&tensors, directory.join("model.safetensors")).unwrap();
    tensors
}

#[test]
fn t5_encodes_once_and_decodes_token_by_token() {
    let directory = tempfile::tempdir().unwrap();
    let tensors = write(directory.path(), &t5_json(), &t5_shapes());
    let (batch, output) = record(|| {
        let AnyModel::EncoderDecoder(mut model) = AnyModel::load(&at(directory.path()), &candle()).unwrap() else {
            panic!("T5 has both")
        };
        let parameters: usize = t5_shapes().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!((model.info.parameters, model.info.encoder_layers), (parameters as u64, Some(2)));
        let tokens = model.encode_prompt("Hello").unwrap();
        let source = model.text(&tokens, 1).unwrap();
        generate_from(&mut model, &source, &options(4), &mut |_| {}).unwrap()
    });
    // The same by candle's own loop, all of the text at each step.
    let config: t5::Config = serde_json::from_value(t5_json()).unwrap();
    let vb = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let mut theirs = t5::T5ForConditionalGeneration::load(vb, &config).unwrap();
    let source: Vec<u32> = "Hello".bytes().map(|byte| u32::from(byte) - 0x20).collect();
    let encoded = theirs.encode(&Tensor::new(&source[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap()).unwrap();
    let mut text = vec![0u32];
    for _ in 0..4 {
        theirs.clear_kv_cache();
        let ids = Tensor::new(&text[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let next = theirs.decode(&ids, &encoded).unwrap().argmax(1).unwrap().to_vec1::<u32>().unwrap();
        text.push(next[0]);
    }
    assert_eq!(output.sequences[0].tokens, text[1..]);

    let phases: Vec<_> =
        batch.steps.iter().map(|s| (s.phase.unwrap(), s.tokens.unwrap(), s.context_len.unwrap())).collect();
    let decode = |context| (Phase::Decode, 1, context);
    assert_eq!(phases, [(Phase::Encode, 5, 5), (Phase::Prefill, 1, 1), decode(2), decode(3), decode(4)]);
    let request = &batch.requests[0];
    assert_eq!((request.prompt_tokens, request.output_tokens), (Some(5), Some(4)));
    assert!(request.ttft_ns.is_some());

    // FLOPs by a formula of its own. Five tokens through two layers, four squares and a network of two matrices each.
    let (square, network) = (32 * 32, 2 * 32 * 64);
    let encode = 2 * (2 * 5 * (4 * square + network) + 2 * 2 * 32 * 5 * 5);
    // A token through three layers, six squares without the source's keys and values; attention to the text so far and
    // to the source; the head.
    let token = |context: u64| 2 * (3 * (6 * square + network) + 3 * 2 * 32 * (context + 5) + 32 * 96);
    let source = 2 * 3 * 5 * 2 * square;
    let expected: Vec<(u64, u64)> = std::iter::once((encode, encode))
        .chain([(token(1) + source, token(1) + source)])
        // What is made anew for each token is executed, and not needed.
        .chain((2..=4).map(|context| (token(context), token(context) + source)))
        .collect();
    let found: Vec<_> = batch.steps.iter().map(|s| (s.flops.unwrap(), s.flops_executed.unwrap())).collect();
    assert_eq!(found, expected);
}

#[test]
fn bert_encodes_and_generates_nothing() {
    for prefix in ["", "bert."] {
        let directory = tempfile::tempdir().unwrap();
        let tensors = write(directory.path(), &bert_json(), &bert_shapes(prefix));
        let (batch, (tokens, encoding)) = record(|| {
            let AnyModel::Encoder(model) = AnyModel::load(&at(directory.path()), &candle()).unwrap() else {
                panic!("BERT only encodes")
            };
            let tokens = model.encode_prompt("A text").unwrap();
            let encoding = encode(&model, &[tokens.clone(), tokens.clone()]).unwrap();
            (tokens, encoding)
        });
        let config: bert::Config = serde_json::from_value(bert_json()).unwrap();
        let vb = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
        let vb = if prefix.is_empty() { vb } else { vb.pp("bert") };
        let theirs = bert::BertModel::load(vb, &config).unwrap();
        let ids = Tensor::new(&tokens[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let hidden = theirs.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap();
        let mean = hidden.mean(1).unwrap().squeeze(0).unwrap().to_vec1::<f32>().unwrap();
        assert_eq!((encoding.vectors.len(), encoding.tokens), (2, 6));
        for (ours, theirs) in encoding.vectors[1].iter().zip(&mean) {
            assert!((ours - theirs).abs() < 1e-5, "{ours} {theirs}");
        }
        assert_eq!(batch.steps.len(), 1);
        let step = &batch.steps[0];
        assert_eq!((step.phase, step.tokens, step.batch), (Some(Phase::Encode), Some(12), Some(2)));
        let layers = 2 * 12 * 2 * (4 * 32 * 32 + 2 * 32 * 64);
        assert_eq!(step.flops, Some(layers + 2 * 2 * 4 * 32 * 6 * 6));
        let request = &batch.requests[0];
        assert_eq!((request.output_tokens.unwrap_or(0), request.ttft_ns, request.last_token_ns), (0, None, None));
    }
}

#[test]
fn whisper_hears_random_frames() {
    let json = json!({
        "model_type": "whisper", "num_mel_bins": 8, "max_source_positions": 16, "d_model": 32, "vocab_size": 96,
        "encoder_attention_heads": 4, "encoder_layers": 2, "max_target_positions": 12, "decoder_attention_heads": 4,
        "decoder_layers": 2, "decoder_start_token_id": 90, "eos_token_id": 91, "forced_decoder_ids": [[1, 92]],
    });
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("config.json"), json.to_string()).unwrap();
    std::fs::write(directory.path().join("tokenizer.json"), tokenizer_json()).unwrap();
    // Weights are what candle asks for.
    let map = candle_nn::VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let config = serde_json::from_value(json).unwrap();
    candle_transformers::models::whisper::model::Whisper::load(&vb, config).unwrap();
    map.save(directory.path().join("model.safetensors")).unwrap();
    let (batch, output) = record(|| {
        let AnyModel::EncoderDecoder(mut model) = AnyModel::load(&at(directory.path()), &candle()).unwrap() else {
            panic!("whisper has both")
        };
        assert!(model.reads_sound());
        let message = model.random_source(17, 1, 1).unwrap_err().to_string();
        assert!(message.contains("17 positions") && message.contains("at most 16"), "{message}");
        let source = model.random_source(10, 1, 1).unwrap();
        generate_from(&mut model, &source, &options(100), &mut |_| {}).unwrap()
    });
    // The text ends where its positions do: two tokens begin it.
    assert_eq!(output.sequences[0].tokens.len(), 10);
    let phases: Vec<_> =
        batch.steps.iter().map(|s| (s.phase.unwrap(), s.tokens.unwrap(), s.new_tokens.unwrap())).collect();
    assert_eq!(phases[..3], [(Phase::Encode, 10, 10), (Phase::Prefill, 2, 2), (Phase::Decode, 3, 1)]);
    let (square, network) = (32 * 32, 2 * 32 * 128);
    // 20 frames of 8 bands in windows of three, and of 32 features at ten positions.
    let convolutions = 20 * 3 * 8 * 32 + 10 * 3 * 32 * 32;
    let encode = 2 * (convolutions + 2 * 10 * (4 * square + network) + 2 * 2 * 32 * 10 * 10);
    // Of what all has to pass each time, only the new tokens are needed; attention of those pairs that are not masked.
    let text = |n: u64, pairs: u64| 2 * (2 * n * (6 * square + network) + 2 * 2 * 32 * (pairs + n * 10) + 32 * 96);
    let source = 2 * 2 * 10 * 2 * square;
    let found: Vec<_> = batch.steps[..3].iter().map(|s| s.flops).collect();
    // The sound's keys and values are kept.
    assert_eq!(found, [Some(encode), Some(text(2, 3) + source), Some(text(1, 3))]);
    let executed: Vec<_> = batch.steps[..3].iter().map(|s| s.flops_executed).collect();
    assert_eq!(executed, [Some(encode), Some(text(2, 4) + source), Some(text(3, 9))]);
}

#[test]
fn decoders_of_candle_run_from_a_directory() {
    let base = ModelConfig { rms_norm_eps: 1e-6, ..tiny() };
    for (architecture, config) in [
        ("qwen2", ModelConfig { qkv_bias: true, tie_embeddings: true, ..base.clone() }),
        ("qwen3", ModelConfig { head_dim: 32, tie_embeddings: true, ..base.clone() }),
        ("mistral", base.clone()),
    ] {
        let config = ModelConfig { architecture: architecture.into(), ..config };
        let directory = tempfile::tempdir().unwrap();
        write_directory(directory.path(), &config, false);
        let (batch, output) = record(|| {
            let mut theirs = load(directory.path(), Engine::Candle, DType::F32, false);
            assert_eq!(theirs.info.parameters, config.parameters());
            if architecture != "qwen3" {
                let mut ours = load(directory.path(), Engine::Instrumented, DType::F32, false);
                let apart = compare(ours.model.as_mut(), theirs.model.as_mut(), 1);
                assert!(apart.theirs < 2e-6, "{architecture}: {apart:?}");
            }
            generate(&mut theirs, &[vec![3, 4, 5]], &options(4), &mut |_| {}).unwrap()
        });
        assert_eq!(output.sequences[0].tokens.len(), 4);
        let modules: Vec<_> = batch.spans.iter().filter_map(|span| span.path.module.as_deref()).collect();
        assert!(modules.contains(&"model.layers.2.mlp.down_proj"), "{architecture}: {modules:?}");
        let last = batch.steps.last().unwrap();
        let i = match config.feed_forward {
            FeedForward::SwiGlu { intermediate } => intermediate,
            _ => unreachable!(),
        };
        let (d, q, kv) = (64, 4 * config.head_dim, 2 * config.head_dim);
        let layer = d * q + 2 * d * kv + q * d + 3 * d * i + 2 * q * 6;
        assert_eq!(last.flops, Some(2 * (3 * layer + d * 96) as u64), "{architecture}");
    }
}

#[test]
fn each_bad_input_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let refuse = |options: &LoadOptions| AnyModel::load(&at(path), options).unwrap_err().to_string();
    let says = |message: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(message.contains(part), "`{part}` is not in: {message}"));
    };
    for (json, shapes, fields, tensor) in [
        (t5_json(), t5_shapes(), ["d_model", "num_layers"], "decoder.block.1.layer.1.EncDecAttention.k.weight"),
        (bert_json(), bert_shapes(""), ["hidden_size", "num_hidden_layers"], "encoder.layer.1.output.dense.weight"),
    ] {
        let all = write(path, &json, &shapes);
        says(refuse(&ours()), &["candle-transformers' own model only", "engine `candle`"]);
        // Nobody has to know that.
        assert_eq!(AnyModel::load(&at(path), &LoadOptions::default()).unwrap().info().engine, "candle");
        // A program that only continues texts says that this is none.
        let alone = LoadedModel::load(&at(path), &candle()).unwrap_err().to_string();
        says(alone, &[json["model_type"].as_str().unwrap(), "has an encoder", "candlescope profile"]);
        for field in fields {
            for wrong in [json!("wide"), json!(0), Value::Null] {
                let mut changed = json.clone();
                changed[field] = wrong;
                std::fs::write(path.join("config.json"), changed.to_string()).unwrap();
                says(refuse(&candle()), &[field]);
            }
        }
        let mut large = json.clone();
        large["vocab_size"] = json!(1u64 << 40);
        std::fs::write(path.join("config.json"), large.to_string()).unwrap();
        says(refuse(&candle()), &["vocab_size is 1099511627776", "limit"]);
        std::fs::write(path.join("config.json"), json.to_string()).unwrap();

        let save = |tensors: &HashMap<String, Tensor>| {
            candle_core::safetensors::save(tensors, path.join("model.safetensors")).unwrap();
        };
        let changed = RefCell::new(all.clone());
        changed.borrow_mut().remove(tensor);
        save(&changed.borrow());
        says(refuse(&candle()), &[tensor, "is missing from"]);
        changed.borrow_mut().insert(tensor.into(), Tensor::zeros((3, 5), DType::F32, &Device::Cpu).unwrap());
        save(&changed.borrow());
        says(refuse(&candle()), &[tensor, "has shape [3, 5]"]);
    }
    let mut act = bert_json();
    act["hidden_act"] = json!("swish");
    write(path, &act, &bert_shapes(""));
    says(refuse(&candle()), &["`hidden_act` `swish`"]);
    let mut mamba = bert_json();
    mamba["model_type"] = json!("mamba");
    std::fs::write(path.join("config.json"), mamba.to_string()).unwrap();
    says(refuse(&candle()), &["`mamba` is not supported", "llama, mistral, qwen2, qwen3, bert, t5, whisper"]);
    says(refuse(&ours()), &["`mamba` is not supported", "llama, mistral, qwen2, gpt2"]);
    says(refuse(&LoadOptions::default()), &["`mamba` is not supported", "qwen3, gpt2, bert, t5, whisper"]);

    let named = |name: &str, options: &LoadOptions| {
        AnyModel::load(&ModelSource::Config(name.into()), options).unwrap_err().to_string()
    };
    says(named("t5-small", &ours()), &["`t5`", "engine `candle`"]);
    says(named("gpt2", &candle()), &["candle-transformers has no GPT-2"]);
    says(named("qwen3-0.6b", &ours()), &["`qwen3`", "engine `candle`"]);
    says(named("t5-smal", &candle()), &["did you mean `t5-small`?"]);
    let half = LoadOptions { dtype: Some(DType::F16), ..candle() };
    says(named("whisper-tiny", &half), &["whisper computes in f32 only"]);
}
