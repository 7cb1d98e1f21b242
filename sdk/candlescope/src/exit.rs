//! Ends runs where the process ends without dropping their scopes: by `process::exit`, or by a return from `main` while
//! a scope is in a `static`. What may not happen then: a panic, a wait without end, the run of a parent ended by its
//! forked child.

use candlescope_core::run::{Code, RunManifest};
use candlescope_core::{Handle, Session};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How much longer than the session's own limit the end of a process waits for it.
const SLACK: Duration = Duration::from_millis(500);

/// How long it waits for the account to be printed: who ends the process may hold the lock of standard error.
const PRINTING: Duration = Duration::from_secs(1);

/// What became of a session.
const LIVES: u8 = 0;
const WRITTEN: u8 = 1;
const DONE: u8 = 2;

/// A session, and what is said at its end. The scope has it, and the end of the process finds it.
#[derive(Debug)]
pub(crate) struct Ending {
    session: Mutex<Option<Session>>,
    handle: Handle,
    timeout: Duration,
    report_at_end: bool,
    destinations: Vec<String>,
    state: AtomicU8,
    process: u32,
}

/// Those of all scopes.
static ENDINGS: Mutex<Vec<Weak<Ending>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ending {
    pub(crate) fn new(session: Session, report_at_end: bool, destinations: Vec<String>) -> Arc<Self> {
        let ending = Arc::new(Self {
            handle: session.handle().clone(),
            timeout: session.shutdown_timeout(),
            session: Mutex::new(Some(session)),
            report_at_end,
            destinations,
            state: AtomicU8::new(LIVES),
            process: std::process::id(),
        });
        let mut endings = lock(&ENDINGS);
        endings.retain(|ending| ending.strong_count() > 0);
        endings.push(Arc::downgrade(&ending));
        drop(endings);
        #[cfg(unix)]
        crate::sys::call_at_exit(end_all);
        ending
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends the session, unless somebody has. Where another thread is about to, this one waits for it, within the
    /// session's limit: it may end the process next.
    pub(crate) fn end(&self) -> Option<RunManifest> {
        let Some(session) = lock(&self.session).take() else {
            self.wait();
            return None;
        };
        let manifest = session.finish();
        self.state.store(WRITTEN, Ordering::Release);
        // A forked child has no account: the run belongs to the parent, and that was reported already.
        let forked = manifest.verdict.findings.iter().any(|f| f.code == Code::ForkedProcess);
        if self.report_at_end && !forked {
            candlescope_core::diagnostics::print(&crate::account::account(&manifest, &self.destinations));
        }
        self.state.store(DONE, Ordering::Release);
        Some(manifest)
    }

    fn wait(&self) {
        let (begun, most) = (Instant::now(), self.timeout.saturating_add(SLACK));
        // In a forked child nobody is about to.
        while self.state.load(Ordering::Acquire) == LIVES
            && std::process::id() == self.process
            && begun.elapsed() < most
        {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Sessions that have not ended.
fn living() -> Vec<Arc<Ending>> {
    let endings: Vec<_> = lock(&ENDINGS).iter().filter_map(Weak::upgrade).collect();
    endings.into_iter().filter(|ending| ending.state.load(Ordering::Acquire) != DONE).collect()
}

/// Ends all sessions, within the longest of their time limits. On a thread of its own: values of the calling thread
/// may be destroyed already, and much of the standard library wants them.
#[cfg(unix)]
pub(crate) fn end_all() {
    let endings = living();
    let Some(longest) = endings.iter().map(|ending| ending.timeout).max() else { return };
    let each = endings.clone();
    let end = move || each.iter().for_each(|ending| _ = ending.end());
    if std::thread::Builder::new().name("cs-exit".into()).spawn(end).is_err() {
        endings.iter().for_each(|ending| _ = ending.end());
        return;
    }
    let begun = Instant::now();
    let mut written = None;
    while begun.elapsed() < longest.saturating_add(SLACK) {
        let least = endings.iter().map(|ending| ending.state.load(Ordering::Acquire)).min().unwrap_or(DONE);
        match least {
            LIVES => {}
            WRITTEN if written.get_or_insert_with(Instant::now).elapsed() < PRINTING => {}
            _ => return,
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Makes all that was recorded durable, in every session.
#[cfg(unix)]
pub(crate) fn flush_all() {
    for ending in living() {
        // What cannot be flushed is told by the session itself.
        let _ = ending.handle.flush(ending.timeout);
    }
}
