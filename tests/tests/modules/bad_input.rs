//! What cannot be told is listed in `run.json`, with one finding each, and never guessed.

use super::common::{self, LAYERS};
use super::names::{ids, observed, qwen2_config};
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::qwen2::ModelForCausalLM;
use candle_transformers::models::with_tracing;
use candlescope_core::llm::{self, Tokens};
use candlescope_core::run::{Code, Finding, LoadedModel, RunManifest, Severity};
use candlescope_core::{MemoryExporter, Session};
use tracing_subscriber::prelude::*;

fn model(manifest: &RunManifest) -> &LoadedModel {
    manifest.modules.as_ref().expect("weights were told")
}

fn finding(manifest: &RunManifest, code: Code) -> Option<&Finding> {
    manifest.verdict.findings.iter().find(|finding| finding.code == code)
}

#[test]
fn weights_that_no_span_stands_for() {
    let (.., manifest, ()) = common::record(|| {
        let mut model = ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        model.forward(&ids(2), 0).unwrap();
    });
    let told = model(&manifest);
    assert_eq!((told.unowned_weights, &*told.unowned), (1, ["model.embed_tokens.weight".to_owned()].as_slice()));
    // Seven projections, three of them with a bias, two norms a layer; embedding and norm, and a head that is tied.
    assert_eq!(told.weights, (LAYERS * (7 + 3 + 2) + 2) as u64);
    assert_eq!(told.modules, (LAYERS * (7 + 2) + 2) as u64);
    assert_eq!((told.unnamed.len(), told.shared.len(), told.weights_before > 0), (0, 0, told.weights_before > 0));
    let said = finding(&manifest, Code::WeightsUnowned).unwrap();
    assert_eq!(said.severity, Severity::Info);
    assert!(said.message().contains("model.embed_tokens.weight"), "{}", said.message());
    // Nobody described the model, and its weights tell what it is.
    assert_eq!((told.rows_unknown, told.recognised.as_deref()), (0, Some("qwen2")));
}

#[test]
fn spans_that_own_nothing() {
    let (batch, manifest, ()) = common::record(|| {
        let vb = observed();
        // Told, and then made elsewhere: weights of this layer are not those that were read last.
        let weight = vb.get((4, 4), "a.weight").unwrap();
        let other = vb.get((4, 4), "b.weight").unwrap();
        let layer = with_tracing::Linear::from_weights(weight, None);
        let x = Tensor::ones((1, 4), DType::F32, &Device::Cpu).unwrap();
        candle_core::Module::forward(&layer, &x).unwrap();
        drop(other);
    });
    assert_eq!(batch.spans[0].path.module, None, "it may be made of either");
    assert_eq!(model(&manifest).unnamed, [("linear".to_owned(), 1)].into());
    assert!(finding(&manifest, Code::ModulesUnnamed).unwrap().message().contains("1 linear"));
}

/// Weights that a program joins after it has read them are nobody's: their products are in no sum, so there is none.
#[test]
fn merged_weights_leave_the_step_without_a_sum() {
    let flops = |merged: bool| {
        let (batch, ..) = common::record(|| {
            let mut model = ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
            let merged = merged.then(|| {
                let vb = observed();
                let [a, b] = ["a.weight", "b.weight"].map(|name| vb.get((4, 4), name).unwrap());
                with_tracing::Linear::from_weights(Tensor::cat(&[&a, &b], 0).unwrap(), None)
            });
            let x = Tensor::ones((1, 4), DType::F32, &Device::Cpu).unwrap();
            let _step = llm::prefill(Tokens::new(2).context(2));
            model.forward(&ids(2), 0).unwrap();
            merged.iter().for_each(|layer| _ = candle_core::Module::forward(layer, &x).unwrap());
        });
        assert_eq!(batch.steps.len(), 1);
        (batch.steps[0].flops, batch.spans.iter().filter_map(|span| span.flops).sum::<u64>())
    };
    let (whole, of_layers) = flops(false);
    assert_eq!(whole, Some(of_layers));
    assert_eq!(flops(true), (None, of_layers), "what is known of a layer stays");
}

#[test]
fn one_weight_of_two_modules() {
    let (.., manifest, ()) = common::record(|| {
        let vb = observed();
        let words = with_tracing::Embedding::new(96, 8, vb.pp("words")).unwrap();
        let head = with_tracing::Linear::from_weights(words.embeddings().clone(), None);
        let x = candle_core::Module::forward(&words, &ids(2)).unwrap();
        candle_core::Module::forward(&head, &x.squeeze(0).unwrap()).unwrap();
    });
    assert_eq!(model(&manifest).shared, ["words.weight"]);
}

#[test]
fn a_model_that_was_loaded_before() {
    let weights = VarMap::new();
    let vb = candlescope::observe(VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu));
    let mut model = ModelForCausalLM::new(&qwen2_config(false), vb).unwrap();
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory).start().unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || model.forward(&ids(2), 0).unwrap());
    let manifest = session.finish();
    assert!(manifest.modules.as_ref().is_some_and(|told| told.weights_before > 0), "{:?}", manifest.modules);
    assert!(finding(&manifest, Code::ModelLoadedBefore).is_some(), "{:?}", manifest.verdict.findings);
}

#[test]
fn a_configuration_of_another_model() {
    let (.., manifest, ()) = common::record(|| {
        candlescope::modules::model(r#"{"model_type": "qwen2", "vocab_size": 97, "hidden_size": 32}"#).unwrap();
        let mut model = ModelForCausalLM::new(&qwen2_config(false), observed()).unwrap();
        model.forward(&ids(2), 0).unwrap();
    });
    let said = finding(&manifest, Code::ConfigContradictsWeights).unwrap();
    assert_eq!(said.severity, Severity::Error);
    let words = said.message();
    assert!(words.contains("vocab_size is 97") && words.contains("model.embed_tokens.weight has 96 rows"), "{words}");
    assert!(candlescope::modules::model("no JSON").unwrap_err().to_string().contains("config.json"));
}
