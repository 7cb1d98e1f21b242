//! The tree of a step: the order of its intervals, their parents and their paths.

use super::{Parent, ResolveContext, Resolver, Scratch, StepBuffer, TemplateNode};
use crate::pipeline::paths::UNIQUE;
use crate::raw::{RawInterval, flag};
use crate::record::PathInfo;
use std::sync::Arc;

impl Resolver {
    /// Sorts into enter order: ascending `seq`, which is dense unless records were dropped or a step was nested.
    pub(super) fn order(&mut self, buffer: &StepBuffer) {
        let order = &mut self.scratch.order;
        order.clear();
        let seqs = || buffer.items.iter().map(|item| item.seq);
        let (low, high) = seqs().fold((u64::MAX, 0), |(low, high), seq| (low.min(seq), high.max(seq)));
        if (high - low) as usize + 1 == buffer.items.len() {
            // If the numbers have no gaps, each interval's position follows from its number.
            order.resize(buffer.items.len(), 0);
            for (i, seq) in seqs().enumerate() {
                order[(seq - low) as usize] = i as u32;
            }
        } else {
            order.extend(0..buffer.items.len() as u32);
            order.sort_unstable_by_key(|&i| buffer.items[i as usize].seq);
        }
    }

    /// Finds the parents of the ordered intervals.
    pub(super) fn find_parents(&mut self, buffer: &StepBuffer) {
        let Scratch { order, parents, .. } = &mut self.scratch;
        parents.clear();
        let seq_at = |position: u32| buffer.items[order[position as usize] as usize].seq;
        for (position, &i) in order.iter().enumerate() {
            let item = &buffer.items[i as usize];
            // The parent is the interval entered just before, or one of its ancestors: walk up from it.
            let mut candidate = if position == 0 { Parent::None } else { Parent::At(position as u32 - 1) };
            while let Parent::At(at) = candidate
                && seq_at(at) > item.parent
            {
                candidate = parents[at as usize];
            }
            let parent = match candidate {
                Parent::At(at) if seq_at(at) == item.parent => candidate,
                // Not found by walking up, which happens after losses: look it up.
                _ => match order.binary_search_by_key(&item.parent, |&j| buffer.items[j as usize].seq) {
                    Ok(found) if item.parent != 0 => Parent::At(found as u32),
                    _ if item.flags & flag::STEP_ROOT != 0 => Parent::None,
                    _ if buffer.open.contains_key(&item.parent) => Parent::Open,
                    _ => Parent::Lost,
                },
            };
            parents.push(parent);
        }
    }

    pub(super) fn find_paths(&mut self, buffer: &mut StepBuffer, around: &ResolveContext<'_>) {
        if self.paths_from_template(buffer) {
            return;
        }
        self.name_groups(buffer, around);
        self.count_siblings(buffer, around);
        let mut paths = std::mem::take(&mut self.scratch.paths);
        paths.clear();
        for position in 0..self.scratch.order.len() {
            let item = buffer.items[self.scratch.order[position] as usize];
            let path = match buffer.open.remove(&item.seq) {
                Some(path) => {
                    buffer.closing.insert(item.seq);
                    path
                }
                None => self.path_of(&item, self.scratch.parents[position], buffer, &paths, around),
            };
            paths.push(path);
        }
        self.scratch.paths = paths;
        if buffer.closing.is_empty() {
            self.remember_template(buffer);
        } else {
            buffer.closing.clear();
        }
    }

    /// Counts how often each name occurs among siblings.
    fn count_siblings(&mut self, buffer: &StepBuffer, around: &ResolveContext<'_>) {
        self.scratch.repeats.clear();
        for position in 0..self.scratch.order.len() {
            if let Parent::At(parent) = self.scratch.parents[position] {
                let i = self.scratch.order[position];
                let text = self.name(buffer.items[i as usize].name, around).text;
                self.scratch.repeats.entry((parent, text)).or_default().0 += 1;
            }
        }
    }

