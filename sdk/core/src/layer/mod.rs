//! The `tracing` layer: turns enters and exits of spans into raw records.

mod cache;
mod callsites;
pub(crate) mod gpu;
mod plan;
pub(crate) mod thread;

use crate::fields::{FieldKinds, FieldValues};
use crate::names::Role;
use crate::raw::NO_PHASE;
use crate::shared::{RawRequest, Shared};
use cache::{Meta, meta_flag};
use callsites::Callsite;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Records every enter/exit pair of every span as an interval. Made by [`Session`](crate::Session); add it to a
/// `tracing_subscriber::Registry` **before the model loads**, because candle creates its spans then, and a span created while
/// nobody listens stays disabled for ever.
///
/// Do not wrap it in a per-layer filter: that costs more than the layer itself. Exclude targets when building the session instead.
#[derive(Clone)]
pub struct CandlescopeLayer {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for CandlescopeLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandlescopeLayer").field("session", &self.shared.session).finish_non_exhaustive()
    }
}

/// Kept in the extensions of spans whose fields matter. Of all others the callsite says everything.
struct SpanState {
    session: u64,
    meta: Meta,
    started: crate::clock::Ticks,
    /// Whether capture was on when the span was made.
    recording: bool,
    /// Present for requests and for spans with known fields.
    values: Option<Box<FieldValues>>,
}

impl CandlescopeLayer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn callsite(&self, metadata: &'static Metadata<'static>) -> Callsite {
        callsites::get(self.shared.session, metadata, || {
            let kinds = FieldKinds::of(metadata);
            let alike = !kinds.phase && !kinds.request && !kinds.name;
            Callsite { kinds, meta: alike.then(|| self.describe(metadata, kinds, &FieldValues::default())) }
        })
    }

    fn describe(&self, metadata: &'static Metadata<'static>, kinds: FieldKinds, values: &FieldValues) -> Meta {
        let excluded = self.shared.is_excluded(metadata.target());
        let role = match values.phase {
            _ if excluded => Role::Ignored,
            _ if kinds.request => Role::Request,
            Some(phase) => Role::Phase(phase),
            None => Role::Plain,
        };
        // A request keeps its span's name: `otel.name` carries the model, which is no place in a tree.
        let name = match &values.name {
            Some(name) if role != Role::Request => name.clone(),
            _ => metadata.name().into(),
        };
        let target: Arc<str> = metadata.target().into();
        let announce = |id| self.shared.taps.iter().for_each(|tap| tap.name(id, &name, &target));
        let id = self.shared.names.intern(&name, &target, role, announce);
        let mut flags = 0;
        if kinds.annotation {
            flags |= meta_flag::FIELDS;
        }
        match role {
            Role::Ignored => flags |= meta_flag::IGNORED,
            Role::Request => flags |= meta_flag::REQUEST,
            _ => {}
        }
        Meta {
            name: id,
            request: if role == Role::Request { self.shared.next_request() } else { 0 },
            phase: values.phase.filter(|_| !excluded).map_or(NO_PHASE, |p| p as u8),
            flags,
        }
    }
}

impl<S> Layer<S> for CandlescopeLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let Callsite { kinds, meta } = self.callsite(attrs.metadata());
        let span = id.into_u64();
        let epoch = self.shared.epoch(span).fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(meta) = meta
            && !kinds.any()
        {
            // Most often the thread that makes a span is the one that enters it.
            thread::foresee(&self.shared, span, epoch, meta);
            return;
        }
        let mut values = FieldValues::default();
        attrs.record(&mut values);
        let meta = meta.unwrap_or_else(|| self.describe(attrs.metadata(), kinds, &values));
        if let Some(trace) = values.trace_id {
            self.shared.set_request_trace(meta.request, trace);
        }
        let is_request = meta.flags & meta_flag::REQUEST != 0;
        if is_request {
            self.shared.open_requests.fetch_add(1, Ordering::Relaxed);
        }
        let keep = is_request || meta.flags & meta_flag::FIELDS != 0;
        let state = SpanState {
            session: self.shared.session,
            meta,
            started: self.shared.ticks.now(),
            recording: self.shared.control.recording(),
            values: keep.then(|| Box::new(values)),
        };
        if let Some(span) = ctx.span(id) {
            // `replace`, because `insert` panics where a second session's layer stands in the same registry.
            span.extensions_mut().replace(state);
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(state) = extensions.get_mut::<SpanState>() else {
            return;
        };
        let request = state.meta.request;
        if let Some(values) = &mut state.values {
            let before = values.trace_id;
            record.record(values.as_mut());
            if let Some(trace) = values.trace_id.filter(|id| request != 0 && Some(*id) != before) {
                self.shared.set_request_trace(request, trace);
            }
        }
    }

    #[inline]
    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let span = id.into_u64();
        let shared = &self.shared;
        thread::with_state(shared, |state| {
            let meta = state.cache.get(shared, span, || {
                let span = ctx.span(id)?;
                let known =
                    span.extensions().get::<SpanState>().filter(|s| s.session == shared.session).map(|s| s.meta);
                // A span whose fields matter, made before this layer joined the registry, is recorded under the name for
                // unknown ones.
                known.or_else(|| self.callsite(span.metadata()).meta)
            });
            state.enter(shared, span, meta.unwrap_or(Meta::OTHER));
        });
    }

    #[inline]
    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let shared = &self.shared;
        thread::with_state(shared, |state| {
            state.exit(shared, id.into_u64(), || {
                let span = ctx.span(id)?;
                let extensions = span.extensions();
                let state = extensions.get::<SpanState>().filter(|s| s.session == shared.session)?;
                let values = state.values.as_ref()?;
                Some(values.annotation).filter(|a| !a.is_empty())
            });
        });
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        // Only the end of a request matters, and looking a span up costs more than entering it.
        if self.shared.open_requests.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(span) = ctx.span(&id) else { return };
        let extensions = span.extensions();
        let Some(state) = extensions.get::<SpanState>() else {
            return;
        };
        if state.meta.flags & meta_flag::REQUEST == 0 || state.session != self.shared.session {
            return;
        }
        self.shared.open_requests.fetch_sub(1, Ordering::Relaxed);
        let Some(values) = &state.values else { return };
        if !state.recording && !self.shared.control.recording() {
            return;
        }
        let raw = RawRequest {
            number: state.meta.request,
            start: state.started,
            end: self.shared.ticks.now(),
            values: (**values).clone(),
        };
        if self.shared.requests.try_send(raw).is_err() {
            self.shared.requests_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
