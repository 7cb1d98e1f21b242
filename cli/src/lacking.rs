//! What a build was made without, and how to have it.

use anyhow::{Error, anyhow};

/// Says that `what` needs a feature that is on unless somebody turned it off, as `make demo` does to build faster.
#[allow(dead_code, reason = "unused where a build has everything")]
pub(crate) fn default_feature(what: &str, feature: &str) -> Error {
    anyhow!(
        "{what} is not part of this build, which lacks the feature {feature}: cargo build -p candlescope-cli builds it with all that is usual"
    )
}

/// Says that `what` needs a feature that is off unless asked for.
#[allow(dead_code, reason = "unused where a build has everything")]
pub(crate) fn feature(what: &str, feature: &str, needs: &str) -> Error {
    anyhow!(
        "{what} is not part of this build: cargo build -p candlescope-cli --features {feature} builds it (it needs {needs})"
    )
}
