//! Dictionaries of the row group being filled: they map the values of a record to dense keys, without hashing a string
//! per row.

use super::column::NULL;
use candlescope_core::{PathInfo, ThreadInfo};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Distinct texts. Looked up by content: for tables with few rows and for values behind another dictionary.
#[derive(Debug, Default)]
pub(in crate::parquet) struct TextDict {
    values: Vec<Arc<str>>,
    keys: HashMap<Arc<str>, u32>,
    /// Length of all texts.
    bytes: usize,
}

impl TextDict {
    pub(in crate::parquet) fn key(&mut self, text: &Arc<str>) -> u32 {
        if let Some(key) = self.keys.get(text) {
            return *key;
        }
        let key = self.values.len() as u32;
        self.bytes += text.len();
        self.values.push(text.clone());
        self.keys.insert(text.clone(), key);
        key
    }

    pub(in crate::parquet) fn values(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(|v| &**v)
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.bytes = 0;
    }

    pub(in crate::parquet) fn memory(&self) -> usize {
        self.bytes + self.values.len() * (size_of::<Arc<str>>() * 2 + size_of::<u32>())
    }
}

/// Distinct paths, found by [`PathInfo::id`]. Names, targets and modules follow from the path, so their columns need no keys
/// of their own.
#[derive(Debug, Default)]
pub(in crate::parquet) struct PathDict {
    /// By `PathInfo::id`.
    key_of: Vec<u32>,
    paths: Vec<Arc<PathInfo>>,
    /// By key.
    pub(in crate::parquet) name_of: Vec<u32>,
    pub(in crate::parquet) target_of: Vec<u32>,
    /// [`NULL`] where the path has no module.
    pub(in crate::parquet) module_of: Vec<u32>,
    pub(in crate::parquet) names: TextDict,
    pub(in crate::parquet) targets: TextDict,
    pub(in crate::parquet) modules: TextDict,
}

impl PathDict {
    #[inline]
    pub(in crate::parquet) fn key(&mut self, path: &Arc<PathInfo>) -> u32 {
        match self.key_of.get(path.id as usize) {
            Some(&key) if key != NULL => key,
            _ => self.insert(path),
        }
    }

    #[cold]
    fn insert(&mut self, path: &Arc<PathInfo>) -> u32 {
        let id = path.id as usize;
        if self.key_of.len() <= id {
            self.key_of.resize(id + 1, NULL);
        }
        let key = self.paths.len() as u32;
        self.key_of[id] = key;
        self.paths.push(path.clone());
        self.name_of.push(self.names.key(&path.name));
        self.target_of.push(self.targets.key(&path.target));
        self.module_of.push(path.module.as_ref().map_or(NULL, |module| self.modules.key(module)));
        key
    }

    pub(in crate::parquet) fn values(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|p| p.path.as_str())
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.key_of.fill(NULL);
        self.paths.clear();
        self.name_of.clear();
        self.target_of.clear();
        self.module_of.clear();
        self.names.clear();
        self.targets.clear();
        self.modules.clear();
    }

    /// The paths themselves belong to the session.
    pub(in crate::parquet) fn memory(&self) -> usize {
        self.paths.len() * (size_of::<Arc<PathInfo>>() + 3 * size_of::<u32>())
    }
}

/// Distinct threads, found by [`ThreadInfo::index`]; those that enter no intervals have none (0), and are found by name.
#[derive(Debug, Default)]
pub(in crate::parquet) struct ThreadDict {
    key_of: Vec<u32>,
    names: TextDict,
}

impl ThreadDict {
    #[inline]
    pub(in crate::parquet) fn key(&mut self, thread: &ThreadInfo) -> u32 {
        match self.key_of.get(thread.index as usize) {
            Some(&key) if key != NULL => key,
            _ => self.insert(thread),
        }
    }

