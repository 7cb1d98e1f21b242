//! What each path of a step takes itself, before changes and after them.

use super::abstain::Abstain;
use super::apply::apply;
use super::change::Change;
use super::group::StepGroup;
use super::replay::Replay;
use super::step_model::{HostPart, Parts, StepModel};
use super::unrecorded::unrecorded;
use candlescope_schema::Side;
use candlescope_work::estimate::Case;
use std::collections::BTreeMap;

/// The time of a path in a typical step as it runs unobserved, that of the paths inside it left out. Nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct PathTime {
    /// The path with its ordinals.
    pub path: String,
    /// Before the changes, a mean over the steps.
    pub before_ns: f64,
    /// After the changes, by the value to reckon with of what they do.
    pub after_ns: f64,
}

impl StepGroup {
    /// What the paths of a step take on one side before and after changes, all at once, in the order of their names: the
    /// sums of the work there. The step itself is shorter where work of both sides overlaps, and longer where one waits.
    ///
    /// Steps in which a change finds nothing to change are left out.
    ///
    /// # Errors
    /// If no step can be replayed, a change needs what the run does not have, or finds nothing in any step.
    pub fn path_times(&self, changes: &[Change], side: Side) -> Result<Vec<PathTime>, Abstain> {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        let (mut steps, mut refused) = (0_u32, None);
        for model in self.models() {
            let changed = Replay::of(model).and_then(|_| {
                let (before, _) = unrecorded(&model.parts, &model.facts.recording, Case::Mid);
                let mut after = before.clone();
                apply(model, &mut after, changes, Case::Mid).map(|()| (before, after))
            });
            match changed {
                Ok((before, after)) => {
                    steps += 1;
                    each(model, &before, side, |path, ns| sums.entry(path).or_default().0 += ns);
                    each(model, &after, side, |path, ns| sums.entry(path).or_default().1 += ns);
                }
                Err(abstain) => refused = refused.or(Some(abstain)),
            }
        }
        match refused {
            Some(abstain) if steps == 0 => Err(abstain),
            _ if steps == 0 => Err(Abstain::NoSteps),
            _ => {
                let mean = |ns: f64| ns / f64::from(steps);
                let one = |(path, (before, after)): (&str, (f64, f64))| PathTime {
                    path: path.to_string(),
                    before_ns: mean(before),
                    after_ns: mean(after),
                };
                Ok(sums.into_iter().map(one).collect())
            }
        }
    }
}

/// Each work of a side, with the path of the interval that it is in.
fn each<'a>(model: &'a StepModel, parts: &Parts, side: Side, mut one: impl FnMut(&'a str, f64)) {
    let mut note = |place: u32, ns: f64| {
        if let Some(place) = model.places.get(place as usize) {
            one(&place.path, ns);
        }
    };
    match side {
        Side::Host => {
            for part in &parts.host {
                if let HostPart::Work { ns, place, .. } | HostPart::Call { ns, place, .. } = part {
                    note(*place, *ns);
                }
            }
        }
        Side::Device => {
            parts.works.iter().filter(|work| !work.gone).for_each(|work| note(work.place, work.ns));
        }
    }
}
