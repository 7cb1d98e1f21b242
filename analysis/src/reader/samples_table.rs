//! Rows of `RUN/samples` as records.

use super::columns::{FloatColumn, IntColumn, TextColumn, add, time as instant};
use super::intern::{Interner, forever};
use arrow_array::RecordBatch;
use candlescope_core::SampleRecord;

/// Adds the rows of a batch that `keep` selects; returns how many lack the values that a sample must have.
pub(super) fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<SampleRecord>) -> u64 {
    let (time, value) = (IntColumn::of(batch, "time_ns"), FloatColumn::of(batch, "value"));
    let text = |name| TextColumn::of(batch, name);
    let (device, metric, unit) = (text("device"), text("metric"), text("unit"));
    let devices = device.map_values(|name| interner.word(name));
    let metrics = metric.map_values(forever);
    let units = unit.map_values(forever);

    let row = |row: usize| -> Option<SampleRecord> {
        Some(SampleRecord::new(
            instant(time.get(row)?)?,
            devices.get(device.id(row) as usize)?.clone(),
            metrics.get(metric.id(row) as usize)?,
            value.get(row)?,
            units.get(unit.id(row) as usize)?,
        ))
    };
    add(into, keep, row)
}
