//! What a terminal shows of a study: a line for each case.

use super::lm_options::SuiteName;
use super::spread::caution;
use super::suite_tables::{median, of_suite, prompt_tokens, size, throughput_gain};
use crate::method::StopReason;
use crate::study::CaseSummary;

/// A line for each case, by suite, and before them what has to be known to read them.
pub fn lines(summaries: &[CaseSummary]) -> Vec<String> {
    let mut lines: Vec<String> = caution(summaries).into_iter().collect();
    for suite in SuiteName::ALL {
        let cases = of_suite(summaries, suite);
        let first = cases.iter().copied().find(|case| median(case, "output_tps").is_some());
        lines.extend(cases.iter().map(|case| {
            let line = match suite {
                SuiteName::Latency => latency(case),
                SuiteName::Throughput => throughput(case, first),
                SuiteName::Seqlen => seqlen(case),
            };
            if case.is_cold() { line + " (cold: first repetitions, as long as the case may take)" } else { line }
        }));
    }
    lines
}

fn latency(case: &CaseSummary) -> String {
    let Some(e2e) = case.host_ns() else { return format!("Latency: {}", without(case)) };
    let tail = e2e.p99.map(|p| ("p99", p)).or(e2e.p95.map(|p| ("p95", p))).or(e2e.p90.map(|p| ("p90", p)));
    format!(
        "Latency: TTFT = {}, TPOT = {}, E2E = {} ({}), {} requests",
        ms(median(case, "ttft_ns")),
        ms(median(case, "tpot_ns")),
        ms(Some(e2e.median)),
        match tail {
            Some((name, value)) => format!("{name} {}", ms(Some(value))),
            None => format!("longest {}", ms(Some(e2e.max))),
        },
        e2e.n
    )
}

fn throughput(case: &CaseSummary, first: Option<&CaseSummary>) -> String {
    let batch = size(case, "batch").unwrap_or(0);
    match (median(case, "output_tps"), first.and_then(|first| throughput_gain(first, case))) {
        (Some(tokens_per_s), Some(gain)) => {
            let used = used(case).map_or_else(String::new, |used| format!(", {used}"));
            let quotient = first.and_then(|first| median(first, "output_tps")).map(|first| tokens_per_s / first);
            // Starts that differ by more than batches do leave medians of all of them that say less than each start does.
            let within = quotient.is_some_and(|quotient| (gain.ratio / quotient - 1.0).abs() > 0.05);
            let within = if within { " within process starts" } else { "" };
            format!(
                "Batch size {batch}: Throughput = {} tokens/sec ({:.1}x{within}){used}",
                tokens(tokens_per_s),
                gain.ratio
            )
        }
        _ => format!("Batch size {batch}: {}", without(case)),
    }
}

fn seqlen(case: &CaseSummary) -> String {
    let (prompt, output) = (prompt_tokens(case).unwrap_or(0), size(case, "output_tokens").unwrap_or(0));
    match case.host_ns() {
        Some(e2e) => format!(
            "Prompt {prompt} + output {output} tokens: TTFT = {}, TPOT = {}, E2E = {}",
            ms(median(case, "ttft_ns")),
            ms(median(case, "tpot_ns")),
            ms(Some(e2e.median))
        ),
        None => format!("Prompt {prompt} + output {output} tokens: {}", without(case)),
    }
}

/// What a case used of the device: `1.9 processors in use`, `GPU 97 % in use`; `None` if that is not known.
pub(super) fn used(case: &CaseSummary) -> Option<String> {
    let gpu = case.gpu_utilization().map(|share| format!("GPU {:.0} % in use", share.median * 100.0));
    gpu.or_else(|| case.processors_used().map(|n| format!("{n:.1} processors in use")))
}

/// Why a case has no figures.
pub(crate) fn without(case: &CaseSummary) -> String {
    let reason = match case.outcome().or(case.stops.first().copied()) {
        None => return "not measured yet".into(),
        Some(StopReason::Refused) => "not tried",
        Some(reason) => reason.words(),
    };
    match &case.detail {
        Some(detail) => format!("{reason}: {detail}"),
        None => reason.into(),
    }
}

/// Nanoseconds as milliseconds.
pub(crate) fn ms(ns: Option<f64>) -> String {
    match ns.map(|ns| ns / 1e6) {
        None => "–".into(),
        Some(ms) if ms >= 100.0 => format!("{ms:.0} ms"),
        Some(ms) if ms >= 1.0 => format!("{ms:.1} ms"),
        Some(ms) => format!("{ms:.3} ms"),
    }
}

/// Tokens a second.
pub(crate) fn tokens(tokens_per_s: f64) -> String {
    if tokens_per_s >= 100.0 { format!("{tokens_per_s:.0}") } else { format!("{tokens_per_s:.1}") }
}
