//! Runs of folders that are not asked.

/// A run below a folder that was named, or a folder there, of which nothing is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its directory, or its URL.
    pub run: String,
    /// Why, in a sentence or several.
    pub why: String,
}

impl LeftOut {
    /// This run, for this reason.
    pub fn new(run: impl Into<String>, why: impl Into<String>) -> Self {
        Self { run: run.into(), why: why.into() }
    }
}
