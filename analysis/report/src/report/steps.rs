//! Steps by kind: their times, rates and how near they come to the machine's peaks.

use super::super::format::{count, duration, head, percent, plural, printable, significant, tail, with_error};
use candlescope_document::{
    Block, Cell, Forms, MostRows, Part, Row, Section, Table, cell, column, maybe, missing, sentences, wide, words,
};
use candlescope_figures::gpu_time::source_name;
use candlescope_figures::peaks::utilisation;
use candlescope_figures::phases::PhaseRow;
use candlescope_figures::rates::RateErrors;
use candlescope_figures::stats::total;
use candlescope_figures::tree::ratio;
use candlescope_figures::{Analysis, Distribution, ThreadTimes};

/// Kinds that the bar tells apart, and the smallest share that it does.
const BAR_PARTS: usize = 7;
const SMALLEST_PART: f64 = 0.002;

/// The section, also of a run without steps.
pub(super) fn section(analysis: &Analysis) -> Section {
    let phases = &analysis.phases;
    let wall = duration(phases.wall_ns as f64);
    let (outside, brief) = match phases.outside_ns() {
        Some(ns) => (
            format!("of which {} lies outside steps", duration(ns as f64)),
            format!("{} of it outside steps", percent(ratio(ns, phases.wall_ns))),
        ),
        None => {
            ("of which some steps were not recorded".to_string(), "some of its steps were not recorded".to_string())
        }
    };
    let note = format!(
        "Wall time {wall} from the first start to the last end, {outside}. Steps of several threads count side by side; \
         rates are over the time in which at least one step of a kind was open.{}",
        errors(analysis).unwrap_or_default()
    );
    let mut columns = columns();
    if knows_threads(analysis) {
        columns.extend(thread_columns());
    }
    let table =
        Table::new("", columns, phases.rows.iter().map(|one| row(analysis, one)).collect()).of_code(28).longest(60);
    let section = Section::new("phases", "Steps", note)
        .brief(format!("wall {wall}, {brief}"))
        .with_in(Forms::PAGE.and(Forms::JSON), Block::Shares("Share of time by phase", bar(analysis)))
        .with(table.most(MostRows::of(8, 64, 100), "kinds of step", "in metrics.json"))
        .with_in(Forms::TERMINAL, Block::Text(recorded_longer(analysis).unwrap_or_default().trim_start().to_string()))
        .with_in(Forms::TERMINAL, Block::Text(warmup_in_words(analysis)));
    let section = Section { parts: vec![warmup(analysis), against_peaks(analysis)], ..section };
    let is_empty = phases.rows.is_empty() && analysis.warmup.rows.is_empty();
    if is_empty { section.only(Forms::FILES).or_say("The run holds no steps.") } else { section }
}

fn columns() -> Vec<candlescope_document::Column> {
    vec![
        column("steps", ""),
        column("total", ""),
        column("share", ""),
        column("median", ""),
        column("p95", ""),
        wide("max", ""),
        wide("tokens", ""),
        column("tokens/s", ""),
        column("GFLOP/s", ""),
        column("GB/s", ""),
        wide("FLOP/B", ""),
        wide("at once", "steps open at once, on average over the time in which any was"),
        wide("GPU", "GPU time of the steps that have it"),
        wide("intervals", ""),
    ]
}

/// Where it is known what threads did.
fn thread_columns() -> [candlescope_document::Column; 4] {
    [
        wide("on CPU", "share of their time in which their thread was on a CPU"),
        wide("preempted", "share of their time in which another thread had the CPU"),
        wide("blocked", "share of their time in which their thread waited"),
        wide("page faults", "a step"),
    ]
}

fn knows_threads(analysis: &Analysis) -> bool {
    analysis.intervals.paths.iter().any(|path| path.threads.known_ns > 0 || path.threads.faults_known_ns > 0)
}

/// What the steps' own threads did: on a CPU, preempted, blocked, and the pages that the system provided.
fn thread_cells(analysis: &Analysis, row: &PhaseRow) -> [Cell; 4] {
    let of = analysis.threads_of(row);
    let share = |part: fn(ThreadTimes) -> u64| maybe(of.and_then(|threads| threads.share(part(threads))), percent);
    [
        share(|threads| threads.cpu_ns),
        share(|threads| threads.preempted_ns),
        share(|threads| threads.blocked_ns),
        maybe(of.and_then(|threads| threads.faults_each()), significant),
    ]
}

fn row(analysis: &Analysis, row: &PhaseRow) -> Row {
    let sampled = |v: Option<f64>, of: fn(RateErrors) -> Option<f64>| {
        maybe(v, |v| with_error(significant(v), row.rate_errors.and_then(of)))
    };
    let time = |of: fn(&Distribution) -> Option<f64>| maybe(row.duration.as_ref().and_then(of), duration);
    let number = |n: u64| cell(count(n), n as f64);
    let gpu = row.gpu.map_or(missing(), |gpu| {
        let text = format!("{} in {} ({})", duration(gpu.total_ns as f64), count(gpu.steps), source_name(gpu.source));
        cell(text, gpu.total_ns as f64)
    });
    let mut cells = vec![
        number(row.steps),
        cell(duration(row.total_ns as f64), row.total_ns as f64),
        cell(percent(row.share), row.share),
        time(|d| Some(d.median)),
        time(|d| d.p95),
        time(|d| Some(d.max)),
        row.tokens.map_or(missing(), number),
        sampled(row.tokens_per_s, |e| e.tokens),
        sampled(row.gflops, |e| e.flops),
        sampled(row.io_gbytes, |e| e.io_bytes),
        maybe(row.work.intensity(), significant),
        maybe(row.steps_at_once, significant),
        gpu,
        number(row.intervals),
    ];
    if knows_threads(analysis) {
        cells.extend(thread_cells(analysis, row));
    }
    let remark = row.inside.as_deref().map_or(String::new(), |inside| format!("in {inside}"));
    Row { remark, ..Row::new(row.name.clone(), cells) }
}

