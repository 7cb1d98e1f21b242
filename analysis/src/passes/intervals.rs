//! One pass over the spans: time, work and self time of every rollup path, checking each interval against its children.
//!
//! Rows may come in any order and in any number. Self time is an interval's duration less its children's, so it needs each row
//! to meet its parent; only intervals that can still get children are held, which bounds memory by how deep and parallel the
//! program was, not by how long it ran.
//!
//! Intervals that only warmed up are in no figure. What stands around them, such as the `main` of a program, has its time less theirs,
//! which needs them to be told: [`IntervalPass::add_warmup`].

use super::gpu_time::{GROUPS, GpuBySource};
use candlescope_core::{GpuSource, PathInfo, SpanRecord};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sums over all intervals of one rollup path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathTotals {
    /// Names from the step down without ordinals.
    pub rollup: String,
    /// Own name.
    pub name: String,
    /// `tracing` target.
    pub target: String,
    /// Rollup of the interval it was entered in, where all agree and there is one.
    pub parent: Option<String>,
    /// Number of intervals.
    pub calls: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// The same less the durations of their children.
    pub self_ns: u64,
    /// Shortest one.
    pub min_ns: u64,
    /// Longest one.
    pub max_ns: u64,
    /// FLOPs annotated on the intervals themselves; `None` where none is.
    pub flops: Option<u64>,
    /// Executed FLOPs annotated on the intervals themselves, `flops` where they do not tell; `None` where none does.
    pub flops_executed: Option<u64>,
    /// Bytes of weights and KV cache annotated on the intervals themselves; `None` where none is.
    pub bytes: Option<u64>,
    /// The same with activations; `None` where none is.
    pub io_bytes: Option<u64>,
    /// Some intervals tell FLOPs or bytes, but nothing of activations: a sum would be too small.
    pub io_missing: bool,
    /// GPU time, by what measured it.
    pub gpu: GpuBySource,
    /// The same by group of steps; empty where there is none, else [`GROUPS`] long.
    pub gpu_groups: Vec<GpuBySource>,
    /// Element types seen.
    pub dtypes: Vec<String>,
}

impl PathTotals {
    /// Adds a measurement of GPU time to the sums and to those of its group of steps.
    fn sampled(&mut self, group: u8, add: impl Fn(&mut GpuBySource)) {
        if self.gpu_groups.is_empty() {
            self.gpu_groups = vec![GpuBySource::default(); GROUPS];
        }
        add(&mut self.gpu);
        add(&mut self.gpu_groups[usize::from(group) % GROUPS]);
    }
}

/// The group that a step's measurements of GPU time belong to. Scattered, because steps are sampled at even distances.
fn group_of(step: Option<u64>) -> u8 {
    (step.unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8
}

/// What the pass over the spans found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Intervals {
    /// Totals by rollup, sorted by rollup.
    pub paths: Vec<PathTotals>,
    /// Intervals in steps.
    pub count: u64,
    /// Entries of request spans, which stand above steps and are not part of them.
    pub above_steps: u64,
    /// Sum of the durations of the outermost steps: what the self times add up to.
    pub outermost_ns: u64,
    /// Intervals whose parent is not in the run.
    pub orphans: u64,
    /// Intervals shorter than their children together, and the worst of them.
    pub impossible: u64,
    /// Rollup of the worst impossible interval, its duration and its children's, in nanoseconds.
    pub worst: Option<(String, u64, u64)>,
    /// Intervals whose GPU time is shorter than their children's together, all from the same source.
    pub gpu_impossible: u64,
    /// Rollup of the worst of these, its GPU time and its children's, in nanoseconds.
    pub gpu_worst: Option<(String, u64, u64)>,
    /// FLOPs by element type, of intervals that tell both.
    pub flops_by_dtype: BTreeMap<&'static str, u64>,
    /// First start and last end over all intervals, Unix nanoseconds.
    pub span: Option<(i64, i64)>,
    /// Intervals that were let go of, or counted as orphans, while others of theirs could still come: there were too many to
    /// hold.
    pub let_go_early: u64,
}

/// What some intervals directly inside another one took.
#[derive(Debug, Clone, Copy, Default)]
struct Inside {
    n: u64,
    ns: u64,
    /// By source of GPU time: how many of them have it, and how much.
    gpu: [(u64, u64); 2],
}

