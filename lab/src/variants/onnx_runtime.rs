//! Runs a model's ONNX graph with ONNX Runtime, whose library is loaded while the program runs.

use super::runner::{Runner, TextActivations, TimedContinuation, greedy};
use crate::method::{Cancel, CaseError};
use candlescope_models::onnx::OnnxFiles;
use candlescope_models::{LoadedModel, ModelConfig};
use ort::ep::ExecutionProvider;
use ort::session::builder::GraphOptimizationLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The library, once it is loaded, or why it is not.
static LIBRARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// Loads the library `named`, or that of what is activated, unless one is loaded already.
///
/// # Errors
/// [`CaseError::Refused`] with what to do, where there is none or it cannot be loaded.
pub(super) fn start(named: Option<&Path>) -> Result<(), CaseError> {
    let load = || {
        let library = match named {
            Some(named) => std::path::absolute(named).map_err(|error| format!("--onnxruntime: {error}"))?,
            None => activated(|name| std::env::var_os(name))?,
        };
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "ONNX Runtime cannot be loaded from {} ({error}): name another library with --onnxruntime",
                library.display()
            )
        };
        // A path with a directory in it is opened as it is: no search path takes part.
        let environment = ort::init_from(&library).map_err(|error| failed(&error))?;
        environment.with_name("candlescope").with_telemetry(false).commit();
        Ok(library)
    };
    LIBRARY.get_or_init(load).as_ref().map(drop).map_err(|why| CaseError::Refused(why.clone()))
}

/// The library that `ORT_DYLIB_PATH` names, or the one inside the wheel `onnxruntime` of the activated Python
/// environment. A library is code that runs when it is opened, so that nothing is taken from below the working
/// directory, which may be somebody else's: what these variables have must be absolute.
fn activated(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = set("ORT_DYLIB_PATH") {
        return match named.is_absolute() {
            true => Ok(named),
            false => Err(format!(
                "ORT_DYLIB_PATH is {}, which depends on the working directory: give the library's whole path",
                named.display()
            )),
        };
    }
    let mut active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).filter(|path| path.is_absolute());
    let found = active.find_map(|environment| in_environment(&environment));
    found.ok_or_else(|| {
        "ONNX Runtime's library was not found: `pip install onnxruntime` into a Python environment and activate it, or \
         name libonnxruntime.so.VERSION (libonnxruntime.VERSION.dylib on macOS) with --onnxruntime or ORT_DYLIB_PATH"
            .to_string()
    })
}

/// ONNX Runtime's library where nobody names one, and what it is found by, without opening it.
///
/// # Errors
/// Why there is none, and what to do.
pub fn onnx_library() -> Result<(PathBuf, &'static str), String> {
    let library = activated(|name| std::env::var_os(name))?;
    let named = std::env::var_os("ORT_DYLIB_PATH").is_some_and(|value| !value.is_empty());
    let from = if named { "ORT_DYLIB_PATH" } else { "the activated Python environment" };
    match library.is_file() {
        true => Ok((library, from)),
        false => Err(format!("{from} names {}, where no file is", library.display())),
    }
}

fn in_environment(environment: &Path) -> Option<PathBuf> {
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &Path, is: fn(&str) -> bool| path.file_name().and_then(|name| name.to_str()).is_some_and(is);
    entries(environment.join("lib"))
        .filter(|path| named(path, |name| name.starts_with("python3")))
        .flat_map(|python| entries(python.join("site-packages/onnxruntime/capi")))
        .find(|path| named(path, |name| version_in(name).is_some()))
}

/// The version in the name of ONNX Runtime's library, on Linux or on macOS: empty if it has none, `None` of another file.
fn version_in(file: &str) -> Option<&str> {
    let rest = file.strip_prefix("libonnxruntime.")?;
    if let Some(version) = rest.strip_prefix("so") {
        return Some(version.trim_start_matches('.'));
    }
    rest.strip_suffix("dylib").map(|version| version.trim_end_matches('.'))
}

/// A graph in ONNX Runtime.
pub(super) struct OnnxRunner {
    session: Session,
    files: OnnxFiles,
    config: ModelConfig,
    on_cpu: bool,
    provider: &'static str,
    kv_bytes: u64,
}

