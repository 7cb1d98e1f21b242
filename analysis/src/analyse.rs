//! Computes a run's figures, its verdict, and what would make it faster.

use crate::findings::{diagnose, verdict};
use crate::limits::Limit;
use crate::passes::account::{Account, AccountError, AccountOptions, account};
use crate::passes::{Analysis, Beside, ChosenDevice, figures};
use crate::reader::Run;
use crate::simulation::{ChosenSteps, Simulation, SimulationOptions};
use candlescope_schema::RecordKind;
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
        Self::beside(run, &mut None::<ChosenSteps>)
    }

    fn beside(run: &Run, beside: &mut impl Beside) -> Self {
        let (analysis, seen) = figures(run, beside);
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
    let of_devices = || match account(run, &options.account) {
        Ok((account, seen)) => (Ok(account), seen),
        Err(error) => (Err(error), Vec::new()),
    };
    // Where figures are of a part of the kernels only, steps are read apart: one without all its kernels is not replayed.
    let whole = run.rows(RecordKind::Kernel) <= run.limits().get(Limit::Kernels);
    let mut chosen = whole.then(|| ChosenSteps::of(run, options.simulation.counts_warmup()).ok()).flatten();
    // Both read the whole run, and share nothing but the files.
    let (mut analysis, (account, seen)) = std::thread::scope(|threads| {
        let beside = std::thread::Builder::new().name("cs-account".into()).spawn_scoped(threads, of_devices);
        let analysis = Analysis::beside(run, &mut chosen);
        let devices = match beside {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // A system that gives no more threads: one after the other.
            Err(_) => of_devices(),
        };
        (analysis, devices)
    });
    // Where steps cannot be replayed, gains follow from their two lines.
    let simulation = match chosen {
        Some(chosen) => Simulation::of_chosen(chosen, &options.simulation).ok(),
        None if whole => None,
        None => Simulation::of(run, &options.simulation).ok(),
    };
    analysis.diagnosis = Some(diagnose(&analysis, account.as_ref().ok(), simulation.as_ref()));
    Analyzed { analysis, account, seen }
}
