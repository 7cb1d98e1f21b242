//! Processors that wait while a CPU does the work.

use super::draft::{Draft, RuleResults};
use super::operations::{one_row_of_f32, operations};
use super::query::busy_processors;
use super::scene::{Scene, StepScene};
use super::serial_part::SerialPart;
use super::two_lines::Relief;
use candlescope_figures::advice::{AdviceCode, ConfidenceLevel, Missing};
use candlescope_figures::recording_overhead::cores;
use candlescope_schema::metric;
use candlescope_schema::run::{MachineUse, RayonThreads};

/// Fewer samples in steps do not show how busy they are.
const FEWEST: u64 = 5;
/// From this use of the processors on, they are busy.
const BUSY: f64 = 0.75;
/// With fewer processors that others left, there are none to wait.
const FEWEST_FREE: f64 = 1.5;
/// From this share of the memory's rate on, more threads do not help.
const MEMORY_BOUND: f64 = 0.6;

pub(super) fn find(scene: &Scene<'_>, step: &StepScene<'_>, out: &mut RuleResults) {
    let code = AdviceCode::ThreadsWait;
    // Samples do not tell phases apart: it is told once, at the steps with most of the time.
    if scene.on_gpu || scene.steps.first().is_none_or(|first| first.name != step.name) {
        return;
    }
    let manifest = &scene.analysis.manifest;
    let series = &scene.analysis.memory.series;
    let series = series.iter().find(|series| series.device == metric::HOST && series.metric == metric::CPU_RATIO);
    let Some((series, cores)) = series.zip(cores(manifest).filter(|cores| *cores > 0)) else {
        return out.abstain(code, step, Missing::CpuSamples);
    };
    let Some(sampled) = series.in_steps.filter(|sampled| sampled.n >= FEWEST) else {
        return out.abstain(code, step, Missing::MoreCpuSamples);
    };
    // Who asks for fewer threads does not want the other processors.
    let threads = RayonThreads::of(manifest);
    let all_cores = cores;
    let cores = if let RayonThreads::Set(threads) = threads { cores.min(threads) } else { cores };
    // While products wait for something else, how many threads compute is not the question.
    if scene.steps.iter().any(|step| step.constant.is_some()) {
        return;
    }
    // Where stacks tell which part of the step is computed by one thread, that is told.
    if SerialPart::of(scene, step).is_some() {
        return;
    }
    // What others use was not there to be used.
    let others = manifest.machine.as_ref().and_then(MachineUse::others_cores).unwrap_or(0.0);
    let free = (all_cores as f64 - others).max(1.0).min(cores as f64);
    if free < FEWEST_FREE && cores as f64 >= FEWEST_FREE {
        return out.abstain(code, step, Missing::FreeProcessors);
    }
    let used = sampled.mean / free;
    let all = operations(scene, step);
    let (ns, bytes) = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.ns, sum.1 + one.io_bytes.unwrap_or(0.0)));
    let fills_memory =
        scene.roof.bandwidth().is_some_and(|peak| ns > 0.0 && bytes / ns * 1e9 / peak.value > MEMORY_BOUND);
    if used >= BUSY || free < FEWEST_FREE || fills_memory {
        return;
    }
    let t = step.lines.t;
    // `gemm`, with which candle multiplies on a CPU unless it is built with a vendor's library, has no parallel form for
    // one row.
    let serial: f64 = all.iter().filter(|one| one_row_of_f32(one)).map(|one| one.ns).sum();
    let draft = Draft::new(code, step)
        .steps(step.row.steps)
        .measured("busy_processors", "count", sampled.mean, sampled.n)
        .derived("processors", "count", cores as f64, 1)
        .derived_if("others", "count", Some(others).filter(|others| *others > 0.05), sampled.n)
        .derived_if("rayon_num_threads", "count", threads.told(), 1)
        .derived("used", "ratio", used, sampled.n)
        .derived("one_row", "ratio", if t > 0.0 { (serial / t).min(1.0) } else { 0.0 }, step.row.steps)
        .query(busy_processors())
        .sure(
            ConfidenceLevel::Low,
            "what cannot run in parallel, and what the memory limits, does not gain from \
        more threads",
        );
    out.found.push(draft.relief(|rate| Relief::HostShare((1.0 - used) * rate)));
}
