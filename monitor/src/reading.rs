//! What one look at everything found.

use crate::figures::{GpuFigures, MachineFigures, ProcessFigures};
use crate::program::Counters;
use candlescope_core::HostNs;
use std::time::Duration;

/// What one look found, of the machine, GPUs, processes and programs; its times are those at its beginning.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// Time since the watching began, on a clock that nobody sets.
    pub at: Duration,
    /// The system clock's time.
    pub time: HostNs,
    /// Memory and load of the whole machine; figures that could not be read are `None`.
    pub machine: MachineFigures,
    /// Those that are watched, in NVML's order; empty where NVML shows none, as `gpu_trouble` says then.
    pub gpus: Vec<GpuReading>,
    /// Why there are none, or why one of them is gone.
    pub gpu_trouble: Option<String>,
    /// Those that are watched; one that has ended is in one more reading, without figures.
    pub processes: Vec<ProcessReading>,
    /// Programs that serve metrics.
    pub programs: Vec<ProgramReading>,
}

impl Reading {
    /// One of nothing, at this time.
    pub fn new(at: Duration, time: HostNs) -> Self {
        Self { at, time, ..Self::default() }
    }
}

/// A GPU at one look. What NVML is asked for less often than once a look is up to 2.5 s old.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GpuReading {
    /// NVML's and `nvidia-smi`'s index; CUDA's may differ.
    pub index: u32,
    /// UUID as NVML writes it, `GPU-` first: readings with the same one are of one GPU.
    pub uuid: String,
    /// Product name, such as `NVIDIA H200`; `None` where NVML does not tell it.
    pub product: Option<String>,
    /// What NVML told of it; each figure is `None` where it did not.
    pub figures: GpuFigures,
}

impl GpuReading {
    /// Figures of the GPU `index`.
    pub fn new(index: u32, uuid: impl Into<String>, product: Option<String>, figures: GpuFigures) -> Self {
        Self { index, uuid: uuid.into(), product, figures }
    }
}

/// A process at one look, together with `children` processes that it has started.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProcessReading {
    /// Process id, as the operating system gave it.
    pub pid: u32,
    /// Name of its program, cut to 60 characters; `process` where the system has none.
    pub name: String,
    /// Its figures, those of `children` included; `None` once it has ended.
    pub figures: Option<ProcessFigures>,
    /// The processes that it and those that it started have started, as far as they are counted in.
    pub children: usize,
    /// What it, or one of `children`, says that it is at.
    pub work: Option<Work>,
}

impl ProcessReading {
    /// Figures of a process.
    pub fn new(pid: u32, name: impl Into<String>, figures: Option<ProcessFigures>) -> Self {
        Self { pid, name: name.into(), figures, children: 0, work: None }
    }

    /// Says what it is at.
    #[must_use]
    pub fn at(self, work: Option<Work>) -> Self {
        Self { work, ..self }
    }

    /// Says how many processes that it has started are counted in.
    #[must_use]
    pub fn with_children(self, children: usize) -> Self {
        Self { children, ..self }
    }
}

/// What a process says that it is at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// What it does, such as `bench throughput of embedded`.
    pub what: String,
    /// How far it is; empty at the beginning.
    pub state: String,
}

impl Work {
    /// Work called `what`, so far.
    pub fn new(what: impl Into<String>, state: impl Into<String>) -> Self {
        Self { what: what.into(), state: state.into() }
    }
}

/// A program that serves metrics.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProgramReading {
    /// Host and port that its metrics are served at, without credentials.
    pub endpoint: String,
    /// Its process, if it is known.
    pub pid: Option<u32>,
    /// Its name; that of its endpoint where none is known.
    pub name: String,
    /// Its metrics, or why it gave none in this look.
    pub answer: Answer,
}

impl ProgramReading {
    /// What a program answered.
    pub fn new(endpoint: impl Into<String>, pid: Option<u32>, name: impl Into<String>, answer: Answer) -> Self {
        Self { endpoint: endpoint.into(), pid, name: name.into(), answer }
    }
}

/// What a program answered.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// The totals in its metrics, as they stand in this look.
    Metrics(Box<Counters>),
    /// Nothing this time, and why.
    Silent(String),
    /// It serves no metrics any more.
    Ended,
}
