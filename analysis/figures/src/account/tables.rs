//! Work on a device by kernel, by path and by module.

use super::spread::stddev;
use super::works::{DeviceWorks, Work, Works};
use crate::gaps::GapSum;
use crate::tree::ratio;
use candlescope_schema::without_numbers;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// All kernels of one name, all copies of one direction, or all memsets. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelAccountRow {
    /// Demangled name; of a copy its direction.
    pub name: String,
    /// `kernel`, `memcpy` or `memset`.
    pub kind: &'static str,
    /// Kernels, copies or memsets of this name that count: not those of warm-up and of loading.
    pub count: u64,
    /// Sum of their time.
    pub total_ns: u64,
    /// Mean time of one on the device: `total_ns` ÷ `count`.
    pub mean_ns: f64,
    /// Sample standard deviation (n − 1); `None` for one.
    pub stddev_ns: Option<f64>,
    /// Time of the shortest one on the device.
    pub min_ns: u64,
    /// Time of the longest one on the device.
    pub max_ns: u64,
    /// Share of the time of all rows.
    pub share: f64,
}

/// What one path, or module, launched itself. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlaceRow {
    /// Path without ordinals, or module without numbers; `None` for what was launched outside every interval.
    pub place: Option<String>,
    /// Kernels that its intervals launched themselves, those that a CUDA graph launched included.
    pub kernels: u64,
    /// Copies in any direction and memsets that its intervals launched themselves.
    pub copies: u64,
    /// Sum of time on the device.
    pub total_ns: u64,
    /// Share of the time of all rows.
    pub share: f64,
    /// Gaps that ended with its work because it was launched late: host-bound and sync. `None` if the clocks of host and
    /// device cannot be compared.
    pub late: Option<GapSum>,
    /// All gaps that ended with its work.
    pub gaps: GapSum,
    /// The kernel, copy or memset that took most of its time, and how much.
    pub top: Option<(String, u64)>,
}

/// Gaps by the path whose work ended them.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Late ones, and all, by rollup.
    paths: FxHashMap<u32, (GapSum, GapSum)>,
}

impl Waits {
    pub(super) fn add(&mut self, works: &Works, after: &Work, ns: u64, late: bool) {
        let sums = self.paths.entry(works.rollup_of(after)).or_default();
        sums.1.add(ns);
        if late {
            sums.0.add(ns);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct NameSums {
    count: u64,
    total: u64,
    squares: u128,
    min: u64,
    max: u64,
}

/// By name.
pub(super) fn by_name(device: &DeviceWorks, works: &Works) -> Vec<KernelAccountRow> {
    let mut sums: FxHashMap<(u32, &'static str), NameSums> = FxHashMap::default();
    let mut whole = 0_u64;
    for work in device.work.iter().filter(|work| work.counts) {
        let ns = work.ns();
        let new = NameSums { count: 0, total: 0, squares: 0, min: u64::MAX, max: 0 };
        let row = sums.entry((work.name, work.kind.as_str())).or_insert(new);
        row.count += 1;
        row.total = row.total.saturating_add(ns);
        row.squares = row.squares.saturating_add(u128::from(ns) * u128::from(ns));
        (row.min, row.max) = (row.min.min(ns), row.max.max(ns));
        whole = whole.saturating_add(ns);
    }
    let rows = sums.into_iter().map(|((name, kind), sums)| KernelAccountRow {
        name: works.names[name as usize].to_string(),
        kind,
        count: sums.count,
        total_ns: sums.total,
        mean_ns: sums.total as f64 / sums.count as f64,
        stddev_ns: stddev(sums.count, u128::from(sums.total), sums.squares),
        min_ns: sums.min,
        max_ns: sums.max,
        share: ratio(sums.total, whole),
    });
    let mut rows: Vec<KernelAccountRow> = rows.collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| (&a.name, a.kind).cmp(&(&b.name, b.kind))));
    rows
}

#[derive(Debug, Default)]
struct PlaceSums {
    kernels: u64,
    copies: u64,
    total: u64,
    late: Option<GapSum>,
    gaps: GapSum,
    names: FxHashMap<u32, u64>,
}

/// By path without ordinals, and by module.
pub(super) fn by_place(device: &DeviceWorks, works: &Works, waits: Option<&Waits>) -> (Vec<PlaceRow>, Vec<PlaceRow>) {
    let sums = by_rollup(device, works, waits);
    let modules = by_module(&sums, works);
    let texts = works.rollups();
    (rows(sums.into_iter().map(|(id, sums)| (texts.get(&id).map(|path| path.to_string()), sums)), works), modules)
}

/// By module without numbers, of work whose interval stands for a module. A path's last element is that module.
fn by_module(sums: &FxHashMap<u32, PlaceSums>, works: &Works) -> Vec<PlaceRow> {
    let mut modules: FxHashMap<String, PlaceSums> = FxHashMap::default();
    let named: FxHashMap<u32, String> = works
        .paths
        .iter()
        .flatten()
        .filter_map(|path| {
            let module = path.module.as_deref()?;
            Some((path.rollup_id, without_numbers(module)))
        })
        .collect();
    for (id, sums) in sums {
        let Some(module) = named.get(id) else { continue };
        let into = modules.entry(module.clone()).or_default();
        into.kernels += sums.kernels;
        into.copies += sums.copies;
        into.total = into.total.saturating_add(sums.total);
        if let Some(late) = sums.late {
            into.late.get_or_insert_default().plus(late);
        }
        into.gaps.plus(sums.gaps);
        sums.names.iter().for_each(|(name, ns)| *into.names.entry(*name).or_default() += ns);
    }
    rows(modules.into_iter().map(|(module, sums)| (Some(module), sums)), works)
}

fn by_rollup(device: &DeviceWorks, works: &Works, waits: Option<&Waits>) -> FxHashMap<u32, PlaceSums> {
    let mut sums: FxHashMap<u32, PlaceSums> = FxHashMap::default();
    for work in device.work.iter().filter(|work| work.counts) {
        let row = sums.entry(works.rollup_of(work)).or_default();
        row.late = waits.map(|_| GapSum::default());
        *(if work.is_kernel() { &mut row.kernels } else { &mut row.copies }) += 1;
        row.total = row.total.saturating_add(work.ns());
        *row.names.entry(work.name).or_default() += work.ns();
    }
    for (place, (late, gaps)) in waits.into_iter().flat_map(|waits| &waits.paths) {
        // Work that does not count ends gaps, too; it has no row.
        if let Some(row) = sums.get_mut(place) {
            (row.late, row.gaps) = (Some(*late), *gaps);
        }
    }
    sums
}

fn rows(sums: impl Iterator<Item = (Option<String>, PlaceSums)>, works: &Works) -> Vec<PlaceRow> {
    let list: Vec<(Option<String>, PlaceSums)> = sums.collect();
    let whole = list.iter().map(|(_, sums)| sums.total).fold(0, u64::saturating_add);
    let row = |(place, sums): (Option<String>, PlaceSums)| {
        let names = sums.names.into_iter().map(|(name, ns)| (works.names[name as usize].to_string(), ns));
        PlaceRow {
            place,
            kernels: sums.kernels,
            copies: sums.copies,
            total_ns: sums.total,
            share: ratio(sums.total, whole),
            late: sums.late,
            gaps: sums.gaps,
            top: names.max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0))),
        }
    };
    let mut rows: Vec<PlaceRow> = list.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.place.cmp(&b.place)));
    rows
}
