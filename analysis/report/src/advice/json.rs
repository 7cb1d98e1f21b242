//! Findings with gains as one stable object.

use super::diagnosis::worded;
use candlescope_figures::advice::{Advice, Diagnosis};
use serde_json::{Value, json as object};

/// `findings` (ranked, with their words), `abstained`, `steps`, `together` and `roadmaps` under stable keys.
pub fn json(diagnosis: &Diagnosis) -> Value {
    let abstained = diagnosis.abstained.iter().map(|abstention| {
        object!({
            "code": abstention.code,
            "phases": abstention.phases,
            "missing": abstention.missing.as_str(),
            "reason": abstention.missing.what(),
            "record": abstention.missing.record(),
        })
    });
    object!({
        "steps": diagnosis.steps,
        "findings": diagnosis.findings.iter().map(one).collect::<Vec<_>>(),
        "abstained": abstained.collect::<Vec<_>>(),
        "negligible": diagnosis.negligible,
        "together": diagnosis.together,
        "roadmaps": diagnosis.roadmaps,
    })
}

fn one(advice: &Advice) -> Value {
    let words = worded(advice);
    object!({
        "code": advice.code,
        "severity": advice.severity,
        "place": advice.place,
        "gain": advice.gain,
        "gain_of_run": advice.of_run(),
        "coverage": advice.coverage,
        "confidence": advice.confidence,
        "disturbed": advice.disturbed,
        "record": advice.record,
        "message": words.message,
        "remedy": words.remedy,
        "evidence": advice.evidence,
        "query": advice.query,
    })
}