impl OnnxRunner {
    /// The graph in `files`, of the model `loaded`.
    pub(super) fn open(files: &OnnxFiles, loaded: &LoadedModel, on_cpu: bool) -> Result<Self, CaseError> {
        let (session, provider) = session(&files.model, on_cpu)?;
        let (files, config) = (files.clone(), loaded.config.clone());
        Ok(Self { session, files, config, on_cpu, provider, kv_bytes: 0 })
    }
}

/// A session of the graph in `path`, and what runs it.
fn session(path: &Path, on_cpu: bool) -> Result<(Session, &'static str), CaseError> {
    // As many threads as candle has.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cuda = ort::ep::CUDA::default();
    let on_gpu = !on_cpu && cuda.is_available().unwrap_or(false);
    let builder = Session::builder().map_err(|error| failed(&error))?;
    let builder = builder.with_optimization_level(GraphOptimizationLevel::All).map_err(|error| failed(&error))?;
    let builder = builder.with_intra_threads(threads).map_err(|error| failed(&error))?;
    let mut builder = match on_gpu {
        true => builder.with_execution_providers([cuda.build().error_on_failure()]).map_err(|error| failed(&error))?,
        false => builder,
    };
    let session = builder.commit_from_file(path).map_err(|error| failed(&error))?;
    Ok((session, if on_gpu { "CUDA provider, keys and values by way of the host" } else { "CPU provider" }))
}

fn failed(error: &dyn std::fmt::Display) -> CaseError {
    let message = format!("ONNX Runtime: {error}");
    match crate::hardware::is_out_of_memory(&message) {
        true => CaseError::OutOfMemory(message),
        false => CaseError::Failed(message),
    }
}

/// Keys and values of all layers, in the order of the graph's inputs.
type Cache = Vec<(String, DynValue)>;

/// A cache of no tokens.
fn empty_cache(config: &ModelConfig) -> Result<Cache, CaseError> {
    let shape = [1, config.num_kv_heads, 0, config.head_dim];
    let mut cache = Vec::new();
    for layer in 0..config.num_layers {
        for kind in ["key", "value"] {
            let tensor = Tensor::from_array((shape, Vec::<f32>::new())).map_err(|error| failed(&error))?;
            cache.push((format!("past_key_values.{layer}.{kind}"), tensor.into_dyn()));
        }
    }
    Ok(cache)
}

/// One call of a graph, for `tokens` after those in `cache`; `at` are the positions whose logits are wanted. Returns the
/// logits, and the outputs of blocks where the graph has them.
fn step(
    session: &mut Session,
    config: &ModelConfig,
    cache: &mut Cache,
    (tokens, position): (&[u32], usize),
    at: &[usize],
) -> Result<TextActivations, CaseError> {
    let ids: Vec<i64> = tokens.iter().map(|token| i64::from(*token)).collect();
    let positions: Vec<i64> = (position..position + tokens.len()).map(|at| at as i64).collect();
    let at: Vec<i64> = at.iter().map(|at| *at as i64).collect();
    let row = |values: Vec<i64>| Tensor::from_array(([1, values.len()], values)).map_err(|error| failed(&error));
    let wanted = Tensor::from_array(([at.len()], at)).map_err(|error| failed(&error))?;
    let mut inputs: Vec<(String, SessionInputValue<'_>)> = vec![
        ("input_ids".into(), row(ids)?.into()),
        ("position_ids".into(), row(positions)?.into()),
        ("logits_at".into(), wanted.into()),
    ];
    inputs.extend(std::mem::take(cache).into_iter().map(|(name, value)| (name, value.into())));
    let mut outputs = session.run(inputs).map_err(|error| failed(&error))?;
    let values = |name: &str, outputs: &ort::session::SessionOutputs<'_>| -> Result<Vec<f32>, CaseError> {
        let output = outputs.get(name).ok_or_else(|| CaseError::Failed(format!("the graph gave no {name}")))?;
        Ok(output.try_extract_tensor::<f32>().map_err(|error| failed(&error))?.1.to_vec())
    };
    let logits = values("logits", &outputs)?;
    let blocks = (0..config.num_layers).map(|layer| format!("hidden.{layer}"));
    let blocks: Vec<String> = blocks.filter(|name| outputs.contains_key(name)).collect();
    let blocks = blocks.iter().map(|name| values(name, &outputs)).collect::<Result<_, _>>()?;
    for layer in 0..config.num_layers {
        for kind in ["key", "value"] {
            let name = format!("present.{layer}.{kind}");
            let value = outputs.remove(&name).ok_or_else(|| CaseError::Failed(format!("the graph gave no {name}")))?;
            cache.push((format!("past_key_values.{layer}.{kind}"), value));
        }
    }
    Ok(TextActivations { logits, blocks })
}

