//! Models that nobody described: what follows from names of weights and places in candle's source is what the
//! configuration says, and nothing follows where these leave a doubt.

use super::common::{self, LAYERS};
use super::names::{ids, observed, qwen2_config};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, llama, mistral, qwen2, qwen3};
use candlescope_core::llm::{self, Tokens};
use candlescope_core::run::{Code, RunManifest};
use candlescope_core::{Batch, StepRecord};

const CONFIG: &str = r#"{"model_type": "NAME", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
    "attention_bias": false, "sliding_window": null, "max_window_layers": 3, "use_sliding_window": false,
    "use_flash_attn": false, "hidden_act": "silu"}"#;

fn config(name: &str) -> String {
    CONFIG.replace("NAME", name)
}

/// Records a model, described or not.
fn record(config: Option<&str>, run: impl FnOnce(VarBuilder<'static>)) -> (Batch, RunManifest) {
    let (batch, manifest, ()) = common::record(|| {
        if let Some(config) = config {
            candlescope::modules::model(config).expect("a configuration");
        }
        run(observed());
    });
    (batch, manifest)
}

/// A prompt of five tokens and one more.
fn generate(mut forward: impl FnMut(&Tensor, usize) -> Result<Tensor>) {
    {
        let _step = llm::prefill(Tokens::new(5).context(5));
        forward(&ids(5), 0).expect("prefill");
    }
    let _step = llm::decode(Tokens::new(1).context(6));
    forward(&ids(1), 5).expect("decode");
}

fn qwen2(vb: VarBuilder<'static>) {
    let mut model = qwen2::ModelForCausalLM::new(&qwen2_config(false), vb).expect("loads");
    generate(|ids, at| model.forward(ids, at));
}

fn qwen3(vb: VarBuilder<'static>) {
    let config: qwen3::Config = serde_json::from_str(&config("qwen3")).expect("a configuration");
    let mut model = qwen3::ModelForCausalLM::new(&config, vb).expect("loads");
    generate(|ids, at| model.forward(ids, at));
}

fn llama(vb: VarBuilder<'static>) {
    let config = common::llama_config();
    let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let model = llama::Llama::load(vb, &config).expect("loads");
    generate(|ids, at| model.forward(ids, at, &mut cache));
}

fn bert(vb: VarBuilder<'static>) {
    let model = bert::BertModel::load(vb, &common::bert_config()).expect("loads");
    let _step = llm::encode(Tokens::new(5).context(5));
    model.forward(&ids(5), &ids(5).zeros_like().expect("types"), None).expect("a pass");
}

fn mistral(vb: VarBuilder<'static>) {
    let config: mistral::Config = serde_json::from_str(&config("mistral")).expect("a configuration");
    let mut model = mistral::Model::new(&config, vb).expect("loads");
    generate(|ids, at| model.forward(ids, at));
}

type Work = (Option<u64>, Option<u64>, Option<u64>);

fn work_of_steps(batch: &Batch) -> Vec<Work> {
    let mut steps: Vec<&StepRecord> = batch.steps.iter().collect();
    steps.sort_by_key(|step| step.step);
    steps.into_iter().map(|step| (step.flops, step.flops_executed, step.bytes)).collect()
}

fn work_of_modules(batch: &Batch) -> Vec<(String, Option<u64>, Option<u64>)> {
    let mut spans: Vec<_> = batch.spans.iter().filter(|span| span.path.module.is_some()).collect();
    spans.sort_by_key(|span| span.seq);
    let name = |module: &Option<std::sync::Arc<str>>| module.as_deref().unwrap_or_default().to_owned();
    spans.into_iter().map(|span| (name(&span.path.module), span.flops, span.bytes)).collect()
}

fn finding(manifest: &RunManifest, code: Code) -> Option<String> {
    let found = manifest.verdict.findings.iter().find(|finding| finding.code == code);
    found.map(|finding| format!("{}; {}", finding.message(), finding.remedy()))
}

#[test]
fn plain_models_of_candle_have_their_work_without_a_word() {
    type Run = fn(VarBuilder<'static>);
    let models: [(&str, Run); 4] = [("qwen2", qwen2), ("qwen3", qwen3), ("llama", llama), ("bert", bert)];
    for (name, run) in models {
        let (told, of_told) = record(Some(&config(name)), run);
        let (plain, of_plain) = record(None, run);
        assert_eq!(work_of_modules(&plain), work_of_modules(&told), "{name}");
        assert_eq!(work_of_steps(&plain), work_of_steps(&told), "{name}");
        let known = |manifest: &RunManifest| manifest.modules.as_ref().and_then(|model| model.recognised.clone());
        assert_eq!((known(&of_plain).as_deref(), known(&of_told)), (Some(name), None));
        assert_eq!(of_plain.model["architecture"], name);
        if ["qwen2", "llama"].contains(&name) {
            assert!(plain.steps.iter().all(|step| step.flops.is_some()), "{name}");
            assert_eq!(finding(&of_plain, Code::RowsUnknown), None, "{name}");
        }
    }
}

#[test]
fn four_copies_in_four_threads_are_recognised_too() {
    let (batch, manifest, ()) = common::record(|| {
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let dispatch = dispatch.clone();
                scope.spawn(move || tracing::dispatcher::with_default(&dispatch, || qwen2(observed())));
            }
        });
    });
    let linears: Vec<_> = batch.spans.iter().filter(|span| &*span.path.name == "linear").collect();
    assert_eq!(linears.len(), 4 * 2 * (7 * LAYERS + 1));
    assert!(linears.iter().all(|span| span.flops.is_some() && span.path.module.is_some()));
    let (_, of_one) = record(None, qwen2);
    assert_eq!(manifest.model["parameters"], of_one.model["parameters"], "those of one copy");
}

