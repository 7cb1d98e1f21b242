//! Kernels of one path that ran at once: the share of their summed time that is left if overlapping time counts once.
//!
//! A rate (FLOP/s, bytes/s) over the sum of kernel times is too low if two streams work at once.

use super::device_work::DeviceWork;
use super::gaps::{Activity, merged_ns};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Merged time ÷ summed time of what each path and the paths below it launched, only for paths where it is below 1.
/// `rollup` gives a path's text by the number in [`Activity::path()`].
pub fn merged_shares(recorded: &DeviceWork, rollup: impl Fn(u32) -> Option<String>) -> BTreeMap<String, f64> {
    let mut devices: HashMap<&Arc<str>, Vec<&Activity>> = HashMap::new();
    // Sorting what is nearly in order takes no time to speak of.
    let mut steps: Vec<_> = recorded.steps.iter().collect();
    steps.sort_by_key(|(_, activities)| activities.first().map(|first| first.start_ns));
    for ((_, device), activities) in steps {
        devices.entry(device).or_default().extend(activities);
    }
    let sum = |list: &[&Activity]| list.iter().map(|a| a.end_ns.abs_diff(a.start_ns)).fold(0, u64::saturating_add);
    let merged = |list: &[&Activity]| merged_ns(|| list.iter().copied());
    // A single stream has no overlap.
    devices.retain(|_, list| merged(list) < sum(list));
    let mut paths: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for list in devices.values() {
        let mut by_path: BTreeMap<u32, Vec<&Activity>> = BTreeMap::new();
        for activity in list {
            if let Some(path) = activity.path() {
                by_path.entry(path).or_default().push(activity);
            }
        }
        let mut below: BTreeMap<String, Vec<&Activity>> = BTreeMap::new();
        for (path, list) in by_path {
            let Some(text) = rollup(path) else { continue };
            // A path's text, and a module's name, names what stands above it.
            let ends = text.match_indices(['/', '.']).map(|(at, _)| at).chain([text.len()]);
            ends.for_each(|end| below.entry(text[..end].to_string()).or_default().extend(&list));
        }
        for (path, list) in below {
            let sums = paths.entry(path).or_default();
            *sums = (sums.0.saturating_add(merged(&list)), sums.1.saturating_add(sum(&list)));
        }
    }
    let share = |(merged, sum): (u64, u64)| (merged < sum).then(|| merged as f64 / sum as f64);
    paths.into_iter().filter_map(|(path, sums)| Some((path, share(sums)?))).collect()
}
