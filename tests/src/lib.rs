//! Tests that involve several crates are in the test binaries beside this file, benchmarks in `bench`.

/// Compiles the Rust code of the documentation. Some pages need features that the workspace as a whole has on.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../../docs/instrument.md")]
    struct Instrument;
    #[doc = include_str!("../../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../../docs/production.md")]
    struct Production;
}
