//! What a reading goes through: the monitor, and the file of rows.

use anyhow::Result;
use candlescope_monitor::{Monitor, Reading, Rows};

/// Everything that a reading goes through.
pub(super) struct WatchedReadings {
    pub(super) monitor: Monitor,
    pub(super) rows: Option<Rows>,
}

impl WatchedReadings {
    pub(super) fn take(&mut self, reading: Reading) -> Result<()> {
        self.monitor.push(reading);
        match &mut self.rows {
            Some(rows) => Ok(rows.add(&self.monitor)?),
            None => Ok(()),
        }
    }
}
