//! Replays of CUDA graphs, interval by interval: what a node runs belongs to the interval in which it was captured.
//!
//! A replay is one launch, and enters no interval. But its nodes were made by calls that did, once, when the graph was
//! captured. So the intervals of that step are kept as the graph's form, and a replay whose kernels were recorded gets a
//! row for each of them that launched something, and for what is around those, with the kernels' time. Where nobody saw the
//! capture, a form may be [derived](super::graph_patterns).
//!
//! Pure: nodes, intervals and kernels come in, rows go out.

use crate::HostNs;
use crate::gpu::{GraphNode, RawKernel};
use crate::record::{Batch, SpanId, SpanRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Nodes that are remembered. A step of a large model has some thousand, and each shape that a program captures as many
/// again, twice: those captured, and their copies that are launched.
///
/// Overload policy: beyond this the oldest are forgotten, and what they run has the interval of the graph's launch.
const MOST_NODES: usize = 1 << 20;

/// A kernel that takes more than so many times what its node took before, and so much more.
const FAR_LONGER: u64 = 4;
const FAR_LONGER_NS: u64 = 50_000;

/// Batches without any of the intervals that nodes wait for, after which these are lost: their record was dropped, or they
/// are another session's.
const PATIENCE: u32 = 10_000;

/// The intervals of a step in which a graph was captured: those with nodes, and those around them within the step, in enter
/// order.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) spans: Vec<SpanRecord>,
    /// For each of them the one around it, which comes before it.
    pub(crate) parents: Vec<Option<usize>>,
}

impl Form {
    /// Of these intervals of a step and those around them within it, and the place of each by its index among `spans`.
    pub(crate) fn of(
        spans: &[SpanRecord],
        at: &FxHashMap<u64, usize>,
        step: Option<u64>,
        held: impl IntoIterator<Item = usize>,
    ) -> (Self, FxHashMap<usize, usize>) {
        // What is around the step, such as a request, is none of its parts.
        let around = |i: usize| {
            let parent = spans[i].parent_seq.and_then(|seq| at.get(&seq).copied());
            parent.filter(|parent| spans[*parent].step == step)
        };
        let mut parts = FxHashSet::default();
        for i in held {
            let mut part = Some(i);
            while let Some(i) = part.filter(|i| parts.insert(*i)) {
                part = around(i);
            }
        }
        let mut parts: Vec<usize> = parts.into_iter().collect();
        // In enter order, whatever the order of the rows: all are of one thread.
        parts.sort_unstable_by_key(|i| spans[*i].seq);
        let places: FxHashMap<usize, usize> = parts.iter().enumerate().map(|(place, i)| (*i, place)).collect();
        let parents = parts.iter().map(|i| places.get(&around(*i)?).copied()).collect();
        (Self { spans: parts.iter().map(|i| spans[*i].clone()).collect(), parents }, places)
    }

    /// The path of the outermost interval; `None` if there is none.
    pub(crate) fn root(&self) -> Option<u32> {
        self.spans.first().map(|span| span.path.id)
    }
}

/// Where a node was captured: in which interval of a form.
#[derive(Debug, Clone)]
pub(crate) struct NodePlace {
    pub(crate) form: Arc<Form>,
    pub(crate) at: usize,
    /// Whether nobody saw the capture, and this follows from what the graph runs.
    pub(crate) derived: bool,
    /// The shortest that it has run so far, nanoseconds.
    least_ns: Option<u64>,
}

/// The nodes of all graphs.
#[derive(Debug, Default)]
pub(crate) struct GraphNodes {
    known: FxHashMap<u64, NodePlace>,
    order: VecDeque<u64>,
    /// Nodes whose interval has not come, by its `seq`; and copies of them, each with its original.
    waiting: FxHashMap<u64, Vec<u64>>,
    waiting_count: usize,
    copies: Vec<(u64, u64)>,
    /// Batches since one of these intervals came, or a node.
    in_vain: u32,
}

