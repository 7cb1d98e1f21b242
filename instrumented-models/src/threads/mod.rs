//! How many threads compute, told to rayon and candle by their variables.
//!
//! candle asks the system for the number of cores at each product of dense matrices unless `RAYON_NUM_THREADS` is set,
//! which takes longer than a small product. So a program that computes on a CPU sets it, before it starts a thread.

mod sys;

use candlescope_core::process_facts::{CANDLE_NUM_THREADS, RAYON_NUM_THREADS, threads_in};

/// Sets variables of this process's own environment. Returns `false`, and sets none, if another thread runs already, as
/// far as the system tells: call it first of all in `main`.
pub fn set_variables(variables: &[(&str, &str)]) -> bool {
    sys::set_variables(variables)
}

/// Lets products be computed on so many threads, unless the variable already says on how many. Returns `false`, and
/// changes nothing, if another thread runs already.
///
/// ```no_run
/// // One request at a time, on half of the processors.
/// let cores = std::thread::available_parallelism().map_or(1, usize::from);
/// candlescope_models::threads::compute_on(cores.div_ceil(2));
/// ```
pub fn compute_on(threads: usize) -> bool {
    let is_set = |name| std::env::var(name).is_ok_and(|text| threads_in(&text).is_some());
    if is_set(RAYON_NUM_THREADS) {
        return true;
    }
    let number = threads.max(1).to_string();
    let both = [(RAYON_NUM_THREADS, number.as_str()), (CANDLE_NUM_THREADS, number.as_str())];
    set_variables(if is_set(CANDLE_NUM_THREADS) { &both[..1] } else { &both })
}
