//! What is needed of each rank's run.

use super::collective::CollectiveKind;
use candlescope_reader::Run;
use candlescope_schema::run::Finding;
use candlescope_schema::{KernelKind, RecordKind};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A collective as one rank saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) kind: CollectiveKind,
    pub(crate) step: Option<u64>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) bytes: Option<u64>,
    /// Time within it in which the same device computed; none on a host.
    pub(crate) hidden: i64,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Took {
    pub(crate) phase: String,
    pub(crate) ns: i64,
}

/// One rank.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Measured steps by number.
    pub(crate) steps: BTreeMap<u64, Took>,
    /// Collectives as intervals of the host.
    pub(crate) on_host: Vec<Seen>,
    /// Collectives as kernels.
    pub(crate) on_device: Vec<Seen>,
    pub(crate) findings: Vec<Finding>,
}

impl Reading {
    pub(crate) fn of(run: &Run) -> Self {
        let mut reading = Self::default();
        let warmup = run.manifest().map_or(0, |manifest| manifest.warmup_requests());
        let mut bytes_of: HashMap<u64, u64> = HashMap::new();
        let mut computing: HashMap<Arc<str>, Vec<(i64, i64)>> = HashMap::new();
        let mut kernels: Vec<(Arc<str>, Option<u64>, Seen)> = Vec::new();
        let mut batches = run.batches().of_tables(&[RecordKind::Step, RecordKind::Span, RecordKind::Kernel]);
        for batch in batches.by_ref() {
            for step in &batch.steps {
                let warm = step.request.is_none_or(|request| request > warmup);
                if let (Some(phase), true) = (step.phase, warm) {
                    let took = Took { phase: phase.as_str().to_string(), ns: signed(step.host_dur_ns) };
                    reading.steps.insert(step.step, took);
                }
            }
            for span in &batch.spans {
                let Some(kind) = CollectiveKind::of_span(&span.path.name) else { continue };
                let bytes = span.io_bytes.or(span.bytes);
                bytes.map(|bytes| bytes_of.insert(span.seq, bytes));
                // What was replayed was not entered.
                let Some((start, ns)) = span.host_time() else { continue };
                let end = start.0 + signed(ns);
                reading.on_host.push(Seen { kind, step: span.step, start: start.0, end, bytes, hidden: 0 });
            }
            for kernel in &batch.kernels {
                let (start, end) = (kernel.gpu_start.0, kernel.gpu_start.0 + signed(kernel.gpu_dur_ns));
                match CollectiveKind::of_kernel(&kernel.name) {
                    Some(kind) => {
                        let seen = Seen { kind, step: kernel.step, start, end, bytes: None, hidden: 0 };
                        kernels.push((kernel.device.clone(), kernel.seq, seen));
                    }
                    None if kernel.kind == KernelKind::Kernel => {
                        computing.entry(kernel.device.clone()).or_default().push((start, end));
                    }
                    None => {}
                }
            }
        }
        let computing: HashMap<Arc<str>, Vec<(i64, i64)>> =
            computing.into_iter().map(|(device, intervals)| (device, merged(intervals))).collect();
        reading.on_device = kernels
            .into_iter()
            .map(|(device, seq, mut seen)| {
                seen.bytes = seq.and_then(|seq| bytes_of.get(&seq).copied());
                seen.hidden = computing.get(&device).map_or(0, |busy| overlap(busy, seen.start, seen.end));
                seen
            })
            .collect();
        reading.on_host.sort_by_key(|seen| seen.start);
        reading.on_device.sort_by_key(|seen| seen.start);
        reading.findings = batches.findings();
        reading
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Intervals without overlaps, in order.
fn merged(mut intervals: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    intervals.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
    for (start, end) in intervals {
        match merged.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Time of these intervals between two times.
fn overlap(busy: &[(i64, i64)], from: i64, to: i64) -> i64 {
    let first = busy.partition_point(|(_, end)| *end <= from);
    let inside = busy[first..].iter().take_while(|(start, _)| *start < to);
    inside.map(|(start, end)| (*end).min(to) - (*start).max(from)).sum()
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
}
