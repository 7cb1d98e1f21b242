//! Kernels of graphs: which replay each belongs to, layers where nobody saw the capture, and replays that have fewer
//! than they should.

use super::inside::KernelsInside;
use super::unplaced::UnplacedKernels;
use super::{Kernels, MAX_REMEMBERED};
use crate::gpu::RawKernel;
use crate::pipeline::graph_patterns::{DerivedLayers, OwnedWork};
use crate::pipeline::replay_sizes::{MissingRecords, ReplayRecords};
use crate::pipeline::replays::Replay;
use crate::record::{Batch, SpanRecord};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Kernels {
    /// Puts a kernel to the others of its replay, if its graph's layers are known; otherwise it is given back.
    pub(super) fn place_in_replay(&mut self, kernel: RawKernel, replays: &mut Vec<(u32, Replay)>) -> Option<RawKernel> {
        let Some(place) = kernel.graph_node.and_then(|node| self.nodes.place(node)) else { return Some(kernel) };
        *(if place.derived { &mut self.counts.of_derived } else { &mut self.counts.of_captured }) += 1;
        let same = |(launch, replay): &&mut (u32, Replay)| {
            *launch == kernel.correlation && Arc::ptr_eq(&replay.form, &place.form)
        };
        // The kernels of a launch come one after the other.
        match replays.iter_mut().rev().find(same) {
            Some((_, replay)) => replay.kernels.push((place.at, kernel)),
            None => {
                let (launch, form) = (kernel.correlation, place.form.clone());
                replays.push((launch, Replay { form, derived: place.derived, kernels: vec![(place.at, kernel)] }));
            }
        }
        None
    }

    /// Whether a replay that an interval launched has fewer kernels than nearly all others of its graph, beyond what
    /// the recorder has told. `kernels` are those of the interval; `told` is how many more it is known to lack, and `None`
    /// where nothing is known to be lost.
    ///
    /// What was told is a part of what is missing: in one replay of 119 on a GPU, 1,082 records did not come, and the
    /// recorder told of two. Whether it was a graph's is not known; as far as it can be, it is taken to be.
    pub(super) fn lacks_untold(&mut self, span: &SpanRecord, kernels: &[RawKernel], told: Option<u64>) -> bool {
        if self.outlasts_recorder(span) {
            return false;
        }
        let mut launches: BTreeMap<(u32, u32), ReplayRecords> = BTreeMap::new();
        for kernel in kernels {
            let Some(graph) = kernel.graph else { continue };
            launches.entry((kernel.correlation, graph)).or_default().add(kernel.graph_node);
        }
        let mut own = told.unwrap_or(0);
        for ((_, graph), ran) in launches {
            let untold = match told {
                Some(_) => {
                    let missing = u64::from(self.sizes.missing_of_lossy(graph, ran, own + self.suspect_records));
                    let of_own = missing.min(own);
                    let of_suspect = (missing - of_own).min(self.suspect_records);
                    own -= of_own;
                    self.suspect_records -= of_suspect;
                    missing - of_own - of_suspect
                }
                None => {
                    let MissingRecords { here, not_there } = self.sizes.missing(graph, ran, span.seq);
                    not_there.into_iter().for_each(|(seq, records)| self.is_no_loss(seq, u64::from(records)));
                    u64::from(here)
                }
            };
            if untold > 0 {
                self.counts.untold += untold;
                if self.short.len() >= MAX_REMEMBERED {
                    self.short.clear();
                }
                *self.short.entry(span.seq).or_default() += untold;
            }
        }
        // What one replay seemed to lack, a later one of the same interval may have shown to be no loss.
        self.short.get(&span.seq).is_some_and(|missing| *missing > 0)
    }

    /// Takes back that so many records of an interval are missing, as far as they have not come since.
    fn is_no_loss(&mut self, seq: u64, records: u64) {
        let records = match self.short.get_mut(&seq) {
            Some(missing) => {
                let taken = records.min(*missing);
                *missing -= taken;
                taken
            }
            None => records,
        };
        self.counts.untold = self.counts.untold.saturating_sub(records);
    }

    /// A kernel came after its interval, of this `seq`, had gone out: it is late, and not lost.
    pub(super) fn was_late(&mut self, seq: u64, kernel: &RawKernel) {
        if kernel.graph.is_some() {
            self.takes_back_one(seq);
        }
    }

    /// A record of an interval that has gone out came late, or the recorder tells only now that it was lost: if the
    /// interval seemed to lack one without a word of it, it is no longer counted so. Returns whether it did.
    pub(super) fn takes_back_one(&mut self, seq: u64) -> bool {
        let Some(missing) = self.short.get_mut(&seq).filter(|missing| **missing > 0) else { return false };
        *missing -= 1;
        self.counts.untold = self.counts.untold.saturating_sub(1);
        true
    }

    /// Learns which kernels run below which layers: of steps that launched theirs call by call (`eager`), and of graphs
    /// whose capture is known. What may lack kernels is no example.
    pub(super) fn learn_patterns(
        &mut self,
        batch: &Batch,
        at: &FxHashMap<u64, usize>,
        inside: &[KernelsInside],
        eager: Vec<OwnedWork>,
        replayed: &[(usize, Replay)],
        unplaced: &[UnplacedKernels],
    ) {
        let step = |i: usize| batch.spans[i].step;
        let launchers = replayed.iter().map(|(i, _)| *i).chain(unplaced.iter().map(|one| one.launcher));
        let incomplete = inside.iter().enumerate().filter(|(_, inside)| inside.incomplete).map(|(i, _)| i);
        let mut left_out: FxHashSet<Option<u64>> = launchers.chain(incomplete).map(step).collect();
        let mut steps: BTreeMap<u64, Vec<OwnedWork>> = BTreeMap::new();
        for seen in eager {
            if self.outlasts_recorder(&batch.spans[seen.whose]) {
                left_out.insert(step(seen.whose));
            }
            if let Some(step) = step(seen.whose) {
                steps.entry(step).or_default().push(seen);
            }
        }
        for (step, seen) in steps.into_iter().filter(|(step, _)| !left_out.contains(&Some(*step))) {
            let doubted = self.patterns.learn_step(&batch.spans, at, Some(step), seen);
            self.nodes.doubt(&doubted);
        }
        for (launcher, replay) in replayed.iter().filter(|(launcher, _)| !inside[*launcher].incomplete) {
            if !self.outlasts_recorder(&batch.spans[*launcher]) {
                let doubted = self.patterns.learn_replay(replay);
                self.nodes.doubt(&doubted);
            }
        }
    }

    /// Makes a replay of what a graph ran of whose nodes nothing is known, if it is like something whose layers are.
    /// The answer are the kernels for which there is none.
    ///
    /// If the replay by which layers were found lacked kernels, the first that has more finds them anew: otherwise
    /// layers would lack these in all later replays, too. Of two graphs that one step replays, only one can be what is
    /// known.
    pub(super) fn find_layers(
        &mut self,
        batch: &Batch,
        at: &FxHashMap<u64, usize>,
        unplaced: UnplacedKernels,
        replayed: &mut Vec<(usize, Replay)>,
    ) -> Vec<RawKernel> {
        let UnplacedKernels { launcher, graph, kernels } = unplaced;
        let launch = kernels.first().map(|kernel| kernel.correlation);
        // An earlier replay of this batch may have found the layers.
        let mut found = Vec::new();
        let place = |kernel| self.place_in_replay(kernel, &mut found);
        let mut kernels: Vec<RawKernel> = kernels.into_iter().filter_map(place).collect();
        let is_of_launch = |replay: &Replay| replay.kernels.first().map(|(_, kernel)| kernel.correlation) == launch;
        for (_, replay) in found {
            let is_same = |(i, known): &&mut (usize, Replay)| {
                *i == launcher && is_of_launch(known) && Arc::ptr_eq(&known.form, &replay.form)
            };
            match replayed.iter_mut().rev().find(is_same) {
                Some((_, known)) => known.kernels.extend(replay.kernels),
                None => replayed.push((launcher, replay)),
            }
        }
        if kernels.is_empty() {
            return kernels;
        }
        let part = replayed.iter().rposition(|(i, replay)| *i == launcher && is_of_launch(replay));
        if let Some(part) = part {
            let known = &replayed[part].1;
            let records = kernels.len() + known.kernels.len();
            let is_its_own = known.derived && known.graph() == Some(graph);
            let forgotten = if is_its_own { self.patterns.forget_part(graph, records) } else { None };
            // The rest was made outside of all intervals, or could be of two.
            let Some(nodes) = forgotten else { return kernels };
            self.nodes.doubt(&nodes);
            let (_, part) = replayed.remove(part);
            self.counts.of_derived -= part.kernels.len() as u64;
            kernels.extend(part.kernels.into_iter().map(|(_, kernel)| kernel));
        }
        let Some(derived) = self.patterns.find(graph, &kernels, root(batch, at, launcher)) else {
            if part.is_some() {
                self.doubt(graph);
            }
            return kernels;
        };
        if let Some(twin) = twin(batch, launcher, graph, &derived, replayed) {
            [graph, twin].into_iter().for_each(|graph| self.doubt(graph));
            return kernels;
        }
        let (mut placed, mut rest) = (Vec::with_capacity(kernels.len()), Vec::new());
        for (kernel, place) in kernels.into_iter().zip(derived.places) {
            let Some(place) = place else {
                rest.push(kernel);
                continue;
            };
            // Later replays have it by their nodes.
            if let Some(node) = kernel.graph_node {
                self.nodes.derive(node, &derived.form, place);
            }
            placed.push((place, kernel));
        }
        self.counts.of_derived += placed.len() as u64;
        replayed.push((launcher, Replay { form: derived.form, derived: true, kernels: placed }));
        rest
    }

    /// Notes that the layers of a graph cannot be told, and forgets those that were derived.
    fn doubt(&mut self, graph: u32) {
        let nodes = self.patterns.doubt(graph);
        self.nodes.doubt(&nodes);
    }
}

