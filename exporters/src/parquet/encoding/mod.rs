//! Turns columns in memory into pages of a file: dictionaries, keys, and their encodings.
//!
//! Written here because arrow's writer (59.3) hashes every value of a dictionary array again, row by row
//! (<https://github.com/apache/arrow-rs/issues/10465>, and <https://github.com/apache/arrow-rs/pull/10862>, which would
//! spare most of it). Our keys are dense numbers already, and a constant column is a run of a few bytes. Through
//! arrow's writer an interval takes more than three times the CPU time and a row group twice the memory: the example
//! `parquet_throughput` measures both, `docs/measurements/pipeline.md` has the figures. Once arrow's writer is within a
//! factor of two, these files should be removed.

pub(super) mod chunk;
pub(super) mod column;
pub(super) mod dictionary;
mod hybrid;
