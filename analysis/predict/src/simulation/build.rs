//! Makes a step's model of its records. No files here: records in, a model out.

use super::calls::{Call, Times};
use super::step_model::{
    Anchor, DELAY_NS, DeviceWork, Facts, HostPart, NOWHERE, Parts, QUEUE_NS, StepInterval, StepModel,
};
use super::waits;
use candlescope_figures::StepRow;
use candlescope_schema::{KernelKind, KernelRecord, Phase, SpanRecord};
use candlescope_work::estimate::median;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step's records.
#[derive(Debug)]
pub(super) struct StepRecords {
    pub(super) step: StepRow,
    pub(super) kernels: Vec<KernelRecord>,
    pub(super) spans: Vec<SpanRecord>,
}

/// A delay this many times the usual one is a wait for something else.
const UNUSUAL: f64 = 5.0;
/// And it is at least so long, in nanoseconds.
const LONG_NS: f64 = 5_000.0;

/// The model of a step, whose kernels all have calls.
pub(super) fn build(mut records: StepRecords, facts: &Arc<Facts>) -> StepModel {
    let step = &records.step;
    records.spans.sort_by_key(|span| span.seq);
    let begin = step.start_ns;
    let at = |ns: i64| ns.saturating_sub(begin) as f64;
    let end = at(step.end_ns());
    let (places, by_seq) = places(&records.spans);
    records.kernels.sort_by_key(|kernel| (kernel.launch_start, kernel.correlation, kernel.gpu_start));
    let place_of = |kernel: &KernelRecord| kernel.seq.and_then(|seq| by_seq.get(&seq).copied()).unwrap_or(NOWHERE);
    let times: Times = records
        .kernels
        .iter()
        .map(|kernel| (at(kernel.gpu_start.0), at(kernel.gpu_start.0) + kernel.gpu_dur_ns as f64))
        .collect();
    let calls = calls(&records.kernels, &times, at, place_of);
    let (works, backlog_ns) = works(&records.kernels, &times, &calls, place_of);
    let boundaries = boundaries(&records.spans, &by_seq, at);
    let row = host(&calls, &works, &times, &boundaries, end);
    let last = times.iter().map(|(_, end)| *end).fold(end, f64::max);
    StepModel {
        step: step.step,
        group: step.group().to_string(),
        measured_ns: last,
        host_ns: end,
        parts: Parts { host: row.parts, works },
        places,
        backlog_ns,
        inferred_waits: row.inferred_waits,
        waited_ns: row.waited_ns,
        is_decode: step.phase == Some(Phase::Decode),
        sequences: step.sequences.or(step.batch),
        rows: step.tokens,
        many_rows: Arc::default(),
        facts: facts.clone(),
    }
}

/// The step's intervals in order of begin, and their index by `seq`.
fn places(spans: &[SpanRecord]) -> (Vec<StepInterval>, FxHashMap<u64, u32>) {
    let mut by_seq: FxHashMap<u64, u32> = FxHashMap::default();
    let mut places = Vec::with_capacity(spans.len());
    for span in spans {
        let parent = span.parent_seq.and_then(|seq| by_seq.get(&seq).copied()).unwrap_or(NOWHERE);
        by_seq.insert(span.seq, places.len() as u32);
        places.push(StepInterval {
            path: span.path.path.as_str().into(),
            name: span.path.name.clone(),
            module: span.path.module.clone(),
            parent,
            flops: span.flops.map(|n| n as f64),
            bytes: span.bytes.map(|n| n as f64),
            io_bytes: span.io_bytes.map(|n| n as f64),
        });
    }
    (places, by_seq)
}

/// Calls in order; `kernels` are in order of launch.
fn calls(
    kernels: &[KernelRecord],
    times: &Times,
    at: impl Fn(i64) -> f64,
    place_of: impl Fn(&KernelRecord) -> u32,
) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut last = None;
    for (index, kernel) in kernels.iter().enumerate() {
        let Some(begin) = kernel.launch_start else { continue };
        let key = (begin, kernel.correlation);
        if last == Some(key)
            && let Some(call) = calls.last_mut()
        {
            call.count += 1;
            continue;
        }
        last = Some(key);
        let end = at(begin.0) + kernel.launch_dur_ns.unwrap_or(0) as f64;
        let to_host = kernel.kind == KernelKind::Memcpy && &*kernel.name == "dtoh";
        let blocks = to_host && end >= times[index].1;
        // A graph's launch is the work of the interval that the host was in, not of those that it replays.
        let (begin, place) = (at(begin.0), if kernel.graph.is_some() { NOWHERE } else { place_of(kernel) });
        calls.push(Call { begin, end, place, first: index as u32, count: 1, blocks });
    }
    calls
}

