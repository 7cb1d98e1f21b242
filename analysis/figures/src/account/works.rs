//! Recorded work on the devices, as small as it can be kept: a run may have tens of millions of rows.

use crate::gaps::{HasStretch, ready};
use crate::int_map::IntMap;
use crate::known::RunContents;
use crate::step_rows::StepRow;
use crate::warmup::Warmup;
use candlescope_reader::limits::{Limit, ReadLimits};
use candlescope_schema::run::Finding;
use candlescope_schema::stretches::Stretch;
use candlescope_schema::{KernelKind, KernelRecord, PathInfo, thread_of};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// No time.
pub(super) const NONE: i64 = i64::MIN;
/// No step, no path.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A kernel, copy or memset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Start on the device, Unix nanoseconds.
    pub(super) start: i64,
    /// End on the device.
    pub(super) end: i64,
    /// Start of the call that launched it, or [`NONE`].
    pub(super) launch: i64,
    /// End of that call; its start if the duration is not known.
    pub(super) launch_end: i64,
    /// `seq` of the interval that launched it; `u64::MAX` without one.
    pub(super) seq: u64,
    /// Bytes copied or set; `u64::MAX` if unknown.
    pub(super) bytes: u64,
    /// Index into [`Works::names`].
    pub(super) name: u32,
    /// Index into [`Works::paths`], or [`NOWHERE`].
    pub(super) path: u32,
    /// Index into the steps, or [`NOWHERE`].
    pub(super) step: u32,
    pub(super) stream: u32,
    /// Index into [`Works::shapes`], or [`NOWHERE`].
    pub(super) shape: u32,
    pub(super) kind: KernelKind,
    /// Whether it is in the tables: not of the warm-up, not before the first step.
    pub(super) counts: bool,
    /// Whether a CUDA graph launched it.
    pub(super) in_graph: bool,
    /// Whether it is a copy to the host.
    pub(super) to_host: bool,
}

impl Work {
    #[inline]
    pub(super) fn is_kernel(&self) -> bool {
        self.kind == KernelKind::Kernel
    }

    #[inline]
    pub(super) fn ns(&self) -> u64 {
        self.end.abs_diff(self.start)
    }

    #[inline]
    pub(super) fn stretch_of(&self) -> Stretch {
        (self.start, self.end)
    }

    /// The call that launched it, if it is known.
    #[inline]
    pub(super) fn call(&self) -> Option<(i64, i64)> {
        (self.launch != NONE).then_some((self.launch, self.launch_end))
    }

    /// When the device could have begun it.
    #[inline]
    pub(super) fn ready(&self) -> Option<i64> {
        ready(self.call(), self.start, self.is_kernel() && !self.in_graph)
    }

    /// Number of the thread that launched it.
    #[inline]
    pub(super) fn thread(&self) -> Option<u64> {
        (self.seq != u64::MAX).then(|| thread_of(self.seq))
    }

    /// A copy to the host whose call returned only after the device was done: the host waited for it. A copy to the
    /// device that has ended when its call returns was only quick.
    #[inline]
    pub(super) fn is_blocking_copy(&self) -> bool {
        self.to_host && self.launch != NONE && self.launch_end >= self.end
    }
}

/// How a kernel was launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// Blocks of the whole grid: its three dimensions multiplied.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u64,
    /// Registers of a thread; `None` if not recorded.
    pub registers: Option<u32>,
    /// Shared memory of a block in bytes, static and dynamic.
    pub shared: u64,
}

impl LaunchShape {
    fn of(record: &KernelRecord) -> Option<Self> {
        let product = |sides: [u32; 3]| sides.iter().map(|side| u64::from(*side)).product();
        let shared = u64::from(record.shared_static.unwrap_or(0)) + u64::from(record.shared_dynamic.unwrap_or(0));
        let (blocks, threads) = (product(record.grid?), product(record.block?));
        Some(Self { blocks, threads, registers: record.registers, shared })
    }
}

/// What ran on one device, in order of start.
#[derive(Debug)]
pub(super) struct DeviceWorks {
    pub(super) device: Arc<str>,
    pub(super) work: Vec<Work>,
    /// Numbers of the steps that launched any of it and count.
    pub(super) steps: BTreeSet<u64>,
}

