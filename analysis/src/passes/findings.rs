//! Whether a run's figures can be trusted, and what stands out in them.

use super::Analysis;
use super::memory::RESIDENT;
use super::peaks;
use super::stats::total;
use crate::reader::finding;
use crate::render::format::duration;
use candlescope_core::RecordKind;
use candlescope_core::run::{Finding, Severity, Verdict};

/// Where a figure becomes worth a finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Share of step time in no child interval.
    pub unaccounted: f64,
    /// Share of step time that the profiler takes.
    pub overhead: f64,
    /// Growth of a decoding step from the shortest to the longest context seen, as a share.
    pub context_growth: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unaccounted: 0.05, overhead: 0.02, context_growth: 0.10 }
    }
}

/// The run's own verdict, what reading it showed, and what the figures show.
pub fn verdict(analysis: &Analysis, has_manifest: bool, seen: Vec<Finding>, limits: &Limits) -> Verdict {
    let mut findings = analysis.manifest.verdict.findings.clone();
    findings.extend(seen);
    if has_manifest {
        completeness(analysis, &mut findings);
    }
    findings.extend(analysis.sampling.finding());
    consistency(analysis, &mut findings);
    figures(analysis, limits, &mut findings);
    super::gpu_findings::findings(analysis, &mut findings);
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        // The session and the report may notice the same thing; the session's words come first.
        if !kept
            .iter()
            .any(|known| known.code == finding.code && (known.message == finding.message || once(&known.code)))
        {
            kept.push(finding);
        }
    }
    kept.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Verdict { ok: kept.iter().all(|f| f.severity != Severity::Error), findings: kept }
}

/// Codes that are said once however many notice them.
fn once(code: &str) -> bool {
    matches!(
        code,
        "no_spans"
            | "run_incomplete"
            | "unmatched_exits"
            | "orphans"
            | "parent_shorter_than_children"
            | "overhead_high"
            | "no_gpu_time"
            | "gpu_marks_lost"
            | "kernels_dropped"
            | "kernels_unattributed"
            | "gpu_clock_uncertain"
    )
}

/// Is everything there that was recorded?
fn completeness(analysis: &Analysis, findings: &mut Vec<Finding>) {
    let manifest = &analysis.manifest;
    if !manifest.complete {
        findings.push(finding(
            Severity::Warning,
            "run_incomplete",
            "the run was not closed in order: the tables hold the segments that were finished before it ended".to_string(),
            "Keep the session's guard until the end of main; after a crash, read the figures as those of the part that was written",
        ));
    }
    let loss = &manifest.loss;
    let told = |codes: &[&str]| manifest.verdict.findings.iter().any(|f| codes.contains(&f.code.as_str()));
    if loss.lost() > 0 && !told(&["ring_full", "too_deep", "threads_without_ring", "after_shutdown"]) {
        findings.push(finding(
            Severity::Warning,
            "intervals_lost",
            format!(
                "{} of {} intervals were lost before they became records (ring full {}, too deep {}, after shutdown {})",
                loss.lost(),
                loss.emitted,
                loss.ring_full,
                loss.too_deep,
                loss.after_shutdown
            ),
            "Give the rings more room, or record fewer spans",
        ));
    }
    if loss.unmatched_exits > 0 {
        findings.push(finding(
            Severity::Info,
            "unmatched_exits",
            format!("{} exits matched no enter: spans were open when capture began", loss.unmatched_exits),
            "Start the session before the first span is entered",
        ));
    }
    for exporter in &manifest.exporters {
        let dropped = total(RecordKind::ALL.into_iter().map(|kind| exporter.dropped_total(kind)));
        if dropped > 0 && !told(&["exporter_dropped"]) {
            let reasons = exporter.dropped.values().flatten().map(|(reason, n)| format!("{reason} {n}"));
            findings.push(finding(
                Severity::Warning,
                "exporter_dropped",
                format!(
                    "exporter `{}` dropped {dropped} records ({})",
                    exporter.name,
                    reasons.collect::<Vec<_>>().join(", ")
                ),
                exporter.last_error.as_deref().map_or(
                    "Give the exporter a longer queue or a faster destination",
                    |_| "See the exporter's last error in run.json",
                ),
            ));
        }
        if !exporter.conserved() {
            findings.push(finding(
                Severity::Error,
                "not_conserved",
                format!(
                    "exporter `{}` cannot account for every record: received is not exported plus dropped",
                    exporter.name
                ),
                "Report this as a bug of the exporter",
            ));
        }
    }
    // What the Parquet exporter says it wrote is what the tables must hold.
    let Some(parquet) = manifest.exporters.iter().find(|e| e.name == "parquet").filter(|_| manifest.complete) else {
        return;
    };
    for kind in RecordKind::ALL {
        let wrote = parquet.exported.get(kind.table()).copied().unwrap_or(0);
        let read = analysis.rows.get(kind.table()).copied().unwrap_or(0);
        if read < wrote {
            findings.push(finding(
                Severity::Error,
                "rows_missing",
                format!("table `{}` holds {read} of the {wrote} rows that were written", kind.table()),
                "Copy the whole directory again from where the run was made",
            ));
        } else if read > wrote {
            findings.push(finding(
                Severity::Error,
                "rows_surplus",
                format!(
                    "table `{}` holds {read} rows, but {wrote} were written: a segment is there twice",
                    kind.table()
                ),
                "Remove copies of segments from the run's folders",
            ));
        }
    }
}

