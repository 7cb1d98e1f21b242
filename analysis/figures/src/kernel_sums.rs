//! What ran on the device: kernels by name and by the path that launched them, and copies by direction.

use super::device_work::DeviceWork;
use super::gaps::{Activity, blocks, ready};
use super::int_map::IntMap;
use super::launch_pace::{LaunchPace, LaunchPacePass};
use super::numbered::NumberedTexts;
use super::overlap::merged_shares;
use super::path_totals::{Intervals, by_rollup};
use super::stats::{P95_FROM, percentile, sort};
use super::tree::ratio;
use super::warmup::Warmup;
use candlescope_schema::{KernelKind, KernelRecord};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Kernels, copies and memsets of the recorded steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kernels {
    /// Records of all kinds.
    pub records: u64,
    /// Sum of their time on the device in nanoseconds: the denominator of shares. If several run at once, each counts.
    pub total_ns: u64,
    /// Kernels by name, the most time first.
    pub by_name: Vec<KernelRow>,
    /// Everything by the path of the interval that launched it, the most time first.
    pub by_path: Vec<KernelPathRow>,
    /// Copies by direction, and memsets; the most time first.
    pub copies: Vec<CopyRow>,
    /// Work launched outside every recorded interval: number and nanoseconds.
    pub unattributed: (u64, u64),
    /// Work before the first step began, which is the loading of the model: number and nanoseconds. In no table.
    pub before_steps: (u64, u64),
    /// Records of warm-up steps. In no table.
    pub warmup: u64,
    /// Merged time ÷ summed time by path, for paths whose kernels overlapped; see `overlap.rs`.
    pub merged: BTreeMap<String, f64>,
    /// GPUs they ran on, by UUID.
    pub devices: Vec<Arc<str>>,
    /// How long the host took from launch to launch.
    pub pace: LaunchPace,
}

/// All kernels of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRow {
    /// Demangled name; its launches on all GPUs and of all launch shapes are this one row.
    pub name: Arc<str>,
    /// How often it ran.
    pub count: u64,
    /// Sum of its time in nanoseconds.
    pub total_ns: u64,
    /// Mean time of one launch on the device, in nanoseconds: `total_ns` ÷ `count`.
    pub mean_ns: f64,
    /// Median time of one launch on the device, in nanoseconds.
    pub p50_ns: f64,
    /// 95th percentile in nanoseconds; `None` below [`P95_FROM`] kernels.
    pub p95_ns: Option<f64>,
    /// Share of all device time in the table.
    pub share: f64,
}

/// Work that one path launched itself; what its children launched is in their rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelPathRow {
    /// Path without ordinals; `None` for work launched outside every recorded interval.
    pub path: Option<String>,
    /// Kernels that its intervals launched themselves, those that a CUDA graph launched included.
    pub kernels: u64,
    /// Of these, the ones that had a launch of their own: those of a CUDA graph have one together.
    pub launched: u64,
    /// Copies in any direction and memsets that its intervals launched themselves.
    pub copies: u64,
    /// Intervals of the path in recorded steps.
    pub calls: u64,
    /// Launched kernels for each of these.
    pub launches_per_call: Option<f64>,
    /// Sum of time on the device in nanoseconds.
    pub total_ns: u64,
    /// Time of the host in its copies' calls that returned only when the copy was done: it waited for the device, and for
    /// all work before it. In nanoseconds; `None` if no calls were recorded.
    pub waited_ns: Option<u64>,
    /// Share of all device time in the table.
    pub share: f64,
    /// The kernel, copy or memset that took most of that time, and how much.
    pub top: Option<(Arc<str>, u64)>,
}

/// All copies of one direction, or all memsets.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyRow {
    /// `htod`, `dtoh`, `dtod`, …, or `memset`.
    pub direction: Arc<str>,
    /// Copies or memsets on all GPUs, without warm-up and what ran before the first step.
    pub count: u64,
    /// Bytes moved or set; `None` if no record has them.
    pub bytes: Option<u64>,
    /// Sum of time in nanoseconds.
    pub total_ns: u64,
    /// The same, with overlapping copies on one GPU counted once: the denominator of the rate.
    pub merged_ns: u64,
    /// Bytes/s over that time, in 10⁹.
    pub gbytes: Option<f64>,
    /// Share of all device time in the table.
    pub share: f64,
}

/// A step, and a device that it has work on.
type StepOnDevice = (u64, Arc<str>);

/// Collects [`Kernels`] from records in any order.
#[derive(Debug, Default)]
pub struct KernelPass {
    names: NumberedTexts,
    /// Durations by the name's number.
    kernels: Vec<Vec<f64>>,
    copies: HashMap<Arc<str>, CopySums>,
    paths: IntMap<Option<u32>, PathSums>,
    recorded: DeviceWork,
    /// The work of the step on the device that the last row was of: rows of a step mostly come one after the other.
    open: Option<(StepOnDevice, Vec<Activity>)>,
    before_steps: (u64, u64),
    warmup: u64,
    devices: BTreeSet<Arc<str>>,
    pace: LaunchPacePass,
    last_device: Option<Arc<str>>,
    records: u64,
    total_ns: u64,
}

