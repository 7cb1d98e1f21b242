//! A run on disk: one directory of Parquet tables and a manifest, laid out as [`candlescope_core::run`] says.
//!
//! ```text
//! RUN/run.json                      manifest, written at the start and again at the end
//! RUN/spans/part-00000.parquet      finished segment: synced and renamed, never touched again
//! RUN/spans/part-00001.parquet.inprogress
//! RUN/steps, RUN/requests, RUN/samples
//! ```
//!
//! A run directory belongs to one session: of several that start on the same one, in whatever process, exactly one can
//! make the folder `spans`, and the others are refused. A session that cannot start removes what it made, and nothing
//! else.
//!
//! A Parquet file can be read only once its footer is written, so a run is a series of segments: a crash loses only the
//! open ones. Records count as exported when their segment has its final name.
//!
//! The path of a record: `tables` (records → columns in memory) → `encoding` (columns → encoded pages) → `segment`
//! (pages → file) → `store` (the directory); `exporter` decides when. All but the last three are pure.

mod dirs;
mod encoding;
#[cfg(test)]
mod faults;
mod file_system;
#[cfg(test)]
mod full_disk;
mod parquet_config;
mod parquet_exporter;
mod schema;
mod segment;
mod store;
mod tables;

#[doc(hidden)]
pub use dirs::{create_dirs, remove_dirs};
pub use parquet_config::ParquetConfig;
pub use parquet_exporter::ParquetExporter;
#[doc(hidden)]
pub use schema::arrow_schema;
