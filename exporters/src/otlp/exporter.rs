//! The exporter: when spans go out, and what becomes of them where they do not arrive.

use super::config::{OtlpConfig, Settings};
use super::convert;
use super::traces::{Counts, Outgoing, Traces};
use super::transport::{SendError, Transport};
use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, DropReason, ExportError, Exporter, Ledger, RecordKind};
use opentelemetry_sdk::trace::SpanData;
use std::time::{Duration, Instant};

/// Spans in one request, as OpenTelemetry's own batch processor has it.
const MAX_BATCH: usize = 512;

/// Spans that wait while the collector cannot be reached: newer ones are dropped.
const MAX_WAITING: usize = 8_192;

/// Longest time that a span waits for others to go out with.
const LINGER: Duration = Duration::from_secs(1);

/// Time for what is left at the end, whatever the timeout is: ending a session waits for it.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Sends traces to an OpenTelemetry collector; see the [module](super).
///
/// A collector that is dead, slow, refuses or talks nonsense costs the application nothing: everything here happens on the
/// exporter's own thread, waiting spans are bounded, and what does not arrive is counted.
#[derive(Debug)]
pub struct OtlpExporter {
    config: OtlpConfig,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    settings: Settings,
    transport: Transport,
    traces: Traces,
    waiting: Vec<Outgoing>,
    /// When the oldest of `waiting` came.
    since: Option<Instant>,
    pause: Pause,
}

impl OtlpExporter {
    /// An exporter for the collector that `config` or the environment names. Nothing is connected before the first span is sent, so a
    /// collector may come later.
    pub fn create(config: OtlpConfig) -> Self {
        Self { config, running: None }
    }
}

impl Exporter for OtlpExporter {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn start(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|p| p.file_name()).and_then(|n| n.to_str()).unwrap_or("rust");
        let settings = Settings::resolve(&self.config, program, |name| std::env::var(name).ok())
            .map_err(|e| ExportError::fatal(format!("otlp: {e}")))?;
        let transport = Transport::new(&settings, &convert::resource(run, &settings))
            .map_err(|e| ExportError::fatal(format!("otlp: {}: {e}", settings.endpoint)))?;
        self.running = Some(Running {
            settings,
            transport,
            traces: Traces::new(self.config.limits),
            waiting: Vec::new(),
            since: None,
            pause: Pause::default(),
        });
        Ok(())
    }

    fn update(&mut self, run: &RunManifest) -> Result<(), ExportError> {
        if let Some(r) = &mut self.running {
            r.transport.set_resource(&convert::resource(run, &r.settings));
        }
        Ok(())
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        // Traces have no place for them; Prometheus and Parquet do.
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
        settle(std::mem::take(&mut r.waiting), ledger, Some(DropReason::Io));
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
            settle(beyond, ledger, Some(DropReason::Io));
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
        let batch: Vec<Outgoing> = self.waiting.drain(..n).collect();
        self.since = (!self.waiting.is_empty()).then(Instant::now);
        let timeout = Instant::now() + self.settings.timeout;
        let spans: Vec<SpanData> = batch.iter().map(|o| o.span.clone()).collect();
        match self.transport.send(spans, deadline.map_or(timeout, |d| d.min(timeout))) {
            Ok(0) => {
                self.pause = Pause::default();
                settle(batch, ledger, None);
                Ok(())
            }
            Ok(rejected) => {
                self.pause = Pause::default();
                let rejected = settle_partly(batch, rejected, ledger);
                Err(ExportError::new(format!(
                    "otlp: the collector at {} rejected {rejected} spans",
                    self.settings.endpoint
                )))
            }
            Err(error) => {
                settle(batch, ledger, Some(DropReason::Io));
                // A refusal of these very spans says nothing about the next ones.
                if !matches!(error, SendError::Refused(400 | 413, _)) {
                    self.pause.lengthen(Instant::now());
                }
                Err(ExportError::new(format!("otlp: {}: {error}; {n} spans dropped", self.settings.endpoint)))
            }
        }
    }
}

fn settle(batch: Vec<Outgoing>, ledger: &Ledger, dropped: Option<DropReason>) {
    let mut total = Counts::default();
    batch.iter().for_each(|o| total += o.records);
    match dropped {
        None => total.exported(ledger),
        Some(reason) => total.dropped(ledger, reason),
    }
}

/// The collector took a batch but for some spans, and does not say which: as many records are booked as lost.
fn settle_partly(mut batch: Vec<Outgoing>, rejected: u64, ledger: &Ledger) -> u64 {
    let rejected = usize::try_from(rejected).unwrap_or(usize::MAX).min(batch.len());
    let lost = batch.split_off(batch.len() - rejected);
    settle(batch, ledger, None);
    settle(lost, ledger, Some(DropReason::Io));
    rejected as u64
}

/// How long a collector that could not be reached is left alone, so that trying does not take all of the thread's time.
#[derive(Debug, Default)]
struct Pause {
    until: Option<Instant>,
    length: Duration,
}

impl Pause {
    const LONGEST: Duration = Duration::from_secs(30);

    fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn lengthen(&mut self, now: Instant) {
        self.length = (self.length * 2).clamp(Duration::from_secs(1), Self::LONGEST);
        self.until = Some(now + self.length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_get_longer_up_to_a_bound_and_end() {
        let now = Instant::now();
        let mut pause = Pause::default();
        assert!(!pause.is_on(now));
        let lengths: Vec<u64> = (0..7)
            .map(|_| {
                pause.lengthen(now);
                pause.length.as_secs()
            })
            .collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 30, 30]);
        assert!(pause.is_on(now + Duration::from_secs(29)));
        assert!(!pause.is_on(now + Duration::from_secs(30)));
    }
}
