//! The exporter: when spans are sent, and what happens if they do not arrive.

use super::attempt::SendError;
use super::counts::Counts;
use super::otlp_config::OtlpConfig;
use super::otlp_spans;
use super::settings::{Common, Settings, Signal};
use super::sink::{DeliveryResult, OwnTransport, Provider, Sdk, SpanSink};
use super::traces::{OutgoingSpan, Traces};
use super::transport::{Pause, Transport};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, Ledger, RecordKind, RedactedUrl};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use std::time::{Duration, Instant};

/// Spans that wait while the collector cannot be reached: newer ones are dropped.
const MAX_WAITING: usize = 8_192;

/// Longest time that a span waits to be sent together with others.
const LINGER: Duration = Duration::from_secs(1);

/// Time for what is left at the end, whatever the timeout is: ending a session waits for it.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(3);

/// Sends traces to an OpenTelemetry collector; see the [module](super).
///
/// A collector that is down, slow, refuses or sends invalid responses costs the application nothing: everything here
/// happens on the exporter's own thread, waiting spans are bounded, and what does not arrive is counted.
#[derive(Debug)]
pub struct OtlpExporter {
    config: OtlpConfig,
    /// Where spans go instead of our own transport, until the session starts.
    given: Option<Box<dyn SpanSink>>,
    running: Option<TraceSender>,
}

#[derive(Debug)]
struct TraceSender {
    common: Common,
    sink: Box<dyn SpanSink>,
    traces: Traces,
    waiting: Vec<OutgoingSpan>,
    /// Spans that were delivered.
    sent: u64,
    /// When the oldest of `waiting` came.
    since: Option<Instant>,
    pause: Pause,
}

impl OtlpExporter {
    /// An exporter for the collector that `config` or the environment names. Nothing is connected before the first span
    /// is sent, so the collector may be started later.
    pub fn new(config: OtlpConfig) -> Self {
        Self { config, given: None, running: None }
    }

    /// Hands spans to an exporter of the OpenTelemetry SDK, such as `opentelemetry-otlp`'s, instead of sending them
    /// itself. Ids, limits, sampler, service name, resource and timeout stay those of the configuration and the
    /// variables; the transport is that of the exporter.
    ///
    /// It is called on the exporter's thread, one batch of up to 512 spans after the other. An export that takes longer
    /// than the timeout is cancelled. A batch counts as arrived if the exporter says so: unlike our own transport, few
    /// exporters report what a collector rejected. One that needs a tokio runtime must be made inside one, and that
    /// runtime must outlive the session.
    ///
    /// ```
    /// use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter};
    /// # use opentelemetry_sdk::{error::OTelSdkResult, trace::{SpanData, SpanExporter}};
    /// #[derive(Debug)]
    /// struct Printer;
    /// impl SpanExporter for Printer {
    ///     async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
    ///         Ok(batch.iter().for_each(|span| println!("{}", span.name)))
    ///     }
    /// }
    /// let exporter = OtlpExporter::new(OtlpConfig::default().service_name("chat")).with_span_exporter(Printer);
    /// let (layer, session) = candlescope_core::Session::builder().exporter(exporter).start()?;
    /// # drop(layer);
    /// # session.finish();
    /// # Ok::<(), candlescope_core::StartError>(())
    /// ```
    #[must_use]
    pub fn with_span_exporter(mut self, exporter: impl SpanExporter + 'static) -> Self {
        self.given = Some(Box::new(Sdk(exporter)));
        self
    }

    /// Hands spans to a tracer provider that the program already has, so that they are sent the same way as its own.
    /// The provider makes new spans: its sampler, limits, processors and resource apply, in addition to the limits and
    /// the sampler of the configuration.
    ///
    /// Built with [`RecordIds`](super::RecordIds), as here, the provider keeps the ids that the same records have in
    /// Parquet runs; otherwise only the caller's trace id is kept. The provider is flushed after each batch of up to
    /// 256 spans, which counts as arrived if that succeeds. Losses in its processors are only reported in the SDK's own
    /// log. The provider must outlive the session.
    ///
    /// ```
    /// use candlescope_exporters::otlp::{OtlpConfig, OtlpExporter, RecordIds};
    /// use opentelemetry_sdk::trace::SdkTracerProvider;
    ///
    /// let provider = SdkTracerProvider::builder()
    ///     .with_id_generator(RecordIds::default())
    ///     // .with_batch_exporter(…), .with_resource(…)
    ///     .build();
    /// let exporter = OtlpExporter::new(OtlpConfig::default()).with_tracer_provider(provider.clone());
    /// let (layer, session) = candlescope_core::Session::builder().exporter(exporter).start()?;
    /// # drop(layer);
    /// session.finish();
    /// provider.shutdown().expect("nothing is left");
    /// # Ok::<(), candlescope_core::StartError>(())
    /// ```
    #[must_use]
    pub fn with_tracer_provider(mut self, provider: SdkTracerProvider) -> Self {
        self.given = Some(Box::new(Provider::new(provider)));
        self
    }