impl Inside {
    fn of(span: &SpanRecord) -> Self {
        let mut inside = Self { n: 1, ns: span.host_dur_ns, ..Self::default() };
        if let Some(gpu) = span.gpu {
            inside.gpu[gpu.source as usize] = (1, gpu.dur_ns);
        }
        inside
    }

    /// The same without the time on the host.
    fn gpu_only(&self) -> Self {
        Self { ns: 0, ..*self }
    }

    fn add(&mut self, more: &Inside) {
        self.n += more.n;
        self.ns = self.ns.saturating_add(more.ns);
        for (mine, theirs) in self.gpu.iter_mut().zip(more.gpu) {
            mine.0 += theirs.0;
            mine.1 = mine.1.saturating_add(theirs.1);
        }
    }
}

/// An interval that may still get children.
#[derive(Debug, Clone, Copy)]
struct Held {
    node: u32,
    parent_seq: Option<u64>,
    dur_ns: u64,
    end_ns: i64,
    inside: Inside,
    /// Outermost intervals anywhere in it that only warmed up.
    warm: Inside,
    generation: u32,
    above_steps: bool,
    /// It only warmed up itself.
    is_warmup: bool,
    gpu: Option<(GpuSource, u64)>,
    kernels_recorded: bool,
    group: u8,
}

impl Held {
    /// Its GPU time, and that of what is directly in it, less what only warmed up; `None` where that is not known of all of this.
    fn gpu_that_counts(&self) -> Option<(GpuSource, u64, u64)> {
        let (source, ns) = self.gpu?;
        let (n, warm_ns) = self.warm.gpu[source as usize];
        // With recorded kernels an interval without GPU time launched none.
        let known = source == GpuSource::Cupti || n == self.warm.n;
        let inside_ns = self.inside.gpu[source as usize].1;
        known.then(|| (source, ns.saturating_sub(warm_ns), inside_ns.saturating_sub(warm_ns)))
    }
}

/// Children seen before their parent.
#[derive(Debug, Default, Clone)]
struct Waiting {
    inside: Inside,
    /// Outermost intervals anywhere in it that only warmed up.
    warm: Inside,
    /// Their nodes, which learn their parent when it comes.
    nodes: Vec<u32>,
    /// How many of them were entered in it directly, not in a request inside it.
    count: u64,
}

impl Waiting {
    fn take(&mut self, inside: &Inside, nodes: &[u32]) {
        self.inside.add(inside);
        for node in nodes {
            if !self.nodes.contains(node) {
                self.nodes.push(*node);
            }
        }
    }
}

/// What an interval's time is part of: the nearest interval around it that is not a request.
///
/// Requests stand above steps and have no self time, but a server has a step around them (its handler, `main`), and the steps
/// in a request are part of that.
#[derive(Debug, Clone, Copy)]
enum Around {
    Nothing,
    Held(u64),
    NotYetSeen(u64),
}

#[derive(Debug, Default)]
struct Node {
    totals: PathTotals,
    own_self_ns: i128,
    parents: Parents,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Parents {
    #[default]
    Unseen,
    One(Option<u32>),
    Several,
}

impl Parents {
    fn note(&mut self, parent: Option<u32>) {
        *self = match *self {
            Parents::Unseen => Parents::One(parent),
            Parents::One(known) if known == parent => *self,
            _ => Parents::Several,
        }
    }
}

/// Rounding of two time-stamps: a parent may seem shorter by this much for each child, in nanoseconds.
const ROUNDING_NS: u64 = 2;

/// Marks resolve about half a microsecond: GPU time of a parent may seem shorter by this much, in nanoseconds.
const GPU_ROUNDING_NS: u64 = 1_000;

/// Requests inside requests that are looked through. Real ones nest a few deep; in a crafted run they may form a ring.
const MOST_REQUESTS_DEEP: usize = 64;

/// Intervals around one that warmed up. Real ones nest a few deep; in a crafted run they may form a ring.
const MOST_AROUND_WARMUP: usize = 1_024;

/// Collects [`Intervals`] from spans in any order.
#[derive(Debug)]
pub struct IntervalPass {
    nodes: Vec<Node>,
    by_rollup: HashMap<u32, u32>,
    held: HashMap<u64, Held>,
    waiting: HashMap<u64, Waiting>,
    recorded: HashSet<u64>,
    generation: u32,
    hold_most: usize,
    /// What `hold_most` may not grow beyond.
    at_most: usize,
    earliest_start: i64,
    out: Intervals,
}

impl Default for IntervalPass {
    fn default() -> Self {
        Self::holding(1 << 16)
    }
}

impl IntervalPass {
    /// A pass that looks for intervals to let go of once it holds `hold_most`.
    pub fn holding(hold_most: usize) -> Self {
        Self {
            nodes: Vec::new(),
            by_rollup: HashMap::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            recorded: HashSet::new(),
            generation: 0,
            hold_most,
            at_most: usize::MAX,
            earliest_start: i64::MAX,
            out: Intervals::default(),
        }
    }