impl GraphNodes {
    /// Takes in a node. `seq` is that of the interval that made it. A copy comes twice: as a node that is made, and as
    /// the copy of another one.
    pub(crate) fn add(&mut self, node: GraphNode, seq: Option<u64>) {
        self.in_vain = 0;
        if node.original.is_some()
            && let Some(Entry::Occupied(mut made)) = seq.map(|seq| self.waiting.entry(seq))
            && made.get_mut().pop_if(|last| *last == node.node).is_some()
        {
            self.waiting_count -= 1;
            if made.get().is_empty() {
                made.remove();
            }
        }
        match (node.original, seq) {
            (Some(original), _) => match self.known.get(&original).cloned() {
                Some(place) => self.remember(node.node, place),
                // Copies come right after what they are copies of.
                None if !self.waiting.is_empty() && self.copies.len() < MOST_NODES => {
                    self.copies.push((node.node, original));
                }
                None => {}
            },
            (None, Some(seq)) if self.waiting_count < MOST_NODES => {
                self.waiting.entry(seq).or_default().push(node.node);
                self.waiting_count += 1;
            }
            _ => {}
        }
    }

    /// `place`: where it was captured, or the node that it is a copy of.
    fn remember(&mut self, node: u64, place: NodePlace) {
        // Those that were forgotten earlier still stand in the order.
        if self.order.len() >= MOST_NODES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        if self.known.insert(node, place).is_none() {
            self.order.push_back(node);
        }
    }

    /// Learns from a batch of intervals which of them the nodes were captured in.
    pub(crate) fn learn(&mut self, batch: &Batch) {
        if self.waiting.is_empty() {
            return;
        }
        let mut by_step: FxHashMap<Option<u64>, Vec<(usize, Vec<u64>)>> = FxHashMap::default();
        for (i, span) in batch.spans.iter().enumerate() {
            if let Some(nodes) = self.waiting.remove(&span.seq) {
                self.waiting_count -= nodes.len();
                by_step.entry(span.step).or_default().push((i, nodes));
            }
        }
        self.in_vain = if by_step.is_empty() { self.in_vain + 1 } else { 0 };
        if self.in_vain > PATIENCE {
            self.waiting.clear();
            self.waiting_count = 0;
        }
        if !by_step.is_empty() {
            let at: FxHashMap<u64, usize> = batch.spans.iter().enumerate().map(|(i, span)| (span.seq, i)).collect();
            for (step, captured) in by_step {
                self.keep(&batch.spans, &at, step, captured);
            }
        }
        // In order: a copy may be one of a copy.
        for (copy, original) in std::mem::take(&mut self.copies) {
            match self.known.get(&original).cloned() {
                Some(place) => self.remember(copy, place),
                None if !self.waiting.is_empty() => self.copies.push((copy, original)),
                None => {}
            }
        }
    }

    /// Makes a form of the intervals of a step that captured nodes.
    fn keep(
        &mut self,
        spans: &[SpanRecord],
        at: &FxHashMap<u64, usize>,
        step: Option<u64>,
        captured: Vec<(usize, Vec<u64>)>,
    ) {
        let (form, places) = Form::of(spans, at, step, captured.iter().map(|(i, _)| *i));
        let form = Arc::new(form);
        for (i, nodes) in captured {
            let Some(at) = places.get(&i).copied() else { continue };
            for node in nodes {
                self.remember(node, NodePlace { form: form.clone(), at, derived: false, least_ns: None });
            }
        }
    }

    /// Notes that a node, of whose capture nothing is known, runs what belongs to an interval of a form.
    pub(crate) fn derive(&mut self, node: u64, form: &Arc<Form>, at: usize) {
        if !self.known.contains_key(&node) {
            self.remember(node, NodePlace { form: form.clone(), at, derived: true, least_ns: None });
        }
    }

    /// Forgets what was [derived](Self::derive) of these nodes.
    pub(crate) fn doubt(&mut self, nodes: &[u64]) {
        for node in nodes {
            if self.known.get(node).is_some_and(|place| place.derived) {
                self.known.remove(node);
            }
        }
    }

    /// Where a node was captured, or the one that it is a copy of.
    pub(crate) fn place(&self, node: u64) -> Option<&NodePlace> {
        self.known.get(&node)
    }

