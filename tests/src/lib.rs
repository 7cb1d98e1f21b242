//! What crosses crates: see the test binaries beside this file, and `bench` for figures.

/// The Rust of the pages compiles. Several of them name features that the workspace as a whole has on.
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
