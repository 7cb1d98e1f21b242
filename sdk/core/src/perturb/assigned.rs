//! What the stretch that is open does.

use super::MOST_ARMS;

/// What a stretch does: by number, so that what is added late is told from what the next stretch adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StretchAssignment(u64);

impl StretchAssignment {
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Never 0.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn new(number: u64, arm: usize, delayed: bool) -> Self {
        Self((number << 8) | ((arm as u64) << 1) | u64::from(delayed))
    }

    pub(crate) fn arm(self) -> usize {
        (self.0 >> 1) as usize % MOST_ARMS
    }

    pub(crate) fn delayed(self) -> bool {
        self.0 & 1 != 0
    }
}
