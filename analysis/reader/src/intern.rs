//! Interns names, so that equal names share one allocation, as they did when they were recorded.

use crate::limits::{ExceededLimit, Limit, ReadLimits};
use candlescope_schema::{PathInfo, ThreadInfo};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

/// Path, name, target, module.
type PathKey = (Arc<str>, Arc<str>, Arc<str>, Option<Arc<str>>);

/// Paths, threads and words seen so far in a run. Numbers are dense and in order of first occurrence.
///
/// A crafted run could hold millions of each: past the limits all further names read as [`OTHER`].
#[derive(Debug)]
pub(super) struct Interner {
    limits: ReadLimits,
    /// Bytes of all names.
    bytes: u64,
    words: HashSet<Arc<str>>,
    paths: HashMap<PathKey, Arc<PathInfo>>,
    /// By path alone, the first few with it: looked at before each name is looked up.
    by_path: HashMap<Arc<str>, Vec<Arc<PathInfo>>>,
    rollups: HashMap<String, u32>,
    threads: HashMap<Arc<str>, Arc<ThreadInfo>>,
    other: Option<(Arc<str>, Arc<PathInfo>)>,
    /// The limits that were reached.
    met: Vec<ExceededLimit>,
}

/// Paths of one text that are found by it alone. Real ones have one name, target and module.
const AT_HAND: usize = 4;

/// The name that replaces all names beyond the limits.
pub(super) const OTHER: &str = "(other names)";

impl Interner {
    pub(super) fn new(limits: &ReadLimits) -> Self {
        Self {
            limits: limits.clone(),
            bytes: 0,
            words: HashSet::new(),
            paths: HashMap::new(),
            by_path: HashMap::new(),
            rollups: HashMap::new(),
            threads: HashMap::new(),
            other: None,
            met: Vec::new(),
        }
    }

    /// The limits that were reached so far.
    pub(super) fn met(&self) -> &[ExceededLimit] {
        &self.met
    }

    /// Whether there is room for another name of `bytes`, if there are `count` of its kind already.
    fn room(&mut self, count: usize, bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(bytes as u64);
        let full = if count as u64 >= self.limits.get(Limit::Names) {
            Some(Limit::Names)
        } else {
            (bytes > self.limits.get(Limit::NamesBytes)).then_some(Limit::NamesBytes)
        };
        match full {
            Some(limit) => self.meet(limit),
            None => self.bytes = bytes,
        }
        full.is_none()
    }

    fn meet(&mut self, limit: Limit) {
        let reached = self.limits.reached(limit);
        if !self.met.contains(&reached) {
            self.met.push(reached);
        }
    }

    /// The word and the path that replace all those beyond the limits.
    fn other(&mut self) -> &(Arc<str>, Arc<PathInfo>) {
        let next = self.rollups.len() as u32;
        let id = self.paths.len() as u32;
        let rollups = &mut self.rollups;
        self.other.get_or_insert_with(|| {
            let word: Arc<str> = OTHER.into();
            let mut info = PathInfo::new(id, OTHER, word.clone(), "");
            info.rollup_id = *rollups.entry(OTHER.to_string()).or_insert(next);
            (word, Arc::new(info))
        })
    }

