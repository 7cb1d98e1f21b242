//! The figures as text for people.

use crate::figures::{Figures, Spread};
use crate::level::{Level, Plan};
use crate::record::TokensBy;
use crate::results::{End, LoadResults, Stage};
use candlescope_core::numbers::{duration, percent, significant};
use std::fmt::Write as _;

const COLUMNS: [&str; 10] = ["load", "n", "failed", "req/s", "tokens/s", "TTFT", "p95", "TPOT", "ITL p95", "E2E"];

pub(crate) fn text(results: &LoadResults) -> String {
    let target = &results.target;
    let mut out = format!("{} · model {}\n", target.url, target.model);
    let mut rows = vec![COLUMNS.map(str::to_string).to_vec()];
    rows.extend(results.stages.iter().map(row));
    out.push_str(&aligned(&rows));
    for note in notes(results) {
        let _ = writeln!(out, "{note}");
    }
    out.trim_end().to_string()
}

fn row(stage: &Stage) -> Vec<String> {
    let level = stage.level.to_string();
    let Some(f) = &stage.figures else {
        return [level, "–".into()].into_iter().chain((2..COLUMNS.len()).map(|_| "–".into())).collect();
    };
    let of = |s: &Option<Spread>, pick: fn(&Spread) -> Option<f64>| {
        s.as_ref().and_then(pick).map_or_else(|| "–".to_string(), duration)
    };
    let (ttft, e2e) = as_seen(stage.level, f);
    vec![
        level,
        f.ok.to_string(),
        f.failed.values().sum::<u64>().to_string(),
        significant(f.requests_per_s),
        f.output_tokens_per_s.map_or_else(|| "–".to_string(), significant),
        of(ttft, |s| Some(s.median)),
        of(ttft, |s| s.p95),
        of(&f.tpot_ns, |s| Some(s.median)),
        of(&f.itl_ns, |s| s.p95),
        of(e2e, |s| Some(s.median)),
    ]
}

/// TTFT and E2E as a client sees them: from the planned arrival, where there is one.
fn as_seen(level: Level, f: &Figures) -> (&Option<Spread>, &Option<Spread>) {
    match level {
        Level::Rate(_) => (&f.ttft_from_planned_ns, &f.e2e_from_planned_ns),
        Level::Concurrency(_) => (&f.ttft_ns, &f.e2e_ns),
    }
}

/// Columns below each other, numbers to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(n, (cell, width))| if n == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}

/// What tokens cost at each load, and where they cost least.
fn cost(results: &LoadResults) -> Option<String> {
    let price = results.options.price_per_hour?;
    let of = |stage: &Stage| Some((stage.level, stage.figures.as_ref()?.usd_per_million_output_tokens?));
    let all: Vec<(Level, f64)> = results.stages.iter().filter_map(of).collect();
    let (level, _) = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let each: Vec<String> = all.iter().map(|(level, usd)| format!("{level}: US$ {}", significant(*usd))).collect();
    let least = if all.len() > 1 { format!("; least at {level}") } else { String::new() };
    Some(format!("cost of a million output tokens at US$ {} an hour: {}{least}", significant(price), each.join(", ")))
}

