//! Which interval and which call a kernel belongs to: a state machine without I/O.
//!
//! What ran and what launched it come as separate records, in any order and in different buffers, and carry the same correlation
//! id. A graph launch is one call with many kernels, and they come over many deliveries.

use super::records::Work;
use candlescope_core::SpanId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Calls remembered. A stream holds about a thousand launches that have not run, so a kernel whose call is this far behind has
/// lost its record; but one delivery can bring the calls of several full rings at once. At most some 20 MB. The oldest is forgotten
/// first, long before its id, of 32 bits, comes again.
const MOST_CALLS: usize = 262_144;

/// Deliveries that a kernel waits for the record of its call before it is handed on without. Its call's record may be in a buffer
/// that CUPTI has not handed out yet, or its thread may still be inside the call.
const PATIENCE: u8 = 3;

/// Kernels that wait at most, between deliveries.
const MOST_WAITING: usize = 262_144;

/// The call that launched something. Times are on the clock of whatever saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) start: Option<u64>,
    pub(super) end: u64,
}

/// Something that ran, with its name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    pub(super) work: Work,
    pub(super) name: Arc<str>,
}

/// Something that ran, and what is known of its launch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Joined {
    pub(super) ran: Ran,
    pub(super) span: Option<SpanId>,
    pub(super) call: Option<Call>,
}

/// What is known of one correlation id.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    span: Option<SpanId>,
    call: Option<Call>,
    /// Nothing more will come.
    whole: bool,
    /// Tells it from an earlier call with the same id.
    serial: u64,
}

/// Joins kernels with their calls.
#[derive(Debug)]
pub(super) struct Join {
    known: FxHashMap<u32, Known>,
    /// Ids in order of arrival, to forget the oldest.
    order: VecDeque<(u32, u64)>,
    serial: u64,
    /// What ran, and how many deliveries it has waited for.
    waiting: VecDeque<(Ran, u8)>,
    patience: u8,
    most_calls: usize,
    most_waiting: usize,
}

impl Join {
    /// `calls`: whether records of calls come at all; if not, nothing waits for them.
    pub(super) fn new(calls: bool) -> Self {
        Self {
            known: FxHashMap::default(),
            order: VecDeque::new(),
            serial: 0,
            waiting: VecDeque::new(),
            patience: if calls { PATIENCE } else { 0 },
            most_calls: MOST_CALLS,
            most_waiting: MOST_WAITING,
        }
    }

    /// CUPTI's record of the innermost interval during a call.
    pub(super) fn external(&mut self, correlation: u32, span: SpanId) {
        self.entry(correlation).span = Some(span);
    }

    /// CUPTI's record of a call.
    pub(super) fn call(&mut self, correlation: u32, call: Call) {
        let known = self.entry(correlation);
        // Where CUPTI reports a runtime call and the driver call inside it under one id, the outer one is what the program made.
        if known.call.is_none_or(|there| call.start < there.start) {
            known.call = Some(call);
        }
    }

    /// Our own record of a call: all there will ever be to know.
    pub(super) fn launched(&mut self, correlation: u32, span: Option<SpanId>, call: Call) {
        self.call(correlation, call);
        let known = self.entry(correlation);
        known.span = span.or(known.span);
        known.whole = true;
    }

    /// Something ran.
    pub(super) fn ran(&mut self, ran: Ran) {
        self.waiting.push_back((ran, 0));
    }

    /// Hands on what is complete, and what has waited long enough; with `all`, everything.
    pub(super) fn deliver(&mut self, all: bool, mut out: impl FnMut(Joined)) {
        // More than can be kept is handed on early: a kernel without its interval is worth more than none.
        let mut excess = self.waiting.len().saturating_sub(self.most_waiting);
        for _ in 0..self.waiting.len() {
            let Some((ran, waited)) = self.waiting.pop_front() else { break };
            let known = self.known.get(&ran.work.correlation).copied().unwrap_or_default();
            let complete = known.call.is_some() && (known.whole || known.span.is_some());
            if complete || all || waited >= self.patience || excess > 0 {
                out(Joined { ran, span: known.span, call: known.call });
            } else {
                self.waiting.push_back((ran, waited + 1));
            }
            excess = excess.saturating_sub(1);
        }
    }

