//! Copies and memsets: how fast, and how much of them no kernel hid.

use super::spread::Spread;
use super::works::{DeviceWorks, Work, Works};
use candlescope_schema::stretches::{Stretch, difference, length, merged};
use serde::Serialize;
use std::collections::BTreeMap;

/// All copies of one direction, or all memsets. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExposedCopy {
    /// `htod`, `dtoh`, `dtod`, …, or `memset`.
    pub direction: String,
    /// Copies or memsets on this device that count: not those of warm-up and of loading.
    pub count: u64,
    /// Bytes moved or set; `None` if no row has them.
    pub bytes: Option<u64>,
    /// Sum of their time.
    pub total_ns: u64,
    /// The same, time in which several ran counted once.
    pub merged_ns: u64,
    /// Part of `merged_ns` in which no kernel ran.
    pub exposed_ns: u64,
    /// How fast, if bytes are known.
    pub rate: Option<CopyRate>,
}

/// Rates in 10⁹ bytes/s, of copies or memsets whose bytes are known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CopyRate {
    /// Their bytes ÷ their time, time in which several ran counted once.
    pub overall: f64,
    /// The rate of each single copy: small ones are slow.
    pub each: Spread,
}

/// The copies of a device by direction, the most time first.
pub(super) fn copies(device: &DeviceWorks, works: &Works) -> Vec<ExposedCopy> {
    let kernels: Vec<Stretch> = merged(device.work.iter().filter(|work| work.is_kernel()).map(Work::stretch_of));
    let mut directions: BTreeMap<&str, Vec<&Work>> = BTreeMap::new();
    for work in device.work.iter().filter(|work| work.counts && !work.is_kernel()) {
        directions.entry(&*works.names[work.name as usize]).or_default().push(work);
    }
    let row = |(direction, list): (&str, Vec<&Work>)| {
        let known = || list.iter().filter(|work| work.bytes != u64::MAX);
        let bytes = known().map(|work| work.bytes).reduce(u64::saturating_add);
        let stretches = merged(list.iter().map(|work| work.stretch_of()));
        let merged_ns = length(&stretches);
        let known_ns = length(&merged(known().map(|work| work.stretch_of())));
        // In kilobytes/s, so that whole numbers are exact enough.
        let rates = known()
            .filter(|work| work.ns() > 0)
            .map(|work| (u128::from(work.bytes) * 1_000_000 / u128::from(work.ns())).min(u128::from(u64::MAX)) as u64);
        let each = Spread::of(rates.collect()).map(|each| each.scaled(1e-6));
        ExposedCopy {
            direction: direction.to_string(),
            count: list.len() as u64,
            bytes,
            total_ns: list.iter().map(|work| work.ns()).fold(0, u64::saturating_add),
            merged_ns,
            exposed_ns: length(&difference(&stretches, &kernels)),
            rate: bytes
                .zip(each)
                .filter(|_| known_ns > 0)
                .map(|(bytes, each)| CopyRate { overall: bytes as f64 / known_ns as f64, each }),
        }
    };
    let mut rows: Vec<ExposedCopy> = directions.into_iter().map(row).collect();
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.direction.cmp(&b.direction)));
    rows
}
