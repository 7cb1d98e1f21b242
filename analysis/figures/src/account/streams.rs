//! Each stream by itself: why it was idle, and how much work was in its queue.

use super::context::Context;
use super::recorded::RecordedTime;
use super::spread::Spread;
use super::works::{DeviceWorks, NONE, Work, by_stream, unbroken};
use crate::gaps::{Gap, GapSum, classify, divide};
use candlescope_schema::stretches::Stretch;
use serde::Serialize;

/// One stream while work was recorded. Another stream may have worked in its gaps. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamAccount {
    /// Number of the stream.
    pub stream: u32,
    /// Kernels, copies and memsets.
    pub records: u64,
    /// Time in which something ran in it.
    pub busy_ns: u64,
    /// Gaps whose next work was launched after the one before had ended [HTA `host_wait`, which asks for the begin of the
    /// launching call, where this asks for its end]. `None`, as all that depends on the clocks of host and device, if
    /// these cannot be compared.
    pub host_wait: Option<GapSum>,
    /// Other gaps shorter than what a device needs between two kernels [HTA `kernel_wait`].
    pub kernel_wait: Option<GapSum>,
    /// All other gaps: the launch was early enough, or nothing is known about it. `None` like `host_wait`.
    pub other: Option<GapSum>,
    /// Gaps for which the clocks are not exact enough to tell.
    pub uncertain: Option<GapSum>,
    /// Work in its queue; `None` if no launch calls were recorded.
    pub queue: Option<QueueLength>,
}

/// Work that was launched and had not begun.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct QueueLength {
    /// Length after each launch and each start on the device, as HTA describes it.
    pub at_changes: Spread,
    /// Mean over the time in which work was recorded, from the first change to the last.
    pub mean_over_time: f64,
    /// Share of that time in which the queue was empty.
    pub empty_share: f64,
}

/// The streams of a device.
pub(super) fn streams(device: &DeviceWorks, recorded: &RecordedTime, context: &Context<'_>) -> Vec<StreamAccount> {
    let indices = by_stream(&device.work, |work| work.counts);
    indices.into_iter().map(|(stream, list)| one(stream, &device.work, list, recorded, context)).collect()
}

fn one(stream: u32, work: &[Work], indices: Vec<u32>, recorded: &RecordedTime, context: &Context<'_>) -> StreamAccount {
    let blocks = unbroken(work, indices.iter().copied());
    let bound_ns = context.clocks.within();
    let mut sums = [GapSum::default(); 4];
    let divided = divide(&blocks, &recorded.on_device, |_, after, idle_from, ns| {
        let ready = work[after.first as usize].ready();
        let at = match classify(ready, idle_from, ns, bound_ns.unwrap_or(u64::MAX), context.options.overhead_ns) {
            Gap::HostBound => 0,
            Gap::LaunchOverhead => 1,
            Gap::Other => 2,
            Gap::Uncertain => 3,
        };
        sums[at].add(ns);
    });
    let [host_wait, kernel_wait, other, uncertain] = sums.map(|sum| bound_ns.map(|_| sum));
    StreamAccount {
        stream,
        records: indices.len() as u64,
        busy_ns: divided.busy_ns,
        host_wait,
        kernel_wait,
        other,
        uncertain,
        queue: bound_ns.and_then(|_| queue(work, &indices, &recorded.with_launches)),
    }
}

/// How much of a row of stretches lies in the times asked for, which come in order.
struct TimeWithin<'a> {
    stretches: &'a [Stretch],
}

impl TimeWithin<'_> {
    fn ns(&mut self, from: i64, to: i64) -> u64 {
        while self.stretches.first().is_some_and(|(_, end)| *end <= from) {
            self.stretches = &self.stretches[1..];
        }
        let parts = self.stretches.iter().take_while(|(start, _)| *start < to);
        parts.map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from)).max(0).unsigned_abs()).sum()
    }
}

/// How often each length was met.
#[derive(Default)]
struct Counts {
    /// By length.
    from_0: Vec<u64>,
    /// Of −1, −2, ….
    below_0: Vec<u64>,
}

impl Counts {
    fn add(&mut self, length: i64) {
        let (list, at) = if length < 0 { (&mut self.below_0, -(length + 1)) } else { (&mut self.from_0, length) };
        let at = at as usize;
        if list.len() <= at {
            list.resize(at + 1, 0);
        }
        list[at] += 1;
    }

    /// Lengths that were met, in ascending order, and how often.
    fn in_order(&self) -> impl Iterator<Item = (i64, u64)> {
        let below = self.below_0.iter().enumerate().rev().map(|(at, n)| (-1 - at as i64, *n));
        below.chain(self.from_0.iter().enumerate().map(|(at, n)| (at as i64, *n))).filter(|(_, n)| *n > 0)
    }
}

/// Launches and starts on the device in order of time; of those at the same time, launches first.
fn queue(work: &[Work], indices: &[u32], recorded: &[Stretch]) -> Option<QueueLength> {
    let known = || indices.iter().map(|at| &work[*at as usize]).filter(|work| work.launch != NONE);
    let mut launches: Vec<i64> = known().map(|work| work.launch).collect();
    launches.sort_unstable();
    let starts = known().map(|work| work.start);
    let (mut length, mut counts) = (0_i64, Counts::default());
    let (mut before, mut weighted, mut empty, mut span) = (None, 0.0, 0_u64, 0_u64);
    let mut within = TimeWithin { stretches: recorded };
    let mut change = |at: i64, by: i64| {
        let ns = within.ns(before.replace(at).unwrap_or(at), at);
        span = span.saturating_add(ns);
        weighted += ns as f64 * length.max(0) as f64;
        empty += if length <= 0 { ns } else { 0 };
        length += by;
        counts.add(length);
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
    // Clocks that are a little apart can make a start come before its launch: the length is then −1 for a moment.
    let counts: Vec<(i64, u64)> = counts.in_order().collect();
    let lowest = counts.first()?.0;
    let shifted: Vec<(u64, u64)> = counts.iter().map(|(length, n)| (length.abs_diff(lowest), *n)).collect();
    let at_changes = Spread::of_counts(&shifted)?.shifted(lowest as f64);
    let span = span.max(1) as f64;
    Some(QueueLength { at_changes, mean_over_time: weighted / span, empty_share: empty as f64 / span })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_on_both_sides_of_0() {
        let mut counts = Counts::default();
        [1, 0, -1, -2, -3, -2, 3].into_iter().for_each(|length| counts.add(length));
        assert_eq!(counts.in_order().collect::<Vec<_>>(), [(-3, 1), (-2, 2), (-1, 1), (0, 1), (1, 1), (3, 1)]);
        assert_eq!(Counts::default().in_order().next(), None);
    }
}
