//! Rows of kernels, and where rows of replayed intervals go.

use super::inside::KernelsInside;
use crate::HostNs;
use crate::gpu::RawKernel;
use crate::pipeline::replays::PlaceInReplay;
use crate::record::{KernelRecord, PathInfo, SEQ_BITS, SpanRecord};
use crate::shared::SessionState;
use crate::vocabulary::Phase;
use std::sync::Arc;

/// Place of an interval, for kernels that come after it has been handed to the exporters.
#[derive(Debug, Clone)]
pub(super) struct IntervalPlace {
    step: Option<u64>,
    phase: Option<Phase>,
    path: Arc<PathInfo>,
}

/// The sum of an interval of a form: among those of the replay's rows, or of the batch; of the launcher for one that stands
/// nowhere.
pub(super) fn sum_of<'s>(
    stands: PlaceInReplay,
    own: &'s mut [KernelsInside],
    inside: &'s mut [KernelsInside],
    launcher: usize,
) -> &'s mut KernelsInside {
    match stands {
        PlaceInReplay::Replayed(row) => &mut own[row],
        PlaceInReplay::Entered(at) => &mut inside[at],
        PlaceInReplay::Nowhere => &mut inside[launcher],
    }
}

/// `seq` of the `n`th interval that was not entered but replayed, on the thread of `launcher`: a number that the thread
/// itself does not reach.
pub(super) const fn replayed_seq(launcher: u64, n: u64) -> u64 {
    let thread = launcher >> SEQ_BITS << SEQ_BITS;
    thread | 1 << (SEQ_BITS - 1) | n
}

/// The place behind what the step had entered when span `launcher` launched a graph: there the intervals follow that
/// were entered later.
pub(super) fn behind(spans: &[SpanRecord], launcher: usize, launched: Option<HostNs>) -> usize {
    let step = spans[launcher].step;
    let later = |span: &SpanRecord| launched.is_some_and(|at| span.host_start > at);
    let before = spans[launcher + 1..].iter().take_while(|span| span.step == step && !later(span)).count();
    launcher + 1 + before
}

/// Puts rows of replays at these places, which are in the order of the launches.
pub(super) fn insert_replayed(
    spans: &mut Vec<SpanRecord>,
    inside: &mut Vec<KernelsInside>,
    mut rows: Vec<(usize, Vec<SpanRecord>)>,
) {
    rows.sort_by_key(|(place, _)| *place);
    for (place, rows) in rows.into_iter().rev() {
        inside.splice(place..place, rows.iter().map(|_| KernelsInside::default()));
        spans.splice(place..place, rows);
    }
}

pub(super) fn place(span: &SpanRecord) -> IntervalPlace {
    IntervalPlace { step: span.step, phase: span.phase, path: span.path.clone() }
}

pub(super) fn record(kernel: RawKernel, place: Option<&IntervalPlace>, shared: &SessionState) -> KernelRecord {
    let launched = kernel.launch_start.zip(kernel.launch_dur_ns).map(|(start, dur)| start.plus_ns(dur));
    let mut record = KernelRecord::new(
        kernel.kind,
        kernel.name,
        kernel.device,
        kernel.stream,
        kernel.start,
        kernel.dur_ns,
        kernel.correlation,
    );
    record.seq = kernel.span.map(|span| shared.seq_of(span));
    record.span_id = kernel.span;
    record.step = place.and_then(|p| p.step);
    record.phase = place.and_then(|p| p.phase);
    record.path = place.map(|p| p.path.clone());
    record.grid = kernel.grid;
    record.block = kernel.block;
    record.registers = kernel.registers;
    record.shared_static = kernel.shared_static;
    record.shared_dynamic = kernel.shared_dynamic;
    record.bytes = kernel.bytes;
    record.launch = kernel.launch;
    record.launch_start = kernel.launch_start;
    record.launch_dur_ns = kernel.launch_dur_ns;
    record.queue_delay_ns = launched.map(|end| kernel.start.since(end));
    record.graph = kernel.graph;
    record.graph_node = kernel.graph_node;
    record
}
