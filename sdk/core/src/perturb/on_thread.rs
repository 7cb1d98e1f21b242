//! What a thread knows of the experiment that goes on.

use super::assigned::StretchAssignment;
use super::experiment::Experiment;
use super::path_tree::Tree;
use std::sync::Arc;

/// One thread's part of an experiment.
pub(crate) struct OnThread {
    pub(crate) experiment: Arc<Experiment>,
    /// Which of the session's experiments it is.
    pub(crate) number: u64,
    pub(crate) tree: Tree,
    /// What the step that is open is part of; `None` if it is only kept out of what is recorded, because the experiment is
    /// [alone](crate::Perturb::alone).
    pub(crate) part_of: Option<StretchAssignment>,
    /// Whether a stretch is to begin with the step that begins now.
    pub(crate) first: bool,
}
