//! What is needed of each rank's run.

use super::collective::CollectiveKind;
use super::rank::Rank;
use super::ranks_of_run::RanksOfRun;
use candlescope_schema::run::Finding;
use candlescope_schema::{Batch, KernelKind, RecordKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

/// Where collectives were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// As kernels of the devices.
    Kernels,
    /// As intervals with time on the device.
    DeviceTime,
    /// As intervals of hosts that compute themselves.
    Host,
    /// As calls that only put work on a device, or not at all: what they take is not known.
    Unknown,
}

/// Start and end, Unix nanoseconds.
pub(crate) type Time = (i64, i64);

/// A collective as one rank saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenCollective {
    pub(crate) kind: CollectiveKind,
    pub(crate) step: Option<u64>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) bytes: Option<u64>,
    /// Its device, by the number of [`Reading::computing`].
    pub(crate) device: Option<usize>,
}

/// A measured step of one rank, on that rank's clock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimedStep {
    pub(crate) phase: &'static str,
    pub(crate) ns: i64,
    start: i64,
    /// From its beginning to the end of its last launch of a kernel: as long as its host takes, whoever waits on the
    /// device meanwhile. 0 where that was not recorded.
    pub(crate) launching: i64,
}

/// What is read of one rank's run.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Measured steps by number.
    pub(crate) steps: BTreeMap<u64, TimedStep>,
    /// Collectives by where they were seen.
    pub(crate) kernels: Vec<SeenCollective>,
    pub(crate) on_device: Vec<SeenCollective>,
    pub(crate) on_host: Vec<SeenCollective>,
    /// Steps whose kernels were recorded.
    pub(crate) windows: BTreeSet<u64>,
    /// Steps in which an interval of a collective has no time on the device.
    untimed: BTreeSet<u64>,
    /// Whether anything ran on a device.
    pub(crate) has_device: bool,
    /// UUID of the device that most of its kernels ran on; none where none were recorded.
    pub(crate) device: Option<Arc<str>>,
    /// When each device computed: without overlaps, in order.
    pub(crate) computing: Vec<Vec<Time>>,
    /// What is wrong with its files: first what opening them showed, then what reading did.
    pub(crate) findings: Vec<Finding>,
}

impl Reading {
    /// Reads the ranks' runs, in their order; one of several threads once for all of them.
    pub(crate) fn all(ranks: &[Rank]) -> Vec<Self> {
        let mut all = Vec::with_capacity(ranks.len());
        let tables = [RecordKind::Step, RecordKind::Span, RecordKind::Kernel];
        for of_run in RanksOfRun::each(ranks) {
            let mut readers: Vec<Reader> = of_run.ranks().iter().map(Reader::new).collect();
            let Ok(findings) = of_run.read(
                |run| run.batches().of_tables(&tables),
                |place, own| {
                    readers[place].add(&own);
                    Ok::<(), Infallible>(())
                },
            );
            let mut finished: Vec<Self> = readers.into_iter().map(Reader::finish).collect();
            // What is wrong with the files of threads is told with the first of them.
            finished.iter_mut().take(1).for_each(|first| first.findings.clone_from(&findings));
            all.extend(finished);
        }
        all
    }

    /// Its collectives by a source.
    pub(crate) fn seen(&self, source: Source) -> &[SeenCollective] {
        match source {
            Source::Kernels => &self.kernels,
            Source::DeviceTime => &self.on_device,
            Source::Host => &self.on_host,
            Source::Unknown => &[],
        }
    }

    /// Whether every collective of a step is known by a source.
    pub(crate) fn knows(&self, source: Source, step: u64) -> bool {
        match source {
            Source::Kernels => self.windows.contains(&step),
            Source::DeviceTime => !self.untimed.contains(&step),
            Source::Host | Source::Unknown => true,
        }
    }

    /// Time of these intervals, on a device, in which it computed nothing.
    pub(crate) fn exposed(&self, device: Option<usize>, intervals: &[Time]) -> i64 {
        let busy = device.and_then(|at| self.computing.get(at)).map_or(&[][..], Vec::as_slice);
        intervals.iter().map(|(start, end)| end - start - overlap(busy, *start, *end)).sum()
    }
}

