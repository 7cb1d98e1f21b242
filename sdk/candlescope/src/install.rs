//! How a session starts: its layer, and the global subscriber.

use crate::InitError;
use crate::builder::Builder;
use crate::guard::Scope;
use candlescope_core::{CandlescopeLayer, diagnostics};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing_subscriber::prelude::*;

/// Whether the global subscriber is one that [`Builder::install`] made.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Why there cannot be another global subscriber.
fn in_place() -> InitError {
    if INSTALLED.load(Ordering::Relaxed) { InitError::InstalledBefore } else { InitError::SubscriberInPlace }
}

impl Builder {
    /// The layer for your own subscriber, and the scope to keep. Add the layer *before the model loads*, and not behind
    /// a filter: see [`with_filter`](crate::with_filter).
    ///
    /// ```
    /// use tracing_subscriber::prelude::*;
    /// let (layer, scope) = candlescope::builder().layer()?;
    /// let subscriber = tracing_subscriber::registry().with(layer);
    /// tracing::subscriber::with_default(subscriber, || tracing::trace_span!("work").in_scope(|| ()));
    /// assert_eq!(scope.finish().unwrap().counts["spans"], 1);
    /// # Ok::<(), candlescope::InitError>(())
    /// ```
    ///
    /// # Errors
    /// If a destination cannot be used; the message names it and the remedy.
    pub fn layer(self) -> Result<(CandlescopeLayer, Scope), InitError> {
        #[allow(unused_mut, reason = "changed only with the features `host`, `candle` and `stacks`")]
        let mut session = self.gpu.apply(self.session);
        #[cfg(feature = "candle")]
        {
            let features = crate::observe::candle_features();
            session = session.environment(candlescope_core::run::env_key::CANDLE_FEATURES.name(), features);
        }
        #[cfg(feature = "host")]
        if self.host {
            session = session.collector(candlescope_collectors::host::HostCollector::new());
        }
        #[cfg(feature = "stacks")]
        if let Some(options) = self.stacks {
            session = session.stacks(candlescope_collectors::stacks::StackSampler::new(options));
        }
        #[cfg(unix)]
        if self.ends_on_sigterm
            && let Err(error) = crate::sigterm::watch()
        {
            session
                .report_problem("", &format!("SIGTERM is not handled: {error}; end the scope in a handler of yours"));
        }
        let (layer, session) = session.start()?;
        Ok((layer, Scope::new(session, self.report_at_end, self.destinations)))
    }

    /// Starts with a global subscriber that has the layer, and that writes the program's own log lines to standard
    /// error if `RUST_LOG` asks for them (feature `logs`, on by default).
    ///
    /// # Errors
    /// If a destination cannot be used or a global subscriber is installed already. That stays for the life of a process:
    /// so does the session that is installed, and captures ([`Handle::capture`](crate::Handle::capture)) write parts of
    /// it as runs of their own.
    pub fn install(self) -> Result<Scope, InitError> {
        if tracing::dispatcher::has_been_set() {
            return Err(in_place());
        }
        // Told on standard error where the program does not handle problems itself.
        let told = !self.tells;
        let this = if told { self.on_problem(diagnostics::to_stderr) } else { self };
        let (layer, scope) = this.layer()?;
        let subscriber = tracing_subscriber::registry().with(layer);
        #[cfg(feature = "logs")]
        let subscriber = subscriber.with(log_lines(told));
        tracing::subscriber::set_global_default(subscriber).map_err(|_| in_place())?;
        INSTALLED.store(true, Ordering::Relaxed);
        Ok(scope)
    }
}

/// Writes the program's log lines to standard error, if `RUST_LOG` asks for them. `told` says that candlescope's own
/// problems are written there already.
#[cfg(feature = "logs")]
fn log_lines<S>(told: bool) -> Option<impl tracing_subscriber::Layer<S>>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    std::env::var_os("RUST_LOG")?;
    let mut filter = tracing_subscriber::EnvFilter::from_default_env();
    if let (true, Ok(off)) = (told, "candlescope::diagnostics=off".parse()) {
        filter = filter.add_directive(off);
    }
    // A line that cannot be written is lost: the attempt to report it there would panic.
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    Some(lines.with_filter(filter))
}
