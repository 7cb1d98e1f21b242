//! What the allocator gives back to the system.
//!
//! Nothing is promised of it. What `page_faults` takes would be gained by a program that keeps its memory itself; where it
//! asks the C library for zeros, that has to write them into memory which it kept, and the system's new pages are zero.
//! How much of what a program asks for is to be zero is not recorded: 57 % of a step came of 89.

use super::remedy::{Attempt, Remedy, State};
use crate::setting::Change;
use candlescope_figures::advice::AdviceCode;

/// Blocks up to this size are kept, in bytes: those of a step's tensors.
const KEPT: u64 = 1 << 30;

pub(super) const REMEDY: Remedy = Remedy {
    name: "allocator",
    title: "Freed memory is kept (glibc)",
    cost: "memory that is not given back",
    attempts,
};

fn attempts(state: &State<'_>) -> Result<Vec<Attempt>, &'static str> {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return Err("the variables are those of glibc");
    }
    if state.findings(&[AdviceCode::PageFaults]).next().is_none() {
        return Err("pages cost the run nothing that can be seen");
    }
    let change = Change::default()
        .variable("MALLOC_MMAP_THRESHOLD_", KEPT)
        .variable("MALLOC_TRIM_THRESHOLD_", KEPT)
        .variable("MALLOC_TOP_PAD_", 64 << 20);
    Ok(vec![Attempt::new(change)])
}
