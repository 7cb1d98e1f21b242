//! Memory: what a case needs, predicted, and what the machine has left.

use candle_core::DType;
use candlescope_models::{KvCacheDType, LoadOptions, ModelConfig, ModelInfo, ModelSource};

/// Tokens by which the instrumented models' cache grows at a time.
const CACHE_GRANULE: usize = 256;

/// What a request needs beside the model's weights, in bytes: derived, not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestMemory {
    /// Keys and values.
    pub(super) cache: u64,
    /// Activations of the step that has the most of them, the prompt's.
    pub(super) activations: u64,
}

impl RequestMemory {
    /// The need of `batch` sequences of `prompt` and `output` tokens.
    ///
    /// Keys and values: 2 · layers · kv heads · head size · tokens · batch elements, the tokens rounded up to 256 as
    /// the cache does it; in 8 bits a byte each, and four for the scale of a head. These are widened when a layer reads
    /// them: 3 · kv heads · head size · tokens · batch elements more. Activations: for each token of the prompts the
    /// residual stream and its copies, queries, keys, values and the feed-forward network's three rows, of one layer,
    /// as they are given back before the next one's; three copies of the attention's scores (scores, masked, softmax);
    /// the logits.
    pub(super) fn of(info: &ModelInfo, batch: usize, prompt: usize, output: usize) -> Self {
        let width = if info.dtype == DType::F32.as_str() { 4 } else { 2 };
        let tokens = (prompt + output).saturating_sub(1).next_multiple_of(CACHE_GRANULE).min(info.context_length);
        let in_8_bits = info.kv_cache_dtype == Some(KvCacheDType::Q8.as_str());
        let head = if in_8_bits { info.head_dim + 4 } else { info.head_dim * width };
        let cache = [2, info.layers, info.kv_heads, tokens, batch, head];
        let widened = [if in_8_bits { 3 } else { 0 }, info.kv_heads, info.head_dim, tokens, batch, width];
        let row =
            6 * info.hidden_size + (2 * info.heads + 2 * info.kv_heads) * info.head_dim + 3 * info.intermediate_size;
        let scores = [3, batch, info.heads, prompt, prompt, 4];
        let product = |factors: &[usize]| factors.iter().fold(1u64, |all, n| all.saturating_mul(*n as u64));
        let activations = product(&[batch, prompt, row, width])
            .saturating_add(product(&scores))
            .saturating_add(product(&widened))
            .saturating_add(product(&[batch, info.vocab_size, width + 4]));
        Self { cache: product(&cache), activations }
    }

    pub(super) fn total(&self) -> u64 {
        self.cache.saturating_add(self.activations)
    }
}

/// Bytes that the weights of a model will take, as far as its name, or its files' sizes, tell before it is loaded.
pub fn predicted_weight_bytes(source: &ModelSource, options: &LoadOptions) -> Option<u64> {
    let dense = options.dtype.unwrap_or(if options.device.is_cpu() { DType::F32 } else { DType::BF16 });
    let of = |config: &ModelConfig| config.parameters().saturating_mul(dense.size_in_bytes() as u64);
    match source {
        ModelSource::Embedded => ModelConfig::named(candlescope_models::config::EMBEDDED).ok().as_ref().map(of),
        ModelSource::Config(name) => ModelConfig::named(name).ok().as_ref().map(of),
        // Widened, it takes more, by a factor that the file's tensors tell; the loader will.
        ModelSource::Gguf(file) => std::fs::metadata(file).ok().map(|meta| meta.len()),
        ModelSource::Directory(dir) => {
            let text = candlescope_core::files::read_text_limited(&dir.join("config.json"), 16 << 20).ok()?;
            let json = serde_json::from_str(&text).ok()?;
            ModelConfig::from_hf("model", &json).ok().as_ref().map(of)
        }
        _ => None,
    }
}

/// The most memory that this process had resident since the last call of [`begin`](PeakResident::begin), as Linux
/// counts it.
#[derive(Debug)]
pub(super) struct PeakResident(bool);

impl PeakResident {
    /// Begins to count anew (`/proc/self/clear_refs`, value 5).
    pub(super) fn begin() -> Self {
        Self(std::fs::write("/proc/self/clear_refs", "5").is_ok())
    }

    /// The most since then, in bytes; `None` where the system does not tell.
    pub(super) fn bytes(&self) -> Option<u64> {
        let status = self.0.then(|| std::fs::read_to_string("/proc/self/status").ok())??;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
    }
}

/// Bytes for people.
pub(crate) fn shown(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_models::LoadedModel;

    #[test]
    fn the_cache_is_what_the_model_allocates() {
        let loaded = LoadedModel::load(&ModelSource::Embedded, &LoadOptions::default()).unwrap();
        // 2 · 4 layers · 2 kv heads · 32 · 256 tokens · 3 sequences · 4 bytes.
        let need = RequestMemory::of(&loaded.info, 3, 100, 50);
        assert_eq!(need.cache, 2 * 4 * 2 * 32 * 256 * 3 * 4);
        assert_eq!(RequestMemory::of(&loaded.info, 1, 256, 1).cache, 2 * 4 * 2 * 32 * 256 * 4);
        assert_eq!(RequestMemory::of(&loaded.info, 1, 256, 2).cache, 2 * 4 * 2 * 32 * 512 * 4);
        assert!(RequestMemory::of(&loaded.info, 1, 2_000, 1).activations > 3 * 4 * 2_000 * 2_000 * 4);
        let options = LoadOptions { kv_cache_dtype: KvCacheDType::Q8, ..LoadOptions::default() };
        let small = RequestMemory::of(&LoadedModel::load(&ModelSource::Embedded, &options).unwrap().info, 3, 100, 50);
        assert_eq!(small.cache, 2 * 4 * 2 * (32 + 4) * 256 * 3);
        assert_eq!(small.activations - need.activations, 3 * 2 * 32 * 256 * 3 * 4, "what a layer widens");
    }

    #[test]
    fn a_name_tells_the_weights() {
        let source = ModelSource::parse("config:llama-3-8b").unwrap();
        let bytes = predicted_weight_bytes(&source, &LoadOptions::default()).unwrap();
        assert_eq!(bytes / 1_000_000_000, 32, "8.03 billion parameters of 4 bytes");
    }
}
