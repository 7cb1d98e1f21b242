//! What a round records, and where it runs.

use anyhow::Result;
use candlescope::Scope;
use candlescope_collectors::host::HostCollector;
use candlescope_core::Collector;
use serde_json::{Map, Value};

/// A session that records nothing until a case asks for it.
pub(super) fn record(device: &str) -> Result<Scope> {
    let builder = candlescope::builder()
        .paused(true)
        .on_problem(candlescope_core::diagnostics::to_stderr)
        .session(|session| session.environment("candle", candlescope_models::CANDLE_VERSION));
    Ok(on_gpu(builder, device.starts_with("cuda")).install()?)
}

#[cfg(feature = "gpu")]
fn on_gpu(builder: candlescope::Builder, gpu: bool) -> candlescope::Builder {
    match gpu {
        true => builder.nvml(true).cupti(candlescope::KernelWindows::OnRequest),
        false => builder.nvml(false),
    }
}
#[cfg(not(feature = "gpu"))]
fn on_gpu(builder: candlescope::Builder, _: bool) -> candlescope::Builder {
    builder
}

/// Facts about the machine.
pub(crate) fn environment() -> Map<String, Value> {
    let facts = HostCollector::new().describe();
    facts.into_iter().filter(|(key, _)| key != "pid").collect()
}
