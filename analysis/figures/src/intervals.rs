//! One pass over the spans: time, work and self time of every rollup path, checking each interval against its children.
//!
//! Rows may come in any order and in any number. Self time is an interval's duration less its children's, so each row
//! has to be matched with its parent. Only intervals that can still get children are held (`held`, `relatives`), which
//! bounds memory by how deep and parallel the program was, not by how long it ran. `settled` has what follows once an
//! interval's children are known, `nodes` the sums by path.
//!
//! Warm-up intervals are in no figure. Their time is subtracted from the intervals around them, such as the `main` of a
//! program, so the pass needs them too: [`IntervalPass::add_warmup`].

mod held;
mod nodes;
mod relatives;
mod settled;

use super::int_map::IntSet;
use super::path_totals::Intervals;
use super::usual_steps::{UsualKinds, UsualPlace};
use candlescope_schema::SpanRecord;
use held::{InsideSums, OpenInterval, WaitingChildren};
use nodes::Nodes;
use relatives::{Ancestor, MOST_REQUESTS_DEEP, Relatives};

/// Most intervals around a warm-up interval. Real ones nest a few deep; in a crafted run they may form a cycle.
const MOST_AROUND_WARMUP: usize = 1_024;

/// The group that a step's measurements of GPU time belong to. Pseudo-random, because steps are sampled at regular
/// distances.
fn group_of(step: Option<u64>) -> u8 {
    (step.unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8
}

/// Collects [`Intervals`] from spans in any order.
#[derive(Debug)]
pub struct IntervalPass {
    nodes: Nodes,
    relatives: Relatives,
    /// Steps whose kernels were recorded.
    recorded: IntSet<u64>,
    /// The step that was looked up in it last, and whether it is there.
    last_step: (u64, bool),
    usual: UsualKinds,
    /// The same for them: its place.
    last_usual: (Option<u64>, Option<UsualPlace>),
    out: Intervals,
}

impl Default for IntervalPass {
    fn default() -> Self {
        Self::holding(1 << 16)
    }
}

impl IntervalPass {
    /// A pass that looks for intervals to drop once it holds `hold_most`.
    pub fn holding(hold_most: usize) -> Self {
        Self {
            nodes: Nodes::default(),
            relatives: Relatives::holding(hold_most),
            recorded: IntSet::default(),
            last_step: (0, false),
            usual: UsualKinds::default(),
            last_usual: (None, None),
            out: Intervals::default(),
        }
    }

    /// The same, but never with more than `most` intervals in memory, and at most as many parents that are still to
    /// come; what exceeds that is counted in [`Intervals::let_go_early`].
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        self.relatives.at_most(most);
        self
    }

    /// Names the steps whose kernels were recorded. To be called before the spans of these steps are added.
    pub fn recorded(&mut self, steps: impl IntoIterator<Item = u64>) {
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            // Rows of a step mostly come one after the other.
            if steps.peek() != Some(&step) {
                self.recorded.insert(step);
            }
        }
        self.last_step = (0, self.recorded.contains(&0));
    }

    /// Says which steps are usual. To be called before any span is added.
    pub fn usual(&mut self, usual: UsualKinds) {
        self.usual = usual;
        self.last_usual = (None, None);
    }

    /// Whether a step is usual, and its place among those that are kept by themselves.
    pub fn place(&mut self, step: Option<u64>) -> Option<UsualPlace> {
        if self.last_usual.0 != step {
            self.last_usual = (step, self.usual.place(step));
        }
        self.last_usual.1
    }

    fn is_recorded(&mut self, step: Option<u64>) -> bool {
        let Some(step) = step else { return false };
        if self.last_step.0 != step {
            self.last_step = (step, self.recorded.contains(&step));
        }
        self.last_step.1
    }

    /// Takes one span. All must come from the same [`Batches`](candlescope_reader::Batches), which numbers rollups.
    pub fn add(&mut self, span: &SpanRecord) {
        let start = span.host_start.0;
        let end_ns = span.host_start.plus_ns(span.host_dur_ns).0;
        let (first, last) = self.out.span.unwrap_or((start, end_ns));
        self.out.span = Some((first.min(start), last.max(end_ns)));
        let node = self.nodes.number(&span.path);
        if span.step.is_none() {
            self.out.above_steps += 1;
        } else {
            self.out.count += 1;
            let recorded = self.is_recorded(span.step);
            self.nodes.add(node, span, recorded);
            if let Some(place) = self.place(span.step) {
                self.nodes.at(node).totals.usual.add(span, place);
            }
            if let (Some(dtype), Some(flops)) = (span.dtype, span.flops) {
                let sum = self.out.flops_by_dtype.entry(dtype.as_str()).or_default();
                *sum = sum.saturating_add(flops);
            }
            self.meet_parent(span, node);
        }
        self.hold(span, node, false);
    }

    /// Takes one span of a warm-up step or request: its time is subtracted from the intervals around it.
    pub fn add_warmup(&mut self, span: &SpanRecord) {
        let (around, mut inside) = (self.relatives.around(span.parent_seq), InsideSums::of(span));
        if span.step.is_none() {
            self.out.above_steps += 1;
            // Its GPU time comes from the steps in it.
            inside = InsideSums { ns: inside.ns, ..InsideSums::default() };
        }
        match self.relatives.warm_around(around) {
            None => self.warmed_inside(around, &inside),
            Some(request) if request.above_steps => self.warmed_in_request(&request, &inside),
            Some(_) => {}
        }
        let node = self.nodes.number(&span.path);
        self.hold(span, node, true);
    }

    /// The result, once every span was added.
    pub fn finish(mut self) -> Intervals {
        let (held, waiting) = self.relatives.take_all();
        held.iter().for_each(|held| check(&mut self.nodes, &mut self.out, held));
        // A parent that never came was lost, alone or with its segment: its children then count as outermost.
        for waiting in waiting {
            self.out.orphans += waiting.count;
            self.outermost(waiting.inside.ns);
            self.warmed(Ancestor::Nothing, &waiting.warm);
        }
        Intervals { paths: self.nodes.into_paths(), usual: self.usual.into_kinds(), ..self.out }
    }

    /// Keeps a span for as long as children of it may come.
    fn hold(&mut self, span: &SpanRecord, node: u32, is_warmup: bool) {
        let mut held = OpenInterval {
            node,
            parent_seq: span.parent_seq,
            dur_ns: span.host_dur_ns,
            end_ns: span.host_start.plus_ns(span.host_dur_ns).0,
            inside: InsideSums::default(),
            warm: InsideSums::default(),
            above_steps: span.step.is_none(),
            is_warmup,
            is_replayed: span.graph.is_some(),
            gpu: span.gpu.map(|gpu| (gpu.source, gpu.dur_ns)),
            kernels_recorded: self.is_recorded(span.step),
            group: group_of(span.step),
            usual: self.place(span.step),
            generation: 0,
        };
        if let Some(early) = self.relatives.take_waiting(span.seq) {
            self.take_early_children(&mut held, early);
        }
        if self.relatives.hold(span.seq, span.host_start.0, held) {
            let Self { relatives, nodes, out, .. } = self;
            let early = relatives.let_go(|held| check(nodes, out, &held));
            out.let_go_early += early;
        }
    }

    fn outermost(&mut self, ns: u64) {
        self.out.outermost_ns = self.out.outermost_ns.saturating_add(ns);
    }

    fn meet_parent(&mut self, span: &SpanRecord, node: u32) {
        let around = self.relatives.around(span.parent_seq);
        self.settle(around, &InsideSums::of(span), &[node]);
        if let Ancestor::NotYetSeen(seq) = around
            && span.parent_seq == Some(seq)
        {
            self.relatives.count_waiting(seq);
        }
    }

    /// Subtracts the time of intervals of `nodes` from the self time of what is around them.
    fn settle(&mut self, around: Ancestor, inside: &InsideSums, nodes: &[u32]) {
        let parent = match around {
            Ancestor::Nothing => None,
            // A warm-up interval is in no figure, so these are outermost.
            Ancestor::Held(seq) => self.relatives.counted(seq).map(|parent| {
                parent.inside.add(inside);
                parent.node
            }),
            Ancestor::NotYetSeen(seq) => match self.relatives.waiting_for(seq) {
                Some(waiting) => return waiting.take(inside, nodes),
                None => {
                    self.out.let_go_early += inside.n;
                    self.out.orphans += inside.n;
                    None
                }
            },
        };
        match parent {
            Some(parent) => self.nodes.at(parent).own_self_ns -= i128::from(inside.ns),
            None => self.outermost(inside.ns),
        }
        self.nodes.entered_in(nodes, parent);
    }

    /// Subtracts the GPU time of steps in a warm-up request from what is around the request; their host time is part of
    /// the request's.
    fn warmed_in_request(&mut self, request: &OpenInterval, warm: &InsideSums) {
        let mut around = self.relatives.around(request.parent_seq);
        for _ in 0..MOST_REQUESTS_DEEP {
            match self.relatives.warm_around(around) {
                None => return self.warmed_inside(around, &warm.gpu_only()),
                Some(outer) if outer.above_steps => around = self.relatives.around(outer.parent_seq),
                Some(_) => return,
            }
        }
    }

    /// Subtracts warm-up intervals, which are in no figure, from what is around them.
    fn warmed_inside(&mut self, around: Ancestor, warm: &InsideSums) {
        self.settle(around, warm, &[]);
        self.warmed(around, warm);
    }

    /// Subtracts the time of warm-up intervals from that of everything around them, as far up as is known yet.
    fn warmed(&mut self, around: Ancestor, warm: &InsideSums) {
        let mut around = around;
        for _ in 0..MOST_AROUND_WARMUP {
            let parent_seq = match around {
                Ancestor::NotYetSeen(seq) => match self.relatives.waiting_for(seq) {
                    Some(waiting) => return waiting.warm.add(warm),
                    None => {
                        self.out.let_go_early += warm.n;
                        break;
                    }
                },
                Ancestor::Held(seq) => match self.relatives.counted(seq) {
                    Some(held) => {
                        held.warm.add(warm);
                        held.parent_seq
                    }
                    None => break,
                },
                Ancestor::Nothing => break,
            };
            around = self.relatives.around(parent_seq);
        }
        self.out.outermost_ns = self.out.outermost_ns.saturating_sub(warm.ns);
    }

    fn take_early_children(&mut self, held: &mut OpenInterval, early: WaitingChildren) {
        let around = self.relatives.around(held.parent_seq);
        if held.is_warmup {
            // Only the part that is not warm-up counts, as outermost.
            self.settle(Ancestor::Nothing, &early.inside, &early.nodes);
            self.warmed(Ancestor::Nothing, &early.warm);
            if held.above_steps {
                self.warmed_in_request(held, &early.warm);
            }
            return;
        }
        if held.above_steps {
            self.settle(around, &early.inside, &early.nodes);
        } else {
            held.inside.add(&early.inside);
            held.warm.add(&early.warm);
            self.nodes.at(held.node).own_self_ns -= i128::from(early.inside.ns);
            self.nodes.entered_in(&early.nodes, Some(held.node));
        }
        if early.warm.n > 0 || early.warm.ns > 0 {
            self.warmed(around, &early.warm);
        }
    }
}

