//! The scraped programs: a model that generates under a session, and synthetic batches in place of a GPU.

use candlescope_collectors::host::HostCollector;
use candlescope_core::run::RunManifest;
use candlescope_core::{CollectError, Collector, Exporter, GpuSource, GpuTime, Ledger, Ran, Samples, Session};
use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
use candlescope_models::{GenerateOptions, LoadOptions, LoadedModel, ModelSource, generate};
use candlescope_testkit::with;
use candlescope_testkit::{Decoder, records};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing_subscriber::prelude::*;

/// A fictitious GPU: every metric of the real collector, with realistic values.
struct MadeUpGpu {
    device: Arc<str>,
    joules: f64,
}

impl Collector for MadeUpGpu {
    fn name(&self) -> &'static str {
        "made-up-gpu"
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
        self.joules += 30.0;
        for metric in candlescope_collectors::nvml::METRICS {
            let value = match metric.unit {
                "joules" => self.joules,
                "watts" => 300.0,
                "bytes" => 64e9,
                "ratio" => 0.9,
                "hertz" => 1.98e9,
                "celsius" => 60.0,
                _ => 0.0,
            };
            out.push(&self.device, metric.name, value, metric.unit);
        }
        Ok(())
    }
}

/// The embedded model, generating over and over under a session with the exporter.
pub(crate) struct Live {
    pub(crate) address: SocketAddr,
    session: Session,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Tally>,
}

#[derive(Default)]
struct Tally {
    requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    ttft: f64,
}

/// What it did, by its own counts.
pub(crate) struct Done {
    pub(crate) address: SocketAddr,
    pub(crate) session: Session,
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) mean_ttft: f64,
}

impl Live {
    pub(crate) fn start() -> Self {
        let exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
        let endpoint = exporter.endpoint();
        // Peaks of a fictitious machine, so that there are ratios; their correctness is tested with figures computed by
        // hand.
        let peaks = json!([
            { "kind": "flops", "value": 1e12, "label": "datasheet", "dtype": "f32" },
            { "kind": "bandwidth", "value": 1e11, "label": "datasheet" },
        ]);
        let (layer, session) = Session::builder()
            .exporter(exporter)
            .collector(HostCollector::new())
            .collector(MadeUpGpu { device: "GPU-00000000-made-up".into(), joules: 0.0 })
            .environment("peaks", peaks)
            .start()
            .expect("starts");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                let source = ModelSource::parse("embedded").expect("names a model");
                let mut model = LoadedModel::load(&source, &LoadOptions::default()).expect("loads");
                let how = GenerateOptions { max_new_tokens: 12, ignore_eos: true, ..GenerateOptions::default() };
                let prompt = model.random_prompt(16, 1).expect("a prompt");
                let mut tally = Tally::default();
                while !stopped.load(Ordering::Relaxed) {
                    let output =
                        generate(&mut model, std::slice::from_ref(&prompt), &how, &mut |_| ()).expect("generates");
                    tally.requests += 1;
                    tally.prompt_tokens += output.prompt_tokens as u64;
                    tally.output_tokens += output.sequences.iter().map(|s| s.tokens.len() as u64).sum::<u64>();
                    tally.ttft += output.ttft().expect("a token").as_secs_f64();
                    // Leaves time for Prometheus on a machine with two cores.
                    std::thread::sleep(Duration::from_millis(20));
                }
                tally
            })
        });
        Self { address: endpoint.address().expect("listens"), session, stop, thread }
    }

    /// Ends the load but not the session, whose metrics can still be scraped.
    pub(crate) fn stop(self) -> Done {
        self.stop.store(true, Ordering::Relaxed);
        let tally = self.thread.join().expect("the load ends");
        self.session.handle().flush(Duration::from_secs(10)).expect("flushes");
        Done {
            address: self.address,
            session: self.session,
            requests: tally.requests,
            prompt_tokens: tally.prompt_tokens,
            output_tokens: tally.output_tokens,
            mean_ttft: tally.ttft / tally.requests as f64,
        }
    }
}

/// Batches with GPU time and kernels, as a session on a GPU hands them to the exporter.
pub(crate) struct Marked {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Marked {
    pub(crate) fn start() -> Self {
        let mut exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
        exporter.start(&RunManifest { run_id: "marked".into(), ..RunManifest::default() }).expect("starts");
        let address = exporter.endpoint().address().expect("listens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut made, ledger) = (Decoder::new(1), Ledger::new());
            (made.gpu, made.annotated) = (true, true);
            while !stopped.load(Ordering::Relaxed) {
                let mut batch = made.decode();
                let warm = batch.steps[0].step % 10 == 0;
                batch.steps[0].ran = Some(if warm { Ran::WarmUp } else { Ran::Replay });
                // Marks in every other step; the kernels of the other steps were recorded, and half of their intervals
                // launched something.
                if batch.steps[0].step % 2 == 0 {
                    let spans = batch.spans.iter_mut().enumerate();
                    spans.for_each(|(n, span)| span.gpu = span.gpu.filter(|_| n % 2 == 0).map(of_kernels));
                    batch.steps[0].gpu = batch.spans[0].gpu;
                    let kernel = records::kernel_of(&batch.spans[0], "GPU-00000000-made-up", 40_000);
                    batch.kernels.push(with(kernel, |r| (r.seq, r.span_id, r.path) = (None, None, None)));
                }
                ledger.received(&batch);
                exporter.export(&batch, &ledger).expect("takes it");
                std::thread::sleep(Duration::from_millis(50));
            }
            let report = ledger.report("prometheus");
            assert!(report.conserved() && report.dropped.is_empty(), "{report:?}");
        });
        Self { address, stop, thread }
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("every record is accounted for");
    }
}

fn of_kernels(gpu: GpuTime) -> GpuTime {
    GpuTime { source: GpuSource::Cupti, dur_ns: gpu.dur_ns / 2, ..gpu }
}
