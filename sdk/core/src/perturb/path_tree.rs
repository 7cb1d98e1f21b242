//! The paths of a thread's intervals while an experiment goes on, as a tree: which paths are targets is asked once for
//! each path.

use super::experiment::Experiment;
use crate::names::{NameInfo, Names};
use std::sync::Arc;

/// The most paths of one thread; intervals of further ones are no targets.
const MOST: usize = 16_384;

/// No path.
pub(crate) const NOWHERE: u32 = u32::MAX;

struct Node {
    name: u32,
    info: Arc<NameInfo>,
    path: String,
    /// A bit for each arm that means it.
    arms: u64,
    children: Vec<u32>,
}

/// An interval whose path is asked for.
#[derive(Clone, Copy)]
pub(crate) struct PathQuery<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) names: &'a Names,
    /// The path around it; [`NOWHERE`] of a step.
    pub(crate) parent: u32,
    /// Its name, by its number among `names`.
    pub(crate) name: u32,
}

/// One thread's paths.
#[derive(Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    roots: Vec<u32>,
}

impl Tree {
    /// The path of an interval; [`NOWHERE`] beyond the most that a thread has. Allocates where the path is new.
    #[inline]
    pub(crate) fn node(&mut self, of: PathQuery<'_>) -> u32 {
        let siblings = self.nodes.get(of.parent as usize).map_or(&self.roots, |node| &node.children);
        let known = siblings.iter().copied().find(|at| self.nodes.get(*at as usize).is_some_and(|n| n.name == of.name));
        known.unwrap_or_else(|| self.grow(of))
    }

    #[cold]
    fn grow(&mut self, PathQuery { experiment, names, parent, name }: PathQuery<'_>) -> u32 {
        let Some(info) = names.get(name).filter(|_| self.nodes.len() < MOST) else { return NOWHERE };
        let path = match self.nodes.get(parent as usize) {
            Some(around) => format!("{}/{}", around.path, info.name),
            None => info.name.to_string(),
        };
        let module = info.module.as_ref().and_then(|slot| slot.get().map(|module| module.name.clone()));
        let mut arms = 0;
        for (at, arm) in experiment.arms.iter().enumerate() {
            arms |= u64::from(arm.path.matches(&path, module.as_deref())) << at;
        }
        let at = self.nodes.len() as u32;
        self.nodes.push(Node { name, info, path, arms, children: Vec::new() });
        match self.nodes.get_mut(parent as usize) {
            Some(around) => around.children.push(at),
            None => self.roots.push(at),
        }
        at
    }

    /// What is known of a path's name.
    pub(crate) fn info(&self, node: u32) -> Option<&Arc<NameInfo>> {
        self.nodes.get(node as usize).map(|node| &node.info)
    }

    /// Whether arm number `arm` means the path.
    #[inline]
    pub(crate) fn is_target(&self, node: u32, arm: usize) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.arms & (1 << arm) != 0)
    }
}
