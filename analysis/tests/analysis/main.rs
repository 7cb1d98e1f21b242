//! One binary for all tests of the crate: linking takes longer than running them.

#[path = "../common/mod.rs"]
mod common;

mod account;
mod bottlenecks;
mod compare;
mod damage;
mod energy;
mod findings;
mod fixtures;
mod gpu;
mod hostile;
mod kernels;
mod latency;
#[cfg(feature = "ncu")]
mod ncu;
#[cfg(feature = "nsys")]
mod nsys;
mod peaks;
mod reading;
mod rendering;
mod roofline;
mod sampling;
mod simulation;
#[cfg(feature = "sql")]
mod sql;
mod tree;
mod truth;
