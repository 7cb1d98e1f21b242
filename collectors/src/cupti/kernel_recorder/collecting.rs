//! What was recorded is read, joined with the calls that launched it, and delivered.

use super::KernelRecorder;
use crate::cupti::backend::Backend;
use crate::cupti::delivery::{Unusable, kernel};
use crate::cupti::detach::State;
use crate::cupti::join::{Call, NamedWork};
use crate::cupti::records::{self, ActivityKind, Record};
use crate::cupti::{Correlate, calls, errors, lanes};
use candlescope_core::gpu::{ActivityError, ActivitySink, OUTSIDE_WINDOW, UndeliveredWork};
use candlescope_core::{HostNs, SpanId};
use std::sync::Arc;

impl<B: Backend> KernelRecorder<B> {
    /// Delivers the kernels recorded so far.
    ///
    /// A plain flush hands over the buffers whose records are all complete; a kernel that is still running holds its
    /// buffer back, and no record is lost. With `all`, a forced one follows, which hands over all buffers: the records
    /// of what still runs are lost then, and some of what ran may never become complete because its time stamp was
    /// lost. If CUPTI is detached there is nothing to fetch, and while a copy is under way only what CUPTI handed over
    /// by itself.
    pub(in crate::cupti) fn collect(
        &mut self,
        all: bool,
        host: &dyn Fn() -> HostNs,
        into: &mut ActivitySink,
    ) -> Result<(), ActivityError> {
        let attached = self.is_attached();
        let flushed = if attached { self.flush(all) } else { None };
        // After the flush, so that all times it brought lie between anchors.
        self.anchor(host, attached);
        if attached {
            let read = self.read();
            self.carried.add(read);
            into.dropped += self.backend.dropped();
        } else if all && self.mine && self.backend.link().state() == State::Detached {
            into.dropped += self.backend.unread();
        }
        into.dropped += lanes::lost();
        if all {
            self.join.give_up();
        }
        into.undelivered = match self.join.earliest_missing() {
            // Without calls, or where each is seen twice, it is not known what was launched. Without records none is
            // waited for.
            _ if self.correlate == Correlate::Nothing || self.runtime || self.trial.no_records => {
                UndeliveredWork::Unknown
            }
            None => UndeliveredWork::Nothing,
            Some(end) => self.ticks.host(end).map_or(UndeliveredWork::Unknown, UndeliveredWork::Since),
        };
        // The bounds of the clock that times kernels and of the clock that times calls, which kernels are compared
        // with.
        into.clock_bound_ns = self.cupti.bound_ns().map(|bound| bound + self.ticks.bound_ns().unwrap_or(0));
        let Self { join, cupti, ticks, devices, backend, numbers, carried, .. } = self;
        join.deliver(all, |joined| {
            let (call, span) = (joined.call, joined.span);
            let number = numbers.unique(joined.ran.work.correlation);
            let uuid = || backend.uuid(joined.ran.work.device).unwrap_or_else(|| "unknown".to_string()).into();
            let device = Arc::clone(devices.entry(joined.ran.work.device).or_insert_with(uuid));
            match kernel(joined, number, device, cupti, ticks) {
                Some(kernel) => into.kernels.push(kernel),
                // Impossible times: as a kernel of no time at all it would pass for one that was measured.
                None => carried.untimed(call, span),
            }
        });
        let Unusable { dropped, dropped_of, outside, strays } = std::mem::take(carried);
        into.dropped += dropped;
        into.dropped_of.extend(dropped_of);
        into.outside_unfinished += outside;
        into.stray_unfinished.extend(strays.into_iter().filter_map(|end| ticks.host(end)));
        let ambiguous = join.take_ambiguous();
        into.dropped += ambiguous.records;
        into.dropped_of.extend(ambiguous.spans);
        flushed.unwrap_or(Ok(())).map_err(|code| errors::refused("hand over its records", code))
    }

    /// Takes in the records of CUPTI's buffers and of the threads' rings.
    pub(super) fn read(&mut self) -> Unusable {
        let Self { backend, join, names, .. } = self;
        let (mut lost, mut unfinished) = (0, Vec::new());
        lost += backend.records(&mut |bytes, name| match records::parse(bytes) {
            // Times are zero if the device had no room for them, or if the record was forced out before its end.
            Some(Record::Work(work)) if work.start == 0 || work.end == 0 => unfinished.push(work.correlation),
            Some(Record::Work(work)) => {
                let name = match &work.what {
                    ActivityKind::Kernel { .. } => name.unwrap_or(b"unknown"),
                    ActivityKind::Copy { direction, .. } => direction.as_bytes(),
                    ActivityKind::Set { .. } => b"memset",
                };
                join.ran(NamedWork { name: names.readable(name), work });
            }
            Some(Record::Other) => {}
            None => lost += 1,
        });
        // After the buffers: a kernel can end before its call has returned, so the calls are read last.
        let nanoseconds = |raw: u64| lanes::clock().delta_as_nanos(self.origin, raw);
        let mut unrecorded = Vec::new();
        lanes::drain(|launch| {
            let within = |(began, ended): &(u64, u64)| (*began..=*ended).contains(&launch.start);
            let now = self.gap.is_some_and(|began| launch.start >= began);
            let Some(name) = calls::name(launch.domain, launch.cbid) else { return };
            let start = Some(launch.start).filter(|start| *start != 0).map(nanoseconds);
            let span = Some(SpanId(launch.span)).filter(|span| span.0 != 0);
            let call = Call { name, start, end: nanoseconds(launch.end) };
            if calls::is_on_memory(launch.domain, launch.cbid) && (now || self.gaps.iter().any(within)) {
                unrecorded.push((call, span));
            }
            join.launched(launch.correlation, span, call);
        });
        let mut read = Unusable { dropped: lost, ..Unusable::default() };
        // Outside of windows nobody asks for a record.
        for (call, span) in unrecorded.into_iter().filter(|(_, span)| *span != Some(OUTSIDE_WINDOW)) {
            read.untimed(Some(call), span);
        }
        for correlation in unfinished {
            let launcher = join.unfinished(correlation);
            read.untimed(launcher.map(|(call, _)| call), launcher.and_then(|(_, span)| span));
        }
        read
    }
}
