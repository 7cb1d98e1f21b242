//! Memory for the keys, or for the values, of one attention: as the model computes them, or in 8 bits.
//!
//! **8 bits.** Of a position and head with features x there is one scale, s = max|x| / 127, in f32, and for each
//! feature a code in one byte, c = ⌊x/s + 128.5⌋: the nearest of 255 steps from −127·s to 127·s, moved by 128 because
//! candle does not compute with signed bytes. What is read is (c − 128)·s, at most s/2 away from x; in 16-bit floats the
//! scale and the product are rounded as well, which in bf16 is another s/2 at most. This is
//! r = S·(q − Z) of Jacob et al. (arXiv 1712.05877, equation 1) with the zero point Z = 128 and S by the largest
//! magnitude. A value takes 1 + 4/d bytes, d features a head, where bf16 takes 2 and f32 takes 4. Where an x is no number
//! or infinite, s is no number or infinite, and so is all that is read of this position and head.
//!
//! candle has no product with such codes, so reading widens them to the model's type, by three operations over all
//! positions, which move more bytes than the codes save. What is gained is memory: for more or longer sequences.

use super::tensor_bytes;
use candle_core::{D, DType, Device, Result, Tensor, bail};
use candlescope_work::operation::Count;

/// How keys and values are held from one step to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KvCacheDType {
    /// In the type in which the model computes them.
    #[default]
    Auto,
    /// As 8-bit integers with a scale in f32 for each position and head.
    Q8,
}

impl KvCacheDType {
    /// All of them, in the order of declaration.
    pub const ALL: &'static [Self] = &[Self::Auto, Self::Q8];

    /// As options and `run.json` call it: `auto`, `q8`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Q8 => "q8",
        }
    }

    /// Bytes of the keys, or of the values, of one position in `heads` of `features` each, scales included. The model
    /// computes in elements of `width` bytes.
    pub(crate) const fn bytes_of_a_position(self, heads: usize, features: usize, width: usize) -> usize {
        match self {
            Self::Auto => heads * features * width,
            Self::Q8 => heads * (features + SCALE_BYTES),
        }
    }
}

/// Bytes of a scale: f32, whatever the model computes in, so that what is written is rounded by no more than half a step.
const SCALE_BYTES: usize = 4;
/// Steps on either side of zero.
const STEPS: f64 = 127.0;
/// What is added to a step, so that a code is not negative.
const OFFSET: f64 = 128.0;

/// Where a step of slots writes: each element's position, on the device.
#[derive(Debug, Clone)]
pub(crate) struct WriteAt {
    /// (slots, kv heads, 1, head) u32. Nothing is written at `u32::MAX`.
    values: Tensor,
    /// The same of scales, (slots, kv heads, 1, 1); none where there are none.
    scales: Option<Tensor>,
}

impl WriteAt {
    /// Of the slots at `positions`, (slots) u32, whose keys have `kv_heads` heads of `head_dim` features.
    pub(crate) fn new(positions: &Tensor, (kv_heads, head_dim): (usize, usize), kept_as: KvCacheDType) -> Result<Self> {
        let n = positions.dim(0)?;
        let positions = positions.reshape((n, 1, 1, 1))?;
        let of = |features: usize| positions.broadcast_as((n, kv_heads, 1, features))?.contiguous();
        let scales = match kept_as {
            KvCacheDType::Auto => None,
            KvCacheDType::Q8 => Some(of(1)?),
        };
        Ok(Self { values: of(head_dim)?, scales })
    }
}

/// Keys, or values, of several sequences, written in place. A clone shares the memory.
#[derive(Debug, Clone)]
pub(crate) struct KvStore {
    /// (batch, kv heads, capacity, head): elements of the model's type, or codes in u8.
    elements: Tensor,
    /// (batch, kv heads, capacity, 1) in f32, of codes.
    scales: Option<Tensor>,
    /// What is written and read.
    dtype: DType,
}

