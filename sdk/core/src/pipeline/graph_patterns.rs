//! Layers of graphs whose capture nobody saw: a replay that runs, kernel by kernel, what known layers ran has those layers.
//! Compared is the order of starts, stream by stream, with each kernel's name, grid and block.
//!
//! Known are replays of graphs that were captured under the session, and steps whose kernels were launched one by one. What
//! passes for the same is said in [`kernel_alignment`](super::kernel_alignment). A step of another name than the one that
//! replays is no evidence; a graph that was captured in such a step is, where nothing else is known. If what is known
//! disagrees about the layer of one kernel, the graph has none, and none later on. What ran the same in two streams, below
//! several layers, is no evidence, either: which stream begins first may be another one in each replay.
//!
//! Pure: kernels and intervals come in, places go out.

use super::kernel_alignment::{Alignment, ComparedKernel, FEWEST, align};
use super::replays::{Form, Replay};
use crate::HostNs;
use crate::gpu::RawKernel;
use crate::record::SpanRecord;
use crate::vocabulary::KernelKind;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// Steps that are looked at since the session began, or since a replay without layers came: a program that captures nothing
/// pays for no more.
const MOST_LOOKED_AT: u32 = 256;

/// Steps that are kept: with their intervals some hundred kilobytes each. The oldest is forgotten.
const MOST_STEPS: usize = 16;

/// Captured graphs that are kept. The oldest is forgotten.
const MOST_CAPTURED: usize = 64;

/// Kernels of a pattern, and of a replay that is compared.
const MOST_KERNELS: usize = 8192;

/// Kernels' names that are told apart. Beyond that each is another one, and nothing is the same as anything.
const MOST_NAMES: usize = 1 << 14;

/// Graphs of which it is remembered what became of them.
const MOST_GRAPHS: usize = 4096;

/// What ran, and whose it was: an index that means something to the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnedWork {
    pub(crate) whose: usize,
    stream: (u32, u32),
    start: HostNs,
    is_kernel: bool,
    what: ComparedKernel,
}

/// Kernels in order, and the copies and memsets between them: each with the number of kernels before it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Order {
    kernels: Vec<ComparedKernel>,
    copies: Vec<(usize, u32)>,
}

/// Kernels in order of which it is known what launched each: a captured graph, or a step.
#[derive(Debug)]
struct Pattern {
    order: Order,
    /// The place in the form of each kernel, and of each copy.
    kernel_at: Vec<usize>,
    copy_at: Vec<usize>,
    form: Arc<Form>,
    /// Whether it is a graph that was captured; otherwise a step.
    is_captured: bool,
}

/// A graph that got layers.
#[derive(Debug)]
struct Bound {
    graph: u32,
    kernels: Vec<ComparedKernel>,
    /// The path of each kernel, if it has one.
    paths: Vec<Option<u32>>,
    /// The path of the step that launched it, and whether what it got its layers by ran in such a step.
    root: Option<u32>,
    is_same_step: bool,
    is_whole: bool,
    /// Kernels, copies and memsets of the replay by which it was found, and their nodes.
    records: usize,
    nodes: Vec<u64>,
}

/// Layers for a replay.
#[derive(Debug)]
pub(crate) struct DerivedLayers {
    pub(crate) form: Arc<Form>,
    /// For each of the replay's kernels, in the order in which they were given, its place in the form. `None`: nobody knows.
    pub(crate) places: Vec<Option<usize>>,
}

/// What is known to run below which layers.
#[derive(Debug)]
pub(crate) struct GraphPatterns {
    names: FxHashMap<Arc<str>, u32>,
    /// Names beyond those that are kept.
    strange: u32,
    steps: VecDeque<Pattern>,
    captured: VecDeque<Pattern>,
    /// Graphs whose replays are among `captured`, or were.
    learned: FxHashSet<u32>,
    /// Steps that may still be looked at.
    left: u32,
    /// How often something was learned, and when a graph of so many kernels was last looked for in vain.
    version: u64,
    in_vain: FxHashMap<(u32, usize), u64>,
    bound: VecDeque<Bound>,
    /// Graphs about which what is known disagrees.
    doubtful: FxHashSet<u32>,
}

impl Default for GraphPatterns {
    fn default() -> Self {
        Self {
            names: FxHashMap::default(),
            strange: 0,
            steps: VecDeque::new(),
            captured: VecDeque::new(),
            learned: FxHashSet::default(),
            left: MOST_LOOKED_AT,
            version: 0,
            in_vain: FxHashMap::default(),
            bound: VecDeque::new(),
            doubtful: FxHashSet::default(),
        }
    }
}

