//! The work of each kind of step, kernel by kernel, and the waits around it: what findings with gains rest on.

use super::contention::{LaunchContention, contention};
use super::works::{DeviceWorks, LaunchShape, NONE, NOWHERE, Work, Works};
use crate::kernel_family::KernelFamily;
use crate::step_rows::StepRow;
use candlescope_schema::KernelKind;
use candlescope_schema::stretches::{Stretch, difference, intersection, length, merged};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps of one phase, or name, on one device. Times are nanoseconds, sums over all of these steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PhaseWork {
    /// The phase, or the steps' name.
    pub name: String,
    /// Steps with recorded work.
    pub steps: u64,
    /// Sum of their durations on the host.
    pub open_ns: u64,
    /// Median duration of steps of this kind whose kernels were not recorded, and how many these are.
    pub plain: Option<(f64, u64)>,
    /// Kernels that these steps launched, those that a CUDA graph launched included.
    pub kernels: u64,
    /// Sum of the kernels' own times.
    pub kernel_ns: u64,
    /// Time in which anything of a step ran, overlapping work counted once.
    pub busy_ns: u64,
    /// From a step's begin to its first launch, and from its last work to its end.
    pub edges_ns: u64,
    /// Time in calls that blocked until the device was done.
    pub blocked_ns: u64,
    /// From the end of a step's last call to the end of its last work, where the step lasted until then: the host waited
    /// for the device, if in no call that was recorded.
    pub waited_at_end_ns: u64,
    /// Median time between the begins of two launch calls of a thread, and how many; `None` without launch calls.
    pub launch_every: Option<(f64, u64)>,
    /// What launching calls cost beside those of other threads; `None` where one thread launches.
    pub contention: Option<LaunchContention>,
    /// Launches by a CUDA graph among the kernels.
    pub by_graph: u64,
    /// Kernels, copies and memsets by path, name and shape; the most time first.
    pub rows: Vec<PlacedKernel>,
    /// Where the host waited and then let the queue run dry; the most time first.
    pub drains: Vec<Drain>,
    /// Copies and memsets by path and direction: all of them with their bytes, and the time in which no kernel ran beside
    /// them; the most of that first.
    pub exposed: Vec<PlacedWait>,
}

/// All kernels of one name and shape at one path, all copies of a direction, or all memsets.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedKernel {
    /// Path without ordinals; `None` outside every interval.
    pub path: Option<Arc<str>>,
    /// Demangled name; of a copy its direction.
    pub name: Arc<str>,
    /// Kernel, copy or memset.
    pub kind: KernelKind,
    /// How a kernel was launched.
    pub shape: Option<LaunchShape>,
    /// Kernels, copies or memsets in this row, over all of these steps.
    pub count: u64,
    /// Sum of their time.
    pub ns: u64,
    /// Time of the longest single one of them on the device.
    pub max_ns: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// How many of them were launched by the same interval right after another kernel that could be one with it.
    pub follows: u64,
}

/// Calls at one path that blocked, after which the device had nothing to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Drain {
    /// Path without ordinals; `None` outside every interval.
    pub path: Option<Arc<str>>,
    /// Direction of the copy that was waited for.
    pub name: Arc<str>,
    /// How many such calls there were.
    pub count: u64,
    /// Time in which the device was idle from the end of the call to the next launch, while steps of this kind were
    /// open.
    pub idle_ns: u64,
    /// Time in the calls themselves.
    pub blocked_ns: u64,
}

/// Time at one path.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedWait {
    /// Path without ordinals; `None` outside every interval.
    pub path: Option<Arc<str>>,
    /// Direction of the copies, or `memset`.
    pub name: Arc<str>,
    /// Copies or memsets there, those that kernels hid wholly included.
    pub count: u64,
    /// Bytes of all of these; one whose size is not known adds none.
    pub bytes: u64,
    /// Time of theirs in which no kernel ran on the device; if two overlap, both count.
    pub ns: u64,
}

/// Fewer plain steps have no median to rely on.
const FEWEST_PLAIN: usize = 6;

