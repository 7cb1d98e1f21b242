//! GPT-2: logits equal a reference in NumPy, and what a session records of it adds up to the cost model.
//!
//! The reference is `tests/python/gpt2_reference.py`; `tests/peers/gpt2.sh` holds both against transformers.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Tensor};
use candlescope_core::llm;
use candlescope_core::{Batch, MemoryExporter, Session, SpanRecord};
use candlescope_models::config::{FeedForward, GPT2, ModelConfig};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{CausalLm, GenerateOptions, Gpt2, ModelSource, generate};
use candlescope_testkit::ROOT;
use candlescope_testkit::tools::PYTHON;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Cost;
use candlescope_work::step::{Operands, forward, total, total_of};
use common::*;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use tracing_subscriber::prelude::*;

/// Largest difference of a logit over the largest logit, in f32 against double precision.
const TOLERANCE: f64 = 5e-6;

const PREFIX: &str = "transformer.";

/// 3 layers of 4 heads, a feed-forward network of another width than usual, a context of 64.
fn small() -> ModelConfig {
    let gpt2 = ModelConfig::named("gpt2").unwrap();
    ModelConfig {
        name: "small".into(),
        vocab_size: 96,
        hidden_size: 48,
        feed_forward: FeedForward::Gelu { intermediate: 80 },
        num_layers: 3,
        num_heads: 4,
        num_kv_heads: 4,
        head_dim: 12,
        max_context: 64,
        eos: vec![95],
        bos: Some(95),
        ..gpt2
    }
}

fn config_of(config: &ModelConfig) -> Value {
    json!({
        "model_type": GPT2, "vocab_size": config.vocab_size, "n_embd": config.hidden_size, "n_head": config.num_heads,
        "n_layer": config.num_layers, "n_positions": config.max_context, "n_inner": config.intermediate(),
        "activation_function": "gelu_new", "layer_norm_epsilon": config.rms_norm_eps, "eos_token_id": 95,
        "tie_word_embeddings": config.tie_embeddings,
    })
}

/// Writes a directory; the names with or without the prefix that Hugging Face's model with a head has.
fn write(directory: &Path, config: &ModelConfig, prefix: bool) -> HashMap<String, Tensor> {
    std::fs::write(directory.join("config.json"), config_of(config).to_string()).unwrap();
    std::fs::write(directory.join("tokenizer.json"), tokenizer_json()).unwrap();
    // A matrix is stored as (in, out) and drawn for that: wider than usual, so that attention is not nearly uniform.
    let all = weights(config);
    let all: HashMap<String, Tensor> =
        all.into_iter().map(|(name, t)| if prefix { (name, t) } else { (name.replacen(PREFIX, "", 1), t) }).collect();
    candle_core::safetensors::save(&all, directory.join("model.safetensors")).unwrap();
    all
}

fn load_ours(directory: &Path) -> LoadedModel {
    load(directory, Engine::Instrumented, DType::F32, false)
}

fn row(logits: &Tensor) -> Vec<f64> {
    logits.squeeze(0).unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// Logits after each of the tokens, by the reference.
fn reference(python: &Path, directory: &Path, ids: &[u32]) -> Vec<Vec<f64>> {
    let script = Path::new(ROOT).join("tests/python/gpt2_reference.py");
    let ids = ids.iter().map(u32::to_string);
    let output = Command::new(python).arg(script).arg(directory).args(ids).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0f64, |most, x| most.max(x.abs()));
    a.iter().zip(b).fold(0f64, |most, (a, b)| most.max((a - b).abs())) / largest
}

#[test]
fn logits_equal_the_reference_at_once_and_step_by_step() {
    let Some(python) = require(&PYTHON) else { return };
    let tied = small();
    let own_head = ModelConfig { tie_embeddings: false, ..small() };
    let one_head = ModelConfig { num_heads: 1, num_kv_heads: 1, head_dim: 48, num_layers: 2, ..small() };
    for (name, config, prefix) in
        [("tied", &tied, true), ("without prefix", &tied, false), ("own head", &own_head, true), ("1", &one_head, true)]
    {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), config, prefix);
        let mut model = load_ours(directory.path()).model;
        let ids: Vec<u32> = (0..20u32).map(|i| (i * 37 + 5) % 96).collect();
        let expected = reference(&python, directory.path(), &ids);
        assert!(apart(&expected[8], &expected[9]) > 0.1, "the reference says something");
        let piece = |from: usize, to: usize| Tensor::new(&ids[from..to], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let mut worst = 0f64;
        let mut check = |from: usize, to: usize| {
            let logits = model.forward(&piece(from, to), from).unwrap();
            worst = worst.max(apart(&row(&logits), &expected[to - 1]));
        };
        // The prompt, the rest one by one, everything at once, and in two pieces.
        check(0, 9);
        (9..20).for_each(|at| check(at, at + 1));
        check(0, 20);
        check(0, 6);
        check(6, 20);
        eprintln!("{name}: {worst:.1e} (tolerance {TOLERANCE:.0e})");
        assert!(worst <= TOLERANCE, "{name}: {worst:e}");
    }
}

