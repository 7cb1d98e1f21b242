//! How many threads compute, told to rayon and candle by their variables.
//!
//! candle asks the system for the number of cores at each product of dense matrices unless `RAYON_NUM_THREADS` is set,
//! which takes longer than a small product. So a program that computes on a CPU sets it, before it starts a thread.

mod sys;

use candlescope_core::process_facts::{CANDLE_NUM_THREADS, RAYON_NUM_THREADS, threads_in};

/// Sets variables of this process's own environment. Returns `false`, and sets none, if another thread is seen to run.
///
/// # Safety
/// No other thread runs: call it first of all in `main`. Not every system tells how many threads there are.
#[allow(unsafe_code, reason = "handed on to the caller")]
pub unsafe fn set_variables(variables: &[(&str, &str)]) -> bool {
    // SAFETY: the caller's.
    unsafe { sys::set_variables(variables) }
}

/// Lets products be computed on so many threads, unless the variable already says on how many. Returns `false`, and
/// changes nothing, if another thread is seen to run.
///
/// ```no_run
/// // One request at a time, on half of the processors.
/// let cores = std::thread::available_parallelism().map_or(1, usize::from);
/// // SAFETY: the first line of `main`: no other thread runs.
/// unsafe { candlescope_models::threads::compute_on(cores.div_ceil(2)) };
/// ```
///
/// # Safety
/// As for [`set_variables`].
#[allow(unsafe_code, reason = "handed on to the caller")]
pub unsafe fn compute_on(threads: usize) -> bool {
    let is_set = |name| std::env::var(name).is_ok_and(|text| threads_in(&text).is_some());
    if is_set(RAYON_NUM_THREADS) {
        return true;
    }
    let number = threads.max(1).to_string();
    let both = [(RAYON_NUM_THREADS, number.as_str()), (CANDLE_NUM_THREADS, number.as_str())];
    // SAFETY: the caller's.
    unsafe { set_variables(if is_set(CANDLE_NUM_THREADS) { &both[..1] } else { &both }) }
}
