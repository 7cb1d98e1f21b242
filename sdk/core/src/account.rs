//! Closes the account of a run: turns what was counted into its final manifest, for sessions and captures alike.

use crate::HostNs;
use crate::record::RecordKind;
use crate::run::{
    BudgetKept, ClockInfo, ESTIMATE_IN_PLACE, ESTIMATE_LOOP, ExporterReport, Finding, GpuAccount, InPlaceOverhead,
    LoadedModel, MachineUse, OverheadInfo, RunManifest, StackAccount, env_key,
};
use crate::tally::Tally;
use crate::verdict::{Evidence, verdict};
use serde_json::Value;

/// What is known of a run when it ends.
#[derive(Default)]
pub(crate) struct RunEnd<'a> {
    pub(crate) ended: HostNs,
    pub(crate) tally: Tally,
    /// The model that was loaded.
    pub(crate) modules: Option<LoadedModel>,
    pub(crate) clock: ClockInfo,
    pub(crate) exporters: Vec<ExporterReport>,
    /// Exporters that did not answer in time.
    pub(crate) unresponsive: &'a [&'static str],
    /// How GPU time was taken, if it was asked for.
    pub(crate) gpu: Option<GpuAccount>,
    /// How stacks were sampled, if it was asked for.
    pub(crate) stacks: Option<StackAccount>,
    /// What one interval costs, measured in a loop.
    pub(crate) per_interval_ns: f64,
    /// The cost of recording, as plain steps show it.
    pub(crate) in_place: Option<InPlaceOverhead>,
    pub(crate) budget: Option<BudgetKept>,
    /// How the machine was used while steps ran.
    pub(crate) machine: Option<MachineUse>,
    /// Most threads without a name of their own that a sample saw, also where no step ran.
    pub(crate) pool_threads: Option<u64>,
    pub(crate) background_cpu_ns: Option<u64>,
    pub(crate) collector_failures: &'a [(&'static str, String)],
    /// Whether the thread of the collectors is still busy.
    pub(crate) collectors_hang: bool,
    /// Findings from the start of the session and from the application's threads.
    pub(crate) noticed: &'a [Finding],
    /// Recording was never on; for a capture: no step came.
    pub(crate) paused_throughout: bool,
    /// Whether the run is a capture, which shows a part of a session.
    pub(crate) capture: bool,
}

impl RunEnd<'_> {
    /// Writes the run's outcome into `m`, and whether the run can be trusted.
    pub(crate) fn close(self, m: &mut RunManifest) {
        let tally = &self.tally;
        // The system's clock may have been set back meanwhile.
        m.ended_ns = Some(self.ended.0.max(m.started_ns));
        m.complete = true;
        m.clock = self.clock;
        m.counts = RecordKind::ALL.into_iter().map(|k| (k.table().into(), tally.counts[k as usize])).collect();
        m.loss = tally.loss;
        m.steps = Some(tally.steps);
        m.modules = self.modules;
        m.exporters = self.exporters;
        m.gpu = self.gpu;
        m.stacks = self.stacks;
        m.machine = self.machine;
        note_threads_and_candle(m, self.pool_threads);
        let (application_ns, ratio) = overhead(self.per_interval_ns, tally);
        m.overhead = OverheadInfo {
            per_interval_ns: self.per_interval_ns,
            application_ns,
            background_cpu_ns: self.background_cpu_ns,
            ratio,
            estimate: if self.in_place.is_some() { ESTIMATE_IN_PLACE } else { ESTIMATE_LOOP }.into(),
            in_place: self.in_place,
            budget: self.budget,
        };
        m.verdict = verdict(&Evidence {
            manifest: m,
            facts: tally,
            collector_failures: self.collector_failures,
            unresponsive: self.unresponsive,
            unresponsive_collectors: self.collectors_hang.then_some("their thread is still busy"),
            noticed: self.noticed,
            paused_throughout: self.paused_throughout,
            capture: self.capture,
        });
    }
}

/// What the environment can say of candle and its threads only at the end.
fn note_threads_and_candle(m: &mut RunManifest, pool_threads: Option<u64>) {
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            m.environment.entry(key.into()).or_insert(value);
        }
    };
    put(env_key::CANDLE.name(), crate::modules::seen_candle_version().map(Into::into));
    put(env_key::UNNAMED_THREADS.name(), pool_threads.map(Into::into));
}

/// Time taken from the application's threads in nanoseconds, by the loop's estimate, and its share of the time in
/// steps.
pub(crate) fn overhead(per_interval_ns: f64, tally: &Tally) -> (u64, Option<f64>) {
    let application_ns = (per_interval_ns * tally.loss.emitted as f64) as u64 + tally.marks_ns;
    (application_ns, (tally.step_ns > 0).then(|| application_ns as f64 / tally.step_ns as f64))
}