    #[cold]
    fn insert(&mut self, thread: &ThreadInfo) -> u32 {
        let index = thread.index as usize;
        if index == 0 {
            return self.names.key(&thread.name);
        }
        if self.key_of.len() <= index {
            self.key_of.resize(index + 1, NULL);
        }
        // Two threads with the same name share a key, because dictionary values should be distinct.
        self.key_of[index] = self.names.key(&thread.name);
        self.key_of[index]
    }

    pub(in crate::parquet) fn values(&self) -> impl Iterator<Item = &str> {
        self.names.values()
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.key_of.fill(NULL);
        self.names.clear();
    }

    pub(in crate::parquet) fn memory(&self) -> usize {
        self.names.memory()
    }
}

/// Distinct values of a small `Copy` type. Repeats at one *slot* (for example one path) are found without hashing.
#[derive(Debug)]
pub(in crate::parquet) struct ValueDict<T> {
    values: Vec<T>,
    keys: HashMap<T, u32>,
    /// Last value and its key, by slot.
    last: Vec<Option<(T, u32)>>,
}

impl<T> Default for ValueDict<T> {
    fn default() -> Self {
        Self { values: Vec::new(), keys: HashMap::new(), last: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> ValueDict<T> {
    #[inline]
    pub(in crate::parquet) fn key(&mut self, slot: u32, value: Option<T>) -> u32 {
        let Some(value) = value else { return NULL };
        match self.last.get(slot as usize) {
            Some(Some((last, key))) if *last == value => *key,
            _ => self.find(slot as usize, value),
        }
    }

    fn find(&mut self, slot: usize, value: T) -> u32 {
        let key = *self.keys.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        });
        if self.last.len() <= slot {
            self.last.resize(slot + 1, None);
        }
        self.last[slot] = Some((value, key));
        key
    }

    pub(in crate::parquet) fn values(&self) -> &[T] {
        &self.values
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.last.clear();
    }

    pub(in crate::parquet) fn memory(&self) -> usize {
        self.values.len() * 3 * size_of::<T>() + self.last.len() * size_of::<Option<(T, u32)>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_testkit::with;

    fn path(id: u32, path: &str, name: &str) -> Arc<PathInfo> {
        Arc::new(with(PathInfo::new(id, path, name, "model"), |p| p.rollup = path.into()))
    }

    #[test]
    fn threads_without_an_index_have_their_names() {
        let mut dict = ThreadDict::default();
        let keys = [(1, "main"), (0, "pool"), (0, "pool#2"), (0, "pool")]
            .map(|(n, name)| dict.key(&ThreadInfo::new(n, 9, name)));
        assert_eq!(keys, [0, 1, 2, 1]);
    }

    #[test]
    fn paths_are_numbered_as_they_come_and_share_names() {
        let mut dict = PathDict::default();
        let (a, b) = (path(7, "step/linear[0]", "linear"), path(2, "step/linear[1]", "linear"));
        assert_eq!([dict.key(&a), dict.key(&b), dict.key(&a)], [0, 1, 0]);
        assert_eq!(dict.values().collect::<Vec<_>>(), ["step/linear[0]", "step/linear[1]"]);
        assert_eq!((dict.name_of.as_slice(), dict.names.values().count()), ([0, 0].as_slice(), 1));
        dict.clear();
        assert_eq!(dict.key(&b), 0);
        assert_eq!(dict.values().collect::<Vec<_>>(), ["step/linear[1]"]);
    }

    #[test]
    fn values_are_distinct_over_all_slots() {
        let mut dict = ValueDict::<i64>::default();
        let keys: Vec<u32> = [(0, Some(5)), (1, Some(6)), (9, Some(5)), (0, None), (0, Some(6))]
            .into_iter()
            .map(|(slot, value)| dict.key(slot, value))
            .collect();
        assert_eq!(keys, [0, 1, 0, NULL, 1]);
        assert_eq!(dict.values(), [5, 6]);
    }
}
