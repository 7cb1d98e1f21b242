//! Work on the devices by step, which the passes over kernels, gaps and time lines share.

use super::gaps::Activity;
use super::step_rows::StepRow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Recorded work on the devices.
#[derive(Debug, Clone, Default)]
pub struct DeviceWork {
    /// The work of one step on one device.
    pub steps: HashMap<(u64, Arc<str>), Vec<Activity>>,
    /// Work that was launched outside every step, or in a warm-up step, by device.
    pub loose: HashMap<Arc<str>, Vec<Activity>>,
}

impl DeviceWork {
    /// Numbers of the steps with recorded work.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        self.steps.keys().map(|(step, _)| *step).collect()
    }

    /// Kernels, copies and memsets of steps that are not among these.
    pub fn without_step(&self, steps: &[StepRow]) -> u64 {
        let known: HashSet<u64> = steps.iter().map(|step| step.step).collect();
        self.steps.iter().filter(|((step, _), _)| !known.contains(step)).map(|(_, list)| list.len() as u64).sum()
    }
}
