//! One step as what its parts wait for.
//!
//! The host's time is a row of parts: work between calls, launch calls, waits for the device. A kernel, copy or memset
//! begins when its call has launched it, the work before it in its stream has ended, and the work of another stream
//! that it waited for has, each plus the time that this takes. What the run measured fixes the delay of whichever was
//! the last; the others get the usual one. So the unchanged step is the measured one, and a changed one follows.

use super::many_rows::ManyRows;
use candlescope_figures::cache_reads::reads_cache;
use candlescope_schema::KernelKind;
use candlescope_work::estimate::Estimate;
use serde::Serialize;
use std::sync::Arc;

/// Most intervals around one: a crafted run may have a chain of all of them.
const MOST_DEEP: usize = 1_024;
/// No place.
pub(super) const NOWHERE: u32 = u32::MAX;
/// From the end of a kernel to the start of the next where a step does not show it, in nanoseconds: between dependent
/// kernels of an H200 (`docs/measurements/lab.md`).
pub(super) const QUEUE_NS: f64 = 1_450.0;
/// From the end of a call to the start of its kernel on an idle device where a step does not show it, in nanoseconds.
pub(super) const DELAY_NS: f64 = 3_000.0;

/// One step, ready to be replayed. Made by [`Simulation::of`](super::Simulation::of).
#[derive(Debug, Clone)]
pub struct StepModel {
    pub(super) step: u64,
    pub(super) group: String,
    pub(super) measured_ns: f64,
    /// The step's time on the host.
    pub(super) host_ns: f64,
    pub(super) parts: Parts,
    pub(super) places: Vec<StepInterval>,
    /// Time in which the device was still busy with earlier steps when the step could have begun there.
    pub(super) backlog_ns: f64,
    /// Waits for the device that no recorded call explains.
    pub(super) inferred_waits: u64,
    /// Time in which the host waited for the device, in calls that were recorded and in those that were not.
    pub(super) waited_ns: f64,
    pub(super) is_decode: bool,
    pub(super) sequences: Option<u32>,
    /// Rows that its products have: tokens that it computes.
    pub(super) rows: Option<u32>,
    /// What steps of many rows take, on a host alone.
    pub(super) many_rows: Arc<ManyRows>,
    pub(super) facts: Arc<Facts>,
}

/// What changes change.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) host: Vec<HostPart>,
    /// In order of launch.
    pub(super) works: Vec<DeviceWork>,
}

/// A part of the host's time. Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum HostPart {
    /// Work in an interval, outside calls. `boundaries` intervals begin or end right before it.
    Work { ns: f64, place: u32, boundaries: u32 },
    /// A call that launches `count` works from `first` on.
    Call { ns: f64, place: u32, first: u32, count: u32 },
    /// The host waits until a work has ended, and goes on after `wake_ns`.
    Wait { on: u32, wake_ns: f64 },
}

/// From which end of its call on a work's delay counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    /// The device was quicker than the call.
    Begin,
    /// The call had returned before.
    End,
}

/// A kernel, copy or memset. Nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct DeviceWork {
    pub(super) ns: f64,
    /// As recorded, whatever changes did to `ns`.
    pub(super) recorded_ns: f64,
    pub(super) kind: KernelKind,
    pub(super) name: Arc<str>,
    pub(super) place: u32,
    pub(super) stream: u32,
    pub(super) anchor: Anchor,
    pub(super) delay_ns: f64,
    /// The work before it in its stream.
    pub(super) after: Option<u32>,
    pub(super) queue_ns: f64,
    /// A work of another stream that it waited for, and how long after its end it began.
    pub(super) also: Option<(u32, f64)>,
    /// It cannot begin earlier, from the step's begin: the device was busy with another step.
    pub(super) not_before_ns: Option<f64>,
    /// It is part of another work now: it takes no time and needs no launch, and what comes after it waits for what it
    /// would have waited for on the device.
    pub(super) gone: bool,
    /// A graph launches it.
    pub(super) in_graph: bool,
}

impl DeviceWork {
    pub(super) fn is_kernel(&self) -> bool {
        self.kind == KernelKind::Kernel
    }

