//! What the commands around NVIDIA's profilers share.

mod find;
mod output;
pub(crate) mod process;

pub(crate) use find::{NCU, NSYS};
pub(crate) use output::{Output, merged, newest_first};
