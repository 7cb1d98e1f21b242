//! The `tracing` layer: turns enters and exits of spans into raw records.

mod cache;
mod callsites;
mod frame;
mod mark_plan;
mod marker;
pub(crate) mod open_range;
pub(crate) mod place;
pub(crate) mod ranges;
pub(crate) mod thread;

use crate::fields::{FieldKinds, FieldValues, RecordedFields};
use crate::modules::rules::Rule;
use crate::modules::{self, Slot, table};
use crate::names::{self, Role};
use crate::raw::NO_PHASE;
use crate::record::is_of_model;
use crate::shared::{RawRequest, SessionState};
use cache::{Meta, meta_flag};
use callsites::Callsite;
use candlescope_markers::recorder;
use place::{Refusal, RegistryPlace};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use thread::RequestHandle;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Dispatch, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Records every enter/exit pair of every span as an interval. Made by [`Session`](crate::Session). Add it to a
/// `tracing_subscriber::Registry` **before the model loads**: candle creates its spans then, and a span that is created
/// while no subscriber is interested stays disabled forever.
///
/// Do not wrap it in a per-layer filter, which costs more than the layer itself. Exclude targets when building the
/// session instead.
///
/// A session's layer belongs in one registry, and a registry holds the layer of only one session: a second layer
/// records nothing and reports that, as a problem and in its session's verdict.
pub struct CandlescopeLayer {
    shared: Arc<SessionState>,
    /// Its place in a registry, once it has one.
    place: OnceLock<RegistryPlace>,
    /// The session's number, or 0 if another layer has the place and this one records nothing. It is kept here so that
    /// the hot path need not look it up.
    session: AtomicU64,
}

/// A clone is a layer of the same session, without a place in a registry.
impl Clone for CandlescopeLayer {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

impl std::fmt::Debug for CandlescopeLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandlescopeLayer").field("session", &self.shared.session).finish_non_exhaustive()
    }
}

/// Kept in the extensions of spans whose fields matter. All other spans are fully described by their callsite.
struct SpanState {
    session: u64,
    meta: Meta,
    started: crate::clock::Ticks,
    /// Whether the span is a request that began while requests were recorded.
    request_recorded: bool,
    /// Present for requests and for spans with known fields.
    values: Option<Box<FieldValues>>,
}

impl CandlescopeLayer {
    pub(crate) fn new(shared: Arc<SessionState>) -> Self {
        Self { session: AtomicU64::new(shared.session), shared, place: OnceLock::new() }
    }

    #[inline]
    fn steps_back(&self) -> bool {
        self.session.load(Ordering::Relaxed) == 0
    }

    #[cold]
    fn step_back(&self, why: Refusal) {
        if self.session.swap(0, Ordering::Relaxed) != 0 {
            self.shared.notices.add(why.finding());
        }
    }

    fn callsite(&self, metadata: &'static Metadata<'static>) -> Callsite {
        callsites::get(self.shared.session, metadata, || {
            modules::note_candle_version(metadata);
            let kinds = FieldKinds::of(metadata);
            let alike = !kinds.phase && !kinds.request && !kinds.name && !kinds.module;
            let meta = alike.then(|| self.describe(metadata, kinds, &FieldValues::default(), None));
            Callsite { kinds, meta, rule: table::of(metadata) }
        })
    }

    /// The meta of a span that stands for a module, if it does: called once for each span, while a model loads.
    #[cold]
    fn module(&self, attrs: &Attributes<'_>, kinds: FieldKinds, rule: Rule) -> Option<Meta> {
        if self.shared.control.is_closed() || self.shared.is_forked() {
            return None;
        }
        let (metadata, rule) = (attrs.metadata(), rule.of_span(attrs));
        let slot = self
            .shared
            .watch
            .note(metadata.name(), modules::claim(rule, metadata.module_path(), self.shared.session))?;
        let meta = self.describe(metadata, kinds, &FieldValues::default(), Some(slot));
        (meta.name != names::OTHER).then_some(meta)
    }