impl Runner for OnnxRunner {
    fn generate(&mut self, prompt: &[u32], count: usize, cancel: &Cancel) -> Result<TimedContinuation, CaseError> {
        let (mut cache, mut position) = (empty_cache(&self.config)?, 0);
        let generated = greedy(prompt, count, cancel, |next| {
            let made = step(&mut self.session, &self.config, &mut cache, (next, position), &[next.len() - 1])?;
            position += next.len();
            Ok(made.logits)
        })?;
        let held = [2, self.config.num_layers, self.config.num_kv_heads, self.config.head_dim, position, 4];
        self.kv_bytes = held.iter().map(|n| *n as u64).product();
        Ok(generated)
    }

    /// Through the graph that shows its blocks, which is opened for this.
    fn inspect(&mut self, tokens: &[u32], from: usize) -> Result<TextActivations, CaseError> {
        let (mut session, _) = session(&self.files.blocks, self.on_cpu)?;
        let at: Vec<usize> = (from..tokens.len()).collect();
        step(&mut session, &self.config, &mut empty_cache(&self.config)?, (tokens, 0), &at)
    }

    fn weight_bytes(&self) -> u64 {
        std::fs::metadata(&self.files.data).map_or(0, |meta| meta.len())
    }

    fn kv_bytes(&self) -> Option<u64> {
        (self.kv_bytes > 0).then_some(self.kv_bytes)
    }

    fn runs_on(&self) -> Option<String> {
        let library = LIBRARY.get()?.as_ref().ok()?;
        let file = library.file_name()?.to_str()?;
        let version = version_in(file).unwrap_or(file);
        let version = if version.is_empty() { String::new() } else { format!(" {version}") };
        Some(format!("ONNX Runtime{version} ({}), {}", library.display(), self.provider))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_activated_with_its_whole_path_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let capi = dir.path().join("env/lib/python3.11/site-packages/onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        let library = capi.join("libonnxruntime.so.1.22.0");
        std::fs::write(&library, "not opened").unwrap();
        let with = |name: &'static str, value: &Path| {
            let value = value.as_os_str().to_os_string();
            activated(move |asked| (asked == name).then(|| value.clone()))
        };
        assert_eq!(with("VIRTUAL_ENV", &dir.path().join("env")).unwrap(), library);
        assert_eq!(with("ORT_DYLIB_PATH", &library).unwrap(), library);
        assert!(with("ORT_DYLIB_PATH", Path::new("libonnxruntime.so")).unwrap_err().contains("whole path"));
        for relative in ["env", ".venv", ""] {
            assert!(with("VIRTUAL_ENV", Path::new(relative)).unwrap_err().contains("was not found"));
        }
    }

    #[test]
    fn the_library_of_linux_and_that_of_macos_say_their_versions() {
        let versions =
            ["libonnxruntime.so.1.22.0", "libonnxruntime.1.22.0.dylib", "libonnxruntime.so", "libonnxruntime.dylib"];
        assert_eq!(versions.map(version_in), [Some("1.22.0"), Some("1.22.0"), Some(""), Some("")]);
        for other in
            ["libonnxruntime_providers_shared.so", "onnxruntime_pybind11_state.so", "libonnxruntime.py", "readme"]
        {
            assert_eq!(version_in(other), None, "{other}");
        }
    }
}
