//! Well-known models by their hub ids and short names. The figures are those of each model's `config.json` on the hub;
//! a test holds the parameters that they make against the published totals.

use crate::nearest::{nearest, suggestion};
use crate::shape::{FeedForward, ModelShape, WindowedLayers};
use crate::windows::Window;

/// No model has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no model is named `{name}`{}. Give one of: {}; or a config.json, or the directory of a run",
    suggestion(&nearest_models(.name)),
    known_models().map(|row| row.name).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownModel {
    /// The name that was given.
    pub name: String,
}

/// One row: a model's names and dimensions.
#[derive(Debug, Clone, Copy)]
pub struct KnownModel {
    /// Short name in lower case, by which the model can be asked for: `llama-3.1-8b`.
    pub name: &'static str,
    /// Ids on the hub (`owner/name`) of models with these dimensions, such as the base and the tuned one.
    pub ids: &'static [&'static str],
    /// `model_type` of its `config.json`.
    pub architecture: &'static str,
    /// Vocabulary, hidden, layers.
    pub size: (u64, u64, u64),
    /// Query heads, key and value heads, features of a head.
    pub heads: (u64, u64, u64),
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Experts, and those that a token uses; (0, 0) without a mixture.
    pub experts: (u64, u64),
    /// Whether the embedding table is the head as well.
    pub tied: bool,
    /// Window and one layer in how many attends to all; (0, 0) without.
    pub window: (u64, u64),
    /// The most tokens of a sequence.
    pub context: u64,
}

#[allow(clippy::too_many_arguments, reason = "a row of a table")]
const fn row(
    name: &'static str,
    ids: &'static [&'static str],
    architecture: &'static str,
    size: (u64, u64, u64),
    heads: (u64, u64, u64),
    intermediate: u64,
    tied: bool,
    context: u64,
) -> KnownModel {
    KnownModel { name, ids, architecture, size, heads, intermediate, experts: (0, 0), tied, window: (0, 0), context }
}

impl KnownModel {
    const fn experts(self, experts: u64, active: u64) -> Self {
        Self { experts: (experts, active), ..self }
    }

    const fn window(self, size: u64, full_every: u64) -> Self {
        Self { window: (size, full_every), ..self }
    }

    /// Its dimensions, with the biases, norms and positions that its architecture has.
    pub fn shape(&self) -> ModelShape {
        let like_llama = ModelShape::decoder(self.name, self.size, self.heads, self.intermediate);
        let (experts, active) = self.experts;
        let feed_forward = match experts {
            0 => like_llama.feed_forward,
            _ => FeedForward::Experts { intermediate: self.intermediate, experts, active },
        };
        let (size, full_every) = self.window;
        let layers = self.size.2 - self.size.2.checked_div(full_every).unwrap_or(0);
        let window = Window::of(self.architecture, size);
        let window = (size > 0).then_some(WindowedLayers { window, layers });
        ModelShape { feed_forward, window, tied: self.tied, max_context: Some(self.context), ..like_llama }
            .built_as(self.architecture)
    }
}

/// Every model of the table.
pub fn known_models() -> impl Iterator<Item = &'static KnownModel> {
    MODELS.iter()
}

