//! What a session records of the instrumented model: names, tree, and costs that sum up to the analytic ones.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};
use candlescope_core::{Batch, MemoryExporter, Phase, Session, SpanRecord};
use candlescope_models::config::ModelConfig;
use candlescope_models::cost::{Work, decoder_step};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{CausalLm, GenerateOptions, Llama, ModelSource, generate};
use common::*;
use std::collections::BTreeSet;
use tracing_subscriber::prelude::*;

fn record(f: impl FnOnce()) -> Batch {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), f);
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    memory.batch()
}

fn sums(spans: &[&SpanRecord]) -> (u64, u64) {
    (spans.iter().filter_map(|s| s.flops).sum(), spans.iter().filter_map(|s| s.bytes).sum())
}

fn tiny_model(dtype: DType) -> (ModelConfig, Llama) {
    let config = tiny();
    let mut source = RandomWeights::new(&config, 7, dtype, &Device::Cpu);
    let model = Llama::load(&config, &mut source, dtype, &Device::Cpu).unwrap();
    (config, model)
}

#[test]
fn annotations_sum_up_to_the_cost_model() {
    for (dtype, width) in [(DType::F32, 4), (DType::F16, 2)] {
        let mut works = Vec::new();
        let mut config = None;
        let batch = record(|| {
            let (made, mut model) = tiny_model(dtype);
            for work in [Work::new(2, 9, 0), Work::new(2, 1, 9), Work::new(2, 4, 10), Work::new(1, 1, 0)] {
                let _step = candlescope_core::llm::encode(work.rows(), work.batch);
                let position = work.context - work.tokens;
                model.forward(&tokens(work.batch, work.tokens, 1, 96), position).unwrap();
                works.push((work, model.cost(work)));
            }
            config = Some(made);
        });
        let config = config.unwrap();
        assert_eq!(batch.steps.len(), works.len());
        for (step, (work, own)) in batch.steps.iter().zip(works) {
            let spans: Vec<&SpanRecord> = batch.spans.iter().filter(|s| s.step == Some(step.step)).collect();
            let analytic = decoder_step(&config, work, width, width).total();
            assert_eq!(sums(&spans), (analytic.flops, analytic.bytes()), "{dtype:?} {work:?}");
            assert_eq!(own, analytic);
            assert_eq!((step.flops, step.bytes), (Some(analytic.flops), Some(analytic.bytes())));
        }
    }
}

#[test]
fn biases_and_shared_tables_are_in_the_cost_model() {
    let mut config = tiny();
    (config.qkv_bias, config.tie_embeddings) = (true, true);
    let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
    let model = Llama::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
    let work = Work::new(2, 5, 3);
    assert_eq!(model.cost(work), decoder_step(&config, work, 4, 4).total());
}

#[test]
fn quantised_annotations_count_the_real_storage() {
    let mut config = tiny();
    config.rope.interleaved = true;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let stored = write_gguf(&path, &config, GgmlDType::Q4_1, &gguf_metadata(&config));
    let work = Work::new(1, 1, 0);
    let batch = record(|| {
        let mut loaded = load(&path, Engine::Instrumented, DType::F32, false);
        assert_eq!(loaded.info.weight_bytes, stored);
        let _step = candlescope_core::llm::decode(1, 1, 1);
        loaded.model.forward(&tokens(1, 1, 0, 96), 0).unwrap();
    });
    let analytic = decoder_step(&config, work, 4, 4);
    // All weights are read once, but for the embedding table, of which one row is: 5 bits a weight.
    let table = (config.vocab_size * config.hidden_size) as u64 * 5 / 8;
    let row = config.hidden_size as u64 * 5 / 8;
    let step = &batch.steps[0];
    assert_eq!(step.flops, Some(analytic.total().flops));
    assert_eq!(step.bytes, Some(stored - table + row + analytic.attention().kv_bytes));
}

