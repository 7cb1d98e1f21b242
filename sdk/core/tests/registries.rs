//! Layers in the wrong place: two sessions in one registry, or one layer in two. The second layer steps back and
//! reports it; the first records as if it were alone.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::run::RunManifest;
use candlescope_core::*;
use common::*;
use std::sync::{Arc, Mutex};
use tracing::trace_span;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::prelude::*;

type Told = Arc<Mutex<Vec<String>>>;

/// A session with its exporter and its reported problems.
struct Observed {
    session: Session,
    memory: MemoryExporter,
    told: Told,
}

fn start() -> (CandlescopeLayer, Observed) {
    let (memory, told) = (MemoryExporter::new(), Told::default());
    let kept = told.clone();
    let builder = Session::builder().exporter(memory.clone());
    let builder = builder.on_problem(move |problem| kept.lock().unwrap().push(problem.to_string()));
    let (layer, session) = builder.start().expect("starts");
    (layer, Observed { session, memory, told })
}

impl Observed {
    fn finish(self) -> (Batch, RunManifest, Vec<String>) {
        let manifest = self.session.finish();
        assert_conserved(&manifest);
        let told = self.told.lock().unwrap().clone();
        (self.memory.batch(), manifest, told)
    }
}

fn work() {
    // The model's own, so that it is a step beside those that are marked.
    let step = trace_span!(target: "candle_nn", "step");
    (0..3).for_each(|_| step.in_scope(|| ()));
    let request = llm::Request::new("chat", "m").prompt_tokens(3);
    let _entered = request.enter();
    for position in 1..3 {
        let _step = llm::decode(llm::Tokens::new(1).context(position));
        trace_span!("linear", tokens = 5u64).in_scope(|| ());
        request.token();
    }
}

/// Checks that all of `work` was recorded, as without a second session.
#[track_caller]
fn assert_whole(batch: &Batch, manifest: &RunManifest) {
    let steps: Vec<_> = batch.steps.iter().map(|s| (s.path.name.to_string(), s.phase)).collect();
    let of = |name: &str| steps.iter().filter(|(n, _)| n == name).count();
    assert_eq!((steps.len(), of("step"), of("decode")), (5, 3, 2), "{steps:?}");
    assert!(steps.iter().all(|(name, phase)| (name == "decode") == (*phase == Some(Phase::Decode))));
    assert_eq!(batch.spans.len(), 3 + 1 + 4);
    assert_eq!(batch.requests.iter().map(|r| r.output_tokens).collect::<Vec<_>>(), [Some(2)]);
    assert!(manifest.verdict.findings.iter().all(|f| f.severity != run::Severity::Error), "{:?}", manifest.verdict);
}

#[track_caller]
fn assert_stepped_back((batch, manifest, told): (Batch, RunManifest, Vec<String>)) {
    assert!(batch.is_empty(), "{batch:?}");
    let codes: Vec<_> = manifest.verdict.findings.iter().map(|f| f.code.as_str()).collect();
    assert_eq!((codes, manifest.verdict.ok), (vec!["second_session_in_registry"], false));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("another session's layer") && told[0].contains("a registry of its own"), "{told:?}");
}

#[test]
fn of_two_sessions_in_one_registry_the_second_steps_back() {
    let ((layer_one, one), (layer_two, two)) = (start(), start());
    let registry = tracing_subscriber::registry().with(layer_one).with(layer_two);
    tracing::subscriber::with_default(registry, work);
    let (batch, manifest, told) = one.finish();
    assert_whole(&batch, &manifest);
    assert!(told.is_empty(), "{told:?}");
    assert_stepped_back(two.finish());
}

#[test]
fn it_does_so_in_whatever_it_is_wrapped() {
    // As `layer_from_env` returns them; boxed; joined first.
    let ((layer_one, one), (layer_two, two)) = (start(), start());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(Some(layer_one)).with(Some(layer_two)), work);
    let (batch, manifest, _) = one.finish();
    assert_whole(&batch, &manifest);
    assert_stepped_back(two.finish());
    let ((layer_one, one), (layer_two, two)) = (start(), start());
    // `tracing` asks the outer one of two layers that are joined first.
    let joined = layer_one.and_then(layer_two);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(joined.boxed()), work);
    let (batch, manifest, _) = two.finish();
    assert_whole(&batch, &manifest);
    assert_stepped_back(one.finish());
}

#[test]
fn a_layer_that_is_swapped_in_beside_another_is_found_out_at_the_first_request() {
    let ((layer_one, one), (layer_two, two)) = (start(), start());
    let (slot, handle) = tracing_subscriber::reload::Layer::new(None);
    let registry = tracing_subscriber::registry().with(layer_one).with(slot);
    tracing::subscriber::with_default(registry, || {
        handle.modify(|slot| *slot = Some(layer_two)).expect("the registry lives");
        work();
    });
    let (batch, manifest, _) = one.finish();
    assert_whole(&batch, &manifest);
    let (batch, manifest, told) = two.finish();
    assert!(batch.requests.is_empty() && batch.steps.iter().all(|s| s.phase.is_none()), "{:?}", batch.steps);
    assert_eq!((manifest.verdict.ok, told.len()), (false, 1), "{told:?}");
}

#[test]
fn a_layer_that_is_cloned_records_what_its_first_registry_sees() {
    let (layer, observed) = start();
    let clone = layer.clone();
    let (first, second) = (tracing_subscriber::registry().with(layer), tracing_subscriber::registry().with(clone));
    let (first, second) = (tracing::Dispatch::new(first), tracing::Dispatch::new(second));
    // In the other registry the same ids belong to other spans.
    tracing::dispatcher::with_default(&second, || {
        let other = trace_span!("other");
        (0..3).for_each(|_| other.in_scope(|| drop(llm::sample())));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| tracing::dispatcher::with_default(&first, work));
        scope.spawn(|| tracing::dispatcher::with_default(&second, work));
    });
    drop((first, second));
    let (batch, manifest, told) = observed.finish();
    assert_whole(&batch, &manifest);
    assert!(manifest.verdict.findings.iter().any(|f| f.code == "layer_added_twice"), "{:?}", manifest.verdict);
    assert!(told.len() == 1 && told[0].contains("added to a second registry"), "{told:?}");
}

#[test]
fn a_layer_that_stands_twice_in_one_registry_records_once() {
    let (layer, observed) = start();
    let registry = tracing_subscriber::registry().with(layer.clone()).with(layer);
    tracing::subscriber::with_default(registry, work);
    let (batch, manifest, told) = observed.finish();
    assert_whole(&batch, &manifest);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_place_is_free_again_when_its_registry_or_its_session_is_gone() {
    // One layer in one registry after another.
    let (layer, observed) = start();
    for _ in 0..2 {
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer.clone()), work);
    }
    let (batch, manifest, told) = observed.finish();
    assert_eq!((batch.steps.len(), batch.requests.len(), told.len()), (10, 2, 0), "{told:?}");
    assert!(manifest.verdict.ok, "{:?}", manifest.verdict);
    // One session after another beside it, in a registry that stays.
    let (slot, handle) = tracing_subscriber::reload::Layer::new(Some(layer));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(slot), || {
        for _ in 0..3 {
            let (layer, observed) = start();
            handle.reload(Some(layer)).expect("the registry lives");
            work();
            let (batch, manifest, told) = observed.finish();
            assert_whole(&batch, &manifest);
            assert!(told.is_empty(), "{told:?}");
        }
    });
}