impl GraphPatterns {
    /// Whether steps are worth looking at.
    pub(crate) fn looks_at_steps(&self) -> bool {
        self.left > 0
    }

    /// A kernel, copy or memset as it is compared.
    pub(crate) fn see(&mut self, whose: usize, kernel: &RawKernel) -> OwnedWork {
        let what = ComparedKernel {
            name: self.name(&kernel.name),
            grid: kernel.grid,
            block: kernel.block,
            begins_stream: false,
        };
        let stream = (self.name(&kernel.device), kernel.stream);
        OwnedWork { whose, stream, start: kernel.start, is_kernel: kernel.kind == KernelKind::Kernel, what }
    }

    fn name(&mut self, name: &Arc<str>) -> u32 {
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        if self.names.len() >= MOST_NAMES {
            self.strange = self.strange.wrapping_add(1);
            return u32::MAX - self.strange % (1 << 31);
        }
        let number = self.names.len() as u32;
        self.names.insert(name.clone(), number);
        number
    }

    /// Learns what a step launched, call by call, from the interval of each among `spans`. The answer are nodes of
    /// graphs that had layers, and about which there is doubt now.
    pub(crate) fn learn_step(
        &mut self,
        spans: &[SpanRecord],
        at: &FxHashMap<u64, usize>,
        step: Option<u64>,
        seen: Vec<OwnedWork>,
    ) -> Vec<u64> {
        self.left = self.left.saturating_sub(1);
        let Some((order, kernels, copies)) = in_order(seen) else { return Vec::new() };
        let path = |i: &usize| spans[*i].path.id;
        let is_known = |known: &Pattern| known.order == order && known.own_paths().eq(kernels.iter().map(path));
        if self.steps.iter().any(is_known) {
            return Vec::new();
        }
        let (form, places) = Form::of(spans, at, step, kernels.iter().chain(&copies).copied());
        let place = |i: &usize| places.get(i).copied();
        let places_of = |all: &[usize]| all.iter().map(place).collect::<Option<Vec<usize>>>();
        let Some((kernel_at, copy_at)) = places_of(&kernels).zip(places_of(&copies)) else { return Vec::new() };
        self.add(Pattern { order, kernel_at, copy_at, form: Arc::new(form), is_captured: false })
    }

    /// Learns what a captured graph runs, from its first replay that is whole. The answer is that of
    /// [`learn_step`](Self::learn_step).
    pub(crate) fn learn_replay(&mut self, replay: &Replay) -> Vec<u64> {
        let Some(graph) = replay.graph().filter(|graph| !replay.derived && !self.learned.contains(graph)) else {
            return Vec::new();
        };
        if self.learned.len() >= MOST_GRAPHS {
            self.learned.clear();
        }
        self.learned.insert(graph);
        let seen = replay.kernels.iter().map(|(place, kernel)| self.see(*place, kernel)).collect();
        let Some((order, kernel_at, copy_at)) = in_order(seen) else { return Vec::new() };
        self.add(Pattern { order, kernel_at, copy_at, form: replay.form.clone(), is_captured: true })
    }

    fn add(&mut self, pattern: Pattern) -> Vec<u64> {
        let known = if pattern.is_captured { &self.captured } else { &self.steps };
        // A program may capture the same again and again.
        if known.iter().any(|known| known.says_the_same(&pattern)) || pattern.has_twin_streams() {
            return Vec::new();
        }
        self.version += 1;
        let mut doubted = Vec::new();
        self.bound.retain_mut(|bound| {
            let is_doubted = pattern.contradicts(bound);
            if is_doubted {
                if self.doubtful.len() < MOST_GRAPHS {
                    self.doubtful.insert(bound.graph);
                }
                doubted.append(&mut bound.nodes);
            }
            !is_doubted
        });
        let (patterns, most) = match pattern.is_captured {
            true => (&mut self.captured, MOST_CAPTURED),
            false => (&mut self.steps, MOST_STEPS),
        };
        if patterns.len() >= most {
            patterns.pop_front();
        }
        patterns.push_back(pattern);
        doubted
    }

