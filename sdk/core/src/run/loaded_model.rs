//! What was told of the weights of a model while it was loaded, and which spans stand for them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Weights told by [`modules::loaded`](crate::modules::loaded) during the session, and spans that stand for modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
#[non_exhaustive]
pub struct LoadedModel {
    /// Weights that were told, those that were read twice counted twice.
    pub weights: u64,
    /// Their bytes in memory.
    pub bytes: u64,
    /// Weights told before the session began: spans of their model are disabled, or of another session.
    pub weights_before: u64,
    /// Distinct modules that spans stand for, those that consist of others included.
    pub modules: u64,
    /// Modules with weights of which it is not known how many rows they compute, so that FLOPs and bytes are missing.
    pub rows_unknown: u64,
    /// Spans that ought to have weights, and for which none were found: how many of each name.
    pub unnamed: BTreeMap<String, u64>,
    /// Spans of candle's at places that this release does not know: how many of each name.
    pub unknown_callsites: BTreeMap<String, u64>,
    /// Weights that no span stands for.
    pub unowned_weights: u64,
    /// Their bytes.
    pub unowned_bytes: u64,
    /// The largest of them, [`MOST_NAMED`](Self::MOST_NAMED) at most.
    pub unowned: Vec<String>,
    /// Weights that several modules compute with, such as a head that is tied to the embedding; as many at most.
    pub shared: Vec<String>,
    /// Where the configuration given to [`modules::model`](crate::modules::model) contradicts the weights.
    pub contradictions: Vec<String>,
}

impl LoadedModel {
    /// Weights that are named in a list.
    pub const MOST_NAMED: usize = 20;

    /// Whether there is anything to tell.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
