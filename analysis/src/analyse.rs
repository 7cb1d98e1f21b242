//! Computes a run's figures and verdict.

use crate::findings::verdict;
use crate::passes::{Analysis, figures};
use crate::reader::Run;

impl Analysis {
    /// Reads the whole run, computes every figure, and says whether they can be trusted.
    ///
    /// ```no_run
    /// use candlescope_analysis::{Analysis, Run};
    /// let analysis = Analysis::of(&Run::open("runs/today")?);
    /// for operator in analysis.operators.iter().take(5) {
    ///     println!("{} {} ns", operator.path, operator.self_ns);
    /// }
    /// # Ok::<(), candlescope_analysis::OpenError>(())
    /// ```
    pub fn of(run: &Run) -> Self {
        let (analysis, seen) = figures(run);
        verdict(analysis, run.manifest().is_some(), seen)
    }
}
