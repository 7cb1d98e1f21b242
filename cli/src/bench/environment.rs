//! What a round records, and where it runs.

use anyhow::Result;
use candle_core::Device;
use candlescope::Scope;
use candlescope_collectors::host::HostCollector;
use candlescope_core::Collector;
use candlescope_core::process_facts::process_facts;
use candlescope_core::run::{CANDLE_VERSION, env_key};
use candlescope_figures::PRICE_PER_HOUR;
use candlescope_lab::peaks::{DeviceIdentity, DeviceKind};
use serde_json::{Map, Value, json};

/// A session that records nothing until a case asks for it. Peaks that were measured on the device are copied into its
/// runs, whose reports then have them as denominators. `own_stream` is the device itself, if steps are captured in a stream
/// of its own.
pub(super) fn record(device: &str, own_stream: Option<&Device>, price_per_hour: Option<&Value>) -> Result<Scope> {
    let mut builder = candlescope::builder()
        .paused(true)
        .on_problem(candlescope_core::diagnostics::to_stderr)
        .session(|session| session.environment(env_key::CANDLE.name(), CANDLE_VERSION));
    for (key, value) in crate::threads::facts() {
        builder = builder.session(|session| session.environment(key, value));
    }
    if let Some(price) = price_per_hour {
        builder = builder.session(|session| session.option(PRICE_PER_HOUR, price.clone()));
    }
    if let Some(peaks) = crate::kept_between_runs::of(device)? {
        builder = builder.session(|session| session.environment(env_key::MEASURED_PEAKS.name(), peaks));
    }
    let builder = builder.ring_capacity(crate::room::RING).queue_records(crate::room::queue());
    let builder = on_gpu(builder, device.starts_with("cuda"), own_stream.is_some());
    let builder = own_stream.into_iter().fold(builder, crate::device::told_of);
    Ok(builder.install()?)
}

#[cfg(feature = "gpu")]
fn on_gpu(builder: candlescope::Builder, gpu: bool, captures: bool) -> candlescope::Builder {
    match gpu {
        true => builder.nvml(true).cupti(candlescope::gpu::KernelWindows::OnRequest).cupti_graphs(captures),
        false => builder.nvml(false),
    }
}
#[cfg(not(feature = "gpu"))]
fn on_gpu(builder: candlescope::Builder, _: bool, _: bool) -> candlescope::Builder {
    builder
}

/// Facts about the machine, and about the GPU if `device` is one, under the names that they have in a run.
pub(crate) fn environment(device: &str) -> Map<String, Value> {
    let facts = HostCollector::new().describe();
    let mut facts: Map<String, Value> = facts.into_iter().filter(|(key, _)| key != "pid").collect();
    facts.extend(process_facts());
    facts.extend(crate::threads::facts().into_iter().map(|(key, value)| (key.to_string(), value)));
    if let Some(gpu) = DeviceIdentity::of(device).ok().filter(|device| device.kind == DeviceKind::Cuda) {
        facts.insert("gpus".to_string(), json!([{ "name": gpu.name, "uuid": gpu.id }]));
        // Where the kernel does not tell the driver's version, it is that of CUDA, which is something else.
        let driver = gpu.driver.filter(|driver| !driver.starts_with("cuda-"));
        facts.extend(driver.map(|driver| (env_key::NVIDIA_DRIVER.name().to_string(), Value::from(driver))));
    }
    facts
}
