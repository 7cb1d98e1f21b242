//! How much longer a step takes for each nanosecond that is added to a path: by a replay, to stand beside an
//! experiment, which adds it where this does: behind each interval of the path.

use super::group::StepGroup;
use super::play::play;
use super::replay::Replay;
use super::selection::roots;
use super::step_model::{HostPart, NOWHERE, Parts, StepModel};
use super::unrecorded::unrecorded;
use candlescope_schema::{PathPattern, Side};
use candlescope_work::estimate::{Case, Estimate};

impl StepGroup {
    /// The step's growth over the time added to a path on one side: 1 if all of the path's time there is on the
    /// critical path, 0 if there is slack for all of it. `added_ns` is added to a step, divided over the path's
    /// intervals as their time is. `None` if the steps cannot be replayed, or have no such path there.
    pub fn criticality(&self, path: &PathPattern, side: Side, added_ns: f64) -> Option<Estimate> {
        let replays = self.models().iter().filter_map(|model| Replay::of(model).ok());
        let all: Vec<Estimate> = replays.filter_map(|replay| of_step(replay.model(), path, side, added_ns)).collect();
        Estimate::median(&all)
    }
}

fn of_step(model: &StepModel, path: &PathPattern, side: Side, added_ns: f64) -> Option<Estimate> {
    let mut slopes = Vec::new();
    for recorded in Case::ALL {
        let (parts, _) = unrecorded(&model.parts, &model.facts.recording, recorded);
        let mut longer = parts.clone();
        add(model, &mut longer, path, side, added_ns)?;
        slopes.push((play(&longer).step_ns() - play(&parts).step_ns()) / added_ns);
    }
    let mid = *slopes.get(1)?;
    Some(Estimate::around(mid, slopes))
}

/// One interval of the path: its time on the side, and the last part of it there.
#[derive(Clone, Copy, Default)]
struct PathTime {
    ns: f64,
    last: Option<usize>,
}

/// Adds time behind the last thing that each interval of the path does on the side.
fn add(model: &StepModel, parts: &mut Parts, path: &PathPattern, side: Side, added_ns: f64) -> Option<()> {
    let meant = roots(model, path);
    // Of intervals inside each other, the outer one.
    let outermost = |place: u32| model.around(place).filter(|around| meant.contains(around)).last();
    let mut own = vec![PathTime::default(); model.places.len()];
    let mut note = |place: u32, at: usize, ns: f64| {
        if let Some(own) = outermost(place).and_then(|root| own.get_mut(root as usize)) {
            (own.ns, own.last) = (own.ns + ns, Some(at));
        }
    };
    match side {
        Side::Host => {
            for (at, part) in parts.host.iter().enumerate() {
                if let HostPart::Work { ns, place, .. } | HostPart::Call { ns, place, .. } = part {
                    note(*place, at, *ns);
                }
            }
        }
        Side::Device => {
            let works = parts.works.iter().enumerate().filter(|(_, work)| work.place != NOWHERE && !work.gone);
            works.for_each(|(at, work)| note(work.place, at, work.ns));
        }
    }
    let all: f64 = own.iter().map(|own| own.ns).sum();
    if all <= 0.0 || added_ns <= 0.0 {
        return None;
    }
    // From the end, so that places before stay what they are.
    let mut ends: Vec<(usize, f64)> = own.iter().filter_map(|own| Some((own.last?, added_ns * own.ns / all))).collect();
    ends.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
    for (at, ns) in ends {
        match side {
            Side::Host => parts.host.insert(at + 1, HostPart::Work { ns, place: NOWHERE, boundaries: 0 }),
            Side::Device => parts.works[at].ns += ns,
        }
    }
    Some(())
}
