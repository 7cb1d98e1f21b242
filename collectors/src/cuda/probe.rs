//! What CUDA has to say about this machine: for `candlescope doctor` and for the run's environment.

use super::error::CudaError;
use super::sys::Cuda;
use serde_json::{Value, json};

/// The version of CUDA that the driver supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    /// 13 of 13.0.
    pub major: u32,
    /// 0 of 13.0.
    pub minor: u32,
}

impl std::fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One device, as CUDA sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// CUDA's number of it; NVML counts differently, match by [`uuid`](CudaDevice::uuid).
    pub ordinal: usize,
    /// `GPU-…`, as NVML writes it. For a slice of a GPU (MIG), the whole GPU's.
    pub uuid: String,
    /// Marketing name.
    pub name: String,
    /// PCI address, `0000:1b:00.0`.
    pub pci: String,
    /// Compute capability: (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// Memory, bytes.
    pub memory_bytes: u64,
}

/// What [`probe`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The driver's version of CUDA.
    pub driver: DriverVersion,
    /// The devices, by ordinal; at least one.
    pub devices: Vec<CudaDevice>,
}

impl Probe {
    /// `{"driver_version": …, "devices": […]}`.
    pub fn to_json(&self) -> Value {
        let devices: Vec<_> = self
            .devices
            .iter()
            .map(|d| {
                json!({
                    "ordinal": d.ordinal, "uuid": d.uuid, "name": d.name, "pci": d.pci,
                    "compute_capability": format!("{}.{}", d.compute_capability.0, d.compute_capability.1),
                    "memory_bytes": d.memory_bytes,
                })
            })
            .collect();
        json!({ "driver_version": self.driver.to_string(), "devices": devices })
    }
}

/// Loads and starts the driver, and asks it for its devices. Creates no context, so no memory of a device is used.
///
/// # Errors
/// There is no driver or no device, or they do not work; the message says what to do about it.
pub fn probe() -> Result<Probe, CudaError> {
    let cuda = Cuda::load()?;
    Ok(Probe { driver: cuda.version()?, devices: cuda.devices()? })
}

/// A device's sixteen bytes as NVML writes them.
pub(super) fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = |range: &[u8]| range.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let groups = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    format!("GPU-{}", groups.map(hex).join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_nvml_writes_them() {
        let bytes = std::array::from_fn(|i| (i * 16 + i) as u8);
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_probe_becomes_json() {
        let device = CudaDevice {
            ordinal: 0,
            uuid: "GPU-1".to_string(),
            name: "H".to_string(),
            pci: "0000:1b:00.0".to_string(),
            compute_capability: (9, 0),
            memory_bytes: 5,
        };
        let probe = Probe { driver: DriverVersion { major: 13, minor: 0 }, devices: vec![device] };
        let value = probe.to_json();
        assert_eq!(value["driver_version"], "13.0");
        assert_eq!(value["devices"][0]["compute_capability"], "9.0");
        assert_eq!(value["devices"][0]["memory_bytes"], 5);
    }
}
