//! The account of a device's time: over all threads and streams, from the recorded kernels, copies and memsets alone.
//!
//! Everything that HolisticTraceAnalysis prints for one rank has its counterpart here, by the same definitions where it
//! has one [HTA `hta/analyzers/{breakdown_analysis,trace_counters,cuda_kernel_analysis}.py`]; `docs/timelines.md` has
//! the table. What goes beyond it: gaps are those of the *device*, over the union of the steps that were open; a gap that
//! the clocks are not exact enough to judge says so; a gap has the path whose work ended it.
//!
//! Rows are kept at some 80 bytes each. Intervals are not read: a kernel's row says which one launched it.

mod contention;
mod context;
mod copies;
mod critical;
mod idle;
mod launches;
mod phase_work;
mod recorded;
mod sequences;
mod spread;
mod step_line;
mod streams;
mod tables;
mod works;

pub use contention::{CallTime, LaunchContention};
pub use context::AccountOptions;
pub use copies::{CopyRate, ExposedCopy};
pub use critical::{CriticalPart, CriticalPath};
pub use idle::{Gaps, Line, PhaseLine};
pub use launches::Launches;
pub use phase_work::{Drain, PhaseWork, PlacedKernel, PlacedWait};
pub use sequences::KernelSequence;
pub use spread::Spread;
pub use step_line::{LineWork, StepLine};
pub use streams::{QueueLength, StreamAccount};
pub use tables::{KernelAccountRow, PlaceRow};
pub use works::LaunchShape;

use super::busy::Clocks;
use super::covered::CoveredTime;
use super::known::RunContents;
use super::reading::Pass;
use super::sampling::Sampling;
use super::step_rows::StepRow;
use super::timeline::{around_others, beside_windows};
use super::warmup::Warmup;
use candlescope_reader::Run;
use candlescope_schema::run::Finding;
use candlescope_schema::stretches::{Stretch, difference, intersection, length, merged, merged_but_touching};
use candlescope_schema::{Batch, RecordKind};
use context::Context;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use works::{Collector, DeviceWorks, NONE, Works};

/// There is nothing to account for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum AccountError {
    /// No kernels were recorded, or only while the model was loaded.
    #[error("`{}` has no recorded kernels beside those of loading the model, and without them nothing is known about the device's time. Record some: `candlescope profile --device cuda:0 --cupti`, or `cupti` in the variable CANDLESCOPE", .0.display())]
    NoKernels(PathBuf),
    /// Kernels were recorded, but only in steps of the warm-up.
    #[error("all {kernels} recorded kernels of `{}`, those of loading the model left out, are of warm-up steps. Record more steps, or let the warm-up count (--with-warmup)", dir.display())]
    OnlyWarmup {
        dir: PathBuf,
        /// Kernels, copies and memsets.
        kernels: u64,
    },
}

/// How the devices of a run spent their time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// `run_id` of `run.json`; empty if there is none.
    pub run: String,
    /// Directory that the run was read from.
    pub dir: PathBuf,
    /// Kernels, copies and memsets that count.
    pub records: u64,
    /// Those of the warm-up, which are in no table.
    pub warmup_records: u64,
    /// How far the devices' times may be off on the host's time line, in nanoseconds; `None` if the run does not say.
    pub clock_bound_ns: Option<u64>,
    /// Below this many nanoseconds a gap is launch overhead.
    pub launch_overhead_below_ns: u64,
    /// One account for each device with recorded work, in order of UUID.
    pub devices: Vec<DeviceAccount>,
    /// What cannot be told from this run, and why.
    pub absent: Vec<MissingFigure>,
}

/// A figure that the run's data do not carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingFigure {
    /// The figures that are missing, in words.
    pub what: &'static str,
    /// Why it is missing, and what would bring it.
    pub why: &'static str,
}

/// How one device spent its time. All times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceAccount {
    /// UUID of the device, as the records of its kernels have it.
    pub device: String,
    /// Its product name, if the run has it.
    pub name: Option<String>,
    /// While steps were open; `None` if the clocks are too far apart to place steps on the device's time line.
    pub line: Option<Line>,
    /// The same for the steps of each phase, or name.
    pub phases: Vec<PhaseLine>,
    /// While work was recorded, whether steps were open or not.
    pub trace: Trace,
    /// Each stream, by number.
    pub streams: Vec<StreamAccount>,
    /// Kernels, copies and memsets by name, the most time first.
    pub kernels: Vec<KernelAccountRow>,
    /// The same by path without ordinals, the most time first.
    pub paths: Vec<PlaceRow>,
    /// The same by module without numbers.
    pub modules: Vec<PlaceRow>,
    /// Launch calls; `None` if none were recorded.
    pub launches: Option<Launches>,
    /// Copies by direction, and memsets.
    pub copies: Vec<ExposedCopy>,
    /// Sequences of kernels that repeat, the most time first.
    pub sequences: Vec<KernelSequence>,
    /// What the time of steps consists of, if it is followed back from each step's end.
    pub critical_path: Option<CriticalPath>,
    /// The steps of each phase, or name, kernel by kernel: what findings with gains rest on.
    #[serde(skip)]
    pub work: Vec<PhaseWork>,
    /// One median step; `None` if the clocks are too far apart, or it has too much work to be read.
    #[serde(skip)]
    pub median_step: Option<StepLine>,
}

