//! Element types that kernels run in.

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use std::fmt;

/// The type of a kernel's elements: of its weights, where they are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Element {
    /// 32-bit floats, the type of activations beside quantised weights, too.
    F32,
    /// 16-bit floats of IEEE 754, with 5 bits of exponent.
    F16,
    /// 16-bit floats with the exponent of 32-bit ones.
    BF16,
    /// GGML's 4-bit blocks of 256 weights, 144 bytes each.
    Q4K,
    /// GGML's 8-bit blocks of 32 weights, 34 bytes each.
    Q8_0,
}

impl Element {
    /// All of them, dense types first, then those of quantised weights.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::BF16, Self::Q4K, Self::Q8_0];

    /// Those that matrix products take as they are.
    pub const DENSE: &[Self] = &[Self::F32, Self::F16, Self::BF16];

    /// As the command line and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q4K => "q4_k",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The element type called `name`, in either case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name().eq_ignore_ascii_case(name))
    }

    /// The type of activations: f32 beside quantised weights, as candle has it.
    pub fn activations(self) -> DType {
        match self {
            Self::F32 | Self::Q4K | Self::Q8_0 => DType::F32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
        }
    }

    /// Bytes of one activation.
    pub fn width(self) -> usize {
        self.activations().size_in_bytes()
    }

    /// The type of quantised weights, and how many of them a block holds in how many bytes.
    pub fn blocks(self) -> Option<(GgmlDType, usize, usize)> {
        let dtype = match self {
            Self::Q4K => GgmlDType::Q4K,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::F32 | Self::F16 | Self::BF16 => return None,
        };
        Some((dtype, dtype.block_size(), dtype.type_size()))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
