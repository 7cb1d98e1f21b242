//! The paths that intervals belong to while they are summed up.

use super::super::path_totals::PathTotals;
use candlescope_schema::{PathInfo, SpanRecord};

/// Sums over the intervals of one path.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) totals: PathTotals,
    /// Durations of its intervals less their children's; below zero while children came first.
    pub(super) own_self_ns: i128,
    pub(super) parents: Parents,
}

/// The paths that intervals of one path were entered in.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) enum Parents {
    #[default]
    Unseen,
    One(Option<u32>),
    Several,
}

impl Parents {
    #[inline]
    pub(super) fn note(&mut self, parent: Option<u32>) {
        *self = match *self {
            Parents::Unseen => Parents::One(parent),
            Parents::One(known) if known == parent => *self,
            _ => Parents::Several,
        }
    }
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    list: Vec<Node>,
    /// By the reader's number of a rollup, which is dense; `u32::MAX` for none.
    by_rollup: Vec<u32>,
}

impl Nodes {
    /// The number of a path's node.
    #[inline]
    pub(super) fn number(&mut self, path: &PathInfo) -> u32 {
        let at = path.rollup_id as usize;
        match self.by_rollup.get(at) {
            Some(&node) if node != u32::MAX => return node,
            Some(_) => {}
            None => self.by_rollup.resize(at + 1, u32::MAX),
        }
        let node = self.list.len() as u32;
        self.list.push(Node { totals: PathTotals::of(path), ..Node::default() });
        self.by_rollup[at] = node;
        node
    }

    #[inline]
    pub(super) fn at(&mut self, number: u32) -> &mut Node {
        &mut self.list[number as usize]
    }

    /// Adds an interval and its own work; `recorded` says whether its step's kernels were recorded.
    #[inline]
    pub(super) fn add(&mut self, number: u32, span: &SpanRecord, recorded: bool) {
        let node = self.at(number);
        node.own_self_ns += i128::from(span.host_dur_ns);
        node.totals.add_work(span, recorded);
    }

    /// These learn that they were entered in `parent`.
    pub(super) fn entered_in(&mut self, numbers: &[u32], parent: Option<u32>) {
        numbers.iter().for_each(|number| self.at(*number).parents.note(parent));
    }

    /// Totals of the paths that have intervals, sorted by rollup.
    pub(super) fn into_paths(self) -> Vec<PathTotals> {
        let rollups: Vec<String> = self.list.iter().map(|node| node.totals.rollup.clone()).collect();
        let with_intervals = self.list.into_iter().filter(|node| node.totals.calls > 0);
        let mut paths: Vec<PathTotals> = with_intervals
            .map(|node| PathTotals {
                self_ns: u64::try_from(node.own_self_ns).unwrap_or(0),
                parent: match node.parents {
                    Parents::One(Some(parent)) => Some(rollups[parent as usize].clone()),
                    _ => None,
                },
                ..node.totals
            })
            .collect();
        paths.sort_by(|a, b| a.rollup.cmp(&b.rollup));
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_parent_where_all_its_intervals_agree() {
        let mut parents = Parents::default();
        parents.note(Some(3));
        parents.note(Some(3));
        assert_eq!(parents, Parents::One(Some(3)));
        parents.note(None);
        assert_eq!(parents, Parents::Several);
        parents.note(None);
        assert_eq!(parents, Parents::Several);
    }
}