/// The time in which work was recorded, as HTA's temporal and kernel breakdowns have it: from the first start to the last
/// end, in each row of steps that follow each other without a step between them whose kernels were not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Trace {
    /// Rows of such steps.
    pub windows: u64,
    /// From the first start to the last end in each.
    pub span_ns: u64,
    /// Time in which anything ran.
    pub busy_ns: u64,
    /// The rest of the span.
    pub idle_ns: u64,
    /// Time in which a kernel ran that is not of a communication library.
    pub compute_ns: u64,
    /// Time in which a communication kernel ran (a name that begins with `nccl`).
    pub communication_ns: u64,
    /// Time in which a copy or memset ran.
    pub memory_ns: u64,
    /// Time in which something ran but no compute kernel.
    pub non_compute_ns: u64,
    /// Time in which both a compute kernel and a copy or memset ran.
    pub compute_and_memory_ns: u64,
}

/// The account of a run, and what was noticed while reading it.
///
/// # Errors
/// If no kernels were recorded, or only in the warm-up.
pub fn account(run: &Run, options: &AccountOptions) -> Result<(Account, Vec<Finding>), AccountError> {
    let (known, rows) = RunContents::read(run);
    let mut pass = AccountPass::of(&known, options);
    let mut seen = rows.to(&mut [&mut pass]).findings;
    let (account, left_out) = pass.finish();
    seen.extend(left_out);
    Ok((account?, seen))
}

/// Columns of kernels that no account comes from.
const NOT_OF_KERNELS: &[&str] =
    &["host", "rank", "span_id", "phase", "launch", "queue_delay_ns", "correlation", "graph_node", "derived"];

/// Makes the account of a run from its kernels.
pub struct AccountPass<'k> {
    known: &'k RunContents<'k>,
    options: &'k AccountOptions,
    warmup: Warmup,
    works: Option<Collector<'k>>,
    account: Result<Account, AccountError>,
    left_out: Vec<Finding>,
}

impl<'k> AccountPass<'k> {
    /// Of this run, before its kernels are read.
    pub fn of(known: &'k RunContents<'k>, options: &'k AccountOptions) -> Self {
        let warmup = if options.warmup { Warmup::default() } else { known.warmup() };
        Self {
            works: Some(Collector::of(known, &warmup)),
            known,
            options,
            warmup,
            account: Err(AccountError::NoKernels(known.run.dir().to_path_buf())),
            left_out: Vec::new(),
        }
    }

    /// The account, and which rows are not in it.
    pub fn finish(self) -> (Result<Account, AccountError>, Vec<Finding>) {
        (self.account, self.left_out)
    }

    fn account(&self, works: &Works) -> Result<Account, AccountError> {
        let RunContents { run, manifest, steps, .. } = self.known;
        if works.records == 0 {
            let dir = run.dir().to_path_buf();
            return Err(match works.warmup {
                0 => AccountError::NoKernels(dir),
                kernels => AccountError::OnlyWarmup { dir, kernels },
            });
        }
        let (measured, clocks) = (self.warmup.measured(steps), self.known.clocks());
        let sampling = Sampling::of(manifest, steps);
        let covered = CoveredTime::of(&sampling, steps, self.warmup.requests()).without_warmup(self.warmup.left_out());
        let context = Context { steps: &measured, covered: &covered, clocks, manifest, options: self.options };
        let mut devices: Vec<DeviceAccount> =
            works.devices.iter().map(|device| device_account(device, works, &context)).collect();
        step_line::add_threads(run, devices.iter_mut().filter_map(|device| device.median_step.as_mut()));
        Ok(Account {
            run: manifest.run_id.clone(),
            dir: run.dir().to_path_buf(),
            records: works.records,
            warmup_records: works.warmup,
            clock_bound_ns: clocks.bound_ns,
            launch_overhead_below_ns: self.options.overhead_ns,
            absent: absent(works, clocks),
            devices,
        })
    }
}

impl Pass for AccountPass<'_> {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Kernel]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_KERNELS
    }

    fn rows(&mut self, batch: &Batch) {
        if let Some(works) = &mut self.works {
            works.add(&batch.kernels);
        }
    }

    fn end(&mut self) {
        let Some(works) = self.works.take() else { return };
        let (works, left_out) = works.finish();
        (self.account, self.left_out) = (self.account(&works), left_out);
    }
}

