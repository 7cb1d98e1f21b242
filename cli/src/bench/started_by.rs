//! Whether the command that started a process which measures is still there.

/// The process that started this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartedBy(Option<u32>);

impl StartedBy {
    /// As it is now: to be asked for before a model loads, which may take longer than that process lives.
    pub(super) fn now() -> Self {
        Self(parent())
    }

    /// Whether it has ended (it was killed): nobody reads what is measured, and nobody could stop it.
    pub(super) fn is_gone(self) -> bool {
        parent() != self.0
    }
}

/// The process that started this one; another one as soon as that has ended.
#[cfg(unix)]
fn parent() -> Option<u32> {
    Some(std::os::unix::process::parent_id())
}

/// Elsewhere a process does not learn that.
#[cfg(not(unix))]
fn parent() -> Option<u32> {
    None
}
