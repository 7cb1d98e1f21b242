//! The time of a step on a device: `max(Σ launches on the host, Σ max(roofᵢ, floorᵢ) on the device) + sync`.
//!
//! `roofᵢ` of an operation is the larger of FLOPs executed ÷ FLOP/s and bytes (with activations) ÷ bandwidth
//! [Williams, Waterman, Patterson 2009], `floorᵢ` the number of its kernels × the usual time of a small kernel, in the
//! low end of the result the shortest that was seen. What other predictors lack is the first sum: candle launches
//! kernel by kernel, and a small model's kernels end before the next is there.
//!
//! Kernels on strided operands need index arithmetic, which comes on top where the device has a rate for it
//! ([`Device::index_rate`](candlescope_work::devices::Device::index_rate)): candle's CUDA kernels divide twice for each
//! dimension of each element.
//!
//! A processor's products of several rows copy their weights into panels, which comes on top where the device has a rate
//! for it ([`Device::panel_rate`](candlescope_work::devices::Device::panel_rate)). Nothing is multiplied while they are read
//! and copied, so that reading, copying and multiplying add up where the device's figures were fitted so
//! ([`Device::panels_in_turn`](candlescope_work::devices::Device::panels_in_turn)).
//!
//! A device that was calibrated in the finer form ([`AttainedRates`]) has rates by kind of operation, and a kernel's own
//! time comes before that of its work instead of standing in for it. There a step also ends later than the longer of the
//! two sums: its last operations (the head, the choice of a token) are launched when the host is done with the layers,
//! and nothing hides them. Launches and kernels are two stations in a row, so a step takes the longest of all ways that
//! go over from the host to the device at one operation.

use super::scenario::Storage;
use candlescope_figures::KernelLaunch;
use candlescope_work::devices::{AttainedRates, ByClass, Device, Multiply, OperationClass};
use candlescope_work::estimate::Estimate;
use candlescope_work::step::{Operands, Operation};
use serde::Serialize;

/// What decides how long something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// FLOP/s: computing takes longest, or the intensity is above the ridge.
    Compute,
    /// Bytes/s of memory: moving takes longest, copies into panels included, or the intensity is not above the ridge.
    Memory,
    /// What small kernels take beside their work.
    KernelFloor,
    /// Launches on the host.
    Host,
    /// Bytes/s between devices: what they exchange takes longest, where several share a model.
    Link,
    /// None of these: index arithmetic, or a measurement that stays far below its roof, where what operations cost
    /// beside their work comes first.
    Overhead,
}

impl Bound {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
            Self::KernelFloor => "small kernels",
            Self::Host => "launches on the host",
            Self::Link => "link between devices",
            Self::Overhead => "neither: overhead",
        }
    }
}

/// The time of one operation of a step: at its roof once, and on the device in all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OperationTime {
    /// Its work, for one time.
    #[serde(flatten)]
    pub operation: Operation,
    /// Its kind, by its name: for each kind a calibrated device has rates of its own.
    pub class: OperationClass,
    /// FLOPs ÷ bytes with activations.
    pub intensity: Option<f64>,
    /// FLOP/s that its intensity allows.
    pub attainable_flops: Option<f64>,
    /// Nanoseconds at its roof, once; `None` if the device has no FLOP/s for what it multiplies, or no link.
    pub roof_ns: Option<f64>,
    /// Nanoseconds on the device, all times together: at the roof or what small kernels take, of a calibrated device the
    /// kernels' own time and that of the work; index arithmetic and copies into panels come on top.
    pub device_ns: Option<f64>,
    /// What takes longest of that time; `None` if the device lacks FLOP/s for it, or it takes no time.
    pub bound: Option<Bound>,
    /// Share of the step's time on the device.
    pub share: Option<f64>,
}

/// The predicted time of one step, and the work of all its operations on one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepPrediction {
    /// Nanoseconds it takes, by the spread of the launch cost and of small kernels; `None` if something needed is not known.
    pub ns: Option<Estimate>,
    /// What launches cost on this device is not known and left out: the time is a lower bound.
    pub launches_unknown: bool,
    /// Nanoseconds that launches take on the host; `None` if none are counted.
    pub launches_ns: Option<Estimate>,
    /// Nanoseconds on the device.
    pub device_ns: Option<f64>,
    /// Nanoseconds of waiting beyond that, if the device says.
    pub sync_ns: Option<f64>,
    /// Nanoseconds that no program can undercut: needed FLOPs ÷ FLOP/s, or weights, keys and values ÷ bandwidth.
    pub least_ns: Option<f64>,
    /// Kernels that candle launches on a GPU for the whole step, copies included; counted for a processor, too.
    pub kernels: f64,
    /// FLOPs that the model needs, all operations with all their calls: without the masked part of attention.
    pub flops: f64,
    /// FLOPs that candle executes, the masked part of attention included.
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
    /// Every operation in the order of the step; what layers repeat stands once, with its `calls`.
    pub operations: Vec<OperationTime>,
}

