//! The frames of stacks: which functions call which.

use super::function_path::function_path;
use candlescope_schema::StackRecord;
use candlescope_schema::stack_chains::{StackChains, StackPlace};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
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

    /// Whether it is one of `core`'s, such as a comparison or an iterator: part of the body of who calls it.
    pub(super) fn is_of_core(&self) -> bool {
        self.crate_name.as_deref() == Some("core")
    }

    /// Its path without the arguments of generics: what tells it from others, whatever it is used with.
    pub fn path(&self) -> Cow<'_, str> {
        function_path(&self.function)
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

/// All stacks of a run, with the number of each one's innermost function.
#[derive(Debug, Default)]
pub(super) struct Frames {
    names: Vec<FrameName>,
    numbers: FxHashMap<FrameName, u32>,
    stacks: StackChains<u32>,
}

impl Frames {
    pub(super) fn add(&mut self, stack: &StackRecord) {
        let (names, numbers) = (&mut self.names, &mut self.numbers);
        self.stacks.add(stack, || {
            let name = FrameName { function: stack.name(), crate_name: stack.crate_name.clone() };
            *numbers.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                (names.len() - 1) as u32
            })
        });
    }

    pub(super) fn place(&self, stack: u64) -> Option<StackPlace> {
        self.stacks.place(stack)
    }

    pub(super) fn name(&self, number: u32) -> &FrameName {
        &self.names[number as usize]
    }

    /// The functions of a stack, outermost first; none of none.
    pub(super) fn of(&self, stack: Option<StackPlace>) -> Vec<u32> {
        stack.map_or(Vec::new(), |stack| self.stacks.chain(stack).into_iter().copied().collect())
    }
}