#[test]
fn a_form_that_several_architectures_have_gets_no_attention_and_names_the_missing_line() {
    let (batch, manifest) = record(None, mistral);
    let linears = || batch.spans.iter().filter(|span| &*span.path.name == "linear");
    assert!(
        linears().count() > 0 && linears().all(|span| span.flops.is_some()),
        "products are the same in all of them"
    );
    assert!(batch.steps.iter().all(|step| step.flops.is_none()), "what they attend to is not");
    let said = finding(&manifest, Code::RowsUnknown).expect("it is told");
    assert!(said.contains("the form of mistral"), "{said}");
    assert!(said.contains("candlescope::modules::model(&std::fs::read_to_string(\"config.json\")?)?"), "{said}");
}

#[test]
fn a_decoder_without_a_head_may_be_an_embedding_model() {
    let (batch, manifest) = record(None, |vb| {
        let mut model = qwen2::Model::new(&qwen2_config(false), vb).expect("loads");
        let _step = llm::encode(Tokens::new(5).context(5));
        model.forward(&ids(5), 0, None).expect("a pass");
    });
    assert!(batch.spans.iter().all(|span| span.flops.is_none()));
    assert!(finding(&manifest, Code::RowsUnknown).expect("it is told").contains("candlescope::modules::model("));
}

#[test]
fn what_the_configuration_says_is_in_the_run() {
    let (_, manifest) = record(Some(&config("qwen2")), qwen2);
    let model = &manifest.model;
    let numbers = [
        ("vocab_size", 96),
        ("hidden_size", 32),
        ("layers", 3),
        ("heads", 4),
        ("kv_heads", 2),
        ("head_dim", 8),
        ("intermediate_size", 64),
        ("context_length", 128),
    ];
    for (key, value) in numbers {
        assert_eq!(model[key], value, "{key}");
    }
    assert_eq!((&model["architecture"], &model["dtype"]), (&"qwen2".into(), &"f32".into()));
    // Everything that a prediction wants of the run's model.
    let shape = candlescope_predict::roofline::facts_shape(model).expect("complete");
    assert_eq!(Some(shape.parameters()), model["parameters"].as_u64());
    // What the program itself says stays.
    let memory = candlescope::sdk::MemoryExporter::new();
    let (layer, session) = candlescope_core::Session::builder().exporter(memory).start().expect("starts");
    session.handle().set_model("dtype", "as I say");
    use tracing_subscriber::prelude::*;
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        candlescope::modules::model(&config("qwen2")).expect("a configuration");
        qwen2(observed());
    });
    let manifest = session.finish();
    assert_eq!((&manifest.model["dtype"], &manifest.model["layers"]), (&"as I say".into(), &3.into()));
}