#[derive(Debug, Default)]
struct CopySums {
    count: u64,
    bytes: Option<u64>,
    total_ns: u64,
    /// By device, so that overlapping copies count twice on two devices, but once on two streams.
    windows: Windows,
    /// Those that state their bytes: a rate is over their time alone.
    known: Windows,
}

type Windows = HashMap<Arc<str>, Vec<Activity>>;

#[derive(Debug, Default)]
struct PathSums {
    rollup: Option<String>,
    kernels: u64,
    launched: u64,
    copies: u64,
    total_ns: u64,
    waited_ns: Option<u64>,
    /// Time by the name's number.
    names: FxHashMap<u32, u64>,
}

impl KernelPass {
    /// Takes one record. All must come from one [`Batches`](candlescope_reader::Batches), which numbers rollups. Work before
    /// `first_step` began (Unix nanoseconds) belongs to loading the model.
    pub fn add(&mut self, record: &KernelRecord, warmup: &Warmup, first_step: Option<i64>) {
        let ns = record.gpu_dur_ns;
        let is_kernel = record.kind == KernelKind::Kernel;
        let call = record.launch_start.map(|at| (at.0, at.plus_ns(record.launch_dur_ns.unwrap_or(0)).0));
        let (start, end) = (record.gpu_start.0, record.gpu_start.plus_ns(ns).0);
        let ready = ready(call, start, is_kernel && record.graph.is_none());
        let path = record.path.as_ref().filter(|_| record.seq.is_some()).map(|path| path.rollup_id);
        let activity =
            Activity::new(start, end, record.stream, is_kernel).launched(ready, record.queue_delay_ns).by(path);
        let warms_up = warmup.has_step(record.step);
        match record.step.filter(|_| !warms_up) {
            Some(step) => self.in_step(step, &record.device).push(activity),
            None => self.recorded.loose.entry(record.device.clone()).or_default().push(activity),
        }
        if warms_up {
            self.warmup += 1;
            return;
        }
        if record.step.is_none() && first_step.is_some_and(|first| record.gpu_start.0 < first) {
            self.before_steps.0 += 1;
            self.before_steps.1 = self.before_steps.1.saturating_add(ns);
            return;
        }
        self.records += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        if !self.last_device.as_ref().is_some_and(|last| Arc::ptr_eq(last, &record.device)) {
            self.devices.insert(record.device.clone());
            self.last_device = Some(record.device.clone());
        }
        let name = self.names.number(&record.name);
        self.pace.add(record, name);
        if is_kernel {
            let at = name as usize;
            if self.kernels.len() <= at {
                self.kernels.resize_with(at + 1, Vec::new);
            }
            self.kernels[at].push(ns as f64);
        } else {
            let sums = self.copies.entry(record.name.clone()).or_default();
            sums.count += 1;
            sums.total_ns = sums.total_ns.saturating_add(ns);
            sums.windows.entry(record.device.clone()).or_default().push(activity);
            if let Some(bytes) = record.bytes {
                sums.known.entry(record.device.clone()).or_default().push(activity);
                sums.bytes = Some(sums.bytes.unwrap_or(0).saturating_add(bytes));
            }
        }
        // Without an interval there is no path, whatever the row says.
        let path = record.path.as_ref().filter(|_| record.seq.is_some());
        let sums = self.paths.entry(path.map(|p| p.rollup_id)).or_default();
        if sums.rollup.is_none() {
            sums.rollup = path.map(|p| p.rollup.clone());
        }
        *(if is_kernel { &mut sums.kernels } else { &mut sums.copies }) += 1;
        sums.launched += u64::from(is_kernel && record.graph.is_none());
        sums.total_ns = sums.total_ns.saturating_add(ns);
        if let Some(waited) = waited(record) {
            sums.waited_ns = Some(sums.waited_ns.unwrap_or(0).saturating_add(waited));
        }
        let named = sums.names.entry(name).or_default();
        *named = named.saturating_add(ns);
    }

    /// The work of a step on a device.
    fn in_step(&mut self, step: u64, device: &Arc<str>) -> &mut Vec<Activity> {
        let is_it = |of: &StepOnDevice| of.0 == step && (Arc::ptr_eq(&of.1, device) || of.1 == *device);
        if !self.open.as_ref().is_some_and(|(of, _)| is_it(of)) {
            self.close();
        }
        &mut self.open.get_or_insert_with(|| ((step, device.clone()), Vec::new())).1
    }

