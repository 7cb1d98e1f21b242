//! Findings that follow from the manifest alone: one set of rules, for the end of a run and for its readers.

use super::{ClockAnchor, ClockInfo, Code, ExporterReport, Finding, GPU_CLOCK_BOUND_NS, GpuAccount};
use super::{LoadedModel, LossCounts, Place};
use super::{RunManifest, Severity, StepCounts};
use crate::DropReason;
use crate::record::RecordKind;
use std::collections::BTreeMap;

/// The findings about a run of which only the manifest is known, because it was killed or an old release wrote it.
///
/// A session that ends knows more and applies the same rules: its findings are in [`RunManifest::verdict`] already.
pub fn judge(manifest: &RunManifest) -> Vec<Finding> {
    findings(manifest, Circumstances::of(manifest))
}

/// Circumstances in which missing data are no problem.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// Recording was never on, so no data were asked for; for a capture: no step came.
    pub paused_throughout: bool,
    /// Whether the run is a capture, which shows a part of a session.
    pub capture: bool,
    /// Another session's layer was in the registry.
    pub stepped_back: bool,
    /// A filter disables the model's spans.
    pub filtered: bool,
}

impl Circumstances {
    /// The circumstances, as far as the manifest shows them.
    fn of(manifest: &RunManifest) -> Self {
        let steps = manifest.steps.unwrap_or_default();
        let others = [steps.recorded, steps.scheduled_out, steps.left_plain, steps.paused];
        let told = |code| manifest.verdict.findings.iter().any(|finding| finding.code == code);
        let cut_short = told(Code::CaptureCutShort);
        let never_on = if steps.begun > 0 {
            steps.begun == steps.paused.saturating_add(steps.captured)
        } else {
            // Without step counts only the session knew whether recording was ever on; it reported missing spans if so.
            let paused = manifest.options.get("paused").is_some_and(|paused| paused == true);
            manifest.steps.is_some() && paused && !told(Code::NoSpans)
        };
        Self {
            paused_throughout: never_on || (cut_short && steps.captured == 0),
            capture: cut_short || (steps.captured > 0 && others.iter().all(|n| *n == 0)),
            stepped_back: told(Code::SecondSessionInRegistry),
            filtered: told(Code::SpansFiltered),
        }
    }
}

/// The findings for a caller that knows the circumstances.
pub fn findings(manifest: &RunManifest, how: Circumstances) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(steps) = manifest.steps.filter(|_| !how.paused_throughout && !how.stepped_back) {
        let why = nothing_recorded(manifest, &steps);
        found.extend(why.filter(|finding| !(how.filtered && finding.code == Code::NoSpans)));
    }
    if !manifest.complete {
        found.push(Finding::new(
            Code::RunIncomplete,
            "the run was not closed in order, or is being written still: the tables hold the segments that were finished until now",
            "Keep the session's guard until the end of main, and let SIGTERM end the run first if that is how the program \
             ends (end_on_sigterm, or `sigterm` in CANDLESCOPE); after a crash or an abort, read the figures as those of \
             the part that was written",
        ));
    }
    if let Some(model) = &manifest.modules {
        modules(model, how, &mut found);
    }
    lost(&manifest.loss, &mut found);
    requests(&manifest.loss, how, &mut found);
    found.extend(clock_set(&manifest.clock));
    if let Some(account) = manifest.gpu.as_ref().filter(|_| !how.paused_throughout) {
        gpu(account, &mut found);
    }
    super::judge_machine::findings(manifest, &mut found);
    for exporter in &manifest.exporters {
        dropped(exporter, &mut found);
        found.extend(not_conserved(exporter, manifest));
    }
    if let Some(error) = manifest.results.get("error").and_then(serde_json::Value::as_str) {
        found.push(
            Finding::new(
                Code::ProgramFailed,
                "the program ended with an error: {error}",
                "the figures are of what it did until then; put the error right and run it again",
            )
            .text("error", error),
        );
    }
    found
}

