//! Where the time goes, as a tree of rollup paths: each node's total and self time, children by time.
//!
//! Modules that stand beside each other because no span holds them, as those of candle's `qwen2`, are arranged in groups
//! by their names (`module_groups`), so that the tree of an unmodified model is that of its modules.
//!
//! The tree is a flat list in display order: a crafted run may be thousands deep, and nothing here recurses.

use super::module_groups::{Member, grouped};
use super::path_totals::{Intervals, PathTotals};
use super::stated_work::StatedWork;
use super::stats::total;
use std::collections::BTreeMap;

/// Rows of the tree in display order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree {
    /// Sum of the outermost steps' durations, which is also the sum of all self times.
    pub total_ns: u64,
    /// Parents before children, siblings by time.
    pub rows: Vec<TreeRow>,
}

/// A rollup path, or a group of modules, with its totals over measured steps.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// Levels above it in the tree, groups of modules included; 0 for a root.
    pub depth: usize,
    /// Row of its parent.
    pub parent: Option<usize>,
    /// Position of its totals in [`Intervals::paths`]; `None` for a group of modules, which has no intervals of its own.
    pub path: Option<usize>,
    /// Its rollup path; of a group, what the names in it have in common.
    pub rollup: String,
    /// Its name below its parent.
    pub label: String,
    /// Intervals; `None` for a group.
    pub calls: Option<u64>,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// The same less their children's: for a node with children, the part that no child accounts for.
    pub self_ns: u64,
    /// `total_ns` ÷ [`Tree::total_ns`], so its children's time is part of it.
    pub share: f64,
    /// Whether it has children.
    pub has_children: bool,
    /// Work of it and everything below it; its bytes with activations are `None` if some of these intervals state work but
    /// no activations.
    pub work: StatedWork,
}

impl Tree {
    /// Arranges the totals of all paths.
    pub fn of(intervals: &Intervals) -> Self {
        let paths = &intervals.paths;
        let parents = parents(paths);
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); paths.len()];
        let mut roots = Vec::new();
        for (i, parent) in parents.iter().enumerate() {
            match parent {
                Some(parent) => children[*parent].push(i),
                None => roots.push(i),
            }
        }
        let total_ns = intervals.outermost_ns;
        let mut rows: Vec<TreeRow> = Vec::with_capacity(paths.len());
        let mut stack: Vec<Node> = Vec::new();
        let by_time = |mut nodes: Vec<Node>| {
            // Ascending, because the stack takes them from the end.
            nodes.sort_by(|a, b| (a.total_ns, &b.rollup).cmp(&(b.total_ns, &a.rollup)));
            nodes
        };
        let nodes_of = |members: &[usize], row: Option<usize>, depth: usize, above: Option<&str>, groups: usize| {
            let members: Vec<Member<'_>> = members
                .iter()
                .map(|&i| Member { path: i, rollup: &paths[i].rollup, is_module: paths[i].is_module })
                .collect();
            // Names of a crafted run may have thousands of parts, each of which would compare all names once more.
            let found = grouped(&members, above.filter(|_| groups < MOST_GROUPS));
            let nodes = found.into_iter().map(|group| Node {
                total_ns: total(group.members.iter().map(|&i| paths[i].total_ns)),
                rollup: group.rollup,
                path: group.path,
                members: group.members,
                parent: row,
                depth,
                groups: groups + 1,
            });
            by_time(nodes.collect())
        };
        // Steps that are modules are arranged by their names like what is inside a step.
        stack.extend(nodes_of(&roots, None, 0, Some(""), 0));
        while let Some(node) = stack.pop() {
            let row = rows.len();
            let above = node.parent.map(|parent| rows[parent].rollup.as_str());
            let totals = node.path.map(|path| &paths[path]);
            let below = node.path.map_or(&node.members, |path| &children[path]);
            rows.push(TreeRow {
                depth: node.depth,
                parent: node.parent,
                path: node.path,
                label: label(&node.rollup, above),
                calls: totals.map(|t| t.calls),
                total_ns: node.total_ns,
                self_ns: totals.map_or(0, |t| t.self_ns),
                share: ratio(node.total_ns, total_ns),
                has_children: !below.is_empty(),
                work: totals.map_or_else(StatedWork::default, |t| t.work),
                rollup: node.rollup,
            });
            let groups = if node.path.is_some() { 0 } else { node.groups };
            let inside = nodes_of(below, Some(row), node.depth + 1, Some(&rows[row].rollup), groups);
            stack.extend(inside);
        }
        let mut missing: Vec<bool> =
            rows.iter().map(|row| row.path.is_some_and(|path| paths[path].io_missing)).collect();
        // Children come after their parents, so adding from the end carries every leaf's work up to its root.
        for row in (0..rows.len()).rev() {
            if let Some(parent) = rows[row].parent {
                let below = rows[row].work;
                rows[parent].work.add(below);
                missing[parent] |= missing[row];
            }
        }
        for (row, missing) in rows.iter_mut().zip(missing) {
            row.work.io_bytes = row.work.io_bytes.filter(|_| !missing);
        }
        Self { total_ns, rows }
    }

    /// Time in nodes with children but in none of these children: the part that the instrumentation does not resolve.
    pub fn unaccounted_ns(&self) -> u64 {
        total(self.rows.iter().filter(|row| row.has_children).map(|row| row.self_ns))
    }
}