#[rustfmt::skip]
const MODELS: &[KnownModel] = &[
    row("llama-2-7b", &["meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf"], "llama",
        (32_000, 4096, 32), (32, 32, 128), 11_008, false, 4096),
    row("llama-2-13b", &["meta-llama/Llama-2-13b-hf", "meta-llama/Llama-2-13b-chat-hf"], "llama",
        (32_000, 5120, 40), (40, 40, 128), 13_824, false, 4096),
    row("llama-2-70b", &["meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-chat-hf"], "llama",
        (32_000, 8192, 80), (64, 8, 128), 28_672, false, 4096),
    row("llama-3-8b", &["meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"], "llama",
        (128_256, 4096, 32), (32, 8, 128), 14_336, false, 8192),
    row("llama-3-70b", &["meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct"], "llama",
        (128_256, 8192, 80), (64, 8, 128), 28_672, false, 8192),
    row("llama-3.1-8b", &["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"], "llama",
        (128_256, 4096, 32), (32, 8, 128), 14_336, false, 131_072),
    row("llama-3.1-70b", &["meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct"], "llama",
        (128_256, 8192, 80), (64, 8, 128), 28_672, false, 131_072),
    row("llama-3.2-1b", &["meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"], "llama",
        (128_256, 2048, 16), (32, 8, 64), 8192, true, 131_072),
    row("llama-3.2-3b", &["meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct"], "llama",
        (128_256, 3072, 28), (24, 8, 128), 8192, true, 131_072),
    row("qwen2.5-0.5b", &["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"], "qwen2",
        (151_936, 896, 24), (14, 2, 64), 4864, true, 32_768),
    row("qwen2.5-1.5b", &["Qwen/Qwen2.5-1.5B", "Qwen/Qwen2.5-1.5B-Instruct"], "qwen2",
        (151_936, 1536, 28), (12, 2, 128), 8960, true, 32_768),
    row("qwen2.5-3b", &["Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B-Instruct"], "qwen2",
        (151_936, 2048, 36), (16, 2, 128), 11_008, true, 32_768),
    row("qwen2.5-7b", &["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct"], "qwen2",
        (152_064, 3584, 28), (28, 4, 128), 18_944, false, 32_768),
    row("qwen2.5-14b", &["Qwen/Qwen2.5-14B", "Qwen/Qwen2.5-14B-Instruct"], "qwen2",
        (152_064, 5120, 48), (40, 8, 128), 13_824, false, 32_768),
    row("qwen2.5-32b", &["Qwen/Qwen2.5-32B", "Qwen/Qwen2.5-32B-Instruct"], "qwen2",
        (152_064, 5120, 64), (40, 8, 128), 27_648, false, 32_768),
    row("qwen2.5-72b", &["Qwen/Qwen2.5-72B", "Qwen/Qwen2.5-72B-Instruct"], "qwen2",
        (152_064, 8192, 80), (64, 8, 128), 29_568, false, 32_768),
    row("qwen3-0.6b", &["Qwen/Qwen3-0.6B"], "qwen3", (151_936, 1024, 28), (16, 8, 128), 3072, true, 40_960),
    row("qwen3-1.7b", &["Qwen/Qwen3-1.7B"], "qwen3", (151_936, 2048, 28), (16, 8, 128), 6144, true, 40_960),
    row("qwen3-4b", &["Qwen/Qwen3-4B"], "qwen3", (151_936, 2560, 36), (32, 8, 128), 9728, true, 40_960),
    row("qwen3-8b", &["Qwen/Qwen3-8B"], "qwen3", (151_936, 4096, 36), (32, 8, 128), 12_288, false, 40_960),
    row("qwen3-14b", &["Qwen/Qwen3-14B"], "qwen3", (151_936, 5120, 40), (40, 8, 128), 17_408, false, 40_960),
    row("qwen3-32b", &["Qwen/Qwen3-32B"], "qwen3", (151_936, 5120, 64), (64, 8, 128), 25_600, false, 40_960),
    row("qwen3-30b-a3b", &["Qwen/Qwen3-30B-A3B"], "qwen3_moe",
        (151_936, 2048, 48), (32, 4, 128), 768, false, 40_960).experts(128, 8),
    row("mistral-7b", &["mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"], "mistral",
        (32_000, 4096, 32), (32, 8, 128), 14_336, false, 32_768).window(4096, 0),
    row("mistral-7b-v0.2", &["mistralai/Mistral-7B-v0.2", "mistralai/Mistral-7B-Instruct-v0.2"], "mistral",
        (32_000, 4096, 32), (32, 8, 128), 14_336, false, 32_768),
    row("mistral-7b-v0.3", &["mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"], "mistral",
        (32_768, 4096, 32), (32, 8, 128), 14_336, false, 32_768),
    row("mixtral-8x7b", &["mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"], "mixtral",
        (32_000, 4096, 32), (32, 8, 128), 14_336, false, 32_768).experts(8, 2),
    row("phi-2", &["microsoft/phi-2"], "phi", (51_200, 2560, 32), (32, 32, 80), 10_240, false, 2048),
    row("phi-3-mini", &["microsoft/Phi-3-mini-4k-instruct"], "phi3",
        (32_064, 3072, 32), (32, 32, 96), 8192, false, 4096).window(2047, 0),
    row("phi-3-mini-128k", &["microsoft/Phi-3-mini-128k-instruct"], "phi3",
        (32_064, 3072, 32), (32, 32, 96), 8192, false, 131_072),
    row("gemma-2b", &["google/gemma-2b", "google/gemma-2b-it"], "gemma",
        (256_000, 2048, 18), (8, 1, 256), 16_384, true, 8192),
    row("gemma-7b", &["google/gemma-7b", "google/gemma-7b-it"], "gemma",
        (256_000, 3072, 28), (16, 16, 256), 24_576, true, 8192),
    row("gemma-2-2b", &["google/gemma-2-2b", "google/gemma-2-2b-it"], "gemma2",
        (256_000, 2304, 26), (8, 4, 256), 9216, true, 8192).window(4096, 2),
    row("gemma-2-9b", &["google/gemma-2-9b", "google/gemma-2-9b-it"], "gemma2",
        (256_000, 3584, 42), (16, 8, 256), 14_336, true, 8192).window(4096, 2),
    row("gemma-2-27b", &["google/gemma-2-27b", "google/gemma-2-27b-it"], "gemma2",
        (256_000, 4608, 46), (32, 16, 128), 36_864, true, 8192).window(4096, 2),
    row("gemma-3-270m", &["google/gemma-3-270m", "google/gemma-3-270m-it"], "gemma3_text",
        (262_144, 640, 18), (4, 1, 256), 2048, true, 32_768).window(512, 6),
    row("gemma-3-1b", &["google/gemma-3-1b-pt", "google/gemma-3-1b-it"], "gemma3_text",
        (262_144, 1152, 26), (4, 1, 256), 6912, true, 32_768).window(512, 6),
    row("gemma-3-4b", &["google/gemma-3-4b-pt", "google/gemma-3-4b-it"], "gemma3_text",
        (262_208, 2560, 34), (8, 4, 256), 10_240, true, 131_072).window(1024, 6),
    row("gemma-3-12b", &["google/gemma-3-12b-pt", "google/gemma-3-12b-it"], "gemma3_text",
        (262_208, 3840, 48), (16, 8, 256), 15_360, true, 131_072).window(1024, 6),
    row("gemma-3-27b", &["google/gemma-3-27b-pt", "google/gemma-3-27b-it"], "gemma3_text",
        (262_208, 5376, 62), (32, 16, 128), 21_504, true, 131_072).window(1024, 6),
    row("distilgpt2", &["distilbert/distilgpt2"], "gpt2", (50_257, 768, 6), (12, 12, 64), 3072, true, 1024),
    row("gpt2", &["openai-community/gpt2"], "gpt2", (50_257, 768, 12), (12, 12, 64), 3072, true, 1024),
    row("gpt2-medium", &["openai-community/gpt2-medium"], "gpt2", (50_257, 1024, 24), (16, 16, 64), 4096, true, 1024),
    row("gpt2-large", &["openai-community/gpt2-large"], "gpt2", (50_257, 1280, 36), (20, 20, 64), 5120, true, 1024),
    row("gpt2-xl", &["openai-community/gpt2-xl"], "gpt2", (50_257, 1600, 48), (25, 25, 64), 6400, true, 1024),
    row("t5-small", &["google-t5/t5-small"], "t5", (32_128, 512, 6), (8, 8, 64), 2048, true, 512),
    row("t5-base", &["google-t5/t5-base"], "t5", (32_128, 768, 12), (12, 12, 64), 3072, true, 512),
    row("t5-large", &["google-t5/t5-large"], "t5", (32_128, 1024, 24), (16, 16, 64), 4096, true, 512),
    row("smollm2-135m", &["HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-135M-Instruct"], "llama",
        (49_152, 576, 30), (9, 3, 64), 1536, true, 8192),
    row("smollm2-360m", &["HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-360M-Instruct"], "llama",
        (49_152, 960, 32), (15, 5, 64), 2560, true, 8192),
    row("smollm2-1.7b", &["HuggingFaceTB/SmolLM2-1.7B", "HuggingFaceTB/SmolLM2-1.7B-Instruct"], "llama",
        (49_152, 2048, 24), (32, 32, 64), 8192, true, 8192),
    row("tinyllama-1.1b",
        &["TinyLlama/TinyLlama-1.1B-Chat-v1.0", "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"], "llama",
        (32_000, 2048, 22), (32, 4, 64), 5632, false, 2048),
];

