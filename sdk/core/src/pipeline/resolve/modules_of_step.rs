//! Which modules of a model the intervals of a step stand for, and what work they do.

use super::{Parent, Resolver, Scratch, StepBuffer, Surroundings, phase_of};
use crate::annotation::Annotation;
use crate::modules::{self, Over, Slot, StepWork};
use crate::names::OTHER;
use crate::raw::flag;
use crate::vocabulary::Phase;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

impl Resolver {
    /// Names the modules that consist of others after those inside them, when a tree is seen for the first time.
    pub(super) fn name_groups(&mut self, buffer: &StepBuffer, around: &Surroundings<'_>) {
        // Looking up the latest name fetches all names, and shows whether any belongs to a module.
        let latest = buffer.items.iter().map(|item| item.name).max().unwrap_or(OTHER);
        self.name(latest, around);
        if !self.modules {
            return;
        }
        let positions = self.scratch.order.len();
        // `inside`: what the names of the modules inside an interval have in common. `names`: its own module's name.
        let mut inside: Vec<Option<String>> = vec![None; positions];
        let mut names: Vec<Option<String>> = vec![None; positions];
        // Children come after their parents: backwards, everything inside a group is known before the group itself.
        for position in (0..positions).rev() {
            let slot = self.slot(position, buffer);
            let below = inside[position].take();
            let name = slot.as_ref().and_then(|slot| slot.would_be(below.as_deref()).map(str::to_owned));
            // What this one contributes to the name of the group around it.
            let above = match &name {
                Some(name) => Some(modules::parent(name).to_owned()),
                // It computes with weights whose names were not reported, which may be anywhere in the model.
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
        // If two siblings would get the same name, such as attention and feed-forward of a GGUF file, neither gets it.
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

    /// The module of the interval at this position.
    fn slot(&self, position: usize, buffer: &StepBuffer) -> Option<Arc<Slot>> {
        let name = buffer.items[self.scratch.order[position] as usize].name;
        self.names.get(name as usize)?.module.clone()
    }

    /// Finds the work of a step's modules: the weights are known from loading, the number of tokens from the phase.
    ///
    /// Nothing is added inside an interval whose work the program states itself. Nor is it if a module ran several
    /// times in a phase: its tokens are then those of several passes, and it is not known how many each pass had.
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
                // If a step is resolved in parts, the phase's tokens are known only at its end.
                buffer.done.work_missing |= is_part && phase == Around::NoPhase && module.has_work();
                continue;
            };
            if module.has_work() {
                *passes.entry((at, name)).or_default() += 1;
                buffer.done.work_missing |= !module.knows_rows(step);
            }
            work[position].merge(&module.annotation(Some(step)));
            // Attention has no weights of its own: its work is counted for the interval that holds its projections.
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

/// The interval around that states how many tokens the work is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    /// No interval around states the number of tokens.
    NoPhase,
    /// The phase at this position, with the tokens that it states.
    Phase(u32, StepWork),
    /// The program states the work itself.
    Told,
}
