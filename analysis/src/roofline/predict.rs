//! The time of a step on a device: `max(Σ launches on the host, Σ max(roofᵢ, floorᵢ) on the device) + sync`.
//!
//! `roofᵢ` of an operation is the larger of FLOPs executed ÷ FLOP/s and bytes (with activations) ÷ bandwidth [Williams,
//! Waterman, Patterson 2009], `floorᵢ` the number of its kernels × the shortest time of a kernel. What other predictors
//! lack is the first sum: candle launches kernel by kernel, and a small model's kernels end before the next is there.

use super::work::{Operands, Operation, Storage};
use crate::devices::Multiply;
use crate::devices::{Cost, Device};
use serde::Serialize;

/// What decides how long something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// FLOP/s.
    Compute,
    /// Bytes/s of memory.
    Memory,
    /// The shortest time of a kernel.
    KernelFloor,
    /// Launches on the host.
    Host,
    /// Bytes/s between devices.
    Link,
    /// None of these: a measurement stays far below its roof, and what operations cost beside their work comes first.
    Overhead,
}

impl Bound {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::KernelFloor => "kernel floor",
            Self::Host => "launches on the host",
            Self::Link => "link between devices",
            Self::Overhead => "neither: overhead",
        }
    }
}

/// One operation's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationTime {
    /// Its work, for one time.
    #[serde(flatten)]
    pub operation: Operation,
    /// FLOPs ÷ bytes with activations.
    pub intensity: Option<f64>,
    /// FLOP/s that its intensity allows.
    pub attainable_flops: Option<f64>,
    /// Nanoseconds at its roof, once; `None` if the device has no FLOP/s for what it multiplies, or no link.
    pub roof_ns: Option<f64>,
    /// Nanoseconds on the device, all times together: at the roof or at the kernels' floor.
    pub device_ns: Option<f64>,
    /// What decides that.
    pub bound: Option<Bound>,
    /// Share of the step's time on the device.
    pub share: Option<f64>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepPrediction {
    /// Nanoseconds it takes, by the spread of the launch cost; `None` if something needed is not known.
    pub ns: Option<Cost>,
    /// Nanoseconds that launches take on the host; `None` if none are counted.
    pub launches_ns: Option<Cost>,
    /// Nanoseconds on the device.
    pub device_ns: Option<f64>,
    /// Nanoseconds of waiting beyond that, if the device says.
    pub sync_ns: Option<f64>,
    /// Nanoseconds that no program can undercut: needed FLOPs ÷ FLOP/s, or weights, keys and values ÷ bandwidth.
    pub least_ns: Option<f64>,
    /// Kernels launched.
    pub kernels: f64,
    /// FLOPs needed.
    pub flops: f64,
    /// FLOPs executed.
    pub flops_executed: f64,
    /// Bytes of weights, keys and values.
    pub bytes: f64,
    /// The same with activations.
    pub io_bytes: f64,
    /// FLOPs ÷ bytes with activations.
    pub intensity: f64,
    /// FLOPs a byte from which on products of these weights are bound by computing.
    pub ridge: Option<f64>,
    /// What decides its time.
    pub bound: Option<Bound>,
    /// Every operation.
    pub operations: Vec<OperationTime>,
}

/// Predicts a step of these operations. Whatever is missing on the device is in `missing`, once.
pub fn predict(
    operations: Vec<Operation>,
    device: &Device,
    storage: &Storage,
    missing: &mut Vec<String>,
) -> StepPrediction {
    let weights = device.multiplies(storage.weights.multiply);
    let mut timed: Vec<OperationTime> =
        operations.into_iter().map(|operation| time(operation, device, storage, missing)).collect();
    let sum = |of: fn(&Operation) -> f64| timed.iter().map(|t| t.operation.calls * of(&t.operation)).sum::<f64>();
    let (flops, flops_executed) = (sum(|o| o.flops), sum(Operation::executed));
    let (bytes, io_bytes) = (sum(Operation::bytes), sum(Operation::io_bytes));
    let kernels = sum(|o| o.kernels);
    let device_ns: Option<f64> = timed.iter().map(|t| t.device_ns).sum();
    let launches_ns = device.launch.map(|cost| cost.times(kernels));
    let sync = device.sync.unwrap_or(0.0);
    let ns = device_ns.map(|on_device| match launches_ns {
        Some(launches) => launches.map(|host| host.max(on_device) + sync),
        None => Cost::exact(on_device + sync),
    });
    for each in &mut timed {
        each.share = each.device_ns.zip(device_ns).filter(|(_, all)| *all > 0.0).map(|(own, all)| own / all);
    }
    let peak = device.flops_for(weights).map(|(flops, _)| flops);
    let in_memory = bytes / device.bandwidth * 1e9;
    StepPrediction {
        ns,
        launches_ns,
        device_ns,
        sync_ns: device.sync,
        least_ns: peak.map(|peak| (flops / peak * 1e9).max(in_memory)),
        kernels,
        flops,
        flops_executed,
        bytes,
        io_bytes,
        intensity: flops / io_bytes,
        ridge: device.ridge(weights),
        bound: device_ns.and_then(|on_device| match launches_ns {
            Some(launches) if launches.mid > on_device => Some(Bound::Host),
            _ => most_time(&timed),
        }),
        operations: timed,
    }
}

