//! Which registry each layer belongs to. Two sessions in one registry, or one session in two, would mix their data:
//! span ids, and the data kept with a span, belong to a registry. So the first layer keeps the place, and a later one
//! steps back.

use crate::run::{Code, Finding};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A layer that is in a registry, of a session that goes on.
struct Entry {
    number: u64,
    /// Address of the registry; 0 until it is known.
    registry: usize,
    session: u64,
}

static PLACES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn places() -> MutexGuard<'static, Vec<Entry>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A layer's place in a registry. It is given up when the layer is dropped, at the latest with its registry.
#[derive(Debug)]
pub(super) struct RegistryPlace(u64);

impl Drop for RegistryPlace {
    fn drop(&mut self) {
        places().retain(|entry| entry.number != self.0);
    }
}

/// Why a layer steps back and records nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another session's layer is in the registry.
    OtherSession,
    /// A clone of this layer is in this registry or in another one.
    Cloned,
}

impl Refusal {
    pub(super) fn finding(self) -> Finding {
        match self {
            Self::OtherSession => Finding::new(
                Code::SecondSessionInRegistry,
                "another session's layer is in the same tracing registry: this session records nothing from it",
                "give each session a registry of its own, or one session all the exporters",
            ),
            Self::Cloned => Finding::new(
                Code::LayerAddedTwice,
                "the session's layer was added to a second registry, or twice to one: the second records nothing",
                "add the layer once, and share the subscriber instead (clones of one tracing::Dispatch), or start a \
                 session for each registry",
            ),
        }
    }
}

/// Takes the only place that a session's layer has.
pub(super) fn claim(session: u64) -> Result<RegistryPlace, Refusal> {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let mut places = places();
    if places.iter().any(|entry| entry.session == session) {
        return Err(Refusal::Cloned);
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    places.push(Entry { number, registry: 0, session });
    Ok(RegistryPlace(number))
}

impl RegistryPlace {
    /// The registry at this address, 0 if it is not known, is installed: no other session's layer may take its place.
    pub(super) fn settle(&self, registry: usize) -> Result<(), Refusal> {
        let mut places = places();
        if registry != 0 && places.iter().any(|entry| entry.registry == registry && entry.number != self.0) {
            places.retain(|entry| entry.number != self.0);
            return Err(Refusal::OtherSession);
        }
        if let Some(own) = places.iter_mut().find(|entry| entry.number == self.0) {
            own.registry = registry;
        }
        Ok(())
    }
}

/// The session has ended: its place is free.
pub(crate) fn leave(session: u64) {
    places().retain(|entry| entry.session != session);
}