/// A rank while its run is read.
#[derive(Default)]
struct Reader {
    reading: Reading,
    /// Requests that warmed it up.
    warmup: u64,
    /// Bytes of an interval.
    bytes_of: HashMap<u64, u64>,
    /// How many collectives an interval launched: of several, nobody says which has how many bytes.
    launched: HashMap<u64, u32>,
    /// The end of a step's last launch.
    launched_by: HashMap<u64, i64>,
    /// Number of each device, by UUID, and how many kernels ran on it.
    devices: HashMap<Arc<str>, usize>,
    ran_on: Vec<u64>,
    kernels: Vec<(Option<u64>, SeenCollective)>,
    spans: Vec<SeenSpan>,
    /// From the first to the last copy of an interval that a host makes or gets.
    copied: HashMap<u64, Time>,
}

impl Reader {
    fn new(rank: &Rank) -> Self {
        Self { warmup: rank.manifest().warmup_requests(), ..Self::default() }
    }

    /// Takes records of the rank.
    fn add(&mut self, batch: &Batch) {
        let reading = &mut self.reading;
        for step in &batch.steps {
            reading.has_device |= step.gpu.is_some();
            let last = step.serves.iter().map(|served| served.request).max().or(step.request);
            if let (Some(phase), true) = (step.phase, last.is_none_or(|request| request > self.warmup)) {
                let (ns, start) = (signed(step.host_dur_ns), step.host_start.0);
                reading.steps.insert(step.step, TimedStep { phase: phase.as_str(), ns, start, launching: 0 });
            }
        }
        for span in &batch.spans {
            let Some(kind) = CollectiveKind::of_span(&span.path.name) else { continue };
            if let Some(bytes) = span.io_bytes {
                self.bytes_of.insert(span.seq, bytes);
            }
            // What was replayed was not entered.
            let Some((start, ns)) = span.host_time() else { continue };
            let end = start.0.saturating_add(signed(ns));
            let bytes = span.io_bytes;
            let on_device = span.gpu.map(|gpu| (gpu.start.0, gpu.start.0.saturating_add(signed(gpu.dur_ns))));
            let seen = SeenCollective { kind, step: span.step, start: start.0, end, bytes, device: None };
            self.spans.push((span.seq, seen, on_device));
        }
        for kernel in &batch.kernels {
            reading.has_device = true;
            reading.windows.extend(kernel.step);
            // A copy to the host waits for the device.
            if let (KernelKind::Kernel, Some(step), Some(launch)) = (kernel.kind, kernel.step, kernel.launch_start) {
                let end = launch.0.saturating_add(signed(kernel.launch_dur_ns.unwrap_or(0)));
                let last = self.launched_by.entry(step).or_insert(end);
                *last = end.max(*last);
            }
            let (start, end) = (kernel.gpu_start.0, kernel.gpu_start.0.saturating_add(signed(kernel.gpu_dur_ns)));
            let through_host = kernel.kind == KernelKind::Memcpy && matches!(&*kernel.name, "dtoh" | "htod");
            if let Some(seq) = kernel.seq.filter(|_| through_host) {
                let all = self.copied.entry(seq).or_insert((start, end));
                *all = (start.min(all.0), end.max(all.1));
            }
            let next = self.devices.len();
            let device = *self.devices.entry(kernel.device.clone()).or_insert(next);
            if device == reading.computing.len() {
                reading.computing.push(Vec::new());
                self.ran_on.push(0);
            }
            self.ran_on[device] += 1;
            match CollectiveKind::of_kernel(&kernel.name) {
                Some(kind) => {
                    if let Some(seq) = kernel.seq {
                        *self.launched.entry(seq).or_default() += 1;
                    }
                    let step = kernel.step;
                    self.kernels.push((
                        kernel.seq,
                        SeenCollective { kind, step, start, end, bytes: None, device: Some(device) },
                    ));
                }
                None if kernel.kind == KernelKind::Kernel => reading.computing[device].push((start, end)),
                None => {}
            }
        }
    }

