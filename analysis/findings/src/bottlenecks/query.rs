//! SQL over the views of `docs/sql.md` that finds a finding's rows again: such that both `candlescope query` and DuckDB
//! understand it.
//!
//! A column that has the name of a figure of the evidence is that figure: of all rows together, if there are several.
//! So figures of one step are sums divided by the number of steps, and a median stands in one row.

use super::scene::StepScene;
use candlescope_schema::metric;

/// Text as SQL writes it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Texts as the list of `IN`.
fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}

/// The measured steps of a kind.
pub(super) fn steps_of(step: &StepScene<'_>) -> String {
    format!("(SELECT run, step FROM measured_steps WHERE coalesce(phase, operator) = {})", quoted(step.name))
}

/// The steps of a kind without those that were set apart, as a table `usual`.
fn usual(step: &StepScene<'_>) -> String {
    let limit = step.usual.and_then(|usual| {
        let limit = usual.limit_ns?;
        let longer = usual.many_tokens.map_or(String::new(), |many| format!(" OR tokens > {many}"));
        Some(format!(" AND (host_dur_ns <= {limit}{longer})"))
    });
    format!(
        "usual AS (SELECT run, step, host_dur_ns FROM measured_steps WHERE (run, step) IN {}{})",
        steps_of(step),
        limit.unwrap_or_default()
    )
}

/// A sum over the rows, for one of the usual steps.
fn each_usual(column: &str) -> String {
    format!("CAST(sum({column}) AS DOUBLE) / (SELECT count(*) FROM usual)")
}

/// A sum over the rows, for one of the steps with recorded kernels.
pub(super) fn each_recorded(value: &str) -> String {
    format!("CAST({value} AS DOUBLE) / (SELECT count(*) FROM recorded)")
}

/// Kernels of these steps by path and name, where `condition` holds: what they take of one step on the device.
pub(super) fn kernels(step: &StepScene<'_>, condition: &str) -> String {
    kernels_as(step, condition, &[("kernels", "count(*)"), ("device_ns", "sum(gpu_dur_ns)")])
}

/// Time on the CPU and off it below these innermost functions, in the steps of a kind.
pub(super) fn functions<'a>(step: &StepScene<'_>, names: impl IntoIterator<Item = &'a str>) -> String {
    format!(
        "SELECT run, function, path, state, count(*) AS n, sum(weight_ns) AS ns FROM stack_samples JOIN stacks USING (run, \
         stack) WHERE function IN ({}) AND pool = 0 AND (run, step) IN {} GROUP BY run, function, path, state ORDER BY ns DESC",
        list(names),
        steps_of(step)
    )
}

/// Time on the CPU in the steps of a kind by path, by whether a pool's thread had it, and by innermost function.
pub(super) fn computing_threads(step: &StepScene<'_>) -> String {
    format!(
        "SELECT run, path, pool, function, count(*) AS n, sum(weight_ns) AS ns FROM stack_samples JOIN stacks USING (run, \
         stack) WHERE state = 'running' AND (run, step) IN {} GROUP BY run, path, pool, function ORDER BY ns DESC",
        steps_of(step)
    )
}

/// Time on the CPU and waiting in the steps of a kind, by crate and innermost function.
pub(super) fn functions_by_crate(step: &StepScene<'_>) -> String {
    format!(
        "SELECT run, crate, function, count(*) AS n, sum(weight_ns) AS ns FROM stack_samples JOIN stacks USING (run, stack) \
         WHERE pool = 0 AND state <> 'preempted' AND (run, step) IN {} GROUP BY run, crate, function ORDER BY ns DESC",
        steps_of(step)
    )
}

/// Launching calls of the steps of a kind by thread (the upper bits of an interval's number).
pub(super) fn calls_by_thread(step: &StepScene<'_>) -> String {
    format!(
        "SELECT run, device, seq >> 40 AS thread, count(*) AS calls, CAST(sum(launch_dur_ns) AS \
         DOUBLE) / count(*) AS call_ns FROM kernels WHERE kind = 'kernel' AND graph IS NULL AND (run, step) IN {} GROUP BY run, \
         device, thread ORDER BY thread",
        steps_of(step)
    )
}

/// The mean of a column over the steps of a kind of which it is known.
pub(super) fn thread_time(step: &StepScene<'_>, column: &str) -> String {
    format!("SELECT run, avg({column}) AS {column} FROM steps WHERE (run, step) IN {} GROUP BY run", steps_of(step))
}

