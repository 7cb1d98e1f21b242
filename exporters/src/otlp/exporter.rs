//! The exporter: when spans go out, and what becomes of them where they do not arrive.

use super::attempt::{Message, SendError};
use super::config::OtlpConfig;
use super::convert;
use super::settings::{Settings, Signal};
use super::traces::{Counts, Outgoing, Traces};
use super::transport::{Pause, Transport};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, Ledger, RecordKind, RedactedUrl};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::trace::SpanData;
use std::time::{Duration, Instant};

/// Spans in one request, as OpenTelemetry's own batch processor has it.
const MAX_BATCH: usize = 512;

/// Spans that wait while the collector cannot be reached: newer ones are dropped.
const MAX_WAITING: usize = 8_192;

/// Longest time that a span waits for others to go out with.
const LINGER: Duration = Duration::from_secs(1);

/// Time for what is left at the end, whatever the timeout is: ending a session waits for it.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(3);

/// Sends traces to an OpenTelemetry collector; see the [module](super).
///
/// A collector that is dead, slow, refuses or talks nonsense costs the application nothing: everything here happens
/// on the exporter's own thread, waiting spans are bounded, and what does not arrive is counted.
#[derive(Debug)]
pub struct OtlpExporter {
    config: OtlpConfig,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    settings: Settings,
    transport: Transport,
    resource: ResourceAttributesWithSchema,
    traces: Traces,
    waiting: Vec<Outgoing>,
    /// When the oldest of `waiting` came.
    since: Option<Instant>,
    pause: Pause,
}

impl OtlpExporter {
    /// An exporter for the collector that `config` or the environment names. Nothing is connected before the first
    /// span is sent, so a collector may come later.
    pub fn new(config: OtlpConfig) -> Self {
        Self { config, running: None }
    }

    /// The collector, where the configuration names one.
    pub fn endpoint(&self) -> Option<&RedactedUrl> {
        self.config.endpoint.as_ref()
    }
}

impl Exporter for OtlpExporter {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let settings =
            Settings::of_process(&self.config, Signal::Traces).map_err(|e| ExportError::fatal(format!("otlp: {e}")))?;
        for warning in &settings.common.warnings {
            candlescope_core::diagnostics::report("otlp", warning.as_str());
        }
        let transport =
            Transport::new(&settings).map_err(|e| ExportError::fatal(format!("otlp: {}: {e}", settings.endpoint)))?;
        let resource = (&convert::resource(run, &settings.common)).into();
        let traces = Traces::new(self.config.limits, settings.common.sampler);
        self.running = Some(Running {
            settings,
            transport,
            resource,
            traces,
            waiting: Vec::new(),
            since: None,
            pause: Pause::default(),
        });
        Ok(())
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        if let Some(r) = &mut self.running {
            r.resource = (&convert::resource(run, &r.settings.common)).into();
        }
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        // Traces have no place for them; metrics and Parquet do.
        ledger.dropped(RecordKind::Sample, DropReason::Limit, batch.count(RecordKind::Sample));
        ledger.dropped(RecordKind::Kernel, DropReason::Limit, batch.count(RecordKind::Kernel));
        let Some(r) = &mut self.running else {
            for kind in [RecordKind::Span, RecordKind::Step, RecordKind::Request] {
                ledger.dropped(kind, DropReason::Dead, batch.count(kind));
            }
            return Err(ExportError::fatal("otlp: used before it was started"));
        };
        r.traces.take(batch);
        r.queue(ledger);
        r.send_due(ledger)
    }

    fn flush(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        self.running.as_mut().map_or(Ok(()), |r| r.send_all(ledger, None))
    }

    fn tick(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        self.running.as_mut().map_or(Ok(()), |r| r.send_due(ledger))
    }

    fn close(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        let Some(r) = &mut self.running else { return Ok(()) };
        r.traces.finish();
        r.queue(ledger);
        let sent = r.send_all(ledger, Some(Instant::now() + LAST_WORDS));
        settle(std::mem::take(&mut r.waiting).into_iter().map(|o| o.records), ledger, Some(DropReason::Io));
        sent
    }
}

impl Running {
    /// Takes over what is ready to go, as far as there is room.
    fn queue(&mut self, ledger: &Ledger) {
        let (mut ready, omitted) = self.traces.drain();
        omitted.dropped(ledger, DropReason::Limit);
        // While the collector is away only so much is kept for its return. A single trace always fits.
        if !self.waiting.is_empty() && self.pause.is_on(Instant::now()) {
            let room = MAX_WAITING.saturating_sub(self.waiting.len());
            let beyond = ready.split_off(room.min(ready.len()));
            settle(beyond.into_iter().map(|o| o.records), ledger, Some(DropReason::Io));
        }
        if !ready.is_empty() {
            self.since.get_or_insert_with(Instant::now);
            self.waiting.append(&mut ready);
        }
    }

    /// Sends full batches, and the rest if it has waited long enough.
    fn send_due(&mut self, ledger: &Ledger) -> Result<(), ExportError> {
        if self.pause.is_on(Instant::now()) {
            return Ok(());
        }
        if self.since.is_some_and(|t| t.elapsed() >= LINGER) {
            return self.send_all(ledger, None);
        }
        while self.waiting.len() >= MAX_BATCH {
            self.send_batch(ledger, None)?;
        }
        Ok(())
    }

    fn send_all(&mut self, ledger: &Ledger, deadline: Option<Instant>) -> Result<(), ExportError> {
        while !self.waiting.is_empty() {
            self.send_batch(ledger, deadline)?;
        }
        Ok(())
    }

    fn send_batch(&mut self, ledger: &Ledger, deadline: Option<Instant>) -> Result<(), ExportError> {
        let n = self.waiting.len().min(MAX_BATCH);
        let (spans, records): (Vec<SpanData>, Vec<Counts>) =
            self.waiting.drain(..n).map(|o| (o.span, o.records)).unzip();
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        let timeout = Instant::now() + self.settings.common.timeout;
        let message =
            ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(spans, &self.resource) };
        match self.transport.send(Message::Traces(message), deadline.map_or(timeout, |d| d.min(timeout))) {
            Ok(0) => {
                self.pause = Pause::default();
                settle(records, ledger, None);
                Ok(())
            }
            Ok(rejected) => {
                self.pause = Pause::default();
                let rejected = settle_partly(records, rejected, ledger);
                Err(ExportError::new(format!(
                    "otlp: the collector at {} rejected {rejected} spans",
                    self.settings.endpoint
                )))
            }
            Err(error) => {
                settle(records, ledger, Some(DropReason::Io));
                if !matches!(error, SendError::Unwanted(..)) {
                    self.pause.lengthen(Instant::now());
                }
                Err(ExportError::new(format!("otlp: {}: {error}; {n} spans dropped", self.settings.endpoint)))
            }
        }
    }
}

fn settle(records: impl IntoIterator<Item = Counts>, ledger: &Ledger, dropped: Option<DropReason>) {
    let mut total = Counts::default();
    records.into_iter().for_each(|counts| total += counts);
    match dropped {
        None => total.exported(ledger),
        Some(reason) => total.dropped(ledger, reason),
    }
}

/// The collector took a batch but for some spans, and does not say which: as many records are booked as lost.
fn settle_partly(mut records: Vec<Counts>, rejected: u64, ledger: &Ledger) -> u64 {
    let rejected = usize::try_from(rejected).unwrap_or(usize::MAX).min(records.len());
    let lost = records.split_off(records.len() - rejected);
    settle(records, ledger, None);
    settle(lost, ledger, Some(DropReason::Io));
    rejected as u64
}
