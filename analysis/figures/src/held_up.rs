//! How long sequences that generate wait for prompts of other requests.

use super::step_rows::StepRow;
use candlescope_schema::Phase;
use std::collections::HashMap;

/// How long requests waited between their tokens while prompts of others passed on the thread that works for them, all
/// requests together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldUp {
    /// From the first token of each to its last, in nanoseconds.
    pub generating_ns: u64,
    /// The part of it in which a prefill step for other requests was open on the same thread, in nanoseconds.
    pub waited_ns: u64,
    /// The longest of these waits for one step, in nanoseconds.
    pub longest_ns: u64,
    /// How many waits there were.
    pub waits: u64,
}

impl HeldUp {
    /// Of requests whose number passes `is_measured`, by `steps` in order of start. `None` if no step says whom it serves,
    /// or none of the requests has two tokens.
    pub(super) fn of(steps: &[StepRow], is_measured: impl Fn(u64) -> bool) -> Option<Self> {
        // By request: the thread of its steps, the end of the one with its first token, and of that with its last.
        let mut generating: Vec<(u64, u32, i64, i64)> = Vec::new();
        let mut places = HashMap::new();
        for step in steps {
            for served in step.serves.iter().filter(|served| served.output_tokens > 0 && is_measured(served.request)) {
                let end = step.end_ns();
                let at = *places.entry(served.request).or_insert_with(|| {
                    generating.push((served.request, step.thread, end, end));
                    generating.len() - 1
                });
                generating[at].3 = generating[at].3.max(end);
            }
        }
        let is_prompt = |step: &&StepRow| step.phase == Some(Phase::Prefill) && !step.serves.is_empty();
        let prompts: Vec<&StepRow> = steps.iter().filter(is_prompt).collect();
        let mut all = Self::default();
        for (request, thread, first, last) in generating {
            all.generating_ns += last.abs_diff(first);
            let from = prompts.partition_point(|step| step.start_ns < first);
            let between = prompts[from..].iter().take_while(|step| step.start_ns < last);
            // Another thread has a model of its own, for which these requests do not wait.
            let others =
                |step: &&&StepRow| step.thread == thread && step.serves.iter().all(|served| served.request != request);
            for step in between.filter(others) {
                let waited = step.end_ns().min(last).abs_diff(step.start_ns);
                all.waited_ns += waited;
                all.longest_ns = all.longest_ns.max(waited);
                all.waits += 1;
            }
        }
        (all.generating_ns > 0).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_schema::{HostNs, PathInfo, Served, StepRecord, ThreadInfo, TraceId};
    use std::sync::Arc;

    fn step(phase: Phase, start: i64, dur: u64, serves: &[(u64, u32)]) -> StepRow {
        let (path, thread) = (PathInfo::new(0, "decode", "decode", ""), ThreadInfo::new(1, 0, "main"));
        let step = StepRecord::new(0, 0, TraceId(1), Arc::new(path), Arc::new(thread), HostNs(start), dur);
        let serves = serves.iter().map(|(request, out)| Served::new(*request, 1, *out)).collect();
        StepRow { phase: Some(phase), serves, ..StepRow::of(&step) }
    }

    #[test]
    fn a_prompt_between_two_tokens_of_another_request_is_waited_for() {
        use Phase::{Decode, Prefill};
        let steps = [
            step(Prefill, 0, 100, &[(1, 1)]),
            step(Decode, 100, 10, &[(1, 1)]),
            // A prompt of another in two pieces; its own request waits for neither.
            step(Prefill, 110, 80, &[(2, 0)]),
            step(Decode, 190, 10, &[(1, 1)]),
            step(Prefill, 200, 60, &[(2, 1)]),
            step(Decode, 260, 10, &[(1, 1), (2, 1)]),
            // After the last token of the first.
            step(Prefill, 270, 500, &[(3, 1)]),
            step(Decode, 770, 10, &[(2, 1), (3, 1)]),
        ];
        let of = |which: &[u64]| HeldUp::of(&steps, |request| which.contains(&request));
        let expected = HeldUp { generating_ns: 170, waited_ns: 140, longest_ns: 80, waits: 2 };
        assert_eq!(of(&[1]), Some(expected));
        let expected = HeldUp { generating_ns: 520, waited_ns: 500, longest_ns: 500, waits: 1 };
        assert_eq!(of(&[2]), Some(expected));
        assert_eq!(of(&[3]), Some(HeldUp { generating_ns: 10, ..HeldUp::default() }));
        assert_eq!(of(&[4]), None);
    }

    #[test]
    fn prompts_on_other_threads_hold_nobody_up() {
        use Phase::{Decode, Prefill};
        let on = |thread: u32, step: StepRow| StepRow { thread, ..step };
        let steps = |of_other: u32| {
            [
                on(1, step(Prefill, 0, 10, &[(1, 1)])),
                on(of_other, step(Prefill, 20, 500, &[(2, 1)])),
                on(1, step(Decode, 600, 10, &[(1, 1)])),
            ]
        };
        let of = |of_other: u32| HeldUp::of(&steps(of_other), |_| true).map(|held| (held.waited_ns, held.waits));
        assert_eq!(of(1), Some((500, 1)));
        assert_eq!(of(2), Some((0, 0)));
    }

    #[test]
    fn steps_that_do_not_say_whom_they_serve_tell_nothing() {
        let steps = [step(Phase::Prefill, 0, 100, &[]), step(Phase::Decode, 100, 10, &[])];
        assert_eq!(HeldUp::of(&steps, |_| true), None);
    }
}
