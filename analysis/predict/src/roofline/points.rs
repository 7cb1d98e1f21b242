//! Where phases, operators and kernels of a run stand under its roofs.
//!
//! Achieved = FLOPs ÷ time and bytes (with activations) ÷ time. Intensity = FLOPs ÷ bytes. Attainable(intensity) =
//! min(peak, intensity × bandwidth). Utilisation = achieved ÷ attainable. A utilisation above 1 is an error of
//! measurement (of the time, of the work that is stated, or of the peak): the point is invalid, and never clipped.
//!
//! On a processor the time is that of usual steps: what a stall adds to single ones is no operation's.
//!
//! A phase is a row of operations, some limited by memory and others by computing, one after the other: what it can
//! attain is the sum of their roofs, as a prediction has it, and not the roof at the intensity of all together, at which
//! nothing runs.

use super::predict::Bound;
use super::run_facts::roofs;
use candlescope_figures::gpu_time::source_name;
use candlescope_figures::kernel_sums::KernelPathRow;
use candlescope_figures::path_totals::by_rollup;
use candlescope_figures::{Analysis, Operator, PathTotals, PhaseRow, peaks};
use candlescope_schema::numbers::{count, percent, significant};
use candlescope_work::devices::{Device, Multiply, Origin, Roof};
use serde::Serialize;

/// From so many steps at once on there are several threads.
const SEVERAL: f64 = 1.05;

/// What a point stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PointKind {
    /// All steps of a phase.
    Phase,
    /// All intervals of a path without ordinals, children included.
    Operator,
    /// The kernels that the intervals of a path launched themselves.
    Kernels,
}

/// Whether a point can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "status", content = "reason")]
pub enum Status {
    /// Time, work and roof are known, and the utilisation is no more than 1.
    Ok,
    /// Something needed is not there.
    DataMissing(String),
    /// Its utilisation is above 1, more than the roof allows: its time, its work or the peak is wrong. By how much.
    Invalid(String),
}

impl Status {
    /// As reports call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::DataMissing(_) => "data missing",
            Self::Invalid(_) => "invalid",
        }
    }
}

/// A point under one roof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnderRoof {
    /// Whose figures the roof is made of.
    pub origin: Origin,
    /// The type whose FLOP/s count.
    pub multiply: Option<Multiply>,
    /// The type whose FLOP/s stand in, where the roof has none for numbers of 8 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands_in: Option<Multiply>,
    /// FLOPs a byte from which on work is bound by computing.
    pub ridge: Option<f64>,
    /// FLOP/s that the intensity allows; of a phase those that its operations one after the other allow.
    pub attainable_flops: Option<f64>,
    /// Achieved ÷ attainable; above 1 if the point is invalid.
    pub utilisation: Option<f64>,
    /// Which side of the ridge it is on; of a phase, on which its operations spend most of the time at their roofs.
    pub bound: Option<Bound>,
    /// Whether this can be used.
    #[serde(flatten)]
    pub status: Status,
}

/// A phase, an operator or a group of kernels: what it achieved, and where that is under each roof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Phase, path without ordinals, or path and kernel.
    pub name: String,
    /// What it stands for.
    pub kind: PointKind,
    /// Measured steps of a phase, or intervals of an operator; of kernels, the intervals in recorded steps.
    pub calls: u64,
    /// What the time is: `wall`, `host`, `stream elapsed` or `kernels`.
    pub over: &'static str,
    /// Nanoseconds of one call: the mean; on a processor in a usual step.
    pub ns: Option<f64>,
    /// FLOPs that are stated as needed ÷ time; `None` if they are not stated or there is no time.
    pub flops_per_s: Option<f64>,
    /// Bytes/s achieved, with activations.
    pub bytes_per_s: Option<f64>,
    /// FLOPs ÷ bytes with activations; `None` unless both are known and there are bytes.
    pub intensity: Option<f64>,
    /// Nanoseconds that the prediction gives for one call.
    pub predicted_ns: Option<f64>,
    /// Under each roof: that of all devices for a phase, of one for operators and kernels.
    pub under: Vec<UnderRoof>,
}

impl Point {
    /// Whether it can be used under the first roof.
    pub fn status(&self) -> Status {
        match self.under.first() {
            Some(under) => under.status.clone(),
            None => Status::DataMissing(
                "no peaks of the run's own device: give --peaks FILE, or --gpu with its name".to_string(),
            ),
        }
    }

