//! What crosses crates: see the test binaries beside this file, and `bench` for figures.