    /// The same, but never with more than `most` intervals in memory, and as many parents that are still to come: what is too
    /// much is counted in [`Intervals::let_go_early`].
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { at_most: most.max(1), hold_most: self.hold_most.min(most.max(1)), ..self }
    }

    /// Tells which steps' kernels were recorded; to be told before the spans of these steps come.
    pub fn recorded(&mut self, steps: impl IntoIterator<Item = u64>) {
        self.recorded.extend(steps);
    }

    /// Takes one span. All must come from one [`Batches`](crate::Batches), which numbers rollups.
    pub fn add(&mut self, span: &SpanRecord) {
        let start = span.host_start.0;
        let end_ns = span.host_start.plus_ns(span.host_dur_ns).0;
        let (first, last) = self.out.span.unwrap_or((start, end_ns));
        self.out.span = Some((first.min(start), last.max(end_ns)));
        let node = self.node(&span.path);
        if span.step.is_none() {
            self.out.above_steps += 1;
        } else {
            self.out.count += 1;
            self.own(node, span);
            self.meet_parent(span, node);
        }
        self.hold(span, node, false);
    }

    /// Takes one span of a step, or of a request, that only warmed up: what is around it has its time less this one's.
    pub fn add_warmup(&mut self, span: &SpanRecord) {
        let (around, mut inside) = (self.around(span.parent_seq), Inside::of(span));
        if span.step.is_none() {
            self.out.above_steps += 1;
            // The device is told by the steps in it.
            inside = Inside { ns: inside.ns, ..Inside::default() };
        }
        match self.warm_around(around) {
            None => self.warmed_inside(around, &inside),
            Some(request) if request.above_steps => self.warmed_in_request(&request, &inside),
            Some(_) => {}
        }
        let node = self.node(&span.path);
        self.hold(span, node, true);
    }

    /// Keeps a span as long as children of it may come.
    fn hold(&mut self, span: &SpanRecord, node: u32, is_warmup: bool) {
        self.earliest_start = self.earliest_start.min(span.host_start.0);
        let mut held = Held {
            node,
            parent_seq: span.parent_seq,
            dur_ns: span.host_dur_ns,
            end_ns: span.host_start.plus_ns(span.host_dur_ns).0,
            inside: Inside::default(),
            warm: Inside::default(),
            generation: self.generation,
            above_steps: span.step.is_none(),
            is_warmup,
            gpu: span.gpu.map(|gpu| (gpu.source, gpu.dur_ns)),
            kernels_recorded: span.step.is_some_and(|step| self.recorded.contains(&step)),
            group: group_of(span.step),
        };
        if let Some(early) = self.waiting.remove(&span.seq) {
            self.take_early_children(&mut held, early);
        }
        self.held.insert(span.seq, held);
        if self.held.len() >= self.hold_most {
            self.let_go();
        }
    }

