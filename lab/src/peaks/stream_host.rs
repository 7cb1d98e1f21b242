//! Bandwidth of a machine's memory: loops over arrays that are larger than its caches, by all threads.
//!
//! The loops are those of STREAM [McCalpin, <https://www.cs.virginia.edu/stream>] with reading and writing alone added.
//! As there, bytes are those that the loop names: that a cache reads a line before it is written is not counted.

use super::record::arrays_of;
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use candlescope_work::devices::PeakKind;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Values that are added up independently, so that the processor can use its vectors.
const LANES: usize = 16;
/// The factor of the triad.
const FACTOR: f64 = 3.0;

/// Three arrays of `elements` 8-byte floats, and one loop over them.
pub(super) struct HostStream {
    id: CaseId,
    kind: PeakKind,
    elements: usize,
    threads: usize,
    arrays: Option<[Vec<f64>; 3]>,
}

impl HostStream {
    pub(super) fn new(id: CaseId, kind: PeakKind, elements: usize, threads: usize) -> Self {
        Self { id, kind, elements, threads: threads.max(1), arrays: None }
    }

    /// Bytes that the loop reads and writes.
    fn bytes(&self) -> u64 {
        arrays_of(self.kind) * 8 * self.elements as u64
    }
}

impl Case for HostStream {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        let mut arrays = [(); 3].map(|()| vec![0.0; self.elements]);
        // Each thread touches its part first, so that on a machine of several sockets it lies in that thread's memory.
        pass(&mut arrays, self.threads, |part| {
            part.a.fill(1.0);
            part.b.fill(2.0);
            part.c.fill(0.5);
        });
        self.arrays = Some(arrays);
        Ok(())
    }

    fn run(&mut self, _: Mode) -> Result<Measurement, CaseError> {
        let Some(arrays) = &mut self.arrays else {
            return Err(CaseError::Failed("it was not prepared".to_string()));
        };
        let ns = match self.kind {
            PeakKind::Read => pass(arrays, self.threads, |part| {
                black_box(sum(part.a));
            }),
            PeakKind::Write => pass(arrays, self.threads, |part| part.a.fill(black_box(4.0))),
            PeakKind::Copy => pass(arrays, self.threads, |part| part.c.copy_from_slice(part.a)),
            _ => pass(arrays, self.threads, |part| {
                for ((a, b), c) in part.a.iter_mut().zip(part.b.iter()).zip(part.c.iter()) {
                    *a = *b + FACTOR * *c;
                }
            }),
        };
        Ok(Measurement::new(ns).figure("value", self.bytes() as f64 / (ns as f64 / 1e9)))
    }

    fn release(&mut self) {
        self.arrays = None;
    }
}

/// A thread's part of the arrays.
struct Part<'a> {
    a: &'a mut [f64],
    b: &'a mut [f64],
    c: &'a mut [f64],
}

/// Runs `work` on all parts at once; nanoseconds from the moment that all threads are there until all are done.
fn pass(arrays: &mut [Vec<f64>; 3], threads: usize, work: impl Fn(&mut Part<'_>) + Sync) -> u64 {
    let [a, b, c] = arrays;
    let each = a.len().div_ceil(threads).max(1);
    let parts = a.chunks_mut(each).zip(b.chunks_mut(each)).zip(c.chunks_mut(each));
    let mut parts: Vec<Part<'_>> = parts.map(|((a, b), c)| Part { a, b, c }).collect();
    let Some(mut own) = parts.pop() else { return 1 };
    let (begin, end) = (Barrier::new(parts.len() + 1), Barrier::new(parts.len() + 1));
    thread::scope(|scope| {
        for mut part in parts {
            let (begin, end, work) = (&begin, &end, &work);
            scope.spawn(move || {
                begin.wait();
                work(&mut part);
                end.wait();
            });
        }
        begin.wait();
        let began = Instant::now();
        work(&mut own);
        end.wait();
        began.elapsed().as_nanos().max(1) as u64
    })
}

fn sum(values: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest: f64 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_worked_on_once() {
        for threads in [1, 2, 3, 7] {
            let mut case = HostStream::new(CaseId::new("t"), PeakKind::Triad, 100, threads);
            case.prepare().unwrap();
            let measured = case.run(Mode::Plain).unwrap();
            assert_eq!(case.arrays.as_ref().unwrap()[0], vec![2.0 + 3.0 * 0.5; 100]);
            let value = measured.figures["value"];
            assert!((value - 2400.0 / (measured.host_ns as f64 / 1e9)).abs() < 1e-6 * value);
            let mut copy = HostStream::new(CaseId::new("t"), PeakKind::Copy, 100, threads);
            copy.prepare().unwrap();
            copy.run(Mode::Plain).unwrap();
            assert_eq!(copy.arrays.as_ref().unwrap()[2], vec![1.0; 100]);
        }
        assert_eq!(sum(&(0..100).map(f64::from).collect::<Vec<_>>()), 4950.0);
    }
}
