//! Steps that differ in nothing that explains their durations, and what is usual among them.

use crate::int_map::IntMap;
use crate::stats::percentile_of;
use crate::step_rows::StepRow;
use crate::step_threads::{StepThread, ThreadStates};
use candlescope_schema::GpuSource;
use std::collections::BTreeMap;

/// Steps are alike if their tokens, and their contexts, differ by less than this share.
pub const LENGTHS_APART: f64 = 0.10;
/// Contexts that differ by less are alike in any case: so few tokens cost a step nothing that is seen.
const CONTEXT_APART: f64 = 32.0;
/// Steps that are nearest in tokens and context, of which medians are taken.
const NEAREST: usize = 64;
/// Fewer steps have no usual one.
const LEAST: usize = 3;

/// Whether two numbers of tokens are about the same.
pub fn of_a_length(one: f64, other: f64) -> bool {
    (one - other).abs() <= LENGTHS_APART * other
}

/// A step with what its thread did.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepWithThread<'a> {
    pub(super) row: &'a StepRow,
    pub(super) thread: StepThread,
}

impl<'a> StepWithThread<'a> {
    pub(super) fn of(row: &'a StepRow, threads: &IntMap<u64, StepThread>) -> Self {
        Self { row, thread: threads.get(&row.step).copied().unwrap_or_default() }
    }

    /// Time of its kernels, nanoseconds. What passed between marks in a stream is no such time: there the device may have
    /// waited for the host.
    pub(super) fn kernels_ns(&self) -> Option<u64> {
        self.row.gpu_ns.filter(|_| self.row.gpu_source == Some(GpuSource::Cupti))
    }

    /// What steps that are alike have in common: recording kernels takes time of its own.
    pub(super) fn class(&self) -> Class<'a> {
        (self.row.group(), self.row.gpu_source == Some(GpuSource::Cupti), self.row.batch)
    }

    fn length(&self) -> (Option<u32>, Option<u32>) {
        (self.row.tokens, self.row.context_len)
    }

    fn is_like(&self, other: &Self) -> bool {
        let near = |one: Option<u32>, other: Option<u32>, least: f64| match (one, other) {
            (Some(one), Some(other)) => {
                let (one, other) = (f64::from(one), f64::from(other));
                of_a_length(one, other) || (one - other).abs() < least
            }
            (one, other) => one == other,
        };
        near(self.row.tokens, other.row.tokens, 0.0) && near(self.row.context_len, other.row.context_len, CONTEXT_APART)
    }
}

/// Phase or name, whether kernels were recorded, batch.
pub(super) type Class<'a> = (&'a str, bool, Option<u32>);

/// What is usual for a step: the mean over the middle third of the steps like it, in order of duration. Like a median
/// it does not follow the longest ones; unlike medians, its parts add up.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct UsualStep {
    /// Duration in nanoseconds.
    pub(super) dur_ns: f64,
    /// Time on a CPU, preempted, blocked; `None` where too few say.
    pub(super) states: Option<[f64; 3]>,
    pub(super) page_faults: Option<f64>,
    pub(super) kernels_ns: Option<f64>,
    /// Whether there are enough steps like it. If not, only its time preempted is held against others of its phase: of
    /// what it took otherwise nobody knows how much is due to its length.
    pub(super) has_like: bool,
}

/// The measured steps of a run by class, ordered by their tokens and contexts.
pub(super) struct AlikeSteps<'a> {
    classes: BTreeMap<Class<'a>, Vec<StepWithThread<'a>>>,
    /// Median time preempted by phase or name.
    preempted: BTreeMap<&'a str, f64>,
}

impl<'a> AlikeSteps<'a> {
    pub(super) fn of(steps: impl Iterator<Item = StepWithThread<'a>>) -> Self {
        let mut classes: BTreeMap<Class<'a>, Vec<StepWithThread<'a>>> = BTreeMap::new();
        let mut preempted: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for step in steps {
            classes.entry(step.class()).or_default().push(step);
            if let Some(states) = step.thread.states {
                preempted.entry(step.row.group()).or_default().push(states.preempted_ns as f64);
            }
        }
        classes.values_mut().for_each(|steps| steps.sort_by_key(StepWithThread::length));
        let usual = preempted.into_iter().filter_map(|(name, all)| Some((name, percentile_of(&all, 0.5)?)));
        Self { classes, preempted: usual.collect() }
    }