#[test]
fn a_batch_gives_what_its_sequences_give_alone() {
    let config = small();
    let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
    let mut model = Gpt2::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
    let mut alone = model.clone();
    for (count, position) in [(7, 0), (1, 7), (3, 8)] {
        let batch = tokens(3, count, position, 96);
        let together = model.forward(&batch, position).unwrap();
        let first = alone.forward(&batch.narrow(0, 0, 1).unwrap(), position).unwrap();
        let (apart, largest) = difference(&first, &together.narrow(0, 0, 1).unwrap());
        assert!(apart <= 2e-6 * largest, "{apart} of {largest}");
    }
    assert_eq!(model.kv_bytes(), 3 * alone.kv_bytes());
    let message = model.forward(&tokens(1, 65, 0, 96), 0).unwrap_err().to_string();
    assert!(message.contains("65 tokens exceed the context of 64 tokens"), "{message}");
}

fn record(f: impl FnOnce()) -> Batch {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), f);
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    memory.batch()
}

fn figures(cost: &Cost) -> [u64; 4] {
    [cost.flops, cost.flops_executed(), cost.bytes(), cost.io_bytes()].map(|n| n as u64)
}

#[test]
fn annotations_sum_up_to_the_cost_model() {
    let one_head = ModelConfig { num_heads: 1, num_kv_heads: 1, head_dim: 48, tie_embeddings: false, ..small() };
    for (config, dtype, width) in [(small(), DType::F32, 4), (small(), DType::F16, 2), (one_head, DType::F32, 4)] {
        let works =
            [Input::new(2, 9, 0), Input::new(2, 1, 9), Input::new(2, 4, 10), Input::new(1, 5, 0), Input::new(1, 1, 5)];
        let mut costs = Vec::new();
        let batch = record(|| {
            let mut source = RandomWeights::new(&config, 7, dtype, &Device::Cpu);
            let mut model = Gpt2::load(&config, &mut source, dtype, &Device::Cpu).unwrap();
            for work in works {
                let _step = llm::decode(llm::Tokens::new(work.rows() as usize).batch(work.batch as usize));
                let [batch, tokens, position] =
                    [work.batch, work.tokens, work.context - work.tokens].map(|n| n as usize);
                model.forward(&common::tokens(batch, tokens, 1, 96), position).unwrap();
                costs.push(model.cost(work));
            }
        });
        assert_eq!(batch.steps.len(), works.len());
        for ((step, work), own) in batch.steps.iter().zip(works).zip(costs) {
            let analytic = total(&forward(&config.shape(), work, Widths::of(width).products(4)));
            assert_eq!(own, analytic, "{dtype:?} {work:?}");
            let of_step = [step.flops, step.flops_executed, step.bytes, step.io_bytes];
            assert_eq!(of_step, figures(&analytic).map(Some), "{dtype:?} {work:?}");
        }
    }
}

