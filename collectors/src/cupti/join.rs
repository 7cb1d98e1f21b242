//! Which interval and which call a kernel belongs to: a state machine without I/O.
//!
//! Kernels and the calls that launched them are separate records, in any order and in different buffers, with the same
//! correlation id. A graph launch is one call with many kernels, which may take many deliveries to arrive.

use super::records::Work;
use candlescope_core::SpanId;
use candlescope_core::gpu::OUTSIDE_WINDOW;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Calls remembered. A stream holds about a thousand launches that have not run, so a kernel whose call is this far
/// behind has lost its record; but one delivery can bring the calls of several full rings at once. At most some 50 MB,
/// for the table has room for twice as many.
/// The oldest is forgotten first, long before its 32-bit id is used again.
const MOST_CALLS: usize = 262_144;

/// Deliveries that a kernel waits for its call before it is handed on without: its thread may still be inside the call.
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

impl Call {
    /// Whether one of them was made inside the other, as a driver call in a runtime call. Where the start of one is not
    /// known their names tell: a call makes no other one of its own name.
    fn nests_with(self, other: Self) -> bool {
        match (self.start, other.start) {
            (Some(start), Some(others)) => (start <= others) == (self.end >= other.end),
            _ => self.name != other.name,
        }
    }

    /// Whether each call of this name has its record, or several. Copies of some kinds have none.
    fn has_records(self) -> bool {
        matches!(self.name, "cuLaunchKernel" | "cuLaunchKernelEx" | "cuLaunchCooperativeKernel" | "cuGraphLaunch")
    }
}

/// Something that ran, with its name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NamedWork {
    pub(super) work: Work,
    pub(super) name: Arc<str>,
}

/// Something that ran, and what is known of its launch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct JoinedActivity {
    pub(super) ran: NamedWork,
    pub(super) span: Option<SpanId>,
    pub(super) call: Option<Call>,
}

/// What is known of one correlation id.
#[derive(Debug, Clone, Copy)]
struct Launch {
    span: Option<SpanId>,
    call: Call,
    /// Distinguishes it from an earlier call with the same id.
    serial: u64,
    /// Calls that are not one inside the other have this id: whose work it is cannot be told.
    ambiguous: bool,
}

/// Work that came with an id which CUPTI had given to different calls, and the intervals that made these.
#[derive(Debug, Default)]
pub(super) struct AmbiguousWork {
    pub(super) records: u64,
    pub(super) spans: Vec<SpanId>,
}

/// A launch of a graph, some of whose records have come.
#[derive(Debug, Clone, Copy)]
struct OpenReplay {
    graph: u32,
    records: u32,
    /// Something came that was launched later in its stream. Other streams of the graph may have more of it.
    is_over: bool,
}

/// Whether one id was given after another. They start again after the last one.
const fn is_after(later: u32, earlier: u32) -> bool {
    (later.wrapping_sub(earlier) as i32) > 0
}

/// Joins kernels with their calls.
#[derive(Debug)]
pub(super) struct Join {
    known: FxHashMap<u32, Launch>,
    /// Ids in order of arrival, to forget the oldest.
    order: VecDeque<(u32, u64)>,
    serial: u64,
    /// What ran, and how many deliveries it has waited for.
    waiting: VecDeque<(NamedWork, u8)>,
    /// Kernels that waited when ids started again, with what was known about them.
    settled: Vec<JoinedActivity>,
    /// Launches of kernels inside intervals of which nothing has run yet, as far as is known: their calls' ends.
    launched: FxHashMap<u32, u64>,
    /// What ran before its call was seen.
    early: FxHashSet<u32>,
    /// Launches of graphs.
    replaying: FxHashMap<u32, OpenReplay>,
    /// The most records that a launch of each graph had.
    sizes: FxHashMap<u32, u32>,
    /// The latest launch of each device's stream of which something has come.
    latest: FxHashMap<(u32, u32), u32>,
    ambiguous: AmbiguousWork,
    patience: u8,
    most_calls: usize,
    most_waiting: usize,
}

impl Join {
    /// `calls`: whether there are records of calls at all; if not, no kernel waits for one.
    pub(super) fn new(calls: bool) -> Self {
        Self {
            known: FxHashMap::default(),
            order: VecDeque::new(),
            serial: 0,
            waiting: VecDeque::new(),
            settled: Vec::new(),
            launched: FxHashMap::default(),
            early: FxHashSet::default(),
            replaying: FxHashMap::default(),
            sizes: FxHashMap::default(),
            latest: FxHashMap::default(),
            ambiguous: AmbiguousWork::default(),
            patience: if calls { PATIENCE } else { 0 },
            most_calls: MOST_CALLS,
            most_waiting: MOST_WAITING,
        }
    }

