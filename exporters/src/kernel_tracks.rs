//! Where kernels, copies, memsets and their launch calls go on a timeline, and what timelines say about them. Pure.

use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, HostNs, KernelKind, KernelRecord, SpanRecord, thread_of};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// What a lane and a thread remember: more than lie out of order in a run.
const RECENT: usize = 256;

/// Intervals whose kernels came first, without a launch call: so many wait for their slice to draw the arrow from.
/// Beyond that they are forgotten, and their kernels have no arrow.
const MOST_WAITING: usize = 1 << 20;

/// The numbers of an interval that timelines show as arguments, beside its `seq`.
pub(crate) fn span_numbers(span: &SpanRecord) -> [(&'static str, Option<u64>); 9] {
    [
        ("step", span.step),
        ("flops", span.flops),
        ("bytes", span.bytes),
        ("io_bytes", span.io_bytes),
        ("tokens", span.tokens.map(u64::from)),
        ("context_len", span.context_len.map(u64::from)),
        ("batch", span.batch.map(u64::from)),
        ("graph", span.graph.map(u64::from)),
        ("derived", span.derived.map(u64::from)),
    ]
}

/// The numbers of a kernel, copy or memset.
pub(crate) fn kernel_numbers(kernel: &KernelRecord) -> [(&'static str, Option<u64>); 11] {
    [
        ("seq", kernel.seq),
        ("step", kernel.step),
        ("correlation", Some(u64::from(kernel.correlation))),
        ("bytes", kernel.bytes),
        ("queue_delay_ns", kernel.queue_delay_ns),
        ("registers", kernel.registers.map(u64::from)),
        ("shared_static", kernel.shared_static.map(u64::from)),
        ("shared_dynamic", kernel.shared_dynamic.map(u64::from)),
        ("graph", kernel.graph.map(u64::from)),
        ("graph_node", kernel.graph_node),
        ("derived", kernel.derived.map(u64::from)),
    ]
}

/// The texts of a kernel, copy or memset.
pub(crate) fn kernel_words(kernel: &KernelRecord) -> [(&'static str, Option<String>); 7] {
    let axes = |axes: Option<[u32; 3]>| axes.map(|[x, y, z]| format!("{x}x{y}x{z}"));
    [
        ("path", kernel.path.as_ref().map(|path| path.path.clone())),
        ("module", kernel.path.as_ref().and_then(|path| path.module.as_ref()).map(|module| module.to_string())),
        ("phase", kernel.phase.map(|phase| phase.as_str().to_string())),
        ("kind", Some(kernel.kind.as_str().to_string())),
        ("grid", axes(kernel.grid)),
        ("block", axes(kernel.block)),
        ("launch", kernel.launch.map(str::to_string)),
    ]
}

/// What a timeline calls it: `memcpy htod`, a kernel's own name.
pub(crate) fn kernel_name(kernel: &KernelRecord) -> String {
    match kernel.kind {
        KernelKind::Memcpy => format!("memcpy {}", kernel.name),
        KernelKind::Kernel | KernelKind::Memset => kernel.name.to_string(),
    }
}

/// Product names of the run's GPUs, by UUID, with their number.
pub(crate) fn gpus(run: &RunManifest) -> HashMap<String, (u64, String)> {
    let gpu = |(at, gpu): (usize, &serde_json::Value)| {
        let index = gpu["index"].as_u64().unwrap_or(at as u64);
        Some((gpu["uuid"].as_str()?.to_string(), (index, gpu["name"].as_str()?.to_string())))
    };
    run.gpus().iter().enumerate().filter_map(gpu).collect()
}

/// A track of kernels: a stream, or what overlaps in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Track {
    /// Its number, from 0, dense.
    pub(crate) number: u64,
    /// 0, or above where work of one stream overlaps.
    pub(crate) lane: usize,
}

/// What is on one track: slices of a track must not overlap, and work of one stream can, by a rounding error or
/// because a kernel may begin before the one before it has ended.
#[derive(Debug, Default)]
struct Lane {
    number: u64,
    recent: VecDeque<(i64, i64)>,
}

impl Lane {
    fn takes(&self, start: i64, end: i64) -> bool {
        self.recent.iter().all(|(from, to)| end <= *from || start >= *to)
    }

    /// Index of the first lane with room from `start` to `end`, which are then taken; a new one has this number.
    fn find(lanes: &mut Vec<Self>, start: i64, end: i64, number: u64) -> usize {
        let at = lanes.iter().position(|lane| lane.takes(start, end)).unwrap_or_else(|| {
            lanes.push(Self { number, recent: VecDeque::new() });
            lanes.len() - 1
        });
        remember(&mut lanes[at].recent, (start, end));
        at
    }
}

/// Appends `one`, and forgets the oldest beyond [`RECENT`].
fn remember<T>(recent: &mut VecDeque<T>, one: T) {
    if recent.len() == RECENT {
        recent.pop_front();
    }
    recent.push_back(one);
}

/// A call that launched kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// Its start, Unix nanoseconds.
    pub(crate) start: HostNs,
    /// Its duration in nanoseconds, 0 if the run does not say.
    pub(crate) ns: u64,
    /// Its name.
    pub(crate) name: &'static str,
    /// Where it goes.
    pub(crate) place: CallPlace,
}

/// Where a launch call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPlace {
    /// To the thread of this number.
    Thread(u64),
    /// Beside all threads: it lies outside every interval, and a run does not say on which thread. The number is 0, or
    /// above where such calls overlap.
    Outside(u64),
}