    /// Whether a kernel takes far longer than its node did before, or else than `others`.
    fn is_far_longer(&self, kernel: &RawKernel, others: Option<u64>) -> bool {
        let least = kernel.graph_node.and_then(|node| self.place(node)?.least_ns).or(others);
        least.is_some_and(|least| kernel.dur_ns > FAR_LONGER * least + FAR_LONGER_NS)
    }

    /// Notes how long a node ran.
    pub(crate) fn ran(&mut self, kernel: &RawKernel) {
        if let Some(place) = kernel.graph_node.and_then(|node| self.known.get_mut(&node)) {
            place.least_ns = Some(place.least_ns.map_or(kernel.dur_ns, |least| least.min(kernel.dur_ns)));
        }
    }
}

/// The kernels of one replay, by the place in the form.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) form: Arc<Form>,
    /// Whether the form follows from what the graph runs.
    pub(crate) derived: bool,
    pub(crate) kernels: Vec<(usize, RawKernel)>,
}

/// Where an interval of a form stands in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceInReplay {
    /// Nowhere: it launched nothing.
    Nowhere,
    /// It is one that was entered around the graph's launch, by its index in the batch.
    Entered(usize),
    /// It has a row of its own, by its index among the new ones.
    Replayed(usize),
}

impl PlaceInReplay {
    /// The interval: one of the replay's rows, or of the batch; the launcher for one that stands nowhere.
    pub(crate) fn span<'s>(self, rows: &'s [SpanRecord], spans: &'s [SpanRecord], launcher: usize) -> &'s SpanRecord {
        let own = match self {
            Self::Replayed(row) => rows.get(row),
            Self::Entered(at) => spans.get(at),
            Self::Nowhere => None,
        };
        own.unwrap_or(&spans[launcher])
    }
}

impl Replay {
    /// Where what is around an interval of the form stands; nowhere if it was captured elsewhere.
    pub(crate) fn around(&self, at: usize, stands: &[PlaceInReplay]) -> PlaceInReplay {
        self.form.parents[at].map_or(PlaceInReplay::Nowhere, |parent| stands[parent])
    }

    /// Where each interval of the form stands, if the graph was launched by span `launcher` of the batch, and how many get
    /// a row. In the step that captured the graph, each is itself.
    pub(crate) fn places(
        &self,
        spans: &[SpanRecord],
        at: &FxHashMap<u64, usize>,
        launcher: usize,
    ) -> (Vec<PlaceInReplay>, usize) {
        let mut around = vec![launcher];
        let mut next = spans[launcher].parent_seq;
        while let Some(&i) = next.and_then(|seq| at.get(&seq)) {
            around.push(i);
            next = spans[i].parent_seq;
        }
        let mut runs = vec![false; self.form.spans.len()];
        for (at, _) in &self.kernels {
            let mut part = Some(*at);
            while let Some(i) = part.filter(|i| !std::mem::replace(&mut runs[*i], true)) {
                part = self.form.parents[i];
            }
        }
        let mut rows = 0;
        let stands = runs.iter().zip(&self.form.spans).map(|(runs, span)| {
            let itself = at.get(&span.seq).filter(|i| spans[**i].step == spans[launcher].step);
            let entered = || around.iter().find(|i| spans[**i].path.id == span.path.id);
            if !runs {
                PlaceInReplay::Nowhere
            } else if let Some(i) = itself.or_else(entered) {
                PlaceInReplay::Entered(*i)
            } else {
                rows += 1;
                PlaceInReplay::Replayed(rows - 1)
            }
        });
        (stands.collect(), rows)
    }

