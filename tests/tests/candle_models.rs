//! Unmodified candle-transformers models: installing the layer is all it takes.
#![allow(missing_docs, reason = "a test")]
mod common;
use candle_core::{DType, Tensor};
use candlescope_core::{Phase, llm};
use common::*;

/// One test at a time. What a callsite is told is kept for the whole process: a model that loads while another test's subscriber comes or
/// goes may find some of its spans off.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The expected intervals of one forward pass of candle's llama below `decode`, from candle's source.
fn llama_tree() -> Vec<String> {
    let mut tree = vec!["decode".to_string()];
    for b in 0..LAYERS {
        let block = format!("decode/block[{b}]");
        tree.push(block.clone());
        tree.push(format!("{block}/rms-norm[0]"));
        tree.push(format!("{block}/attn"));
        tree.extend((0..3).map(|i| format!("{block}/attn/linear[{i}]")));
        tree.extend((0..2).map(|i| format!("{block}/attn/attn-rot[{i}]")));
        tree.push(format!("{block}/attn/linear[3]"));
        tree.push(format!("{block}/rms-norm[1]"));
        tree.push(format!("{block}/mlp"));
        tree.extend((0..3).map(|i| format!("{block}/mlp/linear[{i}]")));
    }
    tree.push("decode/rms-norm".into());
    tree.push("decode/linear".into());
    tree
}

#[test]
fn llama_forwards_give_exactly_that_many_times_the_intervals_of_one() {
    let _alone = alone();
    const N: usize = 7;
    let (batch, manifest, ()) = record(|| {
        let (model, mut cache) = llama();
        for i in 0..N {
            let _step = llm::decode(llm::Tokens::new(1).context(i + 1));
            model.forward(&tokens(1), i, &mut cache).unwrap();
        }
    });
    let expected = llama_tree();
    assert_eq!(expected.len(), 1 + 14 * LAYERS + 2);
    let mut steps: Vec<u64> = batch.steps.iter().map(|s| s.step).collect();
    steps.sort_unstable();
    assert_eq!(steps.len(), N);
    for step in steps {
        assert_eq!(paths(&batch, Some(step)), expected);
    }
    assert_eq!(batch.spans.len(), N * expected.len());
    assert!(batch.spans.iter().all(|s| s.phase == Some(Phase::Decode)));
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}

#[test]
fn quantized_llama_has_its_own_tree() {
    let _alone = alone();
    const N: usize = 5;
    let (batch, manifest, ()) = record(|| {
        let mut model = quantized_llama();
        for i in 0..N {
            model.forward(&tokens(1), i).unwrap();
        }
    });
    // Without marked phases the outermost spans are the steps: `model`, which is open during the whole forward.
    let mut expected = vec!["model".to_string()];
    for l in 0..LAYERS {
        let (attn, mlp) = (format!("model/attn[{l}]"), format!("model/attn-mlp[{l}]"));
        expected.push(format!("model/rms-norm[{l}]"));
        expected.push(attn.clone());
        expected.extend((0..3).map(|i| format!("{attn}/qmatmul[{i}]")));
        expected.extend((0..2).map(|i| format!("{attn}/attn-rot[{i}]")));
        expected.push(format!("{attn}/qmatmul[3]"));
        expected.extend([mlp.clone(), format!("{mlp}/rms-norm")]);
        expected.extend((0..3).map(|i| format!("{mlp}/qmatmul[{i}]")));
    }
    expected.extend([format!("model/rms-norm[{LAYERS}]"), "model/output".into(), "model/output/qmatmul".into()]);
    let per_forward: Vec<&str> = paths(&batch, Some(batch.steps[0].step));
    assert_eq!(per_forward, expected);
    assert_eq!(batch.steps.len(), N);
    assert_eq!(batch.spans.len(), N * per_forward.len());
    for step in &batch.steps {
        assert_eq!(paths(&batch, Some(step.step)), per_forward);
    }
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}

