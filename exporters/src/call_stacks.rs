//! Call stacks, and which of the system's threads entered which intervals: what formats with stacks share. Pure.

use candlescope_core::stack_chains::StackChains;
use candlescope_core::{SpanRecord, StackRecord, StackSampleRecord, thread_of};
use std::collections::HashMap;
use std::sync::Arc;

/// All stacks of a run so far.
#[derive(Debug, Default)]
pub(crate) struct CallStacks(StackChains<StackRecord>);

/// What makes two frames the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// See [`StackRecord::name`].
    pub(crate) name: Arc<str>,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
    pub(crate) binary: Arc<str>,
    pub(crate) build_id: Option<Arc<str>>,
    pub(crate) address: u64,
}

impl Frame {
    pub(crate) fn of(stack: &StackRecord) -> Self {
        Self {
            name: stack.name(),
            file: stack.file.clone(),
            line: stack.line,
            binary: stack.binary.clone(),
            build_id: stack.build_id.clone(),
            address: stack.address,
        }
    }

    /// Stands for all functions of a kind that have no frames of their own.
    pub(crate) fn named(name: &str) -> Self {
        let name: Arc<str> = name.into();
        Self { binary: name.clone(), name, file: None, line: None, build_id: None, address: 0 }
    }
}

impl CallStacks {
    pub(crate) fn add(&mut self, stacks: &[StackRecord]) {
        stacks.iter().for_each(|stack| self.0.add(stack, || stack.clone()));
    }

    /// A stack as it is held: one that is too deep is its caller.
    pub(crate) fn get(&self, stack: u64) -> Option<&StackRecord> {
        self.0.place(stack).map(|place| self.0.get(place))
    }

    /// A stack, its caller and so on outwards.
    pub(crate) fn outwards(&self, stack: u64) -> impl Iterator<Item = &StackRecord> {
        self.0.place(stack).into_iter().flat_map(|place| self.0.outwards(place)).map(|place| self.0.get(place))
    }

    /// The frames of a stack, outermost first.
    pub(crate) fn frames(&self, stack: u64) -> Vec<&StackRecord> {
        self.0.place(stack).map_or(Vec::new(), |place| self.0.chain(place))
    }
}

/// The operating system's numbers of threads that entered intervals. In a run on disk only samples of stacks have them.
#[derive(Debug, Default)]
pub(crate) struct Tids {
    /// By the thread's number in the session.
    numbers: HashMap<u64, u64>,
    names: HashMap<Arc<str>, u64>,
}

impl Tids {
    pub(crate) fn add(&mut self, sample: &StackSampleRecord) {
        if let Some(seq) = sample.seq.filter(|_| !sample.pool) {
            self.numbers.insert(thread_of(seq), sample.tid);
        }
        if !self.names.contains_key(&sample.thread.name) {
            self.names.insert(sample.thread.name.clone(), sample.tid);
        }
    }

    /// The number of the thread that entered an interval, if it is known.
    pub(crate) fn of(&self, span: &SpanRecord) -> Option<u64> {
        let known = || self.numbers.get(&thread_of(span.seq)).or_else(|| self.names.get(&span.thread.name));
        Some(span.thread.os_id).filter(|tid| *tid > 0).or_else(|| known().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of its stacks was written with all its callers.
    #[test]
    fn a_chain_of_millions_of_callers_is_a_thousand_stacks() {
        let mut stacks = CallStacks::default();
        let chain = (1..=2_000_000).map(|stack| StackRecord::new(stack, Some(stack - 1), 0, "a", stack));
        stacks.add(&chain.collect::<Vec<_>>());
        let held = |stack| stacks.get(stack).map(|held| held.stack);
        assert_eq!((held(1_000), held(1_999_999), held(0)), (Some(1_000), Some(1_024), None));
        let frames = stacks.frames(1_999_999);
        assert_eq!((frames.len(), frames[0].stack, frames[1_023].stack), (1_024, 1, 1_024));
    }
}
