//! One operation as several small kernels: norms, rotary embeddings, activations, softmax.

use super::draft::{Draft, RuleResults};
use super::query::kernels_of_path;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::{PhaseWork, PlacedKernel};
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::kernel_family::KernelFamily;
use candlescope_predict::simulation::Change;
use candlescope_schema::{KernelKind, PathPattern};
use std::collections::BTreeMap;

/// Kernels of one interval that could be one with the kernel before them: from this number on it is no accident.
const FOLLOWERS: f64 = 0.9;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::Unfused;
    if !scene.on_gpu {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    let mut paths: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, row) in work.rows.iter().enumerate() {
        let fuses = row.kind == KernelKind::Kernel && KernelFamily::of(&row.name).can_fuse();
        if let Some(path) = row.path.as_deref().filter(|path| fuses && step.has(path)) {
            paths.entry(path).or_default().push(at);
        }
    }
    // No kernel is shorter than the shortest one that was seen.
    let floor = shortest(work);
    for (path, rows) in paths {
        one(scene, step, work, (path, rows), floor, out);
    }
}

fn one(
    scene: &Scene<'_>,
    step: &StepScene<'_>,
    work: &PhaseWork,
    (path, rows): (&str, Vec<usize>),
    floor: f64,
    out: &mut RuleResults,
) {
    let sum = |value: fn(&PlacedKernel) -> u64| rows.iter().map(|at| value(&work.rows[*at])).sum::<u64>();
    let (count, follows, ns) = (sum(|row| row.count), sum(|row| row.follows), sum(|row| row.ns));
    // Each chain of followers has one kernel that follows nothing: it is what they become.
    let chains = count.saturating_sub(follows);
    if chains == 0 || (follows as f64) < FOLLOWERS * chains as f64 {
        return;
    }
    let calls = step.each(chains);
    let totals = scene.totals(path);
    let bytes = totals
        .filter(|totals| !totals.io_missing && totals.gpu.recorded_calls > 0)
        .and_then(|totals| Some(totals.recorded.io_bytes? as f64 / totals.gpu.recorded_calls as f64));
    let longest = rows.iter().map(|at| &work.rows[*at]).map(|row| row.ns as f64 / row.count.max(1) as f64);
    let by_bytes = bytes.zip(scene.roof.bandwidth()).map(|(bytes, peak)| bytes / peak.value * 1e9);
    // One kernel for all of them takes no longer than they do apart.
    let apart = ns as f64 / chains as f64;
    let each = by_bytes.unwrap_or_else(|| longest.fold(0.0, f64::max)).max(floor).min(apart);
    // One name may stand in several rows, launched in several ways.
    let mut names: Vec<&str> = Vec::new();
    for at in &rows {
        let name = &*work.rows[*at].name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let draft = Draft::new(AdviceCode::Unfused, step)
        .at(|place| place.path(path).kernel(&names.join(" + ")))
        .measured("kernels", "count", step.each(count), work.steps)
        .measured("device_ns", "ns", step.each(ns), count)
        .derived("become", "count", calls, work.steps)
        .derived("fused_ns", "ns", each * calls, work.steps)
        .query(kernels_of_path(step, path, &names));
    let draft = match by_bytes {
        Some(_) => draft.bandwidth(scene).sure(
            ConfidenceLevel::Medium,
            "bytes in and out are stated, and what one kernel takes is computed from them",
        ),
        None => draft.sure(
            ConfidenceLevel::Low,
            "bytes in and out are not stated: one kernel is taken to need as long as the longest of these",
        ),
    };
    // A replay takes kernels whose bytes are not stated for no quicker together than apart.
    let whole = by_bytes.is_some() && becomes_one_each(scene, work, path, chains);
    let replay = |_| Some(vec![Change::Fuse { path: pattern(path).filter(|_| whole)? }]);
    out.found.push(draft.replayed(|rate| Relief::Fuse { rows: rows.clone(), ns: each * calls, rate }, replay));
}

/// Whether each interval of a path has one chain of such kernels and no other kernel: then all of it can become one.
pub(super) fn becomes_one_each(scene: &Scene<'_>, work: &PhaseWork, path: &str, chains: u64) -> bool {
    let calls = scene.totals(path).map_or(0, |totals| totals.gpu.recorded_calls);
    let own = work.rows.iter().filter(|row| row.path.as_deref() == Some(path) && row.kind == KernelKind::Kernel);
    calls == chains && own.map(|row| KernelFamily::of(&row.name)).all(KernelFamily::can_fuse)
}

/// A path without ordinals, or its module, as a replay names it.
pub(super) fn pattern(path: &str) -> Option<PathPattern> {
    let module = path.split_once('/').map(|(_, rest)| rest).filter(|rest| rest.contains('.'));
    PathPattern::new(module.unwrap_or(path))
}

/// Mean of the row with the shortest kernels, in nanoseconds.
pub(super) fn shortest(work: &PhaseWork) -> f64 {
    let kernels = work.rows.iter().filter(|row| row.kind == KernelKind::Kernel && row.count > 0);
    kernels.map(|row| row.ns as f64 / row.count as f64).reduce(f64::min).unwrap_or(0.0)
}
