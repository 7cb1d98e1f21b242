//! Whether a run can be trusted, by its manifest and by what only the session knows when it ends.

use crate::run::judge::{Circumstances, findings};
use crate::run::{Code, Finding, Place, RunManifest, Severity, Verdict};
use crate::tally::Tally;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

/// Everything that the verdict is based on.
pub(crate) struct Evidence<'a> {
    /// The final manifest, without its verdict.
    pub(crate) manifest: &'a RunManifest,
    pub(crate) facts: &'a Tally,
    pub(crate) collector_failures: &'a [(&'static str, String)],
    pub(crate) unresponsive: &'a [&'static str],
    /// Why the collectors' thread could not be joined, if it could not.
    pub(crate) unresponsive_collectors: Option<&'static str>,
    /// Findings from the start of the session and from the application's threads.
    pub(crate) noticed: &'a [Finding],
    /// Recording was never on, so no data were asked for; for a capture: no step came.
    pub(crate) paused_throughout: bool,
    /// Whether the run is a capture, which shows a part of a session.
    pub(crate) capture: bool,
}

pub(crate) fn verdict(e: &Evidence<'_>) -> Verdict {
    let stepped_back = e.noticed.iter().any(|f| f.code == Code::SecondSessionInRegistry);
    let filtered = e.noticed.iter().any(|f| f.code == Code::SpansFiltered);
    let how = Circumstances { paused_throughout: e.paused_throughout, capture: e.capture, stepped_back, filtered };
    let of_manifest = findings(e.manifest, how);
    let mut found = e.noticed.to_vec();
    if !stepped_back {
        spans_seen(e, &of_manifest, &mut found);
    }
    if let Some(filter) = found.iter_mut().find(|f| f.code == Code::SpansFiltered) {
        if !hides_the_model(e) {
            filter.severity = Severity::Warning;
        }
        found.retain(|f| f.code != Code::NoModelSpans);
    }
    found.extend(of_manifest);
    out_of_order(e.facts, &mut found);
    unresponsive(e, &mut found);
    Verdict::of(found)
}

/// Whether a model ran, as far as one knows, and nothing of it was recorded. A model of the program's own may have spans
/// that pass the filter.
fn hides_the_model(e: &Evidence<'_>) -> bool {
    let facts = e.facts;
    let hollow = facts.hollow_phase_steps == facts.phase_steps;
    facts.model_spans == 0
        || (facts.phase_steps > 0 && hollow)
        || e.manifest.modules.as_ref().is_some_and(|model| model.weights > 0 && model.modules == 0)
}

/// Checks that spans were seen, and that some were the model's.
fn spans_seen(e: &Evidence<'_>, of_manifest: &[Finding], found: &mut Vec<Finding>) {
    if STATIC_MAX_LEVEL < LevelFilter::TRACE && (e.capture || !e.paused_throughout) {
        let finding = Finding::new(
            Code::StaticLevel,
            "tracing was compiled with a maximum level of {level}: candle's spans are at trace level and do not exist",
            "remove tracing's max_level_* and release_max_level_* features from every crate of the build",
        );
        found.push(finding.text("level", STATIC_MAX_LEVEL.to_string()));
    }
    let told = [Code::NoSpans, Code::StepsOpen, Code::ScheduleRecordedNothing, Code::RecordingOff];
    if e.paused_throughout || of_manifest.iter().any(|f| told.contains(&f.code)) {
        return;
    }
    let (facts, steps) = (e.facts, &e.facts.steps);
    let sampled = steps.scheduled_out + steps.paused > 0;
    // If steps were left out, it may be that only steps without a model inside were recorded: sampling, or the entry of
    // a request.
    if (facts.model_spans == 0 && facts.helper_spans > 0 && (facts.phase_steps > 0 || !sampled))
        || (facts.phase_steps > 0 && facts.hollow_phase_steps == facts.phase_steps)
    {
        found.push(no_model_spans(e));
    }
}

/// Nothing of the model was seen. Where its weights were seen as they loaded, the session was there in time and the model
/// makes no spans: phases, tokens and requests are all right, and nothing divides them into layers.
fn no_model_spans(e: &Evidence<'_>) -> Finding {
    let weights = e.manifest.modules.as_ref().filter(|model| model.modules == 0).map_or(0, |model| model.weights);
    if weights == 0 || e.facts.phase_steps == 0 {
        return Finding::new(
            Code::NoModelSpans,
            "no span was seen inside any phase: the model itself is missing",
            "install the layer before the model loads; some of candle's models make no spans: docs/instrument.md, \"Models \
             without spans\", says how they get some",
        );
    }
    let mut finding = Finding::new(
        Code::NoModelSpans,
        "the model makes no spans of its own: times, tokens and requests of its phases are complete, and nothing says which \
         of its layers ({weights} weights) they were spent in",
        "docs/instrument.md, \"Models without spans\", says how its layers get some",
    );
    finding.severity = Severity::Warning;
    finding.count("weights", weights)
}

fn out_of_order(facts: &Tally, found: &mut Vec<Finding>) {
    if facts.orphans > 0 {
        let finding = Finding::new(
            Code::Orphans,
            "{intervals} intervals stand below (lost): their parent was dropped or had not ended",
            "end the run outside of any span, and forget no guard of a step (mem::forget); see ring_full if records were \
             dropped",
        );
        found.push(finding.count("intervals", facts.orphans));
    }
    if facts.outlived_parent > 0 {
        let finding = Finding::new(
            Code::ParentShorterThanChildren,
            "{intervals} intervals ended after their parent",
            "leave spans in the reverse order of entering them; self times of these parents are too small",
        );
        found.push(finding.count("intervals", facts.outlived_parent));
    }
}

/// Exporters and collectors that failed or did not answer.
fn unresponsive(e: &Evidence<'_>, found: &mut Vec<Finding>) {
    if let Some(why) = e.unresponsive_collectors {
        let finding = Finding::new(
            Code::CollectorUnresponsive,
            "collectors did not stop in time: {why}",
            "their last samples are missing",
        );
        found.push(finding.text("why", why));
    }
    for name in e.unresponsive {
        let finding = Finding::new(
            Code::ExporterUnresponsive,
            "exporter {exporter} did not finish in time",
            "raise the shutdown timeout, or look at what the exporter waits for",
        );
        found.push(finding.at(Place::Exporter, *name));
    }
    for (name, error) in e.collector_failures {
        let finding = Finding::new(Code::CollectorFailed, "collector {collector}: {error}", "its samples are missing");
        found.push(finding.at(Place::Collector, *name).text("error", error));
    }
}
