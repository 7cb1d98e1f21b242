//! What a request's steps took beyond what is usual, by what their threads did, and the parts of a request's difference.

use super::alike::{StepWithThread, UsualStep};
use crate::latency::RequestFigures;
use crate::stats::percentile_of;

/// Steps that hold so much of a part are nearly all of it.
const NEARLY_ALL: f64 = 0.9;

/// A part of the difference between a request and the median one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// Before its first step.
    Queue,
    /// Time after its first step in which none of its steps was open.
    Between,
    /// What its steps usually take: they are more of them, or of more tokens.
    Work,
    /// Its steps were on a CPU for longer.
    OnCpu,
    /// Another thread had the CPU.
    Preempted,
    /// Its steps waited for longer, without what longer kernels account for.
    Blocked,
    /// Its kernels took longer, and the host waited for them.
    Gpu,
    /// Its steps took longer, and it is not known what their threads did.
    Unknown,
    /// Steps of it, and time between them, that were not recorded.
    Unrecorded,
    /// Medians of parts do not add up to the median of the whole, and steps may overlap.
    Rest,
}

impl PartKind {
    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Between => "between",
            Self::Work => "work",
            Self::OnCpu => "on_cpu",
            Self::Preempted => "preempted",
            Self::Blocked => "blocked",
            Self::Gpu => "gpu",
            Self::Unknown => "unknown",
            Self::Unrecorded => "unrecorded",
            Self::Rest => "rest",
        }
    }
}

/// A part, and how much it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Which part of the request's time this is about.
    pub kind: PartKind,
    /// Nanoseconds more than usual, negative if less; `None` if that is not known.
    pub ns: Option<f64>,
    /// The fewest of its steps that hold nearly all of it; `None` of a part that is in no step.
    pub steps: Option<u64>,
}

/// A step with what is usual for it, and how the difference divides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split<'a> {
    pub(super) step: StepWithThread<'a>,
    pub(super) usual: UsualStep,
    /// On a CPU, preempted, blocked beyond what is usual, without what is the GPU's; `None` if it is not known.
    pub(super) states: Option<[f64; 3]>,
    /// Time in which the host waited because the kernels took longer.
    gpu_ns: Option<f64>,
    /// The rest of what the step took beyond what is usual, if nobody knows what its thread did.
    unknown_ns: f64,
}

impl<'a> Split<'a> {
    pub(super) fn of(step: StepWithThread<'a>, usual: UsualStep) -> Self {
        let more_ns = step.row.dur_ns as f64 - usual.dur_ns;
        let states = step.thread.states.zip(usual.states).map(|(own, usual)| {
            [own.cpu_ns as f64 - usual[0], own.preempted_ns as f64 - usual[1], own.blocked_ns as f64 - usual[2]]
        });
        let kernels = step.kernels_ns().zip(usual.kernels_ns).map(|(own, usual)| own as f64 - usual);
        let Some([on_cpu, preempted, blocked]) = states else {
            let gpu_ns = kernels.map(|ns| ns.clamp(0.0, more_ns.max(0.0)));
            return Self { step, usual, states: None, gpu_ns, unknown_ns: more_ns - gpu_ns.unwrap_or(0.0) };
        };
        // The host waits for the device asleep or, as CUDA does by default, busily.
        let asleep = kernels.unwrap_or(0.0).clamp(0.0, blocked.max(0.0));
        let busily = (kernels.unwrap_or(0.0) - asleep).clamp(0.0, on_cpu.max(0.0));
        let states = Some([on_cpu - busily, preempted, blocked - asleep]);
        Self { step, usual, states, gpu_ns: kernels.map(|_| asleep + busily), unknown_ns: 0.0 }
    }

    /// What it took beyond what is usual in a part that steps have, nanoseconds.
    fn part(&self, kind: PartKind) -> Option<f64> {
        match kind {
            PartKind::OnCpu => self.states.map(|states| states[0]),
            PartKind::Preempted => self.states.map(|states| states[1]),
            PartKind::Blocked => self.states.map(|states| states[2]),
            PartKind::Gpu => self.gpu_ns,
            PartKind::Unknown => self.states.is_none().then_some(self.unknown_ns),
            _ => None,
        }
    }

    /// What it took beyond what is usual, nanoseconds.
    pub(super) fn more_ns(&self) -> f64 {
        self.step.row.dur_ns as f64 - self.usual.dur_ns
    }
}