    /// What is known when all of it was read.
    fn finish(self) -> Reading {
        let Self {
            mut reading, bytes_of, launched, launched_by, devices, ran_on, kernels, mut spans, mut copied, ..
        } = self;
        reading.device =
            devices.into_iter().max_by_key(|(uuid, device)| (ran_on[*device], uuid.clone())).map(|(uuid, _)| uuid);
        for (step, end) in launched_by {
            if let Some(took) = reading.steps.get_mut(&step) {
                took.launching = (end - took.start).clamp(0, took.ns);
            }
        }
        reading.computing.iter_mut().for_each(|intervals| *intervals = merged(std::mem::take(intervals)));
        reading.kernels = kernels
            .into_iter()
            .map(|(seq, mut seen)| {
                let alone = seq.filter(|seq| launched.get(seq) == Some(&1));
                seen.bytes = alone.and_then(|seq| bytes_of.get(&seq).copied());
                seen
            })
            .collect();
        // An interval within another, as a layer around an operation of its name, is the same collective.
        let thread_of = candlescope_schema::thread_of;
        spans.sort_by_key(|(seq, seen, _)| (thread_of(*seq), seen.start, -seen.end));
        for (seq, seen, on_device) in outermost(spans, &mut copied) {
            reading.has_device |= on_device.is_some();
            if on_device.is_none() {
                reading.untimed.extend(seen.step);
            }
            // What goes through the host is a copy from the device, an exchange, and a copy back. Where kernels were
            // recorded, the interval's time on the device is the sum of its copies only, and the host launches nothing
            // meanwhile.
            let copies = copied.get(&seq).copied();
            if let (Some(_), Some(took)) = (copies, seen.step.and_then(|step| reading.steps.get_mut(&step))) {
                took.launching = (took.launching - (seen.end - seen.start)).max(0);
            }
            let on_device = on_device.map(|(start, end)| match copies {
                Some((first, last)) => (start.min(first), end.max(last)),
                None => (start, end),
            });
            reading.on_device.extend(on_device.map(|(start, end)| SeenCollective { start, end, ..seen.clone() }));
            reading.on_host.push(seen);
        }
        for all in [&mut reading.kernels, &mut reading.on_device, &mut reading.on_host] {
            all.sort_by_key(|seen| seen.start);
        }
        reading
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Intervals without overlaps, in order.
pub(crate) fn merged(mut intervals: Vec<Time>) -> Vec<Time> {
    intervals.sort_unstable();
    let mut merged: Vec<Time> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Time of these intervals between two times.
fn overlap(busy: &[Time], from: i64, to: i64) -> i64 {
    let first = busy.partition_point(|(_, end)| *end <= from);
    let inside = busy[first..].iter().take_while(|(start, _)| *start < to);
    inside.map(|(start, end)| (*end).min(to) - (*start).max(from)).sum()
}

/// An interval that is a collective, by its number, with its time on the device.
type SeenSpan = (u64, SeenCollective, Option<Time>);

/// The intervals within no other one of the list, which is in the order of threads and starts; they get the copies of those
/// inside them.
fn outermost(spans: Vec<SeenSpan>, copied: &mut HashMap<u64, Time>) -> Vec<SeenSpan> {
    let mut kept: Vec<SeenSpan> = Vec::new();
    let thread_of = candlescope_schema::thread_of;
    for span in spans {
        let (seq, seen, _) = &span;
        let around = kept.last().filter(|(of, outer, _)| thread_of(*of) == thread_of(*seq) && seen.end <= outer.end);
        match around {
            None => kept.push(span),
            Some((outer, ..)) => {
                if let Some((first, last)) = copied.remove(seq) {
                    let all = copied.entry(*outer).or_insert((first, last));
                    *all = (first.min(all.0), last.max(all.1));
                }
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_count_once() {
        let busy = merged(vec![(20, 30), (0, 10), (5, 12)]);
        assert_eq!(busy, [(0, 12), (20, 30)]);
        assert_eq!((overlap(&busy, 8, 22), overlap(&busy, 12, 20), overlap(&busy, 0, 99)), (6, 0, 22));
    }

    #[test]
    fn copies_of_an_operation_are_those_of_the_layer_around_it() {
        let seen = |start, end| SeenCollective {
            kind: CollectiveKind::AllReduce,
            step: None,
            start,
            end,
            bytes: None,
            device: None,
        };
        let spans = [(1, seen(0, 100), None), (2, seen(10, 90), None), (3, seen(100, 200), None)];
        let mut copied = HashMap::from([(1, (5, 8)), (2, (20, 80)), (3, (120, 130))]);
        let kept: Vec<u64> = outermost(spans.into(), &mut copied).into_iter().map(|(seq, ..)| seq).collect();
        assert_eq!(kept, [1, 3]);
        assert_eq!(copied, HashMap::from([(1, (5, 80)), (3, (120, 130))]));
    }
}