/// What each work waited for, and how long the device was busy with earlier steps.
fn works(
    kernels: &[KernelRecord],
    times: &Times,
    calls: &[Call],
    place_of: impl Fn(&KernelRecord) -> u32,
) -> (Vec<DeviceWork>, f64) {
    let mut streams: BTreeMap<(&str, u32), (u32, Option<u32>)> = BTreeMap::new();
    let mut works: Vec<DeviceWork> = Vec::with_capacity(kernels.len());
    // When the call had launched it.
    let mut readies = Vec::with_capacity(kernels.len());
    let (mut delays, mut queues, mut copies, mut first) = (Vec::new(), Vec::new(), Vec::new(), DELAY_NS);
    for call in calls {
        for index in call.first..call.first + call.count {
            let kernel = &kernels[index as usize];
            let start = times[index as usize].0;
            let known = streams.len() as u32;
            let stream = streams.entry((&*kernel.device, kernel.stream)).or_insert((known, None));
            let after = stream.1.replace(index);
            // Nodes of a graph follow one another, whenever their launch returns.
            let in_graph = kernel.graph.is_some();
            let follows = in_graph && after.is_some_and(|before| before >= call.first);
            let returned = call.end <= start && !call.blocks && !follows;
            let anchor = if returned { Anchor::End } else { Anchor::Begin };
            let ready = if anchor == Anchor::End { call.end } else { call.begin };
            match after.map(|before| times[before as usize].1) {
                // A copy that the host waits for takes its own time to begin, but no less than a kernel.
                Some(end) if end > ready && kernel.kind == KernelKind::Kernel => queues.push(start - end),
                Some(end) if end > ready => copies.push(start - end),
                Some(_) if anchor == Anchor::End => delays.push(start - ready),
                // The first of a stream may have waited for another step.
                None if anchor == Anchor::End => first = first.min(start - ready),
                _ => {}
            }
            readies.push(ready);
            works.push(DeviceWork {
                ns: times[index as usize].1 - start,
                recorded_ns: times[index as usize].1 - start,
                kind: kernel.kind,
                name: kernel.name.clone(),
                place: place_of(kernel),
                stream: stream.0,
                anchor,
                delay_ns: start - ready,
                after,
                queue_ns: 0.0,
                also: None,
                not_before_ns: None,
                gone: false,
                in_graph,
            });
        }
    }
    // Where most wait for something else, the usual is what a device needs at most.
    let usual = UsualDelays {
        delay: median(delays).unwrap_or(first).min(4.0 * LONG_NS),
        queue: median(queues).unwrap_or(QUEUE_NS.min(median(copies).unwrap_or(QUEUE_NS))).min(LONG_NS),
    };
    let mut backlog_ns = 0.0_f64;
    for index in 0..works.len() {
        backlog_ns = backlog_ns.max(usual.delays(&mut works, index, times, &readies));
    }
    (works, backlog_ns)
}

/// What works usually take from their call, or from the work before, to their start.
struct UsualDelays {
    delay: f64,
    queue: f64,
}

impl UsualDelays {
    /// Sets the delays of one work. Returns how long the device was busy with other steps before.
    fn delays(&self, works: &mut [DeviceWork], index: usize, times: &Times, readies: &[f64]) -> f64 {
        let (start, ready) = (times[index].0, readies[index]);
        let before = works[index].after.map(|before| times[before as usize].1);
        let others = |from: f64| {
            let stream = works[index].stream;
            let other = |at: &usize| {
                let end = times[*at].1;
                works[*at].stream != stream && end > from && end <= start && start - end <= LONG_NS
            };
            // Works are in order of launch, and a step may have many: what it waited for was launched not long before.
            let seen = index.saturating_sub(4_096);
            (seen..index).filter(other).max_by(|a, b| times[*a].1.total_cmp(&times[*b].1))
        };
        let queued = before.filter(|end| *end > ready);
        let work_delay = start - ready;
        let Some(end) = queued else {
            // The call was the last that it waited for, or something that is not known.
            let far = (UNUSUAL * self.delay).max(4.0 * LONG_NS);
            let other = if work_delay > far { others(ready) } else { None };
            let own = &mut works[index];
            if let Some(end) = before {
                own.queue_ns = self.queue.min(start - end);
            }
            if work_delay <= far {
                return 0.0;
            }
            if let Some(other) = other {
                own.also = Some((other as u32, start - times[other].1));
                own.delay_ns = self.delay;
            } else if before.is_none() {
                own.not_before_ns = Some(start);
                own.delay_ns = self.delay;
                return work_delay - self.delay;
            }
            return 0.0;
        };
        let gap = start - end;
        let other = if gap > (UNUSUAL * self.queue).max(LONG_NS) { others(end) } else { None };
        let own = &mut works[index];
        own.delay_ns = self.delay.min(work_delay);
        own.queue_ns = gap;
        if let Some(other) = other {
            own.also = Some((other as u32, start - times[other].1));
            own.queue_ns = self.queue.min(gap);
        }
        0.0
    }
}

