//! candle's errors as outcomes of a case.

use crate::method::CaseError;
use candle_core::Error;

/// The outcome of a repetition that candle refused: out of memory is told apart.
pub fn case_error(error: &Error) -> CaseError {
    let message = candlescope_models::candle_message(error).to_string();
    if is_out_of_memory(&message) { CaseError::OutOfMemory(message) } else { CaseError::Failed(message) }
}

/// Whether a message says that memory ended: CUDA's allocator says `out of memory` or `CUDA_ERROR_OUT_OF_MEMORY`, and
/// cuBLAS `CUBLAS_STATUS_ALLOC_FAILED`.
pub fn is_out_of_memory(message: &str) -> bool {
    let lower = message.to_ascii_lowercase();
    ["out of memory", "out_of_memory", "alloc_failed"].iter().any(|words| lower.contains(words))
}
