//! Collectors for candlescope: sources of samples that are taken on a background thread.
//!
//! Programs switch them on by the builder of `candlescope`, which shows their options. What is documented here is what
//! it shows; the rest is hidden, and changes with any release.
//!
//! | module | feature | measures |
//! |---|---|---|

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(
    feature = "host",
    doc = "| [`host`] | `host` | memory, CPU use, context switches of this process; the machine |"
)]
#![cfg_attr(
    feature = "cuda",
    doc = "| [`cuda`] | `cuda` | GPU time of intervals from CUDA timing events; memory in use in the devices' pools |"
)]
#![cfg_attr(
    feature = "cuda-work",
    doc = "| [`cuda_work`] | `cuda-work` | nothing itself: work of a known amount, for benchmarks to measure |"
)]
#![cfg_attr(
    feature = "cupti",
    doc = "| [`cupti`] | `cupti` | kernels, copies and memsets, with the interval and the call that launched each |"
)]
#![cfg_attr(
    feature = "nvml",
    doc = "| [`nvml`] | `nvml` | power, energy, memory, use, clocks, temperature of NVIDIA GPUs |"
)]
#![cfg_attr(
    feature = "stacks",
    doc = "| [`stacks`] | `stacks` | call stacks of the program's threads, and their time off the CPU |"
)]
//!
//! What a machine does not report is left out, never reported as zero.

#[cfg(feature = "cuda")]
pub mod cuda;
#[doc(hidden)]
#[cfg(feature = "cuda-work")]
pub mod cuda_work;
#[doc(hidden)]
#[cfg(feature = "cupti")]
pub mod cupti;
#[cfg(any(feature = "cuda", feature = "cupti"))]
mod driver_gate;
#[doc(hidden)]
#[cfg(feature = "host")]
pub mod host;
#[doc(hidden)]
#[cfg(feature = "nvml")]
pub mod nvml;
#[cfg(feature = "stacks")]
pub mod stacks;

/// The types for sharing between threads, in one module: `tests/models` replaces them with those of a model checker.
#[cfg(feature = "cupti")]
mod sync {
    pub(crate) use std::sync::atomic;
    pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
}
