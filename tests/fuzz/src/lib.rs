//! Fuzzing without a special compiler: seeds from `corpus/`, mutations that are the same on every machine, and a
//! supervisor that sees panics, aborts, hangs and memory.
//!
//! The same targets run under libFuzzer in `coverage/`, a crate of its own that needs a nightly compiler.
//!
//! A target is a function from bytes to whether they were accepted. It runs in a process of its own ([`worker`]); the
//! supervisor ([`supervise`]) ends that process if an input takes too much time or memory, and goes on with the next
//! input. Models have their own mutations in `instrumented-models/tests/hostile.rs`, because loading them is what is
//! tested there.

pub mod coverage;
pub mod dice;
pub mod supervise;
pub mod targets;
pub mod worker;
