//! Whether a model's spans get through to the layer at all. A filter above the registry (`EnvFilter` as a layer of its
//! own, `fmt().with_env_filter(…)`) disables them, and a filter around the layer hides them from it. Neither shows later:
//! a span that is disabled is like one that was never made. So it is asked once, when the subscriber is in place.

use crate::run::{Code, Finding};
use candlescope_markers::names::TARGET;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::{Level, span_enabled};
use tracing_core::Metadata;
use tracing_core::dispatcher::{Dispatch, WeakDispatch};

/// Where most spans of candle's models are made.
const OF_MODELS: &str = "candle_transformers::models::with_tracing";

/// Bits of [`Visible::reached`].
const MODELS: u8 = 1;
const PHASES: u8 = 2;

/// Whether spans of candle's models reach the layer of one session.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Where the layer is, until somebody has asked there.
    place: Mutex<Option<WeakDispatch>>,
    is_new: AtomicBool,
    /// What the layer itself was asked about.
    reached: AtomicU8,
}

impl Visible {
    /// The layer is in this subscriber. `tracing` holds locks: nothing is asked yet.
    pub(crate) fn is_in(&self, dispatch: &Dispatch) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatch.downgrade());
        self.is_new.store(true, Ordering::Release);
    }

    /// The layer is asked whether it wants spans of this callsite: no filter around it hides them.
    pub(crate) fn reaches(&self, metadata: &Metadata<'_>) {
        let what = match metadata.target() {
            OF_MODELS => MODELS,
            TARGET => PHASES,
            _ => return,
        };
        self.reached.fetch_or(what, Ordering::Relaxed);
    }

    /// The subscriber in which nobody has asked yet, if there is one.
    pub(crate) fn to_ask(&self) -> Option<WeakDispatch> {
        if !self.is_new.swap(false, Ordering::AcqRel) || STATIC_MAX_LEVEL < LevelFilter::TRACE {
            return None;
        }
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What a filter of this subscriber hides.
    pub(crate) fn answer(&self, dispatch: &Dispatch) -> Option<Finding> {
        let (models, phases) = tracing::dispatcher::with_default(dispatch, || {
            (span_enabled!(target: OF_MODELS, Level::TRACE), span_enabled!(target: TARGET, Level::INFO))
        });
        let reached = self.reached.load(Ordering::Relaxed);
        let (models, phases) = (models && reached & MODELS != 0, phases && reached & PHASES != 0);
        let hidden = match (models, phases) {
            (true, true) => return None,
            (false, true) => "candle's models (level TRACE)",
            (true, false) => "phases and requests (target candlescope, level INFO)",
            (false, false) => "candle's models (level TRACE), phases and requests",
        };
        let finding = Finding::new(
            Code::SpansFiltered,
            "a filter of the tracing subscriber disables the spans of {spans}: they are not recorded",
            "put the filter on the layers that print, and neither above nor around candlescope's layer: \
             registry().with(candlescope::with_filter(layer, EnvFilter::from_default_env(), fmt::layer())).init(); or let \
             the filter pass them, with candle_transformers=trace,candle_nn=trace,candlescope=trace in its text, and the \
             targets of spans of your own",
        );
        Some(finding.text("spans", hidden))
    }
}