impl KvStore {
    /// Room for (batch, kv heads, capacity, head) elements of type `dtype`. Until something is written, all is zero: an
    /// idle slot attends to it, and what is not a number would spread from there.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub(crate) fn zeros(
        shape: (usize, usize, usize, usize),
        kept_as: KvCacheDType,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let (batch, kv_heads, capacity, _) = shape;
        Ok(match kept_as {
            KvCacheDType::Auto => Self { elements: Tensor::zeros(shape, dtype, device)?, scales: None, dtype },
            KvCacheDType::Q8 => {
                let scales = Tensor::zeros((batch, kv_heads, capacity, 1), DType::F32, device)?;
                Self { elements: Tensor::zeros(shape, DType::U8, device)?, scales: Some(scales), dtype }
            }
        })
    }

    /// Sequences, heads, positions and features of a head.
    pub(crate) fn dims(&self) -> Result<(usize, usize, usize, usize)> {
        self.elements.dims4()
    }

    /// The type that is written and read.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes that are allocated, scales included.
    pub(crate) fn bytes(&self) -> u64 {
        tensor_bytes(&self.elements) + self.scales.as_ref().map_or(0, tensor_bytes)
    }

    /// Those of `count` sequences from `first` on.
    pub(crate) fn sequences(&self, first: usize, count: usize) -> Result<Self> {
        let scales = self.scales.as_ref().map(|scales| scales.narrow(0, first, count)).transpose()?;
        Ok(Self { elements: self.elements.narrow(0, first, count)?, scales, dtype: self.dtype })
    }

    /// Writes `new`, (batch, kv heads, tokens, head), from position `at` on.
    pub(crate) fn write(&self, new: &Tensor, at: usize) -> Result<()> {
        self.put(new, |held, new| held.slice_set(new, 2, at), |held, new| held.slice_set(new, 2, at))
    }

    /// Writes `new`, (slots, kv heads, 1, head), at each slot's own position.
    pub(crate) fn scatter(&self, new: &Tensor, at: &WriteAt) -> Result<()> {
        let scales = |held: &Tensor, new: &Tensor| match &at.scales {
            Some(at) => held.scatter_set(at, new, 2),
            None => bail!("keys and values are held in 8 bits, and the step does not say where scales are"),
        };
        self.put(new, |held, new| held.scatter_set(&at.values, new, 2), scales)
    }

    /// Writes `new` by the functions that write elements and scales.
    fn put(
        &self,
        new: &Tensor,
        elements: impl Fn(&Tensor, &Tensor) -> Result<()>,
        scales: impl Fn(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let new = new.contiguous()?;
        match &self.scales {
            None => elements(&self.elements, &new),
            Some(held) => {
                let (codes, of_codes) = quantised(&new)?;
                elements(&self.elements, &codes)?;
                scales(held, &of_codes)
            }
        }
    }

    /// The first `tokens` positions, (batch, kv heads, tokens, head) in the type that was written. In f16 a scale below
    /// 3·10⁻⁸ reads as zero.
    pub(crate) fn read(&self, tokens: usize) -> Result<Tensor> {
        let elements = self.elements.narrow(2, 0, tokens)?;
        match &self.scales {
            None => Ok(elements),
            Some(scales) => {
                // Codes and steps are exact in 16-bit floats, too.
                let steps = elements.to_dtype(self.dtype)?.affine(1.0, -OFFSET)?;
                steps.broadcast_mul(&scales.narrow(2, 0, tokens)?.to_dtype(self.dtype)?)
            }
        }
    }

    /// Copies the first `tokens` positions of `old`, which holds as many sequences in the same way.
    pub(crate) fn take_over(&self, old: &Self, tokens: usize) -> Result<()> {
        let copy = |to: &Tensor, from: &Tensor| to.slice_set(&from.narrow(2, 0, tokens)?.contiguous()?, 2, 0);
        copy(&self.elements, &old.elements)?;
        match (&self.scales, &old.scales) {
            (Some(to), Some(from)) => copy(to, from),
            _ => Ok(()),
        }
    }

    /// Exchanges what two sequences hold, of each its first so many positions: (sequence, positions). The memory stays
    /// where it is.
    pub(crate) fn exchange(&self, a: (usize, usize), b: (usize, usize)) -> Result<()> {
        let exchange = |held: &Tensor| {
            // A copy, because a tensor is not written from its own memory.
            let copied = |(sequence, positions): (usize, usize)| -> Result<Option<Tensor>> {
                if positions == 0 {
                    return Ok(None);
                }
                held.narrow(0, sequence, 1)?.narrow(2, 0, positions)?.force_contiguous().map(Some)
            };
            let write = |sequence: usize, new: Option<Tensor>| -> Result<()> {
                new.map_or(Ok(()), |new| held.narrow(0, sequence, 1)?.slice_set(&new, 2, 0))
            };
            let (of_a, of_b) = (copied(a)?, copied(b)?);
            write(b.0, of_a)?;
            write(a.0, of_b)
        };
        exchange(&self.elements)?;
        self.scales.as_ref().map_or(Ok(()), exchange)
    }

    /// Makes zeros of the positions from `from` up to `to`, and of those of `other`, which has as many of all.
    pub(crate) fn erase_both(&self, other: &Self, from: usize, to: usize) -> Result<()> {
        let (held, others) = (self.erasable(), other.erasable());
        let (batch, kv_heads, _, size) = held.dims4()?;
        let zeros = Tensor::zeros((batch, kv_heads, to - from, size), held.dtype(), held.device())?;
        held.slice_set(&zeros, 2, from)?;
        others.slice_set(&zeros, 2, from)
    }

    /// What is zero where all that is read is: codes are numbers whatever was written, and zero times their scale.
    fn erasable(&self) -> &Tensor {
        self.scales.as_ref().unwrap_or(&self.elements)
    }
}