/// One of a request's steps.
#[derive(Debug, Clone, PartialEq)]
pub struct StepExcess {
    /// Number of the step in the run, from 0 in order of start over all threads.
    pub step: u64,
    /// Its phase, or its name.
    pub name: String,
    /// When it began, nanoseconds since the request did.
    pub at_ns: u64,
    /// Duration on the host, in nanoseconds.
    pub dur_ns: u64,
    /// What it took beyond what is usual for steps like it, nanoseconds.
    pub more_ns: f64,
    /// Whether there are steps like it. If not, only time preempted counts as more.
    pub has_like: bool,
    /// Time on a CPU, preempted, blocked, nanoseconds; `None` if that is not known.
    pub states: Option<[u64; 3]>,
    /// Pages that the system had to provide.
    pub page_faults: Option<u64>,
    /// Time on the device, nanoseconds.
    pub gpu_ns: Option<u64>,
}

impl StepExcess {
    pub(super) fn of(split: &Split<'_>, start_ns: i64) -> Self {
        let (row, thread) = (split.step.row, split.step.thread);
        Self {
            step: row.step,
            name: row.group().to_string(),
            at_ns: u64::try_from(row.start_ns.saturating_sub(start_ns)).unwrap_or(0),
            dur_ns: row.dur_ns,
            more_ns: split.more_ns(),
            has_like: split.usual.has_like,
            states: thread.states.map(|states| [states.cpu_ns, states.preempted_ns, states.blocked_ns]),
            page_faults: thread.page_faults,
            gpu_ns: row.gpu_ns,
        }
    }
}

/// Parts that a request's time is made of beside the rest, in the order in which they are shown.
const KINDS: [PartKind; 8] = [
    PartKind::Queue,
    PartKind::Between,
    PartKind::Work,
    PartKind::OnCpu,
    PartKind::Preempted,
    PartKind::Blocked,
    PartKind::Gpu,
    PartKind::Unknown,
];

/// The time of a request: queue and time between its steps, what its steps usually take, and what they took beyond that.
pub(super) struct Times([Option<f64>; KINDS.len()]);

