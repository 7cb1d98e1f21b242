//! What an error of generation means for a case.

use crate::hardware::is_out_of_memory;
use crate::method::CaseError;
use candlescope_models::GenerateError;

/// The case's word for an error of generation.
pub(crate) fn case_error(error: &GenerateError) -> CaseError {
    let message = error.to_string();
    match error {
        GenerateError::PromptTooLong(_) | GenerateError::BatchOfPrompts(_) => CaseError::Refused(message),
        _ if is_out_of_memory(&message) => CaseError::OutOfMemory(message),
        _ => CaseError::Failed(message),
    }
}
