//! Every span of a layer has its module's name, whatever the order in which candle reads and makes it.

use super::common::{self, LAYERS};
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::{llama, qwen2};
use candlescope_core::SpanRecord;
use candlescope_core::llm::{self, Tokens};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn observed() -> VarBuilder<'static> {
    candlescope::observe(VarBuilder::from_varmap(&VarMap::new(), DType::F32, &Device::Cpu))
}

pub(super) fn ids(n: u32) -> Tensor {
    Tensor::arange(0, n, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

/// The modules of all spans called `name`, in the order of entry.
fn modules<'a>(spans: &'a [SpanRecord], name: &str) -> Vec<Option<&'a str>> {
    let of_name = spans.iter().filter(|span| &*span.path.name == name);
    of_name.map(|span| span.path.module.as_deref()).collect()
}

fn named(prefix: &str, parts: &[&str]) -> Vec<String> {
    (0..LAYERS).flat_map(|layer| parts.iter().map(move |part| format!("{prefix}.{layer}.{part}"))).collect()
}

#[test]
fn llama_from_blocks_to_projections() {
    let (batch, ..) = common::record(|| {
        let config = common::llama_config();
        let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
        let model = llama::Llama::load(observed(), &config).unwrap();
        let _step = llm::prefill(Tokens::new(5).context(5));
        model.forward(&ids(5), 0, &mut cache).unwrap();
    });
    let known = |name| modules(&batch.spans, name).into_iter().map(|m| m.unwrap_or("-").to_owned()).collect::<Vec<_>>();
    let mlp = ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"];
    let attention = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"];
    let mut linears = named("model.layers", &[attention.as_slice(), &mlp].concat());
    linears.push("lm_head".into());
    assert_eq!(known("linear"), linears);
    let mut norms = named("model.layers", &["input_layernorm", "post_attention_layernorm"]);
    norms.push("model.norm".into());
    assert_eq!(known("rms-norm"), norms);
    let blocks: Vec<String> = (0..LAYERS).map(|layer| format!("model.layers.{layer}")).collect();
    assert_eq!(known("block"), blocks);
    assert_eq!(known("attn"), named("model.layers", &["self_attn"]));
    assert_eq!(known("mlp"), named("model.layers", &["mlp"]));
    assert_eq!(modules(&batch.spans, "attn-rot"), vec![None; 2 * LAYERS], "it has no weights");
    assert_eq!(modules(&batch.spans, "prefill"), [None]);
}

pub(super) fn qwen2_config(tied: bool) -> qwen2::Config {
    qwen2::Config {
        vocab_size: 96,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: LAYERS,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        max_position_embeddings: 128,
        sliding_window: 128,
        max_window_layers: LAYERS,
        tie_word_embeddings: tied,
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-5,
        use_sliding_window: false,
        hidden_act: candle_nn::Activation::Silu,
    }
}

/// Weights of a model as a file holds them: what a loader asks for and is not there is not there.
fn without(weights: &VarMap, name: &str) -> VarBuilder<'static> {
    let data = weights.data().lock().unwrap();
    let tensors =
        data.iter().filter(|(known, _)| *known != name).map(|(name, var)| (name.clone(), var.as_tensor().clone()));
    candlescope::observe(VarBuilder::from_tensors(tensors.collect(), DType::F32, &Device::Cpu))
}

#[test]
fn qwen2_has_no_blocks_and_a_tied_head() {
    let weights = VarMap::new();
    let all = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
    qwen2::ModelForCausalLM::new(&qwen2_config(false), all).unwrap();
    let (batch, ..) = common::record(|| {
        let vb = without(&weights, "lm_head.weight");
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(true), vb).unwrap();
        model.forward(&ids(3), 0).unwrap();
    });
    let named: Vec<&str> = batch.spans.iter().filter_map(|span| span.path.module.as_deref()).collect();
    assert_eq!(named.len(), batch.spans.len(), "every span is a layer of the model");
    let distinct: BTreeSet<&str> = named.iter().copied().collect();
    assert_eq!(distinct.len(), named.len(), "each once");
    for module in ["model.layers.2.self_attn.q_proj", "model.layers.0.input_layernorm", "model.norm", "lm_head"] {
        assert!(distinct.contains(module), "{module} in {distinct:?}");
    }
    // The last projection is the head, not the norm that was read before its span was made.
    let linears = modules(&batch.spans, "linear");
    assert_eq!(linears.last(), Some(&Some("lm_head")));
}