impl Times {
    /// Of a request with its steps; `is_whole` says that all of these are recorded.
    pub(super) fn of(figures: &RequestFigures, steps: &[Split<'_>], is_whole: bool) -> Self {
        Self(KINDS.map(|kind| match kind {
            PartKind::Queue => {
                figures.queue_ns.or(figures.parts.as_ref().map(|parts| parts.queue_ns)).map(|ns| ns as f64)
            }
            PartKind::Between => figures.parts.as_ref().filter(|_| is_whole).map(|parts| parts.between_ns as f64),
            PartKind::Work => is_whole.then(|| steps.iter().map(|step| step.usual.dur_ns).sum()),
            _ => {
                let mut known = steps.iter().filter_map(|step| step.part(kind)).peekable();
                known.peek().is_some().then(|| known.sum())
            }
        }))
    }
}

/// The parts of the difference between a request that took `more_ns` longer than the median and the `usual` ones.
pub(super) fn parts(own: &Times, usual: &[Times], steps: &[Split<'_>], more_ns: f64, is_whole: bool) -> Vec<Part> {
    // Not the median request's own parts: one that is held up in one part and quick in the others may be in the middle.
    let usual_ns =
        |at: usize| percentile_of(&usual.iter().filter_map(|one| one.0[at]).collect::<Vec<_>>(), 0.5).unwrap_or(0.0);
    let part = |(at, kind): (usize, PartKind)| {
        let each: Vec<f64> = steps.iter().filter_map(|step| step.part(kind)).collect();
        Part { kind, ns: own.0[at].map(|ns| ns - usual_ns(at)), steps: holders(each) }
    };
    let all = KINDS.into_iter().enumerate().map(part);
    let mut parts: Vec<Part> = all.filter(|part| part.kind != PartKind::Unknown || part.ns.is_some()).collect();
    let told: f64 = parts.iter().filter_map(|part| part.ns).sum();
    let kind = if is_whole { PartKind::Rest } else { PartKind::Unrecorded };
    parts.push(Part { kind, ns: Some(more_ns - told), steps: None });
    parts
}

/// The fewest that hold nearly all of the sum.
fn holders(mut each: Vec<f64>) -> Option<u64> {
    let all: f64 = each.iter().sum();
    let sign = if all < 0.0 { -1.0 } else { 1.0 };
    each.iter_mut().for_each(|ns| *ns *= sign);
    each.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut n) = (0.0, 0);
    for ns in each.iter().take_while(|ns| **ns > 0.0) {
        if sum >= NEARLY_ALL * all.abs() {
            break;
        }
        sum += ns;
        n += 1;
    }
    (!each.is_empty()).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_rows::{StepRow, outermost};
    use crate::step_threads::{StepThread, ThreadStates};
    use candlescope_schema::{GpuSource, HostNs, PathInfo, StepRecord, ThreadInfo, TraceId};
    use std::sync::Arc;

    /// A step with its time on a CPU and blocked, and that of its kernels.
    fn row(dur_ns: u64, kernels_ns: Option<u64>) -> StepRow {
        let (path, thread) = (PathInfo::new(0, "decode", "decode", ""), ThreadInfo::new(1, 0, "main"));
        let step = StepRecord::new(0, 0, TraceId(1), Arc::new(path), Arc::new(thread), HostNs(0), dur_ns);
        StepRow { gpu_ns: kernels_ns, gpu_source: kernels_ns.map(|_| GpuSource::Cupti), ..StepRow::of(&step) }
    }

    fn states(cpu_ns: u64, blocked_ns: u64) -> StepThread {
        StepThread { states: Some(ThreadStates { cpu_ns, preempted_ns: 0, blocked_ns }), page_faults: None }
    }

    const USUAL: UsualStep = UsualStep {
        dur_ns: 100.0,
        states: Some([80.0, 0.0, 20.0]),
        page_faults: None,
        kernels_ns: Some(50.0),
        has_like: true,
    };

    fn part(step: &Split<'_>, kind: PartKind) -> Option<f64> {
        step.part(kind)
    }

    #[test]
    fn the_host_waits_longer_because_kernels_do_asleep_or_busily() {
        let long = row(160, Some(90));
        let of =
            |cpu_ns, blocked_ns| Split::of(StepWithThread { row: &long, thread: states(cpu_ns, blocked_ns) }, USUAL);
        let three = |step: &Split<'_>| [PartKind::OnCpu, PartKind::Blocked, PartKind::Gpu].map(|kind| part(step, kind));
        assert_eq!(three(&of(80, 80)), [Some(0.0), Some(20.0), Some(40.0)], "asleep, and for something else");
        assert_eq!(three(&of(140, 20)), [Some(20.0), Some(0.0), Some(40.0)], "busily");
        assert_eq!(three(&of(110, 50)), [Some(20.0), Some(0.0), Some(40.0)], "both");
    }

    #[test]
    fn without_kernels_or_threads_nothing_is_said_of_them() {
        let (plain, timed) = (row(160, None), row(160, Some(90)));
        let no_kernels = Split::of(StepWithThread { row: &plain, thread: states(140, 20) }, USUAL);
        assert_eq!([PartKind::Gpu, PartKind::Unknown].map(|kind| part(&no_kernels, kind)), [None, None]);
        assert_eq!(part(&no_kernels, PartKind::OnCpu), Some(60.0));
        let no_threads = Split::of(StepWithThread { row: &timed, thread: StepThread::default() }, USUAL);
        assert_eq!(part(&no_threads, PartKind::OnCpu), None);
        assert_eq!([PartKind::Gpu, PartKind::Unknown].map(|kind| part(&no_threads, kind)), [Some(40.0), Some(20.0)]);
    }

    #[test]
    fn few_steps_hold_nearly_all_of_a_part() {
        assert_eq!(holders(vec![1.0, 40.0, -2.0, 50.0, 1.0]), Some(2));
        assert_eq!(holders(vec![-5.0, 1.0, -5.0]), Some(2));
        assert_eq!([holders(vec![0.0, 0.0]), holders(Vec::new())], [Some(0), None]);
    }

    #[test]
    fn a_step_inside_another_one_counts_with_that() {
        let at = |thread, start_ns, dur_ns| StepRow { thread, start_ns, ..row(dur_ns, None) };
        let (outer, inner, beside, after) = (at(0, 0, 100), at(0, 10, 20), at(1, 10, 20), at(0, 100, 50));
        let found = outermost([&outer, &inner, &beside, &after]);
        let found: Vec<(u32, i64)> = found.iter().map(|step| (step.thread, step.start_ns)).collect();
        assert_eq!(found, [(0, 0), (1, 10), (0, 100)]);
    }
}
