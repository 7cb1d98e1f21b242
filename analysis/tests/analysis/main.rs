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
mod four_forms;
mod gpu;
mod host_time;
mod hostile;
mod kernels;
mod latency;
mod ncu;
mod nsys;
mod overview;
mod peaks;
mod reading;
mod rendering;
mod roofline;
mod sampling;
mod simulation;
mod sql;
mod tree;
mod truth;
