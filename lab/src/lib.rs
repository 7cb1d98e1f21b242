//! Benchmarks over candlescope: cases, an engine that measures them, and studies that keep every sample.
//!
//! A *case* is one configuration of what is measured. The engine ([`method`]) warms it up, decides the order in which
//! cases are repeated and when a case has been repeated often enough. A *study* ([`study`]) is the directory with the
//! results. [`suites`] holds the ready-made sets of cases for language models, [`variants`] the same model in several
//! forms with their quality, [`kernels`] single operations, [`peaks`] what a device reaches at best, [`load`] a server
//! under load, and [`tune`] the search for the best batch. With the feature `monitor` there is a watcher of GPUs,
//! processes and programs beside them.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod compare;
mod exposition;
pub mod hardware;
pub mod kernels;
pub mod load;
pub mod method;
#[cfg(feature = "monitor")]
pub mod monitor;
pub mod operands;
pub mod peaks;
mod range;
pub mod study;
pub mod suites;
pub mod tune;
pub mod variants;
