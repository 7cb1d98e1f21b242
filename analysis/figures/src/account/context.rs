//! What an account is made with.

use crate::busy::Clocks;
use crate::covered::CoveredTime;
use crate::gaps::LAUNCH_OVERHEAD_NS;
use crate::step_rows::StepRow;
use candlescope_schema::run::RunManifest;

/// What an account takes into itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AccountOptions {
    pub(super) overhead_ns: u64,
    pub(super) warmup: bool,
}

impl Default for AccountOptions {
    fn default() -> Self {
        Self { overhead_ns: LAUNCH_OVERHEAD_NS, warmup: false }
    }
}

impl AccountOptions {
    /// A gap below this many nanoseconds is what the device needs between two kernels (1,500 unless told otherwise).
    #[must_use]
    pub fn overhead_ns(self, ns: u64) -> Self {
        Self { overhead_ns: ns, ..self }
    }

    /// Whether steps of the warm-up count. They do not unless told otherwise.
    #[must_use]
    pub fn warmup(self, counts: bool) -> Self {
        Self { warmup: counts, ..self }
    }
}

/// What the parts of an account share.
pub(super) struct Context<'a> {
    pub(super) steps: &'a [StepRow],
    pub(super) covered: &'a CoveredTime,
    pub(super) clocks: Clocks,
    pub(super) manifest: &'a RunManifest,
    pub(super) options: &'a AccountOptions,
}
