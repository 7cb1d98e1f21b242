//! Kernels of a launch of a graph of which no node's interval is known.

use crate::gpu::RawKernel;

/// Launches whose kernels may come in turns.
const MOST_OPEN: usize = 64;

/// The kernels of one launch of a graph, of which no node's interval is known.
#[derive(Debug)]
pub(super) struct UnplacedKernels {
    /// The interval that launched it, by its index in the batch.
    pub(super) launcher: usize,
    pub(super) graph: u32,
    pub(super) kernels: Vec<RawKernel>,
}

impl UnplacedKernels {
    /// Puts a kernel to the others of its launch.
    pub(super) fn put(all: &mut Vec<Self>, launcher: usize, graph: u32, kernel: RawKernel) {
        let is_same = |one: &&mut Self| {
            let launch = one.kernels.first().map(|first| first.correlation);
            (one.launcher, one.graph, launch) == (launcher, graph, Some(kernel.correlation))
        };
        // The kernels of a launch come one after the other, those of an interval after those of the one before.
        match all.iter_mut().rev().take(MOST_OPEN).take_while(|one| one.launcher == launcher).find(is_same) {
            Some(one) => one.kernels.push(kernel),
            None => all.push(Self { launcher, graph, kernels: vec![kernel] }),
        }
    }
}