    /// A call, as its callbacks saw it. No more information about it will come.
    pub(super) fn launched(&mut self, correlation: u32, span: Option<SpanId>, call: Call) {
        while self.order.len() >= self.most_calls && !self.known.contains_key(&correlation) {
            let Some((oldest, serial)) = self.order.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|known| known.serial == serial) {
                self.known.remove(&oldest);
            }
        }
        let expected = span.is_some_and(|span| span != OUTSIDE_WINDOW) && call.has_records();
        let came = self.early.remove(&correlation) || self.is_whole(correlation);
        if expected && !came && self.launched.len() < self.most_calls {
            self.launched.insert(correlation, call.end);
        }
        match self.known.entry(correlation) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                if known.ambiguous || !known.call.nests_with(call) {
                    // Seen of CUPTI 13.0 in windows soon after each other: one id for hundreds of launches.
                    let before = if known.ambiguous { None } else { known.span };
                    known.ambiguous = true;
                    let made = before.into_iter().chain(span).filter(|span| *span != OUTSIDE_WINDOW);
                    let room = self.most_calls.saturating_sub(self.ambiguous.spans.len());
                    self.ambiguous.spans.extend(made.take(room));
                    self.launched.remove(&correlation);
                    return;
                }
                known.span = span.or(known.span);
                // If CUPTI gives a runtime call and the driver call inside it the same id, the outer one is the
                // program's own call.
                if call.start < known.call.start {
                    known.call = call;
                }
            }
            Entry::Vacant(free) => {
                self.serial += 1;
                self.order.push_back((correlation, self.serial));
                free.insert(Launch { span, call, serial: self.serial, ambiguous: false });
            }
        }
    }

    /// From here on ids may start again, as they do when CUPTI is attached again: kernels that wait are settled with
    /// what is known.
    pub(super) fn new_ids(&mut self) {
        let Self { known, waiting, settled, ambiguous, .. } = self;
        settled.extend(waiting.drain(..).filter_map(|(ran, _)| joined(known, ran, ambiguous)));
        self.known.clear();
        self.order.clear();
        self.give_up();
    }

    /// Something ran.
    pub(super) fn ran(&mut self, ran: NamedWork) {
        self.count(&ran.work);
        self.waiting.push_back((ran, 0));
    }

    /// Notes that a call's records have come: the only one, or of a graph as many as its other launches had. Of a graph
    /// that nobody has seen whole it is known once something comes that was launched later, in the same stream.
    fn count(&mut self, work: &Work) {
        let correlation = work.correlation;
        let latest = self.latest.entry((work.device, work.stream)).or_insert(correlation);
        // Buffers may come in another order than they were filled in.
        if is_after(correlation, *latest) {
            let before = std::mem::replace(latest, correlation);
            if let Some(launch) = self.replaying.get_mut(&before) {
                launch.is_over = true;
                self.learn_size(before);
                self.came(before);
            }
        }
        let Some(graph) = work.graph else { return self.came(correlation) };
        if self.replaying.len() >= self.most_calls {
            self.replaying.clear();
        }
        let launch = self.replaying.entry(correlation).or_insert(OpenReplay { graph, records: 0, is_over: false });
        launch.records += 1;
        if launch.is_over {
            self.learn_size(correlation);
        }
        if self.is_whole(correlation) {
            self.came(correlation);
        }
    }

    /// A launch of a graph that is over tells how many records its launches have.
    fn learn_size(&mut self, correlation: u32) {
        let Some(launch) = self.replaying.get(&correlation) else { return };
        if self.sizes.len() >= self.most_calls {
            self.sizes.clear();
        }
        let size = self.sizes.entry(launch.graph).or_default();
        *size = launch.records.max(*size);
    }

    /// Whether a graph's launch is over, or has as many records as others of it had.
    fn is_whole(&self, correlation: u32) -> bool {
        let size = |launch: &OpenReplay| self.sizes.get(&launch.graph).is_some_and(|size| launch.records >= *size);
        self.replaying.get(&correlation).is_some_and(|launch| launch.is_over || size(launch))
    }

    /// All that this call launched has come, finished or not.
    fn came(&mut self, correlation: u32) {
        let expected = self.launched.remove(&correlation).is_some() || self.known.contains_key(&correlation);
        if !expected && self.early.len() < self.most_calls {
            self.early.insert(correlation);
        }
    }

    /// The end of the earliest call of which nothing has come.
    pub(super) fn earliest_missing(&self) -> Option<u64> {
        self.launched.values().copied().min()
    }

    /// What has not come by now never will: it was captured into a graph, or refused.
    pub(super) fn give_up(&mut self) {
        self.launched.clear();
        self.early.clear();
        self.replaying.clear();
        self.latest.clear();
    }

    /// A record that was handed over before its work had ended. Returns its call, if that is known, and the interval
    /// that made it.
    pub(super) fn unfinished(&mut self, correlation: u32) -> Option<(Call, Option<SpanId>)> {
        self.came(correlation);
        self.known.get(&correlation).map(|known| (known.call, known.span))
    }

    /// What could not be told apart since this was last asked.
    pub(super) fn take_ambiguous(&mut self) -> AmbiguousWork {
        std::mem::take(&mut self.ambiguous)
    }

    /// Hands on the kernels that are complete or have waited long enough; with `all`, every kernel.
    pub(super) fn deliver(&mut self, all: bool, mut out: impl FnMut(JoinedActivity)) {
        // Kernels beyond the limit are handed on early: a kernel without its interval is better than a lost one.
        let mut excess = self.waiting.len().saturating_sub(self.most_waiting);
        self.settled.drain(..).for_each(&mut out);
        for _ in 0..self.waiting.len() {
            let Some((ran, waited)) = self.waiting.pop_front() else { break };
            if self.known.contains_key(&ran.work.correlation) || all || waited >= self.patience || excess > 0 {
                joined(&self.known, ran, &mut self.ambiguous).into_iter().for_each(&mut out);
            } else {
                self.waiting.push_back((ran, waited + 1));
            }
            excess = excess.saturating_sub(1);
        }
    }
}

