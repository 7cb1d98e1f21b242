//! Where kernels, copies, memsets and their launch calls go on a timeline, and what timelines say about them. Pure.

use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, KernelKind, KernelRecord, SpanRecord};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// `seq` is thread × 2⁴⁰ + a counter.
const THREAD_SHIFT: u32 = 40;

/// What a lane and a thread remember: more than lie out of order in a run.
const RECENT: usize = 256;

/// Intervals whose kernels came first, without a launch call: so many wait for their slice to draw the arrow from.
/// Beyond that they are forgotten, and their kernels have no arrow.
const MOST_WAITING: usize = 1 << 20;

/// Number of the thread that entered an interval.
pub(crate) fn thread_of(seq: u64) -> u64 {
    seq >> THREAD_SHIFT
}

/// The numbers of an interval that timelines show as arguments, beside its `seq`.
pub(crate) fn span_numbers(span: &SpanRecord) -> [(&'static str, Option<u64>); 7] {
    [
        ("step", span.step),
        ("flops", span.flops),
        ("bytes", span.bytes),
        ("io_bytes", span.io_bytes),
        ("tokens", span.tokens.map(u64::from)),
        ("context_len", span.context_len.map(u64::from)),
        ("batch", span.batch.map(u64::from)),
    ]
}

/// The numbers of a kernel, copy or memset.
pub(crate) fn kernel_numbers(kernel: &KernelRecord) -> [(&'static str, Option<u64>); 9] {
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
    let gpus = run.environment.get("gpus").and_then(|gpus| gpus.as_array()).into_iter().flatten();
    let gpu = |(at, gpu): (usize, &serde_json::Value)| {
        let index = gpu["index"].as_u64().unwrap_or(at as u64);
        Some((gpu["uuid"].as_str()?.to_string(), (index, gpu["name"].as_str()?.to_string())))
    };
    gpus.enumerate().filter_map(gpu).collect()
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
}

/// Places for kernels, and what has been drawn of them.
#[derive(Debug, Default)]
pub(crate) struct KernelTracks {
    streams: HashMap<(Arc<str>, u32), Vec<Lane>>,
    lanes: u64,
    /// Calls that have a slice, by thread: a graph's launch is one call with many kernels.
    calls: HashMap<u64, VecDeque<u32>>,
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
        let at = lanes.iter().position(|lane| lane.takes(start, end)).unwrap_or_else(|| {
            lanes.push(Lane { number: self.lanes, recent: VecDeque::new() });
            self.lanes += 1;
            lanes.len() - 1
        });
        let lane = &mut lanes[at];
        if lane.recent.len() == RECENT {
            lane.recent.pop_front();
        }
        lane.recent.push_back((start, end));
        Track { number: lane.number, lane: at }
    }

    /// Whether the call that launched it has no slice yet; from now on it has.
    pub(crate) fn is_new_call(&mut self, thread: u64, kernel: &KernelRecord) -> bool {
        let calls = self.calls.entry(thread).or_default();
        if calls.contains(&kernel.correlation) {
            return false;
        }
        if calls.len() == RECENT {
            calls.pop_front();
        }
        calls.push_back(kernel.correlation);
        true
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
    fn work_that_overlaps_in_a_stream_gets_a_lane() {
        let mut tracks = KernelTracks::default();
        let mut at = |start, dur| tracks.place(&kernel("GPU", start, dur)).lane;
        assert_eq!([at(0, 10), at(10, 5), at(14, 5), at(30, 5), at(20, 10), at(31, 2)], [0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn streams_have_tracks_and_a_graph_has_one_call() {
        let mut tracks = KernelTracks::default();
        let on = |stream| {
            candlescope_testkit::with(kernel("GPU", 0, 10), |r| {
                r.stream = stream;
            })
        };
        assert_eq!(tracks.place(&on(7)).number, 0);
        assert_eq!(tracks.place(&on(8)).number, 1);
        assert!(tracks.is_new_call(1, &on(7)) && !tracks.is_new_call(1, &on(8)) && tracks.is_new_call(2, &on(7)));
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
