//! Kernels and peaks, on a CPU.
#![allow(missing_docs, unreachable_pub, reason = "tests")]

mod kernels;
mod peaks;
mod reference;
mod roofline;
mod sizes;