fn notes(results: &LoadResults) -> Vec<String> {
    let mut notes = Vec::new();
    let stages = || results.stages.iter().filter_map(|s| Some((s.level, s.figures.as_ref()?)));
    for (level, f) in stages() {
        if let Some(good) = &f.goodput {
            let share = percent(good.share);
            let broken = good.broken_percentile.as_ref().map_or_else(String::new, |broken| {
                let reached =
                    broken.reached_ns.map_or_else(|| "has no end".to_string(), |ns| format!("is {}", duration(ns)));
                format!(", because {} {reached}, above the limit of {}", broken.name, duration(broken.limit_ns as f64))
            });
            notes.push(format!(
                "{level}: goodput {} requests/s{broken}, {share} kept the limits of requests",
                significant(good.requests_per_s)
            ));
        }
        if !f.failed.is_empty() {
            let kinds: Vec<String> = f.failed.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            notes.push(format!("{level}: failed: {}", kinds.join(", ")));
        }
        if let Some(unsent) = f.unsent.get("no_sockets") {
            notes.push(format!(
                "{level}: {unsent} requests were not sent because this machine had no sockets left, and are in no figure: \
                 raise `ulimit -n`, or take fewer clients"
            ));
        }
        if f.sent_again > 0 {
            notes.push(format!(
                "{level}: {} of {} requests were sent twice, because the server had closed a connection after its last \
                 answer",
                f.sent_again, f.measured
            ));
        }
        if f.saturation.saturated == Some(true) {
            notes.push(format!("{level}: the server does not keep up ({})", f.saturation.signs.join(", ")));
        }
        if f.generator.material {
            let p95 = |s: &Option<Spread>| s.as_ref().map(|s| s.p95.unwrap_or(s.max));
            let worst =
                [p95(&f.generator.start_ns), p95(&f.generator.beat_ns)].into_iter().flatten().fold(0.0, f64::max);
            notes.push(format!(
                "{level}: requests were sent or answers taken up to {} late by this machine (95th percentile), which is \
                 part of these latencies: give it more room, or raise --max-in-flight",
                duration(worst)
            ));
        }
    }
    notes.extend(cost(results));
    notes.extend(token_notes(results));
    notes.extend(knee(results));
    if matches!(results.options.plan, Plan::Sweep) {
        let told = |s: &Stage| s.figures.as_ref().is_some_and(|f| f.saturation.saturated.is_some());
        let untold = results.stages.last().filter(|s| matches!(s.level, Level::Rate(_)) && !told(s));
        if let Some(stage) = untold {
            notes.push(format!(
                "{}: too few requests to tell whether the server keeps up: measure more of them (--requests, --duration)",
                stage.level
            ));
        }
        notes.push(match (results.carried_per_s, results.saturated_per_s) {
            (Some(carried), Some(not)) => format!("the server carries {carried} requests/s, and {not} no more"),
            (Some(carried), None) if untold.is_some() => {
                format!("the server carries {carried} requests/s: whether more, is not known")
            }
            (None, None) if untold.is_some() => "what the server carries is not known".to_string(),
            (Some(carried), None) => format!("the server carries {carried} requests/s and more: it was not saturated"),
            (None, Some(not)) => format!("the server does not carry {not} requests/s, the lowest rate that was tried"),
            (None, None) => "no rate was tried".to_string(),
        });
    }
    if let Some(run) = results.server_metrics.as_ref().and_then(|m| m.run.as_ref()) {
        notes.push(format!("the server is observed by candlescope as the run {run}"));
    }
    if let Some((metrics, why)) = results.server_metrics.as_ref().and_then(|m| Some((m, m.absent.as_ref()?))) {
        let remedy = if metrics.found_before { "" } else { " (--metrics URL names them)" };
        notes.push(format!("no metrics of the server: {why}{remedy}"));
    }
    match &results.end {
        End::Stopped => notes.push("ended early: the figures are of what there is".to_string()),
        End::OutOfRoom { limit_bytes } => notes.push(format!(
            "ended early, because times and requests take more than the {} MiB that may be held: the figures are of what \
             there is; send fewer requests, or raise --memory-limit",
            limit_bytes >> 20
        )),
        End::ServerGone { since_ns, why, .. } => {
            notes.push(format!("the server did not answer any more after {}: {why}", duration(*since_ns as f64)));
        }
        End::Complete | End::UnderWay => {}
    }
    notes
}

/// What tokens mean here, where it is not what one expects.
fn token_notes(results: &LoadResults) -> Vec<String> {
    let figures = || results.stages.iter().filter_map(|s| s.figures.as_ref());
    let mut notes = Vec::new();
    if !results.target.streams {
        notes.push("answers were no streams: there are no times of tokens".to_string());
    } else if figures().any(|f| f.output_tokens_by == Some(TokensBy::Chunks)) {
        notes.push("the server counts no tokens: chunks with output are counted in their place".to_string());
    }
    let far = |f: &Figures| f.chunks_per_token.filter(|share| !(0.95..=1.05).contains(share));
    if let Some(share) = figures().find_map(far) {
        notes.push(format!("{} chunks a token: ITL is the gap between chunks", significant(share)));
    }
    if let Some(share) = figures().filter_map(|f| f.arrived_together).reduce(f64::max).filter(|share| *share > 0.1) {
        let share = percent(share);
        notes.push(format!(
            "up to {share} of the chunks arrived together with the one before: TPOT is the pace, not ITL"
        ));
    }
    if let Some(share) = figures().filter_map(|f| f.cached_share).reduce(f64::max).filter(|share| *share > 0.1) {
        let share = percent(share);
        notes.push(format!(
            "up to {share} of the prompts' tokens were in the server's cache of prefixes: TTFT is less for it"
        ));
    }
    if results.target.prompt_tokens_counted == Some(false) {
        notes.push("the server counts no tokens of prompts: a word counts as one".to_string());
    }
    notes
}

/// From which number of clients on more of them bring little.
fn knee(results: &LoadResults) -> Option<String> {
    let mut tried: Vec<(u32, f64)> = results
        .stages
        .iter()
        .filter_map(|s| match (s.level, s.figures.as_ref()?.output_tokens_per_s?) {
            (Level::Concurrency(n), rate) => Some((n, rate)),
            _ => None,
        })
        .collect();
    tried.sort_by_key(|t| t.0);
    let pair = tried.windows(2).find(|pair| pair[1].0 > pair[0].0 && pair[1].1 < pair[0].1 * 1.1)?;
    Some(format!(
        "from {} to {} clients, throughput changes by {}: the server is saturated",
        pair[0].0,
        pair[1].0,
        percent(pair[1].1 / pair[0].1 - 1.0)
    ))
}
