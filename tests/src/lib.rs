//! What crosses crates: see the test binaries beside this file, and `bench` for figures. Here is what several of them need.

pub mod services;
