//! What an error of generation means for a case.

use crate::method::CaseError;
use candlescope_models::GenerateError;

/// The case's word for an error of generation. CUDA's allocator says `out of memory`
/// (`CUDA_ERROR_OUT_OF_MEMORY`), and so does cuBLAS in its own words.
pub(super) fn case_error(error: &GenerateError, need: &str) -> CaseError {
    let message = error.to_string();
    let lower = message.to_ascii_lowercase();
    let memory = ["out of memory", "out_of_memory", "alloc_failed"].iter().any(|word| lower.contains(word));
    match error {
        GenerateError::PromptTooLong(_) | GenerateError::BatchOfPrompts(_) => CaseError::Refused(message),
        _ if memory && need.is_empty() => CaseError::OutOfMemory(message),
        _ if memory => CaseError::OutOfMemory(format!("{message}; {need}")),
        _ => CaseError::Failed(message),
    }
}
