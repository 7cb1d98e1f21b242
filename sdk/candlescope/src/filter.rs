//! A filter for what the program prints, beside candlescope's layer.

use candlescope_core::CandlescopeLayer;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;

/// candlescope's layer beside `others`, which alone are behind `filter`: one layer to add to a registry.
///
/// A filter that is a layer of its own, `registry().with(EnvFilter::new("info"))`, holds for the whole registry. candle's
/// spans are of the level TRACE, so it disables them, and nothing of the model is recorded. This is the same program with
/// the filter where it was meant:
///
/// ```
/// use tracing_subscriber::{EnvFilter, fmt, prelude::*};
/// let (layer, _scope) = candlescope::layer_from_env();
/// tracing_subscriber::registry()
///     .with(candlescope::with_filter(layer, EnvFilter::from_default_env(), fmt::layer()))
///     .init();
/// ```
///
/// `ours` is what [`layer_from_env`](crate::layer_from_env) or [`Builder::layer`](crate::Builder::layer) returned. Several
/// layers are joined by `and_then`: `fmt::layer().and_then(another)`.
pub fn with_filter<S, F, L>(
    ours: impl Into<Option<CandlescopeLayer>>,
    filter: F,
    others: L,
) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Filter<S> + Send + Sync + 'static,
    L: Layer<S> + Send + Sync,
{
    let others = others.with_filter(filter);
    // An `Option` of a layer that is none would tell the registry that nobody wants anything.
    let both: Box<dyn Layer<S> + Send + Sync> = match ours.into() {
        Some(ours) => Box::new(others.and_then(ours)),
        None => Box::new(others),
    };
    both
}
