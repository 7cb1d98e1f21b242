//! NVML itself: queries in, answers or failures out. The only file that uses `nvml-wrapper`.

use super::gpu_metrics::{Answer, Query};
use super::gpu_source::{Failure, Gpu, GpuFacts, Machine, Unavailable};
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT};
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};
use std::ffi::OsStr;
use std::sync::OnceLock;

/// NVML, once started: handles of GPUs borrow it, and a collector has to own its handles.
static NVML: OnceLock<Nvml> = OnceLock::new();

/// This machine's GPUs.
pub(super) fn machine() -> Result<Machine, Unavailable> {
    let nvml = match NVML.get() {
        Some(nvml) => nvml,
        None => {
            let started = start(None)?;
            // If two threads start it at once, the later one's handle is dropped, which is fine because NVML counts its
            // users.
            NVML.get_or_init(|| started)
        }
    };
    let mut machine = Machine {
        driver: nvml.sys_driver_version().ok(),
        cuda_driver: nvml
            .sys_cuda_driver_version()
            .ok()
            .map(|v| format!("{}.{}", cuda_driver_version_major(v), cuda_driver_version_minor(v))),
        ..Machine::default()
    };
    let count = nvml.device_count().map_err(unavailable)?;
    for index in 0..count {
        match nvml.device_by_index(index).and_then(|device| Ok((device.uuid()?, device))) {
            Ok((uuid, device)) => {
                let supported = device.supported_throttle_reasons().ok().map(|reasons| reasons.bits());
                machine.gpus.push((facts(index, uuid, &device), Box::new(NvmlGpu { device, supported })));
            }
            // A broken or inaccessible GPU does not affect the others.
            Err(error) => machine.unreachable.push(format!("GPU index {index}: {error}")),
        }
    }
    Ok(machine)
}

/// Loads and starts NVML, from `library` if that is given instead of the usual name.
fn start(library: Option<&OsStr>) -> Result<Nvml, Unavailable> {
    let mut builder = Nvml::builder();
    if let Some(library) = library {
        builder.lib_path(library);
    }
    builder.init().map_err(unavailable)
}

fn unavailable(error: NvmlError) -> Unavailable {
    match error {
        NvmlError::LibloadingError(error) => Unavailable::NoLibrary(error.to_string()),
        NvmlError::LibraryNotFound => Unavailable::NoLibrary(error.to_string()),
        NvmlError::DriverNotLoaded => Unavailable::NoDriver,
        NvmlError::LibRmVersionMismatch => Unavailable::VersionMismatch,
        NvmlError::NoPermission => Unavailable::NoPermission,
        NvmlError::NotFound => Unavailable::NoGpu(Vec::new()),
        other => Unavailable::Other(other.to_string()),
    }
}

/// NVML knows the cores of a GPU; how many of them a multiprocessor has depends on its generation [CUDA C++ Programming
/// Guide, "Compute Capabilities"].
fn multiprocessors(device: &Device<'_>) -> Option<u32> {
    let capability = device.cuda_compute_capability().ok()?;
    let each = match (capability.major, capability.minor) {
        (7, _) | (8, 0) => 64,
        (8, _) | (9, _) | (10, _) | (12, _) => 128,
        _ => return None,
    };
    device.num_cores().ok().map(|cores| cores / each).filter(|n| *n > 0)
}

fn facts(index: u32, uuid: String, device: &Device<'_>) -> GpuFacts {
    GpuFacts {
        uuid,
        index,
        name: device.name().ok(),
        pci: device.pci_info().ok().map(|pci| pci.bus_id),
        memory_bytes: device.memory_info().ok().map(|memory| memory.total),
        power_limit_watts: device.enforced_power_limit().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
        compute_capability: device.cuda_compute_capability().ok().map(|c| format!("{}.{}", c.major, c.minor)),
        multiprocessors: multiprocessors(device),
        highest_clock_hertz: device.max_clock_info(Clock::SM).ok().map(|mega| f64::from(mega) * 1e6),
        mig: device.mig_mode().ok().map(|mode| mode.current != 0),
    }
}

#[derive(Debug)]
struct NvmlGpu {
    device: Device<'static>,
    /// Bits of the throttle reasons that this GPU can have.
    supported: Option<u64>,
}

