//! Your own layers, with FLOPs and bytes: a span made once, entered at every forward pass, and annotated from the
//! shapes of the tensors.
//!
//! There are two byte counts, for two questions. `bytes` counts weights (and cached keys and values): divided by a
//! step's time, it is the memory bandwidth that the model itself needs. `io_bytes` also counts activations: FLOPs
//! divided by it are the layer's arithmetic intensity.

use candle_core::{Device, Module, Result, Tensor};
use candlescope::llm::{self, Tokens};
use candlescope::{Annotation, DType, annotate};
use tracing::Span;

/// A linear layer that says what it costs.
struct Linear {
    inner: candle_nn::Linear,
    span: Span,
}

impl Linear {
    fn new(rows: usize, cols: usize, name: &str) -> Result<Self> {
        let weight = Tensor::randn(0f32, 0.02, (rows, cols), &Device::Cpu)?;
        // `otel.name` names the interval; the name of a tracing span itself must be known at compile time.
        Ok(Self { inner: candle_nn::Linear::new(weight, None), span: tracing::trace_span!("linear", otel.name = name) })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _interval = self.span.enter();
        let y = self.inner.forward(x)?;
        let (out, inp) = self.inner.weight().dims2()?;
        let rows = x.elem_count() / inp;
        // 2·M·N·K FLOPs; every operand is read or written once, 4 bytes per element.
        let (m, n, k) = (rows as u64, out as u64, inp as u64);
        let work = Annotation::new().flops(2 * m * n * k).bytes(4 * k * n).io_bytes(4 * (m * k + k * n + m * n));
        annotate(work.dtype(DType::F32).shape(y.dims()));
        Ok(y)
    }
}

fn main() -> anyhow::Result<()> {
    let memory = candlescope::sdk::MemoryExporter::new();
    let scope = candlescope::builder().exporter(memory.clone()).install()?;

    let (up, down) = (Linear::new(512, 128, "up_proj")?, Linear::new(128, 512, "down_proj")?);
    let mut x = Tensor::ones((1, 128), candle_core::DType::F32, &Device::Cpu)?;
    for position in 1..=5 {
        let _step = llm::decode(Tokens::new(1).context(position));
        x = down.forward(&up.forward(&x)?.relu()?)?;
    }

    let manifest = scope.finish();
    for span in memory.batch().spans.iter().filter(|s| s.flops.is_some()) {
        let (flops, ns) = (span.flops.unwrap_or(0) as f64, span.host_dur_ns.max(1) as f64);
        let intensity = flops / span.io_bytes.unwrap_or(0).max(1) as f64;
        println!("{:<18} {ns:>8} ns  {:6.2} GFLOP/s  {intensity:.2} FLOP/B", span.path.path, flops / ns);
    }
    println!("verdict ok: {}", manifest.is_some_and(|m| m.verdict.ok));
    Ok(())
}
