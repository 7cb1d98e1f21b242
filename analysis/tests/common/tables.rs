//! Writes records to Parquet with the columns of the run format.

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use candlescope_schema::run::{Column, ColumnType, columns};
use candlescope_schema::{Batch, GpuTime, RecordKind, UnrecordedStep};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// One value of a row.
pub enum Cell {
    Int(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
}

fn int<T: TryInto<i64>>(value: T) -> Cell {
    Cell::Int(value.try_into().ok())
}

fn maybe<T: TryInto<i64>>(value: Option<T>) -> Cell {
    Cell::Int(value.and_then(|v| v.try_into().ok()))
}

fn text(value: impl ToString) -> Cell {
    Cell::Text(Some(value.to_string()))
}

fn gpu_cell(gpu: Option<GpuTime>, name: &str) -> Cell {
    match name {
        "gpu_start_ns" => maybe(gpu.map(|g| g.start.0)),
        "gpu_dur_ns" => maybe(gpu.map(|g| g.dur_ns)),
        _ => Cell::Text(gpu.map(|g| g.source.to_string())),
    }
}

/// How strings are encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    Dictionary,
    Plain,
}

/// The value of a column for row `row` of a table.
pub fn cell(batch: &Batch, kind: RecordKind, row: usize, name: &str, run_id: &str) -> Cell {
    match name {
        "run_id" => return text(run_id),
        "host" => return text("bench"),
        "rank" => return int(0),
        _ => {}
    }
    match kind {
        RecordKind::Span => {
            let s = &batch.spans[row];
            match name {
                "seq" => int(s.seq),
                "parent_seq" => maybe(s.parent_seq),
                "trace_id" => text(s.trace_id),
                "span_id" => Cell::Int(Some(s.span_id.0 as i64)),
                "step" => maybe(s.step),
                "phase" => Cell::Text(s.phase.map(|p| p.to_string())),
                "path" => text(&s.path.path),
                "name" => text(&s.path.name),
                "target" => text(&s.path.target),
                "module" => Cell::Text(s.path.module.as_ref().map(ToString::to_string)),
                "depth" => int(s.depth),
                "thread" => text(&s.thread.name),
                "host_start_ns" => int(s.host_start.0),
                "host_dur_ns" => int(s.host_dur_ns),
                "flops" => maybe(s.flops),
                "bytes" => maybe(s.bytes),
                "tokens" => maybe(s.tokens),
                "context_len" => maybe(s.context_len),
                "batch" => maybe(s.batch),
                "dtype" => Cell::Text(s.dtype.map(|d| d.to_string())),
                "shape" => Cell::Text(s.shape.map(|d| d.to_string())),
                "flops_executed" => maybe(s.flops_executed),
                "io_bytes" => maybe(s.io_bytes),
                "cpu_ns" => maybe(s.cpu_ns),
                "preempted_ns" => maybe(s.preempted_ns),
                "blocked_ns" => maybe(s.blocked_ns),
                "page_faults" => maybe(s.page_faults),
                "derived" => maybe(s.derived.map(u8::from)),
                _ => gpu_cell(s.gpu, name),
            }
        }
        RecordKind::Step => {
            let s = &batch.steps[row];
            match name {
                "step" => int(s.step),
                "seq" => int(s.seq),
                "trace_id" => text(s.trace_id),
                "phase" => Cell::Text(s.phase.map(|p| p.to_string())),
                "request" => maybe(s.request),
                "path" => text(&s.path.path),
                "thread" => text(&s.thread.name),
                "host_start_ns" => int(s.host_start.0),
                "host_dur_ns" => int(s.host_dur_ns),
                "energy_mj" => Cell::Float(s.energy_mj),
                "tokens" => maybe(s.tokens),
                "context_len" => maybe(s.context_len),
                "batch" => maybe(s.batch),
                "flops" => maybe(s.flops),
                "bytes" => maybe(s.bytes),
                "intervals" => int(s.intervals),
                "intervals_lost" => maybe(s.intervals_lost),
                "new_tokens" => maybe(s.new_tokens),
                "context_sum" => maybe(s.context_sum),
                "sequences" => maybe(s.sequences),
                "flops_executed" => maybe(s.flops_executed),
                "io_bytes" => maybe(s.io_bytes),
                "module" => Cell::Text(s.path.module.as_ref().map(ToString::to_string)),
                "serves" => Cell::Text(candlescope_schema::Served::to_text(&s.serves)),
                "target" => Cell::Text(Some(s.path.target.to_string()).filter(|target| !target.is_empty())),
                "unrecorded" => Cell::Text(s.unrecorded.as_deref().map(UnrecordedStep::to_text)),
                "cpu_ns" => maybe(s.cpu_ns),
                "preempted_ns" => maybe(s.preempted_ns),
                "blocked_ns" => maybe(s.blocked_ns),
                "page_faults" => maybe(s.page_faults),
                "ran" => Cell::Text(s.ran.map(|ran| ran.as_str().to_string())),
                _ => gpu_cell(s.gpu, name),
            }
        }
        RecordKind::Request => {
            let r = &batch.requests[row];
            match name {
                "request" => int(r.request),
                "trace_id" => text(r.trace_id),
                "span_id" => Cell::Int(Some(r.span_id.0 as i64)),
                "operation" => text(&r.operation),
                "model" => text(&r.model),
                "host_start_ns" => int(r.host_start.0),
                "host_dur_ns" => int(r.host_dur_ns),
                "ttft_ns" => maybe(r.ttft_ns),
                "last_token_ns" => maybe(r.last_token_ns),
                "queue_ns" => maybe(r.queue_ns),
                "prompt_tokens" => maybe(r.prompt_tokens),
                "output_tokens" => maybe(r.output_tokens),
                "parent_span_id" => Cell::Int(r.parent_span_id.map(|id| id.0 as i64)),
                "caller_sampled" => Cell::Int(r.caller_sampled.map(i64::from)),
                "outcome" => Cell::Text(r.outcome.map(|o| o.to_string())),
                "perturbed" => Cell::Int(r.perturbed.map(i64::from)),
                "step_count" => maybe(r.step_count),
                "step_share_ns" => maybe(r.step_share_ns),
                "device_step_count" => maybe(r.device_step_count),
                "device_share_ns" => maybe(r.device_share_ns),
                "energy_mj" => Cell::Float(r.energy_mj),
                "energy_low_mj" => Cell::Float(r.energy_low_mj),
                "energy_high_mj" => Cell::Float(r.energy_high_mj),
                _ => maybe(r.batch),
            }
        }
        RecordKind::Sample => {
            let s = &batch.samples[row];
            match name {
                "time_ns" => int(s.time.0),
                "device" => text(&s.device),
                "metric" => text(s.metric),
                "value" => Cell::Float(Some(s.value)),
                _ => text(s.unit),
            }
        }
        RecordKind::Kernel => {
            let k = &batch.kernels[row];
            let axis = |v: Option<[u32; 3]>, i: usize| maybe(v.map(|v| u64::from(v[i])));
            match name {
                "seq" => maybe(k.seq),
                "span_id" => Cell::Int(k.span_id.map(|id| id.0 as i64)),
                "step" => maybe(k.step),
                "phase" => Cell::Text(k.phase.map(|p| p.to_string())),
                "path" => Cell::Text(k.path.as_ref().map(|p| p.path.clone())),
                "module" => Cell::Text(k.path.as_ref().and_then(|p| Some(p.module.as_ref()?.to_string()))),
                "kind" => text(k.kind),
                "name" => text(&k.name),
                "device" => text(&k.device),
                "stream" => int(k.stream),
                "gpu_start_ns" => int(k.gpu_start.0),
                "gpu_dur_ns" => int(k.gpu_dur_ns),
                "grid_x" => axis(k.grid, 0),
                "grid_y" => axis(k.grid, 1),
                "grid_z" => axis(k.grid, 2),
                "block_x" => axis(k.block, 0),
                "block_y" => axis(k.block, 1),
                "block_z" => axis(k.block, 2),
                "registers" => maybe(k.registers.map(u64::from)),
                "shared_static" => maybe(k.shared_static.map(u64::from)),
                "shared_dynamic" => maybe(k.shared_dynamic.map(u64::from)),
                "bytes" => maybe(k.bytes),
                "launch" => Cell::Text(k.launch.map(str::to_string)),
                "launch_start_ns" => Cell::Int(k.launch_start.map(|t| t.0)),
                "launch_dur_ns" => maybe(k.launch_dur_ns),
                "queue_delay_ns" => maybe(k.queue_delay_ns),
                "correlation" => int(k.correlation),
                "derived" => maybe(k.derived.map(u8::from)),
                _ => maybe(k.graph.map(u64::from)),
            }
        }
        RecordKind::Stack => {
            let s = &batch.stacks[row];
            let some = |text: &Option<Arc<str>>| Cell::Text(text.as_ref().map(ToString::to_string));
            match name {
                "stack" => int(s.stack),
                "parent" => maybe(s.parent),
                "depth" => int(s.depth),
                "function" => some(&s.function),
                "crate" => some(&s.crate_name),
                "file" => some(&s.file),
                "line" => maybe(s.line.map(u64::from)),
                "binary" => text(&s.binary),
                "build_id" => some(&s.build_id),
                "address" => Cell::Int(Some(s.address as i64)),
                _ => int(u64::from(s.inlined)),
            }
        }
        RecordKind::StackSample => {
            let s = &batch.stack_samples[row];
            match name {
                "time_ns" => int(s.time.0),
                "thread" => text(&s.thread.name),
                "tid" => int(s.tid),
                "state" => text(s.state),
                "weight_ns" => int(s.weight_ns),
                "stack" => maybe(s.stack),
                "kernel" => Cell::Int(s.kernel.map(i64::from)),
                "seq" => maybe(s.seq),
                "step" => maybe(s.step),
                "phase" => Cell::Text(s.phase.map(|p| p.to_string())),
                "path" => Cell::Text(s.path.as_ref().map(|p| p.path.clone())),
                "module" => Cell::Text(s.path.as_ref().and_then(|p| Some(p.module.as_ref()?.to_string()))),
                _ => int(u64::from(s.pool)),
            }
        }
        RecordKind::Perturbation => {
            let p = &batch.perturbations[row];
            match name {
                "target" => text(&p.target),
                "side" => text(p.side),
                "pair" => int(p.pair),
                "delayed" => int(u64::from(p.delayed)),
                "step" => int(p.step),
                "phase" => Cell::Text(p.phase.map(|p| p.to_string())),
                "name" => text(&p.name),
                "host_start_ns" => int(p.host_start.0),
                "host_dur_ns" => int(p.host_dur_ns),
                "period_ns" => maybe(p.period_ns),
                "intervals" => int(p.intervals),
                "interval_ns" => int(p.interval_ns),
                _ => int(p.added_ns),
            }
        }
    }
}

