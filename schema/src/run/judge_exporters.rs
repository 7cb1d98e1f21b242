//! What became of the records that exporters got: the rules of [`judge`](super::judge) for them.

use super::{Code, ExporterReport, Finding, Place, RunManifest};
use crate::DropReason;

/// What an exporter did not export, or cannot account for.
pub(super) fn findings(report: &ExporterReport, manifest: &RunManifest, found: &mut Vec<Finding>) {
    dropped(report, found);
    found.extend(not_conserved(report, manifest));
}

/// Records that an exporter did not export.
fn dropped(report: &ExporterReport, found: &mut Vec<Finding>) {
    // What an exporter has no place for is not lost: another one takes it.
    let every = report.dropped.iter().flat_map(|(table, reasons)| reasons.iter().map(move |(why, n)| (table, why, *n)));
    let missing: Vec<_> = every.filter(|(_, why, _)| *why != DropReason::NotTaken.as_str()).collect();
    let sum = |asked_for: bool| {
        let chosen = missing.iter().filter(|(_, why, _)| is_asked_for(why) == asked_for);
        chosen.map(|(_, _, n)| *n).fold(0, u64::saturating_add)
    };
    let list = |asked_for: bool| {
        let chosen = missing.iter().filter(|(_, why, _)| is_asked_for(why) == asked_for);
        chosen.map(|(table, why, n)| format!("{n} {table} ({why})")).collect::<Vec<_>>().join(", ")
    };
    let finding = |code, message, remedy| Finding::new(code, message, remedy).at(Place::Exporter, report.name.as_str());
    if sum(true) > 0 {
        let finding = finding(
            Code::ExporterLimit,
            "exporter {exporter} left out {what} to stay within its limits",
            "this is what the limit is for; a higher limit keeps more: a larger disk budget of parquet, more spans a second of otlp",
        );
        found.push(finding.text("what", list(true)).count("records", sum(true)));
    }
    let error = |finding: Finding| match &report.last_error {
        Some(error) => finding.text("error", error),
        None => finding,
    };
    if sum(false) > 0 {
        let finding = finding(
            Code::ExporterDropped,
            "exporter {exporter} dropped {what}[; last error: {error}]",
            "look at the reasons: queue_full means that the destination is too slow (leave it out, make it faster, or let more \
             records wait for it: `queue_records` of the builder, queue-records=N in CANDLESCOPE, `--queue-records N` of \
             candlescope profile, `--set queue_records=N` of candlescope analyze --full), io that a file lacks space or permission, or that nobody takes it at the address",
        );
        found.push(error(finding.text("what", list(false)).count("records", sum(false))));
    } else if report.last_error.is_some() {
        found.push(error(finding(Code::ExporterError, "exporter {exporter}: {error}", "nothing was lost")));
    }
}

/// An account that does not add up, unless the exporter was still working when its account was closed: older releases
/// counted what it did afterwards in addition to what they had booked as dropped.
fn not_conserved(report: &ExporterReport, manifest: &RunManifest) -> Option<Finding> {
    let is_late = |found: &Finding| {
        let exporter = found.place.get(&Place::Exporter);
        found.code == Code::ExporterUnresponsive && exporter.is_none_or(|name| *name == report.name)
    };
    if report.conserved() || manifest.verdict.findings.iter().any(is_late) {
        return None;
    }
    let finding = Finding::new(
        Code::NotConserved,
        "exporter `{exporter}` cannot account for every record: received is not exported plus dropped",
        "Report this as a bug of the exporter",
    );
    Some(finding.at(Place::Exporter, report.name.as_str()))
}

/// Whether the reason is a limit that was set, and not a failure.
fn is_asked_for(reason: &str) -> bool {
    [DropReason::DiskBudget, DropReason::Limit].iter().any(|r| r.as_str() == reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Severity, Verdict, judge};
    use std::collections::BTreeMap;

    #[test]
    fn an_exporter_is_judged_by_its_reasons() {
        let exporter = |reason: &str, last_error: Option<&str>| ExporterReport {
            name: "otlp".into(),
            received: [("spans".to_string(), 10)].into(),
            exported: [("spans".to_string(), 7)].into(),
            dropped: [("spans".to_string(), [(reason.to_string(), 3)].into())].into(),
            last_error: last_error.map(String::from),
        };
        let judged = |report: ExporterReport| {
            let mut found = Vec::new();
            dropped(&report, &mut found);
            found.into_iter().map(|finding| (finding.message(), finding.severity)).collect::<Vec<_>>()
        };
        assert_eq!(
            judged(exporter("queue_full", Some("timed out"))),
            [("exporter otlp dropped 3 spans (queue_full); last error: timed out".to_string(), Severity::Error)]
        );
        let mut found = Vec::new();
        dropped(&exporter("queue_full", None), &mut found);
        let remedy = found[0].remedy();
        for way in [
            "`queue_records` of the builder",
            "queue-records=N in CANDLESCOPE",
            "`--queue-records N` of",
            "`--set queue_records=N` of",
        ] {
            assert!(remedy.contains(way), "whoever records knows what to set: {remedy}");
        }
        assert_eq!(
            judged(exporter("disk_budget", None)),
            [("exporter otlp left out 3 spans (disk_budget) to stay within its limits".to_string(), Severity::Info)]
        );
        assert!(judged(exporter("not_taken", None)).is_empty(), "of a kind that it does not take");
        let unsettled = ExporterReport { dropped: BTreeMap::new(), ..exporter("limit", None) };
        assert!(judged(unsettled.clone()).is_empty(), "nothing was dropped");
        let late = |name: Option<&str>| {
            let finding = Finding::new(Code::ExporterUnresponsive, "it did not finish in time", "wait longer");
            name.into_iter().fold(finding, |finding, name| finding.at(Place::Exporter, name))
        };
        let with = |findings: Vec<Finding>| {
            let mut manifest = RunManifest { complete: true, ..RunManifest::default() };
            manifest.exporters.push(unsettled.clone());
            manifest.verdict = Verdict::of(findings);
            judge(&manifest).into_iter().map(|finding| finding.code).collect::<Vec<_>>()
        };
        assert_eq!(with(Vec::new()), [Code::NotConserved], "what was neither exported nor dropped");
        assert_eq!(with(vec![late(Some("parquet"))]), [Code::NotConserved], "another one was late");
        assert!(with(vec![late(Some("otlp"))]).is_empty() && with(vec![late(None)]).is_empty(), "it still worked");
    }
}
