//! The integral of power differs from the energy counter.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding, Place};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let checks = run.energy.sensors.iter().filter_map(|(uuid, sensor)| {
        let check = sensor.check?;
        Some((uuid, check, check.ratio()?))
    });
    let off = checks.filter(|(_, check, ratio)| (ratio - 1.0).abs() > check.tolerance());
    let finding = Finding::new(
        Code::EnergySensorsDisagree,
        "energy added up from power is {ratio:.2} of the energy counter's difference, over {time} on `{device}`",
        "Power may be a mean over a second on this GPU, or be sampled too rarely: trust the counter, and do not trust \
         short windows",
    );
    off.map(|(uuid, check, ratio)| {
        finding.clone().at(Place::Device, uuid.as_str()).ratio("ratio", ratio).ns("time", check.time_ns)
    })
    .collect()
}
