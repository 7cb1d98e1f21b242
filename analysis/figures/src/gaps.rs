//! When a device was busy and why it was idle: merges what ran, and classifies each gap.
//!
//! Overlapping intervals are merged first; a gap is what lies between two merged ones [HTA
//! `hta/analyzers/breakdown_analysis.py`, `get_idle_time_breakdown`]. Everything is a figure of one *device* within
//! windows of time, whoever launched the work: two threads that keep a device busy in turns keep it busy.

use candlescope_schema::stretches::{Stretch, length};
use serde::Serialize;

/// A kernel, copy or memset on one device. Times are Unix nanoseconds. As small as it can be: there may be tens of
/// millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Start on the device.
    pub start_ns: i64,
    /// End on the device.
    pub end_ns: i64,
    /// The largest number means that it is not known; so it does in the next two.
    ready_ns: i64,
    queue_delay_ns: u64,
    path: u32,
    /// Stream it ran in.
    pub stream: u32,
    /// A kernel, not a copy or memset.
    pub is_kernel: bool,
}

impl Activity {
    /// Of which no launch and no path is known.
    pub fn new(start_ns: i64, end_ns: i64, stream: u32, is_kernel: bool) -> Self {
        let (ready_ns, queue_delay_ns, path) = (i64::MAX, u64::MAX, u32::MAX);
        Self { start_ns, end_ns, ready_ns, queue_delay_ns, path, stream, is_kernel }
    }

    /// The same, launched: see [`ready_ns`](Self::ready_ns()) and [`queue_delay_ns`](Self::queue_delay_ns()).
    #[must_use]
    pub fn launched(self, ready_ns: Option<i64>, queue_delay_ns: Option<u64>) -> Self {
        let (ready_ns, queue_delay_ns) = (ready_ns.unwrap_or(i64::MAX), queue_delay_ns.unwrap_or(u64::MAX));
        Self { ready_ns, queue_delay_ns, ..self }
    }

    /// The same, launched by the path of this number.
    #[must_use]
    pub fn by(self, path: Option<u32>) -> Self {
        Self { path: path.unwrap_or(u32::MAX), ..self }
    }

    /// When the device could have begun it, as far as its launching call tells. `None` if that is not known.
    #[inline]
    pub fn ready_ns(&self) -> Option<i64> {
        Some(self.ready_ns).filter(|ns| *ns != i64::MAX)
    }

    /// From the end of that call to the start on the device, 0 if the device started before the call returned; `None` if
    /// it is not known.
    #[inline]
    pub fn queue_delay_ns(&self) -> Option<u64> {
        Some(self.queue_delay_ns).filter(|ns| *ns != u64::MAX)
    }

    /// Number of the path (without ordinals) that launched it, if one did.
    #[inline]
    pub fn path(&self) -> Option<u32> {
        Some(self.path).filter(|path| *path != u32::MAX)
    }
}

/// A gap shorter than this is the time that the device needs between two kernels that are both in its queue.
pub const LAUNCH_OVERHEAD_NS: u64 = 1_500;

/// Why the device was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// The device had run out of work before the call that launched the next one had returned. The gap has two parts: until
    /// then the device waited for the host, afterwards for the launch to arrive.
    HostBound,
    /// Shorter than [`LAUNCH_OVERHEAD_NS`] or another limit that was asked for, and neither host-bound nor uncertain.
    LaunchOverhead,
    /// The end of the launch and the moment when the device ran out of work are closer together than the error bound of
    /// the clocks: which came first is not known.
    Uncertain,
    /// None of these: the launch was early enough but something else delayed the work, or nothing is known about the
    /// launch.
    Other,
}

/// Number and sum of gaps of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct GapSum {
    /// Number of gaps that were added, of one device or of several together.
    pub n: u64,
    /// How long together, in nanoseconds.
    pub ns: u64,
}

impl GapSum {
    /// Adds one of so many nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.n += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    /// Adds a gap, unless it is none.
    pub fn add_some(&mut self, ns: u64) {
        if ns > 0 {
            self.add(ns);
        }
    }