    /// Layers of a replay of this graph, of whose nodes nothing is known. `root`: the path of the step that launched it.
    pub(crate) fn find(&mut self, graph: u32, kernels: &[RawKernel], root: Option<u32>) -> Option<DerivedLayers> {
        let key = (graph, kernels.len());
        if kernels.len() > 2 * MOST_KERNELS {
            return None;
        }
        if self.doubtful.contains(&graph) || self.in_vain.get(&key) == Some(&self.version) {
            return None;
        }
        let seen = kernels.iter().enumerate().map(|(i, kernel)| self.see(i, kernel)).collect();
        let (order, of_kernels, of_copies) = in_order(seen)?;
        let Some((pattern, aligned, agrees)) = self.best(&order.kernels, root) else {
            // Steps that come may tell.
            self.left = MOST_LOOKED_AT;
            if self.in_vain.len() >= MOST_GRAPHS {
                self.in_vain.clear();
            }
            self.in_vain.insert(key, self.version);
            return None;
        };
        if !agrees {
            self.doubt(graph);
            return None;
        }
        let mut places = vec![None; kernels.len()];
        for (i, known) in of_kernels.iter().zip(&aligned.of) {
            places[*i] = known.map(|known| pattern.kernel_at[known]);
        }
        for (i, place) in of_copies.iter().zip(pattern.places_of_copies(&order, &aligned.of)) {
            places[*i] = place;
        }
        let form = pattern.form.clone();
        let bound = Bound {
            graph,
            paths: pattern.paths(&aligned.of).collect(),
            kernels: order.kernels,
            root,
            is_same_step: pattern.is_in_step(root),
            is_whole: aligned.is_whole,
            records: kernels.len(),
            nodes: kernels.iter().filter_map(|kernel| kernel.graph_node).collect(),
        };
        self.bound.retain(|known| known.graph != graph);
        if self.bound.len() >= MOST_CAPTURED {
            self.bound.pop_front();
        }
        self.bound.push_back(bound);
        Some(DerivedLayers { form, places })
    }

    /// Forgets the layers of this graph, if a replay of it has more `records` than the one by which they were found,
    /// which lacked some. The answer are the nodes that had them; `None` if none are forgotten.
    pub(crate) fn forget_part(&mut self, graph: u32, records: usize) -> Option<Vec<u64>> {
        let part = self.bound.iter().position(|bound| bound.graph == graph && bound.records < records)?;
        self.bound.remove(part).map(|bound| bound.nodes)
    }

    /// Notes that this graph has no layers, now and later. The answer are the nodes that had some.
    pub(crate) fn doubt(&mut self, graph: u32) -> Vec<u64> {
        if self.doubtful.len() < MOST_GRAPHS {
            self.doubtful.insert(graph);
        }
        let at = self.bound.iter().position(|bound| bound.graph == graph);
        at.and_then(|at| self.bound.remove(at)).map_or_else(Vec::new, |bound| bound.nodes)
    }

    /// The pattern that a replay is like, how they lie beside each other, and whether all others say the same.
    fn best(&self, ran: &[ComparedKernel], root: Option<u32>) -> Option<(&Pattern, Alignment, bool)> {
        let all = self.steps.iter().chain(&self.captured);
        let all = all.filter(|known| known.is_captured || known.is_in_step(root));
        let mut alike: Vec<(&Pattern, Alignment)> =
            all.filter_map(|known| Some((known, align(&known.order.kernels, &known.kernel_at, ran)?))).collect();
        if alike.iter().any(|(known, _)| known.is_in_step(root)) {
            alike.retain(|(known, _)| known.is_in_step(root));
        }
        if alike.iter().any(|(_, aligned)| aligned.is_whole) {
            alike.retain(|(_, aligned)| aligned.is_whole);
        }
        let best = (0..alike.len()).max_by_key(|i| alike[*i].1.of.iter().flatten().count())?;
        let (pattern, aligned) = alike.swap_remove(best);
        let paths: Vec<Option<u32>> = pattern.paths(&aligned.of).collect();
        let agrees = alike.iter().all(|(other, theirs)| !differ(&paths, other.paths(&theirs.of)));
        Some((pattern, aligned, agrees))
    }
}

/// Whether some kernel has two paths.
fn differ(paths: &[Option<u32>], others: impl Iterator<Item = Option<u32>>) -> bool {
    paths.iter().zip(others).any(|(own, other)| own.zip(other).is_some_and(|(own, other)| own != other))
}

impl Pattern {
    /// Whether it ran in a step of this path.
    fn is_in_step(&self, root: Option<u32>) -> bool {
        root.is_some() && self.form.root() == root
    }

