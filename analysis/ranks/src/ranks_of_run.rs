//! Ranks whose records are in one run, which is read once for all of them.

use super::rank::Rank;
use candlescope_reader::{Batches, Run};
use candlescope_schema::Batch;
use candlescope_schema::run::Finding;

/// The ranks whose records are in one run, in order: a process, or threads of one.
#[derive(Debug, Clone, Copy)]
pub struct RanksOfRun<'r>(&'r [Rank]);

impl<'r> RanksOfRun<'r> {
    /// These ranks by their runs, in order.
    pub(crate) fn each(ranks: &'r [Rank]) -> impl Iterator<Item = Self> {
        ranks.chunk_by(Rank::shares_run).map(Self)
    }

    /// The ranks; one or more.
    pub fn ranks(self) -> &'r [Rank] {
        self.0
    }

    /// Reads the run once, as `batches` of it, and hands what is a rank's own to `see`, with the rank's place among
    /// these: of each batch to all of them, in order. The answer is what is wrong with the run's files.
    ///
    /// A thread has its own numbers of steps. Kernels of threads that are no ranks go to the first rank that uses their
    /// device, without a step; intervals of such threads to none. Requests and samples, which are the process's, go to
    /// the first thread; call stacks and experiments to none.
    ///
    /// # Errors
    /// What `see` fails with, which ends the reading.
    pub fn read<E>(
        self,
        batches: impl FnOnce(&'r Run) -> Batches<'r>,
        mut see: impl FnMut(usize, Batch) -> Result<(), E>,
    ) -> Result<Vec<Finding>, E> {
        let Some(first) = self.0.first() else { return Ok(Vec::new()) };
        let mut batches = batches(first.run());
        for batch in batches.by_ref() {
            first.each_own(batch).into_iter().enumerate().try_for_each(|(place, own)| see(place, own))?;
        }
        Ok(batches.findings())
    }
}
