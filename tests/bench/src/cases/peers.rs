//! Other `tracing` layers, each set up as its documentation says, with an output that costs nothing.

use super::Case;
use super::plain::Plain;
use crate::work::{Mode, Spans};
use anyhow::{Result, bail};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing_subscriber::Registry;
use tracing_subscriber::prelude::*;

/// Discards what is written and counts the flushes.
#[derive(Clone, Default)]
struct Sink {
    flushes: Arc<AtomicU64>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

struct Chrome {
    spans: Spans,
    guard: tracing_chrome::FlushGuard,
    sink: Sink,
}

pub(super) fn chrome(mode: Mode) -> Result<Box<dyn Case>> {
    let sink = Sink::default();
    let (layer, guard) = tracing_chrome::ChromeLayerBuilder::<Registry>::new().writer(sink.clone()).build();
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(Box::new(Chrome { spans: Spans::new(mode), guard, sink }))
}

impl Case for Chrome {
    fn burst(&self) {
        self.spans.burst(|| ());
    }

    fn settle(&mut self) -> Result<()> {
        // The flush request is queued after everything recorded so far.
        let before = self.sink.flushes.load(Ordering::Acquire);
        self.guard.flush();
        let start = Instant::now();
        while self.sink.flushes.load(Ordering::Acquire) == before {
            if start.elapsed() > Duration::from_secs(30) {
                bail!("tracing-chrome did not write its queue out");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct NoExport;

impl SpanExporter for NoExport {
    async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

struct OpenTelemetry {
    spans: Spans,
    provider: SdkTracerProvider,
}

pub(super) fn opentelemetry(mode: Mode) -> Result<Box<dyn Case>> {
    // The default queue of 2,048 would drop half of a burst of new spans, and dropping is cheaper than keeping.
    let config = BatchConfigBuilder::default().with_max_queue_size(1 << 16).build();
    let processor = BatchSpanProcessor::builder(NoExport).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("bench"));
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(Box::new(OpenTelemetry { spans: Spans::new(mode), provider }))
}

impl Case for OpenTelemetry {
    fn burst(&self) {
        self.spans.burst(|| ());
    }

    fn settle(&mut self) -> Result<()> {
        self.provider.force_flush()?;
        Ok(())
    }
}

pub(super) fn flame(mode: Mode) -> Result<Box<dyn Case>> {
    let layer = tracing_flame::FlameLayer::new(Sink::default());
    tracing_subscriber::registry().with(layer).try_init()?;
    Ok(Box::new(Plain(Spans::new(mode))))
}
