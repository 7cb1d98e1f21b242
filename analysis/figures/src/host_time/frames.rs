//! The frames of stacks: which functions call which.

use candlescope_schema::StackRecord;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A function as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameName {
    /// Its path, or its binary in brackets where that has no name for it.
    pub function: Arc<str>,
    /// Its crate; `None` for functions of other languages and unknown ones.
    pub crate_name: Option<Arc<str>>,
}

impl FrameName {
    /// Whether it does what the program asks for: arithmetic, copies. See
    /// [`is_pool`](FrameName::is_pool) and the findings for what does not.
    pub fn is_unknown(&self) -> bool {
        self.function.starts_with('[')
    }

    /// Whether it belongs to what runs jobs on a pool's threads, rather than to a job.
    pub fn is_pool(&self) -> bool {
        match self.crate_name.as_deref() {
            Some(name) => POOLS.contains(&name) || name.starts_with("crossbeam"),
            None => true,
        }
    }
}

/// Crates between the start of a pool's thread and the job that it runs.
const POOLS: [&str; 6] = ["std", "core", "alloc", "rayon", "rayon_core", "tokio"];

/// All stacks of a run.
#[derive(Debug, Default)]
pub(super) struct Frames {
    names: Vec<FrameName>,
    numbers: FxHashMap<FrameName, u32>,
    /// Each stack's innermost function, and the stack of its caller.
    stacks: FxHashMap<u64, (u32, Option<u64>)>,
}

impl Frames {
    pub(super) fn add(&mut self, stack: &StackRecord) {
        let name = FrameName { function: stack.name(), crate_name: stack.crate_name.clone() };
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.names.push(name.clone());
                self.numbers.insert(name, number);
                number
            }
        };
        self.stacks.insert(stack.stack, (number, stack.parent));
    }

    pub(super) fn name(&self, number: u32) -> &FrameName {
        &self.names[number as usize]
    }

    /// The functions of a stack, outermost first; what is deeper than `most` is left out. Callers have smaller numbers,
    /// so this ends.
    pub(super) fn of(&self, stack: u64, most: usize) -> Vec<u32> {
        let mut all = Vec::new();
        let mut next = Some(stack);
        while let Some((function, parent)) = next.and_then(|stack| self.stacks.get(&stack)) {
            all.push(*function);
            next = *parent;
        }
        all.reverse();
        all.truncate(most);
        all
    }
}