#[test]
fn without_phases_layers_are_steps_called_by_their_modules() {
    let (batch, ..) = common::record(|| {
        let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        model.forward(&ids(3), 0).unwrap();
        model.forward(&ids(1), 3).unwrap();
    });
    let steps = |rollup: &str| batch.steps.iter().filter(|step| step.path.rollup == rollup).count();
    assert_eq!(steps("model.layers.*.mlp.down_proj"), 2 * LAYERS);
    assert_eq!((steps("model.norm"), steps("lm_head")), (2, 2), "once in each pass");
    let kinds: BTreeSet<&str> = batch.steps.iter().map(|step| step.path.rollup.as_str()).collect();
    assert_eq!(kinds.len(), 7 + 2 + 2, "projections and norms of all layers together: {kinds:?}");
    for step in &batch.steps {
        let span = batch.spans.iter().find(|span| span.seq == step.seq).unwrap();
        assert_eq!((&step.path.rollup, &step.path.module), (&span.path.rollup, &span.path.module));
        assert!(["linear", "rms-norm"].contains(&step.path.path.as_str()), "the path has the span's name");
    }

    let (batch, ..) = common::record(|| {
        let config = common::llama_config();
        let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).unwrap();
        let model = llama::Llama::load(observed(), &config).unwrap();
        model.forward(&ids(5), 0, &mut cache).unwrap();
    });
    let blocks = batch.steps.iter().filter(|step| step.path.rollup == "model.layers.*").count();
    assert_eq!(blocks, LAYERS);
    let inside = batch.spans.iter().filter(|span| span.path.rollup == "block/model.layers.*.self_attn.q_proj").count();
    assert_eq!(inside, LAYERS, "what is in a step begins with the step's own name");
}

#[test]
fn bert_reads_before_its_outer_spans() {
    let (batch, ..) = common::record(|| {
        let config = common::bert_config();
        let model = candle_transformers::models::bert::BertModel::load(observed(), &config).unwrap();
        model.forward(&ids(4), &ids(4).zeros_like().unwrap(), None).unwrap();
    });
    let by_name: BTreeMap<&str, Option<&str>> =
        batch.spans.iter().map(|span| (&*span.path.name, span.path.module.as_deref())).collect();
    for (span, module) in [
        ("layer", "encoder.layer.2"),
        ("attn", "encoder.layer.2.attention"),
        ("self-attn", "encoder.layer.2.attention.self"),
        ("self-out", "encoder.layer.2.attention.output"),
        ("inter", "encoder.layer.2.intermediate"),
        ("out", "encoder.layer.2.output"),
        ("encoder", "encoder.layer"),
        ("embeddings", "embeddings"),
    ] {
        assert_eq!(by_name[span], Some(module), "{span}");
    }
    assert_eq!(by_name["softmax"], None);
}

#[test]
fn quantised_llama_reads_whole_layers() {
    let (batch, ..) = common::record(|| {
        let mut model = common::quantized_llama_of(|file| candlescope::observe_gguf(file).unwrap());
        model.forward(&ids(2), 0).unwrap();
    });
    let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"].map(String::from);
    let expected: BTreeSet<String> = (0..LAYERS)
        .flat_map(|layer| parts.iter().map(move |part| format!("blk.{layer}.{part}")))
        .chain(["output".to_owned()])
        .collect();
    let linears = modules(&batch.spans, "qmatmul");
    assert_eq!(linears.len(), expected.len());
    let found: BTreeSet<String> = linears.into_iter().map(|m| m.unwrap_or("-").to_owned()).collect();
    assert_eq!(found, expected);
    let norms: Vec<_> = modules(&batch.spans, "rms-norm").into_iter().flatten().collect();
    assert_eq!(norms.len(), 2 * LAYERS + 1);
    assert_eq!((norms[0], norms[1], norms[2 * LAYERS]), ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"));
}

#[test]
fn models_on_other_threads_and_loaded_twice_keep_apart() {
    let (batch, ..) = common::record(|| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let load = |hidden: usize| {
            let dispatch = dispatch.clone();
            move || {
                tracing::dispatcher::with_default(&dispatch, || {
                    let config = qwen2::Config { hidden_size: hidden, ..qwen2_config(false) };
                    qwen2::ModelForCausalLM::new(&config, observed()).unwrap()
                })
            }
        };
        let threads: Vec<_> = [32, 48, 32].into_iter().map(|hidden| std::thread::spawn(load(hidden))).collect();
        for thread in threads {
            let mut model = thread.join().unwrap();
            model.forward(&ids(2), 0).unwrap();
        }
    });
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for span in &batch.spans {
        *times.entry(span.path.module.as_deref().unwrap_or("-")).or_default() += 1;
    }
    assert_eq!(times.get("-"), None, "{times:?}");
    assert!(times.values().all(|n| *n == 3), "each module of each model once: {times:?}");
}
