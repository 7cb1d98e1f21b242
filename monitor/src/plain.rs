//! Plain text: a line a period, one snapshot, and what is said at the end. Pure.

use crate::idle::{Idle, IdleTracker};
use crate::phrases::*;
use crate::program::ProgramFigures;
use crate::state::{GpuTrack, Monitor, ProgramTrack};
use candlescope_core::numbers::{joules, percent};
use std::fmt::Write as _;

/// Idle periods listed for each GPU and process; the longest, in order of time.
const LISTED: usize = 20;
/// What is said where nothing is known.
const NOTHING: &str = "nothing is known yet";

/// One line with the figures now. Programs that have ended are in the line of that period only.
pub fn line(monitor: &Monitor) -> String {
    let gpus = monitor.gpus.iter().map(|gpu| {
        let f = &gpu.figures;
        let throttled = throttling(f).filter(|_| f.throttled.as_ref().is_some_and(|reasons| !reasons.is_empty()));
        let parts = [f.use_ratio.map(share), power(f), gpu_memory(f), clocks(f), throttled];
        format!("GPU {} {}", gpu.index, join(parts, " ").unwrap_or_else(|| NOTHING.into()))
    });
    let now = |ended: Option<std::time::Duration>| ended.is_none_or(|at| at == monitor.at);
    let programs = monitor.programs.iter().filter(|program| now(program.ended)).map(|program| {
        let what = match (&program.ended, &program.silent) {
            (Some(_), _) => "has ended".to_string(),
            (None, Some(why)) => format!("does not answer: {why}"),
            (None, None) => {
                let f = &program.figures;
                let process = monitor.process_figures(program);
                let parts = [activity(f), tokens(f), ttft(f), tpot(f), cpu(process), memory(process)];
                join(parts, " ").unwrap_or_else(|| NOTHING.into())
            }
        };
        format!("{} {what}", program_name(program))
    });
    let processes = monitor.other_processes().filter(|process| now(process.ended)).map(|process| {
        let f = &process.figures;
        let figures = join([work(process), cpu(f), memory(f), threads(f)], " ").unwrap_or_else(|| NOTHING.into());
        let what = if process.ended.is_some() { "has ended".to_string() } else { figures };
        format!("{} {what}", process_name(process))
    });
    let mut parts: Vec<String> = gpus.chain(programs).chain(processes).collect();
    if parts.is_empty() {
        parts.extend(join([Some("no program found".to_string()), machine(monitor)], ", "));
    }
    format!("{} {}", clock(monitor, monitor.at), parts.join(" | "))
}

/// All figures now, over several lines.
pub fn snapshot(monitor: &Monitor) -> String {
    let mut out = format!("{} UTC", clock(monitor, monitor.at));
    if let Some(text) = machine(monitor) {
        let _ = write!(out, "  {text}");
    }
    out.push('\n');
    for gpu in &monitor.gpus {
        block(&mut out, &gpu_name(gpu), gpu_lines(gpu));
    }
    if let Some(trouble) = &monitor.gpu_trouble {
        let _ = writeln!(out, "GPU: {trouble}");
    }
    for program in &monitor.programs {
        block(&mut out, &program_head(program), program_lines(monitor, program));
    }
    for process in monitor.other_processes() {
        let f = &process.figures;
        let figures = join([cpu(f), memory(f), peak_memory(f), threads(f)], "  ");
        block(&mut out, &process_name(process), [ended(process.ended), work(process), figures]);
    }
    if sees_no_program(monitor) {
        let _ = writeln!(out, "{}", no_program());
    }
    out.trim_end().to_string()
}

/// Whether neither a program nor a process is there that could be shown.
pub(crate) fn sees_no_program(monitor: &Monitor) -> bool {
    monitor.programs.is_empty() && monitor.processes.is_empty()
}

/// What to do where no program is found.
pub(crate) fn no_program() -> &'static str {
    "no candlescope program found: start one with CANDLESCOPE=prometheus=9464 or --prometheus 9464, or name --endpoint or --pid"
}

fn block(out: &mut String, head: &str, lines: impl IntoIterator<Item = Option<String>>) {
    let _ = writeln!(out, "{head}");
    let mut known = lines.into_iter().flatten().peekable();
    if known.peek().is_none() {
        let _ = writeln!(out, "  {NOTHING}");
    }
    for line in known {
        let _ = writeln!(out, "  {line}");
    }
}

fn ended(at: Option<std::time::Duration>) -> Option<String> {
    at.map(|at| format!("has ended after {} of watching; its last figures:", time(at)))
}

