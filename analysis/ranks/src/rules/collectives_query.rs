//! SQL over the views of `docs/sql.md`, asked of the folder of the ranks' runs, or of the run whose threads they are,
//! that finds the rows of a finding again.

use crate::collective::{CollectiveKind, LARGE};
use crate::facts::RankAnalysis;
use crate::reading::Source;

/// Names of intervals in which nobody ends before all have come, as [`plain`] makes them.
const TOGETHER: &str = "'allreduce', 'allgather', 'reducescatter', 'alltoall', 'barrier'";
/// NCCL's kernels of the same.
const TOGETHER_KERNELS: &str = "(name LIKE 'nccl%AllReduce%' OR name LIKE 'nccl%AllGather%' OR name LIKE 'nccl%ReduceScatter%' \
                                OR name LIKE 'nccl%AlltoAll%' OR name LIKE 'nccl%AllToAll%')";

/// What each rank takes in collectives: the one for which others wait takes least.
pub(super) fn times_of_ranks(analysis: &RankAnalysis) -> String {
    let (thread, time, rows) = rows(analysis);
    format!(
        "SELECT run, {thread}, count(*) AS collectives, sum({time}) AS collective_ns FROM {rows} GROUP BY run, thread ORDER BY \
         collective_ns"
    )
}

/// The same of each step.
pub(super) fn times_of_steps(analysis: &RankAnalysis) -> String {
    let (thread, time, rows) = rows(analysis);
    format!(
        "SELECT run, {thread}, step, count(*) AS collectives, sum({time}) AS collective_ns FROM {rows} GROUP BY run, thread, step \
         ORDER BY step, collective_ns"
    )
}

/// Operations of a kind that are large enough to say what the link carries.
pub(super) fn large_ones(phase: &str, kind: CollectiveKind) -> String {
    format!(
        "SELECT run, operator, count(*) AS n, avg(io_bytes) AS bytes, avg(gpu_dur_ns) AS mean_ns FROM spans WHERE {} = '{}' AND \
         io_bytes >= {LARGE} AND {} GROUP BY run, operator ORDER BY run",
        plain("name"),
        kind.name().replace('_', ""),
        in_steps(phase)
    )
}

/// A column with the name of an interval as it is recognised: `AllReduce` and `all_reduce` are one.
fn plain(column: &str) -> String {
    format!("lower(replace(replace({column}, '_', ''), '-', ''))")
}

/// The thread, the time, and the rows of collectives in the steps that are judged.
fn rows(analysis: &RankAnalysis) -> (&'static str, &'static str, String) {
    let steps = in_steps(&analysis.phase);
    let spans = || format!("spans WHERE {} IN ({TOGETHER}) AND {steps}", plain("name"));
    match analysis.source {
        // The upper bits of an interval's number are its thread's.
        Source::Kernels => {
            ("seq >> 40 AS thread", "gpu_dur_ns", format!("kernels WHERE {TOGETHER_KERNELS} AND {steps}"))
        }
        Source::DeviceTime => ("thread", "gpu_dur_ns", spans()),
        Source::Host | Source::Unknown => ("thread", "host_dur_ns", spans()),
    }
}

/// The measured steps of a phase.
fn in_steps(phase: &str) -> String {
    let phase = phase.replace('\'', "''");
    format!("(run, step) IN (SELECT run, step FROM measured_steps WHERE coalesce(phase, operator) = '{phase}')")
}
