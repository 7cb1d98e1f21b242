//! One binary for all tests of the crate: linking costs more than running them.

#[path = "../common/mod.rs"]
mod common;

mod latency;
mod tree;