    /// The result, once every span was added.
    pub fn finish(mut self) -> Intervals {
        let held: Vec<Held> = self.held.drain().map(|(_, held)| held).collect();
        for held in held {
            self.check(&held);
        }
        // A parent that never came was lost, or the segment it stood in was: its children are then outermost themselves.
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            self.out.orphans += waiting.count;
            self.outermost(waiting.inside.ns);
            self.warmed(Around::Nothing, &waiting.warm);
        }
        let rollups: Vec<String> = self.nodes.iter().map(|n| n.totals.rollup.clone()).collect();
        let nodes = self.nodes.into_iter().filter(|n| n.totals.calls > 0);
        self.out.paths = nodes
            .map(|node| {
                let mut totals = node.totals;
                totals.self_ns = u64::try_from(node.own_self_ns).unwrap_or(0);
                totals.parent = match node.parents {
                    Parents::One(Some(parent)) => Some(rollups[parent as usize].clone()),
                    _ => None,
                };
                totals
            })
            .collect();
        self.out.paths.sort_by(|a, b| a.rollup.cmp(&b.rollup));
        self.out
    }

    fn outermost(&mut self, ns: u64) {
        self.out.outermost_ns = self.out.outermost_ns.saturating_add(ns);
    }

    fn node(&mut self, path: &PathInfo) -> u32 {
        if let Some(&node) = self.by_rollup.get(&path.rollup_id) {
            return node;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node {
            totals: PathTotals {
                rollup: path.rollup.clone(),
                name: path.name.to_string(),
                target: path.target.to_string(),
                min_ns: u64::MAX,
                ..PathTotals::default()
            },
            ..Node::default()
        });
        self.by_rollup.insert(path.rollup_id, node);
        node
    }

    fn own(&mut self, node: u32, span: &SpanRecord) {
        let node = &mut self.nodes[node as usize];
        node.own_self_ns += i128::from(span.host_dur_ns);
        let totals = &mut node.totals;
        totals.calls += 1;
        if let Some(flops) = span.flops {
            totals.flops = Some(totals.flops.unwrap_or(0).saturating_add(flops));
        }
        for (into, more) in [
            (&mut totals.flops_executed, span.flops_executed.or(span.flops)),
            (&mut totals.bytes, span.bytes),
            (&mut totals.io_bytes, span.io_bytes),
        ] {
            if let Some(more) = more {
                *into = Some(into.unwrap_or(0).saturating_add(more));
            }
        }
        totals.io_missing |= (span.flops.is_some() || span.bytes.is_some()) && span.io_bytes.is_none();
        if let (Some(dtype), Some(flops)) = (span.dtype, span.flops) {
            let sum = self.out.flops_by_dtype.entry(dtype.as_str()).or_default();
            *sum = sum.saturating_add(flops);
        }
        if let Some(dtype) = span.dtype
            && !totals.dtypes.iter().any(|known| known == dtype.as_str())
        {
            totals.dtypes.push(dtype.as_str().to_string());
        }
    }

    fn around(&self, parent_seq: Option<u64>) -> Around {
        let mut parent_seq = parent_seq;
        for _ in 0..MOST_REQUESTS_DEEP {
            let Some(seq) = parent_seq else { return Around::Nothing };
            match self.held.get(&seq) {
                Some(parent) if parent.above_steps && !parent.is_warmup => parent_seq = parent.parent_seq,
                Some(_) => return Around::Held(seq),
                None => return Around::NotYetSeen(seq),
            }
        }
        Around::Nothing
    }

    fn meet_parent(&mut self, span: &SpanRecord, node: u32) {
        let around = self.around(span.parent_seq);
        self.settle(around, &Inside::of(span), &[node]);
        if let Around::NotYetSeen(seq) = around
            && span.parent_seq == Some(seq)
            && let Some(waiting) = self.waiting.get_mut(&seq)
        {
            waiting.count += 1;
        }
    }

    /// Counts the time of intervals of `nodes` against what is around them.
    fn settle(&mut self, around: Around, inside: &Inside, nodes: &[u32]) {
        let parent = match around {
            Around::Nothing => {
                self.outermost(inside.ns);
                None
            }
            Around::Held(seq) => match self.held.get_mut(&seq) {
                Some(parent) if !parent.is_warmup => {
                    take_from(parent, &mut self.nodes[parent.node as usize], inside);
                    Some(parent.node)
                }
                // What is around it is in no figure.
                _ => {
                    self.outermost(inside.ns);
                    None
                }
            },
            Around::NotYetSeen(seq) if self.is_one_too_many(seq) => {
                self.out.let_go_early += inside.n;
                self.out.orphans += inside.n;
                self.outermost(inside.ns);
                None
            }
            Around::NotYetSeen(seq) => return self.waiting.entry(seq).or_default().take(inside, nodes),
        };
        for node in nodes {
            self.nodes[*node as usize].parents.note(parent);
        }
    }

    /// The interval around, where it is known and only warmed up.
    fn warm_around(&self, around: Around) -> Option<Held> {
        match around {
            Around::Held(seq) => self.held.get(&seq).filter(|held| held.is_warmup).copied(),
            _ => None,
        }
    }

    /// Counts the GPU time of steps in a request that warmed up against what is around that: the host's time is told by the request.
    fn warmed_in_request(&mut self, request: &Held, warm: &Inside) {
        let mut around = self.around(request.parent_seq);
        for _ in 0..MOST_REQUESTS_DEEP {
            match self.warm_around(around) {
                None => return self.warmed_inside(around, &warm.gpu_only()),
                Some(outer) if outer.above_steps => around = self.around(outer.parent_seq),
                Some(_) => return,
            }
        }
    }

    /// Whether so many parents are still to come that children of `seq` cannot wait, too.
    fn is_one_too_many(&self, seq: u64) -> bool {
        self.waiting.len() >= self.at_most && !self.waiting.contains_key(&seq)
    }

    /// Counts intervals that warmed up against what is around them, which no figure has of them.
    fn warmed_inside(&mut self, around: Around, warm: &Inside) {
        self.settle(around, warm, &[]);
        self.warmed(around, warm);
    }

    /// Takes the time of intervals that warmed up from that of everything around them, as far up as is known yet.
    fn warmed(&mut self, around: Around, warm: &Inside) {
        let mut around = around;
        for _ in 0..MOST_AROUND_WARMUP {
            let parent_seq = match around {
                Around::NotYetSeen(seq) if self.is_one_too_many(seq) => {
                    self.out.let_go_early += warm.n;
                    break;
                }
                Around::NotYetSeen(seq) => return self.waiting.entry(seq).or_default().warm.add(warm),
                Around::Held(seq) => match self.held.get_mut(&seq) {
                    Some(held) if !held.is_warmup => {
                        held.warm.add(warm);
                        held.parent_seq
                    }
                    _ => break,
                },
                Around::Nothing => break,
            };
            around = self.around(parent_seq);
        }
        self.out.outermost_ns = self.out.outermost_ns.saturating_sub(warm.ns);
    }

    fn take_early_children(&mut self, held: &mut Held, early: Waiting) {
        let around = self.around(held.parent_seq);
        if held.is_warmup {
            // Only what does not warm up counts of it, and that is then outermost.
            self.settle(Around::Nothing, &early.inside, &early.nodes);
            self.warmed(Around::Nothing, &early.warm);
            if held.above_steps {
                self.warmed_in_request(held, &early.warm);
            }
            return;
        }
        if held.above_steps {
            self.settle(around, &early.inside, &early.nodes);
        } else {
            for node in &early.nodes {
                self.nodes[*node as usize].parents.note(Some(held.node));
            }
            take_from(held, &mut self.nodes[held.node as usize], &early.inside);
            held.warm.add(&early.warm);
        }
        if early.warm.n > 0 || early.warm.ns > 0 {
            self.warmed(around, &early.warm);
        }
    }

    /// Forgets intervals that ended before anything of the last generation began: no child of theirs can come.
    fn let_go(&mut self) {
        let (generation, earliest) = (self.generation, self.earliest_start);
        let gone: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, held)| held.generation < generation && held.end_ns < earliest)
            .map(|(&seq, _)| seq)
            .collect();
        for seq in gone {
            if let Some(held) = self.held.remove(&seq) {
                self.check(&held);
            }
        }
        self.generation += 1;
        self.earliest_start = i64::MAX;
        // Where the data does not let go of enough, looking again at every row would cost more than the memory. In the ordinary
        // case the half that came last stays, with a few that are still open.
        if self.held.len() > self.hold_most / 4 * 3 {
            self.hold_most = self.hold_most.saturating_mul(2).min(self.at_most);
        }
        if self.held.len() >= self.at_most {
            let held: Vec<Held> = self.held.drain().map(|(_, held)| held).collect();
            self.out.let_go_early += held.len() as u64;
            held.iter().for_each(|held| self.check(held));
        }
    }

    /// Settles what can be said only once all children are known.
    fn check(&mut self, held: &Held) {
        if held.above_steps || held.is_warmup {
            return;
        }
        let totals = &mut self.nodes[held.node as usize].totals;
        let dur_ns = held.dur_ns.saturating_sub(held.warm.ns);
        totals.total_ns = totals.total_ns.saturating_add(dur_ns);
        totals.min_ns = totals.min_ns.min(dur_ns);
        totals.max_ns = totals.max_ns.max(dur_ns);
        self.check_gpu(held);
        let tolerance = ROUNDING_NS.max(held.dur_ns / 1000);
        if held.inside.ns > held.dur_ns.saturating_add(tolerance) {
            self.out.impossible += 1;
            note_worst(&mut self.out.worst, &self.nodes[held.node as usize], held.dur_ns, held.inside.ns);
        }
    }

    /// GPU time of an interval, and the same less its children's, on this very interval.
    ///
    /// With marks the latter is known only where every child has them: of a step that was marked alone nobody knows what its children
    /// took. With recorded kernels a child without GPU time launched none.
    fn check_gpu(&mut self, held: &Held) {
        let node = &mut self.nodes[held.node as usize];
        let counts = held.gpu_that_counts();
        if counts.is_some() || held.kernels_recorded {
            node.totals.sampled(held.group, |sums| {
                sums.recorded_calls += u64::from(held.kernels_recorded);
                let Some((source, dur_ns, inside_ns)) = counts else { return };
                let all_inside_known =
                    source == GpuSource::Cupti || held.inside.gpu[source as usize].0 == held.inside.n;
                let sums = sums.of_mut(source);
                sums.calls += 1;
                sums.total_ns = sums.total_ns.saturating_add(dur_ns);
                if all_inside_known {
                    sums.self_calls += 1;
                    sums.detail_ns = sums.detail_ns.saturating_add(dur_ns);
                    sums.inside_ns = sums.inside_ns.saturating_add(inside_ns);
                }
            });
        }
        let Some((source, dur_ns)) = held.gpu else { return };
        let (_, ns) = held.inside.gpu[source as usize];
        if ns > dur_ns.saturating_add(GPU_ROUNDING_NS.max(dur_ns / 1000)) {
            self.out.gpu_impossible += 1;
            note_worst(&mut self.out.gpu_worst, node, dur_ns, ns);
        }
    }
}

