//! Collapsed stacks weighted by self time, as flame graph tools read them: `decode;block;attn;linear 12345`.

use super::host_time::{HostTime, PlaceTime, Weights};
use super::stats::total;
use super::tree::Tree;
use std::collections::BTreeMap;

/// Deeper stacks are cut off here: no screen shows them.
const DEEPEST: usize = 256;

/// One line for each node with self time, sorted. The weight is nanoseconds; names contain neither `;` nor line breaks.
pub fn collapsed(tree: &Tree) -> Vec<String> {
    let mut stack: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for row in &tree.rows {
        stack.truncate(row.depth);
        stack.push(frame_name(&row.label));
        if row.self_ns > 0 {
            let frames = &stack[..stack.len().min(DEEPEST)];
            lines.push(format!("{} {}", frames.join(";"), row.self_ns));
        }
    }
    lines.sort();
    lines
}

/// Which time a flame graph with functions shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlameTime {
    /// That of the threads that entered the intervals: the intervals' own time, divided among functions as sampled.
    Elapsed,
    /// On a CPU, the threads of pools included, as sampled.
    OnCpu,
    /// Off the CPU, as recorded.
    OffCpu,
}

/// Name of what threads of pools did, below an interval.
pub const POOL: &str = "[pool]";
/// Name of time in the operating system's kernel, below the function that called it.
pub const KERNEL: &str = candlescope_schema::KERNEL_FRAME;
/// Name of time spent waiting, below the function that waits.
pub const BLOCKED: &str = "[blocked]";
/// Name of time in which another thread had the CPU.
pub const PREEMPTED: &str = "[preempted]";

/// The same as [`collapsed`], with the functions that the intervals' time went into below the intervals.
pub fn collapsed_functions(tree: &Tree, host: &HostTime, shown: FlameTime) -> Vec<String> {
    let mut stack: Vec<String> = Vec::new();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for row in &tree.rows {
        stack.truncate(row.depth);
        stack.push(frame_name(&row.label));
        let place = host.places.get(&row.rollup).filter(|_| row.path.is_some());
        let Some(place) = place else {
            if shown == FlameTime::Elapsed && row.self_ns > 0 {
                add(&mut lines, stack.join(";"), row.self_ns);
            }
            continue;
        };
        let parts = parts(place, shown);
        let sampled = total(parts.iter().map(|(_, ns)| *ns));
        // What was sampled divides what was measured.
        let scale = match shown {
            FlameTime::Elapsed if sampled > 0 => row.self_ns as f64 / sampled as f64,
            FlameTime::Elapsed => {
                add(&mut lines, stack.join(";"), row.self_ns);
                continue;
            }
            FlameTime::OnCpu | FlameTime::OffCpu => 1.0,
        };
        for (below, ns) in parts {
            let frames = stack.iter().map(String::as_str).chain(below.iter().map(String::as_str));
            let line = frames.take(DEEPEST).collect::<Vec<_>>().join(";");
            add(&mut lines, line, (ns as f64 * scale).round() as u64);
        }
    }
    lines.into_iter().filter(|(_, ns)| *ns > 0).map(|(line, ns)| format!("{line} {ns}")).collect()
}

fn add(lines: &mut BTreeMap<String, u64>, line: String, ns: u64) {
    let sum = lines.entry(line).or_default();
    *sum = sum.saturating_add(ns);
}

/// The time of a place by the names below it, nanoseconds.
fn parts(place: &PlaceTime, shown: FlameTime) -> Vec<(Vec<String>, u64)> {
    let mut parts = Vec::new();
    let mut rest = place.all;
    let mut add = |below: &[String], time: &Weights| {
        let mut put = |kind: Option<&str>, ns: u64| {
            if ns > 0 {
                parts.push((below.iter().cloned().chain(kind.map(str::to_string)).collect(), ns));
            }
        };
        let (on, off) = (shown != FlameTime::OffCpu, shown != FlameTime::OnCpu);
        let own = time.own_ns.min(if on { u64::MAX } else { 0 });
        let pool = time.pool_ns.min(if shown == FlameTime::OnCpu { u64::MAX } else { 0 });
        let on_cpu = own.saturating_add(pool);
        let kernel = time.kernel_ns.min(on_cpu);
        put(None, on_cpu - kernel);
        put(Some(KERNEL), kernel);
        if off {
            put(Some(BLOCKED), time.blocked_ns);
            put(Some(PREEMPTED), time.preempted_ns);
        }
    };
    for (at, node) in place.calls.nodes.iter().enumerate() {
        rest = rest.less(&node.own);
        if node.own == Weights::default() {
            continue;
        }
        let pool = node.pool.then(|| POOL.to_string());
        let chain = place.calls.chain(at).into_iter().map(|name| frame_name(&name.function));
        let below: Vec<String> = pool.into_iter().chain(chain).collect();
        add(&below, &node.own);
    }
    add(&[], &rest);
    parts
}

/// A name without characters that would end a frame or a line.
pub fn frame_name(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c == ';' || c.is_control() { '_' } else { c }).collect();
    if clean.trim().is_empty() { "(unnamed)".to_string() } else { clean }
}