    /// Spans that were delivered so far.
    pub(super) fn spans_sent(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.sent)
    }

    /// The collector, if the configuration names one.
    pub fn endpoint(&self) -> Option<&RedactedUrl> {
        self.config.endpoint.as_ref()
    }
}

impl Exporter for OtlpExporter {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let refused = |e| ExportError::fatal(format!("otlp: {e}"));
        let (common, mut sink): (Common, Box<dyn SpanSink>) = match self.given.take() {
            Some(sink) => (Common::of_process(&self.config).map_err(refused)?, sink),
            None => {
                let settings = Settings::of_process(&self.config, Signal::Traces).map_err(refused)?;
                let endpoint = settings.endpoint.clone();
                let transport =
                    Transport::new(&settings).map_err(|e| ExportError::fatal(format!("otlp: {endpoint}: {e}")))?;
                let own = OwnTransport { transport, endpoint, resource: Default::default() };
                (settings.common, Box::new(own))
            }
        };
        for warning in &common.warnings {
            candlescope_core::diagnostics::report("otlp", warning.as_str());
        }
        sink.describe(&otlp_spans::resource(run, &common));
        let traces = Traces::new(self.config.limits, common.sampler);
        let (waiting, since, pause) = (Vec::new(), None, Pause::default());
        self.running = Some(TraceSender { common, sink, traces, waiting, since, pause, sent: 0 });
        Ok(())
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        if let Some(r) = &mut self.running {
            r.sink.describe(&otlp_spans::resource(run, &r.common));
        }
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        // Samples cannot be represented in traces; metrics and Parquet have them.
        ledger.dropped(RecordKind::Sample, DropReason::NotTaken, batch.count(RecordKind::Sample));
        for kind in [RecordKind::Kernel, RecordKind::Stack, RecordKind::StackSample, RecordKind::Perturbation] {
            ledger.dropped(kind, DropReason::NotTaken, batch.count(kind));
        }
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
        let deadline = Instant::now() + LAST_WORDS;
        let sent = r.send_all(ledger, Some(deadline));
        settle(std::mem::take(&mut r.waiting).into_iter().map(|o| o.records), ledger, Some(DropReason::Io));
        r.sink.end(deadline);
        sent
    }
}

impl TraceSender {
    /// Takes over what is ready to be sent, as far as there is room.
    fn queue(&mut self, ledger: &Ledger) {
        let (mut ready, omitted) = self.traces.drain();
        omitted.dropped(ledger, DropReason::Limit);
        // While the collector is unreachable, only a limited number is kept. A single trace always fits.
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
        while self.waiting.len() >= self.sink.most() {
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
        let n = self.waiting.len().min(self.sink.most());
        let (spans, records): (Vec<SpanData>, Vec<Counts>) =
            self.waiting.drain(..n).map(|o| (o.span, o.records)).unzip();
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        let timeout = Instant::now() + self.common.timeout;
        match self.sink.deliver(spans, deadline.map_or(timeout, |d| d.min(timeout))) {
            Ok(delivered) => {
                self.pause = Pause::default();
                let lacking = delivered.rejected.saturating_add(delivered.sampled_out);
                self.sent += (n as u64).saturating_sub(lacking);
                settle_partly(records, delivered, ledger);
                match delivered.rejected {
                    0 => Ok(()),
                    rejected => {
                        let place = self.sink.place();
                        Err(ExportError::new(format!("otlp: the collector at {place} rejected {rejected} spans")))
                    }
                }
            }
            Err(error) => {
                settle(records, ledger, Some(DropReason::Io));
                if !matches!(error, SendError::Unwanted(..)) {
                    self.pause.lengthen(Instant::now());
                }
                Err(ExportError::new(format!("otlp: {}: {error}; {n} spans dropped", self.sink.place())))
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

/// Some spans of a batch were not accepted, and it is not known which: as many records are booked as lost, or as left
/// out.
fn settle_partly(mut records: Vec<Counts>, delivered: DeliveryResult, ledger: &Ledger) {
    for (n, reason) in [(delivered.rejected, DropReason::Io), (delivered.sampled_out, DropReason::Limit)] {
        let n = usize::try_from(n).unwrap_or(usize::MAX).min(records.len());
        settle(records.split_off(records.len() - n), ledger, Some(reason));
    }
    settle(records, ledger, None);
}
