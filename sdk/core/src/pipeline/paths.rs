//! Interned paths: a path is made of its parent's path, a name and a sibling ordinal.

use crate::names::NameInfo;
use crate::record::PathInfo;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Parent of a step's own path.
pub(crate) const ROOT: u32 = u32::MAX;
/// Ordinal of a name that does not repeat among its siblings.
pub(crate) const UNIQUE: u32 = u32::MAX;

/// Distinct paths kept, because a program whose tree never repeats would otherwise make more and more. After that many,
/// new names go below `(other)`.
const MAX_PATHS: usize = 200_000;

pub(crate) struct Paths {
    nodes: FxHashMap<(u32, u32, u32), Arc<PathInfo>>,
    rollups: FxHashMap<String, u32>,
    lost: Option<Arc<PathInfo>>,
}

impl Paths {
    pub(crate) fn new() -> Self {
        Self { nodes: FxHashMap::default(), rollups: FxHashMap::default(), lost: None }
    }

    /// The path of `name` below `parent`.
    pub(crate) fn child(
        &mut self,
        parent: Option<&Arc<PathInfo>>,
        name_id: u32,
        name: &NameInfo,
        ordinal: u32,
    ) -> Arc<PathInfo> {
        let key = (parent.map_or(ROOT, |p| p.id), name_id, ordinal);
        if let Some(path) = self.nodes.get(&key) {
            return path.clone();
        }
        if self.nodes.len() >= MAX_PATHS {
            return self.special("(other)");
        }
        let path = self.make(parent.map(Arc::as_ref), name, ordinal);
        self.nodes.insert(key, path.clone());
        path
    }

    /// The path above intervals whose parent never arrived, because its record was dropped or it is still open at the
    /// end.
    pub(crate) fn lost(&mut self) -> Arc<PathInfo> {
        if let Some(lost) = &self.lost {
            return lost.clone();
        }
        let lost = self.special(PathInfo::LOST);
        self.lost = Some(lost.clone());
        lost
    }

    fn special(&mut self, name: &'static str) -> Arc<PathInfo> {
        let key = (ROOT, u32::MAX, if name == PathInfo::LOST { 0 } else { 1 });
        if let Some(path) = self.nodes.get(&key) {
            return path.clone();
        }
        let info = NameInfo::of_ours(name);
        let path = self.make(None, &info, UNIQUE);
        self.nodes.insert(key, path.clone());
        path
    }

    fn make(&mut self, parent: Option<&PathInfo>, name: &NameInfo, ordinal: u32) -> Arc<PathInfo> {
        let mut path = parent.map_or_else(String::new, |parent| format!("{}/", parent.path));
        path.push_str(&name.name);
        if ordinal != UNIQUE {
            path.push_str(&format!("[{ordinal}]"));
        }
        let module = name.module.as_ref().and_then(|slot| slot.get()).map(|module| module.name.clone());
        let rollup = PathInfo::rollup_of(&path, module.as_deref());
        let next = self.rollups.len() as u32;
        let rollup_id = *self.rollups.entry(rollup.clone()).or_insert(next);
        let id = self.nodes.len() as u32;
        let (name, target) = (name.name.clone(), name.target.clone());
        let mut info = PathInfo::new(id, path, name, target);
        (info.rollup, info.rollup_id, info.module) = (rollup, rollup_id, module);
        Arc::new(info)
    }
}
