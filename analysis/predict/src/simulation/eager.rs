//! A graph's launch replaced by calls, one for each of its nodes.

use super::graphs::launched;
use super::step_model::{Anchor, DELAY_NS, EagerLaunches, HostPart, Parts, QUEUE_NS, Recording, StepModel};
use super::unrecorded::unrecorded;
use candlescope_work::estimate::{Case, Estimate, median};

/// A step that launches fewer kernels by itself does not show what launching costs.
const FEWEST: usize = 10;

/// Whether a graph launched some of the step.
pub(super) fn replays_graph(parts: &Parts) -> bool {
    parts.works.iter().any(|work| work.in_graph)
}

/// Replaces each launch of a graph by a call for each node, with what the program does until the next one. Copies from the
/// host that a graph held are not among them. Returns whether there was a graph.
pub(super) fn leave(launches: &EagerLaunches, parts: &mut Parts, case: Case) -> bool {
    let mut out = Vec::with_capacity(parts.host.len());
    let mut any = false;
    for part in &parts.host {
        let HostPart::Call { first, count, .. } = *part else {
            out.push(*part);
            continue;
        };
        if !launched(&parts.works, first, count).iter().any(|work| work.in_graph) {
            out.push(*part);
            continue;
        }
        any = true;
        for at in first..first.saturating_add(count) {
            let Some(work) = parts.works.get_mut(at as usize) else { break };
            out.push(HostPart::Call { ns: launches.host_ns.at(case), place: work.place, first: at, count: 1 });
            (work.in_graph, work.anchor) = (false, Anchor::End);
            (work.delay_ns, work.queue_ns) = (launches.delay_ns, launches.queue_ns);
            work.also = work.also.map(|(on, _)| (on, launches.queue_ns));
        }
    }
    parts.host = out;
    any
}

/// What launches cost in steps of the run that no graph launched, with what recording added to them taken out; `None` if
/// there is no such step.
pub(super) fn measured<'m>(
    models: impl IntoIterator<Item = &'m StepModel>,
    recording: &Recording,
) -> Option<EagerLaunches> {
    let eager: Vec<&StepModel> = models.into_iter().filter(|model| launches_itself(&model.parts)).collect();
    let each = |case: Case| -> Vec<f64> {
        eager.iter().filter_map(|model| each_ns(&unrecorded(&model.parts, recording, case).0)).collect()
    };
    let mid = median(each(Case::Mid))?;
    // The most correction leaves the least.
    let low = each(Case::High).into_iter().fold(mid, f64::min);
    let high = each(Case::Low).into_iter().fold(mid, f64::max);
    let works = || eager.iter().flat_map(|model| &model.parts.works).filter(|work| work.is_kernel());
    let delays = works().filter(|work| work.anchor == Anchor::End).map(|work| work.delay_ns).collect();
    let queues = works().filter(|work| work.queue_ns > 0.0).map(|work| work.queue_ns).collect();
    Some(EagerLaunches {
        host_ns: Estimate { low, mid, high },
        delay_ns: median(delays).unwrap_or(DELAY_NS),
        queue_ns: median(queues).unwrap_or(QUEUE_NS),
        source: format!("measured: {} of these steps whose kernels no graph launched", eager.len()),
    })
}

/// Whether the step launches its kernels one by one.
fn launches_itself(parts: &Parts) -> bool {
    let kernels = parts.works.iter().filter(|work| work.is_kernel()).count();
    kernels >= FEWEST && !replays_graph(parts)
}

/// What the host takes for each work, from its first call that launches a kernel to its last one, without waits.
fn each_ns(parts: &Parts) -> Option<f64> {
    let launches_kernel = |part: &HostPart| match part {
        HostPart::Call { first, count, .. } => {
            launched(&parts.works, *first, *count).iter().any(|work| work.is_kernel())
        }
        _ => false,
    };
    let from = parts.host.iter().position(launches_kernel)?;
    let to = parts.host.iter().rposition(launches_kernel)?;
    let (mut ns, mut works) = (0.0, 0_u32);
    for part in &parts.host[from..=to] {
        match part {
            HostPart::Work { ns: own, .. } => ns += own,
            HostPart::Call { ns: own, count, .. } => {
                ns += own;
                works = works.saturating_add(*count);
            }
            HostPart::Wait { .. } => {}
        }
    }
    (works > 0).then(|| ns / f64::from(works))
}
