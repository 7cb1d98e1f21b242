//! What a profile asks of the SDK.

use crate::options::Options;
use anyhow::{Result, bail};
use candlescope::Builder;
use candlescope::env::{OPTIONS, StackSampling};
use candlescope_core::stacks::USUAL_HZ;

/// A builder with the options of the SDK. If the machine lacks something, the run's verdict says so; if the build lacks it,
/// that is an error, because only a rebuild helps.
pub(crate) fn builder(options: &Options) -> Result<Builder> {
    let mut sdk = options.sdk.clone();
    // The command tells it itself.
    sdk.no_report = true;
    // For a model on the CPU, GPUs of the machine are not sampled.
    sdk.nvml = cfg!(feature = "gpu").then_some(options.on_gpu());
    if cfg!(target_os = "linux") {
        sdk.stacks.get_or_insert(StackSampling::hz(USUAL_HZ));
    }
    // Otherwise a replay is one interval, whatever it runs.
    sdk.cupti_graphs |= options.given.runtime.cuda_graph;
    sdk.ring_capacity.get_or_insert(crate::room::RING);
    sdk.queue_records.get_or_insert_with(crate::room::queue);
    if let Some(lacking) = OPTIONS.iter().find(|option| option.is_lacking(&sdk)) {
        return Err(crate::lacking::option(lacking.key(), lacking.feature));
    }
    if sdk.records_kernels() && !options.on_gpu() {
        bail!("--cupti needs a GPU: add --device cuda:0");
    }
    #[cfg(feature = "otlp")]
    let otlp = sdk.otlp.take();
    // Windows that are far apart begin with what is measured.
    #[cfg(feature = "gpu")]
    let held = matches!(sdk.cupti, Some(candlescope::gpu::KernelWindows::Apart(..)));
    let builder = sdk.into_builder()?;
    #[cfg(feature = "gpu")]
    let builder = builder.cupti_held(held);
    #[cfg(feature = "otlp")]
    let builder = match otlp {
        Some(endpoint) => builder.otlp_with(crate::services::collector(Some(endpoint.expose()))),
        None => builder,
    };
    Ok(builder)
}