/// Adds what is known only once all children are known.
fn check(nodes: &mut Nodes, out: &mut Intervals, held: &OpenInterval) {
    if held.above_steps || held.is_warmup {
        return;
    }
    let node = nodes.at(held.node);
    if !held.is_replayed {
        node.totals.add_time(held.time_ns());
    }
    if let Some(place) = held.usual {
        node.totals.usual.add_inside(held.inside.ns, place);
    }
    let measured = held.gpu_measured();
    if measured.is_some() || held.kernels_recorded {
        node.totals.add_gpu(held.group, |sums| {
            sums.recorded_calls += u64::from(held.kernels_recorded);
            let Some(gpu) = measured else { return };
            let sums = sums.of_mut(gpu.source);
            sums.calls += 1;
            sums.total_ns = sums.total_ns.saturating_add(gpu.dur_ns);
            if gpu.all_inside_known {
                sums.self_calls += 1;
                sums.detail_ns = sums.detail_ns.saturating_add(gpu.dur_ns);
                sums.inside_ns = sums.inside_ns.saturating_add(gpu.inside_ns);
            }
        });
    }
    let rollup = &node.totals.rollup;
    if let Some(times) = held.impossible() {
        out.impossible += 1;
        note_worst(&mut out.worst, rollup, times);
    }
    if let Some(times) = held.gpu_impossible() {
        out.gpu_impossible += 1;
        note_worst(&mut out.gpu_worst, rollup, times);
    }
}