/// The same with these columns, sums for one step.
pub(super) fn kernels_as(step: &StepScene<'_>, condition: &str, columns: &[(&str, &str)]) -> String {
    let columns: Vec<String> =
        columns.iter().map(|(name, value)| format!("{} AS {name}", each_recorded(value))).collect();
    format!(
        "WITH recorded AS (SELECT DISTINCT run, step FROM kernels WHERE (run, step) IN {}) \
         SELECT operator, name, {} \
         FROM kernels WHERE (run, step) IN (SELECT run, step FROM recorded) AND ({condition}) \
         GROUP BY 1, 2 ORDER BY sum(gpu_dur_ns) DESC",
        steps_of(step),
        columns.join(", ")
    )
}

/// All that these paths launch, as the time of one step.
pub(super) fn work_of_paths<'a>(step: &StepScene<'_>, paths: impl IntoIterator<Item = &'a str>) -> String {
    let condition = format!("operator IN ({})", list(paths));
    kernels_as(step, &condition, &[("kernels", "count(*)"), ("time_ns", "sum(gpu_dur_ns)")])
}

/// Kernels of these names of one path.
pub(super) fn kernels_of_path(step: &StepScene<'_>, path: &str, names: &[&str]) -> String {
    let names = list(names.iter().copied());
    kernels(step, &format!("kind = 'kernel' AND operator = {} AND name IN ({names})", quoted(path)))
}

/// Kernels of these names.
pub(super) fn kernels_named(step: &StepScene<'_>, names: &[&str]) -> String {
    kernels(step, &format!("kind = 'kernel' AND name IN ({})", list(names.iter().copied())))
}

/// Intervals of these paths in the usual steps: their time in one step as `time`, and their share.
pub(super) fn intervals<'a>(step: &StepScene<'_>, time: &str, paths: impl IntoIterator<Item = &'a str>) -> String {
    format!(
        "WITH {} SELECT operator, {} AS calls, {} AS {time}, \
         CAST(sum(host_dur_ns) AS DOUBLE) / (SELECT sum(host_dur_ns) FROM usual) AS share, {} AS flops, {} AS bytes, \
         {} AS io_bytes FROM measured_spans WHERE operator IN ({}) AND (run, step) IN (SELECT run, step FROM usual) \
         GROUP BY operator ORDER BY 3 DESC",
        usual(step),
        "CAST(count(*) AS DOUBLE) / (SELECT count(*) FROM usual)",
        each_usual("host_dur_ns"),
        each_usual("flops"),
        each_usual("bytes"),
        each_usual("io_bytes"),
        list(paths)
    )
}

/// Intervals of a path in all measured steps of a kind: their time in one step as `host_ns`.
pub(super) fn all_intervals(step: &StepScene<'_>, path: &str) -> String {
    let steps = steps_of(step);
    format!(
        "SELECT operator, count(*) AS calls, CAST(sum(host_dur_ns) AS DOUBLE) / (SELECT count(*) FROM {steps} AS s) \
         AS host_ns FROM measured_spans WHERE operator = {} AND (run, step) IN {steps} GROUP BY operator",
        quoted(path)
    )
}

/// A layer beside its siblings, in the usual steps where time on the host counts.
pub(super) fn layer(step: &StepScene<'_>, on_gpu: bool, path: &str, siblings: &[&str]) -> String {
    let (steps, time) =
        if on_gpu { (format!("usual AS {}", steps_of(step)), "gpu_dur_ns") } else { (usual(step), "host_dur_ns") };
    format!(
        "WITH {steps}, layers AS (SELECT path, count({time}) AS calls, avg({time}) AS mean_ns FROM measured_spans \
         WHERE path IN ({}) AND (run, step) IN (SELECT run, step FROM usual) GROUP BY path) \
         SELECT path, calls, mean_ns, (SELECT median(mean_ns) FROM layers) AS siblings_ns FROM layers WHERE path = {}",
        list(siblings.iter().copied()),
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

/// Steps that can be compared, as a table `alike` with their durations as `ns`, in order as `nth`.
pub(super) fn alike(step: &StepScene<'_>, ns: &str, condition: &str) -> String {
    format!(
        "alike AS (SELECT run, step, {ns} AS ns, row_number() OVER (ORDER BY host_start_ns, step) AS nth \
         FROM measured_steps WHERE (run, step) IN {}{condition})",
        steps_of(step)
    )
}

/// How many processors the process kept busy while measured steps ran.
pub(super) fn busy_processors() -> String {
    format!(
        "SELECT run, count(*) AS n, avg(value) AS busy_processors FROM samples AS s WHERE device = {} AND metric = {} \
         AND EXISTS (SELECT 1 FROM measured_steps AS m WHERE m.run = s.run AND m.host_start_ns <= s.time_ns \
         AND s.time_ns < m.host_start_ns + m.host_dur_ns) GROUP BY run",
        quoted(metric::HOST),
        quoted(metric::CPU_RATIO)
    )
}
