//! Copies while no kernel runs.

use super::draft::{Draft, RuleResults};
use super::query::{kernels_as, quoted};
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_schema::KernelKind;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::ExposedCopy;
    if !scene.on_gpu {
        return;
    }
    let Some(work) = step.work else { return out.abstain(code, step, Missing::Kernels) };
    for copy in work.exposed.iter().filter(|copy| copy.ns > 0) {
        let same = |path: &Option<std::sync::Arc<str>>, name: &str| *path == copy.path && *name == *copy.name;
        let rows = work.rows.iter().enumerate();
        let rows: Vec<usize> = rows
            .filter(|(_, row)| row.kind != KernelKind::Kernel && same(&row.path, &row.name))
            .map(|(at, _)| at)
            .collect();
        let all: u64 = rows.iter().map(|at| work.rows[*at].ns).sum();
        let share = copy.ns as f64 / all.max(1) as f64;
        let place = copy.path.as_deref();
        let draft = Draft::new(code, step)
            .at(|at| match place {
                Some(path) => at.path(path).kernel(&copy.name),
                None => at.kernel(&copy.name),
            })
            .measured("copies", "count", step.each(copy.count), copy.count)
            .derived("exposed_ns", "ns", step.each(copy.ns), copy.count)
            .measured("bytes", "bytes", step.each(copy.bytes), copy.count)
            .query(kernels_as(step, &of_copy(place, &copy.name), &[("copies", "count(*)"), ("bytes", "sum(bytes)")]))
            .sure(ConfidenceLevel::Medium, "measured; whether there is work to run beside the copy is not known");
        out.found.push(draft.relief(|rate| Relief::Remove(rows.clone(), share * rate)));
    }
}

/// Copies of one kind at one place.
fn of_copy(path: Option<&str>, name: &str) -> String {
    let at = path.map_or("path IS NULL".to_string(), |path| format!("operator = {}", quoted(path)));
    format!("kind <> 'kernel' AND name = {} AND {at}", quoted(name))
}
