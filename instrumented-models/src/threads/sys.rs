//! Sets variables of this process's own environment, which candle reads while it computes.
#![allow(unsafe_code, reason = "setting a variable is not safe while other threads read some")]

/// Sets the variables. Returns `false`, and sets none, if another thread is seen to run.
///
/// # Safety
/// No other thread runs: not every system tells how many there are.
pub(crate) unsafe fn set_variables(variables: &[(&str, &str)]) -> bool {
    let unchanged = |(name, value): &(&str, &str)| std::env::var_os(name).is_some_and(|there| there == *value);
    if variables.iter().all(unchanged) {
        return true;
    }
    if !is_alone() {
        return false;
    }
    for (name, value) in variables {
        // SAFETY: no other thread runs, says the caller, so none reads or changes the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    true
}

/// Whether this thread is the only one, as far as the system tells.
fn is_alone() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    std::fs::read_dir("/proc/self/task").map_or(true, |threads| threads.count() <= 1)
}