    fn describe(
        &self,
        metadata: &'static Metadata<'static>,
        kinds: FieldKinds,
        values: &FieldValues,
        module: Option<Arc<Slot>>,
    ) -> Meta {
        let excluded = self.shared.is_excluded(metadata.target());
        let role = match values.phase {
            _ if excluded => Role::Ignored,
            _ if kinds.request => Role::Request,
            Some(phase) => Role::Phase(phase),
            None => Role::Plain,
        };
        // A request keeps its span's name: its `otel.name` contains the model, which does not belong in a path.
        let name = match &values.name {
            Some(name) if role != Role::Request => name.clone(),
            _ => metadata.name().into(),
        };
        let target: Arc<str> = metadata.target().into();
        let shared = &self.shared;
        let mut is_new = false;
        let announce = |id| {
            is_new = true;
            shared.taps.iter().for_each(|tap| tap.call(&shared.notices, |tap| tap.name(id, &name, &target)));
        };
        let id = self.shared.names.intern(&name, &target, role, module.clone(), announce);
        let of_model = module.is_some() || kinds.annotation || is_of_model(&target);
        // Once for each name: a program may make the span of a module at each pass.
        if let Some(slot) = module.filter(|_| is_new) {
            shared.tell_module(id, &slot);
        }
        let mut flags = 0;
        if kinds.annotation {
            flags |= meta_flag::FIELDS;
        }
        match role {
            Role::Ignored => flags |= meta_flag::IGNORED,
            Role::Request => flags |= meta_flag::REQUEST,
            Role::Plain if !of_model => flags |= meta_flag::APPLICATION,
            Role::Plain | Role::Phase(_) => {}
        }
        Meta {
            name: id,
            request: if role == Role::Request { self.shared.next_request() } else { 0 },
            phase: values.phase.filter(|_| !excluded).map_or(NO_PHASE, |p| p as u8),
            flags,
        }
    }
}

/// Whether one of the layers in `stack` belongs to another session that goes on.
fn is_taken(stack: &dyn Subscriber, session: u64) -> bool {
    let Some(other) = stack.downcast_ref::<CandlescopeLayer>() else { return false };
    other.shared.session != session && !other.steps_back() && !other.shared.control.is_closed()
}

/// Address of the registry, which differs from that of every other one alive. If the registry is not
/// `tracing_subscriber`'s own, the address of our outermost layer serves instead; 0 if that is not known either.
fn registry_of(dispatch: &Dispatch) -> usize {
    let registry = dispatch.downcast_ref::<Registry>().map(|r| std::ptr::from_ref(r) as usize);
    registry
        .or_else(|| dispatch.downcast_ref::<CandlescopeLayer>().map(|l| std::ptr::from_ref(l) as usize))
        .unwrap_or(0)
}

/// Stores a module's meta with its span, for threads that did not make the span.
fn keep_module<S>(shared: &SessionState, id: &Id, meta: Meta, ctx: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let Some(span) = ctx.span(id) else { return };
    let mut extensions = span.extensions_mut();
    if extensions.get_mut::<SpanState>().is_none() {
        let started = shared.ticks.now();
        extensions.insert(SpanState { session: shared.session, meta, started, request_recorded: false, values: None });
    }
}