#[test]
fn gpt2_at_true_size_costs_what_was_worked_out_by_hand() {
    let config = ModelConfig::named("gpt2").unwrap();
    let shape = config.shape();
    let step = forward(&shape, Input::new(1, 1, 0), Widths::of(2));
    let products = total_of(&step, |operation| operation.products > 0.0 && operation.operands == Operands::Weights);
    // Twelve layers of 768·(3·768 + 768 + 2·4·768) weights, and the head's 768·50,257: two FLOPs each.
    assert_eq!(products.flops, (2 * (12 * 768 * 768 * 12 + 768 * 50_257)) as f64);
    let at = |position| total(&forward(&shape, Input::new(1, 1, position), Widths::of(2)));
    // A token more to attend to: two products of 2·768 FLOPs and 2·768 values of 2 bytes in each layer.
    assert_eq!(at(501).flops - at(500).flops, (12 * 2 * 2 * 768) as f64);
    assert_eq!(at(501).kv_bytes - at(500).kv_bytes, (12 * 2 * 768 * 2) as f64);
    // All weights are read but the rows of the two tables that are not looked up; the first is the head as well.
    let rows = (1024 - 1 - 1) * 768;
    assert_eq!(at(0).weight_bytes, 2.0 * (config.parameters() - rows) as f64);
    // 3·2·768 elements are copied where they are not in the heads' layout already: not for one token.
    assert_eq!(config.attention().counted().split(Input::new(1, 1, 9), 2).io_bytes(), 0.0);
    // Of several tokens, queries and keys; whoever keeps the values copies those.
    assert_eq!(config.attention().counted().split(Input::new(1, 5, 0), 2).io_bytes(), (2 * 2 * 5 * 768 * 2) as f64);
    // Of one token of each of four sequences, values too.
    assert_eq!(config.attention().counted().split(Input::new(4, 1, 9), 2).io_bytes(), (3 * 2 * 4 * 768 * 2) as f64);
}

#[test]
fn intervals_are_named_after_the_weights() {
    let batch = record(|| {
        let config = small();
        let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
        let mut model = Gpt2::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
        let _step = llm::prefill(llm::Tokens::new(4).context(4));
        model.forward(&tokens(1, 4, 0, 96), 0).unwrap();
    });
    let paths: BTreeSet<&str> = batch.spans.iter().map(|s| s.path.path.as_str()).collect();
    let mut expected: BTreeSet<String> =
        ["prefill", "prefill/wte", "prefill/wpe", "prefill/ln_f", "prefill/lm_head"].map(String::from).into();
    for block in (0..3).map(|i| format!("prefill/block[{i}]")) {
        for name in ["", "/ln_1", "/attn", "/ln_2", "/mlp", "/mlp/c_fc", "/mlp/act_fn", "/mlp/c_proj"] {
            expected.insert(format!("{block}{name}"));
        }
        for name in ["c_attn", "split", "kv_cache", "scores", "softmax", "context", "c_proj"] {
            expected.insert(format!("{block}/attn/{name}"));
        }
    }
    assert_eq!(paths, expected.iter().map(String::as_str).collect());
    let at = |path: &str| -> SpanRecord { batch.spans.iter().find(|s| s.path.path == path).unwrap().clone() };
    let qkv = at("prefill/block[1]/attn/c_attn");
    assert_eq!((qkv.flops, qkv.bytes), (Some(2 * 4 * 48 * 144), Some((48 * 144 + 144) * 4)));
    assert_eq!(at("prefill/wpe").shape.unwrap().to_string(), "4x48");
    assert_eq!(at("prefill/block[0]/attn/split").shape.unwrap().to_string(), "1x4x4x12");
}

#[test]
fn a_directory_generates_and_tells_its_size() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &small(), false);
    let mut loaded = load_ours(directory.path());
    assert_eq!((loaded.info.architecture.as_str(), loaded.info.parameters), (GPT2, small().parameters()));
    let prompt = loaded.encode_prompt("Hello there").unwrap();
    let options = GenerateOptions { max_new_tokens: 100, ignore_eos: true, ..GenerateOptions::default() };
    let cached = generate(&mut loaded, std::slice::from_ref(&prompt), &options, &mut |_| {}).unwrap();
    // Positions end where the table does.
    assert_eq!(cached.sequences[0].tokens.len(), 64 - prompt.len());
    // Tokens that are looked up ahead, up to the end of the table.
    let ahead = GenerateOptions { lookahead: 4, ..options.clone() };
    let ahead = generate(&mut loaded, std::slice::from_ref(&prompt), &ahead, &mut |_| {}).unwrap();
    assert_eq!(cached.sequences, ahead.sequences);
    let whole = GenerateOptions { kv_cache: false, ..options };
    let whole = generate(&mut loaded, &[prompt], &whole, &mut |_| {}).unwrap();
    assert_eq!(cached.sequences, whole.sequences);
}

