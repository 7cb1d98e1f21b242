//! Names of spans, interned when a span is created so that the hot path carries integers.

use crate::modules::{Module, Slot};
use crate::record::ThreadInfo;
use crate::vocabulary::Phase;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What a span means to the layer, beyond its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Plain,
    Phase(Phase),
    Request,
    /// Of an excluded target: the span is transparent, and its children belong to its parent.
    Ignored,
}

/// A distinct (name, target, role, module).
#[derive(Debug, Clone)]
pub(crate) struct NameInfo {
    pub(crate) name: Arc<str>,
    pub(crate) target: Arc<str>,
    pub(crate) role: Role,
    /// Number of the name's text: spans with one name are counted as siblings of one name whatever their targets.
    pub(crate) text: u32,
    /// The module that the span stands for, if the names of the model's weights were reported while it was loaded.
    pub(crate) module: Option<Arc<Slot>>,
}

/// What distinguishes names. A module that is not known yet differs from all others, so its name is not looked up.
type Key = (Arc<str>, Arc<str>, Role, Option<Arc<Module>>);

/// Distinct names kept; if a program makes up names without end, further ones are [`OTHER`].
const MAX_NAMES: usize = 65_536;

/// Number of the name that stands for all names beyond [`MAX_NAMES`].
pub(crate) const OTHER: u32 = 0;

#[derive(Debug, Default)]
struct Index {
    names: FxHashMap<Key, u32>,
    texts: FxHashMap<Arc<str>, u32>,
}

#[derive(Debug)]
pub(crate) struct Names {
    index: Mutex<Index>,
    list: RwLock<Vec<Arc<NameInfo>>>,
}

/// Held by a thread while it interns a name, so that it does not wait for itself.
struct InternGuard;

thread_local! {
    static ANNOUNCING: Cell<bool> = const { Cell::new(false) };
}

impl InternGuard {
    fn begin() -> Option<Self> {
        (!ANNOUNCING.replace(true)).then_some(Self)
    }
}

impl Drop for InternGuard {
    fn drop(&mut self) {
        ANNOUNCING.set(false);
    }
}

impl NameInfo {
    /// A name made by candlescope, for use where there is no span's name.
    pub(crate) fn of_ours(name: &'static str) -> Self {
        Self { name: name.into(), target: "candlescope".into(), role: Role::Plain, text: 0, module: None }
    }
}

impl Names {
    pub(crate) fn new() -> Self {
        let other = NameInfo::of_ours("(other)");
        let index = Index {
            names: FxHashMap::from_iter([((other.name.clone(), other.target.clone(), other.role, None), OTHER)]),
            texts: FxHashMap::from_iter([(other.name.clone(), other.text)]),
        };
        Self { index: Mutex::new(index), list: RwLock::new(vec![Arc::new(other)]) }
    }

    /// Number of the name. A new name is announced to the taps before any thread gets its number, and other threads
    /// that make the same span wait meanwhile. Spans made during the announcement are [`OTHER`].
    pub(crate) fn intern(
        &self,
        name: &Arc<str>,
        target: &Arc<str>,
        role: Role,
        module: Option<Arc<Slot>>,
        announce: impl FnOnce(u32),
    ) -> u32 {
        let Some(_announcing) = InternGuard::begin() else { return OTHER };
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let known = module.as_ref().map(|slot| slot.get().cloned());
        let key = match known {
            Some(None) => None,
            Some(module @ Some(_)) => Some((name.clone(), target.clone(), role, module)),
            None => Some((name.clone(), target.clone(), role, None)),
        };
        if let Some(&id) = key.as_ref().and_then(|key| index.names.get(key)) {
            return id;
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= MAX_NAMES {
            return OTHER;
        }
        let id = list.len() as u32;
        let next_text = index.texts.len() as u32;
        let text = *index.texts.entry(name.clone()).or_insert(next_text);
        list.push(Arc::new(NameInfo { name: name.clone(), target: target.clone(), role, text, module }));
        drop(list);
        announce(id);
        if let Some(key) = key {
            index.names.insert(key, id);
        }
        id
    }

    /// Number of the text of a name, if any span has it.
    pub(crate) fn text_of(&self, name: &str) -> Option<u32> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).texts.get(name).copied()
    }

    /// What is known of name number `id`. Not for the hot path: it takes a lock.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<NameInfo>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).get(id as usize).cloned()
    }

    /// Appends the names that `known` does not have yet; the drain keeps a list of its own.
    pub(crate) fn extend(&self, known: &mut Vec<Arc<NameInfo>>) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(&list[known.len()..]);
    }
}

/// Name and number of the calling thread.
pub(crate) fn current_thread(index: u32) -> ThreadInfo {
    let current = std::thread::current();
    let name: Arc<str> = match current.name() {
        Some(name) => name.into(),
        None => format!("thread-{index}").into(),
    };
    ThreadInfo::new(index, os_thread_id(), name)
}

fn os_thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    {
        u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    {
        0
    }
}
