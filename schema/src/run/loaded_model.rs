//! What was reported about a model's weights while it was loaded, and which spans stand for them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Weights reported to `modules::loaded` during the session, and spans that stand for
/// modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
#[non_exhaustive]
pub struct LoadedModel {
    /// Weights that were reported; a weight that was read twice counts twice.
    pub weights: u64,
    /// Their bytes in memory.
    pub bytes: u64,
    /// Weights reported before the session began: spans of their model are disabled, or belong to another session.
    pub weights_before: u64,
    /// Distinct modules that spans stand for, including those that consist of others.
    pub modules: u64,
    /// Modules with weights for which the number of computed rows is unknown, so that FLOPs and bytes are missing.
    pub rows_unknown: u64,
    /// Projections of queries or keys for which it is unknown whether their layer attends over the window that the
    /// configuration names, so that FLOPs and bytes of the attention are missing.
    pub windows_unknown: u64,
    /// The architecture that was recognised from names of weights, if nobody described the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recognised: Option<String>,
    /// Spans that should have weights but for which none were found: number by name.
    pub unnamed: BTreeMap<String, u64>,
    /// candle's spans at callsites that this release does not know: number by name.
    pub unknown_callsites: BTreeMap<String, u64>,
    /// Weights that no span stands for.
    pub unowned_weights: u64,
    /// Bytes of these weights.
    pub unowned_bytes: u64,
    /// The largest of them, at most [`MOST_NAMED`](Self::MOST_NAMED).
    pub unowned: Vec<String>,
    /// Weights that several modules compute with, such as a head that is tied to the embedding; also at most
    /// [`MOST_NAMED`](Self::MOST_NAMED).
    pub shared: Vec<String>,
    /// How the configuration given to `modules::model` contradicts the weights.
    pub contradictions: Vec<String>,
}

impl LoadedModel {
    /// Weights named in a list at most.
    pub const MOST_NAMED: usize = 20;

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