    pub(super) fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return word.clone();
        }
        if !self.room(self.words.len(), text.len()) {
            return self.other().0.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(word.clone());
        word
    }

    pub(super) fn path(&mut self, path: &str, name: &str, target: &str, module: Option<&str>) -> Arc<PathInfo> {
        let is_it =
            |info: &&Arc<PathInfo>| (&*info.name, &*info.target, info.module.as_deref()) == (name, target, module);
        if let Some(info) = self.by_path.get(path).and_then(|known| known.iter().find(is_it)) {
            return info.clone();
        }
        let key = (self.word(path), self.word(name), self.word(target), module.map(|module| self.word(module)));
        if &*key.0 != path {
            // There is no room for its name. A key without the name would be the key of every later path, too.
            return self.other().1.clone();
        }
        if let Some(info) = self.paths.get(&key) {
            return info.clone();
        }
        let rollup = PathInfo::rollup_of(path, module);
        let fits = self.rollups.contains_key(&rollup) || (self.rollups.len() as u64) < self.limits.get(Limit::Paths);
        if !fits {
            self.meet(Limit::Paths);
        }
        if !fits || !self.room(self.paths.len(), path.len() + rollup.len()) {
            return self.other().1.clone();
        }
        let next = self.rollups.len() as u32;
        let rollup_id = *self.rollups.entry(rollup.clone()).or_insert(next);
        let mut info = PathInfo::new(self.paths.len() as u32, path, key.1.clone(), key.2.clone());
        (info.rollup, info.rollup_id, info.module) = (rollup, rollup_id, key.3.clone());
        let info = Arc::new(info);
        let with_it = self.by_path.entry(key.0.clone()).or_default();
        if with_it.len() < AT_HAND {
            with_it.push(info.clone());
        }
        self.paths.insert(key, info.clone());
        info
    }

    /// The thread of this name. The tables tell threads apart by name only.
    pub(super) fn thread(&mut self, name: &str) -> Arc<ThreadInfo> {
        let name = self.word(name);
        let index = self.threads.len() as u32 + 1;
        self.threads.entry(name.clone()).or_insert_with(|| Arc::new(ThreadInfo::new(index, 0, name))).clone()
    }
}

/// Leaks names of metrics and units, because records hold `'static` ones. A crafted run could hold millions, so past a
/// bound they all read as `other`; real runs have a few dozen.
pub(super) fn forever(text: &str) -> &'static str {
    const MOST: usize = 4096;
    const LONGEST: usize = 1024;
    static KNOWN: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(known) = known.get(text) {
        return known;
    }
    if known.len() >= MOST || text.len() > LONGEST {
        return "other";
    }
    let leaked: &'static str = Box::leak(text.to_string().into_boxed_str());
    known.insert(leaked);
    leaked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_share_one_allocation() {
        let mut interner = Interner::new(&ReadLimits::default());
        let a = interner.path("step/block[0]", "block", "t", None);
        let b = interner.path("step/block[0]", "block", "t", None);
        let c = interner.path("step/block[1]", "block", "t", None);
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!((a.id, c.id), (0, 1));
        assert_eq!(a.rollup_id, c.rollup_id);
        // More of one text than are found by it alone.
        for _ in 0..2 {
            let of_target = |at| interner.path("step/head", "head", &format!("t{at}"), None).id;
            assert_eq!(
                (0..2 * AT_HAND).map(of_target).collect::<Vec<_>>(),
                (2..2 + 2 * AT_HAND as u32).collect::<Vec<_>>()
            );
            assert_eq!(interner.path("step/head", "head", "t0", Some("m")).id, 2 + 2 * AT_HAND as u32);
        }
        assert_eq!(interner.thread("main").index, 1);
        assert_eq!(interner.thread("worker").index, 2);
        assert_eq!(interner.thread("main").index, 1);
    }

    #[test]
    fn past_a_limit_names_read_as_one() {
        let limits = ReadLimits::default().with(Limit::Paths, 3);
        let mut interner = Interner::new(&limits);
        let paths: Vec<_> = (0..10).map(|i| interner.path(&format!("step/p{i}"), "p", "t", None)).collect();
        assert_eq!(paths[2].rollup, "step/p2");
        assert!(paths[3..].iter().all(|p| Arc::ptr_eq(p, &paths[3]) && p.rollup == OTHER && p.rollup_id == 3));
        assert!(Arc::ptr_eq(&interner.path("step/p1", "p", "t", None), &paths[1]), "known ones stay");
        assert_eq!(interner.met().iter().map(|m| m.limit).collect::<Vec<_>>(), [Limit::Paths]);

        let mut interner = Interner::new(&ReadLimits::default().with(Limit::Names, 3));
        let paths: Vec<_> = ["step/a", "step/b", "step/c"].map(|path| interner.path(path, "a", "t", None)).into();
        let read: Vec<_> = paths.iter().map(|info| info.path.as_str()).collect();
        assert_eq!(read, ["step/a", OTHER, OTHER], "none reads as another's");

        let mut interner = Interner::new(&ReadLimits::default().with(Limit::NamesBytes, 10));
        assert_eq!(&*interner.word("0123456789"), "0123456789");
        assert_eq!(&*interner.word("one more"), OTHER);
        assert_eq!(&*interner.thread("worker").name, OTHER);
        assert_eq!(interner.met().len(), 1);
    }
}
