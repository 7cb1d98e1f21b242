//! Figures in words, the same wherever they are shown. What is not known is left out. Pure.

use crate::figures::{GpuFigures, ProcessFigures};
use crate::program::{Activity, ProgramFigures};
use crate::state::{GpuTrack, Monitor, ProcessTrack, ProgramTrack};
use candlescope_core::numbers::{self, bytes, duration, significant, utc, watts};
use std::time::Duration;

/// `12:34:56`, the system clock's time in UTC.
pub(crate) fn clock(monitor: &Monitor, at: Duration) -> String {
    let text = utc(monitor.clock(at).0);
    text.split(' ').nth(1).unwrap_or_default().to_string()
}

/// `12.0 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..120 => duration(time.as_nanos() as f64),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A share without digits after the point: what is shown moves.
pub(crate) fn share(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

pub(crate) fn gpu_name(gpu: &GpuTrack) -> String {
    match &gpu.product {
        Some(product) => format!("GPU {} {product}", gpu.index),
        None => format!("GPU {}", gpu.index),
    }
}

pub(crate) fn power(figures: &GpuFigures) -> Option<String> {
    let now = figures.power_watts?;
    Some(match figures.power_limit_watts {
        Some(limit) => format!("{} of {}", watts(now), watts(limit)),
        None => watts(now),
    })
}

pub(crate) fn gpu_memory(figures: &GpuFigures) -> Option<String> {
    let now = figures.memory_bytes?;
    Some(match figures.memory_limit_bytes {
        Some(limit) => format!("{} of {}", bytes(now), bytes(limit)),
        None => bytes(now),
    })
}

pub(crate) fn clocks(figures: &GpuFigures) -> Option<String> {
    let clock = |name: &str, hertz: Option<f64>| hertz.map(|hertz| format!("{name} {:.2} GHz", hertz / 1e9));
    join([clock("SM", figures.sm_clock_hertz), clock("memory", figures.memory_clock_hertz)], ", ")
}

/// `throttled: sw_power_cap`, or that it is not; nothing where the GPU does not tell.
pub(crate) fn throttling(figures: &GpuFigures) -> Option<String> {
    let reasons = figures.throttled.as_ref()?;
    Some(if reasons.is_empty() { "not throttled".to_string() } else { format!("throttled: {}", reasons.join(", ")) })
}

pub(crate) fn program_name(program: &ProgramTrack) -> String {
    match program.pid {
        Some(pid) => format!("{} ({pid})", program.name),
        None => program.name.clone(),
    }
}

/// `bench throughput of embedded (4711)`, `make (4711, with 3 processes that it started)`.
pub(crate) fn process_name(process: &ProcessTrack) -> String {
    let name = process.work.as_ref().map_or(&process.name, |work| &work.what);
    match process.children {
        0 => format!("{name} ({})", process.pid),
        1 => format!("{name} ({}, with the process that it started)", process.pid),
        n => format!("{name} ({}, with {n} processes that it started)", process.pid),
    }
}

/// How far a process is that says what it is at.
pub(crate) fn work(process: &ProcessTrack) -> Option<String> {
    process.work.as_ref().map(|work| &work.state).filter(|state| !state.is_empty()).cloned()
}

pub(crate) fn activity(figures: &ProgramFigures) -> Option<String> {
    match &figures.activity {
        Activity::Unknown => None,
        Activity::Phase(phase) if phase == "none" => Some("in steps without a phase".to_string()),
        Activity::Phase(phase) => Some(phase.clone()),
        Activity::Waiting => Some("a request is open, no step has ended".to_string()),
        Activity::Idle => Some("no step".to_string()),
    }
}

/// `54.3 tokens/s`; in a program that does not decode, with the phase that they are of.
pub(crate) fn tokens(figures: &ProgramFigures) -> Option<String> {
    let rate = significant(figures.tokens_per_s?);
    Some(match figures.token_phase.as_deref() {
        Some("decode" | "none") | None => format!("{rate} tokens/s"),
        Some(phase) => format!("{rate} tokens/s in {phase}"),
    })
}

/// `54.3 tokens/s, last period`, where the other rate stands beside it, which is of another time.
pub(crate) fn recent_tokens(figures: &ProgramFigures) -> Option<String> {
    let rate = tokens(figures)?;
    Some(if working_tokens(figures).is_some() { format!("{rate}, last period") } else { rate })
}

/// `260 tokens/s while decode works, last 15 s`: as the program says (`candlescope_tokens_per_second`).
pub(crate) fn working_tokens(figures: &ProgramFigures) -> Option<String> {
    let phase = figures.token_phase.as_deref().filter(|phase| *phase != "none")?;
    let rate = significant(figures.working_tokens_per_s?);
    Some(format!("{rate} tokens/s while {phase} works, last 15 s"))
}

fn seconds(name: &str, value: Option<f64>) -> Option<String> {
    value.map(|seconds| format!("{name} {}", duration(seconds * 1e9)))
}

pub(crate) fn ttft(figures: &ProgramFigures) -> Option<String> {
    seconds("TTFT", figures.ttft_seconds)
}

pub(crate) fn ttft_mean(figures: &ProgramFigures) -> Option<String> {
    let mean = seconds("mean", figures.ttft_mean_seconds)?;
    Some(format!("{mean} of {}", plural(figures.ttft_requests, "request")))
}

pub(crate) fn tpot(figures: &ProgramFigures) -> Option<String> {
    seconds("TPOT", figures.tpot_seconds)
}

pub(crate) fn requests(figures: &ProgramFigures) -> Option<String> {
    let active = format!("{} open", plural(figures.requests_active?, "request"));
    Some(match figures.tokens_in_flight.filter(|n| *n > 0.0) {
        Some(tokens) => format!("{active} with {} of context", plural(tokens, "token")),
        None => active,
    })
}

pub(crate) fn cpu(figures: &ProcessFigures) -> Option<String> {
    figures.cpu_ratio.map(|ratio| format!("CPU {ratio:.2} cores"))
}

pub(crate) fn memory(figures: &ProcessFigures) -> Option<String> {
    figures.memory_bytes.map(|n| format!("memory {}", bytes(n)))
}

pub(crate) fn peak_memory(figures: &ProcessFigures) -> Option<String> {
    figures.peak_memory_bytes.map(|n| format!("peak {}", bytes(n)))
}

pub(crate) fn threads(figures: &ProcessFigures) -> Option<String> {
    figures.threads.map(|n| plural(n, "thread"))
}

pub(crate) fn machine(monitor: &Monitor) -> Option<String> {
    let available = monitor.machine.memory_available_bytes.map(|n| format!("{} available", bytes(n)));
    let load = monitor.machine.load_1m.map(|n| format!("load {n:.2}"));
    join([load, available], ", ")
}

pub(crate) fn plural(n: f64, noun: &str) -> String {
    numbers::plural(n.max(0.0) as u64, noun)
}

/// What is known of `parts`; `None` if nothing is.
pub(crate) fn join(parts: impl IntoIterator<Item = Option<String>>, by: &str) -> Option<String> {
    let known: Vec<String> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(by))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture of the screen in the documentation says what the screen says.
    #[test]
    fn the_picture_has_the_phrases_of_the_program() {
        let (token_phase, rate) = (Some("decode".to_string()), Some(34.0));
        let figures =
            ProgramFigures { token_phase, tokens_per_s: rate, working_tokens_per_s: rate, ..ProgramFigures::default() };
        let picture = format!("{}/docs/images/monitor.svg", candlescope_testkit::ROOT);
        let picture = std::fs::read_to_string(picture).expect("a picture");
        for said in [recent_tokens(&figures), working_tokens(&figures)] {
            let said = said.expect("both rates are known");
            let (_, words) = said.split_once(" tokens/s").expect("a rate");
            assert!(picture.contains(&format!(" tokens/s{words}")), "`{words}` is not in the picture");
        }
    }
}
