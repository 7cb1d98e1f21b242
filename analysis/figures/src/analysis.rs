//! What is known about a run.

use super::account::Account;
use super::{
    Device, Energy, Gpu, GraphShapes, HostTime, Intervals, Kernels, KernelsByPath, Latency, Layer, Memory, Operator,
    PhaseRow, Phases, Price, Sampling, Shares, StepSeries, ThreadTimes, Tokens, Tree, Warmup,
};
use crate::advice::Diagnosis;
use crate::chosen_device::ChosenDevice;
use crate::sensitivity::Criticality;
use candlescope_schema::run::{Code, Finding, RunManifest, Verdict};
use std::collections::BTreeMap;

/// Everything that is known about a run, in figures. Times are nanoseconds unless a name says otherwise.
#[derive(Debug, Clone)]
pub struct Analysis {
    /// Directory the run was read from.
    pub dir: std::path::PathBuf,
    /// `run.json`, or defaults if there is none.
    pub manifest: RunManifest,
    /// Records read, by table.
    pub rows: BTreeMap<&'static str, u64>,
    /// Bytes on disk, by table.
    pub file_bytes: BTreeMap<&'static str, u64>,
    /// The warm-up, which is in none of the other figures.
    pub warmup: Warmup,
    /// Which steps have a record.
    pub sampling: Sampling,
    /// Time and work of every rollup path.
    pub intervals: Intervals,
    /// TTFT, TPOT, ITL and throughput.
    pub latency: Latency,
    /// Time by phase, and durations of steps by kind.
    pub phases: Phases,
    /// Latency of each token against its context.
    pub tokens: Tokens,
    /// Where the time goes, as a tree.
    pub tree: Tree,
    /// Where the time goes, as a table by self time.
    pub operators: Vec<Operator>,
    /// GPU time of steps, and how the device's time divides.
    pub gpu: Gpu,
    /// Kernels and copies of the recorded steps.
    pub kernels: Kernels,
    /// Memory and other samples over time.
    pub memory: Memory,
    /// Samples of each GPU.
    pub devices: Vec<Device>,
    /// Energy that the GPUs used.
    pub energy: Energy,
    /// What each request caused.
    pub shares: Shares,
    /// What the machine costs, if somebody said so.
    pub price: Option<Price>,
    /// The measured steps of each kind, in order.
    pub series: Vec<StepSeries>,
    /// Numbered siblings such as a decoder's layers, in order of path.
    pub layers: Vec<Layer>,
    /// Shapes of CUDA graphs, where steps left theirs.
    pub graph_shapes: GraphShapes,
    /// What the host did inside intervals, if stacks were sampled.
    pub host: Option<HostTime>,
    /// What steps take where something is made slower, by experiment; empty if there was none.
    pub sensitivity: Vec<Criticality>,
    /// Findings with gains, once they have been looked for (`candlescope_findings::analyze`).
    pub diagnosis: Option<Diagnosis>,
    /// How the devices spent their time, if it was asked for.
    pub account: Option<Account>,
    /// Kernels of an Nsight Systems profile, if one was given.
    pub nsys: Option<KernelsByPath>,
    /// What is wrong with the run's files: damage and limits. The verdict has it as well.
    pub noticed: Vec<Finding>,
    /// Whether all this can be trusted.
    pub verdict: Verdict,
}

/// Findings of a verdict that say that the run was disturbed.
const DISTURBED: [Code; 2] = [Code::MachineBusy, Code::CpuThrottled];

impl Analysis {
    /// Whether the model ran on a GPU, so that time on the host is not the operations' own.
    pub fn ran_on_gpu(&self) -> bool {
        ChosenDevice::of(&self.manifest) == ChosenDevice::Gpu
            || !self.gpu.devices.is_empty()
            || self.gpu.kinds.iter().any(|kind| !kind.elapsed.is_empty())
    }

    /// The verdict's finding that other programs used the machine, or that it held the program back: whole data of such a
    /// run are no times of the program alone. The one place that says so, for every reader of a run.
    pub fn disturbance(&self) -> Option<&Finding> {
        self.disturbances().next()
    }

    /// All such findings.
    pub fn disturbances(&self) -> impl Iterator<Item = &Finding> {
        self.verdict.findings.iter().filter(|finding| DISTURBED.contains(&finding.code))
    }

    /// What the steps' own threads did, of those that `row` counts; `None` if no interval of their name is known.
    pub fn threads_of(&self, row: &PhaseRow) -> Option<ThreadTimes> {
        self.intervals.paths.iter().find(|path| path.rollup == row.name).map(|path| path.threads)
    }

    /// Whether the model may have run on the GPU of this UUID: others of the machine are sampled, too. Without times on
    /// devices nobody knows which one of several it was.
    pub fn may_have_run_on(&self, uuid: &str) -> bool {
        self.ran_on_gpu()
            && (self.gpu.devices.is_empty() || self.gpu.devices.iter().any(|(device, _)| **device == *uuid))
    }
}
