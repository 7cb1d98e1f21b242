//! Which intervals a change means.

use super::abstain::Abstain;
use super::change::Change;
use super::step_model::{Parts, StepModel};
use candlescope_schema::PathPattern;
use std::collections::BTreeSet;

/// Refuses a change of device work where there is none.
pub(super) fn needs_device(parts: &Parts, change: &Change) -> Result<(), Abstain> {
    if parts.works.is_empty() { Err(Abstain::NoDeviceWork { change: change.to_string() }) } else { Ok(()) }
}

/// The intervals that a pattern means, and those inside them.
pub(super) fn inside(model: &StepModel, path: &PathPattern) -> BTreeSet<u32> {
    let roots = roots(model, path);
    let all = 0..model.places.len() as u32;
    all.filter(|place| model.around(*place).any(|around| roots.contains(&around))).collect()
}

/// The intervals that a pattern means.
pub(super) fn roots(model: &StepModel, path: &PathPattern) -> BTreeSet<u32> {
    let places = model.places.iter().enumerate();
    let meant = places.filter(|(_, place)| path.matches(&place.path, place.module.as_deref()));
    meant.map(|(at, _)| at as u32).collect()
}