    /// Utilisation under the first roof, if the point can be used.
    pub fn utilisation(&self) -> Option<f64> {
        self.under.first().filter(|under| under.status == Status::Ok).and_then(|under| under.utilisation)
    }
}

/// A point's achievements, before it is put under roofs.
pub(super) struct PointRates {
    pub(super) name: String,
    pub(super) kind: PointKind,
    pub(super) calls: u64,
    pub(super) over: &'static str,
    pub(super) ns: Option<f64>,
    pub(super) flops_per_s: Option<f64>,
    pub(super) bytes_per_s: Option<f64>,
    /// Why there is no rate.
    pub(super) lacks: Option<String>,
    pub(super) multiply: Option<Multiply>,
    /// FLOPs and bytes of each operation of a phase; empty for a single operation, or if operations state no work.
    pub(super) operations: Vec<(f64, f64)>,
}

/// Time at the roofs of several operations, one after the other.
struct Mixture {
    /// Σ max(computing, moving) ÷ max(Σ computing, Σ moving): 1 if all are on one side of the ridge.
    factor: f64,
    /// Which side takes more of that time.
    bound: Bound,
}

impl PointRates {
    pub(super) fn under(self, roofs: &[Roof]) -> Point {
        let intensity = self.flops_per_s.zip(self.bytes_per_s).filter(|(_, bytes)| *bytes > 0.0).map(|(f, b)| f / b);
        // A phase is the work of all devices; an operator or a kernel runs on one.
        let under = |roof: &Roof| match self.kind {
            PointKind::Phase => self.one(roof, intensity),
            PointKind::Operator | PointKind::Kernels => self.one(&roof.of_one(), intensity),
        };
        Point {
            under: roofs.iter().map(under).collect(),
            name: self.name,
            kind: self.kind,
            calls: self.calls,
            over: self.over,
            ns: self.ns,
            flops_per_s: self.flops_per_s,
            bytes_per_s: self.bytes_per_s,
            intensity,
            predicted_ns: None,
        }
    }

    /// How the operations of a phase share its time at their roofs.
    fn mixture(&self, roof: &Roof, peak: Option<f64>) -> Option<Mixture> {
        let bandwidth = roof.bandwidth()?.value;
        let (mut computing, mut moving, mut by_computing, mut by_memory) = (0.0, 0.0, 0.0, 0.0);
        for (flops, bytes) in &self.operations {
            let (own_computing, own_moving) = (peak.map_or(0.0, |peak| flops / peak), bytes / bandwidth);
            computing += own_computing;
            moving += own_moving;
            match own_computing > own_moving {
                true => by_computing += own_computing,
                false => by_memory += own_moving,
            }
        }
        let together = f64::max(computing, moving);
        let bound = if by_computing > by_memory { Bound::Compute } else { Bound::Memory };
        (together > 0.0).then(|| Mixture { factor: (by_computing + by_memory) / together, bound })
    }

    fn one(&self, roof: &Roof, intensity: Option<f64>) -> UnderRoof {
        let stands_in = self.multiply.and_then(|kind| roof.stands_in_for(kind));
        let peak = stands_in.or(self.multiply).and_then(|kind| roof.flops(Some(kind.name()))).map(|peak| peak.value);
        let bandwidth = roof.bandwidth().map(|peak| peak.value);
        let mixture = self.mixture(roof, peak);
        let factor = mixture.as_ref().map_or(1.0, |mixture| mixture.factor);
        let ridge = peak.zip(bandwidth).map(|(peak, bandwidth)| peak / bandwidth);
        let attainable = intensity.zip(bandwidth).map(|(intensity, bandwidth)| {
            let by_memory = intensity * bandwidth;
            peak.map_or(by_memory, |peak| peak.min(by_memory)) / factor
        });
        let missing = |why: &str| Status::DataMissing(why.to_string());
        let base = UnderRoof {
            origin: roof.origin(),
            multiply: self.multiply,
            stands_in,
            ridge,
            attainable_flops: attainable,
            utilisation: None,
            bound: None,
            status: Status::Ok,
        };
        if let Some(lacks) = &self.lacks {
            return UnderRoof { status: missing(lacks), ..base };
        }
        let Some(bytes) = self.bytes_per_s else {
            return UnderRoof { status: missing("bytes with activations are not stated"), ..base };
        };
        if bandwidth.is_none() {
            return UnderRoof { status: missing("the roof has no bandwidth"), ..base };
        }
        let Some(utilisation) = roof.utilisation(self.flops_per_s.unwrap_or(0.0), bytes, stands_in.or(self.multiply))
        else {
            let kind = self.multiply.map_or("the type that is multiplied", Multiply::name);
            return UnderRoof { status: missing(&format!("the roof has no FLOP/s for {kind}")), ..base };
        };
        let utilisation = utilisation * factor;
        let bound = Some(match (mixture, intensity, ridge) {
            (Some(mixture), ..) => mixture.bound,
            (None, Some(intensity), Some(ridge)) if intensity > ridge => Bound::Compute,
            _ => Bound::Memory,
        });
        if let (Some(kind), Some(other)) = (self.multiply, stands_in)
            && utilisation > 1.0
            && bound == Some(Bound::Compute)
        {
            // Numbers of 8 bits may be multiplied faster than wider ones: that is no error.
            let (kind, other) = (kind.name(), other.name());
            let why = format!("the roof has no FLOP/s for {kind}, and these are more than those for {other}");
            return UnderRoof { bound, status: missing(&why), ..base };
        }
        let status = if utilisation > 1.0 {
            let origin = roof.origin().name();
            Status::Invalid(match utilisation - 1.0 {
                more if more < 0.01 => format!("{} more than the {origin} roof allows", percent(more)),
                _ => format!("{utilisation:.2} times what the {origin} roof allows"),
            })
        } else {
            Status::Ok
        };
        UnderRoof { utilisation: Some(utilisation), bound, status, ..base }
    }
}

