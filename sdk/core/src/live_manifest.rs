//! The manifest while its run goes on: what becomes known of the run is added from any thread, and goes out at once.

use crate::run::RunManifest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct LiveManifest {
    manifest: Mutex<RunManifest>,
    /// Whether exporters have not been told of the latest change.
    changed: AtomicBool,
}

impl LiveManifest {
    pub(crate) fn new(manifest: RunManifest) -> Self {
        Self { manifest: Mutex::new(manifest), changed: AtomicBool::new(false) }
    }

    /// As it is now.
    pub(crate) fn get(&self) -> RunManifest {
        self.manifest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds something that exporters are to be told of.
    pub(crate) fn note<R>(&self, add: impl FnOnce(&mut RunManifest) -> R) {
        add(&mut self.manifest.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.store(true, Ordering::Release);
    }

    /// Adds to the environment what nobody has said yet.
    pub(crate) fn note_environment(&self, facts: BTreeMap<String, Value>) {
        self.note(|m| add_environment(m, facts));
    }

    /// The manifest where it has changed since it was last asked for here.
    pub(crate) fn take_change(&self) -> Option<RunManifest> {
        self.changed.swap(false, Ordering::Acquire).then(|| self.get())
    }
}

/// Adds to the environment of `m` what nobody has said yet.
pub(crate) fn add_environment(m: &mut RunManifest, facts: BTreeMap<String, Value>) {
    for (key, value) in facts {
        m.environment.entry(key).or_insert(value);
    }
}
