//! SQL over the views of `docs/sql.md` that finds a finding's rows again: such that both `candlescope query` and DuckDB
//! understand it.

use super::scene::StepScene;

/// Text as SQL writes it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The measured steps of a kind.
pub(super) fn steps_of(step: &StepScene<'_>) -> String {
    format!(
        "(SELECT run, step FROM measured_steps WHERE coalesce(phase, operator_of(path, NULL)) = {})",
        quoted(step.name)
    )
}

/// Kernels of these steps by path and name, where `condition` holds.
pub(super) fn kernels(step: &StepScene<'_>, condition: &str) -> String {
    format!(
        "SELECT operator_of(path, module) AS operator, name, count(*) AS n, CAST(sum(gpu_dur_ns) AS BIGINT) AS device_ns \
         FROM kernels WHERE (run, step) IN {} AND ({condition}) GROUP BY 1, 2 ORDER BY device_ns DESC",
        steps_of(step)
    )
}

/// Kernels of one path.
pub(super) fn kernels_of_path(step: &StepScene<'_>, path: &str) -> String {
    kernels(step, &format!("operator_of(path, module) = {}", quoted(path)))
}

/// Kernels of these names.
pub(super) fn kernels_named(step: &StepScene<'_>, names: &[&str]) -> String {
    let list: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    kernels(step, &format!("kind = 'kernel' AND name IN ({})", list.join(", ")))
}

/// Intervals of one path.
pub(super) fn intervals(path: &str) -> String {
    format!(
        "SELECT operator, count(*) AS calls, CAST(sum(host_dur_ns) AS BIGINT) AS host_ns, \
         CAST(sum(flops) AS BIGINT) AS flops, CAST(sum(io_bytes) AS BIGINT) AS io_bytes \
         FROM measured_spans WHERE operator = {} GROUP BY operator",
        quoted(path)
    )
}

/// The durations of these steps.
pub(super) fn durations(step: &StepScene<'_>) -> String {
    format!(
        "SELECT run, step, context_len, host_dur_ns FROM measured_steps WHERE (run, step) IN {} \
         ORDER BY run, host_start_ns",
        steps_of(step)
    )
}
