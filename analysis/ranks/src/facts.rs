//! What is known of ranks.

use super::clocks::Clocks;
use super::collective::CollectiveKind;
use super::reading::Source;
use candlescope_figures::advice::Advice;
use candlescope_schema::run::Finding;
use serde::Serialize;

/// Fewest steps to judge.
pub(crate) const LEAST_STEPS: usize = 8;

/// One rank beside the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankFacts {
    /// Its number among the program's ranks, from 0: of a process by its manifest, of a thread by its device or its name.
    pub rank: u32,
    /// Name of its machine, by its manifest.
    pub host: String,
    /// Name of its thread, where threads of one process are the ranks; `None` of processes.
    pub thread: Option<String>,
    /// Name of the GPU that most of its kernels ran on; without recorded kernels that of the manifest's list by the
    /// rank, `CPU` if the list is empty.
    pub device: String,
    /// The median of the judged steps, nanoseconds.
    pub step_ns: f64,
    /// The same without waiting for other ranks.
    pub own_ns: f64,
    /// Judged steps of which its own time was the longest of all ranks.
    pub longest: usize,
    /// Waiting in collectives until the last rank had come, nanoseconds a step.
    pub waiting_ns: f64,
    /// What collectives took after that, nanoseconds a step.
    pub transfer_ns: f64,
    /// The part of the waiting in which its device computed nothing.
    pub exposed_waiting_ns: f64,
    /// The part of the transfer in which its device computed nothing.
    pub exposed_transfer_ns: f64,
}

/// A kind of operation over all ranks, in the measured steps that all ranks have, of every phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CollectiveSum {
    /// Which kind of operation, by the names of kernels or intervals.
    pub kind: CollectiveKind,
    /// Phase of the steps in which it ran, such as `decode`; each phase has a sum of its own.
    pub phase: String,
    /// How many, of each rank.
    pub count: usize,
    /// Waiting for the last rank, nanoseconds: the mean over ranks, an operation. `None` for what ranks do not do all
    /// together.
    pub waiting_ns: Option<f64>,
    /// What it took after that, nanoseconds: the mean over ranks, an operation; of what ranks do not do all together,
    /// all of it.
    pub transfer_ns: f64,
    /// Bytes of an operation, where all say it.
    pub bytes: Option<f64>,
    /// Bytes a second on the bus [nccl-tests], of transfers of 8 MiB and more on devices.
    pub bus_bytes_per_s: Option<f64>,
    /// What the link carries in one direction, by datasheet.
    pub link_bytes_per_s: Option<f64>,
}

/// Several ranks as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankAnalysis {
    /// How many the program has.
    pub world_size: usize,
    /// Those without a run.
    pub missing: Vec<u32>,
    /// By what the ranks' clocks are held together, and how far that may be wrong.
    pub clocks: Clocks,
    /// Where collectives were seen.
    pub source: Source,
    /// The phase in which most time goes: steps of it are judged.
    pub phase: String,
    /// Steps that are judged: measured on all ranks, with every collective known.
    pub steps: usize,
    /// Collectives that all ranks took part in, in the measured steps that all have, of every phase.
    pub matched: usize,
    /// Times of each rank that has a run, in order of ranks.
    pub ranks: Vec<RankFacts>,
    /// Each kind of operation, in each phase.
    pub collectives: Vec<CollectiveSum>,
    /// Steps in which ranks have different collectives, or such as cannot be one: they are not judged.
    pub odd_steps: usize,
    /// What ranks lose to each other, the largest gain first. In JSON `candlescope_report::ranks` adds them with their
    /// words.
    #[serde(skip)]
    pub findings: Vec<Advice>,
    /// What is wrong with the files; of threads of one run once.
    pub damage: Vec<Finding>,
    /// Runs in the folder that cannot be read, each with the reason.
    pub unreadable: Vec<String>,
}

impl RankAnalysis {
    /// Whether there are too few steps to judge ranks by.
    pub fn has_too_few_steps(&self) -> bool {
        self.steps < LEAST_STEPS
    }
}

/// Times of a judged step on each rank.
#[derive(Debug, Clone, Default)]
pub(crate) struct JudgedTimes {
    pub(crate) step: Vec<f64>,
    pub(crate) own: Vec<f64>,
    pub(crate) exposed_transfer: Vec<f64>,
    pub(crate) waiting: Vec<f64>,
    pub(crate) transfer: Vec<f64>,
    pub(crate) exposed_waiting: Vec<f64>,
}

/// The rank with the longest of these times; none where two have it.
pub(crate) fn longest(all: &[f64]) -> Option<usize> {
    let most = all.iter().copied().fold(f64::MIN, f64::max);
    let mut with = all.iter().enumerate().filter(|(_, value)| **value >= most).map(|(rank, _)| rank);
    let first = with.next();
    first.filter(|_| with.next().is_none())
}

pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// The median; 0 of nothing.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    candlescope_work::estimate::median(values).unwrap_or(0.0)
}
