//! Kernels that a model does not need: conversions of types, movements of data, expanding of weights.

use super::draft::{Draft, RuleResults};
use super::query::kernels_named;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::account::PlacedKernel;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::kernel_family::KernelFamily;
use candlescope_predict::simulation::{Change, NamePattern};
use candlescope_schema::KernelKind;
use std::collections::{BTreeMap, BTreeSet};

/// All kernels of a family, as one finding at the place that has most of their time.
pub(super) fn of_family(
    scene: &Scene<'_>,
    step: &StepScene<'_>,
    (code, family): (AdviceCode, KernelFamily),
    (level, reason): (ConfidenceLevel, &'static str),
    out: &mut RuleResults,
) {
    if !scene.on_gpu {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    let is_one = |row: &PlacedKernel| row.kind == KernelKind::Kernel && KernelFamily::of(&row.name) == family;
    let rows: Vec<usize> = (0..work.rows.len()).filter(|at| is_one(&work.rows[*at])).collect();
    if rows.is_empty() {
        return;
    }
    let of = |value: fn(&PlacedKernel) -> u64| rows.iter().map(|at| value(&work.rows[*at])).sum::<u64>();
    let (count, ns) = (of(|row| row.count), of(|row| row.ns));
    let names: BTreeSet<&str> = rows.iter().map(|at| &*work.rows[*at].name).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let place = most_time(rows.iter().map(|at| &work.rows[*at]));
    let draft = Draft::new(code, step)
        .at(|at| match place {
            Some(path) => at.path(path).kernel(&names.join(" + ")),
            None => at.kernel(&names.join(" + ")),
        })
        .measured("kernels", "count", step.each(count), work.steps)
        .measured("device_ns", "ns", step.each(ns), count)
        .query(kernels_named(step, &names))
        .sure(level, reason);
    // A replay would still launch them: where the host is the longer line, launches are what counts.
    let launches_count = step.lines.host > step.lines.device_ns();
    let names: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
    let replay = |rate: f64| {
        let name = NamePattern::new(&format!("^({})$", names.join("|"))).ok().filter(|_| !launches_count)?;
        Some(vec![Change::Kernel { name, factor: 1.0 - rate }])
    };
    out.found.push(draft.replayed(|rate| Relief::Remove(rows.clone(), rate), replay));
}

/// The path whose rows take most of the time together; `None` if that is outside every interval.
pub(super) fn most_time<'a>(rows: impl Iterator<Item = &'a PlacedKernel>) -> Option<&'a str> {
    let mut sums: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(row.path.as_deref()).or_default();
        *sum = sum.saturating_add(row.ns);
    }
    sums.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0))).and_then(|(path, _)| path)
}
