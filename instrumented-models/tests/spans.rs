//! What a session records of the instrumented model: names, tree, and costs whose sums are the analytic ones.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use candlescope_core::{Batch, MemoryExporter, Phase, Session, SpanRecord, StepRecord};
use candlescope_models::config::ModelConfig;
use candlescope_models::generate::{Context, generate_with};
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{CausalLm, GenerateOptions, Llama, ModelSource, generate};
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Cost;
use candlescope_work::step::{forward, total};
use common::*;
use std::collections::BTreeSet;
use tracing_subscriber::prelude::*;

fn record(f: impl FnOnce()) -> Batch {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), f);
    let manifest = session.finish();
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    memory.batch()
}

/// Sums of the spans' annotations: FLOPs needed and executed, bytes without and with activations.
fn sums(spans: &[&SpanRecord]) -> [u64; 4] {
    let fields: [fn(&SpanRecord) -> Option<u64>; 4] = [|s| s.flops, |s| s.flops_executed, |s| s.bytes, |s| s.io_bytes];
    fields.map(|field| spans.iter().filter_map(|s| field(s)).sum())
}

fn figures(cost: &Cost) -> [u64; 4] {
    [cost.flops, cost.flops_executed(), cost.bytes(), cost.io_bytes()].map(|n| n as u64)
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
            for work in [Input::new(2, 9, 0), Input::new(2, 1, 9), Input::new(2, 4, 10), Input::new(1, 1, 0)] {
                let _step = candlescope_core::llm::encode(
                    candlescope_core::llm::Tokens::new(work.rows() as usize).batch(work.batch as usize),
                );
                let [batch, tokens, position] =
                    [work.batch, work.tokens, work.context - work.tokens].map(|n| n as usize);
                model.forward(&common::tokens(batch, tokens, 1, 96), position).unwrap();
                works.push((work, model.cost(work)));
            }
            config = Some(made);
        });
        let config = config.unwrap();
        assert_eq!(batch.steps.len(), works.len());
        for (step, (work, own)) in batch.steps.iter().zip(works) {
            let spans: Vec<&SpanRecord> = batch.spans.iter().filter(|s| s.step == Some(step.step)).collect();
            // On a CPU the products of attention are always in f32.
            let analytic = total(&forward(&config.shape(), work, Widths::of(width).products(4)));
            assert_eq!(sums(&spans), figures(&analytic), "{dtype:?} {work:?}");
            assert_eq!(own, analytic, "{dtype:?} {work:?}");
            let of_step = [step.flops, step.flops_executed, step.bytes, step.io_bytes];
            assert_eq!(of_step, figures(&analytic).map(Some));
            // More FLOPs are executed than needed only if there is a mask.
            assert_eq!(analytic.flops_executed() > analytic.flops, work.tokens > 1);
        }
    }
}

#[test]
fn biases_and_shared_tables_are_in_the_cost_model() {
    let mut config = tiny();
    (config.qkv_bias, config.tie_embeddings) = (true, true);
    let mut source = RandomWeights::new(&config, 7, DType::F32, &Device::Cpu);
    let model = Llama::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
    let work = Input::new(2, 5, 3);
    assert_eq!(model.cost(work), total(&forward(&config.shape(), work, Widths::of(4))));
}

#[test]
fn quantised_annotations_count_the_real_storage() {
    let mut config = tiny();
    config.rope.interleaved = true;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let stored = write_gguf(&path, &config, GgmlDType::Q4_1, &gguf_metadata(&config));
    let work = Input::new(1, 1, 0);
    let batch = record(|| {
        let mut loaded = load(&path, Engine::Instrumented, DType::F32, false);
        assert_eq!(loaded.info.weight_bytes, stored);
        // Activations are f32, and quantised for the product: no peak of f32 applies.
        assert_eq!((loaded.info.dtype.as_str(), loaded.info.compute_dtype), ("f32", Some("int8")));
        assert_eq!(loaded.info.to_map()["compute_dtype"], "int8");
        assert_eq!(load(&path, Engine::Candle, DType::F32, false).info.compute_dtype, Some("int8"));
        assert_eq!(load(&path, Engine::Instrumented, DType::F32, true).info.compute_dtype, Some("f32"));
        let _step = candlescope_core::llm::decode(candlescope_core::llm::Tokens::new(1).context(1));
        loaded.model.forward(&tokens(1, 1, 0, 96), 0).unwrap();
    });
    let analytic = total(&forward(&config.shape(), work, Widths::of(4)));
    // All weights are read once, except the embedding table, of which one row is read: 5 bits per weight.
    let table = (config.vocab_size * config.hidden_size) as u64 * 5 / 8;
    let row = config.hidden_size as u64 * 5 / 8;
    let step = &batch.steps[0];
    assert_eq!(step.flops, Some(analytic.flops as u64));
    assert_eq!(step.bytes, Some(stored - table + row + analytic.kv_bytes as u64));
    // Activations are f32 whatever the type of the weights.
    assert_eq!(step.io_bytes, Some(step.bytes.unwrap() + analytic.activation_bytes as u64));
}

