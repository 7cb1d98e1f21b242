//! FLOPs and bytes of unmodified models are those of the wrapped ones.

use super::common::{self, LAYERS};
use super::names::{ids, observed, qwen2_config};
use candle_transformers::models::{llama, qwen2};
use candlescope_core::llm::{self, Tokens};
use candlescope_core::{Batch, StepRecord};
use candlescope_models::config::ModelConfig;
use candlescope_models::cost::{DecoderCost, Widths, Work, decoder_step};

fn wrapped(json: &str) -> ModelConfig {
    ModelConfig::from_hf("tiny", &serde_json::from_str(json).unwrap()).unwrap()
}

const QWEN2: &str = r#"{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 96,
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": false, "hidden_act": "silu"}"#;

/// A prompt of five tokens and two more, one by one.
fn run(mut forward: impl FnMut(u32, usize)) {
    {
        let _step = llm::prefill(Tokens::new(5).context(5));
        forward(5, 0);
    }
    for position in 5..7 {
        let _step = llm::decode(Tokens::new(1).context(position + 1));
        forward(1, position);
    }
}

fn steps(batch: &Batch) -> Vec<&StepRecord> {
    let mut steps: Vec<&StepRecord> = batch.steps.iter().collect();
    steps.sort_by_key(|step| step.step);
    steps
}

fn flops(cost: &DecoderCost) -> (u64, u64) {
    let total = cost.total();
    (total.flops, total.flops_executed())
}

#[test]
fn qwen2_counts_what_the_wrapped_model_counts() {
    let (batch, ..) = common::record(|| {
        candlescope::model(QWEN2).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    let config = wrapped(QWEN2);
    for (step, (tokens, context)) in steps(&batch).into_iter().zip([(5, 5), (1, 6), (1, 7)]) {
        let cost = decoder_step(&config, Work::new(1, tokens, context - tokens), Widths::of(4));
        let (needed, executed) = flops(&cost);
        assert_eq!((step.flops, step.flops_executed), (Some(needed), Some(executed)), "{}", step.path.path);
        // The embedding has no span, so the rows that it reads are in no module.
        let looked_up = (tokens * config.hidden_size * 4) as u64;
        assert_eq!(step.bytes, Some(cost.total().bytes() - looked_up));
    }
    let down: Vec<_> =
        batch.spans.iter().filter(|s| s.path.module.as_deref() == Some("model.layers.1.mlp.down_proj")).collect();
    assert_eq!(down.len(), 3);
    assert_eq!(down[0].flops, Some(2 * 5 * 32 * 64));
    assert_eq!(down[0].shape.unwrap().dims(), [32, 64]);
    assert_eq!(down[1].io_bytes, Some(4 * (32 * 64 + 32 + 64)));
    // The head takes the last position only.
    let head = batch.spans.iter().find(|s| s.path.module.as_deref() == Some("lm_head")).unwrap();
    assert_eq!(head.flops, Some(2 * 32 * 96));
    // Attention has no span: it is the step's own work.
    let prefill = batch.spans.iter().find(|s| s.path.path == "prefill").unwrap();
    assert_eq!(prefill.flops, Some(LAYERS as u64 * 4 * 32 * (5 * 5 - 10)));
}

#[test]
fn llama_books_attention_where_it_is_done() {
    let config = common::llama_config();
    let json = QWEN2.replace("\"qwen2\"", "\"llama\"").replace("Qwen2For", "LlamaFor");
    let (batch, ..) = common::record(|| {
        candlescope::model(&json).unwrap();
        let mut cache = llama::Cache::new(true, candle_core::DType::F32, &config, &candle_core::Device::Cpu).unwrap();
        let model = llama::Llama::load(observed(), &config).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position, &mut cache).unwrap());
    });
    for (step, (tokens, context)) in steps(&batch).into_iter().zip([(5, 5), (1, 6), (1, 7)]) {
        let cost = decoder_step(&wrapped(&json), Work::new(1, tokens, context - tokens), Widths::of(4));
        assert_eq!((step.flops.unwrap(), step.flops_executed.unwrap()), flops(&cost), "{}", step.path.path);
    }
    let attention = batch.spans.iter().find(|s| s.path.module.as_deref() == Some("model.layers.0.self_attn")).unwrap();
    assert_eq!(attention.flops, Some(4 * 32 * (5 * 5 - 10)));
}

#[test]
fn nothing_is_guessed_of_a_model_that_nobody_described() {
    let (batch, ..) = common::record(|| {
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    assert!(batch.steps.iter().all(|step| step.flops.is_none() && step.bytes.is_none()));
    assert!(batch.spans.iter().all(|span| span.flops.is_none()));
    let linear = batch.spans.iter().find(|span| &*span.path.name == "linear").unwrap();
    assert_eq!(linear.shape.unwrap().dims(), [32, 32], "shapes are known all the same");
    // Without phases nobody knows how many tokens a step has.
    let (batch, ..) = common::record(|| {
        candlescope::model(QWEN2).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        model.forward(&ids(5), 0).unwrap();
    });
    assert!(batch.spans.iter().all(|span| span.flops.is_none()));
}

/// FLOPs of the first step, when qwen2 runs in it as `run` says.
fn flops_of(run: impl FnOnce(&mut qwen2::ModelForCausalLM)) -> Option<u64> {
    let (batch, ..) = common::record(|| {
        candlescope::model(QWEN2).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(&mut model);
    });
    steps(&batch)[0].flops
}

#[test]
fn several_passes_in_one_phase_are_not_multiplied() {
    let one = flops_of(|model| {
        let _step = llm::prefill(Tokens::new(6).context(6));
        model.forward(&ids(6), 0).unwrap();
    });
    let chunks = flops_of(|model| {
        let _step = llm::prefill(Tokens::new(6).context(6));
        model.forward(&ids(3), 0).unwrap();
        model.forward(&ids(3), 3).unwrap();
    });
    assert!(one.is_some());
    assert_eq!(chunks, None, "nobody knows how many tokens each had");
    let told = flops_of(|model| {
        let _step = llm::prefill(Tokens::new(6).context(6));
        candlescope::annotate(candlescope::Annotation::new().flops(17));
        model.forward(&ids(6), 0).unwrap();
    });
    assert_eq!(told, Some(17), "what the program says is not counted again");
}

#[test]
fn the_next_model_is_not_taken_for_the_last_one() {
    let (batch, ..) = common::record(|| {
        candlescope::model(QWEN2).unwrap();
        qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        let mut other = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = other.forward(&ids(tokens), position).unwrap());
    });
    assert!(batch.steps.iter().all(|step| step.flops.is_none()), "nobody said what it is");
    assert!(batch.spans.iter().any(|span| span.path.module.as_deref() == Some("lm_head")), "its names are known");
}
