//! What tests of several crates need. Nothing here is published: crates name it as a dependency of their tests only.
//!
//! | module | what |
//! |---|---|
//! | [`records`] | one record of each kind, to be changed by struct update |
//! | [`decoder`] | a decoder that makes records as a session would, without a model |
//! | [`scenario`] | a whole made-up run with its manifest: requests, kernels, a GPU's sensors |
//! | [`allocations`] | an allocator that counts |
//! | [`collector`] | an HTTP server in this process that answers as told |
//! | [`services`] | Prometheus, Jaeger and other servers as child processes, and the HTTP to talk to them |
//! | [`tools`] | what not every machine has; where all of it must be there, a test without it fails |

pub mod allocations;
pub mod collector;
pub mod decoder;
pub mod records;
pub mod scenario;
pub mod services;
pub mod tools;
mod waiting;

pub use decoder::Decoder;
pub use waiting::{SOON, wait_for, wait_until};

/// The repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Text of what a program printed, whatever it is.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
