//! What a verdict consists of. A finding carries numbers; its text is made from them where it is shown. It is also
//! written into `run.json`, so that every reader has it.

use super::code::{Code, Severity};
use super::evidence::{Evidence, EvidenceValue};
use super::wording::fill;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Whether the data can be trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Verdict {
    /// No finding of severity [`Severity::Error`].
    pub ok: bool,
    /// What was noticed, of every severity.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// The verdict of these findings.
    pub fn of(findings: Vec<Finding>) -> Self {
        Self { ok: findings.iter().all(|finding| finding.severity != Severity::Error), findings }
    }

    /// Adds a later finding.
    pub fn add(&mut self, finding: Finding) {
        self.ok &= finding.severity != Severity::Error;
        self.findings.push(finding);
    }

    /// Adds later findings as a reader of the run shows all of them: the gravest first, those of one severity in the order
    /// in which they came.
    #[doc(hidden)]
    pub fn join(&mut self, later: impl IntoIterator<Item = Finding>) {
        later.into_iter().for_each(|finding| self.add(finding));
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// One thing that is wrong or worth knowing about a run.
///
/// Message and remedy are templates: `{name}` stands for the evidence, or the place, of that name, shown according to
/// its unit. A part in brackets is shown only if all of its evidence is known. `{name:…}` asks for another form: `raw`
/// (the number alone), `.2` (decimals), `+.1` (with its sign), `.3e` (with an exponent), `.0%` (a share).
///
/// ```
/// use candlescope_schema::run::{Code, Finding, Severity};
/// let finding = Finding::new(Code::TooDeep, "{lost} intervals were nested too deep[, below {path}]", "look for recursion")
///     .count("lost", 1_200);
/// assert_eq!(finding.message(), "1,200 intervals were nested too deep");
/// assert_eq!((finding.severity, finding.figure("lost")), (Severity::Warning, Some(1_200.0)));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub code: Code,
    /// Where, by kind of place.
    #[doc(hidden)]
    pub place: BTreeMap<Place, String>,
    /// The numbers it is based on.
    #[doc(hidden)]
    pub evidence: Vec<Evidence>,
    words: Words,
}

/// Kinds of places that findings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Place {
    /// A path without ordinals.
    Path,
    /// A phase, or the steps of one name.
    Phase,
    /// A device, by its UUID.
    Device,
    /// An exporter, by its name.
    Exporter,
    /// A collector, by its name.
    Collector,
    /// A table of the run.
    Table,
    /// A file, by its path.
    File,
}

impl Place {
    fn as_str(self) -> &'static str {
        match self {
            Place::Path => "path",
            Place::Phase => "phase",
            Place::Device => "device",
            Place::Exporter => "exporter",
            Place::Collector => "collector",
            Place::Table => "table",
            Place::File => "file",
        }
    }
}

#[derive(Debug, Clone)]
enum Words {
    /// Templates that are filled with the evidence.
    Templates { message: &'static str, remedy: &'static str },
    /// Finished texts, as read from a file: message and remedy.
    Written(Box<(String, String)>),
}

impl Finding {
    /// A finding with the severity of its code; `message` says what was seen, `remedy` what to do.
    pub fn new(code: impl Into<Code>, message: &'static str, remedy: &'static str) -> Self {
        let code = code.into();
        Self {
            severity: code.severity(),
            code,
            place: BTreeMap::new(),
            evidence: Vec::new(),
            words: Words::Templates { message, remedy },
        }
    }

    /// Sets a severity other than that of its code.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Adds the place that it is about.
    #[doc(hidden)]
    #[must_use]
    pub fn at(mut self, place: Place, name: impl Into<String>) -> Self {
        self.place.insert(place, name.into());
        self
    }

    /// Adds a number in a unit of `metrics.json`. A number that is not finite is left out.
    #[must_use]
    pub fn number(self, name: &'static str, unit: &'static str, value: f64) -> Self {
        if value.is_finite() { self.with(name, unit, EvidenceValue::Real(value)) } else { self }
    }

    /// Adds a number of things, for `{name}` in the templates.
    #[must_use]
    pub fn count(self, name: &'static str, n: u64) -> Self {
        self.with(name, "count", EvidenceValue::Whole(n))
    }

    /// Adds a time in nanoseconds.
    #[must_use]
    pub fn ns(self, name: &'static str, ns: u64) -> Self {
        self.with(name, "ns", EvidenceValue::Whole(ns))
    }

    /// Adds a share, from 0 to 1.
    #[must_use]
    pub fn ratio(self, name: &'static str, ratio: f64) -> Self {
        self.number(name, "ratio", ratio)
    }

    /// Adds a word, a name or another program's message, for `{name}` in the templates.
    #[must_use]
    pub fn text(self, name: &'static str, text: impl Into<String>) -> Self {
        self.with(name, "text", EvidenceValue::Text(text.into()))
    }

    fn with(mut self, name: &'static str, unit: &'static str, value: EvidenceValue) -> Self {
        self.evidence.push(Evidence { name: name.into(), value, unit: unit.into() });
        self
    }

