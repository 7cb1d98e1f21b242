//! MFU or MBU above 1.

use crate::Analysis;
use crate::peaks::{TimeBase, utilisation};
use candlescope_schema::run::{Code, Finding, Place, Severity};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let above = utilisation(run).into_iter().filter(|used| used.ratio > 1.0);
    let findings = above.map(|used| {
        let measured = used.peak.label == "measured";
        let remedy = if measured {
            "Measure the peaks again while nothing else runs (`candlescope bench peaks`): what others take makes them too \
             low. What fits in a cache is read faster than the memory's peak; else check the cost of the phase's operations"
        } else {
            "Check the analytic cost of the phase's operations and the peak's source"
        };
        // Peaks that say that others were at work when they were measured are known to be too low: the run's own times are
        // no worse for that.
        let finding = if used.peak.disturbed {
            Finding::new(
                Code::UtilisationAboveOne,
                "{metric} of {phase}[ over GPU time ({over})] is {ratio:.2} against the {label} peak of {peak:.3e} {unit}: \
                 others were at work when this peak was measured, and it is too low",
                remedy,
            )
            .severity(Severity::Warning)
        } else {
            Finding::new(
            Code::UtilisationAboveOne,
            "{metric} of {phase}[ over GPU time ({over})] is {ratio:.2} against the {label} peak of {peak:.3e} {unit}: a \
             measurement error",
                remedy,
            )
        };
        let unit = if used.peak.is_flops() { "FLOP/s" } else { "B/s" };
        let finding = finding
            .at(Place::Phase, used.phase.as_str())
            .text("metric", used.metric.name())
            .ratio("ratio", used.ratio)
            .text("label", used.peak.label.as_str())
            .number("peak", unit, used.peak.value)
            .text("unit", unit);
        match used.over {
            TimeBase::Wall => finding,
            over => finding.text("over", over.name()),
        }
    });
    findings.collect()
}
