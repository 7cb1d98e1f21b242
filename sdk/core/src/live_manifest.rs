//! The manifest while its run goes on: any thread adds what becomes known, and exporters get it at once.

use crate::run::RunManifest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct LiveManifest {
    manifest: Mutex<RunManifest>,
    /// Whether there is a change that exporters have not been told about.
    changed: AtomicBool,
}

impl LiveManifest {
    pub(crate) fn new(manifest: RunManifest) -> Self {
        Self { manifest: Mutex::new(manifest), changed: AtomicBool::new(false) }
    }

    /// A copy of the manifest as it is now.
    pub(crate) fn get(&self) -> RunManifest {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a change that exporters are to be told about.
    pub(crate) fn note<R>(&self, add: impl FnOnce(&mut RunManifest) -> R) {
        add(&mut self.manifest.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.store(true, Ordering::Release);
    }

    /// Adds facts to the environment, except those whose key is there already.
    pub(crate) fn note_environment(&self, facts: BTreeMap<String, Value>) {
        self.note(|m| add_environment(m, facts));
    }

    /// The manifest, if it has changed since this was last called.
    pub(crate) fn take_change(&self) -> Option<RunManifest> {
        self.changed.swap(false, Ordering::Acquire).then(|| self.get())
    }
}

/// Adds facts to the environment of `m`, except those whose key is there already.
pub(crate) fn add_environment(m: &mut RunManifest, facts: BTreeMap<String, Value>) {
    for (key, value) in facts {
        m.environment.entry(key).or_insert(value);
    }
}
