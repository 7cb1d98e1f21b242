//! What an overview says of the data, of what to change, and of where the time goes.

use super::super::advice::worded;
use super::super::conclusion::verdict_line;
use super::overview_parts::{OverviewFinding, OverviewPath, Trust, TrustReason};
use super::short_text::{name, sentence, six_digits};
use candlescope_figures::Analysis;
use candlescope_figures::advice::Advice;

/// The verdict with its reasons, the gravest first.
pub(super) fn trust(analysis: &Analysis) -> Trust {
    let reasons = analysis.verdict.findings.iter().map(|finding| TrustReason {
        code: name(finding.code.as_str()),
        severity: finding.severity.as_str(),
        message: sentence(&finding.message()),
        remedy: sentence(&finding.remedy()),
    });
    Trust {
        ok: analysis.verdict.ok,
        disturbed: analysis.disturbance().is_some(),
        text: verdict_line(analysis),
        reasons: reasons.collect(),
    }
}

/// What to change.
pub(super) fn findings(analysis: &Analysis) -> Vec<OverviewFinding> {
    let found = analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    found.enumerate().map(|(at, advice)| finding(at, advice)).collect()
}

fn finding(at: usize, advice: &Advice) -> OverviewFinding {
    let words = worded(advice);
    OverviewFinding {
        at,
        code: advice.code.as_str(),
        severity: advice.severity.name(),
        phase: name(&advice.place.phase),
        path: advice.place.path.as_deref().map(name),
        gain: [advice.gain.low, advice.gain.mid, advice.gain.high].map(six_digits),
        gain_of_run: six_digits(advice.of_run().mid),
        confidence: advice.confidence.level.name(),
        message: sentence(&words.message),
        remedy: sentence(&words.remedy),
    }
}

/// Paths in the order in which reports show them: by the time in themselves.
pub(super) fn paths(analysis: &Analysis) -> Vec<OverviewPath> {
    let paths = analysis.operators.iter().map(|operator| OverviewPath {
        path: name(&operator.path),
        calls: operator.calls,
        self_ns: operator.self_ns,
        self_share: six_digits(operator.self_share),
        gpu_self_share: operator.gpu.and_then(|gpu| gpu.self_share).map(six_digits),
    });
    paths.collect()
}