    fn entry(&mut self, correlation: u32) -> &mut Known {
        while self.order.len() >= self.most_calls && !self.known.contains_key(&correlation) {
            let Some((oldest, serial)) = self.order.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|known| known.serial == serial) {
                self.known.remove(&oldest);
            }
        }
        let serial = &mut self.serial;
        let order = &mut self.order;
        self.known.entry(correlation).or_insert_with(|| {
            *serial += 1;
            order.push_back((correlation, *serial));
            Known { serial: *serial, ..Known::default() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::records::What;
    use super::*;

    fn ran(correlation: u32) -> Ran {
        let what = What::Set { bytes: 1 };
        let work = Work { correlation, device: 0, stream: 0, start: 1, end: 2, graph: None, what };
        Ran { work, name: "k".into() }
    }

    fn call(start: u64) -> Call {
        Call { name: "cuLaunchKernel", start: Some(start), end: start + 5 }
    }

    /// Correlation id, interval and start of the call of each kernel that is handed on.
    fn delivered(join: &mut Join, all: bool) -> Vec<(u32, Option<u64>, Option<u64>)> {
        let mut out = Vec::new();
        join.deliver(all, |joined| {
            out.push((joined.ran.work.correlation, joined.span.map(|s| s.0), joined.call.and_then(|c| c.start)));
        });
        out
    }

    #[test]
    fn the_order_of_records_does_not_matter() {
        type Step = fn(&mut Join);
        let steps: [Step; 3] =
            [|join| join.external(9, SpanId(70)), |join| join.call(9, call(100)), |join| join.ran(ran(9))];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut join = Join::new(true);
            order.iter().for_each(|step| steps[*step](&mut join));
            assert_eq!(delivered(&mut join, false), [(9, Some(70), Some(100))], "{order:?} in one buffer");

            // Each in a buffer and a delivery of its own.
            let mut join = Join::new(true);
            let mut out = Vec::new();
            for step in order {
                assert_eq!(out, [], "{order:?}: incomplete, yet handed on");
                steps[step](&mut join);
                out = delivered(&mut join, false);
            }
            assert_eq!(out, [(9, Some(70), Some(100))], "{order:?} in three buffers");
            assert_eq!(delivered(&mut join, true), [], "once only");
        }
    }

    #[test]
    fn callbacks_tell_everything_at_once() {
        let mut join = Join::new(true);
        join.ran(ran(1));
        join.ran(ran(2));
        assert_eq!(delivered(&mut join, false), []);
        join.launched(1, Some(SpanId(5)), call(10));
        join.launched(2, None, call(20));
        let expected = [(1, Some(5), Some(10)), (2, None, Some(20))];
        assert_eq!(delivered(&mut join, false), expected, "no interval is a fact, not worth waiting for");
    }

    #[test]
    fn what_never_matches_is_handed_on_without() {
        let mut join = Join::new(true);
        join.ran(ran(1));
        for _ in 0..PATIENCE {
            assert_eq!(delivered(&mut join, false), []);
        }
        assert_eq!(delivered(&mut join, false), [(1, None, None)]);
        join.ran(ran(2));
        join.call(3, call(7));
        join.ran(ran(3));
        assert_eq!(delivered(&mut join, true), [(2, None, None), (3, None, Some(7))], "`all` waits for nothing");
        let mut join = Join::new(false);
        join.ran(ran(4));
        assert_eq!(delivered(&mut join, false), [(4, None, None)], "no calls are recorded");
    }

    #[test]
    fn all_kernels_of_a_graph_launch_belong_to_it() {
        for callbacks in [false, true] {
            let mut join = Join::new(true);
            if callbacks {
                join.launched(6, Some(SpanId(8)), call(1));
            } else {
                join.external(6, SpanId(8));
                join.call(6, call(1));
            }
            for _ in 0..5 {
                (0..100).for_each(|_| join.ran(ran(6)));
                assert_eq!(delivered(&mut join, false), [(6, Some(8), Some(1)); 100]);
            }
        }
    }

    #[test]
    fn threads_interleave() {
        let mut join = Join::new(true);
        // Two threads' buffers: ids alternate between them, and each buffer comes whole.
        for thread in 0..2 {
            for n in (thread..1000).step_by(2) {
                join.external(n, SpanId(u64::from(thread) + 1));
                join.call(n, call(u64::from(n)));
            }
        }
        (0..1000).rev().for_each(|n| join.ran(ran(n)));
        let out = delivered(&mut join, false);
        assert_eq!(out.len(), 1000);
        assert!(
            out.iter().all(|(n, span, start)| { *span == Some(u64::from(n % 2) + 1) && *start == Some(u64::from(*n)) })
        );
    }

    #[test]
    fn a_runtime_call_and_the_driver_call_inside_it_are_one() {
        let outer = Call { name: "cudaLaunchKernel", start: Some(10), end: 40 };
        let inner = Call { name: "cuLaunchKernel", start: Some(15), end: 35 };
        for calls in [[inner, outer], [outer, inner]] {
            let mut join = Join::new(true);
            calls.iter().for_each(|call| join.launched(3, Some(SpanId(1)), *call));
            join.ran(ran(3));
            join.deliver(false, |joined| assert_eq!(joined.call, Some(outer)));
            assert!(join.waiting.is_empty());
        }
    }

    #[test]
    fn ids_wrap_and_old_calls_are_forgotten() {
        let mut join = Join::new(true);
        join.most_calls = 100;
        let ids: Vec<u32> = (0..1000u32).map(|n| (u32::MAX - 499).wrapping_add(n)).collect();
        for (n, id) in ids.iter().enumerate() {
            join.launched(*id, Some(SpanId(n as u64 + 1)), call(n as u64));
            join.ran(ran(*id));
            assert_eq!(delivered(&mut join, false), [(*id, Some(n as u64 + 1), Some(n as u64))]);
        }
        assert_eq!((join.known.len(), join.order.len()), (100, 100));
        // An id that comes again, its first call long forgotten.
        join.launched(ids[0], Some(SpanId(4242)), call(9));
        join.ran(ran(ids[0]));
        assert_eq!(delivered(&mut join, false), [(ids[0], Some(4242), Some(9))]);
    }

    #[test]
    fn waiting_is_bounded() {
        let mut join = Join::new(true);
        join.most_waiting = 10;
        (0..25).for_each(|n| join.ran(ran(n)));
        let out = delivered(&mut join, false);
        assert_eq!(
            out.iter().map(|(n, ..)| *n).collect::<Vec<_>>(),
            (0..15).collect::<Vec<_>>(),
            "the oldest go first"
        );
        assert_eq!(delivered(&mut join, true).len(), 10);
    }
}
