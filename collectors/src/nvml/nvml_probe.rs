//! What NVML reports on this machine, for `candlescope doctor`.

use super::gpu_source::{GpuFacts, Machine, Unavailable};
use super::nvml_device;
use super::watched::{Survey, WatchedGpu};
use candlescope_core::run::env_key;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The machine's GPUs and what NVML reports about each.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Version of the NVIDIA driver, such as `580.82.07`.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports, such as `13.0`.
    pub cuda_driver: Option<String>,
    /// Every GPU that can be opened, in NVML's order.
    pub gpus: Vec<GpuReport>,
    /// GPUs that are there but cannot be opened, and why.
    pub unreachable: Vec<String>,
}

/// One GPU, and which of the metrics it has.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GpuReport {
    /// Its names, limits and sizes.
    pub facts: GpuFacts,
    /// Names of the metrics that it reports, as in [`METRICS`](super::METRICS).
    pub available: Vec<&'static str>,
    /// Names of the metrics that it does not report, and why.
    pub missing: Vec<(&'static str, String)>,
}

/// Makes every query of every GPU once. Takes some fifty milliseconds per GPU, plus the time that the driver needs to
/// start.
///
/// # Errors
/// If there is no library, driver or GPU; one line that says what to do.
pub fn probe() -> Result<Report, Unavailable> {
    report(nvml_device::machine()?)
}

fn report(machine: Machine) -> Result<Report, Unavailable> {
    if machine.gpus.is_empty() {
        return Err(Unavailable::NoGpu(machine.unreachable));
    }
    let gpus = machine.gpus.into_iter().map(|(facts, gpu)| {
        let mut watched = WatchedGpu::new(facts, gpu);
        let Survey { available, missing } = watched.survey(Duration::ZERO);
        GpuReport { facts: watched.facts, available, missing }
    });
    Ok(Report {
        driver: machine.driver,
        cuda_driver: machine.cuda_driver,
        gpus: gpus.collect(),
        unreachable: machine.unreachable,
    })
}

impl Report {
    /// The same as one JSON object; absent facts are left out.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let gpus = self.gpus.iter().map(|gpu| {
            let mut facts = gpu.facts.to_json();
            facts["available"] = json!(gpu.available);
            facts["missing"] = missing(&gpu.missing);
            facts
        });
        object.insert("gpus".into(), gpus.collect());
        let versions =
            [(env_key::NVIDIA_DRIVER.name(), &self.driver), (env_key::CUDA_DRIVER.name(), &self.cuda_driver)];
        for (key, version) in versions {
            if let Some(version) = version {
                object.insert(key.into(), version.as_str().into());
            }
        }
        if !self.unreachable.is_empty() {
            object.insert("gpus_unreachable".into(), json!(self.unreachable));
        }
        Value::Object(object)
    }
}

/// Metrics that are not reported, with the reasons, as an object.
pub(super) fn missing(all: &[(&'static str, String)]) -> Value {
    Value::Object(all.iter().map(|(name, why)| ((*name).to_string(), why.as_str().into())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::gpu_metrics::Query;
    use super::super::script::{Script, machine};
    use super::*;

    #[test]
    fn each_gpu_says_what_it_tells_and_why_it_does_not_tell_the_rest() {
        let old =
            Script::default().missing(Query::PowerInstant, "unknown field").missing(Query::Energy, "not supported");
        let report = report(machine([Script::default(), old])).expect("two GPUs");
        let [whole, old] = &report.gpus[..] else { panic!("{report:?}") };
        let unsupported = "candlescope_gpu_throttled_display_clock_setting";
        assert_eq!(whole.missing, [(unsupported, "this GPU does not have it".to_string())]);
        assert!(whole.available.contains(&"candlescope_gpu_pcie_throughput_bytes_per_second_receive"));
        assert_eq!(old.missing[0], ("hw_energy_joules_total", "not supported".to_string()));
        assert!(old.available.contains(&"hw_power_watts"), "the plain power call stands in");
        let json = report.to_json();
        assert_eq!(json["nvidia_driver"], "580.82.07");
        assert_eq!(json["gpus"][1]["missing"]["hw_energy_joules_total"], "not supported");
        assert_eq!(json["gpus"][0]["uuid"], "GPU-0");
        assert!(json.get("gpus_unreachable").is_none());
    }

    #[test]
    fn a_machine_whose_gpus_cannot_be_opened_says_so() {
        let machine = Machine { unreachable: vec!["GPU index 0: no permission".into()], ..Machine::default() };
        let text = report(machine).expect_err("no GPU").to_string();
        assert!(text.contains("GPU index 0: no permission") && text.contains("nvidia-smi -L"), "{text}");
    }
}