impl Gpu for NvmlGpu {
    fn ask(&self, query: Query) -> Result<Answer, Failure> {
        let device = &self.device;
        let number = |n: u32| Answer::Number(f64::from(n));
        let answer = match query {
            Query::Energy => device.total_energy_consumption().map(|n| Answer::Number(n as f64)),
            Query::PowerInstant => self.field(NVML_FI_DEV_POWER_INSTANT),
            Query::PowerUsage => device.power_usage().map(number),
            Query::PowerAverage => self.field(NVML_FI_DEV_POWER_AVERAGE),
            Query::PowerLimit => device.enforced_power_limit().map(number),
            Query::Memory => device.memory_info().map(|m| Answer::Memory {
                used: m.used,
                free: m.free,
                reserved: m.reserved,
                total: m.total,
            }),
            Query::Utilization => {
                device.utilization_rates().map(|u| Answer::Utilization { gpu: u.gpu, memory: u.memory })
            }
            Query::ClockGraphics => device.clock_info(Clock::Graphics).map(number),
            Query::ClockSm => device.clock_info(Clock::SM).map(number),
            Query::ClockMemory => device.clock_info(Clock::Memory).map(number),
            Query::ClockVideo => device.clock_info(Clock::Video).map(number),
            Query::Temperature => device.temperature(TemperatureSensor::Gpu).map(number),
            Query::Throttle => device
                .current_throttle_reasons()
                .map(|reasons| Answer::Throttle { active: reasons.bits(), supported: self.supported }),
            Query::PcieGeneration => device.current_pcie_link_gen().map(number),
            Query::PcieWidth => device.current_pcie_link_width().map(number),
            Query::PcieReceive => device.pcie_throughput(PcieUtilCounter::Receive).map(number),
            Query::PcieTransmit => device.pcie_throughput(PcieUtilCounter::Send).map(number),
        };
        answer.map_err(failure)
    }
}

impl NvmlGpu {
    /// A field's value. Both the call and the field within it may fail.
    fn field(&self, id: u32) -> Result<Answer, NvmlError> {
        let sample = self.device.field_values_for(&[FieldId(id)])?.pop().ok_or(NvmlError::NoData)??;
        Ok(Answer::Number(match sample.value? {
            SampleValue::F64(n) => n,
            SampleValue::U32(n) => n.into(),
            SampleValue::U64(n) => n as f64,
            SampleValue::I64(n) => n as f64,
        }))
    }
}

/// Whether asking again can help. A failure that is not known to be final is asked again, less and less often.
fn failure(error: NvmlError) -> Failure {
    let why = error.to_string();
    match error {
        NvmlError::NotSupported
        | NvmlError::VgpuEccNotSupported
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::NoPermission
        // An older driver answers this for a field that it does not know.
        | NvmlError::InvalidArg
        | NvmlError::NotFound
        | NvmlError::UnexpectedVariant(_) => Failure::Missing(why),
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch => {
            Failure::Lost(why)
        }
        _ => Failure::Transient(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_its_remedy() {
        let error = start(Some(OsStr::new("libnvidia-ml-of-nobody.so.1"))).expect_err("there is no such library");
        let text = error.to_string();
        assert!(matches!(error, Unavailable::NoLibrary(_)), "{text}");
        assert!(text.contains("libnvidia-ml-of-nobody.so.1") && text.contains("install the NVIDIA driver"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn failures_are_told_apart() {
        let kind = |error| std::mem::discriminant(&failure(error));
        let (missing, transient, lost) =
            (Failure::Missing(String::new()), Failure::Transient(String::new()), Failure::Lost(String::new()));
        let same = |a, b: &Failure| assert_eq!(kind(a), std::mem::discriminant(b));
        same(NvmlError::NotSupported, &missing);
        same(NvmlError::FailedToLoadSymbol("nvmlDeviceGetMemoryInfo_v2".into()), &missing);
        same(NvmlError::InvalidArg, &missing);
        same(NvmlError::Timeout, &transient);
        same(NvmlError::NoData, &transient);
        same(NvmlError::Unknown, &transient);
        same(NvmlError::GpuLost, &lost);
        assert_eq!(unavailable(NvmlError::DriverNotLoaded), Unavailable::NoDriver);
        assert_eq!(unavailable(NvmlError::LibRmVersionMismatch), Unavailable::VersionMismatch);
    }
}
