//! A range that is open beside the intervals of threads.

use crate::clock::Ticks;

/// A range that was [begun](crate::Ranges::begin) beside the intervals of its thread and has not ended. Valid in the session
/// whose [`Ranges`](crate::Ranges) made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRange {
    pub(super) start: Ticks,
    pub(super) seq: u64,
    /// `seq` of the interval around its beginning; 0 for none.
    pub(super) parent: u64,
    pub(super) name: u32,
    pub(super) request: u32,
    /// The bits of the program's own number.
    pub(super) payload: Option<u64>,
}

impl OpenRange {
    /// With a number that the program attaches to it, as [`Annotation::payload`](crate::Annotation::payload).
    #[must_use]
    pub const fn payload(mut self, number: f64) -> Self {
        self.payload = Some(number.to_bits());
        self
    }
}
