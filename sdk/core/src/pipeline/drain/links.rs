//! How the drain is connected with the session's other threads: what it is told, what it gives back.

use crate::live_manifest::LiveManifest;
use crate::pipeline::BackgroundCpu;
use crate::pipeline::capture_run::CaptureRequest;
use crate::pipeline::fanout::Lane;
use crate::record::SampleRecord;
use crate::run::{BudgetKept, ClockInfo, GpuAccount, InPlaceOverhead, MachineUse, StackAccount};
use crate::shared::RawRequest;
use crate::tally::Tally;
use crossbeam_channel::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Commands to the drain thread.
pub(crate) enum Command {
    /// Empty the rings, then flush every exporter; each exporter answers whether it could.
    Flush(Sender<bool>),
    /// Begin a run of the next steps.
    Capture(Box<CaptureRequest>),
    /// Empty the rings for the last time and answer with the report.
    Stop(Sender<DrainReport>),
}

/// What the drain knows when the session ends.
pub(crate) struct DrainReport {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) tally: Tally,
    pub(crate) clock: ClockInfo,
    pub(crate) gpu: Option<GpuAccount>,
    pub(crate) stacks: Option<StackAccount>,
    pub(crate) in_place: Option<InPlaceOverhead>,
    pub(crate) budget: Option<BudgetKept>,
    pub(crate) machine: Option<MachineUse>,
    /// Most threads without a name of their own that a sample saw.
    pub(crate) pool_threads: Option<u64>,
    /// Threads that are writing captured runs.
    pub(crate) captures: Vec<JoinHandle<()>>,
}

/// How the drain is connected with the session's other threads.
pub(crate) struct Links {
    pub(crate) requests: Receiver<RawRequest>,
    pub(crate) samples: Receiver<Vec<SampleRecord>>,
    pub(crate) commands: Receiver<Command>,
    pub(crate) tally: Arc<Mutex<Tally>>,
    pub(crate) manifest: Arc<LiveManifest>,
    pub(crate) background: Arc<BackgroundCpu>,
}

/// Time limits and costs that the drain works with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    /// Longest time that the device gets at the end to reach the marks in its queue.
    pub(crate) gpu_patience: Duration,
    /// Cost of an interval, for the manifests of captures.
    pub(crate) per_interval_ns: f64,
}