/// What rates of sampled steps rest on.
fn errors(analysis: &Analysis) -> Option<String> {
    let told = analysis.phases.rows.iter().filter_map(|row| row.rate_errors);
    let windows = told.filter(|e| e.tokens.or(e.flops).or(e.io_bytes).is_some()).map(|errors| errors.windows).max()?;
    Some(format!(
        " Rates are estimates over {} in which every step was recorded: ± is half of the 95 % interval, from the variation \
         between windows.{}",
        plural(windows, "window"),
        recorded_longer(analysis).unwrap_or_default()
    ))
}

/// How much longer recorded steps take than the others, whose rates are higher by that.
fn recorded_longer(analysis: &Analysis) -> Option<String> {
    let told = analysis.phases.rows.iter().filter_map(|row| {
        let longer = row.rate_errors?.longer?;
        let share = |share: f64| format!("{:+.1} %", share * 100.0);
        let (low, high) = (share(longer.interval.0), share(longer.interval.1));
        let (pairs, name) = (plural(longer.pairs as u64, "pair"), &row.name);
        Some(format!("`{}` {} ({low} to {high}, {pairs})", printable(name), share(longer.share)))
    });
    let list = told.collect::<Vec<_>>().join(", ");
    (!list.is_empty()).then(|| {
        format!(
            " Rates are those of recorded steps, and these took longer than the steps right after them, which have no record, \
             by (median of pairs): {list}."
        )
    })
}

/// How the time divides. Steps of several threads overlap: it divides the sum of their times, idle time included.
fn bar(analysis: &Analysis) -> Vec<Part> {
    let phases = &analysis.phases;
    let outermost: Vec<_> = phases.rows.iter().filter(|row| row.inside.is_none()).collect();
    let outside = phases.outside_ns().unwrap_or(0);
    let whole = total(outermost.iter().map(|row| row.total_ns)).saturating_add(outside);
    let part = |name: &str, color: String, ns: u64| Part {
        name: head(&printable(name), 40),
        color,
        share: ratio(ns, whole),
        percent: percent(ratio(ns, whole)),
        amount: duration(ns as f64),
    };
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = 0u64;
    for row in &outermost {
        if parts.len() < BAR_PARTS && ratio(row.total_ns, whole) >= SMALLEST_PART {
            let color = match row.name.as_str() {
                "prefill" | "decode" | "sample" | "encode" | "vision" if row.is_phase => row.name.clone(),
                _ => format!("other{}", parts.len() % 4),
            };
            parts.push(part(&row.name, color, row.total_ns));
        } else {
            rest = total([rest, row.total_ns]);
        }
    }
    let others = [("other steps", "rest", rest), ("outside steps", "outside", outside)];
    parts.extend(
        others.into_iter().filter(|(.., ns)| *ns > 0).map(|(name, color, ns)| part(name, color.to_string(), ns)),
    );
    parts
}

fn warmup_in_words(analysis: &Analysis) -> String {
    let rows = analysis.warmup.rows.iter().take(4).filter_map(|row| {
        let median = row.duration.as_ref()?.median;
        Some(format!("{} {} × {}", tail(&row.name, 28), count(row.steps), duration(median)))
    });
    let list = rows.collect::<Vec<_>>().join(", ");
    if list.is_empty() { list } else { format!("warm-up, in no other figure: {list}") }
}

/// The warm-up, apart from the rest.
fn warmup(analysis: &Analysis) -> Section {
    let warmup = &analysis.warmup;
    let rows = warmup.rows.iter().map(|row| {
        let time = |of: fn(&Distribution) -> f64| maybe(row.duration.as_ref().map(of), duration);
        let total = cell(duration(row.total_ns as f64), row.total_ns as f64);
        Row::new(
            row.name.clone(),
            vec![cell(count(row.steps), row.steps as f64), total, time(|d| d.median), time(|d| d.max)],
        )
    });
    let columns = vec![column("steps", ""), column("total", ""), column("median", ""), column("max", "")];
    let note = format!(
        "{} of {} that only warmed up. They are in none of the other figures.",
        plural(warmup.steps(), "step"),
        plural(warmup.requests().len() as u64, "request")
    );
    let table = Table::new("", columns, rows.collect()).of_code(28);
    Section::new("warmup", "Warm-up", note).only(Forms::FILES).with(table.most(
        MostRows::of(0, 100, 100),
        "kinds of step",
        "in metrics.json",
    ))
}

/// How close phases come to the machine's peaks.
fn against_peaks(analysis: &Analysis) -> Section {
    let rows = utilisation(analysis).into_iter().map(|used| {
        let unit = if used.peak.is_flops() { "FLOP/s" } else { "B/s" };
        let dtype = used.peak.dtype.as_ref().map_or(String::new(), |dtype| format!(", {dtype}"));
        let cells = [
            used.over.name().to_string(),
            with_error(percent(used.ratio), used.error),
            format!("{:.3e} {unit}{dtype}", used.peak.value),
            used.peak.label_in_words(),
            used.peak.source.clone(),
        ];
        Row::new(format!("{} of {}", used.metric.name(), used.phase), cells.map(Cell::from).into())
    });
    let columns = vec![
        column("over", "the time the work is held against"),
        column("of peak", ""),
        column("peak", ""),
        words("label"),
        sentences("source"),
    ];
    Section::new("utilisation", "Against the machine's peaks", "").only(Forms::FILES).with(Table::new(
        "utilisation",
        columns,
        rows.collect(),
    ))
}