/// `None`, and counted, if it cannot be told whose it is.
fn joined(known: &FxHashMap<u32, Launch>, ran: NamedWork, ambiguous: &mut AmbiguousWork) -> Option<JoinedActivity> {
    let known = known.get(&ran.work.correlation);
    if known.is_some_and(|known| known.ambiguous) {
        ambiguous.records += 1;
        return None;
    }
    Some(JoinedActivity { span: known.and_then(|known| known.span), call: known.map(|known| known.call), ran })
}

#[cfg(test)]
mod tests {
    use super::super::records::ActivityKind;
    use super::*;

    fn ran(correlation: u32) -> NamedWork {
        let what = ActivityKind::Set { bytes: 1 };
        let work = Work { correlation, device: 0, stream: 0, start: 1, end: 2, graph: None, graph_node: None, what };
        NamedWork { work, name: "k".into() }
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
        let steps: [Step; 2] = [|join| join.launched(9, Some(SpanId(70)), call(100)), |join| join.ran(ran(9))];
        for order in [[0, 1], [1, 0]] {
            let mut join = Join::new(true);
            order.iter().for_each(|step| steps[*step](&mut join));
            assert_eq!(delivered(&mut join, false), [(9, Some(70), Some(100))], "{order:?} at once");

            let mut join = Join::new(true);
            steps[order[0]](&mut join);
            assert_eq!(delivered(&mut join, false), [], "{order:?}: incomplete, yet handed on");
            steps[order[1]](&mut join);
            assert_eq!(delivered(&mut join, false), [(9, Some(70), Some(100))], "{order:?} one after the other");
            assert_eq!(delivered(&mut join, true), [], "once only");
        }
    }

    #[test]
    fn ids_that_begin_anew_find_no_calls_of_before() {
        let mut join = Join::new(true);
        join.launched(1, Some(SpanId(5)), call(10));
        join.launched(2, Some(SpanId(6)), call(20));
        join.ran(ran(1));
        join.ran(ran(3));
        join.new_ids();
        join.ran(ran(2));
        join.launched(3, Some(SpanId(8)), call(40));
        let out = delivered(&mut join, false);
        assert_eq!(
            out,
            [(1, Some(5), Some(10)), (3, None, None)],
            "what waited has what was known, and nothing of later"
        );
        join.launched(2, Some(SpanId(7)), call(30));
        assert_eq!(delivered(&mut join, false), [(2, Some(7), Some(30))]);
        assert_eq!((join.known.len(), join.order.len()), (2, 2));
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
        join.launched(3, None, call(7));
        join.ran(ran(3));
        assert_eq!(delivered(&mut join, true), [(2, None, None), (3, None, Some(7))], "`all` waits for nothing");
        let mut join = Join::new(false);
        join.ran(ran(4));
        assert_eq!(delivered(&mut join, false), [(4, None, None)], "no calls are recorded");
    }

