//! The program that `tests/tests/nsys.rs` runs under Nsight Systems: candle's unmodified Llama, with NVTX ranges from
//! our tap or from the `nvtx` crate's own layer.
//!
//! `nvtx_llama ours RUN N` records a run beside the ranges, N forwards on each of two threads; `nvtx_llama peer N` uses
//! NVIDIA's layer instead, on one thread; `nvtx_llama cost` prints what an interval costs.
#![allow(missing_docs, reason = "a program for tests")]
#[allow(unused, reason = "shared with the tests")]
#[path = "../../tests/common/mod.rs"]
mod models;

use anyhow::{Context, Result, bail};
use candlescope_core::{Handle, MemoryExporter, Phase, Session, SpanId, Tap, TapInterval, llm};
use candlescope_exporters::nvtx::NvtxTap;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ours", run, n] => ours(run, n.parse()?),
        ["peer", n] => peer(n.parse()?),
        ["cost"] => cost(),
        _ => bail!("usage: nvtx_llama ours RUN N | peer N | cost"),
    }
}

fn forwards(n: usize) -> Result<()> {
    let (model, mut cache) = models::llama();
    for i in 0..n {
        let _step = llm::decode(llm::Tokens::new(1).context(i + 1));
        model.forward(&models::tokens(1), i, &mut cache)?;
    }
    Ok(())
}

fn ours(run: &str, n: usize) -> Result<()> {
    let tap = NvtxTap::attached().context("no NVTX tool is attached: run this under nsys")?;
    let (layer, scope) = candlescope::builder().parquet(run).tap(tap).layer()?;
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let other = std::thread::spawn(move || forwards(n));
    forwards(n)?;
    other.join().map_err(|_| anyhow::anyhow!("the second thread panicked"))??;
    let manifest = scope.finish().context("a session")?;
    anyhow::ensure!(manifest.loss.lost() == 0, "{:?}", manifest.loss);
    Ok(())
}

fn peer(n: usize) -> Result<()> {
    // Without phases, which are new spans at each step, the only use that the layer supports. The layer aborts if a
    // span is entered inside itself, which Llama does not do.
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(nvtx::tracing::NvtxLayer::default()))?;
    let (model, mut cache) = models::llama();
    for i in 0..n {
        model.forward(&models::tokens(1), i, &mut cache)?;
    }
    Ok(())
}

/// Nanoseconds per enter and exit: through the tap alone, and through the whole layer without and with it.
fn cost() -> Result<()> {
    const ROUNDS: u32 = 20_000;
    let best = |mut f: Box<dyn FnMut() -> Duration>| {
        let times = (0..9).map(|_| f().as_nanos() as f64 / f64::from(ROUNDS));
        times.fold(f64::MAX, f64::min)
    };
    let tap: Box<dyn Tap> = Box::new(NvtxTap::new());
    let attached = NvtxTap::new().is_attached();
    tap.name(1, "linear", "");
    let alone = best(Box::new(move || {
        let start = Instant::now();
        for i in 0..ROUNDS {
            let interval = TapInterval {
                name: 1,
                span_id: SpanId(i.into()),
                phase: Some(Phase::Decode),
                is_step: false,
                depth: 1,
            };
            black_box(&tap).enter(black_box(interval));
            black_box(&tap).exit(black_box(interval));
        }
        start.elapsed()
    }));
    let layer = |with: bool| -> Result<f64> {
        let builder = Session::builder().exporter(MemoryExporter::new());
        let builder = if with { builder.tap(NvtxTap::new()) } else { builder };
        let (layer, session) = builder.start()?;
        let handle: Handle = session.handle().clone();
        let ns = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let (step, span) = (tracing::trace_span!("step"), tracing::trace_span!("linear"));
            best(Box::new(move || {
                let start = Instant::now();
                for _ in 0..ROUNDS / 500 {
                    let _s = step.enter();
                    for _ in 0..500 {
                        let _e = span.enter();
                    }
                }
                let taken = start.elapsed();
                // The next round begins with an empty ring: with a full one records are dropped, which is cheaper than
                // keeping them.
                let _ = handle.flush(Duration::from_secs(5));
                taken
            }))
        });
        session.finish();
        Ok(ns)
    };
    let (without, with) = (layer(false)?, layer(true)?);
    println!(
        "{{\"attached\":{attached},\"tap_ns\":{alone:.1},\"layer_ns\":{without:.1},\"layer_with_tap_ns\":{with:.1}}}"
    );
    Ok(())
}
