//! The exporter of metrics: aggregates, and sends everything periodically.

use super::attempt::Message;
use super::otlp_config::OtlpConfig;
use super::otlp_spans;
use super::points;
use super::settings::{Settings, Signal};
use super::transport::{Pause, Transport};
use crate::metrics::{Accountant, Aggregate, DEFAULT_MAX_PATHS, gather};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, HostNs, Ledger, RecordKind, SessionStats};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use std::time::Instant;

use super::trace_exporter::LAST_WORDS;

/// Sends metrics to an OpenTelemetry collector, the same that Prometheus can scrape; see the [module](super).
///
/// Sums and buckets are cumulative, so if an export does not arrive, only time is lost: the next one has everything
/// again. A record counts as exported once an export that includes it was accepted completely, and as lost if none was
/// until the end.
#[derive(Debug)]
pub struct OtlpMetricsExporter {
    config: OtlpConfig,
    session: SessionStats,
    running: Option<MetricsSender>,
}

#[derive(Debug)]
struct MetricsSender {
    settings: Settings,
    transport: Transport,
    resource: ResourceAttributesWithSchema,
    started: HostNs,
    aggregate: Aggregate,
    accountant: Accountant,
    /// Aggregated records that are not in an export that arrived, by kind.
    unsettled: [u64; RecordKind::ALL.len()],
    due: Instant,
    pause: Pause,
}

impl OtlpMetricsExporter {
    /// An exporter for the collector that `config` or the environment names. Nothing is connected before the first
    /// export, so the collector may be started later.
    pub fn new(config: OtlpConfig) -> Self {
        Self { config, session: SessionStats::default(), running: None }
    }
}

impl Exporter for OtlpMetricsExporter {
    fn name(&self) -> &'static str {
        "otlp-metrics"
    }

    fn attach(&mut self, session: &SessionStats) {
        self.session = session.clone();
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let settings = Settings::of_process(&self.config, Signal::Metrics)
            .map_err(|e| ExportError::fatal(format!("otlp metrics: {e}")))?;
        let transport = Transport::new(&settings)
            .map_err(|e| ExportError::fatal(format!("otlp metrics: {}: {e}", settings.endpoint)))?;
        let mut aggregate = Aggregate::new(DEFAULT_MAX_PATHS)
            .map_err(|e| ExportError::fatal("cannot set the metrics up: a bug in candlescope").with_source(e))?;
        aggregate.learn(run);
        self.running = Some(MetricsSender {
            transport,
            resource: (&otlp_spans::resource(run, &settings.common)).into(),
            started: HostNs(run.started_ns),
            aggregate,
            accountant: Accountant::new(self.session.clone()),
            unsettled: Default::default(),
            due: Instant::now() + settings.interval,
            pause: Pause::default(),
            settings,
        });
        Ok(())
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        if let Some(r) = &mut self.running {
            r.aggregate.learn(run);
            r.resource = (&otlp_spans::resource(run, &r.settings.common)).into();
        }
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(r) = &mut self.running else {
            ledger.dropped_batch(batch, DropReason::Dead);
            return Ok(());
        };
        let refused = r.aggregate.add(batch);
        ledger.dropped(RecordKind::Sample, DropReason::Limit, refused);
        for kind in RecordKind::ALL {
            r.unsettled[kind as usize] += batch.count(kind);
        }
        r.unsettled[RecordKind::Sample as usize] -= refused;
        r.accountant.account(&mut r.aggregate);
        r.send_due(ledger)
    }

    fn flush(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(r) = &mut self.running else { return Ok(()) };
        r.aggregate.settle();
        r.accountant.account_now(&mut r.aggregate);
        r.send(ledger, Instant::now() + r.settings.common.timeout)
    }

    fn tick(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(r) = &mut self.running else { return Ok(()) };
        r.accountant.account(&mut r.aggregate);
        r.send_due(ledger)
    }

    fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(r) = &mut self.running else { return Ok(()) };
        r.aggregate.settle();
        r.accountant.account_now(&mut r.aggregate);
        let sent = r.send(ledger, Instant::now() + r.settings.common.timeout.min(LAST_WORDS));
        for (kind, n) in RecordKind::ALL.into_iter().zip(std::mem::take(&mut r.unsettled)) {
            ledger.dropped(kind, DropReason::Io, n);
        }
        sent
    }
}

impl MetricsSender {
    fn send_due(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let now = Instant::now();
        if now < self.due || self.pause.is_on(now) {
            return Ok(());
        }
        self.send(ledger, now + self.settings.common.timeout)
    }

    fn send(&mut self, ledger: &Ledger, deadline: Instant) -> Result<(), ExportError> {
        let now = HostNs::now();
        self.aggregate.expire(now);
        let families = gather(&self.aggregate.registry());
        let metrics = points::resource_metrics(&families, &self.resource, self.started, now);
        let message = Message::Metrics(ExportMetricsServiceRequest { resource_metrics: vec![metrics] });
        let outcome = self.transport.send(message, deadline);
        self.due = Instant::now() + self.settings.interval;
        let endpoint = &self.settings.endpoint;
        match outcome {
            Ok(0) => {
                self.pause = Pause::default();
                for (kind, n) in RecordKind::ALL.into_iter().zip(std::mem::take(&mut self.unsettled)) {
                    ledger.exported(kind, n);
                }
                Ok(())
            }
            Ok(rejected) => {
                Err(ExportError::new(format!("otlp metrics: the collector at {endpoint} rejected {rejected} points")))
            }
            Err(error) => {
                // With a short interval, a collector that is down must not take all of the thread's time.
                self.pause.lengthen(Instant::now());
                Err(ExportError::new(format!("otlp metrics: {endpoint}: {error}")))
            }
        }
    }
}
