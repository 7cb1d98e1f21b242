//! Which modules of a model the intervals of a step stand for, and what these do.

use super::{Parent, Resolver, Scratch, StepBuffer, Surroundings};
use crate::annotation::Annotation;
use crate::modules::{self, StepWork};
use crate::names::OTHER;

impl Resolver {
    /// Names the modules that consist of others after those inside, where a tree is seen for the first time.
    pub(super) fn name_groups(&mut self, buffer: &StepBuffer, around: &Surroundings<'_>) {
        // Looking the latest name up fetches all, and whether any is a module's.
        let latest = buffer.items.iter().map(|item| item.name).max().unwrap_or(OTHER);
        self.name(latest, around);
        if !self.modules {
            return;
        }
        let mut inside: Vec<Option<String>> = vec![None; self.scratch.order.len()];
        // Children come after their parents, so that backwards all of a group's are known before it is its turn.
        for position in (0..self.scratch.order.len()).rev() {
            let i = self.scratch.order[position];
            let name = buffer.items[i as usize].name;
            let slot = self.name(name, around).module.clone();
            let below = inside[position].take();
            let module = slot.as_ref().and_then(|slot| {
                slot.name_group(below.as_deref());
                around.shared.tell_module(name, slot);
                slot.get()
            });
            // What this one says of the group around it.
            let above = match module {
                Some(module) => Some(modules::parent(&module.name).to_owned()),
                // It computes with weights that nobody told apart, wherever those are.
                None if slot.as_ref().is_some_and(|slot| slot.is_group()) => Some(String::new()),
                None => below,
            };
            if let (Parent::At(parent), Some(above)) = (self.scratch.parents[position], above) {
                let common = match &inside[parent as usize] {
                    Some(known) => modules::common(known, &above).to_owned(),
                    None => above,
                };
                inside[parent as usize] = Some(common);
            }
        }
    }

    /// What the modules of a step do: the model has told its weights, and the phase how many tokens they are for.
    pub(super) fn find_work(&mut self, buffer: &StepBuffer) {
        let Scratch { order, parents, work, steps, .. } = &mut self.scratch;
        work.clear();
        if !self.modules {
            return;
        }
        work.resize(order.len(), Annotation::new());
        steps.clear();
        for (position, &i) in order.iter().enumerate() {
            let own = buffer.annotation(i);
            let parent = match parents[position] {
                Parent::At(parent) => Some(parent as usize),
                _ => None,
            };
            let step = own.as_ref().and_then(StepWork::of).or_else(|| steps[parent?]);
            steps.push(step);
            let name = self.names.get(buffer.items[i as usize].name as usize);
            let Some(module) = name.and_then(|name| name.module.as_ref()?.get()) else { continue };
            // What the program says itself is not said again.
            if own.is_none_or(|own| own.get_flops().is_none() && own.get_bytes().is_none()) {
                work[position].merge(&module.annotation(step));
            }
            // Attention has no weights: it is the work of whatever holds its projections.
            if let (Some(attention), Some(parent)) = (&module.attention, parent) {
                let width = module.weights.first().and_then(modules::activation_width);
                if let Some(more) = step.zip(width).and_then(|(step, width)| attention.annotation(step, width)) {
                    work[parent].merge(&more);
                }
            }
        }
    }
}
