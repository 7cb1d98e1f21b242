//! Waits of the host for the device that no recorded call explains, such as `cuStreamSynchronize`, which a run does not
//! have. They are found by when the host went on.

use super::calls::{Call, Times};
use super::step_model::DeviceWork;

/// A wait is at least so long, in nanoseconds: shorter ones cannot be told from work, and matter little.
const SHORTEST_NS: f64 = 20_000.0;
/// The host goes on within so many nanoseconds after the device was done.
const WAKE_NS: f64 = 25_000.0;
/// Works that may be in the queue before a launch has to wait for room. The driver has room for some 1,000 of them.
const FULL: usize = 512;

/// Looks for waits.
pub(super) struct Finder<'a> {
    calls: &'a [Call],
    times: &'a Times,
    /// Of each call: the work that ends last of all that were launched up to it.
    last: Vec<u32>,
    pub(super) usual_call: f64,
}

impl<'a> Finder<'a> {
    pub(super) fn new(calls: &'a [Call], works: &[DeviceWork], times: &'a Times, usual_call: f64) -> Self {
        let mut last = Vec::with_capacity(calls.len());
        let mut best: Option<u32> = None;
        for call in calls {
            let own = (call.first..call.first + call.count).filter(|at| (*at as usize) < works.len());
            for at in own {
                if best.is_none_or(|best| times[at as usize].1 > times[best as usize].1) {
                    best = Some(at);
                }
            }
            last.push(best.unwrap_or(call.first));
        }
        Self { calls, times, last, usual_call }
    }

    /// When a work ended.
    pub(super) fn end(&self, work: u32) -> f64 {
        self.times[work as usize].1
    }

    /// The work that the host waited for from `from` to `to`, after `calls` calls, if it looks like that: for most of
    /// the time the device had work, it then ran out of all that had been launched, and the host went on at once.
    pub(super) fn wait(&self, calls: usize, from: f64, to: f64) -> Option<u32> {
        let last = *self.last.get(calls.checked_sub(1)?)?;
        let end = self.end(last);
        let long = to - from >= SHORTEST_NS && end - from >= (to - from) / 2.0;
        (long && end <= to && to - end <= WAKE_NS).then_some(last)
    }

    /// The work whose end made room for call `number`, if the queue looks full: the call took far longer than usual,
    /// and hundreds of works were still to run.
    pub(super) fn full_queue(&self, number: usize) -> Option<u32> {
        let call = &self.calls[number];
        let ns = call.end - call.begin;
        if ns < SHORTEST_NS || ns < self.usual_call * 5.0 {
            return None;
        }
        let first = call.first as usize;
        let waiting = self.times[..first].iter().filter(|(_, end)| *end > call.end).count();
        if waiting < FULL {
            return None;
        }
        let ended = (0..first).filter(|at| self.times[*at].1 > call.begin && self.times[*at].1 <= call.end);
        ended.max_by(|a, b| self.times[*a].1.total_cmp(&self.times[*b].1)).map(|at| at as u32)
    }
}
