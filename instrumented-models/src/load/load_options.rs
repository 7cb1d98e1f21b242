//! How a model is loaded.

use crate::config::{INSTRUMENTED_ARCHITECTURES, PADDLEOCR_VL};
use crate::layers::KvCacheDType;
use crate::slots::SlotOptions;
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};

/// Which implementation runs the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// Our layers where they have the architecture, candle-transformers' own model where only that has it.
    #[default]
    Auto,
    /// Our layers, with their spans, FLOPs and bytes.
    Instrumented,
    /// candle-transformers' own model, unmodified.
    Candle,
}

impl Engine {
    /// The one that runs models of `architecture`, a `model_type` of `config.json`: itself, unless it is
    /// [`Auto`](Self::Auto).
    #[must_use]
    pub fn of(self, architecture: &str) -> Self {
        match self {
            Self::Auto if INSTRUMENTED_ARCHITECTURES.contains(&architecture) => Self::Instrumented,
            Self::Auto if architecture == PADDLEOCR_VL => Self::Instrumented,
            Self::Auto => Self::Candle,
            chosen => chosen,
        }
    }

    /// As options and `run.json` call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Instrumented => "instrumented",
            Self::Candle => "candle",
        }
    }
}

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the model runs.
    pub device: Device,
    /// Element type of dense weights and of activations; by default f32 on a CPU and bf16 on a GPU. Quantised models
    /// always compute in f32.
    pub dtype: Option<DType>,
    /// Widen a GGUF's weights to `dtype`.
    pub dequantize: bool,
    /// Quantise matrices to this type while the model loads, as a GGUF of that type would have them; our layers only.
    pub quantize: Option<GgmlDType>,
    /// Seed of random weights.
    pub seed: u64,
    /// Which implementation runs it; our layers by default, where they have the architecture.
    pub engine: Engine,
    /// Hold sequences in slots and decode by steps of fixed shape, which a GPU can take as a CUDA graph; our layers only.
    pub slots: Option<SlotOptions>,
    /// How keys and values are held, in slots and elsewhere; in 8 bits by our layers only.
    pub kv_cache_dtype: KvCacheDType,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            device: Device::Cpu,
            dtype: None,
            dequantize: false,
            quantize: None,
            seed: 42,
            engine: Engine::default(),
            slots: None,
            kv_cache_dtype: KvCacheDType::Auto,
        }
    }
}
