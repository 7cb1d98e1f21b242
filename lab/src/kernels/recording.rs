//! Repetitions under candlescope: the kernels that the device ran, as CUPTI recorded them.

use super::list::KernelCase;
use crate::method::CaseError;
use candlescope::Scope;
use candlescope_core::{Annotation, GpuSource, annotate};
use candlescope_figures::Analysis;
use candlescope_reader::{OpenError, Run};
use std::path::Path;
use std::time::Duration;
use tracing_subscriber::layer::SubscriberExt;

/// How long the recorder of kernels may take to start; the first time it takes seconds.
const RECORDER_STARTS: Duration = Duration::from_secs(30);

/// What a run says about the time that a repetition took on the device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KernelTimes {
    /// Repetitions whose kernels were recorded.
    pub n: u64,
    /// Median of the time of their kernels in nanoseconds.
    pub kernel_ns: Option<f64>,
    /// Kernels that a repetition launched.
    pub kernels: Option<f64>,
}

/// A session around the recorded repetitions of one case.
pub(super) struct Recording {
    scope: Option<Scope>,
    subscriber: tracing::Dispatch,
}

impl Recording {
    /// Begins to record into the directory `run`.
    pub(super) fn begin(run: &Path, on_gpu: bool) -> Result<Self, CaseError> {
        let failed = |error: &dyn std::fmt::Display| CaseError::Failed(format!("{}: {error}", run.display()));
        // What an earlier, interrupted attempt left is not gone on with.
        if run.exists() {
            std::fs::remove_dir_all(run).map_err(|error| failed(&error))?;
        }
        let id = run.file_name().map_or_else(|| "kernel".into(), |name| name.to_string_lossy().into_owned());
        let builder = candlescope::builder().parquet(run).run_id(&id).on_problem(|_| ());
        #[cfg(feature = "gpu")]
        let builder = match on_gpu {
            // Every step's kernels. Marks are not needed: the engine's own timer is between the same points.
            true => {
                let all = candlescope::Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 0 };
                builder.gpu_timing(candlescope::gpu::GpuTiming::tier(candlescope::gpu::GpuTier::All)).cupti(all)
            }
            // Nothing is asked of a GPU that is not used.
            false => builder.gpu_timing(candlescope::gpu::GpuTiming::tier(candlescope::gpu::GpuTier::Off)).nvml(false),
        };
        let (layer, scope) = builder.layer().map_err(|error| failed(&error))?;
        if let (true, Some(handle)) = (on_gpu, scope.handle()) {
            handle.wait_for_kernels(RECORDER_STARTS);
        }
        let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
        Ok(Self { scope: Some(scope), subscriber })
    }

    /// One repetition as a step.
    pub(super) fn step<T>(&self, case: &KernelCase, run: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&self.subscriber, || {
            let _step = tracing::trace_span!("repetition").entered();
            let mut work = Annotation::new().io_bytes(case.work.io_bytes);
            if let Some(flops) = case.work.flops {
                work = work.flops(flops);
            }
            annotate(work);
            run()
        })
    }

    /// Ends the session.
    pub(super) fn end(mut self) {
        if let Some(scope) = self.scope.take() {
            drop(scope.finish());
        }
    }
}

/// Reads a run of recorded repetitions.
///
/// # Errors
/// It cannot be read; the message names it.
pub fn kernel_times(run: &Path) -> Result<KernelTimes, OpenError> {
    let analysis = Analysis::of(&Run::open(run)?);
    let elapsed = analysis.gpu.kinds.iter().flat_map(|kind| &kind.elapsed);
    let kernels = elapsed.filter(|elapsed| elapsed.source == GpuSource::Cupti).max_by_key(|e| e.measured);
    let launches = analysis.operators.iter().filter_map(|operator| operator.launches_per_call).reduce(f64::max);
    Ok(KernelTimes {
        n: kernels.map_or(0, |elapsed| elapsed.measured),
        kernel_ns: kernels.and_then(|elapsed| elapsed.duration.as_ref()).map(|duration| duration.median),
        kernels: launches,
    })
}
