//! Changes the parts of a step. What leaves its graph first, then rates of work, then fusing, then graphs, whatever the
//! order they were given in: calls of a step that left its graph are the host's as others are, and a graph launches
//! what is left.

use super::abstain::Abstain;
use super::change::Change;
use super::selection::{inside, needs_device};
use super::step_model::{HostPart, NOWHERE, Parts, StepModel};
use super::{eager, fusing, graphs, rates};
use candlescope_schema::{PathPattern, Side};
use candlescope_work::estimate::Case;

/// Applies the changes. `case` is that of the resulting time: low takes what makes the step fastest.
pub(super) fn apply(model: &StepModel, parts: &mut Parts, changes: &[Change], case: Case) -> Result<(), Abstain> {
    for change in changes.iter().filter(|change| **change == Change::Eager) {
        needs_device(parts, change)?;
        needs(eager::replays_graph(parts), change, "no graph launches any of it")?;
        let Some(launches) = &model.facts().eager_launches else {
            return Err(Abstain::NoPeak { change: change.to_string(), what: "time to launch a kernel" });
        };
        eager::leave(launches, parts, case);
    }
    for change in changes {
        match change {
            Change::Kernel { name, factor } => {
                needs_device(parts, change)?;
                let mut met = false;
                for work in parts.works.iter_mut().filter(|work| work.is_kernel() && name.matches(&work.name)) {
                    work.ns *= factor;
                    met = true;
                }
                needs(met, change, "no kernel has such a name")?;
            }
            Change::Path { path, side, factor } => scale_path(model, parts, change, (path, *side), *factor)?,
            Change::Host { factor } => parts.host.iter_mut().for_each(|part| scale(part, *factor)),
            Change::Bits { bits } => rates::bits(model, parts, change, *bits, case)?,
            Change::Clock { factor } => rates::clock(model, parts, change, *factor, case)?,
            Change::Batch { sequences } => rates::batch(model, parts, change, *sequences, case)?,
            Change::Eager | Change::Graph | Change::Fuse { .. } => {}
        }
    }
    for change in changes {
        if let Change::Fuse { path } = change {
            needs_device(parts, change)?;
            let fused = fusing::fuse(model, parts, path, case);
            needs(fused, change, "no interval of this path launches more than one kernel without a wait in between")?;
        }
    }
    for change in changes.iter().filter(|change| **change == Change::Graph) {
        needs_device(parts, change)?;
        let captured = graphs::capture(model.facts(), parts, case);
        needs(captured, change, "there are not two calls in a row that a graph could launch")?;
    }
    Ok(())
}

fn needs(met: bool, change: &Change, why: &str) -> Result<(), Abstain> {
    if met {
        return Ok(());
    }
    Err(Abstain::NothingToChange { change: change.to_string(), why: why.to_string() })
}

fn scale(part: &mut HostPart, factor: f64) {
    if let HostPart::Work { ns, .. } | HostPart::Call { ns, .. } = part {
        *ns *= factor;
    }
}

fn scale_path(
    model: &StepModel,
    parts: &mut Parts,
    change: &Change,
    (path, side): (&PathPattern, Option<Side>),
    factor: f64,
) -> Result<(), Abstain> {
    let inside = inside(model, path);
    needs(!inside.is_empty(), change, "no interval has such a path or module")?;
    let on_host = if side == Some(Side::Device) { &mut [][..] } else { &mut parts.host[..] };
    for part in on_host {
        match part {
            HostPart::Work { place, .. } | HostPart::Call { place, .. } if inside.contains(place) => {
                scale(part, factor);
            }
            _ => {}
        }
    }
    let on_device = if side == Some(Side::Host) { &mut [][..] } else { &mut parts.works[..] };
    for work in on_device.iter_mut().filter(|work| work.place != NOWHERE && inside.contains(&work.place)) {
        work.ns *= factor;
    }
    Ok(())
}
