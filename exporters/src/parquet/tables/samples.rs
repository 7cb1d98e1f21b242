//! `RUN/samples`: one row per sample of a metric.

use super::{RunColumns, Table, rendered, text};
use crate::parquet::chunk::ColumnData;
use crate::parquet::column::{KeyColumn, ValueColumn};
use crate::parquet::dictionary::{TextDict, ValueDict};
use candlescope_core::{RecordKind, SampleRecord};

/// Samples of the next row group.
#[derive(Default)]
pub(in crate::parquet) struct Samples {
    time: ValueColumn<i64>,
    device: KeyColumn,
    devices: TextDict,
    metric: KeyColumn,
    metrics: ValueDict<&'static str>,
    value: ValueColumn<f64>,
    unit: KeyColumn,
    units: ValueDict<&'static str>,
}

impl Table for Samples {
    type Record = SampleRecord;
    const KIND: RecordKind = RecordKind::Sample;

    fn push(&mut self, sample: &SampleRecord) {
        self.time.push(sample.time.0);
        self.device.push(self.devices.key(&sample.device));
        self.metric.push(self.metrics.key(0, Some(sample.metric)));
        self.value.push(sample.value);
        self.unit.push(self.units.key(0, Some(sample.unit)));
    }

    fn rows(&self) -> usize {
        self.time.len()
    }

    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
        let mut columns = run.columns(self.rows());
        columns.extend([
            ColumnData::Int64(&self.time),
            text(&self.device, self.devices.values()),
            rendered(&self.metric, &self.metrics),
            ColumnData::Float64(&self.value),
            rendered(&self.unit, &self.units),
        ]);
        columns
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn memory(&self) -> usize {
        self.rows() * 40
    }
}