    /// What was seen, with its numbers.
    pub fn message(&self) -> String {
        match &self.words {
            Words::Templates { message, .. } => self.fill(message),
            Words::Written(words) => words.0.clone(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match &self.words {
            Words::Templates { remedy, .. } => self.fill(remedy),
            Words::Written(words) => words.1.clone(),
        }
    }

    /// A number of the evidence; `None` if there is none of this name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.evidence.iter().find(|evidence| evidence.name == name)?.value.as_f64()
    }

    fn fill(&self, template: &str) -> String {
        let place = |name: &str| self.place.iter().find(|(place, _)| place.as_str() == name).map(|(_, name)| name);
        fill(template, &self.evidence, place)
    }
}

impl PartialEq for Finding {
    /// Whether both read the same, even if the text of one was read from a file.
    fn eq(&self, other: &Self) -> bool {
        self.severity == other.severity
            && self.code == other.code
            && self.place == other.place
            && self.evidence == other.evidence
            && self.message() == other.message()
            && self.remedy() == other.remedy()
    }
}

/// A finding as in `run.json`. The first four keys are older than the others, and every reader relies on them.
#[derive(Serialize, Deserialize)]
struct WrittenFinding {
    severity: Severity,
    code: Code,
    message: String,
    remedy: String,
    #[serde(default, skip_serializing_if = "Json::is_null")]
    place: Json,
    #[serde(default, skip_serializing_if = "Json::is_null")]
    evidence: Json,
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = (!self.place.is_empty()).then(|| serde_json::to_value(&self.place));
        let evidence = (!self.evidence.is_empty()).then(|| serde_json::to_value(&self.evidence));
        let json = |value: Option<serde_json::Result<Json>>| {
            value.transpose().map(Option::unwrap_or_default).map_err(serde::ser::Error::custom)
        };
        let written = WrittenFinding {
            severity: self.severity,
            code: self.code.clone(),
            message: self.message(),
            remedy: self.remedy(),
            place: json(place)?,
            evidence: json(evidence)?,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Finding {
    /// Places and evidence that this release does not understand are left out; message and remedy remain.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WrittenFinding { severity, code, message, remedy, place, evidence } =
            WrittenFinding::deserialize(deserializer)?;
        let place = place.as_object().into_iter().flatten().filter_map(|(kind, name)| {
            let kind = serde_json::from_value(Json::from(kind.as_str())).ok()?;
            Some((kind, name.as_str()?.to_string()))
        });
        let evidence = evidence.as_array().into_iter().flatten().filter_map(|e| Evidence::deserialize(e).ok());
        Ok(Self {
            severity,
            code,
            place: place.collect(),
            evidence: evidence.collect(),
            words: Words::Written(Box::new((message, remedy))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_has_text_and_numbers_and_is_read_back() {
        let finding =
            Finding::new(Code::ExporterDropped, "exporter {exporter} dropped {dropped}[: {why}]", "look at {exporter}")
                .at(Place::Exporter, "otlp")
                .count("dropped", 3)
                .ratio("share", 0.25)
                .text("why", "{dropped} of nothing");
        let json = serde_json::to_value(&finding).unwrap();
        assert_eq!(
            json,
            json!({
                "severity": "error", "code": "exporter_dropped",
                "message": "exporter otlp dropped 3: {dropped} of nothing", "remedy": "look at otlp",
                "place": { "exporter": "otlp" },
                "evidence": [
                    { "name": "dropped", "value": 3, "unit": "count" },
                    { "name": "share", "value": 0.25, "unit": "ratio" },
                    { "name": "why", "value": "{dropped} of nothing", "unit": "text" },
                ],
            })
        );
        assert_eq!(
            serde_json::from_value::<Finding>(json).unwrap(),
            finding,
            "and what was filled is not filled again"
        );
    }

    #[test]
    fn old_findings_and_those_of_tomorrow_are_read() {
        let old = json!({ "severity": "info", "code": "x", "message": "m {a}", "remedy": "r" });
        let read: Finding = serde_json::from_value(old.clone()).unwrap();
        assert_eq!((read.message().as_str(), read.code.as_str()), ("m {a}", "x"));
        assert_eq!(serde_json::to_value(&read).unwrap(), old, "written as it was");
        let mut new = old;
        new["place"] = json!({ "galaxy": "andromeda", "path": "decode" });
        new["evidence"] =
            json!([{ "name": "a", "value": [1], "unit": "count" }, { "name": "b", "value": 2, "unit": "count" }, 7]);
        let read: Finding = serde_json::from_value(new).unwrap();
        assert_eq!((read.place.len(), read.figure("a"), read.figure("b")), (1, None, Some(2.0)));
    }

    #[test]
    fn numbers_that_json_lacks_are_left_out() {
        let finding = Finding::new("own", "[{share} ]of it", "").ratio("share", f64::NAN);
        assert_eq!((finding.message().as_str(), finding.evidence.len()), ("of it", 0));
    }

    #[test]
    fn an_error_is_what_makes_a_verdict_not_ok() {
        let mut verdict = Verdict::of(vec![Finding::new(Code::TooDeep, "", "")]);
        assert!(verdict.ok);
        verdict.add(Finding::new(Code::RingFull, "", "").severity(Severity::Info));
        assert!(verdict.ok);
        verdict.add(Finding::new(Code::RingFull, "", ""));
        assert!(!verdict.ok && verdict.findings.len() == 3);
        verdict.join([Finding::new(Code::GpuOutlastsSteps, "", ""), Finding::new(Code::Unresolved, "", "")]);
        let order: Vec<&str> = verdict.findings.iter().map(|finding| finding.code.as_str()).collect();
        let expected = ["ring_full", "unresolved", "too_deep", "ring_full", "gpu_outlasts_steps"];
        assert_eq!(order, expected, "the gravest first");
    }
}
