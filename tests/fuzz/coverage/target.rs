//! A target of `candlescope-fuzz`, by the name of this program.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| candlescope_fuzz::coverage::run(env!("CARGO_BIN_NAME"), bytes));
