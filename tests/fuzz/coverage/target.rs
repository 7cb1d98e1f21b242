//! A target of `candlescope-fuzz`: the one that the environment variable `CANDLESCOPE_FUZZ_TARGET` names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| candlescope_fuzz::coverage::run(bytes));
