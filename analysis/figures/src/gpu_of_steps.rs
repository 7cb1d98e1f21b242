//! GPU time of steps, and how the devices' time divides while steps run.
//!
//! These are two different things. Marks in the stream give *stream elapsed* time, gaps in the queue included: for how
//! long the GPU had work of a step, not for how long it was busy. Recorded kernels say when it was busy or idle, and
//! why it was idle.

use super::busy::{Busy, Clocks};
use super::covered::CoveredTime;
use super::device_work::DeviceWork;
use super::phases::Phases;
use super::stats::{Distribution, total, total_if_known};
use super::step_rows::{StepRow, spread_by_request};
use super::timeline::{Timeline, timelines, together};
use candlescope_schema::GpuSource;
use candlescope_schema::stretches::{length, merged_but_touching};
use std::collections::HashMap;
use std::sync::Arc;

/// GPU time of steps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gpu {
    /// By phase or name of the steps, in the order of [`Phases::rows`]; those that have GPU time or recorded kernels.
    pub kinds: Vec<GpuKind>,
    /// All recorded steps and all GPUs together.
    pub busy: Option<Busy>,
    /// Each GPU by itself, by UUID.
    pub devices: Vec<(Arc<str>, Busy)>,
    /// Kernels, copies and memsets of steps that are not in the run.
    pub without_step: u64,
    /// How far the devices' times may be off on the host's time line, in nanoseconds, if the run says.
    pub clock_bound_ns: Option<u64>,
}

/// GPU time of all steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuKind {
    /// The phase, or the steps' name.
    pub name: String,
    /// Whether it is a phase.
    pub is_phase: bool,
    /// All steps, with or without GPU time.
    pub steps: u64,
    /// Sum of the steps' durations on the host in nanoseconds.
    pub wall_ns: u64,
    /// GPU time, one row per source.
    pub elapsed: Vec<SourceTime>,
    /// How the device's time divides, if kernels were recorded.
    pub busy: Option<Busy>,
}

/// GPU time of the steps that have it from one source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceTime {
    /// Marks in the stream, whose time includes gaps in the queue, or recorded kernels.
    pub source: GpuSource,
    /// Steps of the kind with GPU time from this source, without warm-up.
    pub measured: u64,
    /// Sum of their GPU time in nanoseconds.
    pub measured_ns: u64,
    /// The same, with overlapping time counted once: the denominator of rates. For several GPUs, their mean.
    pub merged_ns: u64,
    /// Sum of their durations on the host in nanoseconds.
    pub wall_ns: u64,
    /// Mean × all steps of the kind, in nanoseconds.
    pub total_ns: f64,
    /// GPU time of single steps in nanoseconds.
    pub duration: Option<Distribution>,
    /// FLOP/s of the measured steps over `merged_ns`, in 10¹².
    pub tflops: Option<f64>,
    /// The same for executed FLOPs, masked work included.
    pub tflops_executed: Option<f64>,
    /// Bytes/s of weights and KV cache over `merged_ns`, in 10⁹: the numerator of MBU.
    pub gbytes: Option<f64>,
    /// The same with activations.
    pub io_gbytes: Option<f64>,
}

impl SourceTime {
    /// GPU time ÷ duration on the host, of the measured steps. With marks this is not a busy share, because it includes
    /// gaps in the queue.
    pub fn of_wall(&self) -> Option<f64> {
        (self.wall_ns > 0).then(|| self.measured_ns as f64 / self.wall_ns as f64)
    }
}