/// The dimensions of a model of the table, by a hub id or a short name, in any case. The organisation may differ (a
/// copy of the weights), and words that do not change the dimensions may follow: `-hf`, `-instruct`, `-chat`, `-it`,
/// `-base`, `-pt`, and those that say how weights are stored ([`stored_format`]). `config:NAME` is NAME.
///
/// # Errors
/// If no model has this name; the error tells the nearest ones.
pub fn known_model(name: &str) -> Result<ModelShape, UnknownModel> {
    let wanted = normal(name);
    let found = MODELS.iter().find(|row| {
        row.name == wanted || row.ids.iter().any(|id| id.eq_ignore_ascii_case(name.trim()) || normal(id) == wanted)
    });
    found.map(KnownModel::shape).ok_or_else(|| UnknownModel { name: name.to_string() })
}

/// Words at a name's end that do not change the dimensions.
const SAME: &[&str] = &["-hf", "-instruct", "-chat", "-it", "-base", "-pt", "-gguf"];
/// Words at a name's end that say how weights are stored, each with the name of its format.
const STORED: &[(&str, &str)] = &[
    ("-awq", "int4"),
    ("-gptq", "int4"),
    ("-int4", "int4"),
    ("-4bit", "int4"),
    ("-bnb-4bit", "int4"),
    ("-gptq-int4", "int4"),
    ("-gptq-int8", "int8"),
    ("-int8", "int8"),
    ("-8bit", "int8"),
    ("-bnb-8bit", "int8"),
    ("-w8a8", "int8"),
    ("-w4a16", "int4"),
    ("-fp8-dynamic", "fp8"),
    ("-fp8", "fp8"),
    ("-fp16", "f16"),
    ("-f16", "f16"),
    ("-bf16", "bf16"),
    ("-fp32", "f32"),
];

