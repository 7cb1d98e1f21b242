//! Which modules of a model the intervals of a step stand for.

use super::{Parent, ResolveContext, Resolver, StepBuffer};
use crate::modules::{self, Slot};
use crate::names::OTHER;
use rustc_hash::FxHashMap;
use std::sync::Arc;

impl Resolver {
    /// Names the modules that consist of others after those inside them, when a tree is seen for the first time.
    pub(super) fn name_groups(&mut self, buffer: &StepBuffer, around: &ResolveContext<'_>) {
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
}
