//! Benchmarks over candlescope: cases, an engine that measures them, and studies that keep every sample. A part of
//! candlescope, which may change with every release.
//!
//! A *case* is one configuration of what is measured. The engine ([`method`]) warms it up, decides the order in which
//! cases are repeated and when a case has been repeated often enough. A *study* ([`study`]) is the directory with the
//! results. [`suites`] holds the ready-made sets of cases for language models, [`variants`] the same model in several
//! forms with their quality, [`kernels`] single operations, [`peaks`] what a device reaches at best, and [`tune`] the
//! search for the best batch.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod compare;
pub mod hardware;
pub mod kernels;
pub mod method;
pub mod operands;
pub mod peaks;
mod range;
pub mod study;
pub mod suites;
pub mod tune;
pub mod variants;