/// The format in which the weights of a copy are stored, as far as the end of its name says so: `-AWQ` and `-GPTQ` are
/// `int4`, `-FP8` is `fp8`, `-fp16` is `f16`. A name ending in `-GGUF` says that it is one of GGML's types, but not which.
pub fn stored_format(name: &str) -> Option<&'static str> {
    let lower = name.trim().to_ascii_lowercase();
    let named = STORED.iter().filter(|(word, _)| lower.ends_with(word));
    // The longest says most.
    named.max_by_key(|(word, _)| word.len()).map(|(_, format)| *format)
}

fn normal(name: &str) -> String {
    let lower = name.trim().to_ascii_lowercase();
    let own = lower.rsplit(['/', ':']).next().unwrap_or_default();
    let mut own = own.strip_prefix("meta-").unwrap_or(own);
    let words = || SAME.iter().chain(STORED.iter().map(|(word, _)| word));
    while let Some(shorter) = words().find_map(|word| own.strip_suffix(word)) {
        own = shorter;
    }
    // `Mistral-7B-Instruct-v0.2` has the word in the middle.
    own.replace("-instruct-v", "-v").replace("-chat-v", "-v")
}

fn nearest_models(wanted: &str) -> Vec<&'static str> {
    let own = normal(wanted);
    let names = nearest(&own, MODELS.iter().map(|row| row.name));
    if names.is_empty() { nearest(wanted, MODELS.iter().flat_map(|row| row.ids.iter().copied())) } else { names }
}
