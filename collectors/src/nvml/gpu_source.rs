//! What the collector needs from a machine with GPUs. NVML itself is in `nvml_device.rs`; tests use the scripted one in
//! `script.rs`.

use super::gpu_metrics::{Answer, Query};
use serde_json::{Map, Value};
use std::fmt::Debug;

/// Why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// It never will: not asked again.
    Missing(String),
    /// It may next time.
    Transient(String),
    /// The GPU is gone, for this process at least.
    Lost(String),
}

/// One GPU that can be asked.
pub(super) trait Gpu: Debug + Send {
    fn ask(&self, query: Query) -> Result<Answer, Failure>;
}

/// A machine's GPUs, in NVML's order.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) driver: Option<String>,
    pub(super) cuda_driver: Option<String>,
    pub(super) gpus: Vec<(GpuFacts, Box<dyn Gpu>)>,
    /// GPUs that are there but cannot be opened, and why.
    pub(super) unreachable: Vec<String>,
}

/// What does not change about a GPU while a run lasts. What NVML does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuFacts {
    /// As NVML writes it, `GPU-8932f937-d72c-4106-c12f-20bd9faed9f6`: the identifier of a GPU everywhere.
    pub uuid: String,
    /// NVML's and `nvidia-smi`'s index; CUDA's may differ, depending on `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
    pub index: u32,
    /// Product name, such as `NVIDIA H200`.
    pub name: Option<String>,
    /// PCI bus id, such as `00000000:18:00.0`.
    pub pci: Option<String>,
    /// Memory of the GPU in bytes, in use or not.
    pub memory_bytes: Option<u64>,
    /// Enforced power limit, watts.
    pub power_limit_watts: Option<f64>,
    /// CUDA's compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// Multiprocessors: NVML's cores ÷ those that one has by the compute capability; `None` where either is not known.
    pub multiprocessors: Option<u32>,
    /// The highest clock that the multiprocessors can have, hertz.
    pub highest_clock_hertz: Option<f64>,
    /// Whether the GPU is split into MIG instances; `None` if it cannot be.
    pub mig: Option<bool>,
}

impl GpuFacts {
    /// The entry in `gpus` of `run.json`; absent facts are left out.
    pub fn to_json(&self) -> Value {
        let facts: [(&str, Option<Value>); 10] = [
            ("uuid", Some(self.uuid.clone().into())),
            ("index", Some(self.index.into())),
            ("name", self.name.clone().map(Into::into)),
            ("pci", self.pci.clone().map(Into::into)),
            ("memory_bytes", self.memory_bytes.map(Into::into)),
            ("power_limit_w", self.power_limit_watts.map(Into::into)),
            ("compute_capability", self.compute_capability.clone().map(Into::into)),
            ("multiprocessors", self.multiprocessors.map(Into::into)),
            ("highest_clock_hertz", self.highest_clock_hertz.map(Into::into)),
            ("mig", self.mig.map(Into::into)),
        ];
        let there = facts.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?)));
        Value::Object(there.collect::<Map<_, _>>())
    }
}

/// GPUs cannot be sampled. Each says in one line what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The library is not on this machine, or not in this container.
    #[error("NVML could not be loaded ({0}): install the NVIDIA driver, or start the container with `--gpus all`")]
    NoLibrary(String),
    /// The library is there, the kernel's module is not.
    #[error("the NVIDIA driver is not loaded: `sudo modprobe nvidia`, or install the driver for the running kernel")]
    NoDriver,
    /// Library and kernel module are of different versions.
    #[error("the NVIDIA driver was updated while the old one was running: reboot, or reload its kernel modules")]
    VersionMismatch,
    /// The driver's device files cannot be opened.
    #[error(
        "NVML may not talk to the NVIDIA driver: let this user read and write /dev/nvidiactl and /dev/nvidia[0-9]*"
    )]
    NoPermission,
    /// No GPU, or none that could be opened; says which.
    #[error("NVML sees no usable GPU{}: check `nvidia-smi -L`, and which GPUs the container was given", reasons(.0))]
    NoGpu(Vec<String>),
    /// A GPU that was asked for does not exist, or the name matches several.
    #[error("{wanted} names {} of this machine's GPUs ({there}): take a UUID or index from `nvidia-smi -L`", if *.several { "several" } else { "none" })]
    NotThatGpu {
        /// What was asked for.
        wanted: String,
        /// Whether it matches several GPUs rather than none.
        several: bool,
        /// The UUIDs that are there.
        there: String,
    },
    /// Anything else that NVML said.
    #[error("NVML could not be started ({0}): check that `nvidia-smi` works")]
    Other(String),
}

fn reasons(all: &[String]) -> String {
    if all.is_empty() { String::new() } else { format!(" ({})", all.join("; ")) }
}