    /// Adds another device's gaps of the same kind.
    pub fn plus(&mut self, other: GapSum) {
        self.n = self.n.saturating_add(other.n);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// A stretch of time in which a device worked without a break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Start of its first work on the device, Unix nanoseconds.
    pub start_ns: i64,
    /// End of the work in it that ended last, Unix nanoseconds.
    pub end_ns: i64,
    /// When the device could have begun the first work in it.
    pub ready_ns: Option<i64>,
}

/// What ran, in any order, as blocks in order of start that do not touch each other.
pub fn blocks<'a>(activities: impl IntoIterator<Item = &'a Activity>) -> Vec<Block> {
    let (mut merged, mut late): (Vec<Block>, Vec<Block>) = Default::default();
    let block = |a: &Activity| Block { start_ns: a.start_ns, end_ns: a.end_ns.max(a.start_ns), ready_ns: a.ready_ns() };
    // There may be tens of millions of them, nearly in order: only what comes late is sorted in.
    for block in activities.into_iter().map(block) {
        match merged.last_mut() {
            Some(last) if block.start_ns < last.start_ns => late.push(block),
            Some(last) if block.start_ns <= last.end_ns => last.end_ns = last.end_ns.max(block.end_ns),
            _ => merged.push(block),
        }
    }
    if late.is_empty() {
        return merged;
    }
    late.append(&mut merged);
    late.sort_by_key(|b| (b.start_ns, b.end_ns));
    for block in late {
        match merged.last_mut() {
            Some(last) if block.start_ns <= last.end_ns => last.end_ns = last.end_ns.max(block.end_ns),
            _ => merged.push(block),
        }
    }
    merged
}

/// Time in which any of them ran, in nanoseconds: the length of their [`blocks`] together.
pub fn merged_ns<'a, I: Iterator<Item = &'a Activity>>(activities: impl Fn() -> I) -> u64 {
    let (mut sum, mut open): (u64, Option<Stretch>) = (0, None);
    for one in activities() {
        match &mut open {
            // Not in order.
            Some((start, _)) if one.start_ns < *start => {
                let blocks = blocks(activities());
                return blocks.iter().map(|b| b.end_ns.abs_diff(b.start_ns)).fold(0, u64::saturating_add);
            }
            Some((_, end)) if one.start_ns <= *end => *end = (*end).max(one.end_ns),
            _ => {
                sum = open.map_or(0, |(start, end)| sum.saturating_add(end.abs_diff(start)));
                open = Some((one.start_ns, one.end_ns.max(one.start_ns)));
            }
        }
    }
    open.map_or(sum, |(start, end)| sum.saturating_add(end.abs_diff(start)))
}

/// How a device's time divides within windows. `wall_ns` = `busy_ns` + all gaps + `edges_ns`, to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Length of the windows.
    pub wall_ns: u64,
    /// Time in which at least one activity ran.
    pub busy_ns: u64,
    /// Gaps that are [`Gap::HostBound`], each until its launch had returned.
    pub host_bound: GapSum,
    /// The rest of these gaps: from the end of the launch to the start on the device.
    pub launch_latency: GapSum,
    /// Gaps that are [`Gap::LaunchOverhead`].
    pub launch_overhead: GapSum,
    /// Gaps that are [`Gap::Uncertain`].
    pub uncertain: GapSum,
    /// Gaps that are [`Gap::Other`].
    pub other: GapSum,
    /// Time at a window's ends: before anything ran in it, and after the last.
    pub edges_ns: u64,
}

impl Occupancy {
    /// Divides the `windows`, which are in order and do not overlap, by the `blocks` of one device. `bound_ns` is how
    /// far the device's times may be off on the host's time line.
    pub fn within(blocks: &[Block], windows: &[(i64, i64)], bound_ns: u64) -> Self {
        let mut out = Self::default();
        let divided = divide(blocks, windows, |_, after, idle_from, ns| {
            match classify(after.ready_ns, idle_from, ns, bound_ns, LAUNCH_OVERHEAD_NS) {
                Gap::HostBound => {
                    let (host, rest) = host_part(after.ready_ns, idle_from, ns);
                    out.host_bound.add(host);
                    out.launch_latency.add_some(rest);
                }
                Gap::LaunchOverhead => out.launch_overhead.add(ns),
                Gap::Uncertain => out.uncertain.add(ns),
                Gap::Other => out.other.add(ns),
            }
        });
        Self { wall_ns: divided.wall_ns, busy_ns: divided.busy_ns, edges_ns: divided.edges_ns, ..out }
    }
}