/// Keeps the interval that its children exceed by most.
fn note_worst(worst: &mut Option<(String, u64, u64)>, node: &Node, dur_ns: u64, children_ns: u64) {
    let excess = |dur: u64, children: u64| children.saturating_sub(dur);
    if worst.as_ref().is_none_or(|(_, d, c)| excess(*d, *c) < excess(dur_ns, children_ns)) {
        *worst = Some((node.totals.rollup.clone(), dur_ns, children_ns));
    }
}

/// Takes children's time from their parent's self time.
fn take_from(parent: &mut Held, node: &mut Node, inside: &Inside) {
    parent.inside.add(inside);
    node.own_self_ns -= i128::from(inside.ns);
}

/// Totals by rollup, for passes that look paths up.
pub(crate) fn by_rollup(paths: &[PathTotals]) -> BTreeMap<&str, &PathTotals> {
    paths.iter().map(|p| (p.rollup.as_str(), p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::{HostNs, SpanId, ThreadInfo, TraceId};
    use std::sync::Arc;

    #[test]
    fn memory_does_not_grow_with_the_run() {
        let path = |name: &str, rollup_id| {
            Arc::new(PathInfo {
                id: rollup_id,
                path: name.into(),
                rollup: name.into(),
                rollup_id,
                name: name.into(),
                target: "".into(),
            })
        };
        let (request, step) = (path("request", 0), path("decode", 1));
        let thread = Arc::new(ThreadInfo { index: 1, os_id: 0, name: "main".into() });
        let mut pass = IntervalPass::holding(64);
        for seq in 0..10_000u64 {
            // One request spans the whole run and must stay; every other interval is over when the next begins.
            let (above, start, dur) = (seq == 0, seq as i64 * 10, if seq == 0 { 100_000 } else { 10 });
            pass.add(&SpanRecord {
                seq,
                parent_seq: (!above).then_some(0),
                trace_id: TraceId(1),
                span_id: SpanId(1),
                step: (!above).then_some(seq),
                phase: None,
                path: if above { request.clone() } else { step.clone() },
                depth: 0,
                thread: thread.clone(),
                host_start: HostNs(start),
                host_dur_ns: dur,
                gpu: None,
                flops: None,
                bytes: None,
                tokens: None,
                context_len: None,
                batch: None,
                dtype: None,
                shape: None,
                flops_executed: None,
                io_bytes: None,
            });
            assert!(pass.held.len() <= 128, "{} held", pass.held.len());
        }
        let intervals = pass.finish();
        assert_eq!((intervals.count, intervals.orphans, intervals.outermost_ns), (9_999, 0, 99_990));
    }
}