    #[test]
    fn work_of_calls_that_share_an_id_is_nobodys() {
        let call = |start: Option<u64>, end| Call { name: "cuLaunchKernel", start, end };
        for starts in [[Some(10), Some(30), Some(50)], [None; 3]] {
            let mut join = Join::new(true);
            let ends = [20, 40, 60];
            for (at, (start, end)) in starts.into_iter().zip(ends).enumerate() {
                join.launched(7, Some(if at == 1 { OUTSIDE_WINDOW } else { SpanId(at as u64 + 1) }), call(start, end));
                join.ran(ran(7));
            }
            join.launched(8, Some(SpanId(9)), call(Some(70), 80));
            join.ran(ran(8));
            assert_eq!(delivered(&mut join, false), [(8, Some(9), Some(70))], "{starts:?}");
            let ambiguous = join.take_ambiguous();
            assert_eq!((ambiguous.records, ambiguous.spans.as_slice()), (3, &[SpanId(1), SpanId(3)][..]));
            assert_eq!(join.take_ambiguous().records, 0, "told once");
            assert_eq!(join.earliest_missing(), None, "it is not waited for");
        }
    }

    #[test]
    fn all_kernels_of_a_graph_launch_belong_to_it() {
        let mut join = Join::new(true);
        join.launched(6, Some(SpanId(8)), call(1));
        for _ in 0..5 {
            (0..100).for_each(|_| join.ran(ran(6)));
            assert_eq!(delivered(&mut join, false), [(6, Some(8), Some(1)); 100]);
        }
    }

    #[test]
    fn a_graph_launch_is_waited_for_until_all_of_it_has_come() {
        let mut join = Join::new(true);
        let launch = |start| Call { name: "cuGraphLaunch", start: Some(start), end: start + 5 };
        let of_graph = |id: u32| {
            let ran = ran(id);
            NamedWork { work: Work { graph: Some(3), ..ran.work }, ..ran }
        };
        join.launched(6, Some(SpanId(8)), launch(10));
        join.launched(7, Some(SpanId(9)), launch(20));
        assert_eq!(join.earliest_missing(), Some(15));
        (0..100).for_each(|_| join.ran(of_graph(6)));
        assert_eq!(join.earliest_missing(), Some(15), "nobody knows how many there are");
        join.ran(of_graph(7));
        assert_eq!(join.earliest_missing(), Some(25), "what was launched later runs, so the first has ended");
        (0..98).for_each(|_| join.ran(of_graph(7)));
        assert_eq!(join.earliest_missing(), Some(25));
        join.ran(of_graph(7));
        assert_eq!(join.earliest_missing(), None, "as many as the first had");
        // Its call is seen when part of it, or all, has come.
        (0..50).for_each(|_| join.ran(of_graph(8)));
        join.launched(8, Some(SpanId(10)), launch(30));
        assert_eq!(join.earliest_missing(), Some(35));
        (0..50).for_each(|_| join.ran(of_graph(8)));
        (0..100).for_each(|_| join.ran(of_graph(9)));
        join.launched(9, Some(SpanId(11)), launch(40));
        assert_eq!(join.earliest_missing(), None);
        // A buffer that comes late ends nothing, and begins nothing anew.
        join.ran(ran(5));
        assert_eq!(join.earliest_missing(), None);
        // One that has fewer, as after an update of the graph, is waited for until something comes after it.
        join.launched(10, Some(SpanId(12)), launch(50));
        (0..90).for_each(|_| join.ran(of_graph(10)));
        assert_eq!(join.earliest_missing(), Some(55));
        join.ran(ran(11));
        assert_eq!(join.earliest_missing(), None);
    }

    #[test]
    fn threads_interleave() {
        let mut join = Join::new(true);
        // Two threads' rings: ids alternate between them, and each ring is read as a whole.
        for thread in 0..2 {
            for n in (thread..1000).step_by(2) {
                join.launched(n, Some(SpanId(u64::from(thread) + 1)), call(u64::from(n)));
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