#[test]
fn each_bad_input_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let refuse = |engine| {
        let source = ModelSource::parse(directory.path().to_str().unwrap()).unwrap();
        let options = LoadOptions { engine, ..LoadOptions::default() };
        LoadedModel::load(&source, &options).unwrap_err().to_string()
    };
    let all = write(directory.path(), &small(), true);
    let says = |message: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(message.contains(part), "`{part}` is not in: {message}"));
    };
    says(refuse(Engine::Candle), &["candle-transformers has no GPT-2", "engine `instrumented`"]);

    let with = |change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut changed = all.clone();
        change(&mut changed);
        candle_core::safetensors::save(&changed, directory.path().join("model.safetensors")).unwrap();
        refuse(Engine::Instrumented)
    };
    let name = "transformer.h.1.attn.c_attn.weight";
    says(with(&|t| drop(t.remove(name))), &[name, "is missing"]);
    says(with(&|t| drop(t.remove("transformer.ln_f.bias"))), &["transformer.ln_f.bias", "is missing"]);
    // As a model would have it whose projections are stored the usual way.
    let turned = |t: &mut HashMap<String, Tensor>| {
        let weight = t[name].t().unwrap().contiguous().unwrap();
        t.insert(name.into(), weight);
    };
    says(with(&turned), &[name, "[144, 48]", "[48, 144]"]);
    says(with(&|t| t.retain(|name, _| !name.contains("wte"))), &["wte.weight", "is missing"]);

    write(directory.path(), &small(), true);
    for (key, value, part) in [
        ("n_embd", json!(49), "n_embd 49 is not a multiple of n_head 4"),
        ("n_layer", json!(4), "transformer.h.3.ln_1.weight"),
        ("n_positions", json!(65), "transformer.wpe.weight"),
        ("vocab_size", json!("many"), "`vocab_size`"),
        ("activation_function", json!("relu"), "`activation_function` `relu`"),
        ("tie_word_embeddings", json!(false), "lm_head.weight"),
    ] {
        let mut config = config_of(&small());
        config[key] = value;
        std::fs::write(directory.path().join("config.json"), config.to_string()).unwrap();
        says(refuse(Engine::Instrumented), &[part]);
    }
}

#[test]
fn its_projections_are_quantised_and_its_positions_are_not() {
    use candle_core::quantized::{GgmlDType, gguf_file};
    use candlescope_models::weights::{Form, write_gguf};
    let dir = tempfile::tempdir().unwrap();
    // Rows of whole blocks of 32.
    let feed_forward = FeedForward::Gelu { intermediate: 96 };
    let config = ModelConfig { hidden_size: 64, head_dim: 16, feed_forward, ..small() };
    write(dir.path(), &config, true);
    let source = ModelSource::parse(dir.path().to_str().unwrap()).unwrap();
    let mut held = LoadedModel::load_holding(&source, &LoadOptions::default()).unwrap();
    let ids = tokens(1, 7, 3, 96);
    let base = row(&held.loaded.model.forward(&ids, 0).unwrap());
    let form = Form::Quantized(GgmlDType::Q8_0);
    let mut made = held.weights.model(&held.loaded.config, form, &Device::Cpu).unwrap();
    let distance = apart(&row(&made.model.forward(&ids, 0).unwrap()), &base);
    assert!(distance > 0.0 && distance < 0.05, "{distance}");

    let file = dir.path().join("model.gguf");
    write_gguf(Some(&file), &held.loaded.config, &held.weights, form, &held.text).unwrap();
    let content = gguf_file::Content::read(&mut std::fs::File::open(&file).unwrap()).unwrap();
    let stored = |name: &str| {
        let info =
            content.tensor_infos.get(name).unwrap_or_else(|| panic!("{name} in {:?}", content.tensor_infos.keys()));
        (info.ggml_dtype, info.shape.dims().to_vec())
    };
    // llama.cpp's names, and matrices as (out, in).
    assert_eq!(stored("blk.2.attn_qkv.weight"), (GgmlDType::Q8_0, vec![192, 64]));
    assert_eq!(stored("blk.0.ffn_down.weight"), (GgmlDType::Q8_0, vec![64, 96]));
    assert_eq!(stored("position_embd.weight"), (GgmlDType::F32, vec![64, 64]));
    assert_eq!(stored("blk.0.attn_qkv.bias"), (GgmlDType::F32, vec![192]));
    assert_eq!(stored("token_embd.weight").0, GgmlDType::Q8_0);
    assert_eq!(content.tensor_infos.len(), held.loaded.config.weights().len());
}
