//! What `candlescope record` tells the library that it has loaded into a program, by variables; and what that library calls things.

/// A regular expression: only ranges whose names it matches are steps.
pub const STEPS: &str = "CANDLESCOPE_INJECT_STEPS";

/// The file that the process makes which records: others find it there, and step aside.
pub const CLAIM: &str = "CANDLESCOPE_INJECT_CLAIM";

/// Where it is set, every process that uses CUDA or NVTX records a run of its own.
pub const CHILDREN: &str = "CANDLESCOPE_INJECT_CHILDREN";

/// The step that stands for a program outside of its ranges, or for one that makes none.
pub const PROGRAM_STEP: &str = "program";

/// Target of ranges without a domain.
pub const NO_DOMAIN: &str = "nvtx";
