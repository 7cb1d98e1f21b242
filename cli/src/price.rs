//! What a machine costs.

use anyhow::{Result, bail};
use candlescope_figures::Price;

/// The price of `--price-per-hour`.
///
/// # Errors
/// If it is negative or no number.
pub(crate) fn price_of(usd_per_hour: Option<f64>) -> Result<Option<Price>> {
    let Some(usd) = usd_per_hour else { return Ok(None) };
    match Price::given(usd) {
        Some(price) => Ok(Some(price)),
        None => bail!("--price-per-hour is {usd}; it is US dollars an hour, 0 or more"),
    }
}
