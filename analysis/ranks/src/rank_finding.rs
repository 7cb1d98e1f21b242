//! What ranks lose to each other.

use serde::Serialize;

/// A kind of finding about ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RankCode {
    /// One rank is slower than the others in most steps.
    StragglerRank,
    /// Ranks take different times, now this one and then that one longer.
    RankImbalance,
    /// Steps wait for data on its way.
    ExposedCommunication,
    /// The link carries less than it can.
    BusBandwidth,
}

impl RankCode {
    /// As it is called.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StragglerRank => "straggler_rank",
            Self::RankImbalance => "rank_imbalance",
            Self::ExposedCommunication => "exposed_communication",
            Self::BusBandwidth => "bus_bandwidth",
        }
    }
}

/// Something that ranks lose to each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankFinding {
    /// Which of the kinds it is; each is tested for by itself.
    pub code: RankCode,
    /// What was found, in a sentence.
    pub text: String,
    /// What to look at, or to change: a sentence without its full stop.
    pub remedy: String,
    /// The share of a step that it costs at most; `None` where that cannot be said.
    pub gain: Option<f64>,
    /// The rank that it is about.
    pub rank: Option<u32>,
}
