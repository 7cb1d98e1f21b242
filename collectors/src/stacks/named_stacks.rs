//! Stacks and samples on their way out: a stack is delivered once its functions have names, after its caller's, and a sample
//! once its stack was.

use super::perf_map::file_of;
use super::stack_tree::{Frame, Node, NodeIndex, StackTree};
use super::stack_walk::{CodeAddress, StackWalk};
use super::symbol_thread::{FunctionFrame, Functions, SymbolThread};
use candlescope_core::StackRecord;
use candlescope_core::stacks::{MonotonicNs, RawStackSample, StackSink};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Samples that may wait for a name, some 40 MB; beyond that the oldest are given up. Ten seconds of a hundred busy threads.
const MAX_WAITING: usize = 500_000;

/// For so long nothing waits while no name comes: stacks are delivered without then, until one does. The first name of a
/// large binary takes a second, or several from a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where functions are said to be that a program makes at run time and names itself.
const MADE_CODE: &str = "[perf map]";

/// A node that was delivered.
#[derive(Debug, Clone, Copy)]
struct DeliveredNode {
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
    delivered: Vec<DeliveredNode>,
    /// Nodes whose names were asked for.
    asked: usize,
    last_stack: u64,
    waiting: VecDeque<(NodeIndex, RawStackSample)>,
    /// No more names will come.
    names_ended: bool,
    /// Since when something has been waiting and no name has come.
    waits_since: Option<Instant>,
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
            waits_since: None,
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
    pub(super) fn settle(&mut self, tree: &StackTree, walk: &mut StackWalk, now: Instant, into: &mut StackSink) {
        self.ask(tree, walk);
        loop {
            match self.symbols.answer() {
                Ok(Some((at, functions))) => {
                    self.names.insert(at, Some(functions));
                    self.waits_since = None;
                }
                Ok(None) => break,
                Err(()) => {
                    self.names_ended = true;
                    break;
                }
            };
        }
        let impatient = self.waits_since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE);
        self.deliver(tree, walk, impatient, into);
        if self.delivered.len() < tree.nodes().len() {
            self.waits_since.get_or_insert(now);
        } else if !impatient {
            self.waits_since = None;
        }
    }

    /// Waits for names until then, and delivers the rest without.
    pub(super) fn finish(&mut self, tree: &StackTree, walk: &mut StackWalk, until: Instant, into: &mut StackSink) {
        self.settle(tree, walk, Instant::now(), into);
        while self.delivered.len() < tree.nodes().len() && !self.names_ended {
            match self.symbols.wait_for_answer(until) {
                Some((at, functions)) => {
                    self.names.insert(at, Some(functions));
                }
                None => self.names_ended = true,
            }
            self.deliver(tree, walk, false, into);
        }
    }

    fn ask(&mut self, tree: &StackTree, walk: &mut StackWalk) {
        for node in &tree.nodes()[self.asked..] {
            let Frame::Code(at) = node.frame else { continue };
            if self.names.contains_key(&at) {
                continue;
            }
            match at.binary {
                Some(binary) => {
                    if let Some(file) = walk.binary(binary) {
                        self.names.insert(at, None);
                        self.names_ended |= !self.symbols.ask(at, binary, Arc::clone(file));
                    }
                }
                None => {
                    if let Some(name) = walk.made_code(at.address) {
                        let file = file_of(&name).map(Arc::from);
                        let function = FunctionFrame { function: Some(name), file, ..FunctionFrame::default() };
                        self.names.insert(at, Some([function].into()));
                    }
                }
            }
        }
        self.asked = tree.nodes().len();
    }

    /// `impatient`: what has no name yet is delivered without.
    fn deliver(&mut self, tree: &StackTree, walk: &StackWalk, impatient: bool, into: &mut StackSink) {
        for node in &tree.nodes()[self.delivered.len()..] {
            let functions = match node.frame {
                Frame::Code(at) => match self.names.get(&at) {
                    Some(Some(functions)) => Arc::clone(functions),
                    Some(None) if !self.names_ended && !impatient => break,
                    _ => Arc::clone(&self.unnamed),
                },
                Frame::Cut => Arc::clone(&self.unnamed),
            };
            let delivered = self.records(*node, &functions, walk, into);
            self.delivered.push(delivered);
        }
        let known = self.delivered.len();
        while self.waiting.front().is_some_and(|(node, _)| node.as_usize() < known)
            && let Some((node, mut sample)) = self.waiting.pop_front()
        {
            sample.stack = Some(self.delivered[node.as_usize()].stack);
            into.samples.push(sample);
        }
    }

    fn records(&mut self, node: Node, functions: &Functions, walk: &StackWalk, into: &mut StackSink) -> DeliveredNode {
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
            let no_binary = || if function.function.is_some() { MADE_CODE.into() } else { "[unknown]".into() };
            let name_of_binary = binary.map_or_else(no_binary, |b| Arc::clone(&b.name));
            let mut record = StackRecord::new(self.last_stack, outer.map(|o| o.stack), depth, name_of_binary, address);
            record.function = name;
            record.crate_name = function.crate_name.clone();
            record.file = function.file.clone();
            record.line = function.line;
            record.build_id = binary.and_then(|b| b.build_id.clone());
            record.inlined = place > 0;
            outer = Some(DeliveredNode { stack: record.stack, depth: record.depth });
            into.stacks.push(record);
        }
        outer.unwrap_or(DeliveredNode { stack: self.last_stack, depth: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::ThreadState;

    #[test]
    fn names_that_do_not_come_are_given_up_until_they_do() {
        let (mut tree, mut walk) = (StackTree::default(), StackWalk::new());
        let (symbols, answer) = SymbolThread::by_hand();
        let mut named = NamedStacks::new(symbols);
        let begun = Instant::now();
        // Addresses of this test program.
        let address = |n: u64| names_that_do_not_come_are_given_up_until_they_do as *const () as u64 + n;
        let mut settled = |n: u64, seconds: u64| {
            let node = tree.node(&[address(n)], true, |address| walk.code_address(address));
            let (time, state) = (MonotonicNs(1), ThreadState::Running);
            let sample = RawStackSample { tid: 1, time, state, weight_ns: 1, stack: None, kernel: None };
            let mut into = StackSink::default();
            named.sample(node, sample, &mut into);
            named.settle(&tree, &mut walk, begun + Duration::from_secs(seconds), &mut into);
            (into.stacks.len(), into.samples.len(), walk.code_address(address(n)))
        };
        assert_eq!((settled(1, 0).1, settled(2, 9).1), (0, 0), "they may still come");
        let (stacks, samples, _) = settled(3, 11);
        assert_eq!((stacks, samples), (3, 3));
        let (stacks, samples, place) = settled(4, 12);
        assert_eq!((stacks, samples), (1, 1), "nothing waits again");
        let name = FunctionFrame { function: Some("it".into()), ..FunctionFrame::default() };
        answer.send((place, [name].into())).unwrap();
        assert_eq!(settled(5, 13).1, 0, "one has come");
    }
}
