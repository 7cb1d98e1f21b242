//! Time in which rates can be taken, and no warm-up ran, if some steps have no record.

use super::sampling::Sampling;
use super::step_rows::StepRow;
use candlescope_schema::UnrecordedStep;
use candlescope_schema::stretches::{self, Row, StepTime, Stretch, difference, intersection, length, merged};
use std::collections::{BTreeMap, BTreeSet};

/// Time in which rates can be taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CoveredTime {
    /// Windows in order; `None` for all time.
    windows: Option<Vec<Stretch>>,
    /// Rows of recorded steps, one for each window; `None` in runs that do not say which other steps were open.
    rows: Option<Vec<Row>>,
    /// When steps without a record were open, by what they are counted with; ordered and disjoint.
    unrecorded: BTreeMap<String, Vec<Stretch>>,
    /// The same for each of these steps.
    each_unrecorded: BTreeMap<String, Vec<Stretch>>,
    /// The same of all of them.
    any_unrecorded: Vec<Stretch>,
    /// What steps without a record are counted with, and how long they took, by the number of the step before them;
    /// without warm-up.
    right_after: BTreeMap<u64, (String, u64)>,
    /// [`Warmup::left_out`](super::Warmup::left_out).
    warmup: Vec<Stretch>,
}

/// A part of a step's time that counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The index of its window in [`CoveredTime::windows`]; 0 if all time counts.
    pub window: usize,
    /// How much of the step's work it stands for.
    pub share: f64,
}

impl CoveredTime {
    /// From all steps of the run, warm-up included, by [`stretches::rows`], or by [`stretches::covered`] in runs that
    /// do not say which steps without a record were open. `warmup` are the requests that only warm up.
    pub fn of(sampling: &Sampling, steps: &[StepRow], warmup: &BTreeSet<u64>) -> Self {
        if !sampling.is_sampled() {
            return Self::default();
        }
        let begun = sampling.counts.map_or(u64::MAX, |counts| counts.begun);
        let times: Vec<StepTime> = steps.iter().map(StepRow::time).collect();
        if steps.iter().all(|step| step.unrecorded.is_none()) {
            return Self { windows: Some(stretches::covered(&times, 0..begun)), ..Self::default() };
        }
        let others = || steps.iter().filter_map(|step| step.unrecorded.as_deref()).flatten();
        let time = |other: &UnrecordedStep| StepTime {
            step: other.step,
            thread: 0,
            start_ns: other.host_start.0,
            end_ns: other.host_end().0,
        };
        let rows = stretches::rows(&times, &others().map(time).collect::<Vec<_>>(), begun);
        let (mut each, mut warm): (BTreeMap<String, Vec<Stretch>>, Vec<Stretch>) = Default::default();
        let mut right_after = BTreeMap::new();
        for other in others() {
            let stretch = (other.host_start.0, other.host_end().0);
            if other.request.is_some_and(|request| warmup.contains(&request)) {
                warm.push(stretch);
                continue;
            }
            each.entry(other.group().to_string()).or_default().push(stretch);
            if let Some(before) = other.step.checked_sub(1) {
                right_after.insert(before, (other.group().to_string(), other.host_dur_ns));
            }
        }
        Self {
            windows: Some(rows.iter().map(|row| row.window).collect()),
            rows: Some(rows),
            unrecorded: each.iter().map(|(group, list)| (group.clone(), merged(list.iter().copied()))).collect(),
            any_unrecorded: merged(each.values().flatten().chain(&warm).copied()),
            each_unrecorded: each,
            right_after,
            warmup: merged(warm),
        }
    }

    /// The same without [`Warmup::left_out`](super::Warmup::left_out): while warm-up steps run, the device works for
    /// steps that are in no figure, and a step around them does nothing of its own.
    pub fn without_warmup(self, left_out: &[Stretch]) -> Self {
        let warmup = match self.warmup.is_empty() {
            true => left_out.to_vec(),
            false => merged(self.warmup.iter().chain(left_out).copied()),
        };
        Self { warmup, ..self }
    }

