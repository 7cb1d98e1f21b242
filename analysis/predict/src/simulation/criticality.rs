//! How much longer a step takes for each nanosecond that is added to a path: by a replay, to stand beside an experiment.

use super::apply::apply;
use super::change::Change;
use super::group::StepGroup;
use super::play::play;
use super::replay::Replay;
use super::selection::inside;
use super::step_model::{HostPart, NOWHERE, Parts, StepModel};
use super::unrecorded::unrecorded;
use candlescope_schema::{PathPattern, Side};
use candlescope_work::estimate::{Case, Estimate};

impl StepGroup {
    /// The step's growth over the time added to a path on one side: 1 if all of the path's time there is on the critical path,
    /// 0 if there is slack for all of it. `added_ns` is added to a step, divided over the path's intervals as their time is. `None`
    /// if the steps cannot be replayed, or have no such path there.
    pub fn criticality(&self, path: &PathPattern, side: Side, added_ns: f64) -> Option<Estimate> {
        let all: Vec<Estimate> = self
            .models()
            .iter()
            .filter_map(|model| Replay::of(model).ok())
            .filter_map(|replay| of_step(replay.model(), path, side, added_ns))
            .collect();
        Estimate::median(&all)
    }
}

fn of_step(model: &StepModel, path: &PathPattern, side: Side, added_ns: f64) -> Option<Estimate> {
    let mut slopes = Vec::new();
    for recorded in Case::ALL {
        let (parts, _) = unrecorded(&model.parts, &model.facts.recording, recorded);
        let own = time(model, &parts, path, side);
        if own <= 0.0 || added_ns <= 0.0 {
            return None;
        }
        let change = Change::Path { path: path.clone(), side: Some(side), factor: 1.0 + added_ns / own };
        let mut longer = parts.clone();
        apply(model, &mut longer, &[change], Case::Mid).ok()?;
        let added = time(model, &longer, path, side) - own;
        slopes.push((play(&longer).step_ns() - play(&parts).step_ns()) / added);
    }
    let mid = *slopes.get(1)?;
    Some(Estimate::around(mid, slopes))
}

/// Time of a path's intervals on a side, with what is inside them.
fn time(model: &StepModel, parts: &Parts, path: &PathPattern, side: Side) -> f64 {
    let inside = inside(model, path);
    match side {
        Side::Host => parts.host.iter().fold(0.0, |sum, part| match part {
            HostPart::Work { ns, place, .. } | HostPart::Call { ns, place, .. } if inside.contains(place) => sum + ns,
            _ => sum,
        }),
        Side::Device => {
            let works = parts.works.iter().filter(|work| work.place != NOWHERE && inside.contains(&work.place));
            works.map(|work| work.ns).sum()
        }
    }
}
