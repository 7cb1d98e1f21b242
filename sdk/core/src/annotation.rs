//! Annotations: what an interval does, and for whom.

use crate::vocabulary::{DType, Ran, Shape};
use candlescope_work::operation::Cost;

/// What an interval states about its own work. Build it with the methods and pass it to
/// [`annotate`](crate::annotate()).
///
/// It is a small plain value: making one costs only the arithmetic for its numbers. It has two halves, what an
/// operation does and for whom a step works, because a record in a thread's ring has 64 bytes. Only halves with content
/// are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Annotation {
    pub(crate) work: Work,
    pub(crate) counts: Counts,
}

/// What an operation does. Values that are not set are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Work {
    pub(crate) flops: u64,
    pub(crate) flops_executed: u64,
    pub(crate) bytes: u64,
    pub(crate) io_bytes: u64,
    shape: Shape,
    dtype: Option<DType>,
    set: u8,
}

impl From<Cost> for Annotation {
    /// Zeros are left out, so that "not counted" is never taken for "none". Without activations there are no I/O bytes:
    /// an intensity over a part of them would be too high.
    fn from(cost: Cost) -> Self {
        let mut annotation = Self::new();
        if cost.flops_executed() > 0.0 {
            annotation = annotation.flops(cost.flops as u64).flops_executed(cost.flops_executed() as u64);
        }
        if cost.bytes() > 0.0 {
            annotation = annotation.bytes(cost.bytes() as u64);
        }
        if cost.activation_bytes > 0.0 {
            annotation = annotation.io_bytes(cost.io_bytes() as u64);
        }
        annotation
    }
}

impl Work {
    pub(crate) const FLOPS: u8 = 1;
    pub(crate) const FLOPS_EXECUTED: u8 = 2;
    pub(crate) const BYTES: u8 = 4;
    pub(crate) const IO_BYTES: u8 = 8;
    const SHAPE: u8 = 16;

    const NOTHING: Self =
        Self { flops: 0, flops_executed: 0, bytes: 0, io_bytes: 0, shape: Shape::EMPTY, dtype: None, set: 0 };

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.set == 0 && self.dtype.is_none()
    }

    fn merge(&mut self, other: &Work) {
        self.flops = self.flops.saturating_add(other.flops);
        self.flops_executed = self.flops_executed.saturating_add(other.flops_executed);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.io_bytes = self.io_bytes.saturating_add(other.io_bytes);
        if other.set & Self::SHAPE != 0 {
            self.shape = other.shape;
        }
        if other.dtype.is_some() {
            self.dtype = other.dtype;
        }
        self.set |= other.set;
    }

    pub(crate) fn get(&self, bit: u8, value: u64) -> Option<u64> {
        (self.set & bit != 0).then_some(value)
    }
}

/// For whom a step works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Or the bits of the program's own number, which is for intervals of recorded programs: these do not know the sum.
    context_sum: u64,
    tokens: u32,
    context_len: u32,
    batch: u32,
    new_tokens: u32,
    sequences: u32,
    ran: Option<Ran>,
    set: u8,
}

impl Counts {
    const TOKENS: u8 = 1;
    const CONTEXT_LEN: u8 = 2;
    const BATCH: u8 = 4;
    const NEW_TOKENS: u8 = 8;
    const CONTEXT_SUM: u8 = 16;
    const SEQUENCES: u8 = 32;
    const PAYLOAD: u8 = 64;

    const NOTHING: Self =
        Self { context_sum: 0, tokens: 0, context_len: 0, batch: 0, new_tokens: 0, sequences: 0, ran: None, set: 0 };

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.set == 0 && self.ran.is_none()
    }

    fn merge(&mut self, other: &Counts) {
        self.ran = other.ran.or(self.ran);
        let has = |bit: u8| other.set & bit != 0;
        if has(Self::TOKENS) {
            self.tokens = other.tokens;
        }
        if has(Self::CONTEXT_LEN) {
            self.context_len = other.context_len;
        }
        if has(Self::BATCH) {
            self.batch = other.batch;
        }
        if has(Self::NEW_TOKENS) {
            self.new_tokens = other.new_tokens;
        }
        if other.set & (Self::CONTEXT_SUM | Self::PAYLOAD) != 0 {
            self.context_sum = other.context_sum;
            self.set &= !(Self::CONTEXT_SUM | Self::PAYLOAD);
        }
        if has(Self::SEQUENCES) {
            self.sequences = other.sequences;
        }
        self.set |= other.set;
    }

    fn get<T>(&self, bit: u8, value: T) -> Option<T> {
        (self.set & bit != 0).then_some(value)
    }
}

