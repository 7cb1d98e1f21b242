//! Why candlescope could not be set up.

use crate::env::ConfigError;
use candlescope_core::StartError;

/// candlescope could not be set up. The program can go on without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// An exporter or the pipeline could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The value of `CANDLESCOPE` is not understood.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another global `tracing` subscriber is installed.
    #[error(
        "a global tracing subscriber is installed already; add the layer to it instead: \
         let (layer, scope) = candlescope::layer_from_env(), or builder.layer()?, \
         then registry().with(candlescope::with_filter(layer, EnvFilter::from_default_env(), fmt::layer())).init() \
         in place of fmt().with_env_filter(…).init()"
    )]
    SubscriberInPlace,
    /// This process had a session that installed the global subscriber.
    #[error(
        "this process has had a session with candlescope's own subscriber, which stays for the life of the process, and \
         spans of models that are loaded belong to that session: keep one scope for the whole process, and write parts \
         of it with captures (scope.handle(), Handle::capture, or start and stop); for sessions one after the other use \
         builder.layer()? with tracing::subscriber::with_default, and load the model anew in each"
    )]
    InstalledBefore,
}