/// When an interval began or ended, and the interval that the host is in then.
type Boundary = (f64, u32);

fn boundaries(spans: &[SpanRecord], by_seq: &FxHashMap<u64, u32>, at: impl Fn(i64) -> f64) -> Vec<Boundary> {
    let place = |seq: Option<u64>| seq.and_then(|seq| by_seq.get(&seq).copied()).unwrap_or(NOWHERE);
    // Ends before begins at the same time; of ends the inner one first, of begins the outer one.
    let mut all: Vec<(f64, bool, i64, u32)> = Vec::with_capacity(spans.len() * 2);
    // The host was not in what a graph replayed.
    for span in spans.iter().filter(|span| span.graph.is_none()) {
        let (begin, end) = (at(span.host_start.0), at(span.host_start.plus_ns(span.host_dur_ns).0));
        let order = i64::try_from(span.seq).unwrap_or(i64::MAX);
        // An interval without length ends after it has begun.
        all.push((begin, true, order, place(Some(span.seq))));
        all.push((end, end <= begin, if end <= begin { order } else { -order }, place(span.parent_seq)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
    all.into_iter().map(|(at, _, _, place)| (at, place)).collect()
}

/// The host's parts.
#[derive(Debug, Default)]
struct Row {
    parts: Vec<HostPart>,
    now: f64,
    place: u32,
    pending: u32,
    inferred_waits: u64,
    waited_ns: f64,
}

impl Row {
    /// Work until `to`.
    fn work(&mut self, to: f64) {
        let ns = (to - self.now).max(0.0);
        if ns > 0.0 || self.pending > 0 {
            self.parts.push(HostPart::Work { ns, place: self.place, boundaries: std::mem::take(&mut self.pending) });
        }
        self.now = self.now.max(to);
    }
}

fn host(calls: &[Call], works: &[DeviceWork], times: &Times, boundaries: &[Boundary], end: f64) -> Row {
    let mut row = Row { place: NOWHERE, ..Row::default() };
    let mut next = boundaries.iter().peekable();
    let usual_call = median(calls.iter().filter(|call| !call.blocks).map(|call| call.end - call.begin).collect());
    let finder = waits::Finder::new(calls, works, times, usual_call.unwrap_or(0.0));
    for (number, call) in calls.iter().enumerate() {
        let mut until = |row: &mut Row, to: f64| {
            while let Some((at, place)) = next.next_if(|(at, _)| *at <= to) {
                until_work(row, &finder, number, *at);
                (row.place, row.pending) = (*place, row.pending + 1);
            }
            until_work(row, &finder, number, to);
        };
        until(&mut row, call.begin);
        let ns = (call.end - row.now).max(0.0);
        let place = if call.place == NOWHERE { row.place } else { call.place };
        let launched = |ns| HostPart::Call { ns, place, first: call.first, count: call.count };
        if call.blocks {
            let ended = times[call.first as usize].1.max(row.now);
            row.waited_ns += ns;
            row.parts.push(launched(0.0));
            row.parts.push(HostPart::Wait { on: call.first, wake_ns: (call.end - ended).max(0.0) });
        } else if let Some(on) = finder.full_queue(number) {
            let ended = times[on as usize].1.max(row.now);
            let own = finder.usual_call.min(call.end - ended).max(0.0);
            row.waited_ns += (ns - own).max(0.0);
            row.parts.push(HostPart::Wait { on, wake_ns: (call.end - own - ended).max(0.0) });
            row.parts.push(launched(own));
            row.inferred_waits += 1;
        } else {
            row.parts.push(launched(ns));
        }
        row.now = row.now.max(call.end);
    }
    for (at, place) in next {
        until_work(&mut row, &finder, calls.len(), at.min(end));
        (row.place, row.pending) = (*place, row.pending + 1);
    }
    until_work(&mut row, &finder, calls.len(), end);
    row
}

/// Work until `to`, or a wait for the device if that is what it looks like. `number` calls have been made.
fn until_work(row: &mut Row, finder: &waits::Finder<'_>, number: usize, to: f64) {
    let Some(on) = finder.wait(number, row.now, to) else { return row.work(to) };
    // What the host did before it waited is not known.
    row.work(row.now);
    let ended = finder.end(on).max(row.now);
    row.parts.push(HostPart::Wait { on, wake_ns: (to - ended).max(0.0) });
    row.inferred_waits += 1;
    row.waited_ns += (to - row.now).max(0.0);
    row.now = row.now.max(to);
}
