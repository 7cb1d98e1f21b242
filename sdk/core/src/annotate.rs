//! Attaches numbers to the innermost open interval, for code that has no span of its own to give fields to.

use crate::annotation::Annotation;

/// Attaches `annotation` to the innermost interval that is open on this thread.
///
/// Costs a few nanoseconds, allocates nothing, and does nothing if no interval is being recorded, so library code can
/// call it unconditionally. FLOPs and bytes of several calls add up; all other values are replaced.
///
/// ```
/// # use candlescope_core as candlescope;
/// use candlescope::{Annotation, DType, annotate};
/// let (m, k, n) = (1u64, 576, 1536); // m rows through a weight of k by n
/// let work = Annotation::new().flops(2 * m * k * n).dtype(DType::F32);
/// annotate(work.bytes(k * n * 4).io_bytes((m * k + k * n + m * n) * 4));
/// ```
#[inline]
pub fn annotate(annotation: Annotation) {
    crate::layer::thread::annotate_current(&annotation);
}

/// Whether an interval is being recorded on this thread: lets callers skip work that only feeds [`annotate`].
#[inline]
pub fn is_recording() -> bool {
    crate::layer::thread::is_recording()
}