#[test]
fn intervals_are_named_after_the_weights() {
    let batch = record(|| {
        let (_, mut model) = tiny_model(DType::F32);
        for position in 0..2 {
            let _step = candlescope_core::llm::decode(candlescope_core::llm::Tokens::new(1).context(position + 1));
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
    assert_eq!((q.flops_executed, q.io_bytes), (q.flops, Some((64 * 64 + 64 + 64) * 4)));
    // Every interval that moves data itself is annotated; one that only contains others is not.
    for span in &batch.spans {
        let holds = matches!(&*span.path.name, "decode" | "self_attn" | "mlp");
        assert_eq!(span.io_bytes.is_none(), holds, "{}", span.path.path);
    }
    assert_eq!(&*q.path.target, candlescope_models::layers::TARGET);
    let norm = batch.spans.iter().find(|s| &*s.path.name == "input_layernorm").unwrap();
    assert_eq!((norm.flops, norm.bytes), (None, Some(64 * 4)));
}

#[test]
fn children_account_for_nearly_all_of_a_block() {
    let Some(path) = require(&SMOLLM2) else { return };
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
    let wanted: Vec<_> = batch.steps.iter().map(wanted).collect();
    let mut expected = vec![(2 * prompt as u32, 2, 2 * prompt as u64)];
    expected.extend((1..5).map(|i| (2, 2, 2 * (prompt + i) as u64)));
    assert_eq!(wanted, expected);
    let samples = batch.spans.iter().filter(|s| &*s.path.name == "sample").count();
    assert_eq!(samples, 5);
    assert_eq!(batch.requests.len(), 1);
    let request = &batch.requests[0];
    assert_eq!((request.prompt_tokens, request.output_tokens), (Some(prompt as u64), Some(10)));
    assert!(request.ttft_ns.is_some());
    // The prompt must not be recorded.
    assert!(!format!("{batch:?}").contains("secret"));
}

/// New tokens, sequences and their contexts' sum of a step.
fn wanted(step: &StepRecord) -> (u32, u32, u64) {
    (step.new_tokens.unwrap(), step.sequences.unwrap(), step.context_sum.unwrap())
}

/// Writes token 1, and the end token 0 in sequence `i` as its token number `ends[i]`.
struct Scripted {
    ends: Vec<usize>,
    made: usize,
}

impl CausalLm for Scripted {
    fn forward(&mut self, tokens: &Tensor, _: usize) -> candle_core::Result<Tensor> {
        let _layer = tracing::trace_span!("layer").entered();
        let logits: Vec<f32> =
            self.ends.iter().flat_map(|end| if *end == self.made { [1., 0.] } else { [0., 1.] }).collect();
        self.made += 1;
        Tensor::from_vec(logits, (tokens.dim(0)?, 2), &Device::Cpu)
    }
    fn reset(&mut self) {
        self.made = 0;
    }
    fn max_context(&self) -> usize {
        64
    }
    fn vocab_size(&self) -> usize {
        2
    }
    fn device(&self) -> &Device {
        &Device::Cpu
    }
}

#[test]
fn sequences_that_have_ended_count_for_nothing() {
    // Four prompts of three tokens. Three sequences end with their first token, one goes on to its ninth: 12 tokens are
    // generated, 4 by the prefill and 8 by as many decode steps. Counting the whole batch would make 4 · 8 of those.
    let mut output = None;
    let batch = record(|| {
        let mut model = Scripted { ends: vec![0, 8, 0, 0], made: 0 };
        let context = Context { name: "scripted", stop: vec![0], tokenizer: None };
        let options = GenerateOptions { max_new_tokens: 20, ..GenerateOptions::default() };
        output = Some(generate_with(&mut model, &context, &vec![vec![1; 3]; 4], &options, &mut |_| {}).unwrap());
    });
    let output = output.unwrap();
    assert_eq!(output.sequences.iter().map(|s| s.tokens.len()).collect::<Vec<_>>(), [1, 9, 1, 1]);
    // Generation stops when the last sequence has ended, well before 20 tokens.
    assert_eq!(batch.steps.len(), 9);
    assert_eq!(wanted(&batch.steps[0]), (4 * 3, 4, 4 * 3));
    for (i, step) in batch.steps[1..].iter().enumerate() {
        assert_eq!(wanted(step), (1, 1, 4 + i as u64));
        assert_eq!((step.tokens, step.batch), (Some(4), Some(4)), "what the step passes is the whole batch");
    }
    let decoded: u32 = batch.steps[1..].iter().filter_map(|s| s.new_tokens).sum();
    assert_eq!(decoded, 8);
    assert_eq!(batch.requests[0].output_tokens, Some(12));
}

#[test]
fn tokens_that_are_passed_again_are_not_new() {
    let batch = record(|| {
        let mut loaded = LoadedModel::load(&ModelSource::Embedded, &LoadOptions::default()).unwrap();
        let prompt = loaded.encode_prompt("again").unwrap();
        let options =
            GenerateOptions { max_new_tokens: 3, ignore_eos: true, kv_cache: false, ..GenerateOptions::default() };
        generate(&mut loaded, &[prompt], &options, &mut |_| {}).unwrap();
    });
    let prompt = batch.steps[0].new_tokens.unwrap();
    let new: Vec<_> = batch.steps.iter().map(|s| s.new_tokens.unwrap()).collect();
    assert_eq!(new, [prompt, 1, 1]);
    assert_eq!(batch.steps[2].context_sum, Some(u64::from(prompt) + 2));
}