    /// Those like a step, itself among them if it is measured.
    pub(super) fn like(&self, step: &StepWithThread<'a>) -> Vec<StepWithThread<'a>> {
        let Some(class) = self.classes.get(&step.class()) else { return Vec::new() };
        let before = class.partition_point(|one| one.length() < step.length());
        let same = class[before..].partition_point(|one| one.length() == step.length());
        let end = (before + same / 2 + NEAREST / 2).min(class.len());
        let near = &class[end.saturating_sub(NEAREST)..end];
        near.iter().filter(|one| one.is_like(step)).copied().collect()
    }

    /// What is usual for a step.
    pub(super) fn usual(&self, step: &StepWithThread<'a>) -> UsualStep {
        let mut like = self.like(step);
        if like.len() < LEAST {
            return self.without_like(step);
        }
        // The parts of what is usual add up only over steps that all say them.
        let says = |one: &StepWithThread<'_>| one.thread.states.is_some();
        if says(step) && like.iter().filter(|one| says(one)).count() >= LEAST {
            like.retain(says);
        }
        like.sort_by_key(|one| one.row.dur_ns);
        let over = |figure: &dyn Fn(&StepWithThread<'_>) -> Option<u64>| mean(middle(&like).iter().filter_map(figure));
        let state = |of: fn(&ThreadStates) -> u64| over(&|one| one.thread.states.as_ref().map(of));
        let all_say = like.iter().all(says);
        let states = || Some([state(|s| s.cpu_ns)?, state(|s| s.preempted_ns)?, state(|s| s.blocked_ns)?]);
        UsualStep {
            dur_ns: over(&|one| Some(one.row.dur_ns)).unwrap_or(step.row.dur_ns as f64),
            states: states().filter(|_| all_say),
            page_faults: over(&|one| one.thread.page_faults),
            kernels_ns: over(&|one| one.kernels_ns()),
            has_like: true,
        }
    }

    fn without_like(&self, step: &StepWithThread<'_>) -> UsualStep {
        let own_ns = step.row.dur_ns as f64;
        let preempted = step.thread.states.zip(self.preempted.get(step.row.group()).copied());
        match preempted {
            None => UsualStep { dur_ns: own_ns, ..UsualStep::default() },
            Some((states, usual)) => UsualStep {
                dur_ns: own_ns - (states.preempted_ns as f64 - usual),
                states: Some([states.cpu_ns as f64, usual, states.blocked_ns as f64]),
                ..UsualStep::default()
            },
        }
    }
}

/// The middle third of what is in order, and at least one of it.
pub(super) fn middle<T>(ordered: &[T]) -> &[T] {
    let aside = ordered.len() / 3;
    &ordered[aside..ordered.len() - aside]
}

fn mean(values: impl Iterator<Item = u64>) -> Option<f64> {
    let (n, sum) = values.fold((0u64, 0.0), |(n, sum), value| (n + 1, sum + value as f64));
    (n > 0).then(|| sum / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::{HostNs, PathInfo, Phase, StepRecord, ThreadInfo, TraceId};
    use std::sync::Arc;

    fn step(number: u64, tokens: u32, context: u32, dur_ns: u64) -> StepRow {
        let (path, thread) = (PathInfo::new(0, "decode", "decode", ""), ThreadInfo::new(1, 0, "main"));
        let start = HostNs(number as i64 * 1_000_000);
        let step = StepRecord::new(number, number, TraceId(1), Arc::new(path), Arc::new(thread), start, dur_ns);
        let phase = Some(if tokens > 1 { Phase::Prefill } else { Phase::Decode });
        StepRow { phase, tokens: Some(tokens), context_len: Some(context), ..StepRow::of(&step) }
    }

    fn alike(rows: &[StepRow]) -> AlikeSteps<'_> {
        AlikeSteps::of(rows.iter().map(|row| StepWithThread::of(row, &IntMap::default())))
    }

    #[test]
    fn prompts_of_another_length_are_not_like_it() {
        let rows: Vec<StepRow> = (0..9).map(|n| step(n, 100 * (1 + n as u32 % 3), 300, 1_000 * (1 + n % 3))).collect();
        let all = alike(&rows);
        let usual = all.usual(&StepWithThread::of(&rows[1], &IntMap::default()));
        assert_eq!((usual.dur_ns, usual.has_like), (2_000.0, true));
        let alone = step(10, 900, 900, 5_000);
        let usual = all.usual(&StepWithThread::of(&alone, &IntMap::default()));
        assert_eq!((usual.dur_ns, usual.has_like), (5_000.0, false), "what it took counts as its work");
    }

    #[test]
    fn the_nearest_contexts_say_what_is_usual_however_many_steps_there_are() {
        // A step takes as long as its context; one in four is held up.
        let held_up = |n: u64| if n.is_multiple_of(4) { 1_000_000 } else { 0 };
        let rows: Vec<StepRow> = (0..4_000).map(|n| step(n, 1, n as u32, n + held_up(n))).collect();
        let all = alike(&rows);
        for at in [40, 1_000, 2_002, 3_999] {
            let usual = all.usual(&StepWithThread::of(&rows[at], &IntMap::default())).dur_ns;
            assert!((usual - at as f64).abs() < 40.0, "{usual} at {at}");
            assert!(all.like(&StepWithThread::of(&rows[at], &IntMap::default())).len() <= NEAREST);
        }
    }

    #[test]
    fn the_middle_is_the_median_and_its_neighbours() {
        assert_eq!(middle(&[1, 2, 3]), [2]);
        assert_eq!(middle(&[1, 2, 3, 4, 5, 6, 7]), [3, 4, 5]);
        assert!(middle::<u8>(&[]).is_empty());
    }
}