#[test]
fn bert_has_its_own_tree() {
    let _alone = alone();
    const N: usize = 4;
    let (batch, manifest, ()) = record(|| {
        let model = bert();
        let ids = tokens(6);
        let types = ids.zeros_like().unwrap();
        for _ in 0..N {
            let _step = llm::encode(llm::Tokens::new(6));
            model.forward(&ids, &types, None).unwrap();
        }
    });
    let first = paths(&batch, Some(batch.steps[0].step));
    for expected in [
        "encode/model/embeddings",
        "encode/model/encoder/layer[0]/attn/self-attn/linear[0]",
        "encode/model/encoder/layer[2]/attn/self-attn/softmax",
        "encode/model/encoder/layer[1]/inter/hidden-act",
        "encode/model/encoder/layer[1]/out/linear",
    ] {
        assert!(first.contains(&expected), "{expected} is not in {first:#?}");
    }
    assert_eq!(batch.spans.len(), N * first.len());
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}

#[test]
fn without_marked_phases_the_outermost_spans_are_the_steps() {
    let _alone = alone();
    const N: usize = 2;
    let (batch, _, ()) = record(|| {
        let (model, mut cache) = llama();
        for i in 0..N {
            model.forward(&tokens(1), i, &mut cache).unwrap();
        }
    });
    // candle's llama has no span around the whole forward: its blocks, the last norm and the head are steps of their
    // own.
    let mut names: Vec<&str> = batch.steps.iter().map(|s| s.path.path.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["block"; N * LAYERS].into_iter().chain(["linear"; N]).chain(["rms-norm"; N]).collect::<Vec<_>>()
    );
    assert!(batch.spans.iter().any(|s| s.path.path == "block/attn/linear[3]" && s.phase.is_none()));
}

#[test]
fn a_model_cloned_into_two_threads_shares_its_spans_and_no_trouble() {
    let _alone = alone();
    const N: usize = 20;
    let (batch, manifest, ()) = record(|| {
        let (model, cache) = llama();
        let dispatch = tracing::dispatcher::get_default(|d| d.clone());
        std::thread::scope(|scope| {
            for t in 0..2 {
                let (model, mut cache, dispatch) = (model.clone(), cache.clone(), dispatch.clone());
                std::thread::Builder::new()
                    .name(format!("gen-{t}"))
                    .spawn_scoped(scope, move || {
                        tracing::dispatcher::with_default(&dispatch, || {
                            for i in 0..N {
                                let _step = llm::decode(llm::Tokens::new(1).context(i + 1));
                                model.forward(&tokens(1), i, &mut cache).unwrap();
                            }
                        });
                    })
                    .unwrap();
            }
        });
    });
    let expected = llama_tree();
    let told = || {
        let by = |name: &str| batch.spans.iter().filter(|span| &*span.thread.name == name).count();
        format!("{:?} {:?} {} {}", manifest.steps, manifest.loss, by("gen-0"), by("gen-1"))
    };
    assert_eq!(batch.spans.len(), 2 * N * expected.len(), "{}", told());
    for step in &batch.steps {
        assert_eq!(paths(&batch, Some(step.step)), expected);
        let threads: std::collections::HashSet<_> =
            batch.spans.iter().filter(|s| s.step == Some(step.step)).map(|s| s.thread.index).collect();
        assert_eq!(threads.len(), 1);
    }
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
}

#[test]
fn a_layer_installed_after_the_model_loaded_says_so() {
    let _alone = alone();
    let (model, mut cache) = llama();
    let (batch, manifest, ()) = record(|| {
        let _step = llm::prefill(llm::Tokens::new(4).context(4));
        model.forward(&tokens(4), 0, &mut cache).unwrap();
    });
    assert_eq!(paths(&batch, None), ["prefill"]);
    let finding = &manifest.verdict.findings[0];
    assert_eq!(finding.code, "no_model_spans");
    assert!(finding.remedy().contains("before the model loads"));
    assert!(!manifest.verdict.ok);
}

#[test]
fn recording_changes_no_result() {
    let _alone = alone();
    let (model, cache) = llama();
    let forward = || -> Vec<f32> {
        let logits: Tensor = model.forward(&tokens(5), 0, &mut cache.clone()).unwrap();
        logits.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    };
    let plain = forward();
    let (_, _, recorded) = record(forward);
    assert_eq!(plain, recorded);
}
