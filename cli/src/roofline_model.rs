//! The model that `candlescope roofline` is asked for: by name, by its config.json, or by the header of its weights.

use anyhow::{Context, Result, bail};
use candlescope_core::files::read_text_limited;
use candlescope_models::ModelConfig;
use candlescope_models::layers::ggml_dtype_word;
use candlescope_models::weights::gguf::GgufFile;
use candlescope_work::devices::Format;
use candlescope_work::known_models::{UnknownModel, known_model, stored_format};
use candlescope_work::shape::ModelShape;
use serde_json::Value;
use std::path::Path;

/// The largest config.json that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;

/// A model, and how its weights are stored as far as its file or its name says so.
pub(crate) struct AskedModel {
    pub(crate) shape: ModelShape,
    /// Name of a format.
    pub(crate) format: Option<String>,
    /// Bits a weight, where they are not those of the format alone.
    pub(crate) bits: Option<f64>,
    /// What has to be said about the format.
    pub(crate) note: Option<String>,
}

impl AskedModel {
    /// `embedded`, `config:NAME`, `FILE.gguf`, `config.json` or its directory, a hub id or a short name.
    pub(crate) fn of(target: &str) -> Result<Self> {
        let path = Path::new(target);
        let is_gguf = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        if is_gguf && path.is_file() {
            return of_gguf(path);
        }
        let file = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
        if file.is_file() {
            return of_config(target, &file);
        }
        if target.ends_with(".json") {
            bail!("`{target}` is not there: give the path of a config.json, or the name of a model");
        }
        if is_gguf {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            return of_file_name(&stem)
                .with_context(|| format!("`{target}` is not here: give its path, or the name of the model in it"));
        }
        match known_model(target) {
            Ok(shape) => Ok(Self::named(target, shape)),
            // Those that other commands run: `embedded`, or `config:NAME`.
            Err(unknown) => match ModelConfig::named(target.strip_prefix("config:").unwrap_or(target)).ok() {
                Some(config) => Ok(Self { shape: config.shape(), format: None, bits: None, note: None }),
                None => Err(unknown.into()),
            },
        }
    }

    fn named(name: &str, shape: ModelShape) -> Self {
        let stored = name.to_ascii_lowercase().ends_with("-gguf");
        Self {
            shape,
            format: stored_format(name).map(str::to_string),
            bits: None,
            note: stored.then(|| {
                "the name says that weights are in a GGUF file, but not of which type: --dtype q4_k (or q8_0, …) says it, and \
                 `candlescope roofline FILE.gguf` reads it"
                    .to_string()
            }),
        }
    }
}

fn of_config(target: &str, file: &Path) -> Result<AskedModel> {
    let text = read_text_limited(file, MOST_BYTES).with_context(|| format!("cannot read `{}`", file.display()))?;
    if let Some(whose) = other_generator(&text) {
        bail!(
            "`{}` looks like the result of {whose}: of load tests, those of `candlescope load` are read. Measure the server \
             with `candlescope load URL`, or give the config.json of the model",
            file.display()
        );
    }
    let name = file.parent().and_then(Path::file_name).map_or(target.to_string(), |n| n.to_string_lossy().into());
    let shape = ModelShape::from_config_text(&name, &text).with_context(|| format!("in `{}`", file.display()))?;
    Ok(AskedModel { format: stored_format(&name).map(str::to_string), bits: None, shape, note: None })
}

/// The program that wrote a result of a load test other than ours; `None` of any other file.
///
/// By their keys: `vllm bench serve` and what was made after it write figures in one object
/// (`vllm/benchmarks/serve.py`), GuideLLM a list of benchmarks, GenAI-Perf and AIPerf an object for each figure.
fn other_generator(text: &str) -> Option<&'static str> {
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return None };
    let is = |key: &str, of: fn(&Value) -> bool| fields.get(key).is_some_and(of);
    if fields.contains_key("model_type") {
        return None;
    }
    if is("request_throughput", Value::is_number) || is("mean_ttft_ms", Value::is_number) {
        return Some("vLLM's `bench serve`");
    }
    if is("request_throughput", Value::is_object) || is("time_to_first_token", Value::is_object) {
        return Some("GenAI-Perf or AIPerf");
    }
    is("benchmarks", Value::is_array).then_some("GuideLLM")
}

/// The header alone is read.
fn of_gguf(path: &Path) -> Result<AskedModel> {
    let file = GgufFile::open(path)?;
    let format = file.quantization().0.map(|dtype| ggml_dtype_word(dtype).as_str());
    let of_format = format.and_then(|name| Format::named(name).ok()).map(|format| format.bits);
    // Norms are in f32 in every file: they are no other type worth a word.
    let bits = file.bits().filter(|bits| of_format.is_some_and(|usual| (bits / usual - 1.0).abs() > 0.01));
    let note = bits.zip(format).map(|(bits, name)| {
        format!(
            "tensors of this file are of several types, most of them {name}: every weight is taken to have their average, \
             {bits:.2} bits (--dtype {name} takes all as {name})"
        )
    });
    Ok(AskedModel { shape: file.config()?.shape(), format: format.map(str::to_string), bits, note })
}

/// A file that is elsewhere, such as `SmolLM2-135M-Instruct-Q4_K_M`: its name says which model and which type it has.
fn of_file_name(stem: &str) -> Result<AskedModel, UnknownModel> {
    let lower = stem.to_ascii_lowercase();
    let parted = lower.rsplit_once(['-', '.']).filter(|(_, last)| Format::named(last).is_ok());
    let (model, format) = parted.map_or((lower.as_str(), None), |(model, format)| (model, Some(format.to_string())));
    let shape = known_model(model)?;
    let format = format.or_else(|| stored_format(model).map(str::to_string));
    Ok(AskedModel { shape, format, bits: None, note: None })
}

#[cfg(test)]
mod tests {
    use super::other_generator;

    #[test]
    fn results_of_other_generators_are_known_by_their_keys() {
        let vllm = r#"{"date": "20260314", "backend": "vllm", "completed": 10, "request_throughput": 1.5, "mean_ttft_ms": 9.1}"#;
        assert_eq!(other_generator(vllm), Some("vLLM's `bench serve`"));
        assert_eq!(other_generator(r#"{"metadata": {}, "benchmarks": [{"metrics": {}}]}"#), Some("GuideLLM"));
        let genai = r#"{"request_throughput": {"unit": "requests/sec", "avg": 1.5}}"#;
        assert_eq!(other_generator(genai), Some("GenAI-Perf or AIPerf"));
        for other in [r#"{"model_type": "llama", "request_throughput": 1.0}"#, "{}", "[]", "not json"] {
            assert_eq!(other_generator(other), None, "{other}");
        }
    }
}
