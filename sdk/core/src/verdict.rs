//! Whether a run can be trusted, from what the pipeline saw.

use crate::ledger::DropReason;
use crate::record::RecordKind;
use crate::run::{ClockInfo, ExporterReport, Finding, GPU_CLOCK_BOUND_NS, GpuAccount, Severity, StepCounts, Verdict};
use crate::tally::Tally;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

/// Everything the verdict is drawn from.
pub(crate) struct Evidence<'a> {
    pub(crate) facts: &'a Tally,
    pub(crate) clock: &'a ClockInfo,
    pub(crate) exporters: &'a [ExporterReport],
    pub(crate) collector_failures: &'a [(&'static str, String)],
    pub(crate) unresponsive: &'a [&'static str],
    /// Why collectors' threads could not be joined, if so.
    pub(crate) unresponsive_collectors: Option<&'static str>,
    /// How GPU time was taken, where it was asked for.
    pub(crate) gpu: Option<&'a GpuAccount>,
    /// What was noticed while setting up, and on the application's threads.
    pub(crate) noticed: &'a [Finding],
    /// Recording was never on: no data is what was asked for. Of a capture: no step came.
    pub(crate) paused_throughout: bool,
    /// The run is a capture: it is cut out of one that goes on.
    pub(crate) capture: bool,
}

pub(crate) fn verdict(e: &Evidence<'_>) -> Verdict {
    let mut findings = e.noticed.to_vec();
    let mut add = |severity, code: &str, message: String, remedy: &str| {
        findings.push(Finding { severity, code: code.into(), message, remedy: remedy.into() });
    };
    let loss = &e.facts.loss;
    spans_seen(e, &mut add);
    if loss.ring_full > 0 {
        let share = 100.0 * loss.ring_full as f64 / loss.emitted.max(1) as f64;
        add(
            Severity::Error,
            "ring_full",
            format!(
                "{} of {} intervals ({share:.2} %) were dropped because a thread's ring was full",
                loss.ring_full, loss.emitted
            ),
            "enlarge the ring (ring_capacity; ring_memory where there are many threads), or record fewer steps with a schedule; steps.intervals_lost says which of the steps that are left lack some",
        );
    }
    if loss.threads_without_ring > 0 {
        add(
            if loss.no_ring > 0 { Severity::Error } else { Severity::Warning },
            "threads_without_ring",
            format!(
                "{} threads found no room for a ring, and {} of {} intervals were not recorded for that",
                loss.threads_without_ring, loss.no_ring, loss.emitted
            ),
            "give rings more memory (ring_memory), make them smaller (ring_capacity), or let fewer threads enter spans",
        );
    }
    if loss.too_deep > 0 {
        add(
            Severity::Warning,
            "too_deep",
            format!("{} intervals were nested deeper than is kept", loss.too_deep),
            "look for recursion among the spans, and for guards of requests that are forgotten (mem::forget)",
        );
    }
    if loss.after_shutdown > 0 {
        add(
            Severity::Warning,
            "after_shutdown",
            format!("{} intervals ended after the session had been closed", loss.after_shutdown),
            "end the work, or join its threads, before the guard is dropped",
        );
    }
    if loss.unmatched_exits > 0 {
        add(
            Severity::Warning,
            "unmatched_exits",
            format!("{} exits matched no enter", loss.unmatched_exits),
            "install the layer before the first span is entered, and leave each span on the thread that entered it",
        );
    }
    if loss.forgotten_guards > 0 {
        add(
            Severity::Warning,
            "guards_forgotten",
            format!(
                "{} intervals were still open when their step or request had ended and others began on the same thread: \
                 they are not in the run",
                loss.forgotten_guards
            ),
            "drop every guard of a span on the thread that entered it, inside ones first; mem::forget keeps a span open \
             for ever",
        );
    }
    if e.facts.orphans > 0 {
        add(
            Severity::Warning,
            "orphans",
            format!("{} intervals stand below (lost): their parent was dropped or had not ended", e.facts.orphans),
            "end the run outside of any span, and forget no guard of a step (mem::forget); see ring_full if records were dropped",
        );
    }
    if e.facts.outlived_parent > 0 {
        add(
            Severity::Warning,
            "parent_shorter_than_children",
            format!("{} intervals ended after their parent", e.facts.outlived_parent),
            "leave spans in the reverse order of entering them; self times of these parents are too small",
        );
    }
    if loss.unresolved > 0 {
        add(
            Severity::Error,
            "unresolved",
            format!("{} intervals were read and never became records", loss.unresolved),
            "this is a bug in candlescope; please report it",
        );
    }
    if loss.samples_lost > 0 {
        add(
            Severity::Warning,
            "samples_lost",
            format!("{} samples were dropped because the pipeline did not keep up", loss.samples_lost),
            "sample less often, or give the process more CPU",
        );
    }
    if loss.requests_open_at_end > 0 && e.capture {
        add(
            Severity::Info,
            "requests_open",
            format!("{} requests went on after the captured steps, and are not in this run", loss.requests_open_at_end),
            "their steps are here; the session's own run has the requests when they have ended",
        );
    } else if loss.requests_open_at_end > 0 {
        add(
            Severity::Warning,
            "requests_open",
            format!("{} requests had not ended when the run did, and are not in it", loss.requests_open_at_end),
            "drop the requests before the session's guard",
        );
    }
    if loss.requests_paused > 0 && !e.paused_throughout && !e.capture {
        add(
            Severity::Info,
            "requests_paused",
            format!(
                "{} requests began and ended while recording was off, and are not in the run",
                loss.requests_paused
            ),
            "this is what stop() and paused are for; a schedule leaves out steps and keeps the requests",
        );
    }
    if loss.requests_lost > 0 {
        add(
            Severity::Error,
            "requests_lost",
            format!("{} requests were dropped because their queue was full", loss.requests_lost),
            "more requests ended at once than the queue of 4,096 holds: end fewer at the same moment, or empty it more often (drain_interval)",
        );
    }
    clock_set(e.clock, &mut add);
    if let Some(account) = e.gpu.filter(|_| !e.paused_throughout) {
        gpu(account, &mut add);
    }
    exporters(e, &mut add);
    for (name, error) in e.collector_failures {
        add(Severity::Warning, "collector_failed", format!("collector {name}: {error}"), "its samples are missing");
    }
    let ok = findings.iter().all(|f| f.severity != Severity::Error);
    Verdict { ok, findings }
}

