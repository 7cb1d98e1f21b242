//! The forms that draw a document.

/// The forms in which a part is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forms(u8);

impl Forms {
    /// On a terminal, as [`terminal`](crate::terminal) draws it.
    pub const TERMINAL: Self = Self(1);
    /// In Markdown, as [`markdown`](crate::markdown) draws it.
    pub const MARKDOWN: Self = Self(2);
    /// On an HTML page.
    pub const PAGE: Self = Self(4);
    /// In JSON, as [`json`](crate::json) draws it: it has room for all.
    pub const JSON: Self = Self(8);
    /// In the forms that are read as they are, line by line.
    pub const TEXTS: Self = Self(1 | 2);
    /// In the forms that have more room than a terminal.
    pub const FILES: Self = Self(2 | 4 | 8);
    /// In no form: a column that a run has no use for stays in its place, and is not shown.
    pub const NONE: Self = Self(0);
    /// In all four forms.
    pub const ALL: Self = Self(1 | 2 | 4 | 8);

    /// Whether any of `other` is among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These and others.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