/// Keeps the interval whose children exceed it by most.
fn note_worst(worst: &mut Option<(String, u64, u64)>, rollup: &str, (own_ns, children_ns): (u64, u64)) {
    let excess = |own: u64, children: u64| children.saturating_sub(own);
    if worst.as_ref().is_none_or(|(_, own, children)| excess(*own, *children) < excess(own_ns, children_ns)) {
        *worst = Some((rollup.to_string(), own_ns, children_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::{HostNs, PathInfo, SpanId, ThreadInfo, TraceId};
    use candlescope_testkit::with;
    use std::sync::Arc;

    #[test]
    fn memory_does_not_grow_with_the_run() {
        let path = |name: &str, id| Arc::new(PathInfo::new(id, name, name, ""));
        let (request, step) = (path("request", 0), path("decode", 1));
        let thread = Arc::new(ThreadInfo::new(1, 0, "main"));
        let mut pass = IntervalPass::holding(64);
        for seq in 0..10_000u64 {
            // One request spans the whole run and must stay; every other interval is over when the next begins.
            let (above, start, dur) = (seq == 0, seq as i64 * 10, if seq == 0 { 100_000 } else { 10 });
            pass.add(&with(
                SpanRecord::new(
                    seq,
                    TraceId(1),
                    SpanId(1),
                    if above { request.clone() } else { step.clone() },
                    thread.clone(),
                    HostNs(start),
                    dur,
                ),
                |r| {
                    r.parent_seq = (!above).then_some(0);
                    r.step = (!above).then_some(seq);
                    r.depth = 0;
                },
            ));
            assert!(pass.relatives.held() <= 128, "{} held", pass.relatives.held());
        }
        let intervals = pass.finish();
        assert_eq!((intervals.count, intervals.orphans, intervals.outermost_ns), (9_999, 0, 99_990));
    }
}