fn spans_seen(e: &Evidence<'_>, add: &mut impl FnMut(Severity, &str, String, &str)) {
    let stepped_back = e.noticed.iter().any(|f| f.code == crate::layer::place::SECOND_SESSION);
    if (e.paused_throughout && !e.capture) || stepped_back {
        return;
    }
    if STATIC_MAX_LEVEL < LevelFilter::TRACE {
        add(
            Severity::Error,
            "static_level",
            format!(
                "tracing was compiled with a maximum level of {STATIC_MAX_LEVEL}: candle's spans are at trace level and do not exist"
            ),
            "remove tracing's max_level_* and release_max_level_* features from every crate of the build",
        );
    }
    if e.paused_throughout {
        return;
    }
    let (facts, steps) = (e.facts, &e.facts.steps);
    let nothing = facts.counts[RecordKind::Span as usize] == 0 && facts.loss.emitted == 0;
    let sampled = steps.scheduled_out + steps.paused > 0;
    if steps.begun == 0 && nothing {
        add(
            Severity::Error,
            "no_spans",
            "no span was entered while the layer was installed".to_string(),
            "install the layer before the model loads: candle creates its spans then, and a span created while nobody listens stays disabled",
        );
    } else if steps.begun > 0
        && steps.recorded + steps.captured + steps.lost == 0
        && (nothing || steps.open_at_end == 0)
    {
        nothing_recorded(steps, add);
    } else if (facts.model_spans == 0 && facts.helper_spans > 0 && (facts.phase_steps > 0 || !sampled))
        || (facts.phase_steps > 0 && facts.hollow_phase_steps == facts.phase_steps)
    {
        // Where steps were left out, those that have no model inside may be all that was recorded: sampling, or a
        // request's entry.
        add(
            Severity::Error,
            "no_model_spans",
            "no span was seen inside any prefill, decode or encode: the model itself is missing".to_string(),
            "install the layer before the model loads; some candle models have no spans at all: wrap their layers with candlescope-models",
        );
    }
}

/// Steps began, and none of them was recorded: the layer is where it should be, but was told to leave them out.
fn nothing_recorded(steps: &StepCounts, add: &mut impl FnMut(Severity, &str, String, &str)) {
    let StepCounts { begun, scheduled_out, paused, open_at_end, .. } = *steps;
    if open_at_end > 0 {
        add(
            Severity::Error,
            "steps_open",
            format!("{open_at_end} of {begun} steps were to be recorded, and had not ended when the session did"),
            "end the work, or join its threads, before the guard is dropped; a step is recorded when it ends",
        );
    } else if let Some(schedule) = steps.schedule.filter(|_| scheduled_out > 0) {
        let idle = schedule.skip_first.saturating_add(schedule.wait).saturating_add(schedule.warmup);
        let off = if paused > 0 { format!(", and {paused} ran while recording was off") } else { String::new() };
        let first = match schedule.active {
            0 => "its `active` is 0".to_string(),
            _ => format!("the first one that it records is step {idle}, counted from 0"),
        };
        add(
            Severity::Error,
            "schedule_recorded_nothing",
            format!("the schedule left out all of {scheduled_out} steps{off}: {first}"),
            "run more steps, or lower the schedule's skip_first, wait and warmup",
        );
    } else {
        add(
            Severity::Error,
            "recording_off",
            format!("{begun} steps ran, all while recording was off"),
            "start recording (Handle::start) before the work begins",
        );
    }
}

