//! Runs collectors on one background thread, each at its own period.

use crate::HostNs;
use crate::collector::{Collector, Samples};
use crate::record::SampleRecord;
use crate::shared::Shared;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The first failure of each collector, for the run's findings.
pub(crate) type Failures = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Starts the thread; it ends when `stop` is disconnected.
pub(crate) fn start(
    collectors: Vec<Box<dyn Collector>>,
    samples: Sender<Vec<SampleRecord>>,
    stop: Receiver<()>,
    failures: Failures,
    shared: Arc<Shared>,
    background: Arc<super::BackgroundCpu>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("cs-collect".into()).spawn(move || {
        super::prepare_background_thread();
        let meter = background.meter();
        let mut due: Vec<(Instant, Option<Box<dyn Collector>>)> =
            collectors.into_iter().map(|c| (Instant::now(), Some(c))).collect();
        loop {
            let mut next = Instant::now() + Duration::from_secs(1);
            for slot in &mut due {
                if Instant::now() >= slot.0 {
                    take(slot, &samples, &failures, &shared);
                }
                if slot.1.is_some() {
                    next = next.min(slot.0);
                }
            }
            meter.update();
            match stop.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    // A last round: of a short run it may be the only one that saw the work.
                    due.iter_mut().for_each(|slot| take(slot, &samples, &failures, &shared));
                    meter.update();
                    return;
                }
            }
        }
    })
}

/// One round of one collector, which is due again a period later; a missed beat is skipped, not made up for.
fn take(
    slot: &mut (Instant, Option<Box<dyn Collector>>),
    samples: &Sender<Vec<SampleRecord>>,
    failures: &Failures,
    shared: &Shared,
) {
    let Some(collector) = &mut slot.1 else { return };
    let name = collector.name();
    let mut period = Duration::from_secs(1);
    let mut taken = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        period = collector.period().max(Duration::from_millis(1));
        collector.sample(&mut Samples::new(HostNs::now(), &mut taken))
    }));
    slot.0 = crate::clock::deadline(period);
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => note(failures, name, error.to_string()),
        Err(_) => {
            note(failures, name, "panicked and is not asked again".into());
            slot.1 = None;
            return;
        }
    }
    // A full channel means that the drain is stuck; samples are the first thing to do without.
    if !taken.is_empty() {
        let n = taken.len() as u64;
        if samples.try_send(taken).is_err() {
            shared.samples_lost.fetch_add(n, Ordering::Relaxed);
        }
    }
}

fn note(failures: &Failures, name: &'static str, message: String) {
    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
    if !failures.iter().any(|(n, _)| *n == name) {
        failures.push((name, message));
    }
}