/// Codes (…, head) in u8, and scales (…, 1) in f32, of `xs` (…, head).
///
/// Zeros have the scale zero, and any code. A row with an infinity, or with a value that is no number, has a scale that is
/// infinite or no number, and reads as nothing else: whoever attends to it has logits that are no numbers, and fails. Other
/// rows are not touched.
fn quantised(own: &Tensor) -> Result<(Tensor, Tensor)> {
    let xs = own.to_dtype(DType::F32)?;
    let scales = (largest(own, &xs)? * (1.0 / STEPS))?;
    // What is cast to an integer is cut off: to the nearest, because no code is negative.
    let codes = xs.broadcast_div(&scales)?.affine(1.0, OFFSET + 0.5)?.to_dtype(DType::U8)?;
    Ok((codes, scales))
}

/// The largest magnitude of each row, (…, 1) in f32, of `own`, which is `xs` in f32: no number where one in the row is none.
///
/// In the row's own type it is the same number. candle's kernels for 16-bit floats on an NVIDIA GPU answer with what is no
/// number, so there nothing is added to a step. Its other reductions may pass over it: there zero is [added](adds_zeros), as
/// the sum of zero times each element, which takes three small operations more.
fn largest(own: &Tensor, xs: &Tensor) -> Result<Tensor> {
    let most = own.abs()?.max_keepdim(D::Minus1)?.to_dtype(DType::F32)?;
    if !adds_zeros(own.device().is_cuda(), own.dtype().size_in_bytes()) {
        return Ok(most);
    }
    most + (xs * 0.0)?.sum_keepdim(D::Minus1)?
}

