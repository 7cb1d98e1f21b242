//! Which device peaks are of.

use super::peak_error::PeaksError;
use candlescope_core::host_name;
use serde::{Deserialize, Serialize};

/// A device, as far as its peaks depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Whether it is the processors of a machine or a GPU; `cpu` or `cuda` in files.
    pub kind: DeviceKind,
    /// What tells it from every other device: a GPU's UUID; of a CPU the model.
    pub id: String,
    /// Marketing name, as CUDA or `/proc/cpuinfo` has it; of a CPU the same as `id`.
    pub name: String,
    /// Version of the driver; a CPU has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The machine. A CPU's peaks depend on it: on its memory and on how many cores may be used.
    pub host: String,
}

/// What kind of device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The processors of a machine, as one device.
    Cpu,
    /// A GPU with CUDA.
    Cuda,
}

impl DeviceIdentity {
    /// This machine's processors: `id` and `name` are the CPU's model, or its architecture where none is told.
    pub fn cpu() -> Self {
        let model = cpu_model();
        Self { kind: DeviceKind::Cpu, id: model.clone(), name: model, driver: None, host: host_name() }
    }

    /// The GPU with this CUDA ordinal. No context is made on it.
    ///
    /// # Errors
    /// There is no driver, or no such GPU.
    #[cfg(feature = "gpu")]
    pub fn cuda(ordinal: usize) -> Result<Self, PeaksError> {
        let gone = |why: String| PeaksError::NoDevice { device: format!("cuda:{ordinal}"), why };
        let probe = candlescope_collectors::cuda::probe().map_err(|error| gone(error.to_string()))?;
        let count = probe.devices.len();
        let device = probe.devices.into_iter().find(|device| device.ordinal == ordinal);
        let device = device.ok_or_else(|| gone(format!("CUDA sees {count} devices, numbered from 0")))?;
        // The driver's own version, where the kernel tells it, else that of the CUDA it supports.
        let driver = std::fs::read_to_string("/sys/module/nvidia/version").ok();
        let driver = driver.map(|text| text.trim().to_string()).filter(|text| !text.is_empty());
        let driver = driver.unwrap_or_else(|| format!("cuda-{}", probe.driver));
        let (id, name) = (device.uuid, device.name);
        Ok(Self { kind: DeviceKind::Cuda, id, name, driver: Some(driver), host: host_name() })
    }

    /// A device by its name on the command line, `cpu` or `cuda:N`.
    ///
    /// # Errors
    /// There is no such device, or this build cannot find it.
    pub fn of(device: &str) -> Result<Self, PeaksError> {
        let ordinal = match device {
            "cpu" => return Ok(Self::cpu()),
            "cuda" => Some(0),
            _ => device.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        match ordinal {
            #[cfg(feature = "gpu")]
            Some(ordinal) => Self::cuda(ordinal),
            #[cfg(not(feature = "gpu"))]
            Some(_usize) => {
                let _: usize = _usize;
                let why = "this build does not look for GPUs; build with the feature `gpu`".to_string();
                Err(PeaksError::NoDevice { device: device.to_string(), why })
            }
            None => {
                let why = "devices are cpu and cuda:N, for example cuda:0".to_string();
                Err(PeaksError::NoDevice { device: device.to_string(), why })
            }
        }
    }

    /// Whether peaks of `other` are peaks of this device.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_host = self.kind == DeviceKind::Cuda || self.host == other.host;
        self.kind == other.kind && self.id == other.id && self.driver == other.driver && same_host
    }

    /// Name of its file: other devices and other drivers have other names.
    pub(super) fn file_name(&self) -> String {
        let parts = match self.kind {
            DeviceKind::Cuda => [Some(self.id.as_str()), self.driver.as_deref()],
            DeviceKind::Cpu => [Some(self.id.as_str()), Some(self.host.as_str())],
        };
        let kind = if self.kind == DeviceKind::Cpu { "cpu-" } else { "" };
        let name = kind.to_string() + &parts.into_iter().flatten().collect::<Vec<_>>().join("-");
        let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        format!("{}.json", name.chars().take(180).map(keep).collect::<String>())
    }
}

impl std::fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind, &self.driver) {
            (DeviceKind::Cpu, _) => write!(f, "{} of {}", self.name, self.host),
            (DeviceKind::Cuda, Some(driver)) => write!(f, "{} ({}, driver {driver})", self.name, self.id),
            (DeviceKind::Cuda, None) => write!(f, "{} ({})", self.name, self.id),
        }
    }
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string()).filter(|value| !value.is_empty())
    };
    // ARM boards name the board, or nothing.
    field("model name").or_else(|| field("Hardware")).unwrap_or_else(|| format!("{} CPU", std::env::consts::ARCH))
}
