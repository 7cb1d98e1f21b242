//! Functions by who calls them, with their time.

use super::frames::FrameName;
use super::weights::Weights;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// A tree of calls as a flat list: nothing here recurses.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallTree {
    /// Callers before what they call.
    pub nodes: Vec<CallNode>,
}

/// A function where it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct CallNode {
    /// The function, which has another node below each of its callers.
    pub name: FrameName,
    /// Its caller in the list.
    pub parent: Option<usize>,
    /// Whether it ran on threads of a pool.
    pub pool: bool,
    /// Time in the function itself, without the nodes below it.
    pub own: Weights,
}

impl CallTree {
    /// The function in whose body a node's time is.
    pub fn body_of<'a>(&'a self, node: &'a CallNode) -> &'a FrameName {
        let mut at = node;
        while at.name.is_of_core()
            && let Some(caller) = at.parent.and_then(|caller| self.nodes.get(caller))
        {
            at = caller;
        }
        &at.name
    }

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

/// Nodes of all paths' trees together: a run has some ten thousand.
///
/// Overload policy: beyond it time counts for the caller, or where there is none for its path alone.
const MOST_NODES: usize = 200_000;

/// Nodes that may still be added to the trees of a run.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MOST_NODES)
    }
}

/// A tree under construction, of functions by their numbers.
#[derive(Debug, Default)]
pub(super) struct GrowingTree {
    /// Function, caller, whether on a pool's thread, time in itself.
    nodes: Vec<(u32, Option<usize>, bool, Weights)>,
    children: FxHashMap<(Option<usize>, u32, bool), usize>,
}

impl GrowingTree {
    /// Adds time below a chain of functions, outermost first, with new nodes as far as there is room.
    pub(super) fn add(&mut self, chain: &[u32], pool: bool, time: &Weights, room: &mut Room) {
        let mut at = None;
        for function in chain {
            let nodes = &mut self.nodes;
            at = match self.children.entry((at, *function, pool)) {
                Entry::Occupied(known) => Some(*known.get()),
                Entry::Vacant(_) if room.0 == 0 => break,
                Entry::Vacant(new) => {
                    room.0 -= 1;
                    nodes.push((*function, at, pool, Weights::default()));
                    Some(*new.insert(nodes.len() - 1))
                }
            };
        }
        if let Some(at) = at {
            self.nodes[at].3.add(time);
        }
    }

    /// The functions that nearly all time on a CPU is below, from the outermost on; where none was sampled, nearly all
    /// time.
    pub(super) fn trunk(&self) -> Vec<u32> {
        // Stacks that could not be unwound to the end do not share it.
        const NEARLY_ALL: f64 = 0.9;
        let ran = self.nodes.iter().any(|node| node.3.cpu_ns() > 0);
        let time = |time: &Weights| if ran { time.cpu_ns() } else { time.elapsed_ns() };
        let mut below: Vec<u64> = self.nodes.iter().map(|node| time(&node.3)).collect();
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
        let (mut tree, mut room) = (GrowingTree::default(), Room::default());
        tree.add(&[1, 2, 3, 4], false, &cpu(60), &mut room);
        tree.add(&[1, 2, 5], false, &cpu(35), &mut room);
        tree.add(&[9], false, &cpu(5), &mut room);
        assert_eq!(tree.trunk(), [1, 2]);
        tree.add(&[9], false, &cpu(50), &mut room);
        assert!(tree.trunk().is_empty());
    }

    #[test]
    fn where_no_time_on_a_cpu_was_sampled_waits_tell_the_trunk() {
        let (mut tree, mut room) = (GrowingTree::default(), Room::default());
        let wait = Weights { blocked_ns: 70, waits: 1, ..Weights::default() };
        tree.add(&[1, 2, 3], false, &wait, &mut room);
        tree.add(&[1, 2, 4], false, &wait, &mut room);
        assert_eq!(tree.trunk(), [1, 2]);
        // Stacks of waits may be unwound otherwise than those of time on a CPU, which count where there are any.
        tree.add(&[1], false, &cpu(5), &mut room);
        assert_eq!(tree.trunk(), [1]);
    }

    #[test]
    fn trees_share_their_room_and_beyond_it_time_counts_for_the_caller() {
        let mut room = Room(3);
        let (mut one, mut other) = (GrowingTree::default(), GrowingTree::default());
        one.add(&[1, 2], false, &cpu(5), &mut room);
        other.add(&[1, 2, 3], false, &cpu(7), &mut room);
        other.add(&[1], false, &cpu(1), &mut room);
        other.add(&[4], false, &cpu(1), &mut room);
        let own = |tree: &GrowingTree| tree.nodes.iter().map(|node| node.3.own_ns).collect::<Vec<_>>();
        assert_eq!((own(&one), own(&other)), (vec![0, 5], vec![8]));
    }
}