/// Something that takes a stretch of a device's time.
pub trait HasStretch {
    /// Start and end, Unix nanoseconds.
    fn stretch(&self) -> (i64, i64);
}

impl HasStretch for Block {
    fn stretch(&self) -> (i64, i64) {
        (self.start_ns, self.end_ns)
    }
}

/// How windows divide; what is missing to `wall_ns` are the gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowDivision {
    /// Length of the windows.
    pub wall_ns: u64,
    /// Time in a block.
    pub busy_ns: u64,
    /// Time at a window's ends: before its first block, and after its last.
    pub edges_ns: u64,
}

/// Divides `windows`, in order and apart, by `blocks`, in order and apart. `gap` is called with the blocks before and
/// after each gap, its start and its length.
pub fn divide<B: HasStretch>(
    blocks: &[B],
    windows: &[(i64, i64)],
    mut gap: impl FnMut(&B, &B, i64, u64),
) -> WindowDivision {
    let mut out = WindowDivision { wall_ns: length(windows), ..WindowDivision::default() };
    let mut at = 0;
    for &(from, to) in windows {
        while blocks.get(at).is_some_and(|block| block.stretch().1 <= from) {
            at += 1;
        }
        let mut before: Option<(&B, i64)> = None;
        // A block may reach into the next window: it is looked at again there.
        for block in blocks[at..].iter().take_while(|block| block.stretch().0 < to) {
            let (start, end) = block.stretch();
            let (start, end) = (start.max(from), end.min(to));
            match before {
                None => out.edges_ns = out.edges_ns.saturating_add(start.abs_diff(from)),
                Some((before, idle_from)) => gap(before, block, idle_from, start.abs_diff(idle_from)),
            }
            out.busy_ns = out.busy_ns.saturating_add(end.abs_diff(start));
            before = Some((block, end));
        }
        out.edges_ns = out.edges_ns.saturating_add(to.abs_diff(before.map_or(from, |(_, idle_from)| idle_from)));
    }
    out
}

/// When the device could have begun a work that started at `start` and was launched by `call` (begin and end): when the
/// call had returned, because the work is in the queue only towards its end. `alone`: the call launched one kernel and
/// nothing else.
///
/// If the device began before the call returned, a kernel that was launched alone was there when it began. A copy may be
/// all its call waits for, and of the kernels of a graph only the first one waits for the call: for these the begin of
/// the call is taken.
#[inline]
pub fn ready(call: Option<(i64, i64)>, start: i64, alone: bool) -> Option<i64> {
    let (begin, end) = call?;
    Some(match () {
        () if end <= start => end,
        () if alone => start,
        () => begin.min(start),
    })
}

/// Classifies the gap of `ns` between `idle_from`, when the device ran out of work, and a work that could begin at
/// `ready_ns`. A gap below `overhead_ns` is launch overhead.
#[inline]
pub fn classify(ready_ns: Option<i64>, idle_from: i64, ns: u64, bound_ns: u64, overhead_ns: u64) -> Gap {
    let after = |ready: i64| ready.saturating_sub(idle_from);
    match ready_ns.map(after) {
        Some(after) if after > 0 && after.unsigned_abs() > bound_ns => Gap::HostBound,
        Some(after) if after.unsigned_abs() <= bound_ns && bound_ns > 0 => Gap::Uncertain,
        _ if ns < overhead_ns => Gap::LaunchOverhead,
        _ => Gap::Other,
    }
}

/// Divides a host-bound gap of `ns`: before the work was there, and after.
#[inline]
pub fn host_part(ready_ns: Option<i64>, idle_from: i64, ns: u64) -> (u64, u64) {
    let host = ready_ns.map_or(ns, |ready| ready.saturating_sub(idle_from).max(0).unsigned_abs()).min(ns);
    (host, ns - host)
}
