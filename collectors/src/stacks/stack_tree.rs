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
}

impl StackTree {
    /// Nodes, in the order of their numbers.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of a stack, whose frames come innermost first. `None` if it has no frames, or the tree is full.
    pub(super) fn node(&mut self, frames: &[CodeAddress], whole: bool) -> Option<NodeIndex> {
        if frames.is_empty() {
            return None;
        }
        let mut parent = None;
        if !whole {
            parent = Some(self.child(Node { parent, frame: Frame::Cut })?);
        }
        for frame in frames.iter().rev() {
            parent = Some(self.child(Node { parent, frame: Frame::Code(*frame) })?);
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
        let one = tree.node(&[at(3), at(2), at(1)], true).unwrap();
        let other = tree.node(&[at(4), at(2), at(1)], true).unwrap();
        assert_eq!(tree.nodes().len(), 4);
        assert_eq!(tree.node(&[at(3), at(2), at(1)], true), Some(one));
        assert_eq!(tree.nodes()[one.as_usize()].parent, tree.nodes()[other.as_usize()].parent);
        assert!(tree.nodes().iter().enumerate().all(|(i, node)| node.parent.is_none_or(|p| p.as_usize() < i)));
    }

    #[test]
    fn a_stack_that_was_cut_says_so_at_its_outer_end() {
        let mut tree = StackTree::default();
        tree.node(&[at(1)], false).unwrap();
        assert_eq!(tree.nodes()[0].frame, Frame::Cut);
        assert_eq!(tree.node(&[], false), None);
    }
}
