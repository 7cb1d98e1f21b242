//! Makes realistic runs without a model: a decoder's prefill and decode steps with the tree of a small Llama, requests, samples.
//!
//! Everything is deterministic. Tables are written with arrow directly, not with the project's own writer, so that the reader is
//! held against the contract and not against one implementation of it.
#![allow(dead_code, unreachable_pub)]

pub mod scenario;
pub mod tables;

use candlescope_core::run::{ExporterReport, LossCounts, RunManifest, Verdict};
use candlescope_core::{Batch, HostNs, PathInfo, RecordKind, SpanId, SpanRecord, StepRecord, ThreadInfo, TraceId};
use std::path::Path;
use std::sync::Arc;

/// Start of every made-up run: 2026-01-31 12:00:00 UTC.
pub const T0: i64 = 1_769_860_800_000_000_000;

/// A path as the pipeline would intern it. The number follows from the rollup, so that equal rollups agree.
pub fn path(text: &str) -> Arc<PathInfo> {
    let rollup: String = text
        .split('/')
        .map(|e| match e.rfind('[') {
            Some(open) if e.ends_with(']') => &e[..open],
            _ => e,
        })
        .collect::<Vec<_>>()
        .join("/");
    let name = rollup.rsplit('/').next().unwrap_or_default().to_string();
    let number = |text: &str| text.bytes().fold(0x811c_9dc5u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    Arc::new(PathInfo {
        id: number(text),
        path: text.to_string(),
        rollup_id: number(&rollup),
        rollup,
        name: name.as_str().into(),
        target: "candle_transformers::models::llama".into(),
    })
}

pub fn thread(index: u32, name: &str) -> Arc<ThreadInfo> {
    Arc::new(ThreadInfo { index, os_id: 0, name: name.into() })
}

/// A span of `dur` ns at `start` ns after [`T0`], step 0, thread `main`.
pub fn span(seq: u64, parent: Option<u64>, text: &str, start: i64, dur: u64) -> SpanRecord {
    SpanRecord {
        seq,
        parent_seq: parent,
        trace_id: TraceId(7),
        span_id: SpanId(seq + 1),
        step: Some(0),
        phase: None,
        path: path(text),
        depth: text.matches('/').count() as u16,
        thread: thread(1, "main"),
        host_start: HostNs(T0 + start),
        host_dur_ns: dur,
        gpu: None,
        flops: None,
        bytes: None,
        tokens: None,
        context_len: None,
        batch: None,
        dtype: None,
        shape: None,
        flops_executed: None,
        io_bytes: None,
    }
}

/// A step of `dur` ns at `start` ns after [`T0`] on thread `main`.
pub fn step(number: u64, name: &str, start: i64, dur: u64) -> StepRecord {
    StepRecord {
        step: number,
        seq: number,
        trace_id: TraceId(7),
        phase: None,
        request: None,
        path: path(name),
        thread: thread(1, "main"),
        host_start: HostNs(T0 + start),
        host_dur_ns: dur,
        gpu: None,
        energy_mj: None,
        tokens: None,
        context_len: None,
        batch: None,
        flops: None,
        bytes: None,
        intervals: 1,
        intervals_lost: Some(0),
        new_tokens: None,
        context_sum: None,
        sequences: None,
        flops_executed: None,
        io_bytes: None,
    }
}

/// A manifest whose accounts agree with `batch`.
pub fn manifest(batch: &Batch) -> RunManifest {
    let counts: std::collections::BTreeMap<String, u64> =
        RecordKind::ALL.iter().map(|&kind| (kind.table().to_string(), batch.count(kind))).collect();
    RunManifest {
        schema_version: candlescope_core::run::SCHEMA_VERSION,
        run_id: "synthetic".to_string(),
        host: "bench".to_string(),
        started_ns: T0,
        ended_ns: Some(T0 + 1_000_000_000),
        complete: true,
        loss: LossCounts { emitted: batch.spans.len() as u64, ..LossCounts::default() },
        exporters: vec![ExporterReport {
            name: "parquet".to_string(),
            received: counts.clone(),
            exported: counts.clone(),
            ..ExporterReport::default()
        }],
        counts,
        verdict: Verdict { ok: true, findings: Vec::new() },
        ..RunManifest::default()
    }
}

/// Writes a whole run, `rows` rows to a segment.
pub fn write_run(dir: &Path, batch: &Batch, manifest: &RunManifest, rows: usize) {
    std::fs::create_dir_all(dir).expect("a directory for the run");
    tables::write_all(dir, batch, &manifest.run_id, rows);
    let text = serde_json::to_string_pretty(manifest).expect("a manifest is JSON");
    std::fs::write(dir.join(candlescope_core::run::MANIFEST_FILE), text).expect("run.json is written");
}
