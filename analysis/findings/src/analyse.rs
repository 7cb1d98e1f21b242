//! Computes a run's figures, its verdict, and what would make it faster.

use crate::bottlenecks::diagnose;
use crate::ledger::{Ledger, device};
use crate::replay_disagrees;
use candlescope_figures::Analysis;
use candlescope_figures::account::{Account, AccountError, AccountOptions, AccountPass};
use candlescope_figures::figures::Figures;
use candlescope_figures::known::RunContents;
use candlescope_figures::reading::Pass;
use candlescope_figures::sensitivity::Criticality;
use candlescope_predict::simulation::{Abstain, ChosenSteps, Simulation, SimulationOptions};
use candlescope_reader::Run;
use candlescope_schema::run::Finding;
use candlescope_schema::{PathPattern, Perturbation};
use candlescope_work::estimate::Estimate;
use std::path::PathBuf;

/// How a run is analysed.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct AnalyzeOptions {
    account: AccountOptions,
    simulation: SimulationOptions,
    ledger: Option<PathBuf>,
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

    /// Where earlier promises are remembered ([`Ledger::file_in`]): findings say then how their kind came out on this
    /// device.
    #[must_use]
    pub fn ledger(self, path: Option<PathBuf>) -> Self {
        Self { ledger: path, ..self }
    }
}

/// A run's figures, the account of its devices, and its findings with gains.
#[derive(Debug)]
pub struct Analyzed {
    /// Every figure; its [`diagnosis`](Analysis::diagnosis) has the findings.
    pub analysis: Analysis,
    /// How the devices spent their time, or why that is not known.
    pub account: Result<Account, AccountError>,
    /// The steps that can be replayed, or why none can.
    pub simulation: Result<Simulation, Abstain>,
    /// What was noticed while the account was made.
    pub seen: Vec<Finding>,
}

/// What a replay says of the same path.
fn replayed(simulation: &Simulation, path: &Criticality) -> Option<Estimate> {
    let group = simulation.groups().iter().find(|group| group.name() == path.step)?;
    let pattern = PathPattern::new(Perturbation::path_of(&path.target))?;
    group.criticality(&pattern, path.side, path.added_ns)
}

/// Reads a run and finds what holds it back, and what changing that would gain.
///
/// ```no_run
/// use candlescope_findings::{AnalyzeOptions, analyze};
/// use candlescope_reader::Run;
/// let analyzed = analyze(&Run::open("runs/today")?, &AnalyzeOptions::default());
/// for advice in analyzed.analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings) {
///     println!("{} {:.0} % of a step", advice.code, advice.gain.mid * 100.0);
/// }
/// # Ok::<(), candlescope_reader::OpenError>(())
/// ```
pub fn analyze(run: &Run, options: &AnalyzeOptions) -> Analyzed {
    let (known, rows) = RunContents::read(run);
    let mut figures = Figures::of(&known);
    let mut devices = AccountPass::of(&known, &options.account);
    let mut chosen = ChosenSteps::of(&known, options.simulation.counts_warmup());
    let mut passes: Vec<&mut dyn Pass> = vec![&mut figures, &mut devices];
    if let Ok(chosen) = &mut chosen {
        passes.push(chosen);
    }
    let noticed = rows.to(&mut passes);
    let (account, left_out) = devices.finish();
    let simulation = chosen.and_then(|chosen| Simulation::of_chosen(chosen, &noticed, &options.simulation));
    let mut analysis = Analysis::finish(figures, &noticed);
    let mut seen = noticed.findings;
    seen.extend(left_out);
    // Where steps cannot be replayed, gains follow from their two lines.
    let mut diagnosis = diagnose(&analysis, account.as_ref().ok(), simulation.as_ref().ok());
    // One that cannot be read says nothing: what was found stays.
    if let Some(Ok(ledger)) = options.ledger.as_deref().map(Ledger::read) {
        let device = device(&analysis.manifest);
        let records = ledger.records(&device);
        diagnosis.remember(|code| records.get(code.as_str()).copied());
    }
    if let Ok(simulation) = &simulation {
        for path in &mut analysis.sensitivity {
            path.replay = replayed(simulation, path);
        }
    }
    analysis.verdict.join(replay_disagrees::find(&analysis.sensitivity));
    replay_disagrees::doubt(&mut diagnosis, &analysis.sensitivity);
    analysis.diagnosis = Some(diagnosis);
    Analyzed { analysis, account, simulation, seen }
}
