//! Devices, element types and engines by name.

use anyhow::{Result, bail};
use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};
use candlescope::Builder;
use candlescope_models::weights::Form;
use candlescope_models::{Engine, KvCacheDType};

/// The device called `cpu` or `cuda:N`.
pub(crate) fn device(name: &str) -> Result<Device> {
    match name {
        "cpu" => Ok(Device::Cpu),
        "cuda" => cuda(0),
        _ => match name.strip_prefix("cuda:").map(str::parse::<usize>) {
            Some(Ok(ordinal)) => cuda(ordinal),
            _ => bail!("device `{name}` is not known; devices are cpu and cuda:N, for example cuda:0"),
        },
    }
}

#[cfg(feature = "cuda")]
fn cuda(ordinal: usize) -> Result<Device> {
    Device::new_cuda(ordinal).map_err(|error| {
        anyhow::anyhow!(
            "device cuda:{ordinal} cannot be used: {}; `candlescope doctor` shows what this machine has",
            candlescope_models::candle_message(&error)
        )
    })
}

#[cfg(not(feature = "cuda"))]
fn cuda(ordinal: usize) -> Result<Device> {
    crate::hand_over::to_cuda_build()?;
    anyhow::bail!(
        "device cuda:{ordinal} is not part of this build, and there is no {name} beside it: cargo build -p \
         candlescope-cli --features cuda --bin {name} builds it (it needs the CUDA toolkit)",
        name = crate::hand_over::CUDA_BUILD
    )
}

/// The same with a stream of its own, which can be captured as a CUDA graph.
pub(crate) fn with_own_stream(name: &str) -> Result<Device> {
    match device(name)? {
        #[cfg(feature = "cuda")]
        Device::Cuda(default) => {
            Ok(candlescope_models::slots::capturable_device(default.cuda_stream().context().ordinal())?)
        }
        device => Ok(device),
    }
}

/// The session that `builder` makes, told which stream the device's work is in.
pub(crate) fn told_of(builder: Builder, device: &Device) -> Builder {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => {
            let stream = cuda.cuda_stream();
            builder.gpu_clock(candlescope::gpu::CudaClockOptions::default().stream(stream.context().ordinal(), &stream))
        }
        _ => builder,
    }
}

/// The element type called `f32`, `f16` or `bf16`.
pub(crate) fn dtype(name: &str) -> Result<DType> {
    match name.to_ascii_lowercase().as_str() {
        "f32" => Ok(DType::F32),
        "f16" => Ok(DType::F16),
        "bf16" => Ok(DType::BF16),
        _ => bail!("dtype `{name}` is not known; models run in f32, f16 or bf16"),
    }
}

/// The type that matrices are quantised to: `q8_0`, `q4_k`, …
pub(crate) fn quantised(name: &str) -> Result<GgmlDType> {
    let wanted = name.to_ascii_lowercase().replace('-', "_");
    let known = Form::QUANTIZED.into_iter().find(|form| form.name() == wanted);
    match known {
        Some(Form::Quantized(dtype)) => Ok(dtype),
        _ => bail!("`{name}` is no type to quantise to; there are {}", Form::QUANTIZED.map(Form::name).join(", ")),
    }
}

/// How keys and values are held: `auto` or `q8`.
pub(crate) fn kv_cache_dtype(name: &str) -> Result<KvCacheDType> {
    let wanted = name.to_ascii_lowercase();
    match KvCacheDType::ALL.iter().find(|dtype| dtype.as_str() == wanted) {
        Some(dtype) => Ok(*dtype),
        None => bail!(
            "--kv-cache-dtype `{name}` is not known; keys and values are held as {}",
            KvCacheDType::ALL.iter().map(|dtype| dtype.as_str()).collect::<Vec<_>>().join(" or ")
        ),
    }
}

/// The same where it may be left out.
pub(crate) fn kv_cache_dtype_or_auto(name: Option<&str>) -> Result<KvCacheDType> {
    name.map_or(Ok(KvCacheDType::Auto), kv_cache_dtype)
}

/// What `--engine` says.
pub(crate) const ENGINE_HELP: &str = "auto: our layers, with FLOPs and bytes, where they have the architecture, else \
candle-transformers' own model, unmodified, which is what qwen3, t5, bert and whisper run as; instrumented or candle: \
that one";

/// The implementation called `auto`, `instrumented` or `candle`.
pub(crate) fn engine(name: &str) -> Result<Engine> {
    let known = [Engine::Auto, Engine::Instrumented, Engine::Candle];
    match known.into_iter().find(|engine| engine.as_str() == name) {
        Some(engine) => Ok(engine),
        None => bail!("engine `{name}` is not known; engines are auto, instrumented and candle"),
    }
}

/// What a user is told who did not choose an engine, if the model did not run as our layers. `architecture` and
/// `engine` are what the loaded model says of itself.
pub(crate) fn engine_note(asked: &str, architecture: &str, engine: &str) -> Option<String> {
    let chosen = asked == Engine::Auto.as_str() && engine == Engine::Candle.as_str();
    chosen.then(|| format!("note: {architecture} runs as candle-transformers' own model (--engine candle)"))
}
