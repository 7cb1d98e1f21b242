//! What the commands around NVIDIA's profilers share.

mod find;
pub(crate) mod process;
mod profiler_files;

pub(crate) use find::{NCU, NSYS};
pub(crate) use profiler_files::{Output, entries, key_of, merged, newest_first};