/// One entry for each kind among `own`, the measured steps with work on this device; `all` are all measured steps.
pub(super) fn phase_work(device: &DeviceWorks, works: &Works, own: &[&StepRow], all: &[StepRow]) -> Vec<PhaseWork> {
    let (mut names, mut numbers): (Vec<&str>, FxHashMap<&str, usize>) = Default::default();
    let at_number: FxHashMap<u64, usize> = own.iter().enumerate().map(|(at, step)| (step.step, at)).collect();
    let kind_of: Vec<usize> = own
        .iter()
        .map(|step| {
            *numbers.entry(step.group()).or_insert_with(|| {
                names.push(step.group());
                names.len() - 1
            })
        })
        .collect();
    // By the works' number of a step: its place among `own`.
    let own_of: Vec<Option<usize>> = works.steps.iter().map(|number| at_number.get(number).copied()).collect();
    let place_of = |work: &Work| -> Option<usize> {
        if work.step == NOWHERE || !work.counts { None } else { own_of[work.step as usize] }
    };
    let mut kinds: Vec<Sums> = names.iter().map(|name| Sums::new(name)).collect();
    let mut bounds: Vec<Bounds> = vec![Bounds::default(); own.len()];
    for work in &device.work {
        let Some(place) = place_of(work) else { continue };
        let sums = &mut kinds[kind_of[place]];
        sums.busy_ns += bounds[place].add(work);
        sums.add(work, works);
    }
    for (place, step) in own.iter().enumerate() {
        let sums = &mut kinds[kind_of[place]];
        sums.steps += 1;
        sums.open_ns = sums.open_ns.saturating_add(step.dur_ns);
        sums.windows.push(step.window());
        sums.edges_ns += bounds[place].edges_ns(step);
        sums.waited_at_end_ns += bounds[place].waited_at_end_ns(step);
    }
    kinds.iter_mut().for_each(|sums| sums.windows = merged(std::mem::take(&mut sums.windows)));
    around_calls(device, works, &place_of, &kind_of, &mut kinds);
    exposed(device, works, &place_of, &kind_of, &mut kinds);
    for (sums, known) in
        kinds.iter_mut().zip(contention(device, names.len(), |work| place_of(work).map(|at| kind_of[at])))
    {
        sums.contention = known;
    }
    let plain = plain_steps(works, all);
    let texts = Texts::of(works);
    kinds.into_iter().map(|sums| sums.finish(&texts, works, &plain)).collect()
}

/// Durations of the steps of each kind whose kernels were not recorded, on any device.
fn plain_steps<'a>(works: &Works, all: &'a [StepRow]) -> BTreeMap<&'a str, Vec<u64>> {
    let recorded: FxHashSet<u64> = works.devices.iter().flat_map(|device| device.steps.iter().copied()).collect();
    let mut plain: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for step in all.iter().filter(|step| !recorded.contains(&step.step)) {
        plain.entry(step.group()).or_default().push(step.dur_ns);
    }
    plain
}

/// First launch, last end, and how far the device has been busy with one step.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    first: Option<i64>,
    until: Option<i64>,
    last_call: Option<i64>,
}

impl Bounds {
    /// Takes a step's next work, in order of start; returns by how much it makes the device's busy time longer.
    fn add(&mut self, work: &Work) -> u64 {
        let begin = work.call().map_or(work.start, |(start, _)| start.min(work.start));
        self.first = Some(self.first.map_or(begin, |first| first.min(begin)));
        if let Some((_, end)) = work.call() {
            self.last_call = Some(self.last_call.map_or(end, |last| last.max(end)));
        }
        let from = self.until.map_or(work.start, |until| until.max(work.start));
        let until = self.until.map_or(work.end, |until| until.max(work.end));
        self.until = Some(until);
        until.saturating_sub(from).max(0) as u64
    }

    fn waited_at_end_ns(&self, step: &StepRow) -> u64 {
        let (Some(last_call), Some(until)) = (self.last_call, self.until) else { return 0 };
        if step.end_ns() < until { 0 } else { until.saturating_sub(last_call).max(0) as u64 }
    }

    fn edges_ns(&self, step: &StepRow) -> u64 {
        let (Some(first), Some(until)) = (self.first, self.until) else { return 0 };
        let before = first.saturating_sub(step.start_ns).max(0) as u64;
        before + step.end_ns().saturating_sub(until).max(0) as u64
    }
}

#[derive(Debug, Default)]
struct Row {
    count: u64,
    ns: u64,
    max_ns: u64,
    bytes: u64,
    follows: u64,
}

