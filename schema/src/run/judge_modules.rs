//! What is known of the model's modules: the rules of [`judge`](super::judge) for it.

use super::{CANDLE_VERSION, Code, Finding, LoadedModel};
use std::collections::BTreeMap;

/// Checks which spans stand for which weights; `filtered` if a filter disables the model's spans.
pub(super) fn findings(model: &LoadedModel, filtered: bool, found: &mut Vec<Finding>) {
    let named = |names: &BTreeMap<String, u64>| {
        let words: Vec<String> = names.iter().map(|(name, n)| format!("{n} {name}")).collect();
        (names.values().sum::<u64>(), words.join(", "))
    };
    if model.weights == 0 && model.weights_before > 0 {
        let finding = Finding::new(
            Code::ModelLoadedBefore,
            "{weights} weights were loaded before the session began: its spans have no modules",
            "set candlescope up first and load the model then: candle makes its spans while it loads",
        );
        found.push(finding.count("weights", model.weights_before));
        return;
    }
    let (n, names) = named(&model.unknown_callsites);
    if n > 0 {
        let finding = Finding::new(
            Code::CallsitesUnknown,
            "{spans} spans of candle-transformers are made where version {version} makes none ({names}): they have no \
             modules",
            "use candle-transformers {version}, or tell of the version that you use",
        );
        found.push(finding.count("spans", n).text("version", CANDLE_VERSION).text("names", names));
    }
    let (n, names) = named(&model.unnamed);
    if n > 0 {
        let finding = Finding::new(
            Code::ModulesUnnamed,
            "{spans} spans ought to stand for a module, and no weight was found for them: {names}",
            "docs/models.md says, under \"Other models of candle\", which models read their weights in an order that tells \
             nothing; load the model with the builder that observe returned, and on one thread",
        );
        found.push(finding.count("spans", n).text("names", names));
    }
    // Where a filter disables all spans, none stands for any weight.
    if model.unowned_weights > 0 && !(filtered && model.modules == 0) {
        let finding = Finding::new(
            Code::WeightsUnowned,
            "no span stands for {weights} of {all} weights ({bytes} of {all_bytes}), {names} among them: their time and \
             work are in what is around them",
            "nothing, where these are embeddings and norms; docs/models.md says which models have layers without spans, \
             and docs/instrument.md, \"Models without spans\", how they get some",
        );
        let names: Vec<&str> = model.unowned.iter().take(3).map(String::as_str).collect();
        let finding = finding.count("weights", model.unowned_weights).count("all", model.weights);
        let bytes = |finding: Finding, name, bytes: u64| finding.number(name, "bytes", bytes as f64);
        let finding = bytes(bytes(finding, "bytes", model.unowned_bytes), "all_bytes", model.bytes);
        found.push(finding.text("names", names.join(", ")));
    }
    if model.rows_unknown > 0 {
        let finding = Finding::new(
            Code::RowsUnknown,
            "how many rows {modules} of {all} modules compute is not known, and so their FLOPs and bytes are not",
            "give the model's config.json to candlescope before it loads: \
             candlescope::modules::model(&std::fs::read_to_string(\"config.json\")?)?; of architectures that are not known, \
             and of experts, nothing is guessed",
        );
        found.push(finding.count("modules", model.rows_unknown).count("all", model.modules));
    }
    if let (Some(name), true) = (&model.recognised, model.windows_unknown > 0) {
        let finding = Finding::new(
            Code::RowsUnknown,
            "the model has the form of {architecture}, and its weights do not say which of {modules} projections attend \
             over a window: the work of attention is not known, nor that of a step",
            "give the model's config.json to candlescope before it loads: \
             candlescope::modules::model(&std::fs::read_to_string(\"config.json\")?)?",
        );
        found.push(finding.text("architecture", name).count("modules", model.windows_unknown));
    } else if model.windows_unknown > 0 {
        let finding = Finding::new(
            Code::RowsUnknown,
            "the model's configuration names a sliding window, and of {modules} projections it is not known whether \
             their layer has it: the work of attention is not known, nor that of a step",
            "where all layers attend to the whole context, take `sliding_window` out of the text that is given to \
             candlescope::modules::model",
        );
        found.push(finding.count("modules", model.windows_unknown));
    }
    for words in &model.contradictions {
        let finding = Finding::new(
            Code::ConfigContradictsWeights,
            "the configuration given to candlescope::modules::model is of another model: {what}",
            "give it the config.json that lies beside the weights; FLOPs and bytes of this run are not to be trusted",
        );
        found.push(finding.text("what", words));
    }
}