    /// The paths of kernels that lie beside these of its own.
    fn paths(&self, of: &[Option<usize>]) -> impl Iterator<Item = Option<u32>> {
        of.iter().map(move |known| known.map(|known| self.form.spans[self.kernel_at[known]].path.id))
    }

    /// The path of each of its kernels.
    fn own_paths(&self) -> impl Iterator<Item = u32> {
        self.kernel_at.iter().map(|place| self.form.spans[*place].path.id)
    }

    /// Whether it ran the same below the same layers.
    fn says_the_same(&self, other: &Self) -> bool {
        self.order == other.order && self.own_paths().eq(other.own_paths())
    }

    /// Whether two streams ran the same kernels below other layers.
    fn has_twin_streams(&self) -> bool {
        let paths: Vec<u32> = self.own_paths().collect();
        let mut streams: FxHashMap<(ComparedKernel, &[ComparedKernel]), &[u32]> = FxHashMap::default();
        let mut begin = 0;
        self.order.kernels.chunk_by(|_, next| !next.begins_stream).any(|stream| {
            let own = &paths[begin..begin + stream.len()];
            begin += stream.len();
            let first = ComparedKernel { begins_stream: false, ..stream[0] };
            streams.insert((first, &stream[1..]), own).is_some_and(|twin| twin != own)
        })
    }

    /// Whether it says something else than what a graph got its layers by.
    fn contradicts(&self, bound: &Bound) -> bool {
        if !self.is_in_step(bound.root) && (bound.is_same_step || !self.is_captured) {
            return false;
        }
        let aligned = align(&self.order.kernels, &self.kernel_at, &bound.kernels);
        let aligned = aligned.filter(|aligned| aligned.is_whole || !bound.is_whole);
        aligned.is_some_and(|aligned| differ(&bound.paths, self.paths(&aligned.of)))
    }

    /// The places in the form of a replay's copies and memsets, whose kernels lie beside these of its own: of those
    /// that stand between the same kernels, and are the same there.
    fn places_of_copies(&self, replay: &Order, of: &[Option<usize>]) -> Vec<Option<usize>> {
        let mut places = vec![None; replay.copies.len()];
        let mut begin = 0;
        for group in replay.copies.chunk_by(|one, next| one.0 == next.0) {
            let own = &mut places[begin..begin + group.len()];
            begin += group.len();
            let next = of.get(group[0].0).copied().flatten();
            let last = group[0].0.checked_sub(1).and_then(|last| of[last]).map(|last| last + 1);
            let Some(before) = last.or(next).filter(|_| last.is_none() || next.is_none() || last == next) else {
                continue;
            };
            let first = self.order.copies.partition_point(|copy| copy.0 < before);
            let known = self.order.copies[first..].iter().take_while(|copy| copy.0 == before);
            if known.map(|copy| copy.1).eq(group.iter().map(|copy| copy.1)) {
                own.iter_mut().zip(&self.copy_at[first..]).for_each(|(own, place)| *own = Some(*place));
            }
        }
        places
    }
}

/// What was seen in order, and whose each kernel is, and each copy; `None` for too few or too many.
fn in_order(mut seen: Vec<OwnedWork>) -> Option<(Order, Vec<usize>, Vec<usize>)> {
    let kernels = seen.iter().filter(|seen| seen.is_kernel).count();
    if !(FEWEST..=MOST_KERNELS).contains(&kernels) || seen.len() > 2 * MOST_KERNELS {
        return None;
    }
    let mut streams: FxHashMap<(u32, u32), HostNs> = FxHashMap::default();
    for one in &seen {
        let first = streams.entry(one.stream).or_insert(one.start);
        *first = one.start.min(*first);
    }
    seen.sort_by_key(|one| (streams[&one.stream], one.stream, one.start));
    let (mut order, mut of_kernels, mut of_copies) = (Order::default(), Vec::with_capacity(kernels), Vec::new());
    let mut latest = None;
    for one in seen {
        if one.is_kernel {
            let begins_stream = latest.replace(one.stream).is_some_and(|latest| latest != one.stream);
            order.kernels.push(ComparedKernel { begins_stream, ..one.what });
            of_kernels.push(one.whose);
        } else {
            order.copies.push((order.kernels.len(), one.what.name));
            of_copies.push(one.whose);
        }
    }
    Some((order, of_kernels, of_copies))
}

#[cfg(test)]
#[path = "graph_patterns_tests.rs"]
mod tests;
