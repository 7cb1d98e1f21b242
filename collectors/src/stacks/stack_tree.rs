//! Every stack that was sampled, as a tree of addresses.

use super::stack_walk::CodeAddress;
use rustc_hash::FxHashMap;

/// More nodes than these are not kept (some 60 MB): a program whose stacks never repeat would fill memory otherwise.
const MAX_NODES: usize = 500_000;

/// A stack, by its number in the order of appearance. Parents have smaller ones than their children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeIndex(u32);

impl NodeIndex {
    pub(super) fn as_usize(self) -> usize {
        self.0 as usize
    }
}

/// What a node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Frame {
    Code(CodeAddress),
    /// Frames further out that are not known.
    Cut,
}

/// The innermost frame of a stack, and the stack that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) parent: Option<NodeIndex>,
    pub(super) frame: Frame,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct StackTree {
    places: FxHashMap<Node, NodeIndex>,
    nodes: Vec<Node>,
    /// Addresses in memory of the stack before, outermost first, with their nodes: the next one mostly differs in few inner
    /// frames, and only those are looked up.
    before: Vec<(u64, NodeIndex)>,
    /// What the stack before hangs from: the mark of one that was cut.
    cut: Option<NodeIndex>,
}

impl StackTree {
    /// Nodes, in the order of their numbers.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Addresses in memory do not mean any more what they did.
    pub(super) fn addresses_changed(&mut self) {
        self.before.clear();
    }

    /// The node of a stack, whose frames' addresses in memory come innermost first. `place` has an address as its binary
    /// counts. `None` if there are no frames, or the tree is full.
    pub(super) fn node(&mut self, frames: &[u64], whole: bool, place: impl Fn(u64) -> CodeAddress) -> Option<NodeIndex> {
        if frames.is_empty() {
            return None;
        }
        let cut = if whole { None } else { Some(self.child(Node { parent: None, frame: Frame::Cut })?) };
        if cut != self.cut {
            self.cut = cut;
            self.before.clear();
        }
        let same = frames.iter().rev().zip(&self.before).take_while(|(now, (before, _))| *now == before).count();
        self.before.truncate(same);
        let mut parent = self.before.last().map_or(cut, |(_, node)| Some(*node));
        for address in frames.iter().rev().skip(same) {
            let node = self.child(Node { parent, frame: Frame::Code(place(*address)) })?;
            self.before.push((*address, node));
            parent = Some(node);
        }
        parent
    }

    fn child(&mut self, node: Node) -> Option<NodeIndex> {
        if let Some(known) = self.places.get(&node) {
            return Some(*known);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let index = NodeIndex(self.nodes.len() as u32);
        self.nodes.push(node);
        self.places.insert(node, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64) -> CodeAddress {
        CodeAddress { binary: None, address }
    }

    #[test]
    fn stacks_share_their_outer_frames_and_parents_come_first() {
        let mut tree = StackTree::default();
        let one = tree.node(&[3, 2, 1], true, at).unwrap();
        let other = tree.node(&[4, 2, 1], true, at).unwrap();
        assert_eq!(tree.nodes().len(), 4);
        assert_eq!(tree.node(&[3, 2, 1], true, at), Some(one));
        assert_eq!(tree.nodes()[one.as_usize()].parent, tree.nodes()[other.as_usize()].parent);
        assert!(tree.nodes().iter().enumerate().all(|(i, node)| node.parent.is_none_or(|p| p.as_usize() < i)));
        assert_eq!(tree.node(&[2, 1], true, at), tree.nodes()[one.as_usize()].parent, "an outer part of the one before");
    }

    #[test]
    fn a_stack_that_was_cut_says_so_at_its_outer_end() {
        let mut tree = StackTree::default();
        tree.node(&[1], false, at).unwrap();
        assert_eq!(tree.nodes()[0].frame, Frame::Cut);
        assert_eq!(tree.node(&[], false, at), None);
        let whole = tree.node(&[1], true, at).unwrap();
        assert_eq!(tree.nodes()[whole.as_usize()].parent, None);
        let cut = tree.node(&[1], false, at).unwrap();
        assert_eq!(tree.nodes()[cut.as_usize()].parent.map(NodeIndex::as_usize), Some(0));
    }

    #[test]
    fn frames_of_the_stack_before_are_not_looked_up_again_until_addresses_mean_something_else() {
        let mut tree = StackTree::default();
        let asked = std::cell::Cell::new(0);
        let moved = |by: u64| {
            let asked = &asked;
            move |address: u64| {
                asked.set(asked.get() + 1);
                at(address + by)
            }
        };
        tree.node(&[3, 2, 1], true, moved(0)).unwrap();
        let one = tree.node(&[4, 2, 1], true, moved(0)).unwrap();
        assert_eq!(asked.get(), 4);
        tree.addresses_changed();
        let other = tree.node(&[4, 2, 1], true, moved(100)).unwrap();
        assert_eq!((asked.get(), tree.nodes().len()), (7, 7));
        assert_ne!(one, other);
    }
}
