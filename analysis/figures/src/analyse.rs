//! Computes a run's figures, and its verdict.

use crate::Analysis;
use crate::figures::Figures;
use crate::known::RunContents;
use crate::reading::ReadingNotes;
use crate::verdict::verdict;
use candlescope_reader::Run;

impl Analysis {
    /// Reads the whole run, computes every figure, and says whether they can be trusted.
    ///
    /// ```no_run
    /// use candlescope_figures::Analysis;
    /// use candlescope_reader::Run;
    /// let analysis = Analysis::of(&Run::open("runs/today")?);
    /// for operator in analysis.operators.iter().take(5) {
    ///     println!("{} {} ns", operator.path, operator.self_ns);
    /// }
    /// # Ok::<(), candlescope_reader::OpenError>(())
    /// ```
    pub fn of(run: &Run) -> Self {
        let (known, rows) = RunContents::read(run);
        let mut figures = Figures::of(&known);
        let noticed = rows.to(&mut [&mut figures]);
        Self::finish(figures, &noticed)
    }

    /// The figures of rows that were read, judged.
    pub fn finish(figures: Figures<'_>, noticed: &ReadingNotes) -> Self {
        let has_manifest = figures.known.run.manifest().is_some();
        verdict(figures.finish(noticed), has_manifest)
    }
}