/// Where the phases of a run stand under its own peaks and those of `given`: over the time of kernels and of marks, where
/// they were recorded, and over the time on the host. Without peaks, the datasheet of the GPU that the run names makes
/// the roof; without that there is none.
pub fn phase_points(analysis: &Analysis, given: Option<&Device>) -> Vec<Point> {
    let roofs = roofs(analysis, given);
    phases(analysis).into_iter().map(|achieved| achieved.under(&roofs)).collect()
}

/// All points of a run: phases, operators by time, and groups of kernels.
pub(super) fn points(analysis: &Analysis, roofs: &[Roof]) -> Vec<Point> {
    let all = phases(analysis).into_iter().chain(operators(analysis)).chain(kernels(analysis));
    all.map(|achieved| achieved.under(roofs)).collect()
}

/// The type that is multiplied in a phase.
pub(super) fn multiplied(analysis: &Analysis, phase: &str) -> Option<Multiply> {
    let word = peaks::multiplied(&analysis.intervals, &analysis.manifest, phase)?;
    Multiply::named(&word)
}

/// A rate in 10⁹ a second.
fn giga(rate: Option<f64>) -> Option<f64> {
    rate.map(|rate| rate * 1e9)
}

/// FLOPs and bytes with activations that the operations of a phase state, each path of intervals being one.
fn operations_of(analysis: &Analysis, phase: &str) -> Vec<(f64, f64)> {
    let inside = |rollup: &str| rollup.split('/').next() == Some(phase);
    let paths = analysis.intervals.paths.iter().filter(|path| inside(&path.rollup));
    let work = |n: Option<u64>| n.unwrap_or(0) as f64;
    let each = paths.map(|path| (work(path.work.flops), work(path.work.io_bytes.filter(|_| !path.io_missing))));
    each.filter(|(flops, bytes)| *flops > 0.0 || *bytes > 0.0).collect()
}

/// What a usual step of a phase on a processor takes, in nanoseconds. `None` on a GPU, where steps wait for it, and
/// where steps of several threads are open at once.
pub(super) fn usual_step_ns(analysis: &Analysis, phase: &PhaseRow) -> Option<f64> {
    let alone = phase.steps_at_once.is_none_or(|at_once| at_once < SEVERAL);
    let usual = analysis.intervals.usual.iter().find(|usual| usual.name == phase.name)?;
    let mean = usual.total_ns as f64 / usual.steps.max(1) as f64;
    let ns = if is_alike(analysis, &usual.name) { usual.median_ns()? } else { mean };
    Some(ns).filter(|ns| *ns > 0.0 && alone && !analysis.ran_on_gpu())
}

/// What an interval of a path takes on a processor in a usual step, in nanoseconds.
fn usual_call_ns(analysis: &Analysis, path: &PathTotals) -> Option<f64> {
    let steps = analysis.intervals.usual.get(usize::try_from(path.usual.kind?).ok()?)?;
    let n = steps.steps.max(1) as f64;
    let a_step =
        if is_alike(analysis, &steps.name) { path.usual.each_ns(steps)? } else { path.usual.total_ns as f64 / n };
    let calls = path.usual.calls as f64 / n;
    (a_step > 0.0 && calls > 0.0).then(|| a_step / calls)
}

