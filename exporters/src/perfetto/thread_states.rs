//! What threads did, from samples of their stacks: when they ran, waited, or were ready and had no CPU. Pure.

use candlescope_core::{StackSampleRecord, ThreadState};
use std::collections::BTreeMap;

/// A stretch of time in which a thread did one thing. Times are nanoseconds of the host's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch<'b> {
    pub(super) tid: u64,
    pub(super) state: ThreadState,
    pub(super) start: i64,
    pub(super) end: i64,
    /// The sample that it is made of; `None` where the thread ran.
    pub(super) sample: Option<&'b StackSampleRecord>,
}

/// What is known of each thread so far.
#[derive(Debug, Default)]
pub(super) struct ThreadStates(BTreeMap<u64, ThreadProgress>);

#[derive(Debug)]
struct ThreadProgress {
    /// The end of what was told.
    until: i64,
    /// Time between two samples, if the thread does nothing but run.
    period: i64,
    /// A stretch in which it ran, and that may go on.
    runs: Option<(i64, i64)>,
}

impl ThreadStates {
    /// The stretches of a batch, those of one thread in order. Samples of one thread are in order of time.
    ///
    /// Times off the CPU are in the samples. In the time between two of them, the thread ran, unless it is so long that
    /// there would be samples of that: then it is told only of the time that samples stand for.
    pub(super) fn take<'b>(&mut self, samples: &'b [StackSampleRecord]) -> Vec<Stretch<'b>> {
        let mut told = Vec::new();
        for sample in samples {
            let (at, weight) = (sample.time.0, i64::try_from(sample.weight_ns).unwrap_or(i64::MAX));
            let known = self.0.entry(sample.tid).or_insert(ThreadProgress { until: i64::MIN, period: 0, runs: None });
            let since = at.saturating_sub(known.until);
            if sample.state == ThreadState::Running {
                known.period = weight;
                let from = if since <= weight.saturating_mul(2) { known.until } else { at.saturating_sub(weight) };
                known.ran(sample.tid, from, at, &mut told);
                continue;
            }
            if since <= known.period.saturating_mul(2) {
                known.ran(sample.tid, known.until, at, &mut told);
            }
            known.flush(sample.tid, &mut told);
            let (start, end) = (at.max(known.until), at.saturating_add(weight));
            if start < end {
                told.push(Stretch { tid: sample.tid, state: sample.state, start, end, sample: Some(sample) });
                known.until = end;
            }
        }
        // The file is whole after each batch.
        self.0.iter_mut().for_each(|(tid, known)| known.flush(*tid, &mut told));
        told
    }
}

impl ThreadProgress {
    fn ran(&mut self, tid: u64, from: i64, to: i64, told: &mut Vec<Stretch<'_>>) {
        if to <= from {
            return;
        }
        match &mut self.runs {
            Some((_, end)) if *end == from => *end = to,
            _ => {
                self.flush(tid, told);
                self.runs = Some((from, to));
            }
        }
        self.until = to;
    }

    fn flush(&mut self, tid: u64, told: &mut Vec<Stretch<'_>>) {
        if let Some((start, end)) = self.runs.take() {
            told.push(Stretch { tid, state: ThreadState::Running, start, end, sample: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::{HostNs, ThreadInfo};
    use std::sync::Arc;

    fn sample(state: ThreadState, at: i64, weight_ns: u64) -> StackSampleRecord {
        StackSampleRecord::new(HostNs(at), Arc::new(ThreadInfo::new(1, 7, "main")), state, weight_ns)
    }

    #[test]
    fn a_thread_runs_between_its_waits_as_far_as_samples_tell() {
        use ThreadState::{Blocked, Preempted, Running};
        let samples = [
            sample(Running, 1_000, 100),
            sample(Running, 1_100, 100),
            sample(Blocked, 1_150, 50),
            sample(Preempted, 1_200, 20),
            // Waits were not recorded here: it cannot have run all the time, with one sample.
            sample(Running, 9_000, 100),
            sample(Blocked, 20_000, 5),
        ];
        let told = |states: &mut ThreadStates, samples: &[StackSampleRecord]| -> Vec<(ThreadState, i64, i64)> {
            states.take(samples).iter().map(|s| (s.state, s.start, s.end)).collect()
        };
        let expected = [
            (Running, 900, 1_150),
            (Blocked, 1_150, 1_200),
            (Preempted, 1_200, 1_220),
            (Running, 8_900, 9_000),
            (Blocked, 20_000, 20_005),
        ];
        assert_eq!(told(&mut ThreadStates::default(), &samples), expected);
        // In two batches it is the same, but for a stretch that is told in two parts.
        let mut states = ThreadStates::default();
        let first = told(&mut states, &samples[..2]);
        assert_eq!(first, [(Running, 900, 1_100)]);
        assert_eq!(told(&mut states, &samples[2..])[..2], [(Running, 1_100, 1_150), (Blocked, 1_150, 1_200)]);
    }
}