#[derive(Debug, Default)]
struct Sums {
    name: String,
    steps: u64,
    open_ns: u64,
    busy_ns: u64,
    edges_ns: u64,
    waited_at_end_ns: u64,
    kernels: u64,
    kernel_ns: u64,
    blocked_ns: u64,
    by_graph: u64,
    windows: Vec<Stretch>,
    rows: FxHashMap<(u32, u32, u32), (KernelKind, Row)>,
    /// By path and name: calls, idle and blocked time.
    drains: FxHashMap<(u32, u32), (u64, u64, u64)>,
    exposed: FxHashMap<(u32, u32), Row>,
    launch_every: Vec<u32>,
    contention: Option<LaunchContention>,
}

impl Sums {
    fn new(name: &str) -> Self {
        Self { name: name.to_string(), ..Self::default() }
    }

    fn add(&mut self, work: &Work, works: &Works) {
        if work.is_kernel() {
            self.kernels += 1;
            self.kernel_ns = self.kernel_ns.saturating_add(work.ns());
            self.by_graph += u64::from(work.in_graph);
        }
        let key = (works.rollup_of(work), work.name, work.shape);
        let row = &mut self.rows.entry(key).or_insert((work.kind, Row::default())).1;
        row.count += 1;
        row.ns = row.ns.saturating_add(work.ns());
        row.max_ns = row.max_ns.max(work.ns());
        row.bytes = row.bytes.saturating_add(if work.bytes == u64::MAX { 0 } else { work.bytes });
    }

    fn finish(mut self, texts: &Texts, works: &Works, plain: &BTreeMap<&str, Vec<u64>>) -> PhaseWork {
        let name = |at: u32| works.names[at as usize].clone();
        let row = |((path, named, shape), (kind, row)): ((u32, u32, u32), (KernelKind, Row))| PlacedKernel {
            path: texts.get(path),
            name: name(named),
            kind,
            shape: works.shapes.get(shape as usize).copied(),
            count: row.count,
            ns: row.ns,
            max_ns: row.max_ns,
            bytes: row.bytes,
            follows: row.follows,
        };
        let mut rows: Vec<PlacedKernel> = self.rows.drain().map(row).collect();
        rows.sort_by(|a, b| {
            b.ns.cmp(&a.ns).then_with(|| (&a.path, &a.name, a.count).cmp(&(&b.path, &b.name, b.count)))
        });
        let drain = |((path, named), (count, idle_ns, blocked_ns)): ((u32, u32), (u64, u64, u64))| Drain {
            path: texts.get(path),
            name: name(named),
            count,
            idle_ns,
            blocked_ns,
        };
        let mut drains: Vec<Drain> = self.drains.drain().map(drain).collect();
        drains.sort_by(|a, b| b.idle_ns.cmp(&a.idle_ns).then_with(|| (&a.path, &a.name).cmp(&(&b.path, &b.name))));
        let wait = |((path, named), row): ((u32, u32), Row)| PlacedWait {
            path: texts.get(path),
            name: name(named),
            count: row.count,
            bytes: row.bytes,
            ns: row.ns,
        };
        let mut exposed: Vec<PlacedWait> = self.exposed.drain().map(wait).collect();
        exposed.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.path, &a.name).cmp(&(&b.path, &b.name))));
        let plain = plain.get(self.name.as_str()).filter(|list| list.len() >= FEWEST_PLAIN);
        let plain = plain.and_then(|list| Some((median(list.clone())?, list.len() as u64)));
        let n = self.launch_every.len() as u64;
        PhaseWork {
            name: self.name,
            steps: self.steps,
            open_ns: self.open_ns,
            plain,
            kernels: self.kernels,
            kernel_ns: self.kernel_ns,
            busy_ns: self.busy_ns,
            edges_ns: self.edges_ns,
            blocked_ns: self.blocked_ns,
            waited_at_end_ns: self.waited_at_end_ns,
            launch_every: median(self.launch_every).map(|median| (median, n)),
            contention: self.contention,
            by_graph: self.by_graph,
            rows,
            drains,
            exposed,
        }
    }
}

/// The upper median.
fn median<T: Ord + Copy + Into<u64>>(mut list: Vec<T>) -> Option<f64> {
    let middle = list.len() / 2;
    let at = |list: &mut Vec<T>| Into::<u64>::into(*list.select_nth_unstable(middle).1) as f64;
    (!list.is_empty()).then(|| at(&mut list))
}

/// Texts of paths by rollup.
struct Texts(FxHashMap<u32, Arc<str>>);

