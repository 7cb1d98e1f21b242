//! Functions by who calls them, with their time.

use super::frames::FrameName;
use super::weights::Weights;
use rustc_hash::FxHashMap;

/// A tree of calls as a flat list: nothing here recurses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallTree {
    /// Callers before what they call.
    pub nodes: Vec<CallNode>,
}

/// A function where it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct CallNode {
    /// The function.
    pub name: FrameName,
    /// Its caller in the list.
    pub parent: Option<usize>,
    /// Whether it ran on threads of a pool.
    pub pool: bool,
    /// Time in itself.
    pub own: Weights,
}

impl CallTree {
    /// The names from the outermost caller down to a node.
    pub fn chain(&self, node: usize) -> Vec<&FrameName> {
        let mut names = Vec::new();
        let mut next = Some(node);
        while let Some(at) = next {
            names.push(&self.nodes[at].name);
            next = self.nodes[at].parent;
        }
        names.reverse();
        names
    }
}

/// Nodes of the tree of one path.
const MOST_NODES: usize = 50_000;

/// A tree under construction, of functions by their numbers.
#[derive(Debug, Default)]
pub(super) struct Growing {
    /// Function, caller, whether on a pool's thread, time in itself.
    nodes: Vec<(u32, Option<usize>, bool, Weights)>,
    children: FxHashMap<(Option<usize>, u32, bool), usize>,
}

impl Growing {
    /// Adds time below a chain of functions, outermost first.
    pub(super) fn add(&mut self, chain: &[u32], pool: bool, time: &Weights) {
        let mut at = None;
        for function in chain {
            let nodes = &mut self.nodes;
            // Beyond it time counts for the caller.
            if nodes.len() >= MOST_NODES && !self.children.contains_key(&(at, *function, pool)) {
                break;
            }
            let node = *self.children.entry((at, *function, pool)).or_insert_with(|| {
                nodes.push((*function, at, pool, Weights::default()));
                nodes.len() - 1
            });
            at = Some(node);
        }
        if let Some(at) = at {
            self.nodes[at].3.add(time);
        }
    }

    /// The functions that nearly all time is below, from the outermost on.
    pub(super) fn trunk(&self) -> Vec<u32> {
        // Stacks that could not be unwound to the end do not share it.
        const NEARLY_ALL: f64 = 0.9;
        let mut below: Vec<u64> = self.nodes.iter().map(|node| node.3.cpu_ns()).collect();
        let mut all = 0u64;
        for at in (0..self.nodes.len()).rev() {
            match self.nodes[at].1 {
                Some(parent) => below[parent] = below[parent].saturating_add(below[at]),
                None => all = all.saturating_add(below[at]),
            }
        }
        let mut trunk = Vec::new();
        let mut at = None;
        // Callers come before what they call, so one pass finds the next function of the trunk each time.
        for (node, (function, parent, _, _)) in self.nodes.iter().enumerate() {
            if *parent == at && below[node] > 0 && below[node] as f64 >= NEARLY_ALL * all as f64 {
                trunk.push(*function);
                at = Some(node);
            }
        }
        trunk
    }

    pub(super) fn finish(self, name: impl Fn(u32) -> FrameName) -> CallTree {
        let nodes = self.nodes.into_iter();
        let node = |(function, parent, pool, own)| CallNode { name: name(function), parent, pool, own };
        CallTree { nodes: nodes.map(node).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(own_ns: u64) -> Weights {
        Weights { own_ns, samples: 1, ..Weights::default() }
    }

    #[test]
    fn the_trunk_is_what_nearly_all_time_is_below() {
        let mut tree = Growing::default();
        tree.add(&[1, 2, 3, 4], false, &cpu(60));
        tree.add(&[1, 2, 5], false, &cpu(35));
        tree.add(&[9], false, &cpu(5));
        assert_eq!(tree.trunk(), [1, 2]);
        tree.add(&[9], false, &cpu(50));
        assert!(tree.trunk().is_empty());
    }
}
