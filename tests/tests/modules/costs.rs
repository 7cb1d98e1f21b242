//! FLOPs and bytes of unmodified models are those of the wrapped ones.

use super::common::{self, LAYERS};
use super::names::{ids, observed, qwen2_config};
use candle_transformers::models::{bert, llama, mistral, phi3, qwen2};
use candlescope_core::llm::{self, Tokens};
use candlescope_core::{Batch, StepRecord};
use candlescope_models::config::ModelConfig;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Cost;
use candlescope_work::step::{forward, total};

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

/// What the wrapped model counts for so many tokens after a position.
fn counted(config: &ModelConfig, tokens: usize, position: usize) -> Cost {
    total(&forward(&config.shape(), Input::new(1, tokens, position), Widths::of(4)))
}

fn flops(cost: &Cost) -> (u64, u64) {
    (cost.flops as u64, cost.flops_executed() as u64)
}

#[test]
fn qwen2_counts_what_the_wrapped_model_counts() {
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(QWEN2).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    let config = wrapped(QWEN2);
    for (step, (tokens, context)) in steps(&batch).into_iter().zip([(5, 5), (1, 6), (1, 7)]) {
        let cost = counted(&config, tokens, context - tokens);
        let (needed, executed) = flops(&cost);
        assert_eq!((step.flops, step.flops_executed), (Some(needed), Some(executed)), "{}", step.path.path);
        // The embedding has no span, so the rows that it reads are in no module.
        let looked_up = (tokens * config.hidden_size * 4) as u64;
        assert_eq!(step.bytes, Some(cost.bytes() as u64 - looked_up));
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
        candlescope::modules::model(&json).unwrap();
        let mut cache = llama::Cache::new(true, candle_core::DType::F32, &config, &candle_core::Device::Cpu).unwrap();
        let model = llama::Llama::load(observed(), &config).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position, &mut cache).unwrap());
    });
    for (step, (tokens, context)) in steps(&batch).into_iter().zip([(5, 5), (1, 6), (1, 7)]) {
        let cost = counted(&wrapped(&json), tokens, context - tokens);
        assert_eq!((step.flops.unwrap(), step.flops_executed.unwrap()), flops(&cost), "{}", step.path.path);
    }
    let attention = batch.spans.iter().find(|s| s.path.module.as_deref() == Some("model.layers.0.self_attn")).unwrap();
    assert_eq!(attention.flops, Some(4 * 32 * (5 * 5 - 10)));
}

#[test]
fn nothing_is_guessed_of_a_model_that_is_not_known() {
    let (batch, ..) = common::record(|| {
        // Said, and read by nobody here.
        candlescope::modules::model(r#"{"model_type": "another"}"#).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    assert!(batch.steps.iter().all(|step| step.flops.is_none() && step.bytes.is_none()));
    assert!(batch.spans.iter().all(|span| span.flops.is_none()));
    let linear = batch.spans.iter().find(|span| &*span.path.name == "linear").unwrap();
    assert_eq!(linear.shape.unwrap().dims(), [32, 32], "shapes are known all the same");
    // Without phases nobody knows how many tokens a step has.
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(QWEN2).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        model.forward(&ids(5), 0).unwrap();
    });
    assert!(batch.spans.iter().all(|span| span.flops.is_none()));
}

/// FLOPs of the first step, when qwen2 runs in it as `run` says.
fn flops_of(run: impl FnOnce(&mut qwen2::ModelForCausalLM)) -> Option<u64> {
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(QWEN2).unwrap();
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
        candlescope::modules::model(QWEN2).unwrap();
        qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        // Without a head nothing tells it from an embedding model.
        let mut other = qwen2::Model::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = other.forward(&ids(tokens), position, None).unwrap());
    });
    assert!(batch.steps.iter().all(|step| step.flops.is_none()), "nobody said what it is");
    assert!(batch.spans.iter().any(|span| span.path.module.as_deref() == Some("model.norm")), "its names are known");
}