/// The bound of the operations that take most of the time.
fn most_time(timed: &[OperationTime]) -> Option<Bound> {
    let of =
        |bound: Bound| -> f64 { timed.iter().filter(|t| t.bound == Some(bound)).filter_map(|t| t.device_ns).sum() };
    let bounds = [Bound::Compute, Bound::Memory, Bound::KernelFloor, Bound::Link];
    bounds.into_iter().max_by(|a, b| of(*a).total_cmp(&of(*b))).filter(|bound| of(*bound) > 0.0)
}

fn time(operation: Operation, device: &Device, storage: &Storage, missing: &mut Vec<String>) -> OperationTime {
    let mut lacks = |what: String| {
        if !missing.contains(&what) {
            missing.push(what);
        }
    };
    let has = |multiply: Multiply| device.flops.contains_key(&multiply);
    let multiply = match operation.operands {
        Operands::Weights => storage.weights.multiply,
        Operands::Activations if storage.product >= 4.0 => Multiply::F32,
        // GGML's and 8-bit weights do not say what attention multiplies: 16-bit floats beside 16-bit activations, of
        // the kind that the device has.
        Operands::Activations if storage.weights.multiply == Multiply::Bf16 => Multiply::Bf16,
        Operands::Activations if has(Multiply::Bf16) && !has(Multiply::F16) => Multiply::Bf16,
        Operands::Activations => Multiply::F16,
    };
    let multiply = device.multiplies(multiply);
    let (executed, io_bytes) = (operation.executed(), operation.io_bytes());
    let peak = device.flops_for(multiply).map(|(flops, _)| flops);
    if executed > 0.0 && peak.is_none() {
        lacks(format!("{} has no FLOP/s for {}: its maker gives none", device.name, multiply.name()));
    }
    let computing = if executed > 0.0 { peak.map(|peak| executed / peak * 1e9) } else { Some(0.0) };
    let moving = io_bytes / device.bandwidth * 1e9;
    let linking = match (&device.link, operation.link_bytes) {
        (_, 0.0) => Some(0.0),
        (Some(link), sent) => Some(sent / link.bytes_per_s * 1e9),
        (None, _) => {
            // Left out, and said so, rather than refused: it is small beside the rest on a fast link.
            lacks(format!("{} has no link in its datasheet: the time of all-reduces is left out", device.name));
            Some(0.0)
        }
    };
    let floor = device.kernel_floor.unwrap_or(0.0) * operation.kernels;
    let roof_ns = computing.zip(linking).map(|(computing, linking)| computing.max(moving).max(linking));
    let bound = computing.zip(linking).and_then(|(computing, linking)| {
        let times =
            [(computing, Bound::Compute), (moving, Bound::Memory), (linking, Bound::Link), (floor, Bound::KernelFloor)];
        times.into_iter().filter(|(ns, _)| *ns > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, bound)| bound)
    });
    let intensity = (operation.flops > 0.0 && io_bytes > 0.0).then(|| operation.flops / io_bytes);
    OperationTime {
        intensity,
        attainable_flops: intensity.zip(peak).map(|(intensity, peak)| peak.min(intensity * device.bandwidth)),
        roof_ns,
        device_ns: roof_ns.map(|roof| roof.max(floor) * operation.calls),
        bound,
        share: None,
        operation,
    }
}
