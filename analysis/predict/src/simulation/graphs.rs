//! Launches replaced by a graph's.

use super::step_model::{DeviceWork, Facts, HostPart, Parts};
use candlescope_work::estimate::{Case, Estimate};

/// What launching a graph takes on the host, in nanoseconds. Documented, not measured here: 2.5 µs and about 1 ns a
/// node for a graph without branches since CUDA 12.6, 2 µs and 0.2 µs a node before [NVIDIA, *Constant Time Launch for
/// Straight-Line CUDA Graphs*, 2024].
const LAUNCH_NS: Estimate = Estimate { low: 2_500.0, mid: 5_000.0, high: 10_000.0 };
/// And for each node.
const NODE_NS: Estimate = Estimate { low: 1.0, mid: 20.0, high: 200.0 };

/// Replaces the calls between two waits of the host, from the first that launches a kernel to the last, and the host's
/// work between them, by one call. Copies between host and device before the first and after the last stay: they bring
/// the input and fetch the result. Returns whether there was anything to replace.
///
/// The device's time becomes that of the works and a graph's gap before each. Copies from the host inside go, as a
/// graph holds what they bring (candle's are of shapes, and of constants); only the highest time has them.
pub(super) fn capture(facts: &Facts, parts: &mut Parts, case: Case) -> bool {
    let mut out: Vec<HostPart> = Vec::new();
    let mut any = false;
    for row in parts.host.split_inclusive(|part| matches!(part, HostPart::Wait { .. })) {
        let computes = |part: &HostPart| match part {
            HostPart::Call { first, count, .. } => launched(&parts.works, *first, *count).iter().any(is_node),
            _ => false,
        };
        let (from, to) = (row.iter().position(computes), row.iter().rposition(computes));
        let (Some(from), Some(to)) = (from, to) else {
            out.extend_from_slice(row);
            continue;
        };
        let calls = row[from..=to].iter().filter_map(|part| match part {
            HostPart::Call { first, count, place, .. } => Some((*first, *count, *place)),
            _ => None,
        });
        let calls: Vec<(u32, u32, u32)> = calls.collect();
        let (Some(first), Some(last)) = (calls.first(), calls.last()) else { continue };
        if calls.len() < 2 {
            out.extend_from_slice(row);
            continue;
        }
        any = true;
        let count = last.0 + last.1 - first.0;
        let range = first.0 as usize..(first.0 + count) as usize;
        let nodes = parts.works[range.clone()].iter().filter(|work| !work.gone).count();
        let ns = LAUNCH_NS.at(case) + NODE_NS.at(case) * nodes as f64;
        out.extend_from_slice(&row[..from]);
        out.push(HostPart::Call { ns, place: first.2, first: first.0, count });
        out.extend_from_slice(&row[to + 1..]);
        let gap = facts.graph_gap_ns.at(case);
        for (at, work) in parts.works[range].iter_mut().enumerate() {
            if work.of_input() && case != Case::High {
                (work.gone, work.ns) = (true, 0.0);
            }
            // The first node waits for the launch; the others are then in the queue.
            if at > 0 {
                work.delay_ns = 0.0;
                work.queue_ns = gap;
                work.also = work.also.map(|(on, _)| (on, gap));
            }
        }
    }
    parts.host = out;
    any
}

/// What a call launches.
pub(super) fn launched(works: &[DeviceWork], first: u32, count: u32) -> &[DeviceWork] {
    works.get(first as usize..first.saturating_add(count) as usize).unwrap_or_default()
}

/// What a graph is made for: not a copy to or from the host.
fn is_node(work: &DeviceWork) -> bool {
    !work.gone && !work.to_host() && !work.of_input()
}
