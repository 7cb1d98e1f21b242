//! Turns what was copied of threads into stacks, and hands both on.

use super::named_stacks::NamedStacks;
use super::stack_tree::{NodeIndex, StackTree};
use super::stack_walk::{Registers, StackWalk};
use super::symbol_thread::SymbolThread;
use candlescope_core::stacks::{MonotonicNs, RawStackSample, StackSink};
use std::time::Instant;

/// See the module's text.
pub(super) struct StackBooks {
    walk: StackWalk,
    tree: StackTree,
    named: NamedStacks,
    /// Of the stack at hand.
    frames: Vec<u64>,
    /// The table of mappings of which the tree has addresses in memory.
    mappings_read: u64,
    /// Stacks that were not kept, for there are too many.
    pub(super) not_kept: u64,
}

impl StackBooks {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            walk: StackWalk::new(),
            tree: StackTree::default(),
            named: NamedStacks::new(SymbolThread::start()?),
            frames: Vec::new(),
            mappings_read: 0,
            not_kept: 0,
        })
    }

    /// Notices libraries that were loaded or unloaded.
    pub(super) fn follow_loader(&mut self) {
        self.walk.follow_loader();
    }

    /// The node of a stack, and where the stack ends, if it could be followed to where the thread began.
    pub(super) fn node(&mut self, registers: Registers, stack: &[u8]) -> (Option<NodeIndex>, Option<u64>) {
        let end = self.walk.frames(registers, stack, &mut self.frames);
        if self.mappings_read != self.walk.mappings_read() {
            self.mappings_read = self.walk.mappings_read();
            self.tree.addresses_changed();
        }
        let walk = &self.walk;
        let node = self.tree.node(&self.frames, end.is_some(), |address| walk.code_address(address));
        self.not_kept += u64::from(node.is_none());
        (node, end)
    }

    /// Whether the thread was in a call of the kernel, by its instructions; `None` where they are not known.
    pub(super) fn is_in_kernel(&self, registers: Registers) -> Option<bool> {
        self.walk.is_system_call(registers.ip)
    }

    /// Delivers a sample with its stack, once that has names.
    pub(super) fn sample(&mut self, node: Option<NodeIndex>, sample: RawStackSample, into: &mut StackSink) {
        self.named.sample(node, sample, into);
    }

    /// Delivers what has got its names.
    pub(super) fn settle(&mut self, into: &mut StackSink) {
        self.named.settle(&self.tree, &mut self.walk, Instant::now(), into);
    }

    /// When the oldest sample that waits for a name was taken.
    pub(super) fn oldest_waiting(&self) -> Option<MonotonicNs> {
        self.named.oldest_waiting()
    }

    /// Delivers everything, with the names that there are by then.
    pub(super) fn finish(&mut self, until: Instant, into: &mut StackSink) {
        self.named.finish(&self.tree, &mut self.walk, until, into);
    }
}
