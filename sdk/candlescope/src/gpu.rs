//! The GPU's side of a session: which times and kernels are taken, and in which streams.

#[cfg(feature = "cuda")]
pub use candlescope_collectors::cuda::{CudaClockOptions, Stream, with_stream};
use candlescope_core::injected::Windows;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use candlescope_core::run::{Code, Finding, Severity};
pub use candlescope_core::{GpuTier, GpuTiming};
use candlescope_core::{Schedule, SessionBuilder};
use std::time::Duration;

/// The steps for which kernels are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelWindows {
    /// None.
    Off,
    /// The steps that [`Handle::capture_kernels`](crate::Handle::capture_kernels) asks for.
    OnRequest,
    /// The steps of a schedule, which counts recorded steps, and those that are asked for.
    Scheduled(Schedule),
    /// As [`Scheduled`](Self::Scheduled), with at least a time between the beginnings of two windows: switching the recorder
    /// on and off takes the program milliseconds, whatever a step takes.
    Apart(Schedule, Duration),
}

impl KernelWindows {
    /// `steps` steps at a time, at most once in `apart`.
    pub const fn apart(steps: u64, apart: Duration) -> Self {
        // A window that is due waits for its time, and begins with the first step after it.
        Self::Apart(Schedule { skip_first: 0, wait: 0, warmup: 1, active: steps, repeat: 0 }, apart)
    }

    /// The schedule of windows, if there is one.
    pub const fn schedule(self) -> Option<Schedule> {
        match self {
            Self::Off | Self::OnRequest => None,
            Self::Scheduled(schedule) | Self::Apart(schedule, _) => Some(schedule),
        }
    }

    #[cfg(feature = "cupti")]
    fn least_apart(self) -> Duration {
        if let Self::Apart(_, apart) = self { apart } else { Duration::ZERO }
    }
}

impl From<Windows> for KernelWindows {
    fn from(windows: Windows) -> Self {
        Self::apart(windows.steps, Duration::from_secs(windows.every_s))
    }
}

impl From<Schedule> for KernelWindows {
    fn from(schedule: Schedule) -> Self {
        Self::Scheduled(schedule)
    }
}

/// The GPU options of a session.
#[derive(Debug, Default)]
pub(crate) struct Gpu {
    #[cfg(feature = "cuda")]
    pub(crate) timing: Choice<GpuTiming>,
    #[cfg(feature = "cuda")]
    pub(crate) clock: CudaClockOptions,
    /// Whether kernels are recorded, and in which windows.
    #[cfg(feature = "cupti")]
    pub(crate) kernels: Option<KernelWindows>,
    /// Whether windows wait until they may begin.
    #[cfg(feature = "cupti")]
    pub(crate) holds: bool,
    /// Whether graphs are followed from their capture on.
    #[cfg(feature = "cupti")]
    pub(crate) graphs: bool,
    #[cfg(feature = "nvml")]
    pub(crate) nvml: Choice<()>,
    #[cfg(feature = "nvtx")]
    pub(crate) nvtx: Choice<()>,
}

/// Something that is on if it works, unless the program says more.
#[cfg(any(feature = "cuda", feature = "nvml", feature = "nvtx"))]
#[derive(Debug, Default)]
pub(crate) enum Choice<T> {
    /// On if the machine has it; no message if not.
    #[default]
    Auto,
    /// Asked for: if the machine lacks it, the run says so.
    On(T),
    /// Off, whether the machine has it or not.
    Off,
}

impl Gpu {
    /// Adds to the session what was asked for and is available. What is not available is reported once, and the session
    /// goes on without it.
    pub(crate) fn apply(self, session: SessionBuilder) -> SessionBuilder {
        #[allow(unused_mut, reason = "changed only with features")]
        let mut session = session;
        #[cfg(feature = "cuda")]
        {
            session = cuda(session, self.timing, self.clock);
        }
        #[cfg(feature = "cupti")]
        if let Some(windows) = self.kernels.filter(|windows| *windows != KernelWindows::Off) {
            use candlescope_collectors::cupti::{Cupti, CuptiOptions};
            // Whether it works becomes known in the background and is stated in the run's verdict.
            let options = CuptiOptions::default().follow_graphs(self.graphs);
            session = session.kernels(Cupti::new(options), windows.schedule());
            session = session.kernels_apart(windows.least_apart()).kernels_held(self.holds);
        }
        #[cfg(feature = "nvml")]
        {
            session = nvml(session, &self.nvml);
        }
        #[cfg(feature = "nvtx")]
        {
            session = nvtx(session, &self.nvtx);
        }
        session
    }
}

#[cfg(feature = "cuda")]
fn cuda(session: SessionBuilder, timing: Choice<GpuTiming>, options: CudaClockOptions) -> SessionBuilder {
    use candlescope_collectors::cuda::{CudaClock, PoolMemory};
    let (timing, asked) = match timing {
        Choice::Off => return session,
        Choice::On(timing) => (timing, true),
        Choice::Auto => (GpuTiming::default(), false),
    };
    match CudaClock::new(options) {
        Ok(clock) => {
            let session = session.gpu(clock, timing).expect_gpu(asked);
            match PoolMemory::new() {
                Ok(pools) => session.collector(pools),
                Err(_) => session,
            }
        }
        Err(error) if asked => lacking(session, Code::NoGpuTime, "GPU time is not taken", &error.to_string()),
        Err(_) => session,
    }
}

#[cfg(feature = "nvml")]
fn nvml(session: SessionBuilder, choice: &Choice<()>) -> SessionBuilder {
    use candlescope_collectors::nvml::NvmlCollector;
    if matches!(choice, Choice::Off) {
        return session;
    }
    match NvmlCollector::builder().only(visible_gpus()).build() {
        Ok(collector) => session.collector(collector),
        Err(error) if matches!(choice, Choice::On(())) => {
            lacking(session, Code::NoGpuSamples, "GPU power, memory and clocks are not sampled", &error.to_string())
        }
        Err(_) => session,
    }
}

/// The GPUs that CUDA shows to this process; all of them if CUDA cannot be asked.
#[cfg(feature = "nvml")]
fn visible_gpus() -> Vec<candlescope_collectors::nvml::GpuId> {
    #[cfg(feature = "cuda")]
    if let Ok(found) = candlescope_collectors::cuda::probe() {
        return found.devices.into_iter().map(|d| d.uuid.to_string().into()).collect();
    }
    Vec::new()
}

#[cfg(feature = "nvtx")]
fn nvtx(session: SessionBuilder, choice: &Choice<()>) -> SessionBuilder {
    use candlescope_exporters::nvtx::NvtxTap;
    match choice {
        Choice::Off => session,
        // Without a tool attached, the tap would only cost time, even if it was asked for.
        _ => match NvtxTap::attached() {
            Some(tap) => session.tap(tap),
            None => session,
        },
    }
}

/// Reports what the session goes on without: at once, and in the run's verdict.
#[cfg(any(feature = "cuda", feature = "nvml"))]
fn lacking(session: SessionBuilder, code: Code, what: &'static str, why: &str) -> SessionBuilder {
    session.report_problem("gpu", &format!("{what}: {why}"));
    let finding = Finding::new(code, "{what}: {why}", "`candlescope doctor` shows what this machine has");
    // The machine lacks it, but the rest of the run is complete, so this is not an error.
    session.finding(finding.severity(Severity::Warning).text("what", what).text("why", why))
}