impl Account {
    /// The same with at most `n` rows in each table; 0 keeps all of them.
    #[must_use]
    pub fn top(mut self, n: usize) -> Self {
        let n = if n == 0 { usize::MAX } else { n };
        for device in &mut self.devices {
            device.kernels.truncate(n);
            device.paths.truncate(n);
            device.modules.truncate(n);
            device.sequences.truncate(n);
            if let Some(path) = &mut device.critical_path {
                path.by_path.truncate(n);
            }
        }
        self
    }
}

fn device_account(device: &DeviceWorks, works: &Works, context: &Context<'_>) -> DeviceAccount {
    let numbers: BTreeSet<u64> = device.steps.iter().copied().collect();
    let own: Vec<&StepRow> = context.steps.iter().filter(|step| numbers.contains(&step.step)).collect();
    let around = around_others(context.steps, &numbers);
    let inner: Vec<&StepRow> = own.iter().copied().filter(|step| !around.contains(&step.step)).collect();
    let beside = beside_windows(context.steps, &numbers);
    let windows = |steps: &[&StepRow]| -> Vec<Stretch> {
        let open = steps.iter().map(|step| step.window());
        difference(&context.covered.cut(merged_but_touching(open)), &beside)
    };
    let (mut waits, placed) = (tables::Waits::default(), !context.clocks.apart());
    let judge = idle::Judge::of(works, context);
    let recorded = recorded::recorded(device, works, context.steps, context.covered);
    let worked = idle::WorkedTime::of(device);
    let line = placed.then(|| idle::line(&worked, &inner, &windows(&inner), &judge, Some(&mut waits)));
    let mut groups: Vec<&str> = Vec::new();
    own.iter().for_each(|step| {
        if !groups.contains(&step.group()) {
            groups.push(step.group())
        }
    });
    let phases = groups.into_iter().filter(|_| placed).map(|group| {
        let steps: Vec<&StepRow> = own.iter().copied().filter(|step| step.group() == group).collect();
        PhaseLine { name: group.to_string(), line: idle::line(&worked, &steps, &windows(&steps), &judge, None) }
    });
    let phases = phases.collect();
    drop(worked);
    let waits = context.clocks.within().map(|_| waits);
    let (paths, modules) = tables::by_place(device, works, waits.as_ref());
    DeviceAccount {
        device: device.device.to_string(),
        name: super::devices::name(&device.device, context.manifest),
        line,
        phases,
        trace: trace(device, works, &recorded),
        streams: streams::streams(device, &recorded, context),
        kernels: tables::by_name(device, works),
        paths,
        modules,
        launches: launches::launches(device, context.clocks),
        copies: copies::copies(device, works),
        sequences: sequences::sequences(device, works),
        critical_path: if placed { critical::critical_path(device, works, &inner) } else { None },
        work: phase_work::phase_work(device, works, &own, context.steps),
        median_step: if placed { step_line::step_line(device, works, &own) } else { None },
    }
}

fn trace(device: &DeviceWorks, works: &Works, recorded: &recorded::RecordedTime) -> Trace {
    let counting = || device.work.iter().filter(|work| work.counts);
    // One list after the other, because each may be of tens of millions.
    let (span_ns, busy_ns) = (length(&recorded.on_device), length(&merged(counting().map(works::Work::stretch_of))));
    let memory = merged(counting().filter(|work| !work.is_kernel()).map(works::Work::stretch_of));
    let communication = merged(counting().filter(|work| works.is_communication(work)).map(works::Work::stretch_of));
    let compute = merged(device.work.iter().filter(|work| works.is_compute(work)).map(works::Work::stretch_of));
    let compute_ns = length(&compute);
    Trace {
        windows: recorded.windows,
        span_ns,
        busy_ns,
        idle_ns: span_ns.saturating_sub(busy_ns),
        compute_ns,
        communication_ns: length(&communication),
        memory_ns: length(&memory),
        non_compute_ns: busy_ns - compute_ns,
        compute_and_memory_ns: length(&intersection(&compute, &memory)),
    }
}

fn absent(works: &Works, clocks: Clocks) -> Vec<MissingFigure> {
    let mut out = vec![MissingFigure {
        what: "gaps caused by the allocator",
        why: "calls that allocate are not recorded, only calls that launch; such gaps are host-bound",
    }];
    if works.devices.iter().all(|device| device.work.iter().all(|work| work.launch == NONE)) {
        let why = "no launch calls were recorded, so it is not known whether the host was late: gaps are `other`";
        out.push(MissingFigure { what: "host-bound gaps, launches, queue lengths", why });
    }
    if clocks.apart() {
        let why = "the clocks of host and device are too far apart to place steps on the device's time line, or to say \
                   how long work waited for its launch";
        out.push(MissingFigure {
            what: "line, phases, critical path, waits and queues of streams, launch delays",
            why,
        });
    } else if clocks.bound_ns.is_none() {
        let why = "the run does not say how far the clocks may be apart (gpu.kernels.clock_bound_ns): every gap is \
                   `uncertain`, and what streams waited for, their queues and launch delays are not known";
        out.push(MissingFigure { what: "classes of gaps", why });
    }
    out
}
