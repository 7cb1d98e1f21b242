//! Arrows from launch calls and intervals to kernels. Pure.
//!
//! The viewer draws a flow through all its slices, in order of time: kernels that shared the flow of their call would
//! be chained to each other. So each kernel has a flow of its own, and a call or an interval those of all its kernels.

use candlescope_core::{Batch, KernelRecord, thread_of};
use std::collections::HashMap;

/// Arrows that wait for the interval that they begin at, because its slice has not been drawn yet.
///
/// Overload policy: beyond that they are forgotten, and their kernels have no arrow.
const MOST_WAITING: usize = 1 << 20;

/// In the number of the arrow that a batch's last call has beside those of its kernels.
const SPARE: u64 = 1 << 63;

/// A call: its thread and correlation.
type Call = (Option<u64>, u32);

/// Numbers of arrows, from 0: each kernel of a run has the next one.
#[derive(Debug, Default)]
pub(super) struct Arrows {
    /// Number of the first kernel of this batch.
    first: u64,
    /// Number of the first kernel of the next one.
    next: u64,
    /// Arrows of this batch by the call that launched their kernels.
    calls: HashMap<Call, Vec<u64>>,
    /// The call of this batch's last kernel, whose others may come in the next one: it has an arrow more.
    last: Option<Call>,
    /// The last call of the batch before, which is drawn, with that arrow: what it launched and comes in this one has it in common.
    before: Option<(Call, u64)>,
    /// Arrows by the interval that launched their kernels, where no call was recorded.
    intervals: HashMap<u64, Vec<u64>>,
    waiting: usize,
}

impl Arrows {
    /// Numbers the kernels of the next batch.
    pub(super) fn add(&mut self, batch: &Batch) {
        self.first = self.next;
        self.next += batch.kernels.len() as u64;
        self.calls.clear();
        if let Some(last) = batch.kernels.last() {
            let before = std::mem::replace(&mut self.last, last.launch_start.map(|_| call_of(last)));
            // A launch of so many kernels that this is not the first batch which has nothing else.
            let goes_on = self.before.filter(|(call, _)| before == Some(*call));
            self.before = goes_on.or(before.map(|call| (call, SPARE | self.first)));
        }
        for (arrow, kernel) in (self.first..).zip(&batch.kernels) {
            if kernel.launch_start.is_some() {
                if self.before.is_none_or(|(call, _)| call != call_of(kernel)) {
                    self.calls.entry(call_of(kernel)).or_default().push(arrow);
                }
            } else if let Some(seq) = kernel.seq {
                if self.waiting >= MOST_WAITING {
                    self.intervals.clear();
                    self.waiting = 0;
                }
                self.intervals.entry(seq).or_default().push(arrow);
                self.waiting += 1;
            }
        }
    }

    /// Those that begin at the call of this kernel.
    pub(super) fn of_call(&mut self, kernel: &KernelRecord) -> Vec<u64> {
        let call = call_of(kernel);
        let mut arrows = self.calls.remove(&call).unwrap_or_default();
        arrows.extend((self.last == Some(call)).then_some(SPARE | self.next));
        arrows
    }

    /// Those that begin at this interval.
    pub(super) fn of_interval(&mut self, seq: u64) -> Vec<u64> {
        // Most runs have none.
        if self.intervals.is_empty() {
            return Vec::new();
        }
        let arrows = self.intervals.remove(&seq).unwrap_or_default();
        self.waiting -= arrows.len();
        arrows
    }

    /// The one to a kernel of this batch, at this index in it.
    pub(super) fn of_kernel(&self, at: usize, kernel: &KernelRecord) -> Option<u64> {
        match self.before.filter(|(call, _)| kernel.launch_start.is_some() && *call == call_of(kernel)) {
            Some((_, arrow)) => Some(arrow),
            None => (kernel.launch_start.is_some() || kernel.seq.is_some()).then_some(self.first + at as u64),
        }
    }
}

fn call_of(kernel: &KernelRecord) -> Call {
    (kernel.seq.map(thread_of), kernel.correlation)
}
