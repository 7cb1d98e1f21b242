//! What ran on the devices, by step: what passes over kernels, gaps and time lines share.

use super::gaps::Activity;
use super::step_rows::StepRow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What ran on the devices, as it was recorded.
#[derive(Debug, Clone, Default)]
pub struct DeviceWork {
    /// What one step had on one device.
    pub steps: HashMap<(u64, Arc<str>), Vec<Activity>>,
    /// What was launched outside every step, or in a step that only warmed up, by device.
    pub loose: HashMap<Arc<str>, Vec<Activity>>,
}

impl DeviceWork {
    /// Kernels, copies and memsets of steps that are not among these.
    pub fn without_step(&self, steps: &[StepRow]) -> u64 {
        let known: HashSet<u64> = steps.iter().map(|step| step.step).collect();
        self.steps.iter().filter(|((step, _), _)| !known.contains(step)).map(|(_, list)| list.len() as u64).sum()
    }
}
