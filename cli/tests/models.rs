//! `profile --model` with the kinds of models besides Llama: GPT-2, T5, BERT and PaddleOCR-VL, end to end.
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

#[test]
fn minilm_from_its_own_directory() {
    let Some(weights) = require(&MINILM) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (model, run) = (weights.parent().unwrap().to_str().unwrap(), dir.path().join("run"));
    let args = ["profile", "--model", model, "--engine", "candle", "--out", run.to_str().unwrap(), "--repeats", "2"];
    let text = ok(&[&args[..], &["--prompt", "A man is eating food."]].concat());
    assert!(text.contains("8 tokens encoded: a vector of 384 features a text"), "{text}");
    let m = manifest(&run);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!((&m["model"]["name"], &m["model"]["layers"]), (&json!("all-MiniLM-L6-v2"), &json!(6)));
    let operators = std::fs::read_to_string(run.join("operators.md")).unwrap();
    assert!(operators.contains("encoder.layer.*.output.dense"), "{operators}");
}

fn paddleocr_vl(directory: &Path) {
    let config = json!({
        "model_type": "paddleocr_vl", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 64, "image_token_id": 95, "vision_start_token_id": 94, "vision_end_token_id": 93,
        "rope_scaling": {"mrope_section": [2, 1, 1]},
        "vision_config": {
            "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14,
        },
    });
    let (tower, eye, layer) = ("visual.vision_model", "visual.vision_model.encoder.layers.0", "model.layers.0");
    let mut shapes: Vec<(String, Vec<usize>)> = [
        (format!("{tower}.embeddings.position_embedding"), vec![4, 16]),
        (format!("{tower}.embeddings.packing_position_embedding"), vec![32_768, 16]),
        ("model.embed_tokens".into(), vec![96, 32]),
        ("model.norm".into(), vec![32]),
        ("lm_head".into(), vec![96, 32]),
        (format!("{layer}.input_layernorm"), vec![32]),
        (format!("{layer}.post_attention_layernorm"), vec![32]),
        (format!("{layer}.self_attn.q_proj"), vec![32, 32]),
        (format!("{layer}.self_attn.k_proj"), vec![16, 32]),
        (format!("{layer}.self_attn.v_proj"), vec![16, 32]),
        (format!("{layer}.self_attn.o_proj"), vec![32, 32]),
        (format!("{layer}.mlp.gate_proj"), vec![64, 32]),
        (format!("{layer}.mlp.up_proj"), vec![64, 32]),
        (format!("{layer}.mlp.down_proj"), vec![32, 64]),
    ]
    .map(|(name, shape)| (format!("{name}.weight"), shape))
    .to_vec();
    let mut biased = vec![
        (format!("{tower}.embeddings.patch_embedding"), vec![16, 3, 14, 14]),
        (format!("{tower}.post_layernorm"), vec![16]),
        ("mlp_AR.pre_norm".into(), vec![16]),
        ("mlp_AR.linear_1".into(), vec![64, 64]),
        ("mlp_AR.linear_2".into(), vec![32, 64]),
        (format!("{eye}.mlp.fc1"), vec![32, 16]),
        (format!("{eye}.mlp.fc2"), vec![16, 32]),
    ];
    biased.extend(["layer_norm1", "layer_norm2"].map(|norm| (format!("{eye}.{norm}"), vec![16])));
    biased.extend(["q", "k", "v", "out"].map(|part| (format!("{eye}.self_attn.{part}_proj"), vec![16, 16])));
    for (name, shape) in biased {
        shapes.push((format!("{name}.bias"), vec![shape[0]]));
        shapes.push((format!("{name}.weight"), shape));
    }
    write(directory, &config, &shapes);
    let sizes = json!({"min_pixels": 28 * 28, "max_pixels": 10_000});
    std::fs::write(directory.join("preprocessor_config.json"), sizes.to_string()).unwrap();
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
    // Only candle has it: that is chosen by itself.
    let (result, m, operators) = profile(&model, &[]);
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    assert_eq!((&m["model"]["engine"], &m["options"]["engine"]), (&json!("candle"), &json!("auto")));
    assert_eq!(m["model"]["encoder_layers"], 1);
    // A pass of the encoder, and six tokens.
    assert_eq!(m["counts"]["steps"], 3 * 7);
    assert_eq!(m["results"]["prompt_tokens"], 11);
    assert!(operators.contains("EncDecAttention"), "{operators}");
    let text = result["metrics"].to_string();
    for phase in ["encode", "prefill", "decode"] {
        assert!(text.contains(phase), "{phase} is not in {text}");
    }
    let model = model.to_str().unwrap();
    let message = fails(&["profile", "--model", model, "--engine", "instrumented"]);
    assert!(message.contains("choose the engine `candle`"), "{message}");
    for model in [model, "config:t5-small"] {
        let out = dir.path().join("study");
        let message = fails(&["bench", "latency", "--quick", "--model", model, "--out", out.to_str().unwrap()]);
        let told = ["has an encoder", "candlescope profile --model"];
        assert!(told.iter().all(|told| message.contains(told)) && !message.contains("did you mean"), "{message}");
        assert!(!out.exists(), "a study without a figure is left in the way");
    }
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
    let output = common::run(&["profile", "--model", model.to_str().unwrap(), "--out", out, "--repeats", "1"]);
    let (shown, noted) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        noted.matches("note: bert runs as candle-transformers' own model (--engine candle)").count(),
        1,
        "{noted}"
    );
    assert!(shown.contains("tokens encoded: a vector of 32 features a text"), "{shown}");
    assert!(!shown.to_lowercase().contains("time to first token"), "{shown}");
    let model = model.to_str().unwrap();
    let message = fails(&["profile", "--model", model, "--engine", "candle", "--prompt-tokens", "65"]);
    assert!(message.contains("65 positions") && message.contains("at most 64"), "{message}");
}

