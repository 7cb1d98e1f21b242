//! What CUDA has to say about this machine: for `candlescope doctor` and for the run's environment.

use super::cuda_device::{CudaDevice, DriverVersion};
use super::error::CudaError;
use super::sys::Cuda;
use serde_json::{Value, json};

/// The driver and the devices that [`probe`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

#[cfg(test)]
mod tests {
    use super::*;

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
