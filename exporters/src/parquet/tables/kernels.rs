//! `RUN/kernels`: one row per kernel, copy or memset.

use super::{RunColumns, Table, rendered, text};
use crate::parquet::chunk::{ColumnData, signed};
use crate::parquet::column::{KeyColumn, NULL, ValueColumn};
use crate::parquet::dictionary::{PathDict, TextDict, ValueDict};
use candlescope_core::{KernelKind, KernelRecord, Phase, RecordKind};

/// Kernels of the next row group.
#[derive(Default)]
pub(in crate::parquet) struct Kernels {
    seq: ValueColumn<i64>,
    span_id: ValueColumn<i64>,
    step: ValueColumn<i64>,
    phase: KeyColumn,
    phases: ValueDict<Phase>,
    path: KeyColumn,
    paths: PathDict,
    kind: KeyColumn,
    kinds: ValueDict<KernelKind>,
    name: KeyColumn,
    names: TextDict,
    device: KeyColumn,
    devices: TextDict,
    stream: ValueColumn<i64>,
    gpu_start: ValueColumn<i64>,
    gpu_dur: ValueColumn<i64>,
    grid: [ValueColumn<i64>; 3],
    block: [ValueColumn<i64>; 3],
    registers: ValueColumn<i64>,
    shared_static: ValueColumn<i64>,
    shared_dynamic: ValueColumn<i64>,
    bytes: ValueColumn<i64>,
    launch: KeyColumn,
    launches: ValueDict<&'static str>,
    launch_start: ValueColumn<i64>,
    launch_dur: ValueColumn<i64>,
    queue_delay: ValueColumn<i64>,
    correlation: ValueColumn<i64>,
    graph: ValueColumn<i64>,
}

impl Table for Kernels {
    type Record = KernelRecord;
    const KIND: RecordKind = RecordKind::Kernel;

    fn push(&mut self, kernel: &KernelRecord) {
        self.seq.push_opt(kernel.seq.map(signed));
        self.span_id.push_opt(kernel.span_id.map(|id| id.0 as i64));
        self.step.push_opt(kernel.step.map(signed));
        self.phase.push(self.phases.key(0, kernel.phase));
        self.path.push(kernel.path.as_ref().map_or(NULL, |path| self.paths.key(path)));
        self.kind.push(self.kinds.key(0, Some(kernel.kind)));
        self.name.push(self.names.key(&kernel.name));
        self.device.push(self.devices.key(&kernel.device));
        self.stream.push(i64::from(kernel.stream));
        self.gpu_start.push(kernel.gpu_start.0);
        self.gpu_dur.push(signed(kernel.gpu_dur_ns));
        for axis in 0..3 {
            self.grid[axis].push_opt(kernel.grid.map(|g| i64::from(g[axis])));
            self.block[axis].push_opt(kernel.block.map(|b| i64::from(b[axis])));
        }
        self.registers.push_opt(kernel.registers.map(i64::from));
        self.shared_static.push_opt(kernel.shared_static.map(i64::from));
        self.shared_dynamic.push_opt(kernel.shared_dynamic.map(i64::from));
        self.bytes.push_opt(kernel.bytes.map(signed));
        self.launch.push(self.launches.key(0, kernel.launch));
        self.launch_start.push_opt(kernel.launch_start.map(|t| t.0));
        self.launch_dur.push_opt(kernel.launch_dur_ns.map(signed));
        self.queue_delay.push_opt(kernel.queue_delay_ns.map(signed));
        self.correlation.push(i64::from(kernel.correlation));
        self.graph.push_opt(kernel.graph.map(i64::from));
    }

    fn rows(&self) -> usize {
        self.stream.len()
    }

    fn columns<'a>(&'a self, run: &'a RunColumns) -> Vec<ColumnData<'a>> {
        let mut columns = run.columns(self.rows());
        columns.extend([
            ColumnData::Int64(&self.seq),
            ColumnData::Int64(&self.span_id),
            ColumnData::Int64(&self.step),
            rendered(&self.phase, &self.phases),
            text(&self.path, self.paths.values()),
            rendered(&self.kind, &self.kinds),
            text(&self.name, self.names.values()),
            text(&self.device, self.devices.values()),
            ColumnData::Int64(&self.stream),
            ColumnData::Int64(&self.gpu_start),
            ColumnData::Int64(&self.gpu_dur),
        ]);
        columns.extend(self.grid.iter().chain(&self.block).map(ColumnData::Int64));
        columns.extend([
            ColumnData::Int64(&self.registers),
            ColumnData::Int64(&self.shared_static),
            ColumnData::Int64(&self.shared_dynamic),
            ColumnData::Int64(&self.bytes),
            rendered(&self.launch, &self.launches),
            ColumnData::Int64(&self.launch_start),
            ColumnData::Int64(&self.launch_dur),
            ColumnData::Int64(&self.queue_delay),
            ColumnData::Int64(&self.correlation),
            ColumnData::Int64(&self.graph),
        ]);
        columns
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn memory(&self) -> usize {
        self.rows() * 250
    }
}
