//! Computes a run's figures, its verdict, and what would make it faster.

use crate::findings::{diagnose, verdict};
use crate::passes::account::{Account, AccountError, AccountOptions, AccountPass};
use crate::passes::figures::Figures;
use crate::passes::known::Known;
use crate::passes::reading::{Noticed, Pass};
use crate::passes::{Analysis, ChosenDevice};
use crate::reader::Run;
use crate::simulation::{Abstain, ChosenSteps, Simulation, SimulationOptions};
use candlescope_schema::run::{Code, Finding};

/// Findings of a verdict that say that the run was disturbed.
const DISTURBED: [Code; 2] = [Code::MachineBusy, Code::CpuThrottled];

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
        let (known, rows) = Known::read(run);
        let mut figures = Figures::of(&known);
        let noticed = rows.to(&mut [&mut figures]);
        Self::finish(figures, run, &noticed)
    }

    /// The figures of rows that were read, judged.
    pub(crate) fn finish(figures: Figures<'_>, run: &Run, noticed: &Noticed) -> Self {
        let (analysis, seen) = figures.finish(noticed);
        verdict(analysis, run.manifest().is_some(), seen)
    }

    /// Whether the model ran on a GPU, so that time on the host is not the operations' own.
    pub fn ran_on_gpu(&self) -> bool {
        ChosenDevice::of(&self.manifest) == ChosenDevice::Gpu
            || !self.gpu.devices.is_empty()
            || self.gpu.kinds.iter().any(|kind| !kind.elapsed.is_empty())
    }

    /// The verdict's finding that other programs used the machine, or that it held the program back: whole data of such a
    /// run are no times of the program alone.
    pub(crate) fn disturbance(&self) -> Option<&Code> {
        self.verdict.findings.iter().map(|finding| &finding.code).find(|code| DISTURBED.contains(code))
    }

    /// Whether the model may have run on the GPU of this UUID: others of the machine are sampled, too. Without times on
    /// devices nobody knows which one of several it was.
    pub(crate) fn may_have_run_on(&self, uuid: &str) -> bool {
        self.ran_on_gpu()
            && (self.gpu.devices.is_empty() || self.gpu.devices.iter().any(|(device, _)| **device == *uuid))
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
    /// The steps that can be replayed, or why none can.
    pub simulation: Result<Simulation, Abstain>,
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
    let (known, rows) = Known::read(run);
    let mut figures = Figures::of(&known);
    let mut devices = AccountPass::of(&known, &options.account);
    let mut chosen = ChosenSteps::of(&known, options.simulation.counts_warmup());
    let mut passes: Vec<&mut dyn Pass> = vec![&mut figures, &mut devices];
    if let Ok(chosen) = &mut chosen {
        passes.push(chosen);
    }
    let noticed = rows.to(&mut passes);
    let (account, mut left_out) = devices.finish();
    let simulation = chosen.and_then(|chosen| Simulation::of_chosen(chosen, &noticed, &options.simulation));
    let mut seen: Vec<Finding> = run.findings().iter().chain(&noticed.findings).cloned().collect();
    seen.append(&mut left_out);
    let mut analysis = Analysis::finish(figures, run, &noticed);
    // Where steps cannot be replayed, gains follow from their two lines.
    analysis.diagnosis = Some(diagnose(&analysis, account.as_ref().ok(), simulation.as_ref().ok()));
    Analyzed { analysis, account, simulation, seen }
}
