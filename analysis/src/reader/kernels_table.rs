//! Rows of `RUN/kernels` as records.

use super::columns::{IntColumn, TextColumn, add, time, times};
use super::intern::{Interner, forever};
use arrow_array::RecordBatch;
use candlescope_core::{KernelKind, KernelRecord, PathInfo, Phase, SpanId};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Adds the rows of a batch that `keep` selects; returns how many lack the values that a kernel must have.
pub(super) fn rows(batch: &RecordBatch, interner: &mut Interner, keep: &[bool], into: &mut Vec<KernelRecord>) -> u64 {
    let int = |name| IntColumn::of(batch, name);
    let text = |name| TextColumn::of(batch, name);
    let (seq, span_id, step, stream) = (int("seq"), int("span_id"), int("step"), int("stream"));
    let (start, dur) = (int("gpu_start_ns"), int("gpu_dur_ns"));
    let grid = [int("grid_x"), int("grid_y"), int("grid_z")];
    let block = [int("block_x"), int("block_y"), int("block_z")];
    let (registers, shared_static, shared_dynamic) = (int("registers"), int("shared_static"), int("shared_dynamic"));
    let (bytes, launch_start, launch_dur) = (int("bytes"), int("launch_start_ns"), int("launch_dur_ns"));
    let (queue_delay, correlation, graph) = (int("queue_delay_ns"), int("correlation"), int("graph"));
    let (phase, path, kind) = (text("phase"), text("path"), text("kind"));
    let module = text("module");
    let (name, device, launch) = (text("name"), text("device"), text("launch"));

    let phases = phase.map_values(Phase::from_word);
    let kinds = kind.map_values(KernelKind::from_word);
    let names = name.map_values(|name| interner.word(name));
    let devices = device.map_values(|name| interner.word(name));
    let launches = launch.map_values(forever);
    let mut paths: FxHashMap<(u32, u32), Arc<PathInfo>> = FxHashMap::default();

    let row = |row: usize| -> Option<KernelRecord> {
        let path = path.get(row).map(|full| {
            let own = full.rsplit('/').next().unwrap_or_default();
            let own = own.split('[').next().unwrap_or_default();
            let id = (path.id(row), module.id(row));
            paths.entry(id).or_insert_with(|| interner.path(full, own, "", module.get(row))).clone()
        });
        let axes = |columns: &[IntColumn; 3]| -> Option<[u32; 3]> {
            Some([columns[0].small(row)?, columns[1].small(row)?, columns[2].small(row)?])
        };
        let when = times(start.get(row)?, dur.unsigned(row)?)?;
        let mut record = KernelRecord::new(
            kinds.get(kind.id(row) as usize).copied().flatten()?,
            names.get(name.id(row) as usize)?.clone(),
            devices.get(device.id(row) as usize)?.clone(),
            stream.small(row).unwrap_or(0),
            when.0,
            when.1,
            correlation.small(row).unwrap_or(0),
        );
        record.seq = seq.unsigned(row);
        record.span_id = span_id.get(row).map(|id| SpanId(id as u64));
        record.step = step.unsigned(row);
        record.phase = phases.get(phase.id(row) as usize).copied().flatten();
        record.path = path;
        record.grid = axes(&grid);
        record.block = axes(&block);
        record.registers = registers.small(row);
        record.shared_static = shared_static.small(row);
        record.shared_dynamic = shared_dynamic.small(row);
        record.bytes = bytes.unsigned(row);
        record.launch = launch.get(row).and_then(|_| launches.get(launch.id(row) as usize).copied());
        record.launch_start = launch_start.get(row).and_then(time);
        record.launch_dur_ns = launch_dur.unsigned(row);
        record.queue_delay_ns = queue_delay.unsigned(row);
        record.graph = graph.small(row);
        Some(record)
    };
    add(into, keep, row)
}