fn array(column: &Column, cells: Vec<Cell>, strings: Strings) -> ArrayRef {
    let ints = || cells.iter().map(|c| if let Cell::Int(v) = c { *v } else { None });
    let texts = || cells.iter().map(|c| if let Cell::Text(v) = c { v.as_deref() } else { None });
    match column.kind {
        ColumnType::Int64 => Arc::new(ints().collect::<Int64Array>()),
        ColumnType::Int32 => Arc::new(ints().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        ColumnType::Float64 => {
            let floats = cells.iter().map(|c| if let Cell::Float(v) = c { *v } else { None });
            Arc::new(floats.collect::<Float64Array>())
        }
        ColumnType::Utf8 if strings == Strings::Plain => Arc::new(texts().collect::<StringArray>()),
        ColumnType::Utf8 => Arc::new(texts().collect::<DictionaryArray<Int32Type>>()),
    }
}

/// Rows `rows` of a table as a record batch.
pub fn record_batch(
    batch: &Batch,
    kind: RecordKind,
    rows: std::ops::Range<usize>,
    run_id: &str,
    strings: Strings,
) -> RecordBatch {
    let arrays = columns(kind).iter().map(|column| {
        let cells = rows.clone().map(|row| cell(batch, kind, row, column.name, run_id)).collect();
        (column.name, array(column, cells, strings), true)
    });
    RecordBatch::try_from_iter_with_nullable(arrays).expect("columns of one length")
}

/// Writes one file as the exporter does.
pub fn write_file(path: &Path, rows: &RecordBatch) {
    write_compressed(path, rows, Compression::ZSTD(ZstdLevel::default()));
}

/// Writes one file as another tool might.
pub fn write_compressed(path: &Path, rows: &RecordBatch, compression: Compression) {
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = File::create(path).expect("the segment is made");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).expect("a writer");
    writer.write(rows).expect("rows are written");
    writer.close().expect("the footer is written");
}

/// Writes all tables that have rows.
pub fn write_all(dir: &Path, batch: &Batch, run_id: &str, rows_per_segment: usize) {
    for kind in RecordKind::ALL {
        let rows = batch.count(kind) as usize;
        let folder = dir.join(kind.table());
        if rows > 0 {
            std::fs::create_dir_all(&folder).expect("a folder for the table");
        }
        for (i, start) in (0..rows).step_by(rows_per_segment.max(1)).enumerate() {
            let range = start..rows.min(start + rows_per_segment);
            let batch = record_batch(batch, kind, range, run_id, Strings::Dictionary);
            write_file(&folder.join(format!("part-{i:05}.parquet")), &batch);
        }
    }
}