/// Whether all steps of a kind have the same to do, so that a median of their times stands for the work of each.
fn is_alike(analysis: &Analysis, kind: &str) -> bool {
    let series = analysis.series.iter().find(|series| series.name == kind);
    let mut tokens = series.into_iter().flat_map(|series| &series.points).map(|point| point.tokens);
    let first = tokens.next().flatten();
    first.is_some() && tokens.all(|tokens| tokens == first)
}

fn phases(analysis: &Analysis) -> Vec<PointRates> {
    let mut all = Vec::new();
    for phase in analysis.phases.rows.iter().filter(|row| row.is_phase) {
        let multiply = multiplied(analysis, &phase.name);
        let operations = operations_of(analysis, &phase.name);
        let lacks = |stated: bool| (!stated).then(|| "the steps state neither FLOPs nor bytes".to_string());
        let point = |over, ns, flops: Option<f64>, bytes: Option<f64>| PointRates {
            name: phase.name.clone(),
            kind: PointKind::Phase,
            calls: phase.steps,
            over,
            ns,
            flops_per_s: flops,
            bytes_per_s: bytes,
            lacks: lacks(flops.is_some() || bytes.is_some()),
            multiply,
            operations: operations.clone(),
        };
        let kind = analysis.gpu.kinds.iter().find(|kind| kind.is_phase && kind.name == phase.name);
        // Kernels before marks, both before the host's time.
        let mut elapsed: Vec<_> = kind.into_iter().flat_map(|kind| &kind.elapsed).collect();
        elapsed.sort_by_key(|elapsed| elapsed.source == candlescope_schema::GpuSource::Event);
        for e in elapsed {
            let mean = (e.measured > 0).then(|| e.measured_ns as f64 / e.measured as f64);
            all.push(point(source_name(e.source), mean, e.tflops.map(|t| t * 1e12), giga(e.io_gbytes)));
        }
        let mean = (phase.steps > 0).then(|| phase.total_ns as f64 / phase.steps as f64);
        let usual = usual_step_ns(analysis, phase);
        let faster = mean.zip(usual).map_or(1.0, |(mean, usual)| mean / usual);
        let rate = |rate: Option<f64>| giga(rate).map(|rate| rate * faster);
        all.push(point("wall", usual.or(mean), rate(phase.gflops), rate(phase.io_gbytes)));
    }
    all
}

fn operators(analysis: &Analysis) -> Vec<PointRates> {
    let on_gpu = analysis.ran_on_gpu();
    let paths = by_rollup(&analysis.intervals.paths);
    let one = |operator: &Operator| {
        let phase = operator.path.split('/').next().unwrap_or_default();
        let stated = operator.work.flops.is_some() || operator.work.io_bytes.is_some();
        let (over, ns, flops, bytes) = match operator.gpu {
            Some(gpu) => (source_name(gpu.source), Some(gpu.mean_ns), gpu.tflops.map(|t| t * 1e12), giga(gpu.gbytes)),
            None if on_gpu => ("kernels", None, None, None),
            None => {
                let mean = (operator.entered > 0).then(|| operator.total_ns as f64 / operator.entered as f64);
                let usual = paths.get(operator.path.as_str()).and_then(|path| usual_call_ns(analysis, path));
                let faster = mean.zip(usual).map_or(1.0, |(mean, usual)| mean / usual);
                let rate = |rate: Option<f64>| giga(rate).map(|rate| rate * faster);
                ("host", usual.or(mean), rate(operator.gflops), rate(operator.gbytes))
            }
        };
        let lacks = match (stated, ns) {
            (false, _) => Some("it states neither FLOPs nor bytes".to_string()),
            (true, None) => Some("no time on the GPU: record with --gpu-timing all or --cupti".to_string()),
            _ => None,
        };
        PointRates {
            name: operator.path.clone(),
            kind: PointKind::Operator,
            calls: operator.calls,
            over,
            ns,
            flops_per_s: flops,
            bytes_per_s: bytes,
            lacks,
            multiply: multiplied(analysis, phase),
            operations: Vec::new(),
        }
    };
    // Phases are operators, too, and have their own points.
    let is_phase =
        |operator: &&Operator| analysis.phases.rows.iter().any(|row| row.is_phase && row.name == operator.path);
    let mut all: Vec<&Operator> = analysis.operators.iter().filter(|o| !is_phase(o)).collect();
    let time = |o: &Operator| o.gpu.map_or(if on_gpu { 0.0 } else { o.total_ns as f64 }, |gpu| gpu.total_ns);
    all.sort_by(|a, b| time(b).total_cmp(&time(a)));
    all.into_iter().map(one).collect()
}