fn gpu_lines(gpu: &GpuTrack) -> [Option<String>; 2] {
    let f = &gpu.figures;
    let used = f.use_ratio.map(|ratio| format!("use {}", share(ratio)));
    let memory = gpu_memory(f).map(|text| format!("memory {text}"));
    let temperature = f.temperature_celsius.map(|t| format!("{t:.0} °C"));
    [join([used, memory, power(f)], "  "), join([clocks(f), temperature, throttling(f)], "  ")]
}

/// Name, endpoint and model.
pub(crate) fn program_head(program: &ProgramTrack) -> String {
    let endpoint = Some(&program.endpoint).filter(|endpoint| **endpoint != program.name).cloned();
    join([Some(program_name(program)), endpoint, program.figures.model.clone()], "  ").unwrap_or_default()
}

/// Everything known of a program, a line a subject.
pub(crate) fn program_lines(monitor: &Monitor, program: &ProgramTrack) -> Vec<Option<String>> {
    let (f, process) = (&program.figures, monitor.process_figures(program));
    let silent = program.silent.as_ref().map(|why| format!("does not answer: {why}; its last figures:"));
    vec![
        ended(program.ended).or(silent),
        join([activity(f), recent_tokens(f), working_tokens(f)], "  "),
        join([ttft(f), ttft_mean(f), tpot(f), requests(f)], "  "),
        join([cpu(process), memory(process), peak_memory(process), threads(process)], "  "),
    ]
}

/// What is said at the end: how long, what has ended with its last figures, energy, idle periods.
pub fn summary(monitor: &Monitor) -> String {
    let looked = plural(monitor.readings as f64, "reading");
    let mut out = format!("watched for {}, {looked}\n", time(monitor.at));
    for program in monitor.programs.iter().filter(|program| program.ended.is_some()) {
        let known = program.figures != ProgramFigures::default();
        let lines = program_lines(monitor, program);
        block(&mut out, &program_head(program), lines.into_iter().filter(|_| known));
        if !known {
            let _ = writeln!(out, "  it ended before it answered");
        }
    }
    for process in monitor.other_processes().filter(|process| process.ended.is_some()) {
        let f = &process.figures;
        let figures = join([cpu(f), memory(f), peak_memory(f), threads(f)], "  ");
        block(&mut out, &process_name(process), [ended(process.ended), work(process), figures]);
    }
    for gpu in &monitor.gpus {
        if let Some(energy) = gpu.energy_joules().filter(|energy| *energy > 0.0) {
            let _ = writeln!(out, "{} used {} (measured, everything on it)", gpu_name(gpu), joules(energy));
        }
    }
    let gpus = monitor.gpus.iter().map(|gpu| (gpu_name(gpu), "use", &gpu.idle));
    let processes = monitor.processes.iter().map(|process| (process_name(process), "CPU", &process.idle));
    for (name, what, tracker) in gpus.chain(processes) {
        idle_list(&mut out, monitor, &name, what, tracker);
    }
    out.trim_end().to_string()
}

fn idle_list(out: &mut String, monitor: &Monitor, name: &str, what: &str, tracker: &IdleTracker) {
    let rule = &monitor.rule;
    if tracker.observed().is_zero() {
        return;
    }
    let of = if what == "CPU" { " of a core" } else { "" };
    let rule_text = format!("{what} at most {}{of} for at least {}", share(rule.at_most), time(rule.at_least));
    let count = tracker.count(rule);
    if count == 0 {
        let _ = writeln!(out, "{name}: never idle ({rule_text})");
        return;
    }
    let (total, observed) = (tracker.total(rule), tracker.observed());
    let part = percent(total.as_secs_f64() / observed.as_secs_f64());
    let periods = plural(count as f64, "period");
    let _ = writeln!(out, "{name}: idle for {} of {} ({part}), {periods} ({rule_text})", time(total), time(observed));
    let mut longest: Vec<Idle> = tracker.periods(rule);
    longest.sort_by_key(|idle| std::cmp::Reverse(idle.length()));
    longest.truncate(LISTED);
    longest.sort_by_key(|idle| idle.from);
    for idle in &longest {
        let (from, to) = (clock(monitor, idle.from), clock(monitor, idle.to));
        let _ = writeln!(out, "  {from} to {to}  {}", time(idle.length()));
    }
    if count > longest.len() as u64 {
        let _ = writeln!(out, "  and {} shorter ones", count - longest.len() as u64);
    }
}
