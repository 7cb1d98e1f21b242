//! Findings about how the process is set up, from code that knows no session: a loader of weights, for example. Every
//! session that goes on gets them.

use crate::notices::Notices;
use crate::run::Finding;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

static NOTES: Mutex<Vec<Finding>> = Mutex::new(Vec::new());

/// How many there are, to look without a lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Findings that are kept.
const MOST: usize = 1_024;

/// Tells all sessions that go on of something about the process: as a problem at once, and in their verdicts. A code is
/// told once to each session.
pub fn note(finding: Finding) {
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if notes.len() < MOST {
        notes.push(finding);
        COUNT.store(notes.len(), Ordering::Release);
    }
}

/// How far a session has read.
#[derive(Debug)]
pub(crate) struct NotesRead(AtomicUsize);

impl NotesRead {
    /// What was noted before the session is not about it.
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(COUNT.load(Ordering::Acquire)))
    }

    /// Adds what is new to the session's notices.
    pub(crate) fn take(&self, notices: &Notices) {
        let (known, all) = (self.0.load(Ordering::Relaxed), COUNT.load(Ordering::Acquire));
        if known == all {
            return;
        }
        let new = NOTES.lock().unwrap_or_else(PoisonError::into_inner)[known..all].to_vec();
        self.0.store(all, Ordering::Relaxed);
        new.into_iter().for_each(|finding| notices.add(finding));
    }
}