/// Predicts a step of these operations. Whatever is missing on the device is in `missing`, once.
pub fn predict(
    operations: Vec<Operation>,
    device: &Device,
    storage: &Storage,
    missing: &mut Vec<String>,
) -> StepPrediction {
    let weights = device.multiplies(storage.multiply);
    let mut timed: Vec<OperationTime> =
        operations.into_iter().map(|operation| time(operation, device, storage, missing)).collect();
    let sum = |of: fn(&Operation) -> f64| timed.iter().map(|t| t.operation.calls * of(&t.operation)).sum::<f64>();
    let (flops, flops_executed) = (sum(|o| o.cost.flops), sum(|o| o.cost.flops_executed()));
    let (bytes, io_bytes) = (sum(|o| o.cost.bytes()), sum(|o| o.cost.io_bytes()));
    let kernels = sum(|o| o.kernels);
    let gap = |t: &OperationTime| device.attained.map_or(0.0, |own| t.operation.calls * own.gaps(&t.operation));
    let gaps: f64 = timed.iter().map(gap).sum();
    let device_ns: Option<f64> = timed.iter().map(|t| t.device_ns).sum();
    let launches_ns = device.launch.map(|cost| {
        cost.map(|launch| timed.iter().map(|t| t.operation.calls * launch_ns(&t.operation, device, launch)).sum())
    });
    let times: Option<Vec<f64>> = timed.iter().map(|t| t.device_ns).collect();
    let shortest: Option<Vec<f64>> =
        timed.iter().map(|t| Parts::of(&t.operation, device, storage).least_ns(device, &t.operation)).collect();
    let ns = times.zip(shortest).map(|(times, shortest)| {
        let low = with_times(&timed, &shortest, device).low;
        Estimate { low, ..with_times(&timed, &times, device) }
    });
    for each in &mut timed {
        each.share = each.device_ns.zip(device_ns).filter(|(_, all)| *all > 0.0).map(|(own, all)| own / all);
    }
    let peak = device.flops_for(weights).map(|(flops, _)| flops);
    let in_memory = bytes / device.bandwidth * 1e9;
    StepPrediction {
        ns,
        launches_unknown: device.launches_unknown(),
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
            Some(launches) if launches.mid > on_device + gaps => Some(Bound::Host),
            _ => most_time(&timed),
        }),
        operations: timed,
    }
}

/// The bound of the operations that take most of the time.
fn most_time(timed: &[OperationTime]) -> Option<Bound> {
    let of =
        |bound: Bound| -> f64 { timed.iter().filter(|t| t.bound == Some(bound)).filter_map(|t| t.device_ns).sum() };
    let bounds = [Bound::Compute, Bound::Memory, Bound::KernelFloor, Bound::Link, Bound::Overhead];
    bounds.into_iter().max_by(|a, b| of(*a).total_cmp(&of(*b))).filter(|bound| of(*bound) > 0.0)
}

/// Nanoseconds of a step whose operations take `times` on the device, each with all its calls.
pub(super) fn with_times(timed: &[OperationTime], times: &[f64], device: &Device) -> Estimate {
    let (on_device, sync) = (times.iter().sum::<f64>(), device.sync.unwrap_or(0.0));
    match device.launch {
        Some(launch) => launch.map(|launch| {
            let each = timed.iter().map(|t| &t.operation).zip(times.iter().copied());
            ends(each, device, launch) + sync
        }),
        None => Estimate::exact(on_device + sync),
    }
}

/// Nanoseconds that launching an operation takes on the host, once.
fn launch_ns(operation: &Operation, device: &Device, launch: f64) -> f64 {
    match &device.attained {
        Some(attained) => attained.launches(operation, launch),
        None => operation.kernels * launch,
    }
}

