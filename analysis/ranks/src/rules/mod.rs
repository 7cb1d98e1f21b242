//! What is told of ranks, and when: a file for each finding of ranks in the list of `analysis/figures/src/advice/code.rs`.

mod bus_bandwidth;
mod collectives_query;
mod exposed_communication;
mod rank_imbalance;
mod ranks_scene;
mod straggler_rank;

use super::facts::{JudgedTimes, RankAnalysis};
use candlescope_figures::advice::Advice;
use ranks_scene::RanksScene;

/// What is less than this share of a step is not told.
const WORTH: f64 = 0.03;

/// Looks for one thing.
type Rule = fn(&RanksScene<'_>) -> Vec<Advice>;

/// All rules, in the order of the list.
macro_rules! rules {
    (
        of_steps { $($_steps:tt)+ }
        of_ranks { $($(#[$_meaning:meta])+ $_code:ident = $rule:ident, $_test:literal, $_gain:literal;)+ }
    ) => {
        const RULES: &[Rule] = &[$($rule::find,)+];
    };
}

candlescope_figures::each_advice!(rules);

/// The findings, the largest gain first.
pub(crate) fn findings(analysis: &RankAnalysis, judged: &[JudgedTimes]) -> Vec<Advice> {
    let scene = RanksScene { analysis, judged };
    let mut found: Vec<Advice> = RULES.iter().flat_map(|rule| rule(&scene)).collect();
    found.sort_by(|a, b| b.gain.mid.total_cmp(&a.gain.mid));
    found
}
