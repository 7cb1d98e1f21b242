//! What work the modules of a step do, from their weights and the tokens that the step's phase states.

use super::scratch::{Parent, Scratch, TokensAround};
use super::{Resolver, StepBuffer};
use crate::annotation::Annotation;
use crate::modules::{self, StepWork};
use crate::names::NameInfo;
use crate::raw::flag;
use rustc_hash::FxHashSet;
use std::sync::Arc;

impl Resolver {
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
            let around = parent.map_or(TokensAround::NoPhase, |parent| phases[parent]);
            let says_itself = own.get_flops().is_some() || own.get_bytes().is_some() || own.get_io_bytes().is_some();
            let step = StepWork::of(&own, buffer.items[i as usize].phase());
            let phase = match (says_itself || around == TokensAround::Told, step) {
                (true, _) => TokensAround::Told,
                (false, Some(step)) => TokensAround::Phase(position as u32, StepWork { source: buffer.source, ..step }),
                (false, None) => around,
            };
            phases.push(phase);
            let name = buffer.items[i as usize].name;
            let name_info = self.names.get(name as usize);
            let slot = name_info.and_then(|name| name.module.as_ref());
            let Some(module) = slot.and_then(|slot| slot.get()) else {
                let lacks = |of: &Arc<NameInfo>| match &of.module {
                    Some(slot) => slot.lacks_work(),
                    None => self.lacking.1.iter().any(|name| **name == *of.name),
                };
                // Products of weights that were merged or made after they were read: their work is in no sum.
                buffer.done.work_missing |= phase != TokensAround::Told && name_info.is_some_and(lacks);
                continue;
            };
            let TokensAround::Phase(at, step) = phase else {
                work[position] = if says_itself { Annotation::new() } else { module.annotation(None) };
                // If a step is resolved in parts, the phase's tokens are known only at its end.
                buffer.done.work_missing |= is_part && phase == TokensAround::NoPhase && module.has_work();
                continue;
            };
            let known = module.annotation(Some(step));
            if module.has_work() {
                *passes.entry((at, name)).or_default() += 1;
                buffer.done.work_missing |= known.get_flops().is_none();
            }
            work[position].merge(&known);
            // Attention has no weights of its own: its work is counted for the interval that holds its projections.
            if let (Some(attention), Some(parent)) = (&module.attention, parent) {
                let width = module.weights.first().and_then(modules::activation_width);
                let more = width.and_then(|width| attention.annotation(step, width));
                buffer.done.work_missing |= more.is_none();
                work[parent].merge(&more.unwrap_or_default());
            }
        }
        let repeated: FxHashSet<u32> = passes.iter().filter(|(_, n)| **n > 1).map(|((at, _), _)| *at).collect();
        if repeated.is_empty() {
            return;
        }
        buffer.done.work_missing = true;
        for (position, phase) in phases.iter().enumerate() {
            if let TokensAround::Phase(at, _) = phase
                && repeated.contains(at)
            {
                let name = buffer.items[order[position] as usize].name;
                let slot = self.names.get(name as usize).and_then(|name| name.module.as_ref());
                work[position] = slot.and_then(|slot| slot.get()).map_or_else(Annotation::new, |m| m.annotation(None));
            }
        }
    }
}