/// When the device has done all of a step whose operations take so long on it, each with all its calls.
fn ends<'a>(timed: impl DoubleEndedIterator<Item = (&'a Operation, f64)> + Clone, device: &Device, launch: f64) -> f64 {
    let launches = |o: &Operation| o.calls * launch_ns(o, device, launch);
    let on_host: f64 = timed.clone().map(|(operation, _)| launches(operation)).sum();
    let Some(attained) = &device.attained else { return on_host.max(timed.map(|(_, ns)| ns).sum()) };
    let timed = timed.map(|(operation, ns)| (operation, ns + operation.calls * attained.gaps(operation)));
    let on_device: f64 = timed.clone().map(|(_, ns)| ns).sum();
    // What comes once, after the layers, from the end: the host has launched up to its first kernel, and the device
    // still has it and all after it to do.
    let (mut latest, mut host, mut left) = (on_device.max(on_host), on_host, 0.0);
    for (operation, ns) in timed.rev().take_while(|(operation, _)| operation.calls <= 1.0) {
        let own = launches(operation);
        host -= own;
        left += ns;
        latest = f64::max(latest, host + own / operation.kernels.max(1.0) + left);
    }
    latest
}

/// What a fit compares: nanoseconds of a step, on the device, and on the device by kind of operation. `None` if the
/// device lacks something for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTimes {
    pub(super) ns: f64,
    pub(super) device_ns: f64,
    pub(super) by_class: ByClass,
    pub(super) launches: LaunchTimes,
}

/// Nanoseconds from launch to launch on the host, by what is launched.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchTimes {
    plain: f64,
    product: f64,
    strided: f64,
    divided: f64,
}

impl LaunchTimes {
    fn of_device(device: &Device) -> Self {
        let plain = device.launch.map_or(0.0, |launch| launch.mid);
        let beyond = |of: fn(&AttainedRates) -> f64| plain + device.attained.as_ref().map_or(0.0, of);
        Self {
            plain,
            product: beyond(|a| a.product_launch_ns),
            strided: beyond(|a| a.strided_launch_ns),
            divided: device.attained.as_ref().and_then(|a| a.divided_launch_ns).unwrap_or(plain),
        }
    }

    /// Where each launch is recorded at this cost, an upload being another one.
    pub(super) fn recorded(self, ns: f64) -> Self {
        Self {
            plain: self.plain + ns,
            product: self.product + ns,
            strided: self.strided + 2.0 * ns,
            divided: self.divided + ns,
        }
    }

    pub(super) fn of(&self, launched: KernelLaunch) -> f64 {
        match launched {
            KernelLaunch::Plain => self.plain,
            KernelLaunch::Product => self.product,
            KernelLaunch::Strided => self.strided,
            KernelLaunch::Divided => self.divided,
        }
    }
}

/// The times alone, as [`predict`] gives them.
pub(super) fn step_times(operations: &[Operation], device: &Device, storage: &Storage) -> Option<StepTimes> {
    let mut by_class = ByClass::all(0.0);
    let (mut device_ns, mut each) = (0.0, Vec::with_capacity(operations.len()));
    for operation in operations {
        let ns = Parts::of(operation, device, storage).device_ns(device)? * operation.calls;
        *by_class.of_mut(OperationClass::of(operation.name)) += ns;
        device_ns += ns;
        each.push((operation, ns));
    }
    let end = match device.launch {
        Some(launch) => ends(each.iter().copied(), device, launch.mid),
        None => device_ns,
    };
    let launches = LaunchTimes::of_device(device);
    Some(StepTimes { ns: end + device.sync.unwrap_or(0.0), device_ns, by_class, launches })
}

/// What the time of an operation on the device is made of, once, in nanoseconds.
struct Parts {
    /// The type it multiplies in.
    multiply: Multiply,
    /// FLOP/s of that.
    peak: Option<f64>,
    /// Bytes/s.
    bandwidth: f64,
    computing: Option<f64>,
    moving: f64,
    /// `None` without a link.
    linking: Option<f64>,
    /// What its kernels take if they are small, or beside their work.
    floor: f64,
    /// Index arithmetic of kernels on strided operands.
    indexing: f64,
    /// Copying weights into panels.
    panels: f64,
    /// Share of its weights that are read and copied before they are multiplied, and not meanwhile: of a mixture's step
    /// the experts to which several rows go.
    in_turn: f64,
}

