//! One rank: a process with a run of its own, or a thread of a run that has several.

use super::ranks_error::RanksError;
use candlescope_reader::{Run, natural_key};
use candlescope_schema::run::RunManifest;
use candlescope_schema::{Batch, RecordKind, StepRecord, thread_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most threads of a run that are taken for ranks: an export has a file open for each, and no machine has as many
/// devices.
const MOST_THREADS: usize = 64;

/// A rank, and where its records are.
#[derive(Debug, Clone)]
pub struct Rank {
    run: Arc<Run>,
    manifest: RunManifest,
    /// Where it is not the whole run.
    thread: Option<RankThread>,
}

/// A thread that is a rank.
#[derive(Debug, Clone)]
struct RankThread {
    name: Arc<str>,
    owners: Arc<Owners>,
}

/// Which of a run's threads has which records, by the number of its rank.
#[derive(Debug, Default)]
struct Owners {
    /// How many ranks there are.
    ranks: usize,
    /// By the step's number in the run: whose it is, and which of the thread's own, from 0.
    steps: HashMap<u64, (u32, u64)>,
    /// By the thread's number.
    threads: HashMap<u64, u32>,
    /// By UUID: who uses the device, of several the first one.
    devices: HashMap<Arc<str>, u32>,
}

impl Rank {
    /// A process with a run of its own; none if the run does not say which.
    pub(crate) fn of_process(run: Run) -> Option<Self> {
        let manifest = run.manifest()?.clone();
        Some(Self { run: Arc::new(run), manifest, thread: None })
    }

    /// Each thread of a run that runs marked phases, as a rank: in order of their devices; where two have one, or not
    /// all are known by kernels, in order of their names.
    ///
    /// # Errors
    /// When there are fewer than two or too many, or when it is not known which step of one belongs to which of another.
    pub(crate) fn of_threads(run: Run) -> Result<Vec<Self>, RanksError> {
        let manifest = run.manifest().cloned().unwrap_or_default();
        let threads = threads(&run, &manifest)?;
        let mut owners = Owners { ranks: threads.len(), ..Owners::default() };
        for (rank, thread) in (0..).zip(&threads) {
            owners.threads.insert(thread.number, rank);
            owners.steps.extend(thread.steps.iter().zip(0..).map(|((_, step), own)| (*step, (rank, own))));
            if let Some(device) = &thread.device {
                owners.devices.entry(device.clone()).or_insert(rank);
            }
        }
        let (run, owners, world_size) = (Arc::new(run), Arc::new(owners), u32::try_from(threads.len()).ok());
        let rank = |(rank, Thread { name, .. }): (u32, Thread)| {
            let manifest = RunManifest { rank, world_size, ..manifest.clone() };
            let thread = RankThread { name, owners: Arc::clone(&owners) };
            Self { run: Arc::clone(&run), manifest, thread: Some(thread) }
        };
        Ok((0..).zip(threads).map(rank).collect())
    }

    /// The run that its records are in; of threads the same one.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Its `run.json`, with its number; of a thread that number is this crate's.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// Name of its thread; `None` of a process.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_ref().map(|thread| &*thread.name)
    }

    /// What of a batch of its run each rank of that run has, in their order; `RanksOfRun::read` says what is whose.
    pub(crate) fn each_own(&self, batch: Batch) -> Vec<Batch> {
        match &self.thread {
            Some(thread) => thread.owners.split(batch),
            None => vec![batch],
        }
    }

    /// Whether another rank's records are in the same run.
    pub(crate) fn shares_run(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }
}

