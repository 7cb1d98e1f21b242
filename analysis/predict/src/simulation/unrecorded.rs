//! Takes what recording cost out of a step.

use super::step_model::{HostPart, Parts, Recording};
use candlescope_work::estimate::Case;

/// What was taken out. Nanoseconds of the host's time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct RecordingCost {
    pub(super) intervals_ns: f64,
    pub(super) calls_ns: f64,
}

/// The parts without what recording cost them, by the low, mid or high estimate of it.
///
/// A cost is taken from the part that it fell into, and what that part is too short for from those that follow, and in
/// the end from those before: a clock is read somewhere within a boundary's cost. Time that the host waited for the
/// device gives nothing back.
pub(super) fn unrecorded(parts: &Parts, recording: &Recording, case: Case) -> (Parts, RecordingCost) {
    let boundary = (recording.interval_ns.at(case) + recording.marks_ns.at(case)) / 2.0;
    let call = recording.call_ns.at(case);
    let mut out = parts.clone();
    let (mut taken, mut owed, mut owed_calls) = (RecordingCost::default(), 0.0, 0.0);
    let pay = |ns: &mut f64, owed: &mut f64, taken: &mut f64| {
        let paid = owed.min(*ns).max(0.0);
        (*ns, *owed, *taken) = (*ns - paid, *owed - paid, *taken + paid);
    };
    let mut one = |part: &mut HostPart, owed: &mut f64, owed_calls: &mut f64| {
        if let HostPart::Work { ns, .. } | HostPart::Call { ns, .. } = part {
            pay(ns, owed_calls, &mut taken.calls_ns);
            pay(ns, owed, &mut taken.intervals_ns);
        }
    };
    for part in &mut out.host {
        match part {
            HostPart::Work { boundaries, .. } => owed += boundary * f64::from(*boundaries),
            HostPart::Call { .. } => owed_calls += call,
            HostPart::Wait { .. } => {}
        }
        one(part, &mut owed, &mut owed_calls);
    }
    for part in out.host.iter_mut().rev() {
        if owed <= 0.0 && owed_calls <= 0.0 {
            break;
        }
        one(part, &mut owed, &mut owed_calls);
    }
    (out, taken)
}
