//! Number formats of weights and of cached keys and values: how many bits a value takes, and in which type it is
//! multiplied.

use crate::nearest::{nearest, suggestion};
use serde::Serialize;

/// The type in which numbers are multiplied: a column of a device's FLOP/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Multiply {
    /// 32-bit floats, whose FLOP/s stand in last where a device has no figure for another type.
    F32,
    /// 32-bit floats cut to 19 bits.
    Tf32,
    /// bfloat16: 16 bits, with the exponent of 32-bit floats.
    Bf16,
    /// IEEE half precision, 16 bits; weights of 4 bits in groups (GPTQ, AWQ) are widened to it.
    F16,
    /// 8-bit floats, which candle calls `f8e4m3`: 4 bits of exponent, 3 of mantissa.
    Fp8,
    /// 8-bit integers, in which products with GGML's blocks are made as well.
    Int8,
}

impl Multiply {
    /// All of them, those of most bits first.
    pub const ALL: [Self; 6] = [Self::F32, Self::Tf32, Self::Bf16, Self::F16, Self::Fp8, Self::Int8];

    /// In the order in which runs list their peaks.
    pub(super) const AS_LISTED: [Self; 6] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::Fp8, Self::Int8];

    /// As reports and files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }

    /// As runs call it, by candle's names of element types.
    pub fn dtype(self) -> &'static str {
        match self {
            Self::Fp8 => "f8e4m3",
            Self::Int8 => "i8",
            other => other.name(),
        }
    }

    /// By its name, also by those that runs and other tools use.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "f32" | "fp32" | "float32" => Self::F32,
            "tf32" => Self::Tf32,
            "bf16" | "bfloat16" => Self::Bf16,
            "f16" | "fp16" | "float16" | "half" => Self::F16,
            "fp8" | "f8" | "f8e4m3" | "f8_e4m3" => Self::Fp8,
            "int8" | "i8" => Self::Int8,
            _ => return None,
        })
    }

    /// Types whose FLOP/s stand in where a device has no figure for this one, in order: wider ones, in which the same
    /// numbers can be multiplied exactly.
    pub(super) fn wider(self) -> &'static [Self] {
        match self {
            Self::F32 => &[],
            Self::Tf32 | Self::Bf16 | Self::F16 => &[Self::F32],
            Self::Fp8 | Self::Int8 => &[Self::F16, Self::Bf16, Self::F32],
        }
    }

    /// Whether it has 8 bits.
    pub(super) fn is_narrow(self) -> bool {
        matches!(self, Self::Fp8 | Self::Int8)
    }
}

/// How numbers of weights are stored, and in which type they are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Format {
    /// Its name, as options and reports write it.
    pub name: &'static str,
    /// Bits a value, scales of its block included.
    pub bits: f64,
    /// The type in which candle, or the usual kernels of this format, multiply it on a GPU.
    pub multiply: Multiply,
    /// Bits of an activation beside such weights.
    pub activation_bits: f64,
    /// Whether weights are stored in blocks with scales, so that activations are quantised by a kernel of their own
    /// before a product.
    pub in_blocks: bool,
}

const fn plain(name: &'static str, bits: f64, multiply: Multiply) -> Format {
    Format { name, bits, multiply, activation_bits: if bits > 16.0 { 32.0 } else { 16.0 }, in_blocks: false }
}

/// A type of GGML: candle holds activations in f32, quantises them to 8 bits before a product, and multiplies integers.
const fn ggml(name: &'static str, bits: f64) -> Format {
    Format { name, bits, multiply: Multiply::Int8, activation_bits: 32.0, in_blocks: true }
}

/// All formats. Bits of GGML's types are bytes of a block × 8 ÷ its values, by `ggml/src/ggml-common.h`: `block_q8_0`
/// is 34 bytes for 32 values, `block_q4_K` 144 for 256.
pub const FORMATS: &[Format] = &[
    plain("f32", 32.0, Multiply::F32),
    plain("bf16", 16.0, Multiply::Bf16),
    plain("f16", 16.0, Multiply::F16),
    plain("fp8", 8.0, Multiply::Fp8),
    plain("int8", 8.0, Multiply::Int8),
    // Weights alone, groups of 128 with a 16-bit scale and a 4-bit zero point (GPTQ, AWQ), widened before the product.
    plain("int4", 4.15625, Multiply::F16),
    ggml("q8_0", 34.0 * 8.0 / 32.0),
    ggml("q6_k", 210.0 * 8.0 / 256.0),
    ggml("q5_k", 176.0 * 8.0 / 256.0),
    ggml("q5_1", 24.0 * 8.0 / 32.0),
    ggml("q5_0", 22.0 * 8.0 / 32.0),
    ggml("q4_k", 144.0 * 8.0 / 256.0),
    ggml("q4_1", 20.0 * 8.0 / 32.0),
    ggml("q4_0", 18.0 * 8.0 / 32.0),
    ggml("q3_k", 110.0 * 8.0 / 256.0),
    ggml("q2_k", 84.0 * 8.0 / 256.0),
];

/// No format has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no number format is named `{name}`{}; known are {}",
    suggestion(&nearest(.name, names())),
    names().collect::<Vec<_>>().join(", ")
)]
pub struct UnknownFormat {
    /// The name that was given.
    pub name: String,
}

fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name)
}

impl Format {
    /// A format of [`FORMATS`] by its name, in any case; `q4_k_m` and `q4_k_s` are `q4_k`, their main part.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn named(name: &str) -> Result<Self, UnknownFormat> {
        let wanted = name.trim().to_ascii_lowercase();
        // What is multiplied as it is stored has one name for both; a mixture of GGML's types is its main part.
        let wanted = match Multiply::named(&wanted) {
            Some(plain) => plain.name(),
            None => wanted.strip_suffix("_m").or_else(|| wanted.strip_suffix("_s")).unwrap_or(&wanted),
        };
        let known = FORMATS.iter().find(|format| format.name == wanted).copied();
        known.ok_or_else(|| UnknownFormat { name: name.to_string() })
    }

    /// How a model's weights are stored, with the width of the activations beside them, by what a run's `model` says:
    /// `quantization`, else `dtype`. `None` if it says neither.
    ///
    /// # Errors
    /// If there is no format of this name.
    pub fn stored(quantization: Option<&str>, dtype: Option<&str>) -> Option<Result<Self, UnknownFormat>> {
        let stored = Self::named(quantization.or(dtype)?);
        let bits = dtype.and_then(|dtype| Self::named(dtype).ok()).map(|activations| activations.bits);
        Some(stored.map(|own| Self { activation_bits: bits.unwrap_or(own.activation_bits), ..own }))
    }

    /// Bytes of so many values.
    pub fn bytes(&self, values: f64) -> f64 {
        values * self.bits / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_stored_as_told_and_never_as_something_else() {
        let bits = |quantization, dtype| Format::stored(quantization, dtype).map(|of| of.map(|of| of.bits).ok());
        assert_eq!(bits(Some("q8_0"), Some("f16")), Some(Some(8.5)));
        assert_eq!(bits(None, Some("bf16")), Some(Some(16.0)));
        assert_eq!(bits(Some("iq4_xs"), Some("f32")), Some(None), "not the 32 bits of the activations");
        assert_eq!(bits(None, None), None);
        let activations = |dtype| Format::stored(Some("q4_0"), dtype).unwrap().unwrap().activation_bits;
        assert_eq!((activations(None), activations(Some("f16"))), (32.0, 16.0));
    }
}
