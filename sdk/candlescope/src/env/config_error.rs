//! What is not understood of the variable.

use super::options::{OPTIONS, VARIABLE};

/// The value of `CANDLESCOPE` is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist. The text says which entry it is; what stands there is shown only if it is almost a
    /// known key, because it may be part of a password.
    #[error("{VARIABLE}: {0} is not known (a comma inside a value is written `\\,`); known are {known}", known = known())]
    UnknownKey(String),
    /// What stands behind an address is no key: the address has a comma in it.
    #[error(
        "{VARIABLE}: what follows `{0}` is no known key, so its address seems to hold a comma: write it as `\\,`; `{0}` is left out, and nothing is sent to an address cut short"
    )]
    Comma(&'static str),
    /// A key without the value that it needs, or with an impossible value.
    #[error("{VARIABLE}: `{key}` wants {wanted}{}", not(value))]
    Value {
        /// The key, as it was written in the variable.
        key: &'static str,
        /// What values it accepts.
        wanted: &'static str,
        /// The value that was given.
        value: String,
    },
    /// Keys are joined by something other than commas.
    #[error("{VARIABLE}: keys are joined by commas, but `{0}` stands behind a semicolon")]
    Separator(String),
    /// The build lacks a feature that the key needs.
    #[error(
        "{VARIABLE}: `{0}` needs the feature `{0}` of the crate candlescope, which this build lacks; enable it and rebuild"
    )]
    NotInThisBuild(&'static str),
}

/// Every option, in the first of its forms.
fn known() -> String {
    OPTIONS.iter().filter_map(|option| option.forms.first().copied()).collect::<Vec<_>>().join(", ")
}

/// The rest of a message that says which value was given instead, if any was and it can be no part of an address, which
/// may hold a password with a comma.
fn not(value: &str) -> String {
    if value.is_empty() || value.contains('@') { String::new() } else { format!(", not `{value}`") }
}