impl CallPlace {
    /// The name of a track for it that has no thread's.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Thread(_) => "launch calls".to_string(),
            Self::Outside(0) => "launch calls outside every interval".to_string(),
            Self::Outside(_) => "launch calls outside every interval (overlapping)".to_string(),
        }
    }
}

/// Places for kernels, and what has been drawn of them.
#[derive(Debug, Default)]
pub(crate) struct KernelTracks {
    streams: HashMap<(Arc<str>, u32), Vec<Lane>>,
    lanes: u64,
    /// Calls that have a slice, by thread: a graph's launch is one call with many kernels.
    calls: HashMap<Option<u64>, VecDeque<u32>>,
    /// Calls outside every interval.
    outside: Vec<Lane>,
    /// Intervals that a kernel without a launch call waits for.
    waiting: HashSet<u64>,
}

impl KernelTracks {
    /// Notes which intervals of this and later batches need the begin of an arrow.
    pub(crate) fn expect(&mut self, batch: &Batch) {
        for kernel in batch.kernels.iter().filter(|kernel| kernel.launch_start.is_none()) {
            if self.waiting.len() >= MOST_WAITING {
                self.waiting.clear();
            }
            self.waiting.extend(kernel.seq);
        }
    }

    /// Whether an arrow begins at this interval.
    pub(crate) fn begins_arrow(&mut self, seq: u64) -> bool {
        !self.waiting.is_empty() && self.waiting.remove(&seq)
    }

    /// Indices of a batch's kernels by start, so that lanes see them in order.
    pub(crate) fn in_order(batch: &Batch) -> Vec<usize> {
        let mut order: Vec<usize> = (0..batch.kernels.len()).collect();
        order.sort_by_key(|at| batch.kernels[*at].gpu_start);
        order
    }

    /// The track for a kernel.
    pub(crate) fn place(&mut self, kernel: &KernelRecord) -> Track {
        let (start, end) = (kernel.gpu_start.0, kernel.gpu_start.plus_ns(kernel.gpu_dur_ns).0);
        let lanes = self.streams.entry((kernel.device.clone(), kernel.stream)).or_default();
        let lane = Lane::find(lanes, start, end, self.lanes);
        let number = lanes[lane].number;
        self.lanes = self.lanes.max(number + 1);
        Track { number, lane }
    }

    /// The call that launched it, if it was recorded and has no slice yet; from now on it has.
    pub(crate) fn new_call(&mut self, kernel: &KernelRecord) -> Option<Call> {
        let (start, ns) = (kernel.launch_start?, kernel.launch_dur_ns.unwrap_or(0));
        let thread = kernel.seq.map(thread_of);
        let calls = self.calls.entry(thread).or_default();
        if calls.contains(&kernel.correlation) {
            return None;
        }
        remember(calls, kernel.correlation);
        let place = match thread {
            Some(thread) => CallPlace::Thread(thread),
            None => CallPlace::Outside(Lane::find(&mut self.outside, start.0, start.plus_ns(ns).0, 0) as u64),
        };
        Some(Call { start, ns, name: kernel.launch.unwrap_or("launch"), place })
    }
}

/// Number of the arrow to a kernel: of its call, or of the interval that launched it.
pub(crate) fn arrow(kernel: &KernelRecord) -> Option<u64> {
    match kernel.launch_start {
        Some(_) => Some(u64::from(kernel.correlation)),
        None => kernel.seq.map(arrow_of_interval),
    }
}