fn gpu(account: &GpuAccount, add: &mut impl FnMut(Severity, &str, String, &str)) {
    let get = |map: &std::collections::BTreeMap<String, u64>, key: &str| map.get(key).copied().unwrap_or(0);
    let refused = |key| get(&account.marks, key);
    let recorded = refused("recorded");
    if account.clock.is_some() && account.timing != "off" && recorded == 0 {
        let (why, remedy) = if refused("capturing") > 0 {
            ("the stream was capturing a CUDA graph throughout", "put a span around the graph's launches, too")
        } else if refused("failed") > 0 {
            ("the driver refused every mark", "see gpu.statistics in run.json for the driver's reason")
        } else {
            (
                "no thread that entered a span had a CUDA context",
                "run the model on a CUDA device, and enter its spans on the thread that launches its work",
            )
        };
        add(Severity::Error, "no_gpu_time", format!("GPU time was asked for, but there is none: {why}"), remedy);
    }
    let lost = refused("full") + refused("failed") + refused("lost");
    if lost > 0 && recorded > 0 {
        let (full, failed, aged) = (refused("full"), refused("failed"), refused("lost"));
        add(
            Severity::Warning,
            "gpu_marks_lost",
            format!(
                "{lost} GPU marks are missing ({full} because too many were under way, {failed} refused, {aged} never reached)"
            ),
            "intervals without both marks have no GPU time; use the adaptive tier, which makes fewer marks, or allow more of them under way (in_flight)",
        );
    }
    let late = get(&account.intervals, "late") + get(&account.intervals, "forgotten");
    if late > 0 {
        add(
            Severity::Warning,
            "gpu_time_late",
            format!(
                "{late} intervals went out without their GPU time, because the device or the pipeline was too far behind"
            ),
            "nothing to do: their host times are complete",
        );
    }
    if account.outside_parent > 0 {
        add(
            Severity::Warning,
            "gpu_outside_parent",
            format!("{} intervals have GPU time outside their parent's", account.outside_parent),
            "work of one step went to several streams: GPU times of its parents are too small",
        );
    }
    gpu_clock(account, add);
    let Some(kernels) = &account.kernels else { return };
    if let Some(error) = &kernels.error {
        add(
            Severity::Warning,
            "no_kernels",
            format!("kernels were not recorded: {error}"),
            "times of intervals are not affected",
        );
    } else if kernels.windows == 0 {
        // A schedule that never came round, or nobody asked.
        let message = "no window of kernels was reached".to_string();
        add(Severity::Info, "no_kernel_window", message, "run more steps, or begin the window earlier");
    } else if kernels.recorded <= kernels.outside_window {
        let message = format!("{} windows of kernels with {} steps recorded none", kernels.windows, kernels.steps);
        add(Severity::Warning, "no_kernels", message, "run more steps after the recorder is ready, on a CUDA device");
    }
    if kernels.dropped > 0 {
        add(
            Severity::Warning,
            "kernels_dropped",
            format!("the recorder of kernels lost {} records", kernels.dropped),
            "use shorter windows",
        );
    }
}

/// A clock of a device that is known too badly for its times to be compared with the host's.
fn gpu_clock(account: &GpuAccount, add: &mut impl FnMut(Severity, &str, String, &str)) {
    let uncertain = |ns: &u64| *ns > GPU_CLOCK_BOUND_NS;
    let ms = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
    let devices = account.devices.iter().filter(|d| !d.anchors.is_empty()).map(|d| d.skew_bound_ns);
    if let Some(bound) = devices.max().filter(uncertain) {
        add(
            Severity::Warning,
            "gpu_clock_uncertain",
            format!(
                "the GPU's clock is known only to {} of the host's: where intervals began on the GPU is not \
                 comparable with host times",
                ms(bound)
            ),
            "GPU durations are right; run again with a warm-up before what matters (modules load at first use and hold \
             up the driver), or leave the machine a core for the profiler's threads",
        );
    }
    if let Some(bound) = account.kernels.as_ref().and_then(|k| k.clock_bound_ns).filter(uncertain) {
        add(
            Severity::Warning,
            "gpu_clock_uncertain",
            format!(
                "the kernel recorder's clock is off from the host's by {} or more: queue delays, and gaps told by when a \
                 kernel was launched, say nothing",
                ms(bound)
            ),
            "kernels' durations are right; check that nothing set the system clock during the run, and record the \
             window again",
        );
    }
}

