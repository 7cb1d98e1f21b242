//! What a case is.

use anyhow::Result;

/// One way of instrumenting the work.
pub trait Case {
    /// The timed part: one burst of [`PAIRS`](crate::work::PAIRS) enters and exits.
    fn burst(&self);

    /// After a burst, outside of the timed part: waits until what the burst recorded has left the application's thread,
    /// so that no queue is ever full and no case drops what the others keep.
    ///
    /// # Errors
    /// If it does not leave in time.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// At the end; fails if anything that should have been recorded was not.
    ///
    /// # Errors
    /// If records are missing.
    fn finish(self: Box<Self>, _bursts: u64) -> Result<()> {
        Ok(())
    }
}
