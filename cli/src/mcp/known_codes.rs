//! What a code of a finding means: the same lists as those of which `docs/findings.md` and `docs/reference.md` are made.

use candlescope_core::nearest::suggest;
use candlescope_core::run::Code;
use candlescope_figures::advice::{AdviceCode, Missing};
use serde_json::{Value, json};

/// The meaning of a code.
///
/// # Errors
/// If there is none of this name, with one that may be meant.
pub(super) fn meaning(code: &str) -> Result<Value, String> {
    if let Some(found) = AdviceCode::ALL.iter().find(|known| known.as_str() == code) {
        return Ok(json!({
            "code": code,
            "about": "what holds a run back",
            "meaning": found.meaning(),
            "reported_when": found.test(),
            "gain": found.gain(),
            "page": "docs/findings.md",
        }));
    }
    if let Some(found) = Code::ALL.iter().find(|known| known.as_str() == code) {
        return Ok(json!({
            "code": code,
            "about": "the data of a run",
            "severity": found.severity(),
            "meaning": found.meaning(),
            "remedy": found.remedy(),
            "page": "docs/reference.md#findings",
        }));
    }
    if let Some(found) = Missing::ALL.iter().find(|known| known.as_str() == code) {
        return Ok(json!({
            "code": code,
            "about": "what a run lacks for a finding",
            "meaning": found.what(),
            "record": found.record(),
            "page": "docs/findings.md#what-may-be-missing",
        }));
    }
    let known = AdviceCode::ALL.iter().map(|code| code.as_str());
    let known =
        known.chain(Code::ALL.iter().map(Code::as_str)).chain(Missing::ALL.iter().map(|missing| missing.as_str()));
    Err(format!(
        "there is no finding `{code}`{}: codes stand in the answers of `overview` and `analyze`",
        suggest(code, known)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_meaning_and_others_a_remedy() {
        let all = AdviceCode::ALL.iter().map(|code| code.as_str()).chain(Code::ALL.iter().map(Code::as_str));
        for code in all {
            assert!(meaning(code).unwrap()["meaning"].as_str().is_some_and(|text| !text.is_empty()), "{code}");
        }
        assert_eq!(meaning("kernels").unwrap()["about"], "what a run lacks for a finding");
        assert!(meaning("launch_bond").unwrap_err().contains("launch_bound"));
    }
}
