//! Computes a run's figures, its verdict, and what would make it faster.

use crate::findings::{diagnose, verdict};
use crate::passes::account::{Account, AccountError, AccountOptions, account};
use crate::passes::{Analysis, figures};
use crate::reader::Run;
use crate::simulation::{Simulation, SimulationOptions};
use candlescope_core::run::Finding;

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

/// How a run is analysed.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AnalyzeOptions {
    account: AccountOptions,
    simulation: SimulationOptions,
}

impl AnalyzeOptions {
    /// How the devices' time is accounted for.
    #[must_use]
    pub fn account(self, account: AccountOptions) -> Self {
        Self { account, ..self }
    }

    /// How steps are replayed, from which gains follow.
    #[must_use]
    pub fn simulation(self, simulation: SimulationOptions) -> Self {
        Self { simulation, ..self }
    }
}

/// A run's figures, the account of its devices, and its findings with gains.
#[derive(Debug)]
pub struct Analyzed {
    /// Every figure; its [`diagnosis`](Analysis::diagnosis) has the findings.
    pub analysis: Analysis,
    /// How the devices spent their time, or why that is not known.
    pub account: Result<Account, AccountError>,
    /// What was noticed while the account was made.
    pub seen: Vec<Finding>,
}

/// Reads a run and finds what holds it back, and what changing that would gain.
///
/// ```no_run
/// use candlescope_analysis::{AnalyzeOptions, Run, analyze};
/// let analyzed = analyze(&Run::open("runs/today")?, &AnalyzeOptions::default());
/// for advice in analyzed.analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings) {
///     println!("{} {:.0} % of a step", advice.code, advice.gain.mid * 100.0);
/// }
/// # Ok::<(), candlescope_analysis::OpenError>(())
/// ```
pub fn analyze(run: &Run, options: &AnalyzeOptions) -> Analyzed {
    let mut analysis = Analysis::of(run);
    let (account, seen) = match account(run, &options.account) {
        Ok((account, seen)) => (Ok(account), seen),
        Err(error) => (Err(error), Vec::new()),
    };
    // Where steps cannot be replayed, gains follow from their two lines.
    let simulation = Simulation::of(run, &options.simulation).ok();
    analysis.diagnosis = Some(diagnose(&analysis, account.as_ref().ok(), simulation.as_ref()));
    Analyzed { analysis, account, seen }
}
