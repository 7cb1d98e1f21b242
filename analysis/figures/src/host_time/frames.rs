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
    /// Whether it is one of candle's operations, or below one, rather than a model that calls them.
    pub(super) fn is_operation(&self) -> bool {
        self.crate_name.as_deref() == Some("candle_core")
    }

    /// Whether its binary has no name for it.
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
    stacks: FxHashMap<u64, Frame>,
}

/// A stack's innermost function, the stack of its caller, and the frames of both.
#[derive(Debug, Clone, Copy)]
struct Frame {
    function: u32,
    parent: Option<u64>,
    depth: u16,
}

/// Frames of a stack that are kept, from the outermost on: what is deeper counts for its caller.
const DEEPEST: u16 = 1_024;

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
        // A caller that did not come before is none, so that every walk is short.
        let caller = stack.parent.and_then(|parent| self.stacks.get(&parent).copied());
        let frame = match caller {
            Some(caller) if caller.depth >= DEEPEST => caller,
            Some(caller) => Frame { function: number, parent: stack.parent, depth: caller.depth + 1 },
            None => Frame { function: number, parent: None, depth: 1 },
        };
        self.stacks.insert(stack.stack, frame);
    }

    pub(super) fn name(&self, number: u32) -> &FrameName {
        &self.names[number as usize]
    }

    /// The functions of a stack, outermost first.
    pub(super) fn of(&self, stack: u64) -> Vec<u32> {
        let mut all = Vec::new();
        let mut next = Some(stack);
        while let Some(frame) = next.and_then(|stack| self.stacks.get(&stack)) {
            all.push(frame.function);
            next = frame.parent;
        }
        all.reverse();
        all
    }
}
