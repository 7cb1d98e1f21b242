//! `profile --model` with the kinds of models besides Llama: GPT-2, T5, BERT and whisper, end to end.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Value, json};
use std::path::Path;

/// A tensor file of small numbers, by name and shape.
fn save(path: &Path, shapes: &[(String, Vec<usize>)]) {
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, shape) in shapes {
        let (begin, count) = (data.len(), shape.iter().product::<usize>());
        let is_norm = shape.len() == 1 && name.ends_with("weight");
        data.extend((0..count).flat_map(|i| {
            let spread = ((i * 37 + begin) % 101) as f32 / 101. - 0.5;
            (if is_norm { 1. + spread / 10. } else { spread / 3. }).to_le_bytes()
        }));
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]}));
    }
    let mut header = Value::Object(header).to_string();
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    std::fs::write(path, file).unwrap();
}

fn write(directory: &Path, config: &Value, shapes: &[(String, Vec<usize>)]) {
    let vocabulary: serde_json::Map<String, Value> =
        (0..96u8).map(|i| (char::from(0x20 + i).to_string(), json!(i))).collect();
    let tokenizer = json!({
        "version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": vocabulary, "merges": []}
    });
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join("config.json"), config.to_string()).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    save(&directory.join("model.safetensors"), shapes);
}

fn gpt2(directory: &Path) {
    let config = json!({
        "model_type": "gpt2", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64,
        "activation_function": "gelu_new", "eos_token_id": 95,
    });
    let mut shapes = vec![("wte.weight".to_string(), vec![96, 32]), ("wpe.weight".to_string(), vec![64, 32])];
    let mut layers = vec![("ln_f".to_string(), vec![32])];
    for layer in 0..2 {
        for (name, shape) in [
            ("ln_1", vec![32]),
            ("attn.c_attn", vec![32, 96]),
            ("attn.c_proj", vec![32, 32]),
            ("ln_2", vec![32]),
            ("mlp.c_fc", vec![32, 128]),
            ("mlp.c_proj", vec![128, 32]),
        ] {
            layers.push((format!("h.{layer}.{name}"), shape));
        }
    }
    for (name, shape) in layers {
        shapes.push((format!("{name}.bias"), vec![shape[shape.len() - 1]]));
        shapes.push((format!("{name}.weight"), shape));
    }
    write(directory, &config, &shapes);
}

fn t5(directory: &Path) {
    let config = json!({
        "model_type": "t5", "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4,
        "relative_attention_num_buckets": 8, "dropout_rate": 0.1, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
        "feed_forward_proj": "relu", "is_encoder_decoder": true, "pad_token_id": 0, "eos_token_id": 1,
    });
    let mut shapes = vec![("shared.weight".to_string(), vec![96, 32])];
    for (stack, kinds) in [("encoder", &["SelfAttention"][..]), ("decoder", &["SelfAttention", "EncDecAttention"])] {
        let block = format!("{stack}.block.0.layer");
        for (layer, kind) in kinds.iter().enumerate() {
            shapes.extend(["q", "k", "v", "o"].map(|p| (format!("{block}.{layer}.{kind}.{p}.weight"), vec![32, 32])));
            shapes.push((format!("{block}.{layer}.layer_norm.weight"), vec![32]));
        }
        let last = kinds.len();
        shapes.push((format!("{block}.{last}.DenseReluDense.wi.weight"), vec![64, 32]));
        shapes.push((format!("{block}.{last}.DenseReluDense.wo.weight"), vec![32, 64]));
        shapes.push((format!("{block}.{last}.layer_norm.weight"), vec![32]));
        shapes.push((format!("{block}.0.SelfAttention.relative_attention_bias.weight"), vec![8, 4]));
        shapes.push((format!("{stack}.final_layer_norm.weight"), vec![32]));
    }
    write(directory, &config, &shapes);
}

