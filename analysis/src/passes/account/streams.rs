//! Each stream by itself: why it was idle, and how much work was in its queue.

use super::spread::Spread;
use super::works::{DeviceWorks, NONE, Work, by_stream, unbroken};
use crate::passes::gaps::{Gap, GapSum, classify, divide};
use serde::Serialize;
use std::collections::BTreeMap;

/// One stream, from its first start to its last end. Another stream may have worked in its gaps. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamAccount {
    /// Number of the stream.
    pub stream: u32,
    /// Kernels, copies and memsets.
    pub records: u64,
    /// Time in which something ran in it.
    pub busy_ns: u64,
    /// Gaps whose next work was launched after the one before had ended [HTA `host_wait`].
    pub host_wait: GapSum,
    /// Other gaps shorter than what a device needs between two kernels [HTA `kernel_wait`].
    pub kernel_wait: GapSum,
    /// All others.
    pub other: GapSum,
    /// Work in its queue; `None` if no launch calls were recorded.
    pub queue: Option<QueueLength>,
}

/// Work that was launched and had not begun.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QueueLength {
    /// Length after each launch and each start on the device, as HTA describes it.
    pub at_changes: Spread,
    /// Mean over time, from the first change to the last.
    pub mean_over_time: f64,
    /// Share of that time in which the queue was empty.
    pub empty_share: f64,
}

/// The streams of a device.
pub(super) fn streams(device: &DeviceWorks, overhead_ns: u64) -> Vec<StreamAccount> {
    let indices = by_stream(&device.work, |work| work.counts);
    indices.into_iter().map(|(stream, list)| one(stream, &device.work, list, overhead_ns)).collect()
}

fn one(stream: u32, work: &[Work], indices: Vec<u32>, overhead_ns: u64) -> StreamAccount {
    let blocks = unbroken(work, indices.iter().copied());
    let window = blocks.first().zip(blocks.last()).map(|(first, last)| (first.start, last.end));
    let (mut host_wait, mut kernel_wait, mut other) = (GapSum::default(), GapSum::default(), GapSum::default());
    // HTA knows no error of the clocks, and this is its figure.
    let divided = divide(&blocks, window.as_slice(), |_, after, idle_from, ns| {
        let launch = work[after.first as usize].call().map(|(start, _)| start);
        let sum = match classify(launch, idle_from, ns, 0, overhead_ns) {
            Gap::HostBound => &mut host_wait,
            Gap::LaunchOverhead => &mut kernel_wait,
            Gap::Uncertain | Gap::Other => &mut other,
        };
        sum.add(ns);
    });
    let records = indices.len() as u64;
    let queue = queue(work, &indices);
    StreamAccount { stream, records, busy_ns: divided.busy_ns, host_wait, kernel_wait, other, queue }
}

/// Launches and starts on the device in order of time; of those at the same time, launches first.
fn queue(work: &[Work], indices: &[u32]) -> Option<QueueLength> {
    let known = || indices.iter().map(|at| &work[*at as usize]).filter(|work| work.launch != NONE);
    let mut launches: Vec<i64> = known().map(|work| work.launch).collect();
    launches.sort_unstable();
    let starts = known().map(|work| work.start);
    let (mut length, mut counts) = (0_i64, BTreeMap::<i64, u64>::new());
    let (mut before, mut weighted, mut empty) = (None, 0.0, 0_u64);
    let first = launches.first().copied()?.min(known().map(|work| work.start).next()?);
    let mut change = |at: i64, by: i64| {
        let ns = at.abs_diff(before.replace(at).unwrap_or(at));
        weighted += ns as f64 * length.max(0) as f64;
        empty += if length <= 0 { ns } else { 0 };
        length += by;
        *counts.entry(length).or_default() += 1;
    };
    let mut next = 0;
    for start in starts {
        while launches.get(next).is_some_and(|launch| *launch <= start) {
            change(launches[next], 1);
            next += 1;
        }
        change(start, -1);
    }
    launches[next..].iter().for_each(|launch| change(*launch, 1));
    let last = before.unwrap_or(first);
    // Clocks that are a little apart can make a start come before its launch: the length is then −1 for a moment.
    let lowest = *counts.keys().next()?;
    let shifted: Vec<(u64, u64)> = counts.iter().map(|(length, n)| (length.abs_diff(lowest), *n)).collect();
    let at_changes = Spread::of_counts(&shifted)?.shifted(lowest as f64);
    let span = last.abs_diff(first).max(1) as f64;
    Some(QueueLength { at_changes, mean_over_time: weighted / span, empty_share: empty as f64 / span })
}