/// Another graph that the same step replays, and that has all the layers that were found for this one.
fn twin(
    batch: &Batch,
    launcher: usize,
    graph: u32,
    derived: &DerivedLayers,
    replayed: &[(usize, Replay)],
) -> Option<u32> {
    let step = batch.spans[launcher].step?;
    let sorted = |paths: &mut dyn Iterator<Item = u32>| {
        let mut paths: Vec<u32> = paths.collect();
        paths.sort_unstable();
        paths
    };
    let own = sorted(&mut derived.places.iter().flatten().map(|place| derived.form.spans[*place].path.id));
    let same_step = replayed.iter().filter(|(i, _)| batch.spans[*i].step == Some(step)).map(|(_, replay)| replay);
    let mut others = same_step.filter(|replay| replay.graph() != Some(graph) && replay.kernels.len() == own.len());
    let paths = |replay: &Replay| sorted(&mut replay.kernels.iter().map(|(at, _)| replay.form.spans[*at].path.id));
    others.find(|replay| paths(replay) == own).and_then(Replay::graph)
}

/// The path of the step that an interval is in.
fn root(batch: &Batch, at: &FxHashMap<u64, usize>, of: usize) -> Option<u32> {
    let step = batch.spans[of].step;
    let mut root = of;
    while let Some(&around) = batch.spans[root].parent_seq.and_then(|seq| at.get(&seq)) {
        if batch.spans[around].step != step {
            break;
        }
        root = around;
    }
    Some(batch.spans[root].path.id)
}