impl Parts {
    fn of(operation: &Operation, device: &Device, storage: &Storage) -> Self {
        let has = |multiply: Multiply| device.flops.contains_key(&multiply);
        let multiply = match operation.operands {
            Operands::Weights => storage.multiply,
            Operands::Activations if storage.widths.products >= 4.0 => Multiply::F32,
            // GGML's and 8-bit weights do not say what attention multiplies: 16-bit floats beside 16-bit activations,
            // of the kind that the device has.
            Operands::Activations if storage.multiply == Multiply::Bf16 => Multiply::Bf16,
            Operands::Activations if has(Multiply::Bf16) && !has(Multiply::F16) => Multiply::Bf16,
            Operands::Activations => Multiply::F16,
        };
        let multiply = device.multiplies(multiply);
        let executed = operation.cost.flops_executed();
        let attained = device.attained.as_ref();
        let peak = attained
            .and_then(|attained| attained.flops_of(operation))
            .or_else(|| device.flops_for(multiply).map(|(flops, _)| flops));
        let bandwidth = attained.map_or(device.bandwidth, |attained| attained.bandwidth_of(operation));
        let copied = operation.panel_bytes / storage.widths.products;
        let weights = operation.cost.weight_bytes / storage.widths.weights;
        Self {
            multiply,
            peak,
            bandwidth,
            computing: if executed > 0.0 { peak.map(|peak| executed / peak * 1e9) } else { Some(0.0) },
            moving: attained.map_or(operation.cost.io_bytes() / bandwidth * 1e9, |attained| attained.moving(operation)),
            linking: match (&device.link, operation.link_bytes) {
                (_, 0.0) => Some(0.0),
                (Some(link), sent) => Some(sent / link.bytes_per_s * 1e9),
                (None, _) => None,
            },
            floor: match attained {
                Some(attained) => attained.beside_work(operation),
                None => device.kernel_floor.unwrap_or(0.0) * operation.kernels,
            },
            indexing: device.index_rate.map_or(0.0, |rate| operation.index_steps / rate * 1e9),
            panels: device.panel_rate.map_or(0.0, |rate| operation.panel_bytes / rate * 1e9),
            in_turn: if device.panels_in_turn && copied > 0.0 { (copied / weights).min(1.0) } else { 0.0 },
        }
    }

    /// At the roof. What is sent without a link is left out: it is small beside the rest on a fast one.
    fn roof_ns(&self) -> Option<f64> {
        self.computing.map(|computing| computing.max(self.moving).max(self.linking.unwrap_or(0.0)))
    }

    fn device_ns(&self, device: &Device) -> Option<f64> {
        let roof = self.roof_ns()?;
        let computing = self.computing?;
        let needed = roof.max(computing.max(self.moving) + self.in_turn * computing.min(self.moving));
        let work = if device.attained.is_some() { needed + self.floor } else { needed.max(self.floor) };
        Some(work + self.indexing + self.panels)
    }

    /// The same for all calls, with the shortest kernels that were seen in the place of usual ones.
    fn least_ns(mut self, device: &Device, operation: &Operation) -> Option<f64> {
        if let (Some(least), None) = (device.kernel_least, &device.attained) {
            self.floor = self.floor.min(least * operation.kernels);
        }
        Some(self.device_ns(device)? * operation.calls)
    }

    fn bound(&self) -> Option<Bound> {
        let computing = self.computing?;
        // Copies into panels come on top of the longer of the two, or of both.
        let moving = match self.in_turn > 0.0 || computing <= self.moving {
            true => self.moving + self.panels,
            false => self.panels.max(self.moving),
        };
        let times = [
            (computing, Bound::Compute),
            (moving, Bound::Memory),
            (self.linking.unwrap_or(0.0), Bound::Link),
            (self.floor, Bound::KernelFloor),
            (self.indexing, Bound::Overhead),
        ];
        times.into_iter().filter(|(ns, _)| *ns > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, bound)| bound)
    }
}

fn time(operation: Operation, device: &Device, storage: &Storage, missing: &mut Vec<String>) -> OperationTime {
    let parts = Parts::of(&operation, device, storage);
    let mut lacks = |what: String| {
        if !missing.contains(&what) {
            missing.push(what);
        }
    };
    if parts.computing.is_none() {
        lacks(format!("{} has no FLOP/s for {}: its maker gives none", device.name, parts.multiply.name()));
    }
    if parts.linking.is_none() {
        // Said, rather than refused.
        lacks(format!("{} has no link in its datasheet: the time of all-reduces is left out", device.name));
    }
    let io_bytes = operation.cost.io_bytes();
    let intensity = (operation.cost.flops > 0.0 && io_bytes > 0.0).then(|| operation.cost.flops / io_bytes);
    OperationTime {
        intensity,
        attainable_flops: intensity.zip(parts.peak).map(|(intensity, peak)| peak.min(intensity * parts.bandwidth)),
        roof_ns: parts.roof_ns(),
        device_ns: parts.device_ns(device).map(|ns| ns * operation.calls),
        bound: parts.bound(),
        share: None,
        class: OperationClass::of(operation.name),
        operation,
    }
}