/// Kernels by the path that launched them, with the work that this path's intervals state themselves.
fn kernels(analysis: &Analysis) -> Vec<PointRates> {
    let paths = by_rollup(&analysis.intervals.paths);
    let one = |row: &KernelPathRow| {
        let path = row.path.as_deref()?;
        let totals = paths.get(path)?;
        let merged = analysis.kernels.merged.get(path).copied().unwrap_or(1.0);
        let ns = row.total_ns as f64 * merged;
        let of = |work: Option<u64>| (ns > 0.0 && row.calls > 0).then_some(work? as f64 / ns * 1e9);
        let stated = totals.work.flops.is_some() || totals.work.io_bytes.is_some();
        Some(PointRates {
            name: kernels_label(path, row),
            kind: PointKind::Kernels,
            calls: row.calls,
            over: "kernels",
            ns: (row.calls > 0).then(|| ns / row.calls as f64),
            flops_per_s: of(totals.recorded.flops),
            bytes_per_s: of(totals.recorded.io_bytes.filter(|_| !totals.io_missing)),
            lacks: (!stated).then(|| "its intervals state neither FLOPs nor bytes".to_string()),
            multiply: multiplied(analysis, path.split('/').next().unwrap_or_default()),
            operations: Vec::new(),
        })
    };
    analysis.kernels.by_path.iter().filter_map(one).collect()
}

/// Longest name of a kernel in a point's label: whole ones are in the tables of kernels.
const LONGEST_KERNEL: usize = 32;

/// What a point of a path's kernels is called. Its time is that of all of them: the one that takes most is told with its
/// share.
fn kernels_label(path: &str, row: &KernelPathRow) -> String {
    let Some((kernel, ns)) = &row.top else { return path.to_string() };
    let name = kernel.strip_prefix("void ").unwrap_or(kernel);
    let name: String = match name.char_indices().nth(LONGEST_KERNEL) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_string(),
    };
    let all = row.kernels + row.copies;
    if all <= row.calls && *ns == row.total_ns {
        return format!("{path}: {name}");
    }
    // Those of a call, as the point's time is.
    let is_one = all == row.calls;
    let what = match (row.kernels, row.copies) {
        (_, 0) if is_one => "kernel",
        (_, 0) => "kernels",
        (0, _) if is_one => "copy",
        (0, _) => "copies",
        _ => "kernels and copies",
    };
    let many = match row.calls {
        calls if calls > 0 && all.is_multiple_of(calls) => format!("{} {what}", count(all / calls)),
        calls if calls > 0 => format!("{} {what}", significant(all as f64 / calls as f64)),
        _ => what.to_string(),
    };
    format!("{path}: {many}, {} in {name}", percent(*ns as f64 / row.total_ns.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_several_kernels_is_not_read_as_the_time_of_one() {
        let row = |calls, kernels, copies, top: (&str, u64)| KernelPathRow {
            calls,
            kernels,
            copies,
            total_ns: 1_000,
            top: Some((top.0.into(), top.1)),
            ..KernelPathRow::default()
        };
        let of = |row: KernelPathRow| kernels_label("decode", &row);
        assert_eq!(of(row(10, 14_680, 0, ("gemv", 420))), "decode: 1,468 kernels, 42.0 % in gemv");
        assert_eq!(of(row(10, 15, 5, ("gemv", 420))), "decode: 2 kernels and copies, 42.0 % in gemv");
        assert_eq!(of(row(10, 25, 0, ("gemv", 1_000))), "decode: 2.50 kernels, 100.0 % in gemv");
        assert_eq!(of(row(10, 10, 0, ("gemv", 420))), "decode: 1 kernel, 42.0 % in gemv");
        assert_eq!(of(row(10, 10, 0, ("gemv", 1_000))), "decode: gemv", "one a call: its own time");
        let long = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int> >";
        assert_eq!(of(row(1, 1, 0, (long, 1_000))), "decode: at::native::vectorized_elementwi…");
        assert_eq!(of(KernelPathRow::default()), "decode");
    }
}
