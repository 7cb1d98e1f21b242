//! What a reading of CUPTI's records gives: kernels on the host's time line, and an account of what could not be used.

use super::clock::Anchors;
use super::join::{Call, JoinedActivity, NamedWork};
use super::records::ActivityKind;
use candlescope_core::SpanId;
use candlescope_core::gpu::{OUTSIDE_WINDOW, RawKernel};
use std::sync::Arc;

/// What could not be used of what was read.
#[derive(Debug, Default)]
pub(super) struct Unusable {
    /// Records that are lost, and (`dropped_of`) the intervals that launched some of them.
    pub(super) dropped: u64,
    pub(super) dropped_of: Vec<SpanId>,
    /// Work without usable times of steps outside of windows, and (`strays`) of calls outside all intervals, when these
    /// ended.
    pub(super) outside: u64,
    pub(super) strays: Vec<u64>,
}

impl Unusable {
    pub(super) fn add(&mut self, other: Unusable) {
        self.dropped += other.dropped;
        self.dropped_of.extend(other.dropped_of);
        self.outside += other.outside;
        self.strays.extend(other.strays);
    }

    /// Counts a record without usable times, by what is known of its launch: the call and the interval that made it.
    pub(super) fn untimed(&mut self, call: Option<Call>, span: Option<SpanId>) {
        match (call, span) {
            (_, Some(OUTSIDE_WINDOW)) => self.outside += 1,
            (Some(call), None) => self.strays.push(call.end),
            (_, span) => {
                self.dropped += 1;
                self.dropped_of.extend(span);
            }
        }
    }
}

/// A joined record on the host's time line. `None` if it ends before it starts, and before any clock was read, which
/// `collect` rules out.
pub(super) fn kernel(
    joined: JoinedActivity,
    correlation: u32,
    device: Arc<str>,
    cupti: &Anchors,
    calls: &Anchors,
) -> Option<RawKernel> {
    let JoinedActivity { ran: NamedWork { work, name }, span, call } = joined;
    let launch_start = call.and_then(|call| calls.host(call.start?));
    let launch_end = call.and_then(|call| calls.host(call.end));
    let mut kernel = RawKernel {
        kind: work.what.kind(),
        name,
        span,
        device,
        stream: work.stream,
        start: cupti.host(work.start)?,
        dur_ns: work.end.checked_sub(work.start)?,
        grid: None,
        block: None,
        registers: None,
        shared_static: None,
        shared_dynamic: None,
        bytes: None,
        launch: call.map(|call| call.name),
        launch_start,
        launch_dur_ns: launch_start.and_then(|start| Some(launch_end?.since(start))),
        correlation,
        graph: work.graph,
        graph_node: work.graph_node,
    };
    match work.what {
        ActivityKind::Kernel { grid, block, registers, shared_static, shared_dynamic } => {
            (kernel.grid, kernel.block, kernel.registers) = (Some(grid), Some(block), Some(registers));
            (kernel.shared_static, kernel.shared_dynamic) = (Some(shared_static), Some(shared_dynamic));
        }
        ActivityKind::Copy { bytes, .. } | ActivityKind::Set { bytes } => kernel.bytes = Some(bytes),
    }
    Some(kernel)
}
