//! The scope, which keeps a session alive.

use candlescope_core::run::{Code, RunManifest};
use candlescope_core::{FlushError, Handle, Session};
use std::time::Duration;

/// Keeps candlescope recording. Dropping it flushes and ends the session within the shutdown timeout.
#[must_use = "recording ends when this guard is dropped"]
#[derive(Debug)]
pub struct Scope {
    session: Option<Session>,
    report_at_end: bool,
    destinations: Vec<String>,
}

impl Scope {
    /// A scope that records nothing.
    pub fn disabled() -> Self {
        Self { session: None, report_at_end: false, destinations: Vec::new() }
    }

    pub(crate) fn new(session: Session, report_at_end: bool, destinations: Vec<String>) -> Self {
        Self { session: Some(session), report_at_end, destinations }
    }

    /// Whether there is a session.
    pub fn is_enabled(&self) -> bool {
        self.session.is_some()
    }

    /// The handle, to start, stop, capture the next steps, or get statistics; `None` if nothing is recorded.
    pub fn handle(&self) -> Option<&Handle> {
        self.session.as_ref().map(Session::handle)
    }

    /// Makes everything that was recorded so far durable.
    ///
    /// # Errors
    /// If that takes longer than `timeout`, or an exporter cannot flush.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        self.handle().map_or(Ok(()), |handle| handle.flush(timeout))
    }

    /// Ends the session and returns its final manifest; `None` if nothing was recorded.
    pub fn finish(mut self) -> Option<RunManifest> {
        self.end()
    }

    fn end(&mut self) -> Option<RunManifest> {
        let manifest = self.session.take()?.finish();
        // A forked child has no account: the run belongs to the parent, and that was reported already.
        let forked = manifest.verdict.findings.iter().any(|f| f.code == Code::ForkedProcess);
        if self.report_at_end && !forked {
            candlescope_core::diagnostics::print(&account(&manifest, &self.destinations));
        }
        Some(manifest)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(handle) = self.handle()
        {
            handle.set_result("error", "a panic unwound through the scope of candlescope's guard");
        }
        self.end();
    }
}

/// The account that is printed at the end of a run.
fn account(m: &RunManifest, destinations: &[String]) -> String {
    let intervals = m.counts.get("spans").copied().unwrap_or(0);
    let mut text = format!(
        "candlescope: {intervals} intervals in {} steps, {} lost; own cost {:.0} ns an interval (measured){}\n",
        m.counts.get("steps").copied().unwrap_or(0),
        m.loss.lost(),
        m.overhead.per_interval_ns,
        m.overhead.ratio.map(|r| format!(", {:.3} % of step time (derived)", r * 100.0)).unwrap_or_default(),
    );
    if let Some(steps) = m.steps.filter(|steps| steps.without_record() + steps.captured > 0) {
        let requests = m.counts.get("requests").copied().unwrap_or(0);
        text.push_str(&format!("candlescope: {steps}; {requests} requests, which no schedule leaves out\n"));
    }
    for destination in destinations {
        text.push_str(&format!("candlescope: wrote {destination}\n"));
    }
    for finding in &m.verdict.findings {
        text.push_str(&format!("candlescope: {}: {}; {}\n", finding.code, finding.message(), finding.remedy()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::run::StepCounts;

    #[test]
    fn a_run_that_a_panic_ended_is_not_ok() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let (layer, scope) = crate::builder().parquet(&run).layer().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _ends_here = scope;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        drop(layer);
        let manifest = std::fs::read_to_string(run.join("run.json")).unwrap();
        assert!(manifest.contains("a panic unwound") && manifest.contains("program_failed"), "{manifest}");
    }

    #[test]
    fn the_end_of_a_run_says_how_its_steps_were_sampled() {
        let mut m = RunManifest { counts: [("requests".to_string(), 531)].into(), ..RunManifest::default() };
        m.steps = Some(StepCounts { begun: 12_744, recorded: 12_744, ..StepCounts::default() });
        assert_eq!(account(&m, &[]).lines().count(), 1, "nothing to say where all were recorded");
        m.steps = Some(StepCounts {
            begun: 12_744,
            recorded: 1_270,
            captured: 50,
            scheduled_out: 11_424,
            ..StepCounts::default()
        });
        let text = account(&m, &[]);
        let said = text.lines().nth(1).expect("a second line");
        assert_eq!(
            said,
            "candlescope: recorded 1,320 of 12,744 steps (50 only because a capture asked for them, \
             11,424 left out by the schedule); 531 requests, which no schedule leaves out"
        );
    }
}