/// A PNG of one colour.
fn png(path: &Path, width: u32, height: u32) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![90; (3 * width * height) as usize]).unwrap();
}

#[test]
fn paddleocr_vl_looks_at_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let (model, page) = (dir.path().join("paddle"), dir.path().join("page.png"));
    paddleocr_vl(&model);
    png(&page, 60, 50);
    let image = page.to_str().unwrap();
    let (result, m, _) = profile(&model, &["--engine", "candle", "--image", image]);
    // It has no spans of its own: phases and tokens are right, and a warning says what is not there.
    assert_eq!(m["verdict"]["ok"], true, "{}", m["verdict"]);
    let findings = m["verdict"]["findings"].as_array().unwrap();
    let found = findings.iter().find(|f| f["code"] == "no_model_spans").unwrap_or_else(|| panic!("{findings:?}"));
    assert!(found.to_string().contains("Models without spans"), "{found}");
    assert!(found.to_string().contains("the model makes no spans of its own"), "{found}");
    let page = std::fs::read_to_string(model.with_extension("run").join("report.md")).unwrap();
    assert!(!page.contains("cannot be trusted"), "{page}");
    assert_eq!((&m["model"]["architecture"], &m["model"]["encoder_layers"]), (&json!("paddleocr_vl"), &json!(1)));
    // Three requests of six tokens, and a look at the image before each that is measured.
    assert_eq!((&m["counts"]["steps"], &m["counts"]["requests"]), (&json!(3 * 6 + 2), &json!(3)));
    // `User: `, four tokens of the image between two, the prompt, `Assistant: `.
    assert_eq!(m["results"]["prompt_tokens"], 6 + 6 + 11 + 11);
    let phases: Vec<_> =
        result["metrics"]["phases"]["rows"].as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    for phase in ["vision", "prefill", "decode"] {
        assert!(phases.contains(&json!(phase)), "{phase} is not in {phases:?}");
    }
    assert!(!result["text"][0].as_str().unwrap().is_empty(), "{result}");

    // By itself it runs as the wrapped layers, which are all seen.
    let layers = dir.path().join("layers");
    let args = ["profile", "--model", model.to_str().unwrap(), "--image", image, "--out", layers.to_str().unwrap()];
    ok(&[&args[..], &["--repeats", "2", "--max-new-tokens", "4", "--ignore-eos", "--prompt", "Hello there"]].concat());
    let m = manifest(&layers);
    assert_eq!(
        (&m["verdict"]["ok"], &m["model"]["engine"]),
        (&json!(true), &json!("instrumented")),
        "{}",
        m["verdict"]
    );
    assert!(!m["verdict"]["findings"].to_string().contains("no_model_spans"), "{}", m["verdict"]);
    let operators = std::fs::read_to_string(layers.join("operators.md")).unwrap();
    for layer in ["vision/tower/block/self_attn/q_proj", "prefill/tower/projector/linear_1", "decode/block/mlp/up_proj"]
    {
        assert!(operators.contains(layer), "{layer} is not in {operators}");
    }

    let run = dir.path().join("random");
    let (model, out) = (model.to_str().unwrap(), run.to_str().unwrap());
    let args =
        ["profile", "--model", model, "--engine", "candle", "--out", out, "--repeats", "1", "--prompt-tokens", "9"];
    ok(&args);
    // 28 × 28 random pixels are one token.
    assert_eq!(manifest(&run)["results"]["prompt_tokens"], 1 + 2 + 9);
}

#[test]
fn images_are_refused_by_name_before_anything_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.png");
    let out = dir.path().join("run");
    let fails = |model: &str| {
        let args = ["profile", "--model", model, "--engine", "candle", "--image", page.to_str().unwrap()];
        let message = fails(&[&args[..], &["--out", out.to_str().unwrap()]].concat());
        assert!(!out.exists(), "a run that recorded nothing is left in the way");
        message
    };
    let message = fails("config:paddleocr-vl");
    assert!(message.contains("page.png cannot be read") && message.contains("PNG or JPEG"), "{message}");
    std::fs::write(&page, "no picture").unwrap();
    assert!(fails("config:paddleocr-vl").contains("page.png is neither PNG nor JPEG"));
    png(&page, 30, 30);
    let whole = std::fs::read(&page).unwrap();
    std::fs::write(&page, &whole[..50]).unwrap();
    assert!(fails("config:paddleocr-vl").contains("page.png is damaged"));
    std::fs::write(&page, whole).unwrap();
    let model = dir.path().join("bert");
    bert(&model);
    let message = fails(model.to_str().unwrap());
    assert!(message.contains("bert looks at no images") && message.contains("leave --image out"), "{message}");
}
