//! Numbers attached to the interval that is open right now, without a span field.

use crate::vocabulary::{DType, Shape};

/// What can be said about an interval. Build it with the methods, hand it to [`annotate`].
///
/// It is a plain value of a few words: making one costs nothing but the arithmetic that goes into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotation {
    pub(crate) flops: u64,
    pub(crate) bytes: u64,
    pub(crate) tokens: u32,
    pub(crate) context_len: u32,
    pub(crate) batch: u32,
    pub(crate) dtype: Option<DType>,
    pub(crate) shape: Option<Shape>,
    pub(crate) set: u8,
}

impl Annotation {
    pub(crate) const FLOPS: u8 = 1;
    pub(crate) const BYTES: u8 = 2;
    pub(crate) const TOKENS: u8 = 4;
    pub(crate) const CONTEXT_LEN: u8 = 8;
    pub(crate) const BATCH: u8 = 16;

    /// Nothing said yet.
    #[inline]
    pub const fn new() -> Self {
        Self { flops: 0, bytes: 0, tokens: 0, context_len: 0, batch: 0, dtype: None, shape: None, set: 0 }
    }

    /// Floating-point operations; several annotations of one interval add up.
    #[must_use]
    #[inline]
    pub const fn flops(mut self, flops: u64) -> Self {
        self.flops = flops;
        self.set |= Self::FLOPS;
        self
    }

    /// Bytes moved to and from memory; several annotations of one interval add up.
    #[must_use]
    #[inline]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self.set |= Self::BYTES;
        self
    }

    /// Tokens processed.
    #[must_use]
    #[inline]
    pub fn tokens(mut self, tokens: usize) -> Self {
        self.tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        self.set |= Self::TOKENS;
        self
    }

    /// Context length after the operation, in tokens.
    #[must_use]
    #[inline]
    pub fn context_len(mut self, context_len: usize) -> Self {
        self.context_len = u32::try_from(context_len).unwrap_or(u32::MAX);
        self.set |= Self::CONTEXT_LEN;
        self
    }

    /// Sequences in the batch.
    #[must_use]
    #[inline]
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = u32::try_from(batch).unwrap_or(u32::MAX);
        self.set |= Self::BATCH;
        self
    }

    /// Element type.
    #[must_use]
    #[inline]
    pub const fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Shape of the operation's output or principal operand, outermost dimension first.
    #[must_use]
    #[inline]
    pub fn shape(mut self, dims: &[usize]) -> Self {
        self.shape = Some(Shape::new(dims));
        self
    }

    /// Whether anything was said.
    pub const fn is_empty(&self) -> bool {
        self.set == 0 && self.dtype.is_none() && self.shape.is_none()
    }

    /// Adds `other` to `self`: FLOPs and bytes add up, everything else is replaced where `other` says something.
    pub fn merge(&mut self, other: &Annotation) {
        self.flops = self.flops.saturating_add(other.flops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        if other.set & Self::TOKENS != 0 {
            self.tokens = other.tokens;
        }
        if other.set & Self::CONTEXT_LEN != 0 {
            self.context_len = other.context_len;
        }
        if other.set & Self::BATCH != 0 {
            self.batch = other.batch;
        }
        if other.dtype.is_some() {
            self.dtype = other.dtype;
        }
        if other.shape.is_some() {
            self.shape = other.shape;
        }
        self.set |= other.set;
    }

    fn get<T>(&self, bit: u8, value: T) -> Option<T> {
        (self.set & bit != 0).then_some(value)
    }

    /// FLOPs, if said.
    pub fn get_flops(&self) -> Option<u64> {
        self.get(Self::FLOPS, self.flops)
    }
    /// Bytes, if said.
    pub fn get_bytes(&self) -> Option<u64> {
        self.get(Self::BYTES, self.bytes)
    }
    /// Tokens, if said.
    pub fn get_tokens(&self) -> Option<u32> {
        self.get(Self::TOKENS, self.tokens)
    }
    /// Context length, if said.
    pub fn get_context_len(&self) -> Option<u32> {
        self.get(Self::CONTEXT_LEN, self.context_len)
    }
    /// Batch, if said.
    pub fn get_batch(&self) -> Option<u32> {
        self.get(Self::BATCH, self.batch)
    }
    /// Element type, if said.
    pub fn get_dtype(&self) -> Option<DType> {
        self.dtype
    }
    /// Shape, if said.
    pub fn get_shape(&self) -> Option<Shape> {
        self.shape
    }
}

/// Attaches `annotation` to the interval that is open on this thread (the innermost one).
///
/// Costs a few nanoseconds, allocates nothing, and does nothing where no interval is being recorded: library code can call it
/// unconditionally. FLOPs and bytes add up over several calls; everything else is replaced.
///
/// ```
/// use candlescope_core::{Annotation, DType, annotate};
/// let (m, k, n) = (1u64, 576, 1536);
/// annotate(Annotation::new().flops(2 * m * k * n).bytes((m * k + k * n + m * n) * 4).dtype(DType::F32));
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