/// Whether zero times each element is added to the scales of elements of `width` bytes.
pub(crate) fn adds_zeros(on_cuda: bool, width: impl Count) -> bool {
    !(on_cuda && width.count() == 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes back of rows of `features` values each, and their scales.
    fn back(rows: &[f32], features: usize, dtype: DType) -> (Vec<f32>, Vec<f32>) {
        back_from(&Device::Cpu, rows, features, dtype)
    }

    /// The same of memory on a device.
    fn back_from(device: &Device, rows: &[f32], features: usize, dtype: DType) -> (Vec<f32>, Vec<f32>) {
        let shape = (1, 1, rows.len() / features, features);
        let xs = Tensor::from_slice(rows, shape, device).unwrap().to_dtype(dtype).unwrap();
        let store = KvStore::zeros(shape, KvCacheDType::Q8, dtype, device).unwrap();
        store.write(&xs, 0).unwrap();
        let read = store.read(shape.2).unwrap();
        assert_eq!((read.dtype(), read.dims4().unwrap()), (dtype, shape));
        let flat = |t: &Tensor| t.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        (flat(&read), flat(store.scales.as_ref().unwrap()))
    }

    /// Numbers that are the same in every run, from −1 to 1.
    fn spread(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn what_is_read_is_at_most_half_a_step_from_what_was_written() {
        for seed in 0..40 {
            for magnitude in [1e-30f32, 1e-6, 1e-2, 1.0, 300.0, 1e30, 3e38] {
                let rows: Vec<f32> = spread(seed, 5 * 16).into_iter().map(|x| x * magnitude).collect();
                let (read, scales) = back(&rows, 16, DType::F32);
                let mut largest = 0f32;
                for ((row, read), scale) in rows.chunks(16).zip(read.chunks(16)).zip(scales) {
                    let most = row.iter().fold(0f32, |most, x| most.max(x.abs()));
                    assert!((scale / (most / 127.0) - 1.0).abs() < 1e-5, "{scale} of {most}");
                    for (x, got) in row.iter().zip(read) {
                        let apart = (x - got).abs() / scale;
                        assert!(apart <= 0.501, "{x} came back as {got}, {apart} steps of {scale} away");
                        largest = largest.max(apart);
                    }
                }
                assert!(largest > 0.2, "it is 8 bits that are tested: {largest}");
            }
        }
    }

    #[test]
    fn half_precision_adds_its_own_rounding_and_no_more() {
        for (dtype, epsilon) in [(DType::BF16, 1.0 / 128.0), (DType::F16, 1.0 / 1024.0)] {
            let rows = spread(3, 64 * 8);
            let (read, scales) = back(&rows, 64, dtype);
            for ((row, read), scale) in rows.chunks(64).zip(read.chunks(64)).zip(scales) {
                for (x, got) in row.iter().zip(read) {
                    // Of the value that is written, the scale, and their product.
                    let most = 0.501 * scale + 3.0 * epsilon * x.abs().max(got.abs());
                    assert!((x - got).abs() <= most, "{dtype:?}: {x} came back as {got}, more than {most} away");
                }
            }
        }
    }

    #[test]
    fn zeros_and_values_below_the_smallest_scale_read_as_nothing_or_nearly_so() {
        let tiny = f32::from_bits(1);
        for row in [[0.0; 4], [tiny, -tiny, 0.0, tiny], [tiny * 190.0, tiny * 60.0, -tiny * 127.0, 0.0]] {
            let (read, _) = back(&row, 4, DType::F32);
            let most = 256.0 * tiny;
            assert!(read.iter().all(|x| x.abs() <= most), "{row:?} came back as {read:?}");
        }
        // Smallest magnitude that is written with all of its digits.
        let least = f32::MIN_POSITIVE;
        let (read, _) = back(&[least, -least, 0.0, least / 2.0], 4, DType::F32);
        assert!((read[0] / least - 1.0).abs() < 0.01 && (read[1] / least + 1.0).abs() < 0.01, "{read:?}");
    }

    /// Rows of eight features of which one is no number, or infinite, in each place in turn, between rows of numbers.
    fn spoiled_rows_read_as_no_numbers_and_others_as_they_were(device: &Device) {
        let numbers = [1.0, 2.0, -0.5, 3.0, 1.0, -2.0, 0.25, 4.0];
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for place in 0..8 {
                    let mut spoiled = numbers;
                    spoiled[place] = bad;
                    let rows = [numbers, spoiled, numbers, [bad; 8]].concat();
                    let (read, _) = back_from(device, &rows, 8, dtype);
                    let what = format!("{bad} at {place} in {dtype:?}");
                    for row in [&read[8..16], &read[24..]] {
                        assert!(row.iter().all(|x| !x.is_finite()), "{what} came back as {row:?}");
                    }
                    assert!(read[8..16].iter().any(|x| x.is_nan()), "{what} came back as {:?}", &read[8..16]);
                    for (x, got) in numbers.iter().chain(&numbers).zip(read[..8].iter().chain(&read[16..24])) {
                        assert!((x - got).abs() <= 1.2 * 4.0 / 127.0, "{what}: {x} came back as {got}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_reads_as_no_number_and_harms_no_other_row() {
        spoiled_rows_read_as_no_numbers_and_others_as_they_were(&Device::Cpu);
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a CUDA device"]
    fn what_is_no_number_reads_as_no_number_on_a_device_too() {
        let device = Device::new_cuda(0).expect("a CUDA device");
        spoiled_rows_read_as_no_numbers_and_others_as_they_were(&device);
    }

    #[test]
    fn large_heads_of_large_values_stay_numbers() {
        let large = 3e38;
        let (read, _) = back(&[large; 256], 256, DType::F32);
        assert!(read.iter().all(|x| (x / large - 1.0).abs() < 1e-3), "a sum of them is infinite: {:?}", &read[..2]);
    }

    #[test]
    fn what_was_no_number_is_zero_once_it_is_erased() {
        let shape = (1, 2, 3, 4);
        let stores = [(); 2].map(|()| KvStore::zeros(shape, KvCacheDType::Q8, DType::F32, &Device::Cpu).unwrap());
        for bad in [f32::NAN, f32::INFINITY] {
            for store in &stores {
                store.write(&Tensor::full(bad, shape, &Device::Cpu).unwrap(), 0).unwrap();
                store.write(&Tensor::full(1f32, (1, 2, 1, 4), &Device::Cpu).unwrap(), 0).unwrap();
            }
            stores[0].erase_both(&stores[1], 1, 3).unwrap();
            for store in &stores {
                let read = store.read(3).unwrap().sum((1, 3)).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!((read[0] - 8.0).abs() < 1e-5 && read[1..] == [0.0, 0.0], "{read:?}");
            }
        }
    }

    #[test]
    fn codes_take_a_byte_and_scales_four_for_each_position_and_head() {
        let shape = (3, 2, 10, 64);
        let of = |kept_as, dtype| KvStore::zeros(shape, kept_as, dtype, &Device::Cpu).unwrap().bytes();
        for (dtype, width) in [(DType::F32, 4), (DType::BF16, 2)] {
            assert_eq!(of(KvCacheDType::Q8, dtype), 3 * 2 * 10 * (64 + 4), "whatever the model computes in");
            assert_eq!(of(KvCacheDType::Auto, dtype), 3 * 2 * 10 * 64 * width);
            for &kept_as in KvCacheDType::ALL {
                let position = kept_as.bytes_of_a_position(2, 64, dtype.size_in_bytes()) as u64;
                assert_eq!(of(kept_as, dtype), 3 * 10 * position, "{}", kept_as.as_str());
            }
        }
    }
}
