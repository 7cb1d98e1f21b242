//! When a device's work was recorded. Where kernels are recorded in windows of steps, nothing is known about the time
//! between two windows: it is neither busy nor idle.

use super::works::{DeviceWorks, NOWHERE, Works};
use crate::covered::CoveredTime;
use crate::step_rows::StepRow;
use crate::timeline::around_others;
use candlescope_schema::stretches::{Stretch, merged};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Stretches of time in order and apart.
#[derive(Debug, Default)]
pub(super) struct RecordedTime {
    /// From the first start to the last end of the work of steps that follow each other without a step between them whose
    /// kernels were not recorded; and each work that belongs to none of these steps.
    pub(super) on_device: Vec<Stretch>,
    /// The same from the first launch on.
    pub(super) with_launches: Vec<Stretch>,
    /// How many such rows of steps there are.
    pub(super) windows: u64,
}

/// A row of steps whose kernels were recorded.
#[derive(Debug, Clone, Copy)]
struct Row {
    launched: i64,
    start: i64,
    end: i64,
}

impl Row {
    fn joined(self, other: Self) -> Self {
        Self {
            launched: self.launched.min(other.launched),
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// When work of `device` was recorded; `steps` are in order of start.
pub(super) fn recorded(device: &DeviceWorks, works: &Works, steps: &[StepRow], covered: &CoveredTime) -> RecordedTime {
    let kinds: BTreeSet<&str> =
        steps.iter().filter(|step| device.steps.contains(&step.step)).map(StepRow::group).collect();
    // A step around others is open while these are not recorded.
    let around = around_others(steps, &device.steps);
    let row = |at: usize| {
        let work = &device.work[at];
        let launched = work.call().map_or(work.start, |call| call.0.min(work.start));
        Row { launched, start: work.start, end: work.end.max(work.start) }
    };
    let counting = || (0..device.work.len()).filter(|at| device.work[*at].counts);
    let mut by_step: FxHashMap<u64, Row> = FxHashMap::default();
    for at in counting().filter(|at| device.work[*at].step != NOWHERE) {
        let own = row(at);
        let step = works.steps[device.work[at].step as usize];
        by_step.entry(step).and_modify(|row| *row = row.joined(own)).or_insert(own);
    }
    let (mut rows, mut open): (Vec<Row>, Option<Row>) = (Vec::new(), None);
    for step in steps.iter().filter(|step| !around.contains(&step.step)) {
        match by_step.get(&step.step) {
            Some(own) => open = Some(open.map_or(*own, |row| row.joined(*own))),
            None if kinds.contains(step.group()) => rows.extend(open.take()),
            None => {}
        }
    }
    rows.extend(open);
    let stretches = |from: fn(&Row) -> i64| {
        let whole = covered.cut(merged(rows.iter().map(|row| (from(row), row.end))));
        // In this order: work is in order of time, or nearly so.
        let each = counting().map(|at| {
            let row = row(at);
            (from(&row), row.end)
        });
        merged(each.chain(whole))
    };
    RecordedTime {
        on_device: stretches(|row| row.start),
        with_launches: stretches(|row| row.launched),
        windows: rows.len() as u64,
    }
}