/// A count in the width in which it is recorded.
#[inline]
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Annotation {
    /// An annotation without any values.
    #[inline]
    pub const fn new() -> Self {
        Self { work: Work::NOTHING, counts: Counts::NOTHING }
    }

    /// Floating-point operations that the model needs; a multiply and an add are two, and masked attention counts only
    /// with the part that is attended to. Several annotations of one interval add up. MFU is computed from them.
    #[must_use]
    #[inline]
    pub const fn flops(mut self, flops: u64) -> Self {
        self.work.flops = flops;
        self.work.set |= Work::FLOPS;
        self
    }

    /// Floating-point operations that are executed: [`Annotation::flops`] and what the model does not need, such as the
    /// masked half of a prompt's attention. Several annotations of one interval add up. HFU is computed from them.
    #[must_use]
    #[inline]
    pub const fn flops_executed(mut self, flops: u64) -> Self {
        self.work.flops_executed = flops;
        self.work.set |= Work::FLOPS_EXECUTED;
        self
    }

    /// Bytes of weights read and of cached keys and values read and written: the least that the model needs. Several
    /// annotations of one interval add up. MBU is computed from them.
    #[must_use]
    #[inline]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.work.bytes = bytes;
        self.work.set |= Work::BYTES;
        self
    }

    /// All bytes that the operation moves: [`Annotation::bytes`] and the activations that go in and come out, each read
    /// or written once. Several annotations of one interval add up. Arithmetic intensity and an operation's GB/s are
    /// computed from them.
    #[must_use]
    #[inline]
    pub const fn io_bytes(mut self, bytes: u64) -> Self {
        self.work.io_bytes = bytes;
        self.work.set |= Work::IO_BYTES;
        self
    }

    /// Tokens processed, including padding and sequences that have ended.
    #[must_use]
    #[inline]
    pub fn tokens(mut self, tokens: usize) -> Self {
        self.counts.tokens = small(tokens);
        self.counts.set |= Counts::TOKENS;
        self
    }

    /// Context length after the operation, in tokens.
    #[must_use]
    #[inline]
    pub fn context_len(mut self, context_len: usize) -> Self {
        self.counts.context_len = small(context_len);
        self.counts.set |= Counts::CONTEXT_LEN;
        self
    }

    /// Sequences in the batch, including those that have ended.
    #[must_use]
    #[inline]
    pub fn batch(mut self, batch: usize) -> Self {
        self.counts.batch = small(batch);
        self.counts.set |= Counts::BATCH;
        self
    }

    /// For a step: tokens that are new in it and belong to sequences that go on. Padding, ended sequences of a batch
    /// and earlier tokens that are passed again do not count.
    #[must_use]
    #[inline]
    pub fn new_tokens(mut self, tokens: usize) -> Self {
        self.counts.new_tokens = small(tokens);
        self.counts.set |= Counts::NEW_TOKENS;
        self
    }

    /// For a step: sum of the context lengths after it, in tokens, over the sequences that go on. In place of
    /// [`payload`](Self::payload).
    #[must_use]
    #[inline]
    pub const fn context_sum(mut self, tokens: u64) -> Self {
        self.counts.context_sum = tokens;
        self.counts.set = self.counts.set & !Counts::PAYLOAD | Counts::CONTEXT_SUM;
        self
    }

    /// For a step: sequences that go on.
    #[must_use]
    #[inline]
    pub fn sequences(mut self, sequences: usize) -> Self {
        self.counts.sequences = small(sequences);
        self.counts.set |= Counts::SEQUENCES;
        self
    }

    /// A number that the program attaches to the interval and that means what the program says, such as the payload of an
    /// NVTX range. In place of [`context_sum`](Self::context_sum): no interval has both.
    #[must_use]
    #[inline]
    pub const fn payload(mut self, number: f64) -> Self {
        self.counts.context_sum = number.to_bits();
        self.counts.set = self.counts.set & !Counts::CONTEXT_SUM | Counts::PAYLOAD;
        self
    }

    /// How the step ran: as a replay of a CUDA graph, or why not.
    #[must_use]
    #[inline]
    pub const fn ran(mut self, ran: Ran) -> Self {
        self.counts.ran = Some(ran);
        self
    }

    /// Element type of the operation.
    #[must_use]
    #[inline]
    pub const fn dtype(mut self, dtype: DType) -> Self {
        self.work.dtype = Some(dtype);
        self
    }

    /// Shape of the operation's output or principal operand, outermost dimension first.
    #[must_use]
    #[inline]
    pub fn shape(self, dims: &[usize]) -> Self {
        self.with_shape(Shape::new(dims))
    }

    #[inline]
    pub(crate) fn with_shape(mut self, shape: Shape) -> Self {
        self.work.shape = shape;
        self.work.set |= Work::SHAPE;
        self
    }

    /// Whether no value is set.
    pub const fn is_empty(&self) -> bool {
        self.work.is_empty() && self.counts.is_empty()
    }

    /// Adds `other` to `self`: FLOPs and bytes add up; every other value that `other` has replaces that of `self`.
    pub fn merge(&mut self, other: &Annotation) {
        if !other.work.is_empty() {
            self.work.merge(&other.work);
        }
        if !other.counts.is_empty() {
            self.counts.merge(&other.counts);
        }
    }

    /// FLOPs that the model needs, if set.
    pub fn get_flops(&self) -> Option<u64> {
        self.work.get(Work::FLOPS, self.work.flops)
    }
    /// FLOPs that are executed, if set.
    pub fn get_flops_executed(&self) -> Option<u64> {
        self.work.get(Work::FLOPS_EXECUTED, self.work.flops_executed)
    }
    /// Bytes of weights and KV cache, if set.
    pub fn get_bytes(&self) -> Option<u64> {
        self.work.get(Work::BYTES, self.work.bytes)
    }
    /// Bytes with activations, if set.
    pub fn get_io_bytes(&self) -> Option<u64> {
        self.work.get(Work::IO_BYTES, self.work.io_bytes)
    }
    /// Tokens processed, all sequences of the batch together, if set.
    pub fn get_tokens(&self) -> Option<u32> {
        self.counts.get(Counts::TOKENS, self.counts.tokens)
    }
    /// Context length, if set.
    pub fn get_context_len(&self) -> Option<u32> {
        self.counts.get(Counts::CONTEXT_LEN, self.counts.context_len)
    }
    /// Sequences in the batch, if set.
    pub fn get_batch(&self) -> Option<u32> {
        self.counts.get(Counts::BATCH, self.counts.batch)
    }
    /// New tokens of sequences that go on, if set.
    pub fn get_new_tokens(&self) -> Option<u32> {
        self.counts.get(Counts::NEW_TOKENS, self.counts.new_tokens)
    }
    /// Sum of context lengths of sequences that go on, if set.
    pub fn get_context_sum(&self) -> Option<u64> {
        self.counts.get(Counts::CONTEXT_SUM, self.counts.context_sum)
    }
    /// The program's own number, if set.
    pub fn get_payload(&self) -> Option<f64> {
        self.counts.get(Counts::PAYLOAD, f64::from_bits(self.counts.context_sum))
    }
    /// Sequences that go on, if set.
    pub fn get_sequences(&self) -> Option<u32> {
        self.counts.get(Counts::SEQUENCES, self.counts.sequences)
    }
    /// How the step ran, if set.
    pub fn get_ran(&self) -> Option<Ran> {
        self.counts.ran
    }
    /// Element type, if set.
    pub fn get_dtype(&self) -> Option<DType> {
        self.work.dtype
    }
    /// Shape of the operation's output or principal operand, if set.
    pub fn get_shape(&self) -> Option<Shape> {
        (self.work.set & Work::SHAPE != 0).then_some(self.work.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_work::operation::linear;

    #[test]
    fn a_payload_and_a_sum_of_contexts_replace_each_other() {
        let of = |a: &Annotation| (a.get_payload(), a.get_context_sum());
        let (payload, sum) = (Annotation::new().payload(-1.5), Annotation::new().context_sum(7));
        assert_eq!((of(&payload), of(&sum)), ((Some(-1.5), None), (None, Some(7))));
        assert_eq!((of(&payload.context_sum(7)), of(&sum.payload(-1.5))), (of(&sum), of(&payload)));
        for (mut before, then) in [(payload, sum), (sum, payload), (payload, payload)] {
            before.merge(&then);
            assert_eq!(of(&before), of(&then));
        }
        let mut kept = payload.tokens(3);
        kept.merge(&Annotation::new().tokens(4));
        assert_eq!((of(&kept), kept.get_tokens()), (of(&payload), Some(4)));
    }

    #[test]
    fn what_is_not_counted_stays_unsaid() {
        assert!(Annotation::from(Cost::ZERO).is_empty());
        let all = Annotation::from(linear(1, 2, 3, 24, 4));
        assert_eq!((all.get_flops(), all.get_bytes()), (Some(12), Some(24)));
        assert_eq!((all.get_flops_executed(), all.get_io_bytes()), (Some(12), Some(24 + (2 + 3) * 4)));
        let weights = Annotation::from(Cost { activation_bytes: 0.0, ..linear(1, 2, 3, 24, 4) });
        assert_eq!((weights.get_bytes(), weights.get_io_bytes()), (Some(24), None), "weights alone are no I/O");
    }
}
