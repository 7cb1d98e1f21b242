//! Every code that answers have, and what each means, in one list: findings with gains, findings about the data, and
//! what a run may lack. `docs/findings.md` and `docs/reference.md` are made of the same declarations.

use crate::advice::{AdviceCode, Missing};
use candlescope_schema::run::{Code, Severity};
use serde::Serialize;

/// A code, and what it means whatever the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedCode {
    /// As answers have it.
    pub code: &'static str,
    /// What findings of its kind are about.
    pub about: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Of a finding with a gain: when it is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_when: Option<&'static str>,
    /// Of a finding with a gain: how that is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<&'static str>,
    /// Of a finding about the data: how much it matters, unless the finding says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Of a finding about the data: what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
    /// Of what a run lacks: how to record it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<&'static str>,
    /// The page that has it.
    pub page: &'static str,
}

impl ExplainedCode {
    /// All of them: findings with gains, findings about the data, what may be missing.
    pub fn all() -> impl Iterator<Item = Self> {
        let advice = AdviceCode::ALL.iter().map(|code| Self {
            reported_when: Some(code.test()),
            gain: Some(code.gain()),
            ..Self::of(code.as_str(), "what holds a run back", code.meaning(), "docs/findings.md")
        });
        let verdict = Code::ALL.iter().map(|code| Self {
            severity: Some(code.severity()),
            remedy: Some(code.remedy()),
            ..Self::of(code.as_str(), "the data of a run", code.meaning(), "docs/reference.md#findings")
        });
        let missing = Missing::ALL.iter().map(|missing| Self {
            record: Some(missing.record()),
            ..Self::of(
                missing.as_str(),
                "what a run lacks for a finding",
                missing.what(),
                "docs/findings.md#what-may-be-missing",
            )
        });
        advice.chain(verdict).chain(missing)
    }

    /// That of a name; `None` if there is none.
    pub fn named(code: &str) -> Option<Self> {
        Self::all().find(|known| known.code == code)
    }

    fn of(code: &'static str, about: &'static str, meaning: &'static str, page: &'static str) -> Self {
        Self { code, about, meaning, page, reported_when: None, gain: None, severity: None, remedy: None, record: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_stands_once_and_says_what_it_means() {
        let mut seen = BTreeSet::new();
        for known in ExplainedCode::all() {
            assert!(seen.insert(known.code), "`{}` stands twice", known.code);
            assert!(!known.meaning.is_empty(), "{}", known.code);
            let says = [known.reported_when, known.remedy, known.record].into_iter().flatten().collect::<Vec<_>>();
            assert!(says.len() == 1 && !says[0].is_empty(), "{known:?}");
        }
        let known = |code: &str| ExplainedCode::named(code).map(|known| known.about);
        assert_eq!(known("straggler_rank"), Some("what holds a run back"));
        assert_eq!(known("kernels"), Some("what a run lacks for a finding"));
        assert_eq!(known("launch_bond"), None);
    }
}