    /// Puts away the work that is being collected.
    fn close(&mut self) {
        let Some((of, mut work)) = self.open.take() else { return };
        let all = self.recorded.steps.entry(of).or_default();
        if all.is_empty() {
            // There are tens of millions of rows: room that stays free counts.
            work.shrink_to_fit();
            *all = work;
        } else {
            all.append(&mut work);
        }
    }

    /// The tables, and the work of each recorded step on each device.
    pub fn finish(mut self, intervals: &Intervals) -> (Kernels, DeviceWork) {
        self.close();
        let whole = self.total_ns;
        let named = self.names.texts().iter().zip(self.kernels).filter(|(_, ns)| !ns.is_empty());
        let mut by_name: Vec<KernelRow> = named.map(|(name, ns)| kernel_row(name.clone(), ns, whole)).collect();
        by_name.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        let mut copies: Vec<CopyRow> =
            self.copies.into_iter().map(|(name, sums)| copy_row(name, &sums, whole)).collect();
        copies.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.direction.cmp(&b.direction)));
        let rollups: HashMap<u32, String> =
            self.paths.iter().filter_map(|(id, sums)| Some(((*id)?, sums.rollup.clone()?))).collect();
        let none = self.paths.get(&None);
        let unattributed = none.map_or((0, 0), |sums| (sums.kernels + sums.copies, sums.total_ns));
        let known = by_rollup(&intervals.paths);
        let calls = |path: &str| known.get(path).map_or(0, |totals| totals.gpu.recorded_calls);
        let mut by_path: Vec<KernelPathRow> =
            self.paths.into_values().map(|sums| path_row(sums, &self.names, calls, whole)).collect();
        by_path.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.path.cmp(&b.path)));
        let devices = self.devices.into_iter().collect();
        let merged = merged_shares(&self.recorded, |path| rollups.get(&path).cloned());
        let kernels = Kernels {
            records: self.records,
            total_ns: whole,
            by_name,
            by_path,
            copies,
            unattributed,
            before_steps: self.before_steps,
            warmup: self.warmup,
            merged,
            devices,
            pace: self.pace.finish(),
        };
        (kernels, self.recorded)
    }
}

impl Kernels {
    /// Kernels by the path that launched them.
    pub fn launches(&self) -> BTreeMap<&str, u64> {
        self.by_path.iter().filter_map(|row| Some((row.path.as_deref()?, row.launched))).collect()
    }
}

/// How long the call that launched it waited for the device: all of a copy's call that returned after the copy.
fn waited(record: &KernelRecord) -> Option<u64> {
    let (start, ns) = record.launch_start.zip(record.launch_dur_ns)?;
    let blocks = record.kind == KernelKind::Memcpy && start.plus_ns(ns) >= record.gpu_start.plus_ns(record.gpu_dur_ns);
    Some(if blocks { ns } else { 0 })
}

fn kernel_row(name: Arc<str>, mut ns: Vec<f64>, whole: u64) -> KernelRow {
    sort(&mut ns);
    let sum: f64 = ns.iter().sum();
    // Durations are whole nanoseconds, so their sum is exact up to 2⁵³.
    let total_ns = sum as u64;
    KernelRow {
        name,
        count: ns.len() as u64,
        total_ns,
        mean_ns: sum / ns.len() as f64,
        p50_ns: percentile(&ns, 0.5),
        p95_ns: (ns.len() >= P95_FROM).then(|| percentile(&ns, 0.95)),
        share: ratio(total_ns, whole),
    }
}

fn copy_row(direction: Arc<str>, sums: &CopySums, whole: u64) -> CopyRow {
    let merged = |windows: &Windows| {
        let blocks = windows.values().flat_map(blocks).map(|block| block.end_ns.abs_diff(block.start_ns));
        blocks.fold(0, u64::saturating_add)
    };
    let (merged_ns, known_ns) = (merged(&sums.windows), merged(&sums.known));
    CopyRow {
        direction,
        count: sums.count,
        bytes: sums.bytes,
        total_ns: sums.total_ns,
        merged_ns,
        gbytes: sums.bytes.filter(|_| known_ns > 0).map(|bytes| bytes as f64 / known_ns as f64),
        share: ratio(sums.total_ns, whole),
    }
}

fn path_row(sums: PathSums, names: &NumberedTexts, calls: impl Fn(&str) -> u64, whole: u64) -> KernelPathRow {
    let calls = sums.rollup.as_deref().map_or(0, calls);
    let named = sums.names.into_iter().map(|(name, ns)| (names.text(name).clone(), ns));
    let top = named.max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    KernelPathRow {
        path: sums.rollup,
        kernels: sums.kernels,
        launched: sums.launched,
        copies: sums.copies,
        calls,
        launches_per_call: (calls > 0).then(|| sums.launched as f64 / calls as f64),
        total_ns: sums.total_ns,
        waited_ns: sums.waited_ns,
        share: ratio(sums.total_ns, whole),
        top,
    }
}