/// Checks which spans stand for which weights.
fn modules(model: &LoadedModel, how: Circumstances, found: &mut Vec<Finding>) {
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
        found.push(finding.count("spans", n).text("version", crate::run::CANDLE_VERSION).text("names", names));
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
    if model.unowned_weights > 0 && !(how.filtered && model.modules == 0) {
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

/// No steps, or no recorded steps although the layer is in place.
fn nothing_recorded(manifest: &RunManifest, steps: &StepCounts) -> Option<Finding> {
    let StepCounts { begun, scheduled_out, paused, open_at_end, .. } = *steps;
    let spans = manifest.counts.get(RecordKind::Span.table()).copied().unwrap_or(0);
    let nothing = spans == 0 && manifest.loss.emitted == 0;
    if begun == 0 {
        return nothing.then(|| {
            Finding::new(
                Code::NoSpans,
                "no span was entered while the layer was installed",
                "install the layer before the model loads: candle creates its spans then, and a span created while \
                 nobody listens stays disabled. Some of candle's models make none: docs/instrument.md, \"Models without \
                 spans\"",
            )
        });
    }
    if steps.with_record().saturating_add(steps.lost) > 0 || (open_at_end > 0 && !nothing) {
        return None;
    }
    if open_at_end > 0 {
        let finding = Finding::new(
            Code::StepsOpen,
            "{open} of {begun} steps were to be recorded, and had not ended when the session did",
            "end the work, or join its threads, before the guard is dropped; a step is recorded when it ends",
        );
        return Some(finding.count("open", open_at_end).count("begun", begun));
    }
    let Some(schedule) = steps.schedule.filter(|_| scheduled_out > 0) else {
        let finding = Finding::new(
            Code::RecordingOff,
            "{begun} steps ran, all while recording was off",
            "start recording (Handle::start) before the work begins",
        );
        return Some(finding.count("begun", begun));
    };
    let idle = schedule.skip_first.saturating_add(schedule.wait).saturating_add(schedule.warmup);
    let mut finding = Finding::new(
        Code::ScheduleRecordedNothing,
        "the schedule left out all of {left_out} steps[, and {paused} ran while recording was off]: \
         [the first one that it records is step {first:raw}, counted from 0][its `active` is {active}]",
        "run more steps, or lower the schedule's skip_first, wait and warmup",
    )
    .count("left_out", scheduled_out);
    if paused > 0 {
        finding = finding.count("paused", paused);
    }
    Some(if schedule.active == 0 { finding.count("active", 0) } else { finding.count("first", idle) })
}

/// Intervals and samples that never became records, or have lost their place in the tree.
fn lost(loss: &LossCounts, found: &mut Vec<Finding>) {
    if loss.ring_full > 0 {
        found.push(
            Finding::new(
                Code::RingFull,
                "{lost} of {emitted} intervals ({share}) were dropped because a thread's ring was full",
                "enlarge the ring (`ring_capacity` of the builder, ring-capacity=N in CANDLESCOPE, `--ring-capacity N` of \
                 candlescope profile, `--set ring_capacity=N` of candlescope analyze --full; ring_memory where there are \
                 many threads), or record fewer steps with a schedule; steps.intervals_lost says which of the steps that \
                 are left lack some",
            )
            .count("lost", loss.ring_full)
            .count("emitted", loss.emitted)
            .ratio("share", loss.ring_full as f64 / loss.emitted.max(1) as f64),
        );
    }
    if loss.threads_without_ring > 0 {
        let finding = Finding::new(
            Code::ThreadsWithoutRing,
            "{threads} threads found no room for a ring, and {lost} of {emitted} intervals were not recorded for that",
            "give rings more memory (ring_memory), make them smaller (ring_capacity), or let fewer threads enter spans",
        )
        .count("threads", loss.threads_without_ring)
        .count("lost", loss.no_ring)
        .count("emitted", loss.emitted);
        found.push(if loss.no_ring > 0 { finding.severity(Severity::Error) } else { finding });
    }
    let all = [
        (
            loss.too_deep,
            Code::TooDeep,
            "{intervals} intervals were nested deeper than is kept",
            "look for recursion among the spans, and for guards of requests that are forgotten (mem::forget)",
        ),
        (
            loss.after_shutdown,
            Code::AfterShutdown,
            "{intervals} intervals ended after the session had been closed",
            "end the work, or join its threads, before the guard is dropped",
        ),
        (
            loss.unmatched_exits,
            Code::UnmatchedExits,
            "{intervals} exits matched no enter",
            "install the layer before the first span is entered, and leave each span on the thread that entered it",
        ),
        (
            loss.forgotten_guards,
            Code::GuardsForgotten,
            "{intervals} intervals were still open when their step or request had ended and others began on the same \
             thread: they are not in the run",
            "drop every guard of a span on the thread that entered it, inside ones first; mem::forget keeps a span open \
             for ever",
        ),
        (
            loss.unresolved,
            Code::Unresolved,
            "{intervals} intervals were read and never became records",
            "this is a bug in candlescope; please report it",
        ),
        (
            loss.samples_lost,
            Code::SamplesLost,
            "{intervals} samples were dropped because the pipeline did not keep up",
            "sample less often, or give the process more CPU",
        ),
    ];
    for (n, code, message, remedy) in all.into_iter().filter(|(n, ..)| *n > 0) {
        found.push(Finding::new(code, message, remedy).count("intervals", n));
    }
}

fn requests(loss: &LossCounts, how: Circumstances, found: &mut Vec<Finding>) {
    let open = loss.requests_open_at_end;
    if open > 0 && how.capture {
        let finding = Finding::new(
            Code::RequestsOpen,
            "{requests} requests went on after the captured steps, and are not in this run",
            "their steps are here; the session's own run has the requests when they have ended",
        );
        found.push(finding.severity(Severity::Info).count("requests", open));
    } else if open > 0 {
        let finding = Finding::new(
            Code::RequestsOpen,
            "{requests} requests had not ended when the run did, and are not in it",
            "drop the requests before the session's guard",
        );
        found.push(finding.count("requests", open));
    }
    if loss.requests_paused > 0 && !how.paused_throughout && !how.capture {
        let finding = Finding::new(
            Code::RequestsPaused,
            "{requests} requests began and ended while recording was off, and are not in the run",
            "this is what stop() and paused are for; a schedule leaves out steps and keeps the requests",
        );
        found.push(finding.count("requests", loss.requests_paused));
    }
    if loss.requests_lost > 0 {
        let finding = Finding::new(
            Code::RequestsLost,
            "{requests} requests were dropped because their queue was full",
            "more requests ended at once than the queue of 4,096 holds: end fewer at the same moment, or empty it more \
             often (drain_interval)",
        );
        found.push(finding.count("requests", loss.requests_lost));
    }
}

fn gpu(account: &GpuAccount, found: &mut Vec<Finding>) {
    let get = |map: &BTreeMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
    let marks = |key| get(&account.marks, key);
    let recorded = marks("recorded");
    if account.clock.is_some() && account.timing != "off" && recorded == 0 {
        let (message, remedy) = if marks("capturing") > 0 {
            (
                "GPU time was asked for, but there is none: the stream was capturing a CUDA graph throughout",
                "put a span around the graph's launches, too",
            )
        } else if marks("failed") > 0 {
            (
                "GPU time was asked for, but there is none: the driver refused every mark",
                "see gpu.statistics in run.json for the driver's reason",
            )
        } else {
            (
                "GPU time was asked for, but there is none: no thread that entered a span had a CUDA context",
                "run the model on a CUDA device, and enter its spans on the thread that launches its work",
            )
        };
        found.push(Finding::new(Code::NoGpuTime, message, remedy));
    }
    let (full, failed, aged) = (marks("full"), marks("failed"), marks("lost"));
    if full + failed + aged > 0 && recorded > 0 {
        found.push(
            Finding::new(
                Code::GpuMarksLost,
                "{lost} GPU marks are missing ({full} because too many were under way, {refused} refused, {aged} never \
                 reached)",
                "intervals without both marks have no GPU time; use the adaptive tier, which makes fewer marks, or \
                 allow more of them under way (in_flight)",
            )
            .count("lost", full + failed + aged)
            .count("full", full)
            .count("refused", failed)
            .count("aged", aged),
        );
    }
    let late = get(&account.intervals, "late") + get(&account.intervals, "forgotten");
    if late > 0 {
        let finding = Finding::new(
            Code::GpuTimeLate,
            "{intervals} intervals went out without their GPU time, because the device or the pipeline was too far behind",
            "nothing to do: their host times are complete",
        );
        found.push(finding.count("intervals", late));
    }
    if account.outside_parent > 0 {
        let finding = Finding::new(
            Code::GpuOutsideParent,
            "{intervals} intervals have GPU time outside their parent's",
            "work of one step went to several streams: GPU times of its parents are too small",
        );
        found.push(finding.count("intervals", account.outside_parent));
    }
    gpu_clock(account, found);
    kernels(account, found);
}

/// A device's clock that is too uncertain for its times to be compared with the host's.
fn gpu_clock(account: &GpuAccount, found: &mut Vec<Finding>) {
    let uncertain = |ns: &u64| *ns > GPU_CLOCK_BOUND_NS;
    let devices = account.devices.iter().filter(|d| !d.anchors.is_empty()).map(|d| d.skew_bound_ns);
    if let Some(bound) = devices.max().filter(uncertain) {
        let finding = Finding::new(
            Code::GpuClockUncertain,
            "the GPU's clock is known only to {bound} of the host's: where intervals began on the GPU is not comparable \
             with host times",
            "GPU durations are right; run again with a warm-up before what matters (modules load at first use and hold \
             up the driver), or leave the machine a core for the profiler's threads",
        );
        found.push(finding.ns("bound", bound));
    }
    if let Some(bound) = account.kernels.as_ref().and_then(|k| k.clock_bound_ns).filter(uncertain) {
        let finding = Finding::new(
            Code::GpuClockUncertain,
            "the kernel recorder's clock is off from the host's by {bound} or more: how busy the GPU was while steps \
             ran, why it was idle, and queue delays say nothing, and reports leave them out",
            "kernels' durations are right; check that nothing set the system clock during the run, and record the \
             window again",
        );
        found.push(finding.ns("bound", bound));
    }
}

fn kernels(account: &GpuAccount, found: &mut Vec<Finding>) {
    let Some(kernels) = &account.kernels else { return };
    if let Some(error) = &kernels.error {
        let finding =
            Finding::new(Code::NoKernels, "kernels were not recorded: {error}", "times of intervals are not affected");
        found.push(finding.text("error", error));
    } else if kernels.windows == 0 {
        // The schedule did not reach a window, or nobody asked for one.
        found.push(Finding::new(
            Code::NoKernelWindow,
            "no window of kernels was reached",
            "run more steps, or begin the window earlier",
        ));
    } else if kernels.recorded <= kernels.outside_window {
        let finding = Finding::new(
            Code::NoKernels,
            "{windows} windows of kernels with {steps} steps recorded none",
            "run more steps after the recorder is ready, on a CUDA device",
        );
        found.push(finding.count("windows", kernels.windows).count("steps", kernels.steps));
    }
    if kernels.dropped > 0 {
        let finding =
            Finding::new(Code::KernelsDropped, "the recorder of kernels lost {records} records", "use shorter windows");
        found.push(finding.count("records", kernels.dropped));
    }
    if kernels.late > 0 {
        let finding = Finding::new(
            Code::KernelsLate,
            "{kernels} kernels came after their intervals had gone out: these intervals' GPU time lacks them",
            "Kernels and shares of step time are complete; use shorter windows to have complete times of intervals as well",
        );
        found.push(finding.count("kernels", kernels.late));
    }
}

/// Clocks that are slewed drift by some milliseconds between two anchors, which are at most ten seconds apart.
const CLOCK_SET_NS: i64 = 100_000_000;

/// If the system clock is set, the run's times go on from where they began: steps stay in order and durations right,
/// but times differ from those that other programs log.
fn clock_set(clock: &ClockInfo) -> Option<Finding> {
    let skew = |anchor: &ClockAnchor| anchor.system_ns.saturating_sub(anchor.mapped_ns);
    let jumped = |pair: &&[ClockAnchor]| skew(&pair[1]).saturating_sub(skew(&pair[0])).saturating_abs() > CLOCK_SET_NS;
    let times = clock.anchors.windows(2).filter(jumped).count();
    let last = clock.anchors.last().filter(|_| times > 0)?;
    Some(
        Finding::new(
            Code::ClockSet,
            "the system clock was set {times} times during the run, or the machine slept: it is {skew:+.1} s from the \
             run's times now",
            "durations and order are right; to join the run with logs of other programs, use the clock's anchors in \
             run.json",
        )
        .count("times", times as u64)
        .number("skew", "s", skew(last) as f64 / 1e9),
    )
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
    use crate::run::Verdict;

    fn of_clock(skews_ms: &[i64]) -> Option<String> {
        let anchor = |(i, skew): (usize, &i64)| {
            let mapped_ns = i as i64 * 10_000_000_000;
            ClockAnchor { ticks: 0, mapped_ns, system_ns: mapped_ns + skew * 1_000_000 }
        };
        let anchors = skews_ms.iter().enumerate().map(anchor).collect();
        clock_set(&ClockInfo { anchors, ..ClockInfo::default() }).map(|finding| finding.message())
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_drifts() {
        assert_eq!(of_clock(&[]), None);
        assert_eq!(of_clock(&[0, 5, 12, 40, 90, 160, 240]), None);
        assert!(of_clock(&[0, 1, 3_600_000, 3_600_001]).is_some_and(|text| text.contains("set 1 times")));
        let back = of_clock(&[0, -500, -500, 0]).expect("set twice");
        assert!(back.contains("set 2 times") && back.contains("+0.0 s"), "{back}");
    }

    fn codes(change: impl FnOnce(&mut RunManifest)) -> Vec<Code> {
        let mut manifest = RunManifest { complete: true, ..RunManifest::default() };
        change(&mut manifest);
        judge(&manifest).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_capture_that_was_cut_short_is_judged_as_a_capture() {
        let found = codes(|m| {
            m.steps = Some(StepCounts { begun: 2, open_at_end: 2, ..StepCounts::default() });
            m.verdict.add(Finding::new(Code::CaptureCutShort, "none of its steps ended", "ask again"));
        });
        assert!(found.is_empty(), "the session went on, no step was open at its end: {found:?}");
    }

    #[test]
    fn a_manifest_is_judged_by_what_is_in_it() {
        assert!(codes(|_| {}).is_empty(), "a run that says nothing of its steps");
        assert_eq!(codes(|m| m.complete = false), [Code::RunIncomplete], "killed: nothing is known of the rest");
        let steps = |steps: StepCounts| move |m: &mut RunManifest| m.steps = Some(steps);
        assert_eq!(codes(steps(StepCounts::default())), [Code::NoSpans]);
        assert_eq!(codes(steps(StepCounts { begun: 3, open_at_end: 3, ..StepCounts::default() })), [Code::StepsOpen]);
        assert!(codes(steps(StepCounts { begun: 3, recorded: 3, ..StepCounts::default() })).is_empty());
        let paused = StepCounts { begun: 3, paused: 3, ..StepCounts::default() };
        assert!(codes(steps(paused)).is_empty(), "as it was asked for");
        assert_eq!(codes(|m| m.loss.ring_full = 1), [Code::RingFull]);
        let mut both = codes(|m| {
            m.loss.requests_paused = 1;
            m.results.insert("error".into(), "out of memory".into());
        });
        assert_eq!(both.pop(), Some(Code::ProgramFailed));
        assert_eq!(both, [Code::RequestsPaused]);
        let captured = StepCounts { begun: 3, captured: 3, ..StepCounts::default() };
        let of_capture = |m: &mut RunManifest| {
            m.steps = Some(captured);
            (m.loss.requests_paused, m.loss.requests_open_at_end) = (1, 2);
        };
        assert_eq!(codes(of_capture), [Code::RequestsOpen], "of a capture, and no more than a note");
    }

    #[test]
    fn a_session_that_was_never_switched_on_lacks_nothing_when_it_is_read() {
        let no_steps = |started: bool| {
            move |m: &mut RunManifest| {
                m.options.insert("paused".into(), true.into());
                m.steps = Some(StepCounts::default());
                m.loss.requests_paused = 1;
                let clock = Some("cuda".to_string());
                m.gpu = Some(GpuAccount { clock, timing: "steps".into(), ..GpuAccount::default() });
                if started {
                    m.verdict.add(Finding::new(Code::NoSpans, "no span was entered", "install the layer"));
                }
            }
        };
        assert!(codes(no_steps(false)).is_empty(), "no data is what was asked for");
        assert_eq!(codes(no_steps(true)), [Code::NoSpans, Code::RequestsPaused, Code::NoGpuTime]);
    }

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
        lost(&LossCounts { ring_full: 3, emitted: 10, ..LossCounts::default() }, &mut found);
        let remedy = found[1].remedy();
        for way in [
            "`ring_capacity` of the builder",
            "ring-capacity=N in CANDLESCOPE",
            "`--ring-capacity N` of",
            "`--set ring_capacity=N` of",
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
            codes(|m| {
                m.exporters.push(unsettled.clone());
                m.verdict = Verdict::of(findings);
            })
        };
        assert_eq!(with(Vec::new()), [Code::NotConserved], "what was neither exported nor dropped");
        assert_eq!(with(vec![late(Some("parquet"))]), [Code::NotConserved], "another one was late");
        assert!(with(vec![late(Some("otlp"))]).is_empty() && with(vec![late(None)]).is_empty(), "it still worked");
    }
}
