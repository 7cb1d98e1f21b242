//! The kernels of an interval as one.

use super::selection::roots;
use super::step_model::{HostPart, NOWHERE, Parts, StepModel};
use candlescope_schema::PathPattern;
use candlescope_work::estimate::Case;
use rustc_hash::FxHashMap;

/// The share of a peak that a fused kernel reaches, by the case of the time.
fn share_of_peak(case: Case) -> f64 {
    match case {
        Case::Low => 1.0,
        Case::Mid => 0.875,
        Case::High => 0.75,
    }
}

/// Makes one kernel of those that each interval of the path launches. Returns whether there were any.
///
/// Its time is that of the bytes which the interval says it moves, and of its FLOPs, at 100, 87.5 and 75 % of the
/// peaks; but no shorter than the step's shortest kernel, and no longer than the kernels together. If it does not say, or
/// intervals inside say it too, so that what they pass to each other is counted, it is the kernels together, and only
/// the gaps go. On the host the launch calls but one go, and none, half or all of what it does between them.
pub(super) fn fuse(model: &StepModel, parts: &mut Parts, path: &PathPattern, case: Case) -> bool {
    let roots = roots(model, path);
    let mut groups: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    for (at, work) in parts.works.iter().enumerate() {
        if work.place == NOWHERE || work.gone || work.to_host() || work.of_input() {
            continue;
        }
        // The outermost that is meant.
        if let Some(root) = model.around(work.place).filter(|place| roots.contains(place)).last() {
            groups.entry(root).or_default().push(at);
        }
    }
    let kernels = parts.works.iter().filter(|work| work.is_kernel() && !work.gone);
    let shortest = kernels.map(|work| work.recorded_ns).fold(f64::INFINITY, f64::min);
    let mut groups: Vec<(u32, Vec<usize>)> = groups.into_iter().filter(|(_, works)| works.len() > 1).collect();
    groups.sort_unstable();
    let calls = Calls::of(parts);
    let mut any = false;
    for (root, works) in groups {
        let (Some(first), Some(last)) = (works.first().copied(), works.last().copied()) else { continue };
        let (Some(from), Some(to)) = (calls.of_work(first), calls.of_work(last)) else { continue };
        if from == to || parts.host[from..to].iter().any(|part| matches!(part, HostPart::Wait { .. })) {
            continue;
        }
        any = true;
        let sum: f64 = works.iter().map(|at| parts.works[*at].ns).sum();
        let recorded: f64 = works.iter().map(|at| parts.works[*at].recorded_ns).sum();
        // What other changes did to the kernels they do to the one as well.
        let changed = if recorded > 0.0 { sum / recorded } else { 1.0 };
        let ns = external_ns(model, root, case).map_or(sum, |ns| (ns.max(shortest) * changed).min(sum));
        for at in &works[..works.len() - 1] {
            let work = &mut parts.works[*at];
            (work.gone, work.ns) = (true, 0.0);
        }
        parts.works[last].ns = ns;
        let kept = match case {
            Case::Low => 0.0,
            Case::Mid => 0.5,
            Case::High => 1.0,
        };
        for part in &mut parts.host[from..to] {
            match part {
                HostPart::Call { ns, first, count, .. } => {
                    let launched = *first as usize..first.saturating_add(*count) as usize;
                    if parts.works[launched].iter().all(|work| work.gone) {
                        *ns = 0.0;
                    }
                }
                HostPart::Work { ns, .. } => *ns *= kept,
                HostPart::Wait { .. } => {}
            }
        }
    }
    any
}

/// What the interval's own bytes and FLOPs take at a share of the peaks.
fn external_ns(model: &StepModel, root: u32, case: Case) -> Option<f64> {
    let place = model.places.get(root as usize)?;
    let bytes = place.io_bytes?;
    // Those inside follow it, before any other.
    let is_inside = |at: &usize| model.around(*at as u32).any(|around| around == root);
    let mut inside = (root as usize + 1..model.places.len()).take_while(is_inside);
    if inside.any(|at| model.places[at].io_bytes.is_some()) {
        return None;
    }
    let facts = model.facts();
    let moving = bytes / facts.bandwidth?;
    let computing = place.flops.zip(facts.flops).map_or(0.0, |(flops, peak)| flops / peak);
    Some(moving.max(computing) * 1e9 / share_of_peak(case))
}

/// Which call launched a work.
struct Calls(Vec<u32>);

impl Calls {
    fn of(parts: &Parts) -> Self {
        let mut by_work = vec![NOWHERE; parts.works.len()];
        for (at, part) in parts.host.iter().enumerate() {
            if let HostPart::Call { first, count, .. } = part {
                let end = (first.saturating_add(*count) as usize).min(by_work.len());
                by_work[(*first as usize).min(end)..end].fill(at as u32);
            }
        }
        Self(by_work)
    }

    fn of_work(&self, work: usize) -> Option<usize> {
        self.0.get(work).copied().filter(|at| *at != NOWHERE).map(|at| at as usize)
    }
}
