//! What tests of several crates need. Nothing here is published: crates name it as a dependency of their tests only.
//!
//! | module | what |
//! |---|---|
//! | [`records`] | one record of each kind, to be changed by [`with`] |
//! | [`decoder`] | a decoder that makes records as a session would, without a model |
//! | [`scale`] | a run of any size, step by step, with as many kernels as intervals |
//! | [`ranks`] | runs of several ranks with kernels, of which it is known who waits for whom |
//! | [`scenario`] | a whole synthetic run with its manifest: requests, kernels, a GPU's sensors |
//! | [`allocations`] | an allocator that counts |
//! | [`collector`] | a scripted HTTP server in this process |
//! | [`completions`] | a scripted server for completions in this process |
//! | [`services`] | Prometheus, Jaeger and other servers as child processes, and the HTTP to talk to them |
//! | [`pages`] | parts of pages that are made from code |
//! | [`tools`] | tools that not every machine has; if they are required, a test without its tool fails |

pub mod allocations;
pub mod collector;
pub mod completions;
pub mod decoder;
mod http_request;
pub mod pages;
pub mod ranks;
pub mod records;
pub mod scale;
pub mod scenario;
pub mod services;
pub mod tools;
mod waiting;

pub use decoder::Decoder;
pub use records::with;
pub use waiting::{SOON, wait_for, wait_until};

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A program's output as text, even if it is not UTF-8.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