/// Between two anchors, at most ten seconds apart, clocks that are slewed drift by some milliseconds.
const CLOCK_SET_NS: i64 = 100_000_000;

/// A run's times go on from where they began, whatever becomes of the system clock: steps stay in order and durations right. But they
/// then differ from what other programs log.
fn clock_set(clock: &ClockInfo, add: &mut impl FnMut(Severity, &str, String, &str)) {
    let skew = |anchor: &crate::run::ClockAnchor| anchor.system_ns.saturating_sub(anchor.mapped_ns);
    let times = clock
        .anchors
        .windows(2)
        .filter(|pair| skew(&pair[1]).saturating_sub(skew(&pair[0])).saturating_abs() > CLOCK_SET_NS)
        .count();
    if let Some(last) = clock.anchors.last().filter(|_| times > 0) {
        add(
            Severity::Warning,
            "clock_set",
            format!(
                "the system clock was set {times} times during the run, or the machine slept: it is {:+.1} s from the run's times now",
                skew(last) as f64 / 1e9
            ),
            "durations and order are right; to join the run with logs of other programs, use the clock's anchors in run.json",
        );
    }
}

fn exporters(e: &Evidence<'_>, add: &mut impl FnMut(Severity, &str, String, &str)) {
    if let Some(name) = e.unresponsive_collectors {
        add(
            Severity::Warning,
            "collector_unresponsive",
            format!("collectors did not stop in time: {name}"),
            "their last samples are missing",
        );
    }
    for name in e.unresponsive {
        add(
            Severity::Error,
            "exporter_unresponsive",
            format!("exporter {name} did not finish in time"),
            "raise the shutdown timeout, or look at what the exporter waits for",
        );
    }
    for report in e.exporters {
        let asked_for: u64 = report.dropped.values().flatten().filter(|(r, _)| is_asked_for(r)).map(|(_, n)| n).sum();
        let dropped: u64 =
            RecordKind::ALL.into_iter().map(|k| report.dropped_total(k)).sum::<u64>().saturating_sub(asked_for);
        let list = |wanted: bool| {
            let reasons = report.dropped.iter().flat_map(|(table, reasons)| reasons.iter().map(move |r| (table, r)));
            let chosen = reasons.filter(|(_, (reason, _))| is_asked_for(reason) == wanted);
            chosen.map(|(table, (reason, n))| format!("{n} {table} ({reason})")).collect::<Vec<_>>().join(", ")
        };
        if asked_for > 0 {
            add(
                Severity::Info,
                "exporter_limit",
                format!("exporter {} left out {} to stay within its limits", report.name, list(true)),
                "this is what the limit is for; a higher limit, such as a larger disk budget, keeps more",
            );
        }
        if dropped > 0 {
            let error = report.last_error.as_ref().map(|e| format!("; last error: {e}")).unwrap_or_default();
            add(
                Severity::Error,
                "exporter_dropped",
                format!("exporter {} dropped {}{error}", report.name, list(false)),
                "look at the reasons: queue_full means that the destination is too slow (make it faster, or queue_records larger), io that space or permission is missing",
            );
        } else if let Some(error) = &report.last_error {
            add(Severity::Warning, "exporter_error", format!("exporter {}: {error}", report.name), "nothing was lost");
        }
    }
}

/// Reasons that are limits somebody set, and no failure.
fn is_asked_for(reason: &str) -> bool {
    [DropReason::DiskBudget, DropReason::Limit].iter().any(|r| r.as_str() == reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ClockAnchor;

    fn findings(skews_ms: &[i64]) -> Vec<String> {
        let anchor = |(i, skew): (usize, &i64)| {
            let mapped_ns = i as i64 * 10_000_000_000;
            ClockAnchor { ticks: 0, mapped_ns, system_ns: mapped_ns + skew * 1_000_000 }
        };
        let clock = ClockInfo { anchors: skews_ms.iter().enumerate().map(anchor).collect(), ..ClockInfo::default() };
        let mut found = Vec::new();
        clock_set(&clock, &mut |_, _, message, _| found.push(message));
        found
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_drifts() {
        assert!(findings(&[]).is_empty());
        assert!(findings(&[0, 5, 12, 40, 90, 160, 240]).is_empty());
        assert_eq!(findings(&[0, 1, 3_600_000, 3_600_001]).len(), 1);
        let back = findings(&[0, -500, -500, 0]);
        assert!(back[0].contains("set 2 times") && back[0].contains("+0.0 s"), "{back:?}");
    }
}
