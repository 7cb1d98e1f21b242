//! How kernels are recorded, as the user says it.

use super::trial::Trial;
use std::path::PathBuf;

/// How kernels find the interval and the call that launched them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Correlate {
    /// CUPTI calls us at the beginning and end of each launch call, on the thread that makes it. The interval is the
    /// top of that thread's stack, and CUPTI writes records of the work itself only.
    #[default]
    Callbacks,
    /// Kernels alone, without interval or call: the cheapest way to record.
    Nothing,
}

impl Correlate {
    /// Short stable name, as in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Correlate::Callbacks => "callbacks",
            Correlate::Nothing => "nothing",
        }
    }
}

/// How kernels are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuptiOptions {
    pub(super) correlate: Correlate,
    pub(super) library: Option<PathBuf>,
    pub(super) runtime_calls: bool,
    pub(super) keep_attached: bool,
    pub(super) follow_graphs: bool,
    pub(super) attach_late: bool,
    pub(super) buffer_bytes: usize,
    pub(super) max_buffers: usize,
    pub(super) ring_calls: usize,
    pub(super) device_buffer_bytes: Option<usize>,
    /// For measuring.
    pub(super) trial: Trial,
}

impl Default for CuptiOptions {
    fn default() -> Self {
        Self {
            correlate: Correlate::default(),
            library: None,
            runtime_calls: false,
            keep_attached: false,
            follow_graphs: false,
            attach_late: false,
            buffer_bytes: 4 << 20,
            max_buffers: 64,
            ring_calls: 65_536,
            device_buffer_bytes: None,
            trial: Trial::default(),
        }
    }
}

impl CuptiOptions {
    /// These, but for what is tried.
    pub(super) fn under(mut self, trial: Trial) -> Self {
        if trial.no_calls {
            self.correlate = Correlate::Nothing;
        }
        self.buffer_bytes = trial.buffer_bytes.unwrap_or(self.buffer_bytes);
        self.device_buffer_bytes = trial.device_buffer_bytes.or(self.device_buffer_bytes);
        self.trial = trial;
        self
    }

    /// Whether CUPTI stays in the process once it is there.
    pub(super) fn stays(&self) -> bool {
        self.keep_attached || self.follow_graphs
    }

    /// How kernels find their intervals.
    #[must_use]
    pub fn correlate(mut self, correlate: Correlate) -> Self {
        self.correlate = correlate;
        self
    }

    /// The library's file. Without it: the file that `CANDLESCOPE_CUPTI` names, else the one that the process has
    /// loaded, if that is of CUDA 12 or 13 and no newer than the driver, else `libcupti.so.13`, `.12` and `libcupti.so`
    /// by the loader's own search, else those below `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`.
    #[must_use]
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.library = Some(library.into());
        self
    }

    /// Whether calls of the CUDA runtime are followed too; off by default. cuBLAS and cuDNN launch through it. Their
    /// kernels get their interval either way, because the runtime calls the driver; only the name of the call differs
    /// (`cudaLaunchKernelExC` instead of `cuLaunchKernelEx`), and each such launch costs two more callbacks.
    #[must_use]
    pub fn runtime_calls(mut self, runtime_calls: bool) -> Self {
        self.runtime_calls = runtime_calls;
        self
    }

    /// Whether CUPTI stays in the process between windows and after the last; off by default. While attached it costs
    /// up to 0.8 µs per launch, as in a window, because calls are followed all the time. Detaching it and attaching it
    /// again take milliseconds per window, in the middle of the program's launches. Windows need no distance then, which
    /// they otherwise keep after the 64th. `CANDLESCOPE_CUPTI_KEEP_ATTACHED=1`
    /// does the same for a program that cannot be rebuilt. CUPTI before CUDA 12.6 always stays, because detaching it
    /// crashed programs with CUDA graphs; and it stays in programs that work on several devices, which can wait for
    /// each other for ever while it leaves.
    #[must_use]
    pub fn keep_attached(mut self, keep_attached: bool) -> Self {
        self.keep_attached = keep_attached;
        self
    }

    /// Whether graphs are followed from their capture on; off by default. What a replay runs then has the intervals in
    /// which its calls were captured, with no mark in the program. For that CUPTI stays in the process from the
    /// beginning, which costs each launch up to 0.8 µs (a replay is one launch), and every interval of a recorded step
    /// is told to it, which costs some nanoseconds. Without it, only graphs that happen to be captured in a window are
    /// known that well.
    #[must_use]
    pub fn follow_graphs(mut self, follow_graphs: bool) -> Self {
        self.follow_graphs = follow_graphs;
        self
    }

    /// Whether CUPTI is attached by the first window instead of by
    /// [`prepare`](candlescope_core::gpu::Activity::prepare), and detached again by the next launch; off by default. If
    /// on, the program is not slowed down before the first window, but that window takes longer to open, and what
    /// prevents recording (another tool, missing rights) is known only then.
    #[must_use]
    pub fn attach_late(mut self, attach_late: bool) -> Self {
        self.attach_late = attach_late;
        self
    }

    /// Bytes of a buffer for records, by default 4 MiB: some 19,000 kernels. CUDA 13 gives each launching thread a
    /// buffer of its own.
    #[must_use]
    pub fn buffer_bytes(mut self, buffer_bytes: usize) -> Self {
        self.buffer_bytes = buffer_bytes;
        self
    }

    /// Buffers that may exist at a time, 64 by default.
    ///
    /// Overload policy: when all are in use, CUPTI drops records and counts them. Recording must not use up the memory
    /// of the program that it records.
    #[must_use]
    pub fn max_buffers(mut self, max_buffers: usize) -> Self {
        self.max_buffers = max_buffers;
        self
    }

    /// Launch calls that a thread's ring holds between two deliveries, 65,536 (3 MiB) by default; used with
    /// [`Correlate::Callbacks`] only.
    ///
    /// Overload policy: a full ring drops the newest call and counts it; what it launched is recorded without an
    /// interval.
    #[must_use]
    pub fn ring_calls(mut self, ring_calls: usize) -> Self {
        self.ring_calls = ring_calls;
        self
    }

    /// Bytes of each of CUPTI's own buffers on the device; without it, CUPTI's default of 3 MB, or 100,000 kernels.
    /// Takes effect for contexts that are made later.
    #[must_use]
    pub fn device_buffer_bytes(mut self, device_buffer_bytes: usize) -> Self {
        self.device_buffer_bytes = Some(device_buffer_bytes);
        self
    }
}
