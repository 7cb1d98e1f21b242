//! Findings that follow from the manifest alone: one set of rules, for the end of a run and for its readers.

use super::{Code, Finding, INTERRUPTED, LossCounts, RunManifest, Severity, StepCounts, option_key, result_key};
use crate::record::RecordKind;

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
        let others = [steps.recorded, steps.scheduled_out, steps.left_plain, steps.perturbed, steps.paused];
        let told = |code| manifest.verdict.findings.iter().any(|finding| finding.code == code);
        let cut_short = told(Code::CaptureCutShort);
        let never_on = if steps.begun > 0 {
            steps.begun == steps.paused.saturating_add(steps.captured)
        } else {
            // Without step counts only the session knew whether recording was ever on; it reported missing spans if so.
            let paused = option_key::PAUSED.of(&manifest.options) == Some(true);
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
        super::judge_modules::findings(model, how.filtered, &mut found);
    }
    lost(&manifest.loss, &mut found);
    requests(&manifest.loss, how, &mut found);
    found.extend(super::judge_clock::finding(&manifest.clock));
    if let Some(stacks) = &manifest.stacks {
        super::judge_stacks::findings(stacks, &mut found);
    }
    if let Some(account) = manifest.gpu.as_ref().filter(|_| !how.paused_throughout) {
        super::judge_gpu::findings(account, &mut found);
    }
    super::judge_machine::findings(manifest, &mut found);
    for exporter in &manifest.exporters {
        super::judge_exporters::findings(exporter, manifest, &mut found);
    }
    match result_key::ERROR.of(&manifest.results) {
        None => {}
        Some(how) if how == INTERRUPTED => found.push(Finding::new(
            Code::Interrupted,
            "the program was interrupted",
            "the figures are of what it did until then; for all of it let the program end by itself",
        )),
        Some(error) => found.push(
            Finding::new(
                Code::ProgramFailed,
                "the program ended with an error: {error}",
                "the figures are of what it did until then; put the error right and run it again",
            )
            .text("error", error),
        ),
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::GpuAccount;

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
    fn whoever_loses_intervals_is_told_what_to_set() {
        let mut found = Vec::new();
        lost(&LossCounts { ring_full: 3, emitted: 10, ..LossCounts::default() }, &mut found);
        let remedy = found[0].remedy();
        for way in [
            "`ring_capacity` of the builder",
            "ring-capacity=N in CANDLESCOPE",
            "`--ring-capacity N` of",
            "`--set ring_capacity=N` of",
        ] {
            assert!(remedy.contains(way), "{remedy}");
        }
    }
}