fn bert(directory: &Path) {
    let config = json!({
        "model_type": "bert", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
        "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "max_position_embeddings": 64,
        "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    });
    let mut shapes = Vec::new();
    for (name, rows) in [("word", 96), ("position", 64), ("token_type", 2)] {
        shapes.push((format!("embeddings.{name}_embeddings.weight"), vec![rows, 32]));
    }
    for (name, shape) in [
        ("embeddings.LayerNorm", vec![32]),
        ("encoder.layer.0.attention.self.query", vec![32, 32]),
        ("encoder.layer.0.attention.self.key", vec![32, 32]),
        ("encoder.layer.0.attention.self.value", vec![32, 32]),
        ("encoder.layer.0.attention.output.dense", vec![32, 32]),
        ("encoder.layer.0.attention.output.LayerNorm", vec![32]),
        ("encoder.layer.0.intermediate.dense", vec![64, 32]),
        ("encoder.layer.0.output.dense", vec![32, 64]),
        ("encoder.layer.0.output.LayerNorm", vec![32]),
    ] {
        shapes.push((format!("{name}.bias"), vec![shape[0]]));
        shapes.push((format!("{name}.weight"), shape));
    }
    write(directory, &config, &shapes);
}

/// Profiles a model with two measured requests of six tokens; returns the command's JSON and the run's manifest.
fn profile(model: &Path, more: &[&str]) -> (Value, Value, String) {
    let run = model.with_extension("run");
    let mut args = vec!["profile", "--model", model.to_str().unwrap(), "--out", run.to_str().unwrap(), "--json"];
    args.extend(["--max-new-tokens", "6", "--repeats", "2", "--ignore-eos", "--prompt", "Hello there"]);
    args.extend(more);
    let result = json(&ok(&args));
    let operators = std::fs::read_to_string(run.join("operators.md")).unwrap();
    (result, manifest(&run), operators)
}

#[test]
fn gpt2_from_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("gpt2");
    gpt2(&model);
    let (result, m, operators) = profile(&model, &[]);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!((&m["model"]["architecture"], &m["model"]["engine"]), (&json!("gpt2"), &json!("instrumented")));
    assert_eq!(m["counts"]["steps"], 3 * 6);
    assert!(!result["text"][0].as_str().unwrap().is_empty(), "{result}");
    for name in ["c_attn", "c_fc", "ln_1", "wpe"] {
        assert!(operators.contains(name), "{name} is not in\n{operators}");
    }
    let message = fails(&["profile", "--model", model.to_str().unwrap(), "--engine", "candle"]);
    assert!(message.contains("candle-transformers has no GPT-2"), "{message}");
}

#[test]
fn t5_encodes_and_decodes() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("t5");
    t5(&model);
    let (result, m, operators) = profile(&model, &["--engine", "candle"]);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!(m["model"]["encoder_layers"], 1);
    // A pass of the encoder, and six tokens.
    assert_eq!(m["counts"]["steps"], 3 * 7);
    assert_eq!(m["results"]["prompt_tokens"], 11);
    assert!(operators.contains("EncDecAttention"), "{operators}");
    let text = result["metrics"].to_string();
    for phase in ["encode", "prefill", "decode"] {
        assert!(text.contains(phase), "{phase} is not in {text}");
    }
    let message = fails(&["profile", "--model", model.to_str().unwrap()]);
    assert!(message.contains("choose the engine `candle`"), "{message}");
}

#[test]
fn bert_encodes_and_has_no_figures_of_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("bert");
    bert(&model);
    let (result, m, _) = profile(&model, &["--engine", "candle", "--batch", "2"]);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!((&m["counts"]["steps"], &m["counts"]["requests"]), (&json!(3), &json!(3)));
    assert_eq!(m["results"].get("finish_reason"), None);
    assert_eq!(result["text"], json!([]));
    let rows = result["metrics"]["requests"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(row["e2e_ns"].as_u64().unwrap() > 0, "{row}");
        assert_eq!((&row["prompt_tokens"], row["output_tokens"].as_u64().unwrap_or(0)), (&json!(11), 0), "{row}");
        for figure in ["ttft_ns", "tpot_ns", "prefill_tps", "decode_tps"] {
            assert!(row[figure].is_null(), "{figure} of {row}");
        }
    }
    let run = dir.path().join("text");
    let out = run.to_str().unwrap();
    let args = ["profile", "--model", model.to_str().unwrap(), "--engine", "candle", "--out", out, "--repeats", "1"];
    let text = ok(&args);
    assert!(text.contains("tokens encoded: a vector of 32 features a text"), "{text}");
    assert!(!text.to_lowercase().contains("time to first token"), "{text}");
    let model = model.to_str().unwrap();
    let message = fails(&["profile", "--model", model, "--engine", "candle", "--prompt-tokens", "65"]);
    assert!(message.contains("65 positions") && message.contains("at most 64"), "{message}");
}
