//! Collects what the host did from the samples of a run.

use super::call_tree::{GrowingTree, Room};
use super::frames::Frames;
use super::{FunctionTime, HostTime, PlaceTime, StepTimes, Weights};
use candlescope_schema::run::StackAccount;
use candlescope_schema::stack_chains::StackPlace;
use candlescope_schema::{PathInfo, StackRecord, StackSampleRecord, ThreadState};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Frames that are kept of a pool's thread that has no job.
const OF_IDLE: usize = 3;

/// Columns of samples that nothing comes from.
pub(crate) const NOT_OF_SAMPLES: &[&str] = &["host", "rank", "seq"];
/// The same of stacks.
pub(crate) const NOT_OF_STACKS: &[&str] = &["host", "rank", "depth", "file", "line", "build_id", "inlined"];

/// Takes stacks and samples.
#[derive(Default)]
pub(crate) struct StackPass {
    frames: Frames,
    places: Vec<StackPath>,
    numbers: FxHashMap<(u32, Arc<str>), usize>,
    sums: FxHashMap<(usize, Option<StackPlace>), Weights>,
    shared_pool_ns: u64,
    samples: u64,
    found: HostTime,
}

/// Time by place and stack.
type Sums = Vec<((usize, Option<StackPlace>), Weights)>;

/// A path without ordinals, and its rollup.
struct StackPath {
    rollup: String,
    path: String,
}

impl StackPass {
    /// Takes a stack. A sample's stack comes before it.
    pub(crate) fn stack(&mut self, stack: &StackRecord) {
        self.frames.add(stack);
    }

    /// Takes a sample of a measured step; those outside of all steps count for nothing. Nor does time off the CPU in a step
    /// that was not recorded from its beginning to its end: it would be a part, of unknown size.
    pub(crate) fn sample(&mut self, sample: &StackSampleRecord, times: &StepTimes) {
        if sample.step.is_none() && !sample.pool {
            return;
        }
        // What a pool's thread waits for is no time of the thread whose interval it is.
        if sample.pool && sample.state != ThreadState::Running {
            return;
        }
        if sample.state != ThreadState::Running && sample.step.is_some_and(|step| !times.is_known(step)) {
            return;
        }
        self.samples += 1;
        let Some(path) = &sample.path else {
            self.shared_pool_ns = self.shared_pool_ns.saturating_add(sample.weight_ns);
            return;
        };
        let place = self.place(path);
        let stack = sample.stack.and_then(|stack| self.frames.place(stack));
        let sum = self.sums.entry((place, stack)).or_default();
        let into = match (sample.state, sample.pool) {
            (ThreadState::Running, false) => &mut sum.own_ns,
            (ThreadState::Running, true) => &mut sum.pool_ns,
            (ThreadState::Blocked, _) => &mut sum.blocked_ns,
            (ThreadState::Preempted, _) => &mut sum.preempted_ns,
        };
        *into = into.saturating_add(sample.weight_ns);
        sum.waits += u64::from(sample.state == ThreadState::Blocked);
        if sample.state == ThreadState::Running {
            sum.samples += 1;
            if sample.kernel == Some(true) {
                sum.kernel_ns = sum.kernel_ns.saturating_add(sample.weight_ns);
            }
        }
    }

    fn place(&mut self, path: &Arc<PathInfo>) -> usize {
        // Layers of a kind differ in ordinals alone, and share a rollup.
        if let Some(place) = self.numbers.get(&(path.rollup_id, path.name.clone())) {
            return *place;
        }
        let place = self.places.len();
        self.places.push(StackPath { rollup: path.rollup.clone(), path: PathInfo::rollup_of(&path.path, None) });
        self.numbers.insert((path.rollup_id, path.name.clone()), place);
        place
    }

    /// All samples have come. Where there are many switches, they are recorded for a part of the time. Time off the CPU is
    /// that of steps that lie wholly in such a part, and is raised to that of all steps of their kind.
    pub(crate) fn end(&mut self, times: &StepTimes) {
        let sums = std::mem::take(&mut self.sums).into_iter();
        let sums: Sums = sums
            .map(|((place, stack), mut time)| {
                time.raise_off_cpu(times.factor(&self.places[place].rollup));
                ((place, stack), time)
            })
            .collect();
        self.found = self.collect(&sums);
    }

