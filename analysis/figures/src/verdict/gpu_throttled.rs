//! GPU clocks that were lowered by something other than idleness.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Place};

/// From this share of samples with lowered clocks on, there is a finding.
const THROTTLED: f64 = 0.05;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let worst = run.devices.iter().filter_map(|device| Some((device, device.throttled.first()?)));
    let worth_it = worst.filter(|(_, (_, share))| *share > THROTTLED);
    let finding = Finding::new(
        Code::GpuThrottled,
        "clocks of `{device}` were held down ({reason}) in {share} of the samples while measured steps ran",
        "Figures depend on heat and power limits: cool the GPU, raise its limit, or lock its clocks for comparisons",
    );
    worth_it
        .map(|(device, (reason, share))| {
            finding
                .clone()
                .at(Place::Device, device.uuid.as_str())
                .text("reason", reason.as_str())
                .ratio("share", *share)
        })
        .collect()
}