    /// Takes out the kernels whose end cannot be right, and returns their places: those that take far longer than their node
    /// did before (in its first replay, than the same kernel of another node), and run on beside those that follow them in
    /// their stream. Seen of CUPTI 13.0 in the last replay of a window: up to nine tenths of its kernels ended, by their
    /// records, when the next replay ran the same node. Where another program has the device meanwhile, kernels take longer,
    /// too, but the next ones wait.
    pub(crate) fn take_mistimed(&mut self, nodes: &GraphNodes) -> Vec<usize> {
        self.kernels.sort_by_key(|(_, kernel)| (kernel.stream, kernel.start));
        let mut alike: FxHashMap<(&str, Option<[u32; 3]>), u64> = FxHashMap::default();
        for (_, kernel) in &self.kernels {
            let least = alike.entry((&kernel.name, kernel.grid)).or_insert(kernel.dur_ns);
            *least = kernel.dur_ns.min(*least);
        }
        let ran_on = |at: usize| {
            let kernel = &self.kernels[at].1;
            let others = alike.get(&(&*kernel.name, kernel.grid)).copied();
            let far = self.kernels.get(at + 2).map(|(_, far)| far).filter(|far| far.stream == kernel.stream);
            nodes.is_far_longer(kernel, others) && far.is_none_or(|far| far.start < kernel.start.plus_ns(kernel.dur_ns))
        };
        let mistimed: Vec<bool> = (0..self.kernels.len()).map(ran_on).collect();
        let mut all = mistimed.iter();
        let taken = self.kernels.extract_if(.., |_| all.next().copied().unwrap_or(false));
        taken.map(|(place, _)| place).collect()
    }

    /// Number of the graph that its kernels are nodes of.
    pub(crate) fn graph(&self) -> Option<u32> {
        self.kernels.iter().find_map(|(_, kernel)| kernel.graph)
    }

    /// Start of the graph's launch on the host, if that is known.
    pub(crate) fn launched(&self) -> Option<HostNs> {
        self.kernels.iter().find_map(|(_, kernel)| kernel.launch_start)
    }
}

/// The rows of the replayed intervals, without time on the device. `seq` numbers them.
///
/// Their work is taken out of that of the launcher, which states the whole: what is executed is the same in each replay, and
/// what of it is needed, which depends on how many sequences a step serves and how long they are, is scaled to what the
/// launcher states.
pub(crate) fn rows(
    replay: &Replay,
    stands: &[PlaceInReplay],
    spans: &mut [SpanRecord],
    launcher: usize,
    mut seq: impl FnMut() -> (u64, SpanId),
) -> Vec<SpanRecord> {
    let graph = replay.graph();
    let replayed =
        || replay.form.spans.iter().zip(stands).filter(|(_, stands)| matches!(stands, PlaceInReplay::Replayed(_)));
    let scale = |whole: Option<u64>, part: fn(&SpanRecord) -> Option<u64>| {
        let parts: f64 = replayed().filter_map(|(span, _)| part(span)).map(|part| part as f64).sum();
        whole.map(|whole| whole as f64).filter(|whole| parts > *whole).map_or(1.0, |whole| whole / parts)
    };
    let of = &spans[launcher];
    let scales = [scale(of.flops, |span| span.flops), scale(of.bytes, |span| span.bytes)];
    let scaled = |part: Option<u64>, scale: f64| part.map(|part| (part as f64 * scale) as u64);
    let mut out: Vec<SpanRecord> = Vec::new();
    for (i, captured) in replay.form.spans.iter().enumerate() {
        let PlaceInReplay::Replayed(_) = stands[i] else { continue };
        let parent = replay.around(i, stands).span(&out, spans, launcher);
        let (parent_seq, depth) = (parent.seq, parent.depth.saturating_add(1));
        let (of, (seq, span_id)) = (&spans[launcher], seq());
        let mut row =
            SpanRecord::new(seq, of.trace_id, span_id, captured.path.clone(), of.thread.clone(), of.host_start, 0);
        (row.parent_seq, row.depth, row.step) = (Some(parent_seq), depth, of.step);
        (row.phase, row.graph, row.batch) = (of.phase, graph, captured.batch);
        row.derived = replay.derived.then_some(true);
        (row.dtype, row.shape) = (captured.dtype, captured.shape);
        (row.flops, row.bytes) = (scaled(captured.flops, scales[0]), scaled(captured.bytes, scales[1]));
        (row.flops_executed, row.io_bytes) = (captured.flops_executed.or(captured.flops), captured.io_bytes);
        let whole = &mut spans[launcher];
        for (whole, part) in [
            (&mut whole.flops, row.flops),
            (&mut whole.bytes, row.bytes),
            (&mut whole.flops_executed, row.flops_executed),
            (&mut whole.io_bytes, row.io_bytes),
        ] {
            *whole = whole.map(|whole| whole.saturating_sub(part.unwrap_or(0)));
        }
        out.push(row);
    }
    out
}