/// All recorded work of a run.
#[derive(Debug, Default)]
pub(super) struct Works {
    pub(super) devices: Vec<DeviceWorks>,
    /// Names of kernels, directions of copies.
    pub(super) names: Vec<Arc<str>>,
    /// Paths, by the number that the reader gave them.
    pub(super) paths: Vec<Option<Arc<PathInfo>>>,
    /// How kernels were launched, each way once.
    pub(super) shapes: Vec<LaunchShape>,
    shape_numbers: FxHashMap<LaunchShape, u32>,
    /// Numbers of the run's steps, by [`Work::step`].
    pub(super) steps: Vec<u64>,
    /// Rows that count.
    pub(super) records: u64,
    /// Rows of the warm-up.
    pub(super) warmup: u64,
    /// By address: the reader gives equal names the same allocation.
    numbers: FxHashMap<usize, u32>,
}

/// Collects [`Works`] from rows as they come.
#[derive(Debug)]
pub(super) struct Collector<'k> {
    works: Works,
    limits: &'k ReadLimits,
    /// By number: the place of each step, and whether it is of the warm-up.
    places: IntMap<u64, (u32, bool)>,
    /// The step that was looked up last.
    last: (u64, (u32, bool)),
    loaded_until: Option<i64>,
    rows: u64,
    full: bool,
    more_devices: bool,
}

impl<'k> Collector<'k> {
    /// Of a run, with this warm-up.
    pub(super) fn of(known: &'k RunContents<'_>, warmup: &Warmup) -> Self {
        let place = |(at, step): (usize, &StepRow)| (step.step, (at as u32, warmup.has_step(Some(step.step))));
        Self {
            works: Works { steps: known.steps.iter().map(|step| step.step).collect(), ..Works::default() },
            limits: known.run.limits(),
            places: known.steps.iter().enumerate().map(place).collect(),
            last: (u64::MAX, (NOWHERE, false)),
            loaded_until: known.loaded_until(&known.steps),
            rows: 0,
            full: false,
            more_devices: false,
        }
    }

    pub(super) fn add(&mut self, records: &[KernelRecord]) {
        let most_devices = self.limits.get(Limit::AccountDevices);
        for record in records {
            if self.rows >= self.limits.get(Limit::AccountKernels) {
                self.full = true;
                return;
            }
            self.rows += 1;
            if let Some(step) = record.step
                && step != self.last.0
            {
                self.last = (step, self.places.get(&step).copied().unwrap_or((NOWHERE, false)));
            }
            let (step, warms_up) = if record.step.is_some() { self.last.1 } else { (NOWHERE, false) };
            let loads = record.step.is_none() && self.loaded_until.is_some_and(|until| record.gpu_start.0 < until);
            let Some(device) = self.works.device(&record.device, most_devices) else {
                self.more_devices = true;
                continue;
            };
            self.works.warmup += u64::from(warms_up);
            self.works.add(record, device, step, !warms_up && !loads);
        }
    }

    /// All of it in order, and what was left out.
    pub(super) fn finish(self) -> (Works, Vec<Finding>) {
        let (mut works, mut left_out) = (self.works, Vec::new());
        if self.full {
            let effect = "further rows are left out, and figures cover only the part before them";
            left_out.push(self.limits.reached(Limit::AccountKernels).finding("table `kernels`", effect));
        }
        if self.more_devices {
            let effect = "rows of further devices are left out";
            left_out.push(self.limits.reached(Limit::AccountDevices).finding("table `kernels`", effect));
        }
        for device in &mut works.devices {
            let in_order = device.work.is_sorted_by_key(|work| work.start);
            if !in_order {
                // Stable: rows come nearly in order, which it makes use of.
                device.work.sort_by_key(|work| work.start);
            }
        }
        works.devices.sort_by(|a, b| a.device.cmp(&b.device));
        (works, left_out)
    }
}

impl Works {
    /// The place of a device among at most `most`.
    fn device(&mut self, device: &Arc<str>, most: u64) -> Option<usize> {
        let same = |known: &DeviceWorks| Arc::ptr_eq(&known.device, device) || *known.device == **device;
        let known = self.devices.iter().position(same);
        known.or_else(|| {
            let device = device.clone();
            ((self.devices.len() as u64) < most).then(|| {
                self.devices.push(DeviceWorks { device, work: Vec::new(), steps: BTreeSet::new() });
                self.devices.len() - 1
            })
        })
    }

