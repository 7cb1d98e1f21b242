//! Errors about features that this build lacks, and how to add them.

use anyhow::{Error, anyhow};

/// The error that `what` needs a default feature, which was turned off, as `make demo` does to build faster.
#[allow(dead_code, reason = "unused where a build has everything")]
pub(crate) fn default_feature(what: &str, feature: &str) -> Error {
    anyhow!(
        "{what} is not part of this build, which lacks the feature {feature}: cargo build -p candlescope-cli builds it with all default features"
    )
}

/// The error that `what` needs a feature that is off by default.
#[allow(dead_code, reason = "unused where a build has everything")]
pub(crate) fn feature(what: &str, feature: &str, needs: &str) -> Error {
    anyhow!(
        "{what} is not part of this build: cargo build -p candlescope-cli --features {feature} builds it (it needs {needs})"
    )
}
