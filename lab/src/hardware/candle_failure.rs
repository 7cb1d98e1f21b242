//! candle's errors as outcomes of a case.

use crate::method::CaseError;
use candle_core::Error;

/// The outcome of a repetition that candle refused: out of memory is told apart.
pub fn case_error(error: &Error) -> CaseError {
    let message = candlescope_models::candle_message(error).to_string();
    let lower = message.to_ascii_lowercase();
    if lower.contains("out of memory") || lower.contains("out_of_memory") {
        return CaseError::OutOfMemory(message);
    }
    CaseError::Failed(message)
}
