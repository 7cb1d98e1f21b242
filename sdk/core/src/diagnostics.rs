//! Where the libraries report that something went wrong. This is the one place, and nothing in it can panic or stop a
//! program.
//!
//! A problem is reported in two ways: as a `tracing` event of the target [`TARGET`], for the program's own logs, and to
//! the function given to [`SessionBuilder::on_problem`](crate::SessionBuilder::on_problem). Nothing is printed:
//! standard output and error belong to the program, and may be a closed pipe or a full disk, on which `eprintln!`
//! panics.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Target of these events. The profiler records no spans of this target.
pub const TARGET: &str = "candlescope::diagnostics";

/// Something that went wrong inside the profiler. The program is not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    source: String,
    message: String,
}

impl Problem {
    /// A problem of `source`, which is an exporter, a collector, or the empty text for the session itself.
    pub fn new(source: impl Into<String>, message: impl Into<String>) -> Self {
        Self { source: source.into(), message: message.into() }
    }

    /// The part of the profiler where it happened, such as `otlp`; empty for the session itself.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What happened, and the remedy if there is one.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.as_str() {
            "" => f.write_str(&self.message),
            source => write!(f, "{source}: {}", self.message),
        }
    }
}

/// Reports a problem of `source` to the session that the calling thread belongs to. For exporters and collectors that
/// have something to report besides the errors they return, which the session reports for them. Never panics.
pub fn report(source: &str, message: impl Into<String>) {
    let current = CURRENT.try_with(|current| current.try_borrow().map(|d| d.clone()).unwrap_or_default());
    current.unwrap_or_default().report(source, message);
}

/// Writes a problem as one line to standard error, for use with [`on_problem`](crate::SessionBuilder::on_problem). If
/// it cannot be written, it is lost silently.
#[doc(hidden)]
pub fn to_stderr(problem: &Problem) {
    print(&format!("candlescope: {problem}\n"));
}

/// Writes text to standard error; failures are ignored.
#[doc(hidden)]
pub fn print(text: &str) {
    // A closed pipe or a full disk is no reason to end a program.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it said nothing")
}

/// The function that a program wants called with each problem.
type Callback = dyn Fn(&Problem) + Send + Sync;

/// Where a session's problems are reported.
#[derive(Clone, Default)]
pub(crate) struct Diagnostics(Option<Arc<Callback>>);

thread_local! {
    static CURRENT: RefCell<Diagnostics> = const { RefCell::new(Diagnostics(None)) };
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Diagnostics {
    pub(crate) fn new(callback: impl Fn(&Problem) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    /// From now on, [`report`] on the calling thread reports to this session.
    pub(crate) fn adopt_thread(&self) {
        let _ = CURRENT.try_with(|current| current.try_borrow_mut().map(|mut c| *c = self.clone()));
    }

    /// Runs `f`; [`report`] reports to this session meanwhile.
    pub(crate) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(Diagnostics);
        impl Drop for Restore {
            fn drop(&mut self) {
                self.0.adopt_thread();
            }
        }
        let before = CURRENT.try_with(|current| current.try_borrow().map(|d| d.clone()).unwrap_or_default());
        let _restore = Restore(before.unwrap_or_default());
        self.adopt_thread();
        f()
    }

    /// Reports a problem. Problems that occur on the same thread while one is being reported are not reported, so that
    /// there is no endless recursion.
    pub(crate) fn report(&self, source: &str, message: impl Into<String>) {
        struct Done;
        impl Drop for Done {
            fn drop(&mut self) {
                let _ = TELLING.try_with(|telling| telling.set(false));
            }
        }
        if TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true) {
            return;
        }
        let _done = Done;
        let problem = Problem::new(source, message);
        // Each is protected separately: a subscriber that panics, because standard error is closed, must not keep the
        // callback from being called.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            tracing::warn!(target: TARGET, source = problem.source(), "{}", problem.message());
        }));
        if let Some(callback) = &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&problem)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    /// A subscriber that panics because its standard error is closed.
    struct Breaks;
    impl<S: tracing::Subscriber> Layer<S> for Breaks {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            panic!("failed printing to stderr");
        }
    }

    #[test]
    fn nobody_who_listens_can_stop_the_one_who_tells() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = told.clone();
        let diagnostics = Diagnostics::new(move |problem| {
            kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(problem.to_string());
            // Reporting from within must not recurse endlessly.
            report("nested", "again");
            panic!("in the callback");
        });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Breaks), || {
            diagnostics.within(|| report("otlp", "cannot reach it"));
            diagnostics.report("", "the pipeline stopped");
        });
        report("otlp", "of no session");
        let told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        assert_eq!(told, ["otlp: cannot reach it", "the pipeline stopped"]);
    }

    #[test]
    fn events_carry_the_target_and_the_words() {
        #[derive(Clone, Default)]
        struct Seen(Arc<Mutex<Vec<String>>>);
        impl tracing::field::Visit for Seen {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
            }
        }
        impl<S: tracing::Subscriber> Layer<S> for Seen {
            fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
                self.0.lock().unwrap().push(event.metadata().target().to_string());
                event.record(&mut self.clone());
            }
        }
        let seen = Seen::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone());
        tracing::subscriber::with_default(subscriber, || report("cupti", "stays attached"));
        let mut seen = seen.0.lock().unwrap().clone();
        seen.sort();
        assert_eq!(seen, [TARGET, "message=stays attached", "source=\"cupti\""]);
    }

    #[test]
    fn panics_are_told_in_their_own_words() {
        for (panics, said) in [
            ((|| panic!("no room")) as fn(), "no room"),
            (|| panic!("{} of them", 3), "3 of them"),
            (|| std::panic::panic_any(7_u8), "it said nothing"),
        ] {
            let payload = catch_unwind(panics).expect_err("panics");
            assert_eq!(panic_message(payload.as_ref()), said);
        }
    }
}