/// Number of the arrow from an interval. Those of calls have 32 bits.
pub(crate) fn arrow_of_interval(seq: u64) -> u64 {
    seq | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_testkit::records::kernel;

    #[test]
    fn a_kernel_whose_layer_is_derived_says_so_and_no_other_does() {
        let derived = |kernel: &KernelRecord| kernel_numbers(kernel).into_iter().find(|(name, _)| *name == "derived");
        let mut one = kernel("GPU", 0, 10);
        assert_eq!(derived(&one), Some(("derived", None)));
        one.derived = Some(true);
        assert_eq!(derived(&one), Some(("derived", Some(1))));
    }

    #[test]
    fn a_kernel_of_a_graph_says_which_node_of_which_graph_it_is() {
        let mut one = kernel("GPU", 0, 10);
        (one.graph, one.graph_node) = (Some(3), Some((3 << 32) + 7));
        let of_graph: Vec<_> = kernel_numbers(&one).into_iter().filter(|(name, _)| name.starts_with("graph")).collect();
        assert_eq!(of_graph, [("graph", Some(3)), ("graph_node", Some((3 << 32) + 7))]);
    }

    #[test]
    fn work_that_overlaps_in_a_stream_gets_a_lane() {
        let mut tracks = KernelTracks::default();
        let mut at = |start, dur| tracks.place(&kernel("GPU", start, dur)).lane;
        assert_eq!([at(0, 10), at(10, 5), at(14, 5), at(30, 5), at(20, 10), at(31, 2)], [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn streams_have_tracks_and_a_graph_has_one_call() {
        let mut tracks = KernelTracks::default();
        let on = |stream, thread: u64| {
            candlescope_testkit::with(kernel("GPU", 0, 10), |r| {
                r.stream = stream;
                r.seq = Some(thread << 40);
                r.launch_start = Some(HostNs(1));
            })
        };
        assert_eq!(tracks.place(&on(7, 1)).number, 0);
        assert_eq!(tracks.place(&on(8, 1)).number, 1);
        assert_eq!(tracks.place(&on(7, 1)), Track { number: 2, lane: 1 });
        let mut call = |stream, thread| tracks.new_call(&on(stream, thread)).map(|call| call.place);
        assert_eq!(call(7, 1), Some(CallPlace::Thread(1)));
        assert_eq!((call(8, 1), call(7, 2)), (None, Some(CallPlace::Thread(2))));
    }

    #[test]
    fn calls_outside_every_interval_have_lanes_of_their_own() {
        let mut tracks = KernelTracks::default();
        let at = |start, correlation| {
            candlescope_testkit::with(kernel("GPU", 0, 10), |r| {
                (r.launch_start, r.launch_dur_ns, r.correlation) = (Some(HostNs(start)), Some(10), correlation);
            })
        };
        let mut place = |start, correlation| tracks.new_call(&at(start, correlation)).map(|call| call.place);
        assert_eq!(place(0, 1), Some(CallPlace::Outside(0)));
        assert_eq!(place(0, 1), None, "the same call");
        assert_eq!([place(10, 2), place(15, 3)], [Some(CallPlace::Outside(0)), Some(CallPlace::Outside(1))]);
        assert_eq!(tracks.new_call(&kernel("GPU", 0, 10)), None, "no call was recorded");
    }

    #[test]
    fn an_interval_waits_for_its_slice_only_if_no_call_is_known() {
        let (mut tracks, mut batch) = (KernelTracks::default(), Batch::default());
        let called = candlescope_testkit::with(kernel("G", 0, 1), |r| {
            r.seq = Some(1);
            r.launch_start = Some(candlescope_core::HostNs(1));
        });
        batch.kernels = vec![
            called,
            candlescope_testkit::with(kernel("G", 0, 1), |r| {
                r.seq = Some(2);
            }),
            kernel("G", 0, 1),
        ];
        tracks.expect(&batch);
        assert!(!tracks.begins_arrow(1) && tracks.begins_arrow(2) && !tracks.begins_arrow(2));
        assert_eq!(arrow(&batch.kernels[0]), Some(1));
        assert_eq!(arrow(&batch.kernels[1]), Some(arrow_of_interval(2)));
        assert_eq!(arrow(&batch.kernels[2]), None);
    }
}