    /// A copy to the host.
    pub(super) fn to_host(&self) -> bool {
        self.kind == KernelKind::Memcpy && &*self.name == "dtoh"
    }

    /// A copy from the host.
    pub(super) fn of_input(&self) -> bool {
        self.kind == KernelKind::Memcpy && &*self.name == "htod"
    }
}

/// An interval of the step.
#[derive(Debug, Clone)]
pub(super) struct StepInterval {
    /// Its path with ordinals.
    pub(super) path: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) module: Option<Arc<str>>,
    /// The interval around it, or [`NOWHERE`].
    pub(super) parent: u32,
    pub(super) flops: Option<f64>,
    /// Weights, keys and values.
    pub(super) bytes: Option<f64>,
    /// These and activations.
    pub(super) io_bytes: Option<f64>,
}

impl StepInterval {
    /// Whether its bytes are keys and values, not weights. A run has their sum; attention and its parts read keys and
    /// values, and everything else reads weights.
    pub(super) fn reads_cache(&self) -> bool {
        self.module.as_deref().is_some_and(reads_cache) || reads_cache(&self.name)
    }
}

/// What all steps of a kind share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// What recording cost the host, estimated: a step without it is the unobserved one.
    pub recording: Recording,
    /// From the end of a kernel to the start of the next in a graph, beyond what their recorded times contain, in
    /// nanoseconds.
    pub graph_gap_ns: Estimate,
    /// Where that is from.
    pub graph_gap_source: String,
    /// What these steps would cost to launch call by call; `None` if no graph launches them, or nothing tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eager_launches: Option<EagerLaunches>,
    /// Bytes/s that the device's memory can be read with.
    pub bandwidth: Option<f64>,
    /// FLOP/s in the type that the steps multiply.
    pub flops: Option<f64>,
    /// Where these two are from.
    pub peaks_source: Option<String>,
    /// Bits of a weight.
    pub weight_bits: Option<f64>,
}

/// What launching call by call costs. Nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EagerLaunches {
    /// What the host takes for each kernel, copy or memset: its call, and what the program does until the next one.
    pub host_ns: Estimate,
    /// From the end of a call to the start of what it launched, on an idle device.
    pub delay_ns: f64,
    /// From the end of a kernel to the start of the next one, where that was launched in time.
    pub queue_ns: f64,
    /// Where these are from.
    pub source: String,
}

/// What recording costs the host. Nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recording {
    /// To begin and end an interval.
    pub interval_ns: Estimate,
    /// Where that is from.
    pub interval_source: String,
    /// Marks (CUDA events), for each interval of a step.
    pub marks_ns: Estimate,
    /// To record a call that launches.
    pub call_ns: Estimate,
    /// Where that is from.
    pub call_source: String,
}

impl StepModel {
    /// Number of the step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The step's phase, or its name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// From the step's begin to the end of its last work, or of the step on the host if that is later. Nanoseconds.
    pub fn measured_ns(&self) -> f64 {
        self.measured_ns
    }

    /// Kernels, copies and memsets that the step launched.
    pub fn works(&self) -> usize {
        self.parts.works.len()
    }

    /// Kernels that the step launched, without the copies and memsets that [`works`](Self::works) counts, too.
    pub fn kernels(&self) -> usize {
        self.parts.works.iter().filter(|work| work.is_kernel()).count()
    }

    /// Sum of the kernels' times, in nanoseconds.
    pub fn kernel_ns(&self) -> f64 {
        self.parts.works.iter().filter(|work| work.is_kernel()).map(|work| work.ns).sum()
    }

    /// Waits of the host for the device that no recorded call explains: found by when the host went on.
    pub fn inferred_waits(&self) -> u64 {
        self.inferred_waits
    }

    /// What all steps of the kind share.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The intervals around a place, itself first. Real ones nest a few deep.
    pub(super) fn around(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        let known = |place: &u32| (*place as usize) < self.places.len();
        // Parents come before their children: no circle.
        std::iter::successors(Some(place).filter(known), move |at| {
            let parent = self.places[*at as usize].parent;
            (parent < *at).then_some(parent)
        })
        .take(MOST_DEEP)
    }
}