impl Texts {
    fn of(works: &Works) -> Self {
        let each = works.paths.iter().flatten();
        Self(each.map(|path| (path.rollup_id, Arc::from(path.rollup.as_str()))).collect())
    }

    fn get(&self, rollup: u32) -> Option<Arc<str>> {
        self.0.get(&rollup).cloned()
    }
}

/// Times between launches of a thread, and what followed calls that blocked.
fn around_calls(
    device: &DeviceWorks,
    works: &Works,
    place_of: &impl Fn(&Work) -> Option<usize>,
    kind_of: &[usize],
    kinds: &mut [Sums],
) {
    let mut order: Vec<u32> =
        (0..device.work.len() as u32).filter(|at| device.work[*at as usize].launch != NONE).collect();
    let key = |at: &u32| {
        let work = &device.work[*at as usize];
        (work.thread(), work.launch)
    };
    order.sort_by_key(key);
    let waits = device.work.iter().any(Work::is_blocking_copy);
    let busy = if waits { merged(device.work.iter().map(Work::stretch_of)) } else { Vec::new() };
    let fuses: Vec<bool> = works.names.iter().map(|name| KernelFamily::of(name).can_fuse()).collect();
    for (at, index) in order.iter().enumerate() {
        let work = &device.work[*index as usize];
        let Some(place) = place_of(work) else { continue };
        let next = order.get(at + 1).map(|next| &device.work[*next as usize]);
        let next = next.filter(|next| next.thread() == work.thread());
        let sums = &mut kinds[kind_of[place]];
        if let Some(next) = next.filter(|next| next.step == work.step && !work.is_blocking_copy()) {
            sums.launch_every.push(u32::try_from(next.launch.abs_diff(work.launch)).unwrap_or(u32::MAX));
        }
        if let Some(next) = next.filter(|next| next.seq == work.seq && next.seq != u64::MAX)
            && fuses[work.name as usize]
            && fuses[next.name as usize]
            && work.is_kernel()
            && next.is_kernel()
        {
            let key = (works.rollup_of(next), next.name, next.shape);
            sums.rows.entry(key).or_insert((next.kind, Row::default())).1.follows += 1;
        }
        if !work.is_blocking_copy() {
            continue;
        }
        let blocked = work.launch_end.abs_diff(work.launch);
        sums.blocked_ns = sums.blocked_ns.saturating_add(blocked);
        let Some(next) = next.filter(|next| next.launch > work.launch_end) else { continue };
        let between = intersection(&[(work.launch_end, next.launch)], window_around(&sums.windows, work, next));
        let idle = length(&difference(&between, blocks_around(&busy, work.launch_end, next.launch)));
        if idle > 0 {
            let drain = sums.drains.entry((works.rollup_of(work), work.name)).or_default();
            drain.0 += 1;
            drain.1 = drain.1.saturating_add(idle);
            drain.2 = drain.2.saturating_add(blocked);
        }
    }
}

/// Those of `windows` that may reach into the time between two works.
fn window_around<'a>(windows: &'a [Stretch], from: &Work, to: &Work) -> &'a [Stretch] {
    blocks_around(windows, from.launch_end, to.launch)
}

/// Those of `blocks`, in order and apart, that reach into `from..to`.
fn blocks_around(blocks: &[Stretch], from: i64, to: i64) -> &[Stretch] {
    let first = blocks.partition_point(|block| block.1 <= from);
    let last = blocks.partition_point(|block| block.0 < to);
    &blocks[first..last.max(first)]
}

/// Adds copies and memsets, and the time in which no kernel hid them.
fn exposed(
    device: &DeviceWorks,
    works: &Works,
    place_of: &impl Fn(&Work) -> Option<usize>,
    kind_of: &[usize],
    kinds: &mut [Sums],
) {
    let kernels: Vec<Stretch> = merged(device.work.iter().filter(|work| work.is_kernel()).map(Work::stretch_of));
    for work in device.work.iter().filter(|work| !work.is_kernel()) {
        let Some(place) = place_of(work) else { continue };
        let alone = length(&difference(&[work.stretch_of()], blocks_around(&kernels, work.start, work.end)));
        let row = kinds[kind_of[place]].exposed.entry((works.rollup_of(work), work.name)).or_default();
        row.count += 1;
        row.ns = row.ns.saturating_add(alone);
        row.bytes = row.bytes.saturating_add(if work.bytes == u64::MAX { 0 } else { work.bytes });
    }
}