    /// The path of an interval; `above` are the paths of all intervals that were entered before it.
    fn path_of(
        &mut self,
        item: &RawInterval,
        parent: Parent,
        buffer: &StepBuffer,
        above: &[Arc<PathInfo>],
        around: &ResolveContext<'_>,
    ) -> Arc<PathInfo> {
        let name = self.name(item.name, around);
        let lost;
        let (parent, ordinal) = match parent {
            Parent::None => (None, UNIQUE),
            // Children of an interval so long that it is resolved in parts get no ordinals: these would grow without
            // limit, and with them the number of distinct paths.
            Parent::At(at) if buffer.closing.contains(&item.parent) => (Some(&above[at as usize]), UNIQUE),
            Parent::At(at) => (Some(&above[at as usize]), self.next_ordinal(at, name.text)),
            Parent::Open | Parent::Lost => match buffer.open.get(&item.parent) {
                Some(open) => (Some(open), UNIQUE),
                None => {
                    self.orphans += u64::from(parent == Parent::Lost);
                    lost = self.paths.lost();
                    (Some(&lost), UNIQUE)
                }
            },
        };
        self.paths.child(parent, item.name, &name, ordinal)
    }

    /// The ordinal of a name among the children of `parent`, if it repeats: how often it has occurred before.
    fn next_ordinal(&mut self, parent: u32, name: u32) -> u32 {
        match self.scratch.repeats.get_mut(&(parent, name)) {
            Some((n, next)) if *n > 1 => {
                *next += 1;
                *next - 1
            }
            _ => UNIQUE,
        }
    }

    /// Takes the paths of the last step of this name, if this one has the same tree.
    fn paths_from_template(&mut self, buffer: &StepBuffer) -> bool {
        let Scratch { order, parents, paths, .. } = &mut self.scratch;
        let root = &buffer.items[order[0] as usize];
        if root.flags & flag::STEP_ROOT == 0 || !buffer.open.is_empty() {
            return false;
        }
        let Some(template) = self.templates.get(&root.name) else {
            return false;
        };
        if template.len() != order.len() {
            return false;
        }
        let same = template
            .iter()
            .zip(order.iter().zip(parents.iter()))
            .all(|(node, (&i, &parent))| node.name == buffer.items[i as usize].name && node.parent == parent);
        if same {
            paths.clear();
            paths.extend(template.iter().map(|node| node.path.clone()));
        }
        same
    }

    fn remember_template(&mut self, buffer: &StepBuffer) {
        let Scratch { order, parents, paths, .. } = &self.scratch;
        let root = &buffer.items[order[0] as usize];
        let whole =
            root.flags & flag::STEP_ROOT != 0 && !parents.iter().any(|p| matches!(p, Parent::Open | Parent::Lost));
        if !whole || order.len() > 16_384 || self.templates.len() >= 256 {
            return;
        }
        let nodes = order.iter().zip(parents).zip(paths).map(|((&i, &parent), path)| TemplateNode {
            name: buffer.items[i as usize].name,
            parent,
            path: path.clone(),
        });
        self.templates.insert(root.name, nodes.collect());
    }

    /// Gives paths to the intervals that were announced as open.
    pub(super) fn place_announced(&mut self, buffer: &mut StepBuffer, around: &ResolveContext<'_>) {
        for open in std::mem::take(&mut buffer.announced) {
            if buffer.open.contains_key(&open.seq) {
                continue;
            }
            let name = self.name(open.name, around);
            let path = if open.flags & flag::STEP_ROOT != 0 {
                self.paths.child(None, open.name, &name, UNIQUE)
            } else {
                let parent = buffer.open.get(&open.parent).cloned().unwrap_or_else(|| self.paths.lost());
                self.paths.child(Some(&parent), open.name, &name, UNIQUE)
            };
            buffer.open.insert(open.seq, path);
        }
    }
}
