//! Runs the collectors on one background thread, each at its own period.

use crate::clock::HostClock;
use crate::collector::{Collector, Samples};
use crate::record::SampleRecord;
use crate::shared::SessionState;
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
    shared: Arc<SessionState>,
    host: HostClock,
    background: Arc<super::BackgroundCpu>,
) -> std::io::Result<JoinHandle<()>> {
    super::threads::spawn("cs-collect", move || {
        super::prepare_background_thread(&shared.diagnostics);
        let meter = background.meter();
        let mut due: Vec<(Instant, Option<Box<dyn Collector>>)> =
            collectors.into_iter().map(|c| (Instant::now(), Some(c))).collect();
        loop {
            let mut next = Instant::now() + Duration::from_secs(1);
            for slot in &mut due {
                if Instant::now() >= slot.0 {
                    take(slot, Round::Usual, &host, &samples, &failures, &shared);
                }
                if slot.1.is_some() {
                    next = next.min(slot.0);
                }
            }
            meter.update();
            match stop.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    // A last round: in a short run it may be the only one that saw the work.
                    due.iter_mut().for_each(|slot| take(slot, Round::Last, &host, &samples, &failures, &shared));
                    meter.update();
                    return;
                }
            }
        }
    })
}

/// Which round a collector is asked for.
#[derive(Debug, Clone, Copy)]
enum Round {
    Usual,
    Last,
}

/// Makes one round of one collector, which is due again after its period. Missed rounds are skipped, not made up for.
/// Samples have the times of steps, whatever the wall clock is set to.
fn take(
    slot: &mut (Instant, Option<Box<dyn Collector>>),
    round: Round,
    host: &HostClock,
    samples: &Sender<Vec<SampleRecord>>,
    failures: &Failures,
    shared: &SessionState,
) {
    let Some(collector) = &mut slot.1 else { return };
    let name = collector.name();
    let mut period = Duration::from_secs(1);
    let mut taken = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        period = collector.period().max(Duration::from_millis(1));
        let mut out = Samples::new(host.now(), &mut taken);
        match round {
            Round::Usual => collector.sample(&mut out),
            Round::Last => collector.last(&mut out),
        }
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
    // A full channel means that the drain does not keep up; samples are what matters least.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostNs;
    use crate::clock::{TickMapper, TickSource};
    use crate::collector::CollectError;
    use crate::control::Control;
    use crossbeam_channel::bounded;

    /// A collector that shows which of its methods was called.
    struct Counter(Arc<str>);

    impl Collector for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }
        fn period(&self) -> Duration {
            Duration::from_secs(3600)
        }
        fn sample(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
            out.push(&self.0, "usual", 1.0, "count");
            Ok(())
        }
        fn last(&mut self, out: &mut Samples<'_>) -> Result<(), CollectError> {
            out.push(&self.0, "last", 1.0, "count");
            Err(CollectError("what was read before the failure is kept".into()))
        }
    }

    #[test]
    fn the_last_round_is_told_apart() {
        let (requests, _kept) = bounded(1);
        let rings = crate::shared::Rings { capacity: 64, memory: 0 };
        let shared = Arc::new(SessionState::new(
            Control::new(None, false),
            crate::shared::Hooks::default(),
            Vec::new(),
            rings,
            requests,
        ));
        let (samples, taken) = bounded(8);
        let (stop, stopped) = bounded::<()>(0);
        let failures = Failures::default();
        let collectors: Vec<Box<dyn Collector>> =
            vec![Box::new(Counter("one".into())), Box::new(Counter("two".into()))];
        // The run's time line is not the wall clock, which somebody has set by an hour since.
        let host = TickMapper::new(TickSource::new()).host_clock().shifted(-3_600_000_000_000);
        let thread =
            start(collectors, samples, stopped, failures.clone(), shared, host, Arc::default()).expect("a thread");
        let mut rounds: Vec<SampleRecord> = (0..2).flat_map(|_| taken.recv().expect("a first round of each")).collect();
        drop(stop);
        thread.join().expect("it ends");
        rounds.extend(taken.try_iter().flatten());
        let seen: Vec<(&str, &str)> = rounds.iter().map(|s| (&*s.device, s.metric)).collect();
        assert_eq!(seen, [("one", "usual"), ("two", "usual"), ("one", "last"), ("two", "last")]);
        let ago = |sample: &SampleRecord| HostNs::now().since(sample.time) / 60_000_000_000;
        assert!(rounds.iter().all(|sample| (60..70).contains(&ago(sample))), "{rounds:?}");
        assert_eq!(failures.lock().expect("whole").len(), 1, "once for each name");
    }
}