/// Two tokens of prompt pass after five others, and two more, with a window of four.
fn beyond_the_window(mut forward: impl FnMut(u32, usize)) {
    for (tokens, position) in [(5, 0), (2, 5)] {
        let _step = llm::prefill(Tokens::new(tokens).context(position + tokens));
        forward(tokens as u32, position);
    }
    for position in 7..9 {
        let _step = llm::decode(Tokens::new(1).context(position + 1));
        forward(1, position);
    }
}

const BEYOND: [(usize, usize); 4] = [(5, 0), (2, 5), (1, 7), (1, 8)];

#[test]
fn a_window_ends_what_mistral_and_phi3_count() {
    let json =
        QWEN2.replace("\"qwen2\"", "\"mistral\"").replace("\"vocab_size\"", "\"sliding_window\": 4, \"vocab_size\"");
    let config = wrapped(&json);
    assert_eq!((config.window, config.max_context), (Some(4), 4));
    let mistral_config: mistral::Config =
        serde_json::from_str(&json.replace("\"model_type\"", "\"use_flash_attn\": false, \"x\"")).unwrap();
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(&json).unwrap();
        let mut model = mistral::Model::new(&mistral_config, observed()).unwrap();
        beyond_the_window(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    let phi = json.replace("\"mistral\"", "\"phi3\"");
    let (merged, ..) = common::record(|| {
        candlescope::modules::model(&phi).unwrap();
        let mut model = phi3::Model::new(&serde_json::from_str(&phi).unwrap(), observed()).unwrap();
        beyond_the_window(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    for batch in [&batch, &merged] {
        for (step, (tokens, position)) in steps(batch).into_iter().zip(BEYOND) {
            let cost = counted(&config, tokens, position);
            let looked_up = (tokens * config.hidden_size * 4) as u64;
            let what = format!("{} at {position}", step.path.path);
            assert_eq!((step.flops.unwrap(), step.flops_executed.unwrap()), flops(&cost), "{what}");
            assert_eq!(step.bytes, Some(cost.bytes() as u64 - looked_up), "{what}");
        }
    }
}

#[test]
fn a_window_of_unknown_layers_leaves_the_step_without_a_sum() {
    let json =
        QWEN2.replace("\"qwen2\"", "\"helium\"").replace("\"vocab_size\"", "\"sliding_window\": 4, \"vocab_size\"");
    let (batch, manifest, ()) = common::record(|| {
        candlescope::modules::model(&json).unwrap();
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        run(|tokens, position| _ = model.forward(&ids(tokens), position).unwrap());
    });
    assert!(batch.steps.iter().all(|step| step.flops.is_none() && step.bytes.is_none()));
    assert!(batch.spans.iter().any(|span| span.flops.is_some()), "the layers' own work is known");
    // Queries and keys of each layer.
    assert_eq!(manifest.modules.unwrap().windows_unknown, 2 * LAYERS as u64);
    assert!(manifest.verdict.findings.iter().any(|finding| finding.message().contains("sliding window")));
}

#[test]
fn without_a_context_the_work_of_attention_is_not_known() {
    let flops = flops_of(|model| {
        let _step = llm::prefill(Tokens::new(6));
        model.forward(&ids(6), 0).unwrap();
    });
    assert_eq!(flops, None, "the sum would be too small");
}

#[test]
fn an_encoder_keeps_no_keys() {
    let json = r#"{"model_type": "bert", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
        "max_position_embeddings": 16, "type_vocab_size": 2, "initializer_range": 0.02, "layer_norm_eps": 1e-12,
        "pad_token_id": 0}"#;
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(json).unwrap();
        let model = bert::BertModel::load(observed(), &serde_json::from_str(json).unwrap()).unwrap();
        let ids = ids(6);
        let _step = llm::encode(Tokens::new(6));
        model.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap();
    });
    let named = |span: &&candlescope_core::SpanRecord| span.shape.is_some();
    let weights: u64 = batch.spans.iter().filter(named).filter_map(|span| span.bytes).sum();
    assert_eq!(batch.steps[0].bytes, Some(weights), "weights, and nothing else");
    let attention: Vec<_> = batch.spans.iter().filter(|span| !named(span) && span.flops.is_some()).collect();
    assert_eq!(attention.len(), 2);
    assert!(attention.iter().all(|span| (span.flops, span.bytes) == (Some(4 * 32 * 6 * 6), None)));
}