/// Do the data contradict themselves?
fn consistency(analysis: &Analysis, findings: &mut Vec<Finding>) {
    let intervals = &analysis.intervals;
    let unread = |f: &Finding| matches!(f.code.as_str(), "segment_unfinished" | "segment_corrupt" | "segment_foreign");
    if intervals.count == 0 && intervals.above_steps == 0 && findings.iter().any(unread) {
        findings.push(finding(
            Severity::Error,
            "no_readable_spans",
            "none of the run's intervals can be read: no segment of table `spans` is whole".to_string(),
            "See the findings about its segments. A run that may be killed should rotate them more often",
        ));
    } else if intervals.count == 0 && intervals.above_steps == 0 {
        findings.push(finding(
            Severity::Error,
            "no_spans",
            "the run holds no intervals: there is nothing to say about operators".to_string(),
            "Install the layer before the model loads (candle makes its spans then), and do not build with a `release_max_level_*` feature of tracing below trace",
        ));
    }
    if let Some((path, dur, children)) = &intervals.worst {
        findings.push(finding(
            Severity::Error,
            "parent_shorter_than_children",
            format!(
                "{} intervals are shorter than their children together; the worst is `{path}` with {dur} ns against {children} ns",
                intervals.impossible
            ),
            "The clock or the data are wrong: compare the clock's anchors in run.json, and look for a segment that is there twice",
        ));
    }
    if intervals.orphans > 0 {
        findings.push(finding(
            Severity::Warning,
            "orphans",
            format!(
                "{} intervals lack the one they were entered in, which was lost; they count as outermost",
                intervals.orphans
            ),
            "See the findings about lost intervals and segments",
        ));
    }
    for used in peaks::utilisation(analysis) {
        if used.ratio > 1.0 {
            let (what, unit) = (used.metric.name(), if used.peak.is_flops { "FLOP/s" } else { "B/s" });
            let over = match used.over {
                peaks::Over::Wall => String::new(),
                over => format!(" over GPU time ({})", over.name()),
            };
            findings.push(finding(
                Severity::Error,
                "utilisation_above_one",
                format!(
                    "{what} of {}{over} is {:.2} against the {} peak of {:.3e} {unit}: a measurement error",
                    used.phase, used.ratio, used.peak.label, used.peak.value
                ),
                "Check the analytic cost of the phase's operations and the peak's source",
            ));
        }
    }
}

/// What stands out in the figures?
fn figures(analysis: &Analysis, limits: &Limits, findings: &mut Vec<Finding>) {
    let tree = &analysis.tree;
    let unaccounted = super::tree::ratio(tree.unaccounted_ns(), tree.total_ns);
    if unaccounted > limits.unaccounted {
        let worst = tree.rows.iter().filter(|row| row.has_children).max_by_key(|row| row.self_ns);
        let most = worst.map(|row| {
            let share = super::tree::ratio(row.self_ns, tree.total_ns);
            format!("; most of it in `{}` ({:.1} %)", analysis.intervals.paths[row.path].rollup, share * 100.0)
        });
        findings.push(finding(
            Severity::Info,
            "unaccounted",
            format!("{:.1} % of step time is in no child interval{}", unaccounted * 100.0, most.unwrap_or_default()),
            "Wrap the operations there in spans of their own to see what they are",
        ));
    }
    let overhead = &analysis.manifest.overhead;
    let in_place = overhead.in_place.as_ref().filter(|in_place| in_place.n_plain > 0).map(|in_place| in_place.ratio);
    if let Some(ratio) = in_place.or(overhead.ratio).filter(|ratio| *ratio > limits.overhead) {
        findings.push(finding(
            Severity::Warning,
            "overhead_high",
            format!("the layer takes {:.1} % of step time on the application's threads", ratio * 100.0),
            "Record fewer spans (leave out the busiest target with exclude_target), or fewer steps (with a schedule)",
        ));
    }
    if let Some(trend) = analysis.tokens.trend {
        let at = |context: u32| trend.intercept_ns + trend.slope_ns * f64::from(context);
        let growth = at(trend.context.1) / at(trend.context.0) - 1.0;
        if growth > limits.context_growth && trend.slope_ns > trend.slope_ci95_ns {
            findings.push(finding(
                Severity::Info,
                "decode_slows_with_context",
                format!(
                    "a decoding step takes {:.0} % longer at a context of {} than at {}: {:.1} ± {:.1} µs for each 100 tokens",
                    growth * 100.0,
                    trend.context.1,
                    trend.context.0,
                    trend.slope_ns / 10.0,
                    trend.slope_ci95_ns / 10.0
                ),
                "Attention over the cache grows with the context; a cache that is copied at every token (Tensor::cat) grows faster",
            ));
        }
    }
    if let Some(resident) = analysis.memory.host(RESIDENT) {
        let covered = resident.points.first().zip(resident.points.last()).map_or(0, |(a, b)| b.0.abs_diff(a.0));
        // What was not sampled was not seen: a peak from one sample at the start is the memory of an empty process.
        if analysis.phases.wall_ns > 0 && covered < analysis.phases.wall_ns / 2 {
            findings.push(finding(
                Severity::Info,
                "memory_undersampled",
                format!(
                    "resident memory has {} sample{} over {} of the {} that steps and requests took: its peak may have been missed",
                    resident.n,
                    if resident.n == 1 { "" } else { "s" },
                    duration(covered as f64),
                    duration(analysis.phases.wall_ns as f64)
                ),
                "Run longer, or sample more often",
            ));
        }
    }
    let measured = analysis.latency.requests.iter().filter(|r| !r.warmup).count();
    if (1..3).contains(&measured) {
        findings.push(finding(
            Severity::Info,
            "few_requests",
            format!(
                "{measured} measured request{}: TTFT and TPOT have no spread to speak of",
                if measured == 1 { "" } else { "s" }
            ),
            "Repeat the request, at least six times after a warm-up: below that a median has no 95 % interval",
        ));
    }
}