    fn add(&mut self, record: &KernelRecord, device: usize, step: u32, counts: bool) {
        let name = self.number(&record.name);
        // Without an interval there is no path, whatever the row says.
        let path = record.path.as_ref().filter(|_| record.seq.is_some()).map_or(NOWHERE, |path| {
            let at = path.id as usize;
            if self.paths.len() <= at {
                self.paths.resize(at + 1, None);
            }
            self.paths[at].get_or_insert_with(|| path.clone());
            path.id
        });
        let shape = LaunchShape::of(record).map_or(NOWHERE, |shape| {
            *self.shape_numbers.entry(shape).or_insert_with(|| {
                self.shapes.push(shape);
                self.shapes.len() as u32 - 1
            })
        });
        let launch = record.launch_start.map_or(NONE, |at| at.0);
        let start = record.gpu_start.0;
        let work = Work {
            start,
            end: start.saturating_add_unsigned(record.gpu_dur_ns),
            launch,
            launch_end: launch.saturating_add_unsigned(record.launch_dur_ns.unwrap_or(0)),
            seq: record.seq.unwrap_or(u64::MAX),
            bytes: record.bytes.unwrap_or(u64::MAX),
            name,
            path,
            step,
            stream: record.stream,
            shape,
            kind: record.kind,
            counts,
            in_graph: record.graph.is_some(),
            to_host: record.kind == KernelKind::Memcpy && &*record.name == "dtoh",
        };
        let device = &mut self.devices[device];
        self.records += u64::from(counts);
        if counts
            && let Some(number) = record.step
            && device.work.last().is_none_or(|last| last.step != step || !last.counts || step == NOWHERE)
        {
            device.steps.insert(number);
        }
        device.work.push(work);
    }

    fn number(&mut self, name: &Arc<str>) -> u32 {
        *self.numbers.entry(name.as_ptr() as usize).or_insert_with(|| {
            self.names.push(name.clone());
            self.names.len() as u32 - 1
        })
    }

    /// The path of a piece of work.
    #[inline]
    pub(super) fn path(&self, work: &Work) -> Option<&Arc<PathInfo>> {
        self.paths.get(work.path as usize)?.as_ref()
    }

    /// Number of the path without ordinals that launched it, or [`NOWHERE`].
    #[inline]
    pub(super) fn rollup_of(&self, work: &Work) -> u32 {
        self.path(work).map_or(NOWHERE, |path| path.rollup_id)
    }

    /// Paths without ordinals by their numbers.
    pub(super) fn rollups(&self) -> FxHashMap<u32, &str> {
        self.paths.iter().flatten().map(|path| (path.rollup_id, path.rollup.as_str())).collect()
    }

    /// Whether it is a kernel of a communication library [HTA `hta/utils/utils.py`, `NCCL_KERNEL_RE`].
    #[inline]
    pub(super) fn is_communication(&self, work: &Work) -> bool {
        work.is_kernel() && self.names[work.name as usize].starts_with("nccl")
    }

    /// Whether it is a kernel that computes, and counts.
    #[inline]
    pub(super) fn is_compute(&self, work: &Work) -> bool {
        work.counts && work.is_kernel() && !self.is_communication(work)
    }
}

/// A stretch in which the device worked without a break.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnbrokenWork {
    pub(super) start: i64,
    pub(super) end: i64,
    /// Index of the work that began it.
    pub(super) first: u32,
    /// Index of the work that ended it.
    pub(super) last: u32,
}

impl HasStretch for UnbrokenWork {
    fn stretch(&self) -> (i64, i64) {
        (self.start, self.end)
    }
}

/// Indices of the wanted work of each stream, in order of start.
pub(super) fn by_stream(work: &[Work], wanted: impl Fn(&Work) -> bool) -> BTreeMap<u32, Vec<u32>> {
    let mut out: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    // Work of a stream mostly comes one after the other.
    let mut from = 0;
    for run in work.chunk_by(|a, b| a.stream == b.stream) {
        let mut indices = (from..).zip(run).filter(|(_, one)| wanted(one)).map(|(at, _)| at).peekable();
        if indices.peek().is_some() {
            out.entry(run[0].stream).or_default().extend(indices);
        }
        from += run.len() as u32;
    }
    out
}

/// The stretches of the works with these indices, which are in order of start.
pub(super) fn unbroken(work: &[Work], indices: impl Iterator<Item = u32>) -> Vec<UnbrokenWork> {
    let mut out: Vec<UnbrokenWork> = Vec::new();
    for at in indices {
        let one = &work[at as usize];
        match out.last_mut() {
            Some(last) if one.start <= last.end => {
                if one.end > last.end {
                    (last.end, last.last) = (one.end, at);
                }
            }
            _ => out.push(UnbrokenWork { start: one.start, end: one.end, first: at, last: at }),
        }
    }
    out
}
