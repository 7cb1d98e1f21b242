//! Time in which every step that was open has a record.
//!
//! Where some steps have none (a schedule, a window, a probe), those that have stand beside others on other threads at the ends of a
//! window: there the device and the processor worked for steps that nobody recorded. Rates over such time would be too low, so it is
//! left out of them.

use super::gaps::length;
use super::sampling::Sampling;
use super::step_rows::StepRow;
use std::collections::BTreeMap;

/// Time in which rates can be taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Covered {
    /// Windows in order; `None` for all time.
    windows: Option<Vec<(i64, i64)>>,
}

impl Covered {
    /// From all steps of the run, warm-up included.
    ///
    /// Steps are numbered as they begin, on all threads together. In a row of numbers without a hole every step has a record that began
    /// in its time, but at its ends steps that began before, or go on after, may have none. So time counts from when each thread has
    /// begun a step of the row until one of them has ended its last. A row in which a thread is missing that worked before and after
    /// says nothing, nor does a step alone: it shows one thread, however many there are.
    pub fn of(sampling: &Sampling, steps: &[StepRow]) -> Self {
        if !sampling.is_sampled() {
            return Self::default();
        }
        let mut threads: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for step in steps {
            let (first, last) = threads.entry(step.thread).or_insert((step.step, step.step));
            (*first, *last) = ((*first).min(step.step), (*last).max(step.step));
        }
        let mut ordered: Vec<&StepRow> = steps.iter().collect();
        ordered.sort_by_key(|step| step.step);
        let mut windows = Vec::new();
        for row in ordered.chunk_by(|a, b| b.step.saturating_sub(a.step) <= 1) {
            let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
            let mut own: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
            for step in row {
                let (start, end) = own.entry(step.thread).or_insert((step.start_ns, step.end_ns()));
                (*start, *end) = ((*start).min(step.start_ns), (*end).max(step.end_ns()));
            }
            let alive = threads.iter().filter(|(_, (from, to))| *from <= last.step && *to >= first.step);
            if row.len() < 2 || alive.count() > own.len() {
                continue;
            }
            let from = own.values().map(|(start, _)| *start).max().filter(|_| first.step > 0);
            let to = own.values().map(|(_, end)| *end).min();
            // Nobody knows what came after the last record, but in a run that says how many steps there were.
            let is_end = sampling.counts.is_some_and(|counts| last.step.saturating_add(1) >= counts.begun);
            let window = (from.unwrap_or(i64::MIN), to.filter(|_| !is_end).unwrap_or(i64::MAX));
            if window.0 < window.1 {
                windows.push(window);
            }
        }
        windows.sort_unstable();
        Self { windows: Some(windows) }
    }

    /// Whether some time does not count.
    pub fn is_partial(&self) -> bool {
        self.windows.is_some()
    }

    /// The part of `windows` (in order, apart) in which rates can be taken.
    pub fn cut(&self, windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
        match &self.windows {
            None => windows,
            Some(covered) => intersection(&windows, covered),
        }
    }

    /// The share of a step's time in which rates can be taken.
    pub fn share(&self, step: &StepRow) -> f64 {
        match &self.windows {
            None => 1.0,
            Some(_) if step.dur_ns == 0 => 0.0,
            Some(covered) => {
                length(&intersection(&[(step.start_ns, step.end_ns())], covered)) as f64 / step.dur_ns as f64
            }
        }
    }
}

/// What both have; each in order and apart.
pub fn intersection(a: &[(i64, i64)], b: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut out = Vec::new();
    let mut from = 0;
    for &(start, end) in a {
        from += b[from..].partition_point(|window| window.1 <= start);
        for window in b[from..].iter().take_while(|window| window.0 < end) {
            out.push((window.0.max(start), window.1.min(end)));
        }
    }
    out
}

/// What `a` has and `b` has not; each in order and apart.
pub fn difference(a: &[(i64, i64)], b: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut out = Vec::new();
    let mut from = 0;
    for &(start, end) in a {
        from += b[from..].partition_point(|window| window.1 <= start);
        let mut at = start;
        for window in b[from..].iter().take_while(|window| window.0 < end) {
            if window.0 > at {
                out.push((at, window.0));
            }
            at = at.max(window.1);
        }
        if at < end {
            out.push((at, end));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_by_hand() {
        let (a, b) = ([(0, 10), (20, 30), (30, 40)], [(5, 22), (25, 26), (38, 90)]);
        assert_eq!(intersection(&a, &b), [(5, 10), (20, 22), (25, 26), (38, 40)]);
        assert_eq!(difference(&a, &b), [(0, 5), (22, 25), (26, 30), (30, 38)]);
        assert_eq!((intersection(&a, &[]), difference(&a, &[])), (vec![], a.to_vec()));
    }
}
