//! The operations of a step that state their work: their time in one step, and what they do in it.

use super::query::{intervals, work_of_paths};
use super::roof::under;
use super::scene::{Scene, StepScene};
use super::two_lines::Relief;
use candlescope_figures::PathTotals;
use candlescope_figures::advice::RATES;
use candlescope_figures::cache_reads::reads_cache;
use candlescope_schema::KernelKind;
use candlescope_work::devices::Peak;

/// On a CPU, an interval whose children usually take more than the rest of this share is no operation by itself.
const OWN_SHARE: f64 = 0.9;
/// A row multiplied by weights of f32 does two operations with four bytes, two rows twice as many, and weights of fewer
/// bits more.
const ONE_ROW_OF_F32: std::ops::RangeInclusive<f64> = 0.4..=0.6;

/// All intervals of one path that state work. Times and work are those of one step.
pub(super) struct Operation<'a> {
    pub(super) totals: &'a PathTotals,
    /// Nanoseconds of an unobserved step: of its kernels, or on a CPU its share of the usual steps' time.
    pub(super) ns: f64,
    /// The same in the steps in which it takes least: nine of ten have more.
    pub(super) least_ns: f64,
    /// On a CPU: its time in a usual step as it was recorded, to be held against its work, and its share of that step.
    pub(super) recorded: Option<(f64, f64)>,
    /// The time that was measured, in one of the steps that it was measured in.
    pub(super) measured_ns: f64,
    /// The same as most steps have it: what stalls in a few of them add is not in it.
    pub(super) median_ns: f64,
    /// Intervals that were measured.
    pub(super) n: u64,
    pub(super) flops: Option<f64>,
    /// Bytes with activations.
    pub(super) io_bytes: Option<f64>,
    /// Bytes of weights and KV cache.
    pub(super) bytes: Option<f64>,
    /// Its rows in the step's work.
    pub(super) rows: Vec<usize>,
    /// Kernels that one of its intervals launches.
    pub(super) kernels: f64,
}

/// Those of one kind of step.
pub(super) fn operations<'a>(scene: &Scene<'a>, step: &StepScene<'a>) -> Vec<Operation<'a>> {
    let inside = scene.paths.values().filter(|path| step.has(&path.rollup) && path.calls > 0);
    let stated = inside.filter(|path| path.work.is_stated());
    let all = stated.filter_map(|path| match (scene.on_gpu, step.work) {
        (true, Some(_)) => on_device(step, path),
        (true, None) => None,
        (false, _) => on_host(step, path),
    });
    let mut all: Vec<Operation<'_>> = all.filter(|operation| operation.ns > 0.0).collect();
    all.sort_by(|a, b| b.ns.total_cmp(&a.ns).then_with(|| a.totals.rollup.cmp(&b.totals.rollup)));
    all
}

fn on_device<'a>(step: &StepScene<'a>, path: &'a PathTotals) -> Option<Operation<'a>> {
    let work = step.work?;
    let here = |at: &usize| work.rows[*at].path.as_deref() == Some(&*path.rollup);
    let rows: Vec<usize> = (0..work.rows.len()).filter(here).collect();
    let each = |value: fn(&candlescope_figures::account::PlacedKernel) -> u64| {
        step.each(rows.iter().map(|at| value(&work.rows[*at])).sum())
    };
    // Steps differ in what they compute: their time is held against their own work.
    let own = |work: Option<u64>| work.map(|work| step.each(work));
    let measured_ns = each(|row| row.ns);
    let ns = measured_ns * step.lines.overlap;
    Some(Operation {
        totals: path,
        ns,
        least_ns: ns,
        recorded: None,
        measured_ns,
        median_ns: measured_ns,
        n: path.gpu.recorded_calls,
        flops: own(path.recorded.flops),
        io_bytes: own(path.recorded.io_bytes.filter(|_| !path.io_missing)),
        bytes: own(path.recorded.bytes),
        kernels: each(|row| if row.kind == KernelKind::Kernel { row.count } else { 0 }),
        rows,
    })
}

fn on_host<'a>(step: &StepScene<'a>, path: &'a PathTotals) -> Option<Operation<'a>> {
    // In most steps: a stall in one of them makes a block that holds its operations no operation by itself.
    let own = path.usual.own_part().is_some_and(|part| part >= OWN_SHARE);
    // Both times from the same steps: a stall in a single one is in neither.
    let usual = step.usual.filter(|usual| own && usual.steps > 0)?;
    let (share, least) = path.usual.share(usual)?;
    let steps = usual.steps as f64;
    let of = |work: Option<u64>| work.map(|work| work as f64 / steps);
    let (mean_ns, median_ns) = (path.usual.total_ns as f64 / steps, path.usual.each_ns(usual)?);
    Some(Operation {
        totals: path,
        ns: share * step.time.unobserved_ns,
        least_ns: least * step.time.unobserved_ns,
        // One token's work is that of the next; where steps differ, time and work are those of all of them together.
        recorded: Some((if step.decodes() { median_ns } else { mean_ns }, share)),
        measured_ns: mean_ns,
        median_ns,
        n: path.usual.calls,
        flops: of(path.usual.work.flops),
        io_bytes: of(path.usual.work.io_bytes.filter(|_| !path.io_missing)),
        bytes: of(path.usual.work.bytes),
        rows: Vec::new(),
        kernels: 0.0,
    })
}

