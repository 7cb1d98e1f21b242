//! What a launching call costs while other threads launch, too.

use super::works::{DeviceWorks, NONE, Work};
use rustc_hash::FxHashMap;

/// Calls that are looked at, from the first on: a median does not change with more.
const MOST: usize = 2_000_000;
/// Fewer calls have no median to rely on.
const FEWEST: usize = 50;

/// Calls that launched kernels in steps of a kind, by whether other threads were in such a call meanwhile. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchContention {
    /// Threads that made the calls that were looked at; at least two.
    pub threads: u64,
    /// Calls in all of these steps.
    pub calls: u64,
    /// Calls that were looked at.
    pub looked_at: u64,
    /// Share of those during which another thread was in one.
    pub beside_share: f64,
    /// Of calls during which another thread was in one.
    pub beside: CallTime,
    /// Of calls during which no other thread was in one; absent if they are too few.
    pub alone: Option<CallTime>,
    /// The duration that one call in twenty does not exceed.
    pub quick_ns: f64,
}

/// How long calls take, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallTime {
    /// Calls that this is over; at least 50.
    pub n: u64,
    /// Median duration of one call; of an even number the upper of the middle two.
    pub median_ns: f64,
    /// Mean duration of one call, long waits included.
    pub mean_ns: f64,
}

impl CallTime {
    fn of(mut list: Vec<u64>) -> Option<Self> {
        let n = list.len();
        if n < FEWEST {
            return None;
        }
        let mean_ns = list.iter().map(|ns| *ns as f64).sum::<f64>() / n as f64;
        Some(Self { n: n as u64, median_ns: *list.select_nth_unstable(n / 2).1 as f64, mean_ns })
    }
}

/// A launching call: start, end, thread, kind of step.
#[derive(Debug, Clone, Copy)]
struct Call {
    start: i64,
    end: i64,
    thread: u64,
    kind: usize,
}

/// By kind of step; `None` where one thread launches. `kind_of` says which kind a kernel's step is of.
pub(super) fn contention(
    device: &DeviceWorks,
    kinds: usize,
    kind_of: impl Fn(&Work) -> Option<usize>,
) -> Vec<Option<LaunchContention>> {
    let mut all_calls = vec![0u64; kinds];
    let mut calls: Vec<Call> = Vec::new();
    for work in device.work.iter().filter(|work| work.is_kernel() && !work.in_graph && work.launch != NONE) {
        let (Some(kind), Some(thread)) = (kind_of(work), work.thread()) else { continue };
        all_calls[kind] += 1;
        // All kinds end at the same time, so that none looks alone from then on.
        if calls.len() < MOST {
            calls.push(Call { start: work.launch, end: work.launch_end, thread, kind });
        }
    }
    if calls.iter().all(|call| call.thread == calls[0].thread) {
        return vec![None; kinds];
    }
    calls.sort_unstable_by_key(|call| (call.start, call.end));
    let beside = beside_others(&calls);
    (0..kinds)
        .map(|kind| {
            let own = || calls.iter().zip(&beside).filter(|(call, _)| call.kind == kind);
            let mut threads: Vec<u64> = own().map(|(call, _)| call.thread).collect();
            threads.sort_unstable();
            threads.dedup();
            let ns = |want: Option<bool>| -> Vec<u64> {
                let wanted = own().filter(|(_, beside)| want.is_none_or(|want| **beside == want));
                wanted.map(|(call, _)| call.end.abs_diff(call.start)).collect()
            };
            let mut all = ns(None);
            if threads.len() < 2 || all.len() < FEWEST {
                return None;
            }
            let n = all.len();
            let quick_ns = *all.select_nth_unstable(n / 20).1 as f64;
            let beside = CallTime::of(ns(Some(true)))?;
            Some(LaunchContention {
                threads: threads.len() as u64,
                calls: all_calls[kind],
                looked_at: n as u64,
                beside_share: beside.n as f64 / n as f64,
                beside,
                alone: CallTime::of(ns(Some(false))),
                quick_ns,
            })
        })
        .collect()
}

/// For each call, in order of start, whether one of another thread overlaps it.
fn beside_others(calls: &[Call]) -> Vec<bool> {
    let mut beside = vec![false; calls.len()];
    // The last call of each thread that has begun: calls of one thread follow one another.
    let mut open: FxHashMap<u64, usize> = FxHashMap::default();
    for (at, call) in calls.iter().enumerate() {
        open.retain(|_, other| calls[*other].end > call.start);
        for other in open.iter().filter(|(thread, _)| **thread != call.thread).map(|(_, other)| *other) {
            beside[other] = true;
            beside[at] = true;
        }
        open.insert(call.thread, at);
    }
    beside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_overlap_those_of_other_threads_alone() {
        let call = |start, end, thread| Call { start, end, thread, kind: 0 };
        let calls = [call(0, 10, 1), call(5, 8, 2), call(8, 12, 2), call(12, 14, 1), call(20, 30, 3), call(30, 31, 1)];
        assert_eq!(beside_others(&calls), [true, true, true, false, false, false]);
    }
}
