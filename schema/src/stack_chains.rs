//! Stacks by their numbers, and the callers of each. Everything that reads stacks follows callers here, where the number of
//! stacks and the depth of each are bounded: files may have been crafted.

use crate::StackRecord;
use std::collections::HashMap;

/// Frames of a stack that are kept, from the outermost on: what is deeper is its caller.
const DEEPEST: u16 = 1_024;

/// Stacks that are held.
///
/// Overload policy: samples of later stacks are as if they had none. Samplers keep fewer.
const MOST_STACKS: usize = 4_000_000;

/// A stack that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackPlace(u32);

#[derive(Debug)]
struct ChainLink<T> {
    content: T,
    caller: Option<StackPlace>,
    depth: u16,
}

/// All stacks of a run so far, with what is kept of each.
#[derive(Debug)]
pub struct StackChains<T> {
    held: Vec<ChainLink<T>>,
    /// By number.
    places: HashMap<u64, StackPlace>,
}

impl<T> Default for StackChains<T> {
    fn default() -> Self {
        Self { held: Vec::new(), places: HashMap::new() }
    }
}

impl<T> StackChains<T> {
    /// Adds a stack, of which `content` is kept. A caller that did not come before is none, so that callers never form a
    /// circle.
    pub fn add(&mut self, stack: &StackRecord, content: impl FnOnce() -> T) {
        if self.places.len() >= MOST_STACKS {
            return;
        }
        let caller = stack.parent.and_then(|parent| self.place(parent));
        let depth = caller.map_or(0, |caller| self.held[caller.0 as usize].depth);
        let place = match caller {
            Some(caller) if depth >= DEEPEST => caller,
            _ => {
                self.held.push(ChainLink { content: content(), caller, depth: depth + 1 });
                StackPlace((self.held.len() - 1) as u32)
            }
        };
        self.places.insert(stack.stack, place);
    }

    /// Where the stack of this number is held.
    pub fn place(&self, stack: u64) -> Option<StackPlace> {
        self.places.get(&stack).copied()
    }

    /// What is kept of a stack.
    pub fn get(&self, place: StackPlace) -> &T {
        &self.held[place.0 as usize].content
    }

    /// A stack, its caller and so on outwards.
    pub fn outwards(&self, place: StackPlace) -> impl Iterator<Item = StackPlace> {
        std::iter::successors(Some(place), |at| self.held[at.0 as usize].caller)
    }

    /// What is kept of a stack and its callers, outermost first.
    pub fn chain(&self, place: StackPlace) -> Vec<&T> {
        let mut chain: Vec<&T> = self.outwards(place).map(|at| self.get(at)).collect();
        chain.reverse();
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(chains: &mut StackChains<u64>, stack: u64, parent: Option<u64>) {
        chains.add(&StackRecord::new(stack, parent, 0, "a", 0), || stack);
    }

    #[test]
    fn a_chain_of_millions_ends_at_the_deepest_frame_that_is_kept() {
        let mut chains = StackChains::default();
        let many = 5_000_000;
        for stack in 1..=many {
            add(&mut chains, stack, stack.checked_sub(1).filter(|parent| *parent > 0));
        }
        assert_eq!((chains.held.len(), chains.places.len()), (DEEPEST as usize, MOST_STACKS));
        let deep = chains.place(3_000_000).unwrap();
        assert_eq!((*chains.get(deep), chains.chain(deep).len()), (1_024, 1_024));
        assert_eq!(chains.place(many), None, "beyond what is held");
    }

    #[test]
    fn a_caller_that_did_not_come_before_is_none() {
        let mut chains = StackChains::default();
        add(&mut chains, 2, Some(3));
        add(&mut chains, 3, Some(2));
        add(&mut chains, 4, Some(4));
        let chain = |stack| chains.chain(chains.place(stack).unwrap());
        assert_eq!((chain(2), chain(3), chain(4)), (vec![&2], vec![&2, &3], vec![&4]));
    }
}
