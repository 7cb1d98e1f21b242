//! What a device allows an operation.

use candlescope_figures::peaks::{multiplied, peaks};
use candlescope_figures::{Analysis, PathTotals};
use candlescope_schema::run::multiplied_dtype;
use candlescope_work::devices::{Device, Peak, Roof, known_device};
use serde_json::Value;

/// The run's own peaks; without any of its GPU, those of the datasheet for the GPU that it names. `gpu` is what it says
/// about that GPU, if it ran on one.
pub(super) fn roof(analysis: &Analysis, gpu: Option<&Value>) -> Roof {
    let own = peaks(&analysis.manifest);
    let name = gpu.filter(|_| own.is_empty()).and_then(|gpu| gpu.get("name")?.as_str());
    let sheet = name.and_then(|name| known_device(name).ok());
    Roof::new(sheet.as_ref().map_or(own, Device::peaks))
}

/// Work of `ns` nanoseconds in a path of a phase: achieved ÷ attainable, and the peak that limits it. `None` if the path
/// does not state its work, or there is no peak for it; above 1 something is wrong with the figures.
pub(super) fn under<'a>(
    roof: &'a Roof,
    analysis: &Analysis,
    phase: &str,
    path: &PathTotals,
    (flops, bytes, ns): (Option<f64>, f64, f64),
) -> Option<(f64, &'a Peak)> {
    let dtype = match path.dtypes.as_slice() {
        [] => multiplied(&analysis.intervals, &analysis.manifest, phase),
        [only] => multiplied_dtype(&analysis.manifest.model, phase, Some(only)),
        _ => None,
    };
    // Of the work of a second, whose least time is the share.
    let a_second = |amount: f64| amount / ns * 1e9;
    let least = roof.least_time(flops.map(a_second), a_second(bytes), dtype.as_deref())?;
    Some((least.seconds, least.limit))
}
