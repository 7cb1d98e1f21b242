//! Sets variables of this process's own environment, which candle reads while it computes.
#![allow(unsafe_code, reason = "setting a variable is not safe while other threads read some")]

/// Sets the variables. Returns `false`, and sets none, if another thread is seen to run.
pub(super) fn set_variables(variables: &[(&str, &str)]) -> bool {
    // SAFETY: commands settle their threads first of all, before they start any.
    unsafe { candlescope_models::threads::set_variables(variables) }
}
