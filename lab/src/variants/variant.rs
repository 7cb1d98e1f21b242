//! The ways in which one model is run.

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use candlescope_core::nearest::suggest;
use candlescope_models::KvCacheDType;
use candlescope_models::weights::Form;
use serde::{Deserialize, Serialize};

/// One way to run a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Variant {
    /// f32, and the whole text is processed again for each token.
    NoCache,
    /// f32 with keys and values kept: the base that quality is held against.
    KvCache,
    /// f32 with keys and values kept in 8 bits.
    #[serde(rename = "kv_q8")]
    KvQ8,
    /// Weights and activations in f16.
    F16,
    /// Weights and activations in bf16.
    Bf16,
    /// 8-bit weights: GGML's Q8_0.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 4-bit weights, blocks of 32 with a scale: GGML's Q4_0.
    #[serde(rename = "q4_0")]
    Q4_0,
    /// 4-bit weights, blocks of 32 with a scale and a minimum: GGML's Q4_1.
    #[serde(rename = "q4_1")]
    Q4_1,
    /// 4-bit weights, blocks of 256 in two levels: GGML's Q4_K.
    #[serde(rename = "q4_k")]
    Q4K,
    /// f32 as an ONNX graph with keys and values as inputs, run by ONNX Runtime.
    Onnx,
    /// The same graph, run by candle-onnx.
    OnnxCandle,
}

/// The file that a variant's results stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `baseline_results.json`: f32 with and without keys and values kept.
    Baseline,
    /// `quantization_results.json`: weights in other types than f32, f16 and bf16 among them.
    Quantization,
    /// `onnx_results.json`: the ONNX graph, whoever runs it.
    Onnx,
}

/// A name that is none of a variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no variant `{name}`{suggestion}; variants are {known}", known = Variant::names().join(", "))]
pub struct UnknownVariant {
    name: String,
    suggestion: String,
}

impl Variant {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 11] = [
        Self::NoCache,
        Self::KvCache,
        Self::KvQ8,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q4K,
        Self::Onnx,
        Self::OnnxCandle,
    ];

    /// Those that are measured unless others are asked for.
    pub const USUAL: [Self; 8] =
        [Self::NoCache, Self::KvCache, Self::F16, Self::Bf16, Self::Q8_0, Self::Q4_0, Self::Q4K, Self::Onnx];

    /// As options and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCache => "no_cache",
            Self::KvCache => "kv_cache",
            Self::KvQ8 => "kv_q8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q4K => "q4_k",
            Self::Onnx => "onnx",
            Self::OnnxCandle => "onnx_candle",
        }
    }

    /// What reports and charts call it, such as `f32 with KV cache`.
    pub const fn title(self) -> &'static str {
        match self {
            Self::NoCache => "f32 without KV cache",
            Self::KvCache => "f32 with KV cache",
            Self::KvQ8 => "f32, KV cache in 8 bits",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "INT8 (Q8_0)",
            Self::Q4_0 => "4 bits (Q4_0)",
            Self::Q4_1 => "4 bits (Q4_1)",
            Self::Q4K => "4 bits (Q4_K)",
            Self::Onnx => "ONNX f32",
            Self::OnnxCandle => "ONNX f32 (candle-onnx)",
        }
    }

    fn names() -> Vec<&'static str> {
        Self::ALL.map(Self::name).to_vec()
    }

    /// The variant called `name`.
    ///
    /// # Errors
    /// When there is none; the message names the nearest.
    pub fn parse(name: &str) -> Result<Self, UnknownVariant> {
        let wanted = name.trim().to_ascii_lowercase().replace('-', "_");
        let known = Self::ALL.into_iter().find(|variant| variant.name() == wanted);
        known.ok_or_else(|| UnknownVariant { suggestion: suggest(&wanted, Self::names()), name: name.to_string() })
    }

    /// What the weights are stored as.
    pub const fn form(self) -> Form {
        match self {
            Self::NoCache | Self::KvCache | Self::KvQ8 | Self::Onnx | Self::OnnxCandle => Form::Dense(DType::F32),
            Self::F16 => Form::Dense(DType::F16),
            Self::Bf16 => Form::Dense(DType::BF16),
            Self::Q8_0 => Form::Quantized(GgmlDType::Q8_0),
            Self::Q4_0 => Form::Quantized(GgmlDType::Q4_0),
            Self::Q4_1 => Form::Quantized(GgmlDType::Q4_1),
            Self::Q4K => Form::Quantized(GgmlDType::Q4K),
        }
    }

    /// How keys and values are held.
    pub const fn kv_cache_dtype(self) -> KvCacheDType {
        match self {
            Self::KvQ8 => KvCacheDType::Q8,
            _ => KvCacheDType::Auto,
        }
    }

    /// Whether its results are those of the base by construction, so that holding them against it says nothing.
    pub const fn is_base(self) -> bool {
        matches!(self, Self::NoCache | Self::KvCache)
    }

    /// The file of its results.
    pub const fn group(self) -> Group {
        match self {
            Self::NoCache | Self::KvCache => Group::Baseline,
            Self::Onnx | Self::OnnxCandle => Group::Onnx,
            _ => Group::Quantization,
        }
    }
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_the_nearest_is_named() {
        for variant in Variant::ALL {
            assert_eq!(Variant::parse(variant.name()), Ok(variant));
            assert_eq!(serde_json::to_value(variant).unwrap(), variant.name(), "one name everywhere");
        }
        assert_eq!(Variant::parse("Q4-K"), Ok(Variant::Q4K));
        assert_eq!(Variant::parse("onnx-candle"), Ok(Variant::OnnxCandle));
        assert_eq!(Variant::parse("kv-q8"), Ok(Variant::KvQ8));
        let message = Variant::parse("q4_k_m").unwrap_err().to_string();
        assert!(
            message.contains("did you mean `q4_k`?") && message.contains("no_cache, kv_cache, kv_q8, f16"),
            "{message}"
        );
    }
}
