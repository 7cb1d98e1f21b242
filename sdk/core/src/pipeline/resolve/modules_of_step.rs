//! Which modules of a model the intervals of a step stand for, and what these do.

use super::{Parent, Resolver, Scratch, StepBuffer, Surroundings, phase_of};
use crate::annotation::Annotation;
use crate::modules::{self, Over, Slot, StepWork};
use crate::names::OTHER;
use crate::raw::flag;
use crate::vocabulary::Phase;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

impl Resolver {
    /// Names the modules that consist of others after those inside, where a tree is seen for the first time.
    pub(super) fn name_groups(&mut self, buffer: &StepBuffer, around: &Surroundings<'_>) {
        // Looking the latest name up fetches all, and whether any is a module's.
        let latest = buffer.items.iter().map(|item| item.name).max().unwrap_or(OTHER);
        self.name(latest, around);
        if !self.modules {
            return;
        }
        let positions = self.scratch.order.len();
        // What the modules inside each have in common, and what it is called itself.
        let mut inside: Vec<Option<String>> = vec![None; positions];
        let mut names: Vec<Option<String>> = vec![None; positions];
        // Children come after their parents, so that backwards all of a group's are known before it is its turn.
        for position in (0..positions).rev() {
            let slot = self.slot(position, buffer);
            let below = inside[position].take();
            let name = slot.as_ref().and_then(|slot| slot.would_be(below.as_deref()).map(str::to_owned));
            // What this one says of the group around it.
            let above = match &name {
                Some(name) => Some(modules::parent(name).to_owned()),
                // It computes with weights that nobody told apart, wherever those are.
                None if slot.as_ref().is_some_and(|slot| slot.is_group()) => Some(String::new()),
                None => below.clone(),
            };
            if let (Parent::At(parent), Some(above)) = (self.scratch.parents[position], above) {
                let common = match &inside[parent as usize] {
                    Some(known) => modules::common(known, &above).to_owned(),
                    None => above,
                };
                inside[parent as usize] = Some(common);
            }
            inside[position] = below;
            names[position] = name;
        }
        // Where two side by side would have one name, as attention and feed-forward of a GGUF file, it is neither's.
        let mut sharing: FxHashMap<(Parent, &str), u32> = FxHashMap::default();
        for (parent, name) in self.scratch.parents.iter().zip(&names) {
            if let Some(name) = name {
                *sharing.entry((*parent, name)).or_default() += 1;
            }
        }
        for position in 0..positions {
            let Some(slot) = self.slot(position, buffer) else { continue };
            let alone = |name: &String| sharing.get(&(self.scratch.parents[position], name.as_str())) == Some(&1);
            if names[position].as_ref().is_some_and(alone) {
                slot.name_group(inside[position].as_deref());
            }
            around.shared.tell_module(buffer.items[self.scratch.order[position] as usize].name, &slot);
        }
    }

    /// The module of the interval at a position.
    fn slot(&self, position: usize, buffer: &StepBuffer) -> Option<Arc<Slot>> {
        let name = buffer.items[self.scratch.order[position] as usize].name;
        self.names.get(name as usize)?.module.clone()
    }

    /// What the modules of a step do: the model has told its weights, and the phase how many tokens they are for.
    ///
    /// Nothing is said below an interval whose work the program tells itself, nor where a module ran several times in a
    /// phase: then its tokens are those of several passes, and nobody knows how many each had.
    pub(super) fn find_work(&mut self, buffer: &mut StepBuffer) {
        let Scratch { order, parents, work, phases, passes, .. } = &mut self.scratch;
        work.clear();
        if !self.modules {
            return;
        }
        work.resize(order.len(), Annotation::new());
        phases.clear();
        passes.clear();
        let is_part = buffer.items[order[0] as usize].flags & flag::STEP_ROOT == 0 || !buffer.open.is_empty();
        for (position, &i) in order.iter().enumerate() {
            let own = buffer.annotation(i).unwrap_or_default();
            let parent = match parents[position] {
                Parent::At(parent) => Some(parent as usize),
                _ => None,
            };
            let around = parent.map_or(Around::NoPhase, |parent| phases[parent]);
            let says_itself = own.get_flops().is_some() || own.get_bytes().is_some() || own.get_io_bytes().is_some();
            let phase = match (says_itself || around == Around::Told, StepWork::of(&own)) {
                (true, _) => Around::Told,
                (false, Some(step)) => {
                    let begins = phase_of(&buffer.items[i as usize]) != Some(Phase::Decode);
                    Around::Phase(position as u32, StepWork { source: buffer.source, begins, ..step })
                }
                (false, None) => around,
            };
            phases.push(phase);
            let name = buffer.items[i as usize].name;
            let slot = self.names.get(name as usize).and_then(|name| name.module.as_ref());
            let Some(module) = slot.and_then(|slot| slot.get()) else { continue };
            let Around::Phase(at, step) = phase else {
                work[position] = if says_itself { Annotation::new() } else { module.annotation(None) };
                // Of a step that is resolved in parts the phase's tokens are known at its end only.
                buffer.done.work_missing |= is_part && phase == Around::NoPhase && module.has_work();
                continue;
            };
            if module.has_work() {
                *passes.entry((at, name)).or_default() += 1;
                buffer.done.work_missing |= !module.knows_rows(step);
            }
            work[position].merge(&module.annotation(Some(step)));
            // Attention has no weights: it is the work of whatever holds its projections.
            if let (Some(attention), Some(parent)) = (&module.attention, parent) {
                buffer.done.work_missing |= attention.over == Over::Source && step.source.is_none();
                let width = module.weights.first().and_then(modules::activation_width);
                if let Some(more) = width.and_then(|width| attention.annotation(step, width)) {
                    work[parent].merge(&more);
                }
            }
        }
        let repeated: FxHashSet<u32> = passes.iter().filter(|(_, n)| **n > 1).map(|((at, _), _)| *at).collect();
        if repeated.is_empty() {
            return;
        }
        buffer.done.work_missing = true;
        for (position, phase) in phases.iter().enumerate() {
            if let Around::Phase(at, _) = phase
                && repeated.contains(at)
            {
                let name = buffer.items[order[position] as usize].name;
                let slot = self.names.get(name as usize).and_then(|name| name.module.as_ref());
                work[position] = slot.and_then(|slot| slot.get()).map_or_else(Annotation::new, |m| m.annotation(None));
            }
        }
    }
}

/// What stands around an interval that says how many tokens it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// Nothing.
    NoPhase,
    /// The interval at this position, with what it said.
    Phase(u32, StepWork),
    /// The program tells the work itself.
    Told,
}