/// What becomes a row: a path, or a group of modules.
struct Node {
    path: Option<usize>,
    rollup: String,
    /// Paths in a group.
    members: Vec<usize>,
    total_ns: u64,
    parent: Option<usize>,
    depth: usize,
    /// Groups that it is in, one inside the other, itself included.
    groups: usize,
}

/// Most groups inside each other.
const MOST_GROUPS: usize = 16;

/// Position of each path's parent.
///
/// A path's text contains its ancestors, with two exceptions, for which the interval around is asked: a step entered inside
/// another step starts a new path, and what stands in a module, because that is called by its module's name and not by
/// its span's. If the intervals differ (the same step inside different ones), the text decides.
fn parents(paths: &[PathTotals]) -> Vec<Option<usize>> {
    let at: BTreeMap<&str, usize> = paths.iter().enumerate().map(|(i, p)| (p.rollup.as_str(), i)).collect();
    let mut parents = by_text(paths);
    for (i, path) in paths.iter().enumerate() {
        let told = path.parent.as_deref().and_then(|parent| at.get(parent).copied());
        let by_interval = path.is_module || told.is_some_and(|told| paths[told].is_module);
        if (parents[i].is_none() || by_interval)
            && let Some(parent) = told
            && !above(&parents, parent, i)
        {
            parents[i] = Some(parent);
        }
    }
    parents
}

/// The nearest ancestor of each path, by its text, that has intervals of its own: one in between may have been lost.
///
/// In sorted order a path is followed by all paths that begin with it, so the ancestors of each path are among the
/// paths before it. Looking up every prefix of every path instead takes minutes for a path of a few thousand names.
fn by_text(paths: &[PathTotals]) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|&i| paths[i].rollup.as_str());
    let mut found = vec![None; paths.len()];
    let mut begun: Vec<usize> = Vec::new();
    for i in order {
        let text = paths[i].rollup.as_str();
        while begun.pop_if(|&mut before| !text.starts_with(&paths[before].rollup)).is_some() {}
        let is_above = |&&before: &&usize| match text.as_bytes().get(paths[before].rollup.len()) {
            Some(b'/') => true,
            Some(b'.') => paths[before].is_module && paths[i].is_module,
            _ => false,
        };
        found[i] = begun.iter().rev().find(is_above).copied();
        begun.push(i);
    }
    found
}

/// Whether `ancestor` is `node` or above it.
fn above(parents: &[Option<usize>], node: usize, ancestor: usize) -> bool {
    let mut at = Some(node);
    // No chain is longer than the number of nodes.
    for _ in 0..=parents.len() {
        match at {
            Some(node) if node == ancestor => return true,
            Some(node) => at = parents[node],
            None => return false,
        }
    }
    true
}

fn label(rollup: &str, above: Option<&str>) -> String {
    let Some(above) = above else { return rollup.to_string() };
    let below = |name: &str, above: &str| Some(name.strip_prefix(above)?.strip_prefix(['/', '.'])?.to_string());
    // What is not called after what is around it, because that is called by its module, has its last name: less what
    // that module's name says already, where a step is one.
    let last = |text: &str| text.rsplit('/').next().unwrap_or_default().to_string();
    below(rollup, above).or_else(|| below(&last(rollup), above)).unwrap_or_else(|| last(rollup))
}

/// `part / whole`, 0 if `whole` is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_called_by_what_the_row_around_it_does_not_say() {
        assert_eq!(label("decode", None), "decode");
        assert_eq!(label("decode/model.layers.*", Some("decode")), "model.layers.*");
        assert_eq!(label("decode/model.layers.*.mlp", Some("decode/model.layers.*")), "mlp");
        assert_eq!(label("decode/model/block/rot", Some("decode/layers.*")), "rot");
        assert_eq!(label("block/model.layers.*.mlp", Some("model.layers.*")), "mlp", "the step is a module");
        assert_eq!(label("block/attn-rot", Some("model.layers.*")), "attn-rot");
    }

    #[test]
    fn modules_hang_where_they_ran() {
        let path = |rollup: &str, parent: Option<&str>, is_module: bool, total_ns: u64| PathTotals {
            rollup: rollup.into(),
            parent: parent.map(str::to_owned),
            is_module,
            total_ns,
            calls: 1,
            ..PathTotals::default()
        };
        // `model` and `attn` have no module: what is inside them has nothing in common, or is not told apart.
        let paths = vec![
            path("decode", None, false, 100),
            path("decode/blk.*.attn_q", Some("decode/model/attn"), true, 30),
            path("decode/layers.*", Some("decode/model"), true, 40),
            path("decode/layers.*.norm", Some("decode/layers.*"), true, 10),
            path("decode/model", Some("decode"), false, 90),
            path("decode/model/attn", Some("decode/model"), false, 35),
            path("decode/model/block/rot", Some("decode/layers.*"), false, 5),
        ];
        let tree = Tree::of(&Intervals { paths, outermost_ns: 100, ..Intervals::default() });
        let rows: Vec<(usize, &str)> = tree.rows.iter().map(|row| (row.depth, row.label.as_str())).collect();
        let expected =
            [(0, "decode"), (1, "model"), (2, "layers.*"), (3, "norm"), (3, "rot"), (2, "attn"), (3, "blk.*.attn_q")];
        assert_eq!(rows, expected);
    }
}
