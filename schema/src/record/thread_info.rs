//! Threads of the program.

use std::sync::Arc;

/// A thread that produced intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Dense number within one session, from 1.
    pub index: u32,
    /// The operating system's thread id; 0 if it is not known.
    pub os_id: u64,
    /// The thread's name, or `thread-<index>` for unnamed threads; with `#<index>` appended if an earlier thread has
    /// the same name.
    pub name: Arc<str>,
}

impl ThreadInfo {
    /// A thread; `index` counts from 1, `os_id` is 0 if it is not known.
    pub fn new(index: u32, os_id: u64, name: impl Into<Arc<str>>) -> Self {
        Self { index, os_id, name: name.into() }
    }
}
