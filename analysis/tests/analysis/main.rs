//! One binary for all tests of the crate: linking costs more than running them.

#[path = "../common/mod.rs"]
mod common;

mod damage;
mod findings;
mod fixtures;
mod hostile;
mod latency;
#[cfg(feature = "nsys")]
mod nsys;
mod reading;
mod rendering;
mod tree;