impl<S> Layer<S> for CandlescopeLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_layer(&mut self, subscriber: &mut S) {
        if self.shared.control.is_closed() {
            return;
        }
        if is_taken(subscriber, self.shared.session) {
            return self.step_back(Refusal::OtherSession);
        }
        match place::claim(self.shared.session) {
            Ok(place) => _ = self.place.set(place),
            Err(why) => self.step_back(why),
        }
    }

    // `on_layer` sees the layers below this one, but not a layer that is joined in the same call (`and_then`). Some
    // wrappers do not pass this call on. `tracing` holds locks here: nothing may be reported, and no span or event may
    // be made.
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        if !self.steps_back() {
            self.shared.visible.is_in(dispatch);
        }
        if let Some(Err(why)) = self.place.get().map(|place| place.settle(registry_of(dispatch))) {
            self.step_back(why);
        }
    }

    // Asked where callsites are registered, and where a filter decides anew for each span.
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.shared.visible.reaches(metadata);
        true
    }

    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        if self.steps_back() {
            return;
        }
        let Callsite { kinds, meta, rule } = self.callsite(attrs.metadata());
        let span = id.into_u64();
        let epoch = self.shared.epoch(span).fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if let Some(meta) = meta
            && !kinds.any()
        {
            let module = rule.and_then(|rule| self.module(attrs, kinds, rule));
            if let Some(meta) = module {
                keep_module(&self.shared, id, meta, &ctx);
            }
            // Usually the thread that makes a span is the one that enters it.
            thread::foresee(&self.shared, span, epoch, module.unwrap_or(meta));
            return;
        }
        if self.shared.control.is_closed() {
            return;
        }
        let mut values = FieldValues::default();
        attrs.record(&mut values);
        let meta = meta.unwrap_or_else(|| {
            // Neither a phase nor a request is a part of a model, whatever its fields say.
            let module = values.module.take().filter(|_| values.phase.is_none() && !kinds.request);
            self.describe(attrs.metadata(), kinds, &values, module.map(|name| Slot::named(&name)))
        });
        if meta.phase != NO_PHASE && !self.shared.phases_marked.load(Ordering::Relaxed) {
            self.shared.phases_marked.store(true, Ordering::Relaxed);
        }
        let is_request = meta.flags & meta_flag::REQUEST != 0;
        if is_request {
            if let Some(trace) = values.trace_id {
                self.shared.set_request_trace(meta.request, trace);
            }
        } else if meta.phase != NO_PHASE
            && let Some(context) = values.annotation.get_context_len()
        {
            // Noted here, because a step that is not recorded has no record to carry it.
            let sequences = values.annotation.get_batch().unwrap_or(1).max(1);
            let request = thread::current_request(&self.shared);
            if request != 0 {
                self.shared.steps_of_requests.context(request, u64::from(context) * u64::from(sequences));
            }
        }
        let keep = is_request || meta.flags & meta_flag::FIELDS != 0;
        let state = SpanState {
            session: self.shared.session,
            meta,
            started: self.shared.ticks.now(),
            request_recorded: is_request && self.shared.control.records_requests(),
            values: keep.then(|| Box::new(values)),
        };
        if let Some(span) = ctx.span(id) {
            let mut extensions = span.extensions_mut();
            if extensions.get_mut::<SpanState>().is_none() {
                let request = state.meta.request;
                extensions.insert(state);
                if is_request {
                    self.shared.open_requests.fetch_add(1, Ordering::Relaxed);
                    self.shared.steps_of_requests.open(request);
                    recorder::leave(|| Box::new(RequestHandle { shared: self.shared.clone(), number: request }));
                }
                return;
            }
        }
        // A new span has no state yet, so another of our layers has set it: one that joined without being registered.
        self.step_back(Refusal::OtherSession);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, ctx: Context<'_, S>) {
        if self.steps_back() {
            return;
        }
        let Some(span) = ctx.span(id) else { return };
        if !self.callsite(span.metadata()).kinds.any() {
            return;
        }
        // The program's own code may run while values are read: no lock of the span is held then.
        let mut fields = RecordedFields::default();
        record.record(&mut fields);
        let mut extensions = span.extensions_mut();
        let Some(state) = extensions.get_mut::<SpanState>().filter(|s| s.session == self.shared.session) else {
            return;
        };
        let request = state.meta.request;
        if let Some(values) = &mut state.values {
            let before = values.trace_id;
            fields.apply(values);
            if let Some(trace) = values.trace_id.filter(|id| request != 0 && Some(*id) != before) {
                self.shared.set_request_trace(request, trace);
            }
        }
    }

    #[inline]
    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let span = id.into_u64();
        let shared = &self.shared;
        thread::with_state(self.session.load(Ordering::Relaxed), shared, |state| {
            if state.is_aside() {
                return state.enter_aside(shared);
            }
            let meta = state.cache.get(shared, span, || {
                let span = ctx.span(id)?;
                let known =
                    span.extensions().get::<SpanState>().filter(|s| s.session == shared.session).map(|s| s.meta);
                // A span whose fields matter, but which was made before this layer joined the registry, is recorded
                // under the name for unknown ones.
                known.or_else(|| self.callsite(span.metadata()).meta)
            });
            state.enter(shared, span, meta.unwrap_or(Meta::OTHER));
        });
    }

    #[inline]
    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let shared = &self.shared;
        thread::with_state(self.session.load(Ordering::Relaxed), shared, |state| {
            if state.is_aside() {
                return state.exit_aside();
            }
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
        if self.shared.open_requests.load(Ordering::Relaxed) == 0 || self.steps_back() {
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
        let (shared, number, end) = (&self.shared, state.meta.request, self.shared.ticks.now());
        shared.open_requests.fetch_sub(1, Ordering::Relaxed);
        let ended = shared.steps_of_requests.close(number);
        let Some(values) = &state.values else { return };
        // A request with a recorded step always has a row, because its steps refer to it.
        if !(state.request_recorded || ended.recorded || shared.control.records_requests()) {
            shared.requests_paused.fetch_add(1, Ordering::Relaxed);
            shared.forget_request(number);
            return;
        }
        let (start, values) = (state.started, (**values).clone());
        let raw = RawRequest { number, start, end, first_step: ended.first_step, perturbed: ended.perturbed, values };
        if shared.requests.try_send(raw).is_err() {
            shared.requests_lost.fetch_add(1, Ordering::Relaxed);
            shared.forget_request(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::llm::Request;
    use crate::shared::Hooks;
    use tracing_subscriber::layer::SubscriberExt;

    const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What is remembered of a thousand requests that ended and of one that did not.
    fn remembered(paused: bool, room: usize) -> (usize, usize) {
        let (requests, queue) = crossbeam_channel::bounded(room);
        let rings = crate::shared::Rings { capacity: 128, memory: 1 << 20 };
        let shared =
            Arc::new(SessionState::new(Control::new(None, paused), Hooks::default(), Vec::new(), rings, requests));
        let registry = tracing_subscriber::registry().with(CandlescopeLayer::new(shared.clone()));
        tracing::subscriber::with_default(registry, || {
            (0..1_000).for_each(|_| drop(Request::new("chat", "m").traceparent(CALLER)));
            let _open = Request::new("chat", "m").traceparent(CALLER);
            (shared.joined_traces(), queue.len())
        })
    }

    /// The numbers of its intervals would be those of another thread, or of requests.
    #[test]
    fn a_thread_for_which_there_is_no_number_is_counted_and_not_recorded() {
        for (number, recorded) in [(crate::shared::NO_THREAD_FROM - 1, true), (crate::shared::NO_THREAD_FROM, false)] {
            let (requests, _queue) = crossbeam_channel::bounded(10);
            let rings = crate::shared::Rings { capacity: 128, memory: 1 << 30 };
            let shared =
                Arc::new(SessionState::new(Control::new(None, false), Hooks::default(), Vec::new(), rings, requests));
            shared.set_next_thread(number);
            let registry = tracing_subscriber::registry().with(CandlescopeLayer::new(shared.clone()));
            tracing::subscriber::with_default(registry, || tracing::trace_span!("step").in_scope(|| ()));
            let threads = shared.new_threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let told: Vec<bool> = threads.iter().map(|thread| thread.share.is_some()).collect();
            assert_eq!(told, [recorded], "{number}: with a ring, or counted as one without");
        }
    }

    #[test]
    fn nothing_is_remembered_of_requests_that_nobody_will_record() {
        assert_eq!(remembered(true, 2_000), (1, 0), "recording is off");
        assert_eq!(remembered(false, 10), (11, 10), "the queue is full: those in it are still to come");
        assert_eq!(remembered(false, 2_000), (1_001, 1_000));
    }
}
