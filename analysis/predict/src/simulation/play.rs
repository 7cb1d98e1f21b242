//! Runs a step's parts through once.

use super::step_model::{Anchor, HostPart, Parts};
use candlescope_schema::stretches::{length, merged};

/// How it went. Nanoseconds from the step's begin.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlayedStep {
    /// When the host was done.
    pub(super) host_ns: f64,
    /// When the device was done; 0 without work.
    pub(super) device_ns: f64,
    /// Start and end of each work.
    pub(super) works: Vec<(f64, f64)>,
}

impl PlayedStep {
    /// The step's time.
    pub(super) fn step_ns(&self) -> f64 {
        self.host_ns.max(self.device_ns)
    }

    /// Time within the step in which nothing ran on the device.
    pub(super) fn idle_ns(&self) -> f64 {
        let busy = merged(self.works.iter().map(|(start, end)| (start.round() as i64, end.round() as i64)));
        (self.step_ns() - length(&busy) as f64).max(0.0)
    }
}

/// Plays the parts.
pub(super) fn play(parts: &Parts) -> PlayedStep {
    let mut works: Vec<(f64, f64)> = vec![(0.0, 0.0); parts.works.len()];
    let mut now = 0.0_f64;
    for part in &parts.host {
        match *part {
            HostPart::Work { ns, .. } => now += ns,
            HostPart::Call { ns, first, count, .. } => {
                let (begin, end) = (now, now + ns);
                for at in first..first.saturating_add(count) {
                    let Some(work) = parts.works.get(at as usize) else { continue };
                    let ended = |on: u32| works.get(on as usize).map_or(0.0, |(_, end)| *end);
                    let before = work.after.map(ended);
                    let other = work.also.map(|(on, ns)| (ended(on), ns));
                    works[at as usize] = if work.gone {
                        let at = before.unwrap_or(0.0).max(other.map_or(0.0, |(at, _)| at));
                        (at, at)
                    } else {
                        let call = if work.anchor == Anchor::Begin { begin } else { end };
                        let mut start = call + work.delay_ns;
                        start = before.map_or(start, |at| start.max(at + work.queue_ns));
                        start = other.map_or(start, |(at, ns)| start.max(at + ns));
                        start = work.not_before_ns.map_or(start, |at| start.max(at));
                        (start, start + work.ns)
                    };
                }
                now = end;
            }
            HostPart::Wait { on, wake_ns } => {
                now = now.max(works.get(on as usize).map_or(0.0, |(_, end)| *end)) + wake_ns;
            }
        }
    }
    let device_ns = works.iter().zip(&parts.works).filter(|(_, work)| !work.gone).map(|((_, end), _)| *end);
    PlayedStep { host_ns: now, device_ns: device_ns.fold(0.0, f64::max), works }
}