impl Owners {
    /// What of a batch each rank has.
    fn split(&self, batch: Batch) -> Vec<Batch> {
        let mut each: Vec<Batch> = Vec::new();
        each.resize_with(self.ranks, Batch::default);
        for mut step in batch.steps {
            if let Some((rank, own)) = self.steps.get(&step.step) {
                step.step = *own;
                each[*rank as usize].steps.push(step);
            }
        }
        for mut span in batch.spans {
            if let Some(rank) = self.of(&mut span.step, Some(span.seq)) {
                each[rank as usize].spans.push(span);
            }
        }
        for mut kernel in batch.kernels {
            let of = self.of(&mut kernel.step, kernel.seq).or_else(|| self.devices.get(&kernel.device).copied());
            if let Some(rank) = of {
                each[rank as usize].kernels.push(kernel);
            }
        }
        if let Some(first) = each.first_mut() {
            (first.requests, first.samples) = (batch.requests, batch.samples);
        }
        each
    }

    /// Whose record this is, by its step, which gets the thread's own number or is taken off it, or by its interval.
    fn of(&self, step: &mut Option<u64>, seq: Option<u64>) -> Option<u32> {
        let by_step = step.and_then(|step| self.steps.get(&step));
        *step = by_step.map(|(_, own)| *own);
        by_step.map(|(rank, _)| *rank).or_else(|| self.threads.get(&thread_of(seq?)).copied())
    }
}

/// A thread while a run is read.
#[derive(Default)]
struct Thread {
    number: u64,
    name: Arc<str>,
    has_phase: bool,
    /// Start and number of its steps.
    steps: Vec<(i64, u64)>,
    kernels: BTreeMap<Arc<str>, u64>,
    /// The device that most of its kernels ran on; none where no kernels were recorded.
    device: Option<Arc<str>>,
}

fn threads(run: &Run, manifest: &RunManifest) -> Result<Vec<Thread>, RanksError> {
    let mut by_number: BTreeMap<u64, Thread> = BTreeMap::new();
    let mut numbers = Vec::new();
    for batch in run.batches().of_tables(&[RecordKind::Step, RecordKind::Kernel]) {
        for step in &batch.steps {
            let StepRecord { seq, step: number, host_start, phase, thread, .. } = step;
            let of = by_number.entry(thread_of(*seq)).or_default();
            of.name = thread.name.clone();
            of.has_phase |= phase.is_some();
            of.steps.push((host_start.0, *number));
            numbers.push(*number);
        }
        for kernel in &batch.kernels {
            let Some(seq) = kernel.seq else { continue };
            *by_number.entry(thread_of(seq)).or_default().kernels.entry(kernel.device.clone()).or_default() += 1;
        }
    }
    let dir = || run.dir().to_path_buf();
    let mut threads: Vec<Thread> = Vec::new();
    for (number, mut of) in by_number.into_iter().filter(|(_, of)| of.has_phase) {
        of.number = number;
        of.steps.sort_unstable();
        of.device = of.kernels.iter().max_by_key(|(_, kernels)| **kernels).map(|(device, _)| device.clone());
        threads.push(of);
    }
    if !(2..=MOST_THREADS).contains(&threads.len()) {
        return Err(RanksError::Threads { run: dir(), threads: threads.len() });
    }
    // Numbers are given when steps begin, over all threads. Of one without a record nobody knows whose it was; one that
    // had not ended when the session did is the last of its thread.
    let between = numbers.iter().max().zip(numbers.iter().min()).map_or(0, |(last, first)| last - first + 1);
    let lost = between.saturating_sub(numbers.len() as u64);
    if lost > manifest.steps.as_ref().map_or(0, |steps| steps.open_at_end) {
        return Err(RanksError::StepsMissing { run: dir(), missing: lost, of: between });
    }
    let place = |thread: &Thread| {
        let gpu = |device: &Arc<str>| manifest.gpus().iter().position(|gpu| gpu["uuid"].as_str() == Some(device));
        thread.device.as_ref().and_then(gpu)
    };
    let mut places: Vec<usize> = threads.iter().filter_map(place).collect();
    places.sort_unstable();
    places.dedup();
    if places.len() == threads.len() {
        threads.sort_by_key(place);
    } else {
        threads.sort_by_cached_key(|thread| natural_key(&thread.name));
    }
    Ok(threads)
}