#[test]
fn intervals_are_named_after_the_weights() {
    let batch = record(|| {
        let (_, mut model) = tiny_model(DType::F32);
        for position in 0..2 {
            let _step = candlescope_core::llm::decode(1, position + 1, 1);
            model.forward(&tokens(1, 1, 0, 96), position).unwrap();
        }
    });
    let paths: BTreeSet<&str> = batch.spans.iter().map(|s| s.path.path.as_str()).collect();
    let mut expected =
        BTreeSet::from(["decode", "decode/embed_tokens", "decode/norm", "decode/lm_head"].map(String::from));
    for block in (0..3).map(|i| format!("decode/block[{i}]")) {
        for name in ["/input_layernorm", "/self_attn", "/post_attention_layernorm", "/mlp", ""] {
            expected.insert(format!("{block}{name}"));
        }
        for name in ["q_proj", "k_proj", "v_proj", "rotary", "kv_cache", "scores", "softmax", "context", "o_proj"] {
            expected.insert(format!("{block}/self_attn/{name}"));
        }
        for name in ["gate_proj", "up_proj", "act_fn", "down_proj"] {
            expected.insert(format!("{block}/mlp/{name}"));
        }
    }
    assert_eq!(paths, expected.iter().map(String::as_str).collect());
    assert_eq!(batch.spans.len(), 2 * expected.len());
    let q = batch.spans.iter().find(|s| s.path.path == "decode/block[1]/self_attn/q_proj").unwrap();
    assert_eq!(q.dtype, Some(candlescope_core::DType::F32));
    assert_eq!(q.shape.unwrap().to_string(), "1x1x64");
    assert_eq!((q.flops, q.bytes), (Some(2 * 64 * 64), Some(64 * 64 * 4)));
    assert_eq!(&*q.path.target, candlescope_models::layers::TARGET);
    let norm = batch.spans.iter().find(|s| &*s.path.name == "input_layernorm").unwrap();
    assert_eq!((norm.flops, norm.bytes), (None, Some(64 * 4)));
}

#[test]
fn children_account_for_nearly_all_of_a_block() {
    let Some(path) = smollm2() else { return };
    let batch = record(|| {
        let mut loaded = load(&path, Engine::Instrumented, DType::F32, false);
        let prompt = loaded.encode_prompt("A candle").unwrap();
        let options = GenerateOptions { max_new_tokens: 8, ignore_eos: true, ..GenerateOptions::default() };
        generate(&mut loaded, &[prompt], &options, &mut |_| {}).unwrap();
    });
    let (mut blocks, mut leaves) = (0, 0);
    let parents: BTreeSet<u64> = batch.spans.iter().filter_map(|s| s.parent_seq).collect();
    for span in batch.spans.iter().filter(|s| s.path.path.contains("/block[")) {
        if &*span.path.name == "block" {
            blocks += span.host_dur_ns;
        } else if !parents.contains(&span.seq) {
            leaves += span.host_dur_ns;
        }
    }
    let share = leaves as f64 / blocks as f64;
    eprintln!("leaves are {:.1} % of the blocks' time", 100. * share);
    // 98 % on an idle machine; a preemption between two leaves counts against them.
    assert!(share > 0.85, "{share}");
}

#[test]
fn generation_marks_a_step_for_each_token() {
    let mut output = None;
    let batch = record(|| {
        let mut loaded = LoadedModel::load(&ModelSource::Embedded, &LoadOptions::default()).unwrap();
        let prompt = loaded.encode_prompt("a secret").unwrap();
        let options = GenerateOptions { max_new_tokens: 5, ignore_eos: true, ..GenerateOptions::default() };
        output = Some(generate(&mut loaded, &[prompt.clone(), prompt], &options, &mut |_| {}).unwrap());
    });
    let output = output.unwrap();
    let prompt = output.prompt_tokens;
    let phases: Vec<_> =
        batch.steps.iter().map(|s| (s.phase.unwrap(), s.tokens.unwrap(), s.context_len.unwrap())).collect();
    let mut expected = vec![(Phase::Prefill, 2 * prompt as u32, prompt as u32)];
    expected.extend((1..5).map(|i| (Phase::Decode, 2, (prompt + i) as u32)));
    assert_eq!(phases, expected);
    let samples = batch.spans.iter().filter(|s| &*s.path.name == "sample").count();
    assert_eq!(samples, 5);
    assert_eq!(batch.requests.len(), 1);
    let request = &batch.requests[0];
    assert_eq!((request.prompt_tokens, request.output_tokens), (Some(prompt as u64), Some(10)));
    assert!(request.ttft_ns.is_some());
    // A prompt is nobody's business.
    assert!(!format!("{batch:?}").contains("secret"));
}
