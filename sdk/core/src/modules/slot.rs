//! The module of a span, which may become known after the span was made.

use super::architecture::Architecture;
use super::{Module, Operation};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The module of a span, where it is known by now: some spans are made before their weights are read, and groups get
/// their name when they run.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    module: OnceLock<Arc<Module>>,
    group: bool,
    /// What it will compute, once its weights are read.
    wants: Option<Operation>,
    /// The module with what became known of its architecture after its span was made.
    described: OnceLock<Arc<Module>>,
    /// What a group stands for in which nothing runs.
    alone: Option<Arc<Module>>,
    /// Whether the taps know.
    told: AtomicBool,
}

impl Slot {
    pub(super) fn empty(operation: Operation) -> Arc<Self> {
        Arc::new(Self { wants: Some(operation), ..Self::default() })
    }

    pub(super) fn known(module: Arc<Module>) -> Arc<Self> {
        Arc::new(Self { module: OnceLock::from(module), ..Self::default() })
    }

    /// Of a span whose program names the module itself, and tells nothing of weights.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        Self::known(Arc::new(Module::group(name)))
    }

    pub(super) fn group(alone: Option<Arc<Module>>) -> Arc<Self> {
        Arc::new(Self { group: true, alone, ..Self::default() })
    }

    pub(crate) fn get(&self) -> Option<&Arc<Module>> {
        self.described.get().or_else(|| self.module.get())
    }

    /// Adds what follows from the architecture, which was recognised after the span was made.
    pub(super) fn describe(&self, architecture: &Architecture) {
        if let Some(module) = self.module.get().filter(|module| !module.weights.is_empty()) {
            let Module { name, operation, weights, .. } = (**module).clone();
            // Once: an architecture is recognised once.
            let _ = self.described.set(Arc::new(architecture.module(name, operation, weights)));
        }
    }

    /// Whether it multiplies by weights that nobody has told.
    pub(crate) fn lacks_work(&self) -> bool {
        self.wants.is_some_and(Operation::multiplies) && self.get().is_none()
    }

    /// Whether it is named after what runs inside.
    pub(crate) fn is_group(&self) -> bool {
        self.group
    }

    /// The module, the first time that it is asked for with success.
    pub(crate) fn news(&self) -> Option<&Arc<Module>> {
        self.get().filter(|_| !self.told.swap(true, Ordering::Relaxed))
    }

    pub(super) fn fill(&self, module: Arc<Module>) {
        // Only one place ever fills a slot; if that should change, the first name stays.
        let _ = self.module.set(module);
    }

    /// What the span is called, or would be as a group of what is inside.
    pub(crate) fn would_be<'a>(&'a self, inside: Option<&'a str>) -> Option<&'a str> {
        match (self.get(), inside, &self.alone) {
            (Some(module), ..) => Some(&module.name),
            (None, Some(inside), _) => Some(inside).filter(|name| self.group && !name.is_empty()),
            (None, None, alone) => alone.as_ref().map(|module| &*module.name),
        }
    }

    /// Names a group that has none after the modules inside: the longest name that all of them are below.
    pub(crate) fn name_group(&self, inside: Option<&str>) {
        if !self.group || self.module.get().is_some() {
            return;
        }
        match (inside, &self.alone) {
            (Some(""), _) | (None, None) => {}
            (Some(name), _) => {
                self.fill(Arc::new(Module::group(name)));
            }
            (None, Some(alone)) => self.fill(alone.clone()),
        }
    }
}
