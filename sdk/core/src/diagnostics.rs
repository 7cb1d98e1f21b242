//! Where the libraries say that something went wrong. One place, and nothing in it can panic or stop a program.
//!
//! A problem goes two ways: as a `tracing` event of the target [`TARGET`], for the program's own logs, and to the
//! function given to [`SessionBuilder::on_problem`](crate::SessionBuilder::on_problem). Standard output and error
//! belong to the program: they may be a closed pipe or a full disk, where `eprintln!` panics.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Target of the events. The profiler records no span of it.
pub const TARGET: &str = "candlescope::diagnostics";

/// Something that went wrong inside the profiler. The program is not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    source: String,
    message: String,
}

impl Problem {
    /// What happened to `source`: an exporter, a collector, or the empty text where it was the session itself.
    pub fn new(source: impl Into<String>, message: impl Into<String>) -> Self {
        Self { source: source.into(), message: message.into() }
    }

    /// The part of the profiler that it happened to, such as `otlp`; empty for the session itself.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What happened, and where there is a remedy, the remedy.
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

/// Tells a problem of `source` on behalf of the session that the calling thread belongs to: for exporters and
/// collectors, whose errors are told for them, and who have something to say beside. Never panics.
pub fn report(source: &str, message: impl Into<String>) {
    let current = CURRENT.try_with(|current| current.try_borrow().map(|d| d.clone()).unwrap_or_default());
    current.unwrap_or_default().report(source, message);
}

/// Writes a problem as one line on standard error, for [`on_problem`](crate::SessionBuilder::on_problem). Where
/// nobody can read it, it is lost without a word.
pub fn to_stderr(problem: &Problem) {
    print(&format!("candlescope: {problem}\n"));
}

/// Writes text on standard error, as far as that is possible.
pub fn print(text: &str) {
    // A closed pipe or a full disk is no reason to end a program.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it said nothing")
}

/// What a program wants done with a problem.
type Callback = dyn Fn(&Problem) + Send + Sync;

/// Whom a session tells its problems.
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

    /// From now on [`report`] on the calling thread goes to this session.
    pub(crate) fn adopt_thread(&self) {
        let _ = CURRENT.try_with(|current| current.try_borrow_mut().map(|mut c| *c = self.clone()));
    }

    /// Runs `f` with [`report`] going to this session.
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

    /// Tells a problem. What happens while one is told on the same thread is not told, so that there is no end
    /// without an end.
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
        // Each by itself: a subscriber that panics, because standard error is closed, must not keep the other from
        // hearing it.
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

    /// A subscriber whose standard error is closed.
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
            // Asking for more of it from within must come to an end.
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