    fn collect(&self, sums: &Sums) -> HostTime {
        // Chains are made anew each time: all of them at once may be more than fits into memory.
        let mut all = Weights::default();
        let mut trees: BTreeMap<&str, (Weights, GrowingTree)> = BTreeMap::new();
        let mut functions: FxHashMap<u32, (Weights, Weights)> = FxHashMap::default();
        let mut most: FxHashMap<u32, FxHashMap<&str, u64>> = FxHashMap::default();
        let trunks = self.trunks(sums);
        let mut room = Room::default();
        for ((place, stack), time) in sums {
            let mut chain = self.frames.of(*stack);
            all.add(time);
            let StackPath { rollup, path } = &self.places[*place];
            let (whole, tree) = trees.entry(rollup).or_default();
            whole.add(time);
            let (on_pool, own) = split(time);
            let around = path.rsplit_once('/').and_then(|(above, _)| trunks.get(above));
            let operation = chain.iter().position(|function| self.frames.name(*function).is_operation());
            // One interval may have nearly all time of what is around it: the function in whose body that is stays.
            let body = || chain.iter().rposition(|function| !self.frames.name(*function).is_of_core());
            let inside = operation.or_else(body).unwrap_or_else(|| chain.len().saturating_sub(1));
            let skipped = around.map_or(0, |trunk| shared(trunk, &chain)).min(inside);
            tree.add(&chain[skipped..], false, &own, &mut room);
            tree.add(&chain[self.job(&chain)..], true, &on_pool, &mut room);
            let Some(innermost) = chain.last() else { continue };
            functions.entry(*innermost).or_default().0.add(time);
            let there = most.entry(*innermost).or_default().entry(rollup).or_default();
            *there = there.saturating_add(time.cpu_ns());
            chain.sort_unstable();
            chain.dedup();
            chain.iter().for_each(|function| functions.entry(*function).or_default().1.add(time));
        }
        let place_of = |function: &u32| {
            let places = most.get(function).into_iter().flatten();
            places.max_by_key(|(place, ns)| (**ns, Reverse(**place))).map_or("", |(place, _)| place)
        };
        let mut functions: Vec<FunctionTime> = functions
            .iter()
            .filter(|(_, (own, total))| own.cpu_ns() > 0 || total.cpu_ns() > 0)
            .map(|(function, (own, total))| FunctionTime {
                name: self.frames.name(*function).clone(),
                own: *own,
                total: *total,
                place: place_of(function).into(),
            })
            .collect();
        functions.sort_by(|a, b| {
            (Reverse(a.own.cpu_ns()), Reverse(a.total.cpu_ns()), &a.name).cmp(&(
                Reverse(b.own.cpu_ns()),
                Reverse(b.total.cpu_ns()),
                &b.name,
            ))
        });
        let name = |function| self.frames.name(function).clone();
        let places = trees.into_iter().map(|(rollup, (all, tree))| {
            let calls = tree.finish(name);
            let mut own: BTreeMap<_, u64> = BTreeMap::new();
            for node in &calls.nodes {
                let sum = own.entry(&node.name).or_default();
                *sum = sum.saturating_add(node.own.cpu_ns());
            }
            let top = own.into_iter().filter(|(_, ns)| *ns > 0).max_by_key(|(name, ns)| (*ns, Reverse(*name)));
            let top = top.map(|(name, ns)| (name.clone(), ns));
            (rollup.to_string(), PlaceTime { all, calls, top })
        });
        let (places, shared_pool_ns) = (places.collect(), self.shared_pool_ns);
        HostTime { account: StackAccount::default(), all, places, functions, shared_pool_ns }
    }

    /// For each path, the functions that all intervals inside it are called by: what is around them.
    fn trunks(&self, sums: &Sums) -> FxHashMap<&str, Vec<u32>> {
        let (mut trees, mut room): (FxHashMap<&str, GrowingTree>, _) = (FxHashMap::default(), Room::default());
        for ((place, stack), time) in sums {
            let (chain, (_, own)) = (self.frames.of(*stack), split(time));
            let mut path = self.places[*place].path.as_str();
            loop {
                trees.entry(path).or_default().add(&chain, false, &own, &mut room);
                let Some((above, _)) = path.rsplit_once('/') else { break };
                path = above;
            }
        }
        trees.into_iter().map(|(path, tree)| (path, tree.trunk())).collect()
    }

    /// Where the job of a pool's thread begins in its stack.
    fn job(&self, chain: &[u32]) -> usize {
        let job = chain.iter().position(|function| !self.frames.name(*function).is_pool());
        job.unwrap_or_else(|| chain.len().saturating_sub(OF_IDLE))
    }

    /// What was found; `None` if no stacks were sampled.
    pub(crate) fn finish(self, account: Option<&StackAccount>) -> Option<HostTime> {
        let account = account.cloned();
        (self.samples > 0 || account.is_some()).then(|| HostTime { account: account.unwrap_or_default(), ..self.found })
    }
}

/// The part on threads of a pool, and the rest.
fn split(time: &Weights) -> (Weights, Weights) {
    // A stack is a pool's or not: in neither part are there samples of the other.
    let is_pool = time.pool_ns > 0;
    match is_pool {
        true => (*time, Weights::default()),
        false => (Weights::default(), *time),
    }
}

/// How many functions two chains share from the outermost on.
fn shared(trunk: &[u32], chain: &[u32]) -> usize {
    trunk.iter().zip(chain).take_while(|(a, b)| a == b).count()
}