    /// Windows in which rates are taken; `None` if all steps have a record, so that they are taken over all time.
    pub fn windows(&self) -> Option<&[Stretch]> {
        self.windows.as_deref()
    }

    /// Whether some steps have no record.
    pub fn is_partial(&self) -> bool {
        self.windows.is_some()
    }

    /// Whether all time counts.
    pub fn is_all(&self) -> bool {
        self.windows.is_none() && self.warmup.is_empty()
    }

    /// The part of `windows` (in order, apart) in which all that was open has a record: where a device's time can be
    /// divided.
    pub fn cut(&self, windows: Vec<Stretch>) -> Vec<Stretch> {
        let counted = self.counted(windows);
        if self.any_unrecorded.is_empty() { counted } else { difference(&counted, &self.any_unrecorded) }
    }

    /// The part of `windows` (in order, apart) in which rates are taken.
    fn counted(&self, windows: Vec<Stretch>) -> Vec<Stretch> {
        let measured = if self.warmup.is_empty() { windows } else { difference(&windows, &self.warmup) };
        match &self.windows {
            None => measured,
            Some(covered) => intersection(&measured, covered),
        }
    }

    /// The time over which rates of the steps of `group` are taken, which have a record and were open during `windows`:
    /// it includes that of steps of the group that have none.
    pub fn open(&self, group: &str, windows: Vec<Stretch>) -> Vec<Stretch> {
        match self.unrecorded.get(group) {
            Some(others) => self.counted(merged(windows.into_iter().chain(others.iter().copied()))),
            None => self.counted(windows),
        }
    }

    /// How long the step took that began right after `step`, if it has no record and is of `group`, too.
    pub fn right_after(&self, group: &str, step: u64) -> Option<u64> {
        self.right_after.get(&step).filter(|(other, _)| other == group).map(|(_, ns)| *ns)
    }

    /// Sum of the times of `steps`, of `group`, in the time in which rates are taken, and of steps of the group that
    /// have no record, in nanoseconds; `None` if these are not known.
    pub fn open_sum(&self, group: &str, steps: &[&StepRow]) -> Option<u64> {
        self.rows.as_ref()?;
        let others = self.each_unrecorded.get(group).into_iter().flatten().copied();
        let all = steps.iter().map(|step| step.window()).chain(others);
        Some(all.fold(0, |sum: u64, window| sum.saturating_add(length(&self.counted(vec![window])))))
    }

    /// The parts of a step that count. In a row of recorded steps, that is the whole step in the row that it begins in,
    /// less its time beside warm-up; else the parts of its time that are in windows.
    pub fn parts(&self, step: &StepRow) -> Vec<Part> {
        if self.is_all() {
            return Vec::new();
        }
        if let Some(rows) = &self.rows {
            let window = rows.partition_point(|row| row.steps.end <= step.step);
            let is_inside = rows.get(window).is_some_and(|row| row.steps.contains(&step.step));
            let open = step.window();
            let measured_ns = length(&difference(&[open], &self.warmup));
            // The work of a step around warm-up is its own.
            let whole = step.dur_ns == 0 || step.warmup_ns > 0;
            let share = if whole { 1.0 } else { measured_ns as f64 / open.1.abs_diff(open.0).max(1) as f64 };
            return if is_inside { vec![Part { window, share }] } else { Vec::new() };
        }
        if step.dur_ns == 0 {
            return Vec::new();
        }
        let open_ns = step.end_ns().abs_diff(step.start_ns);
        let whole_ns =
            if step.warmup_ns > 0 { open_ns - length(&intersection(&[step.window()], &self.warmup)) } else { open_ns };
        let part = |(start, end): Stretch| Part {
            window: self.windows.as_ref().map_or(0, |windows| windows.partition_point(|window| window.1 <= start)),
            share: end.abs_diff(start) as f64 / whole_ns.max(1) as f64,
        };
        self.counted(vec![step.window()]).into_iter().map(part).collect()
    }
}
