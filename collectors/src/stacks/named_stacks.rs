//! Stacks and samples on their way out: a stack is delivered once its functions have names, after its caller's, and a sample
//! once its stack was.

use super::stack_tree::{Frame, Node, NodeIndex, StackTree};
use super::stack_walk::{CodeAddress, StackWalk};
use super::symbol_thread::{FunctionFrame, Functions, SymbolThread};
use candlescope_core::StackRecord;
use candlescope_core::stacks::{MonotonicNs, RawStackSample, StackSink};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Samples that may wait for a name, some 40 MB; beyond that the oldest are given up. Ten seconds of a hundred busy threads.
const MAX_WAITING: usize = 500_000;

/// A node that was delivered.
#[derive(Debug, Clone, Copy)]
struct Delivered {
    /// Its innermost function's stack: a node has several where functions were inlined.
    stack: u64,
    depth: u16,
}

/// See the module's text.
pub(super) struct NamedStacks {
    symbols: SymbolThread,
    /// `None` while the name is asked for.
    names: FxHashMap<CodeAddress, Option<Functions>>,
    /// By node; those that are missing follow in order.
    delivered: Vec<Delivered>,
    /// Nodes whose names were asked for.
    asked: usize,
    last_stack: u64,
    waiting: VecDeque<(NodeIndex, RawStackSample)>,
    /// No more names will come.
    names_ended: bool,
    unnamed: Functions,
}

impl NamedStacks {
    pub(super) fn new(symbols: SymbolThread) -> Self {
        Self {
            symbols,
            names: FxHashMap::default(),
            delivered: Vec::new(),
            asked: 0,
            last_stack: 0,
            waiting: VecDeque::new(),
            names_ended: false,
            unnamed: [FunctionFrame::default()].into(),
        }
    }

    /// Takes a sample. It is delivered at once if its stack was.
    pub(super) fn sample(&mut self, node: Option<NodeIndex>, mut sample: RawStackSample, into: &mut StackSink) {
        let Some(node) = node else {
            into.samples.push(sample);
            return;
        };
        if let Some(delivered) = self.delivered.get(node.as_usize()) {
            sample.stack = Some(delivered.stack);
            into.samples.push(sample);
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            into.lost += 1;
        }
        self.waiting.push_back((node, sample));
    }

    /// When the oldest sample that waits was taken.
    pub(super) fn oldest_waiting(&self) -> Option<MonotonicNs> {
        self.waiting.iter().map(|(_, sample)| sample.time).min()
    }

    /// Asks for names of new stacks, and delivers what has its names.
    pub(super) fn settle(&mut self, tree: &StackTree, walk: &StackWalk, into: &mut StackSink) {
        self.ask(tree, walk);
        loop {
            match self.symbols.answer() {
                Ok(Some((at, functions))) => self.names.insert(at, Some(functions)),
                Ok(None) => break,
                Err(()) => {
                    self.names_ended = true;
                    break;
                }
            };
        }
        self.deliver(tree, walk, into);
    }

    /// Waits for names until then, and delivers the rest without.
    pub(super) fn finish(&mut self, tree: &StackTree, walk: &StackWalk, until: Instant, into: &mut StackSink) {
        self.settle(tree, walk, into);
        while self.delivered.len() < tree.nodes().len() && !self.names_ended {
            match self.symbols.wait_for_answer(until) {
                Some((at, functions)) => {
                    self.names.insert(at, Some(functions));
                }
                None => self.names_ended = true,
            }
            self.deliver(tree, walk, into);
        }
    }

    fn ask(&mut self, tree: &StackTree, walk: &StackWalk) {
        for node in &tree.nodes()[self.asked..] {
            if let Frame::Code(at) = node.frame
                && let Some(binary) = at.binary
                && let Some(file) = walk.binary(binary)
                && !self.names.contains_key(&at)
            {
                self.names.insert(at, None);
                self.names_ended |= !self.symbols.ask(at, binary, Arc::clone(file));
            }
        }
        self.asked = tree.nodes().len();
    }

    fn deliver(&mut self, tree: &StackTree, walk: &StackWalk, into: &mut StackSink) {
        for node in &tree.nodes()[self.delivered.len()..] {
            let functions = match node.frame {
                Frame::Code(at) => match self.names.get(&at) {
                    Some(Some(functions)) => Arc::clone(functions),
                    Some(None) if !self.names_ended => break,
                    _ => Arc::clone(&self.unnamed),
                },
                Frame::Cut => Arc::clone(&self.unnamed),
            };
            let delivered = self.records(*node, &functions, walk, into);
            self.delivered.push(delivered);
        }
        let known = self.delivered.len();
        while let Some((node, mut sample)) = self.waiting.pop_front_if(|(node, _)| node.as_usize() < known) {
            sample.stack = Some(self.delivered[node.as_usize()].stack);
            into.samples.push(sample);
        }
    }

    fn records(&mut self, node: Node, functions: &Functions, walk: &StackWalk, into: &mut StackSink) -> Delivered {
        let mut outer = node.parent.map(|parent| self.delivered[parent.as_usize()]);
        let binary = match node.frame {
            Frame::Code(at) => at.binary.and_then(|binary| walk.binary(binary)),
            Frame::Cut => None,
        };
        for (place, function) in functions.iter().enumerate() {
            self.last_stack += 1;
            let (name, address) = match node.frame {
                Frame::Code(at) => (function.function.clone(), at.address),
                Frame::Cut => (Some("[cut]".into()), 0),
            };
            let depth = outer.map_or(0, |o| o.depth.saturating_add(1));
            let name_of_binary = binary.map_or_else(|| "[unknown]".into(), |b| Arc::clone(&b.name));
            let mut record = StackRecord::new(self.last_stack, outer.map(|o| o.stack), depth, name_of_binary, address);
            record.function = name;
            record.crate_name = function.crate_name.clone();
            record.file = function.file.clone();
            record.line = function.line;
            record.build_id = binary.and_then(|b| b.build_id.clone());
            record.inlined = place > 0;
            outer = Some(Delivered { stack: record.stack, depth: record.depth });
            into.stacks.push(record);
        }
        outer.unwrap_or(Delivered { stack: self.last_stack, depth: 0 })
    }
}