impl Operation<'_> {
    /// Achieved ÷ attainable, and the peak that limits it; `None` if its work or the roof is not known.
    pub(super) fn under<'a>(&self, scene: &'a Scene<'_>, step: &StepScene<'_>) -> Option<(f64, &'a Peak)> {
        let bytes = self.io_bytes.or(self.bytes)?;
        under(&scene.roof, scene.analysis, step.name, self.totals, (self.flops, bytes, self.held_ns()))
    }

    /// The time that its work is held against, in nanoseconds.
    pub(super) fn held_ns(&self) -> f64 {
        self.recorded.map_or(self.ns, |(ns, _)| ns)
    }

    /// Whether it reads the KV cache.
    pub(super) fn reads_cache(&self) -> bool {
        reads_cache(&self.totals.rollup) && self.bytes.is_some_and(|bytes| bytes > 0.0)
    }

    /// Whether most of what it reads are weights.
    pub(super) fn reads_weights(&self) -> bool {
        let most = self.bytes.zip(self.io_bytes.or(self.bytes)).is_some_and(|(bytes, all)| bytes >= 0.5 * all);
        most && self.flops.is_some() && !self.reads_cache()
    }

    /// Whether it multiplies: by weights, or by keys or values.
    pub(super) fn is_product(&self) -> bool {
        let most = self.bytes.zip(self.io_bytes.or(self.bytes)).is_some_and(|(bytes, all)| bytes >= 0.5 * all);
        most && self.flops.is_some_and(|flops| flops > 0.0)
    }

    /// It takes this share of its time, because it reads fewer bytes.
    pub(super) fn with_less_to_do(&self, rate: f64, share: f64) -> Relief {
        match self.scaled(rate, share) {
            Relief::Operation(place, ns) => Relief::Fewer(place, ns),
            other => other,
        }
    }

    /// It takes this share of its time. What can be had at the least is in the steps in which it takes least.
    pub(super) fn scaled(&self, rate: f64, share: f64) -> Relief {
        if self.rows.is_empty() {
            let ns = if rate <= RATES[0] { self.least_ns } else { self.ns };
            Relief::Operation(self.totals.rollup.clone(), ns * (1.0 - share))
        } else {
            Relief::Scale(self.rows.clone(), share)
        }
    }

    /// The kernel that takes most of its time.
    pub(super) fn kernel(&self, step: &StepScene<'_>) -> Option<String> {
        let work = step.work?;
        self.rows.iter().map(|at| &work.rows[*at]).max_by_key(|row| row.ns).map(|row| row.name.to_string())
    }
}

/// SQL that finds the rows of these operations.
pub(super) fn query(scene: &Scene<'_>, step: &StepScene<'_>, all: &[&Operation<'_>]) -> String {
    let paths = all.iter().map(|one| one.totals.rollup.as_str());
    if scene.on_gpu { work_of_paths(step, paths) } else { intervals(step, "time_ns", paths) }
}

/// Whether all that these rules need is there; if not, what is missing.
pub(super) fn lacking(
    scene: &Scene<'_>,
    step: &StepScene<'_>,
    all: &[Operation<'_>],
) -> Option<candlescope_figures::advice::Missing> {
    use candlescope_figures::advice::Missing;
    match () {
        () if scene.on_gpu && step.work.is_none() => Some(Missing::Kernels),
        () if all.is_empty() => Some(Missing::Work),
        () if scene.roof.bandwidth().is_none() => Some(Missing::Peaks),
        () => None,
    }
}

/// What each operation of a step on a CPU needs at least: its time at its roof, where work and roof are known.
pub(super) fn floors(scene: &Scene<'_>, step: &StepScene<'_>) -> Vec<(String, f64)> {
    if scene.on_gpu {
        return Vec::new();
    }
    let all = operations(scene, step);
    let one = |operation: &Operation<'_>| {
        let share = operation.under(scene, step)?.0.clamp(0.0, 1.0);
        Some((operation.totals.rollup.clone(), operation.ns * share))
    };
    all.iter().filter_map(one).collect()
}

/// Whether it multiplies one row by weights of f32, for which `gemm`, with which candle multiplies on a CPU unless it
/// is built with a vendor's library, has no parallel form.
pub(super) fn one_row_of_f32(operation: &Operation<'_>) -> bool {
    let intensity =
        operation.flops.zip(operation.bytes.filter(|bytes| *bytes > 0.0)).map(|(flops, bytes)| flops / bytes);
    operation.reads_weights() && intensity.is_some_and(|intensity| ONE_ROW_OF_F32.contains(&intensity))
}
