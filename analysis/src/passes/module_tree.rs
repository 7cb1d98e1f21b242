//! Where the time goes, by the parts of the modules' names: `model.layers.*.mlp.down_proj` stands below `mlp`, that below
//! `layers.*`, whether or not the model has spans around its blocks.
//!
//! A part that no interval stands for has the time of what is below it. Flat and without recursion, as the tree of paths.

use super::path_totals::Intervals;
use super::tree::{plus, ratio};
use std::collections::BTreeMap;

/// Parts of a name that get a row each; the rest of a longer one is one part.
const MOST_PARTS: usize = 32;

/// Rows in display order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModuleTree {
    /// Parents before children, siblings by time.
    pub rows: Vec<ModuleRow>,
}

/// A step, or a part of the names of modules in it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleRow {
    /// Levels above it.
    pub depth: usize,
    /// The part of the name, with the number of a layer: `layers.*`.
    pub label: String,
    /// The step and the name up to here.
    pub name: String,
    /// Whether intervals stand for it; otherwise it is a part of names only.
    pub is_module: bool,
    /// Intervals that stand for it, or for what is below it.
    pub calls: u64,
    /// Sum of their durations in nanoseconds: its own, or of what is below it.
    pub total_ns: u64,
    /// `total_ns` ÷ the sum of the outermost steps' durations.
    pub share: f64,
    /// FLOPs of it and everything below it.
    pub flops: Option<u64>,
    /// Bytes of weights and KV cache, of it and everything below it.
    pub bytes: Option<u64>,
}

/// A part while the tree is built.
#[derive(Default)]
struct Node {
    parent: Option<usize>,
    children: Vec<usize>,
    /// Bytes of the parent's name, and of the dot or slash after it.
    label_at: usize,
    /// Position of its totals.
    path: Option<usize>,
    below_ns: u64,
    below_calls: u64,
    flops: Option<u64>,
    bytes: Option<u64>,
}

impl ModuleTree {
    /// Arranges the totals of all paths that are modules.
    pub fn of(intervals: &Intervals) -> Self {
        let paths = &intervals.paths;
        let mut at: BTreeMap<&str, usize> = BTreeMap::new();
        let mut nodes: Vec<Node> = Vec::new();
        for (path, totals) in paths.iter().enumerate().filter(|(_, totals)| totals.is_module) {
            let Some(step) = totals.rollup.rfind('/') else { continue };
            let mut parent = None;
            for end in ends(&totals.rollup, step) {
                let name = &totals.rollup[..end];
                let node = *at.entry(name).or_insert_with(|| {
                    let label_at = parent.map_or(0, |parent: usize| nodes[parent].label_at);
                    nodes.push(Node { parent, label_at, ..Node::default() });
                    nodes.len() - 1
                });
                parent = Some(node);
            }
            if let Some(node) = parent {
                nodes[node].path = Some(path);
            }
        }
        let names: BTreeMap<usize, &str> = at.iter().map(|(name, node)| (*node, *name)).collect();
        for node in 0..nodes.len() {
            nodes[node].label_at = nodes[node].parent.map_or(0, |parent| names[&parent].len() + 1);
            if let Some(parent) = nodes[node].parent {
                nodes[parent].children.push(node);
            } else if let Ok(step) = paths.binary_search_by(|totals| totals.rollup.as_str().cmp(names[&node])) {
                nodes[node].path = Some(step);
            }
        }
        // Parents were made before their children.
        for node in (0..nodes.len()).rev() {
            let own = nodes[node].path.map(|path| &paths[path]);
            let work = own.map_or((None, None), |own| (own.flops, own.bytes));
            (nodes[node].flops, nodes[node].bytes) = (plus(nodes[node].flops, work.0), plus(nodes[node].bytes, work.1));
            let (ns, calls) =
                own.map_or((nodes[node].below_ns, nodes[node].below_calls), |own| (own.total_ns, own.calls));
            (nodes[node].below_ns, nodes[node].below_calls) = (ns, calls);
            let (flops, bytes) = (nodes[node].flops, nodes[node].bytes);
            if let Some(parent) = nodes[node].parent {
                let parent = &mut nodes[parent];
                parent.below_ns = parent.below_ns.saturating_add(ns);
                parent.below_calls = parent.below_calls.saturating_add(calls);
                (parent.flops, parent.bytes) = (plus(parent.flops, flops), plus(parent.bytes, bytes));
            }
        }
        Self { rows: in_order(&nodes, &names, intervals) }
    }

    /// Whether it says more than the tree of paths: some part has no interval of its own.
    pub fn groups(&self) -> bool {
        self.rows.iter().any(|row| row.depth > 0 && !row.is_module)
    }
}

