//! Spans that name their module themselves, as the markers' do.
#![allow(missing_docs, reason = "a test")]

mod common;

use candlescope_core::llm::{self, Tokens};
use candlescope_core::{Session, Tap, TapInterval};
use common::{record, sorted};
use std::sync::{Arc, Mutex};
use tracing::{info_span, trace_span};

/// The modules that it was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Tap for Told {
    fn name(&self, _: u32, _: &str, _: &str) {}
    fn module(&self, _: u32, module: &str) {
        self.0.lock().expect("no panic").push(module.to_string());
    }
    fn enter(&self, _: TapInterval) {}
    fn exit(&self, _: TapInterval) {}
}

#[test]
fn a_module_is_told_once_however_often_its_span_is_made() {
    let told = Told::default();
    let (batch, manifest) = record(Session::builder().tap(told.clone()), |_| {
        for position in 1..4 {
            let _step = llm::decode(Tokens::new(1).context(position));
            let _one_off = llm::module("model.layers.7.self_attn").entered();
        }
    });
    assert_eq!(*told.0.lock().expect("no panic"), ["model.layers.7.self_attn"]);
    let modules: Vec<_> = batch.spans.iter().filter(|span| span.path.module.is_some()).collect();
    assert_eq!(modules.len(), 3);
    for span in modules {
        assert_eq!(span.path.path, "decode/self_attn");
        assert_eq!(span.path.rollup, "decode/model.layers.*.self_attn");
    }
    assert_eq!(manifest.modules.expect("a module").modules, 1);
}

#[test]
fn a_module_is_what_says_so_and_is_part_of_a_model() {
    let (batch, _) = record(Session::builder(), |_| {
        // A phase is a phase, whatever else its fields say.
        drop(info_span!(target: "mine", "decode", candlescope.phase = "decode", candlescope.module = "no").entered());
        // Outside of a phase, spans of a program's own are nothing once phases are marked. A module is a step.
        trace_span!(target: "mine", "handler").in_scope(|| ());
        trace_span!(target: "mine", "attn", candlescope.module = "layers.0.attn").in_scope(|| ());
        trace_span!(target: "mine", "empty", candlescope.module = "").in_scope(|| ());
        llm::layer(3).in_scope(|| ());
    });
    let seen: Vec<_> = sorted(&batch).iter().map(|s| (s.path.path.clone(), s.path.module.clone())).collect();
    let module = |name: &str| Some(Arc::<str>::from(name));
    let expected = [("decode", None), ("attn", module("layers.0.attn")), ("layer", module("layers.3"))];
    assert_eq!(seen, expected.map(|(path, module)| (path.to_string(), module)));
    assert_eq!(batch.steps.len(), 3);
}