impl Gpu {
    /// GPU time of `steps`, which are ordered by start and contain only those that count, and the work `recorded` in
    /// and beside them. `covered` is the time in which no step lacks a record.
    pub fn of(
        steps: &[StepRow],
        phases: &Phases,
        recorded: &DeviceWork,
        clocks: Clocks,
        covered: &CoveredTime,
    ) -> Self {
        let timelines = timelines(steps, recorded, clocks, covered);
        let of_device = |line: &Timeline<'_>| Some((line.device.clone(), line.busy(line.steps(None))?));
        let of_devices = || timelines.iter().filter_map(of_device).collect::<Vec<(Arc<str>, Busy)>>();
        let of_group = |name: &str| together(&timelines, Some(name));
        let of_groups = || phases.rows.iter().map(|row| of_group(&row.name)).collect::<Vec<Option<Busy>>>();
        let (devices, by_group) = both(of_devices, of_groups);
        let mut out = Self {
            without_step: recorded.without_step(steps),
            clock_bound_ns: clocks.bound_ns,
            devices,
            ..Self::default()
        };
        out.busy = match (&*timelines, &*out.devices) {
            // It is all of them, and there may be tens of millions of delays to sort.
            ([_], [(_, busy)]) => Some(busy.clone()),
            _ => together(&timelines, None),
        };
        let mut groups: HashMap<&str, Vec<&StepRow>> = HashMap::new();
        for step in steps {
            groups.entry(step.group()).or_default().push(step);
        }
        for (row, busy) in phases.rows.iter().zip(by_group) {
            let Some(steps) = groups.get(row.name.as_str()) else { continue };
            let elapsed: Vec<SourceTime> =
                GpuSource::ALL.iter().filter_map(|source| elapsed(steps, *source, busy.as_ref())).collect();
            if elapsed.is_empty() && busy.is_none() {
                continue;
            }
            out.kinds.push(GpuKind {
                name: row.name.clone(),
                is_phase: row.is_phase,
                steps: row.steps,
                wall_ns: row.total_ns,
                elapsed,
                busy,
            });
        }
        out
    }
}

/// Both answers: the first on another thread, if the system gives one. A panic there goes on here.
fn both<A: Send, B>(first: impl Fn() -> A + Sync, second: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|threads| {
        let beside = std::thread::Builder::new().name("cs-pass".into()).spawn_scoped(threads, &first);
        let second = second();
        let first = match beside {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => first(),
        };
        (first, second)
    })
}

fn elapsed(steps: &[&StepRow], source: GpuSource, busy: Option<&Busy>) -> Option<SourceTime> {
    let measured: Vec<(&StepRow, u64)> = steps
        .iter()
        .filter(|step| step.gpu_source == Some(source))
        .filter_map(|step| Some((*step, step.gpu_ns?)))
        .collect();
    if measured.is_empty() {
        return None;
    }
    let measured_ns = total(measured.iter().map(|(_, ns)| *ns));
    // The denominator of a rate is the time in which the device had the work; overlapping time counts once.
    let merged_ns = match source {
        GpuSource::Event => length(&merged_but_touching(measured.iter().filter_map(|(step, _)| step.gpu_window()))),
        GpuSource::Cupti => match busy {
            Some(busy) => busy.own_ns / busy.devices.max(1),
            // Without kernels the overlap is not known, unless no two steps were open at once.
            None => {
                let windows = measured.iter().map(|(step, _)| (step.start_ns, step.end_ns()));
                let open_ns = total(measured.iter().map(|(step, _)| step.end_ns().abs_diff(step.start_ns)));
                let apart = length(&merged_but_touching(windows)) == open_ns;
                if apart { measured_ns } else { 0 }
            }
        },
    };
    let rate = |work: fn(&StepRow) -> Option<u64>| {
        let work = total_if_known(measured.iter().map(|(step, _)| work(step)))?;
        (merged_ns > 0).then(|| work as f64 / merged_ns as f64)
    };
    Some(SourceTime {
        source,
        measured: measured.len() as u64,
        measured_ns,
        merged_ns,
        wall_ns: total(measured.iter().map(|(step, _)| step.dur_ns)),
        total_ns: measured_ns as f64 / measured.len() as f64 * steps.len() as f64,
        duration: spread_by_request(measured.iter().map(|(step, _)| *step), |step| step.gpu_ns.map(|ns| ns as f64)),
        tflops: rate(|step| step.work.flops).map(|per_ns| per_ns / 1e3),
        tflops_executed: rate(|step| step.work.flops_executed).map(|per_ns| per_ns / 1e3),
        gbytes: rate(|step| step.work.bytes),
        io_gbytes: rate(|step| step.work.io_bytes),
    })
}