/// Where each part of a module's name ends: after the step, and before each dot, unless a layer's number follows it.
fn ends(rollup: &str, step: usize) -> impl Iterator<Item = usize> {
    let dots = rollup[step..].match_indices('.').map(move |(at, _)| step + at);
    let parts = dots.filter(|&at| !rollup[at..].starts_with(".*")).take(MOST_PARTS);
    std::iter::once(step).chain(parts).chain(std::iter::once(rollup.len()))
}

fn in_order(nodes: &[Node], names: &BTreeMap<usize, &str>, intervals: &Intervals) -> Vec<ModuleRow> {
    // The stack takes the last one first.
    let by_time =
        |list: &mut Vec<usize>| list.sort_by_key(|&node| (nodes[node].below_ns, std::cmp::Reverse(names[&node])));
    let mut roots: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].parent.is_none()).collect();
    by_time(&mut roots);
    let mut stack: Vec<(usize, usize)> = roots.into_iter().map(|root| (root, 0)).collect();
    let mut rows = Vec::with_capacity(nodes.len());
    while let Some((at, depth)) = stack.pop() {
        let (node, name) = (&nodes[at], names[&at]);
        rows.push(ModuleRow {
            depth,
            label: name[node.label_at..].to_owned(),
            name: name.to_owned(),
            is_module: node.path.is_some(),
            calls: node.below_calls,
            total_ns: node.below_ns,
            share: ratio(node.below_ns, intervals.outermost_ns),
            flops: node.flops,
            bytes: node.bytes,
        });
        let mut children = node.children.clone();
        by_time(&mut children);
        stack.extend(children.into_iter().map(|child| (child, depth + 1)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::path_totals::PathTotals;
    use super::*;

    fn path(rollup: &str, is_module: bool, total_ns: u64, flops: Option<u64>) -> PathTotals {
        PathTotals { rollup: rollup.into(), is_module, total_ns, calls: 2, flops, ..PathTotals::default() }
    }

    fn rows(paths: Vec<PathTotals>) -> Vec<(usize, String, u64, Option<u64>)> {
        let tree = ModuleTree::of(&Intervals { paths, outermost_ns: 100, ..Intervals::default() });
        tree.rows.into_iter().map(|row| (row.depth, row.label, row.total_ns, row.flops)).collect()
    }

    #[test]
    fn parts_without_an_interval_have_the_time_of_what_is_below() {
        let rows = rows(vec![
            path("decode", false, 100, None),
            path("decode/lm_head", true, 20, Some(7)),
            path("decode/model.layers.*.mlp.down_proj", true, 30, Some(3)),
            path("decode/model.layers.*.mlp.up_proj", true, 25, Some(4)),
            path("decode/model.norm", true, 5, None),
            path("decode/softmax", false, 9, None),
        ]);
        let expected = [
            (0, "decode", 100, Some(14)),
            (1, "model", 60, Some(7)),
            (2, "layers.*", 55, Some(7)),
            (3, "mlp", 55, Some(7)),
            (4, "down_proj", 30, Some(3)),
            (4, "up_proj", 25, Some(4)),
            (2, "norm", 5, None),
            (1, "lm_head", 20, Some(7)),
        ];
        assert_eq!(rows, expected.map(|(depth, label, ns, flops)| (depth, label.to_owned(), ns, flops)));
    }

    #[test]
    fn a_part_with_intervals_has_their_time_and_the_work_of_all() {
        let rows = rows(vec![
            path("decode", false, 100, None),
            path("decode/model.layers.*", true, 90, None),
            path("decode/model.layers.*.attn", true, 40, Some(5)),
            path("decode/model.layers.*.attn.q_proj", true, 30, Some(3)),
        ]);
        assert_eq!(rows[1], (1, "model".to_owned(), 90, Some(8)));
        assert_eq!(rows[2], (2, "layers.*".to_owned(), 90, Some(8)), "not 130: its own time has the others in it");
        assert_eq!(rows[3], (3, "attn".to_owned(), 40, Some(8)));
        assert_eq!(rows[4], (4, "q_proj".to_owned(), 30, Some(3)));
        assert!(super::ModuleTree::of(&Intervals::default()).rows.is_empty());
    }

    #[test]
    fn a_name_of_many_parts_does_not_make_a_row_for_each() {
        let long = format!("decode/{}", vec!["a"; 10_000].join("."));
        assert_eq!(rows(vec![path("decode", false, 1, None), path(&long, true, 1, None)]).len(), MOST_PARTS + 2);
    }
}
