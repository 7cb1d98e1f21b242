//! The tests of `tests/tests/modules/architectures`, with spans in candle-nn's layers: models that make none have names
//! for what they compute, and those that make some have none twice. `run.sh` builds and runs them.
#![cfg(test)]

/// Whether candle-nn's layers have spans.
const TRACED: bool = true;

#[path = "../tests/modules/architectures/mod.rs"]
mod architectures;
#[path = "../tests/common/mod.rs"]
mod common;
