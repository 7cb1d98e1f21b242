//! One record of each kind, with only the values that a test asks for.

use candlescope_core::run::{ExporterReport, LossCounts, RunManifest, SCHEMA_VERSION, Verdict};
use candlescope_core::{
    Batch, HostNs, KernelKind, KernelRecord, PathInfo, RecordKind, RequestRecord, SpanId, SpanRecord, StepRecord,
    ThreadInfo, TraceId,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Start of every synthetic run: 2026-01-31 12:00:00 UTC.
pub const T0: i64 = 1_769_860_800_000_000_000;

#[derive(Default)]
struct Paths {
    paths: HashMap<String, Arc<PathInfo>>,
    /// The number of the first of the paths that differ only in ordinals.
    rollups: HashMap<String, u32>,
}

/// A path as the pipeline would intern it: equal paths are the same object, and numbers are dense.
pub fn path(text: &str) -> Arc<PathInfo> {
    static KNOWN: LazyLock<Mutex<Paths>> = LazyLock::new(Mutex::default);
    let Paths { paths, rollups } = &mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = paths.get(text) {
        return path.clone();
    }
    let plain = |element: &str| match element.rfind('[') {
        Some(open) if element.ends_with(']') => element[..open].to_string(),
        _ => element.to_string(),
    };
    let names: Vec<String> = text.split('/').map(plain).collect();
    let (id, rollup) = (paths.len() as u32, names.join("/"));
    let made = Arc::new(PathInfo {
        id,
        path: text.to_string(),
        rollup_id: *rollups.entry(rollup.clone()).or_insert(id),
        rollup,
        name: names[names.len() - 1].as_str().into(),
        target: "candle_transformers::models::llama".into(),
        module: None,
    });
    paths.insert(text.to_string(), made.clone());
    made
}

/// A thread.
pub fn thread(index: u32, name: &str) -> Arc<ThreadInfo> {
    Arc::new(ThreadInfo { index, os_id: 4000 + u64::from(index), name: name.into() })
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

/// A request of `dur` ns at `start` ns after [`T0`].
pub fn request(number: u64, start: i64, dur: u64) -> RequestRecord {
    RequestRecord {
        request: number,
        trace_id: TraceId(u128::from(number)),
        span_id: SpanId(number),
        parent_span_id: None,
        caller_sampled: None,
        operation: "text_completion".into(),
        model: "smollm2-135m".into(),
        host_start: HostNs(T0 + start),
        host_dur_ns: dur,
        ttft_ns: None,
        last_token_ns: None,
        queue_ns: None,
        prompt_tokens: None,
        output_tokens: None,
        batch: None,
    }
}

/// A kernel of `dur` ns at `start` ns after [`T0`], without an interval.
pub fn kernel(device: &str, start: i64, dur: u64) -> KernelRecord {
    KernelRecord {
        kind: KernelKind::Kernel,
        name: "gemm".into(),
        seq: None,
        span_id: None,
        step: None,
        phase: None,
        path: None,
        device: device.into(),
        stream: 7,
        gpu_start: HostNs(T0 + start),
        gpu_dur_ns: dur,
        grid: None,
        block: None,
        registers: None,
        shared_static: None,
        shared_dynamic: None,
        bytes: None,
        launch: None,
        launch_start: None,
        launch_dur_ns: None,
        queue_delay_ns: None,
        correlation: 1,
        graph: None,
    }
}

/// A kernel that `span` launched as it began.
pub fn kernel_of(span: &SpanRecord, device: &str, dur: u64) -> KernelRecord {
    KernelRecord {
        seq: Some(span.seq),
        span_id: Some(span.span_id),
        step: span.step,
        phase: span.phase,
        path: Some(span.path.clone()),
        gpu_start: span.host_start,
        ..kernel(device, 0, dur)
    }
}

/// Several batches as one.
pub fn join(batches: impl IntoIterator<Item = Batch>) -> Batch {
    let mut all = Batch::default();
    for batch in batches {
        all.spans.extend(batch.spans);
        all.steps.extend(batch.steps);
        all.requests.extend(batch.requests);
        all.samples.extend(batch.samples);
        all.kernels.extend(batch.kernels);
    }
    all
}

/// A span of each of `n` paths.
pub fn many_paths(n: u32) -> Batch {
    let mut batch = Batch::default();
    batch.spans = (0..n).map(|id| span(0, None, &format!("decode/layer_{id}/linear"), 0, 40_000)).collect();
    batch
}

/// A manifest whose accounts agree with `batch`.
pub fn manifest(batch: &Batch) -> RunManifest {
    let counts: BTreeMap<String, u64> =
        RecordKind::ALL.iter().map(|&kind| (kind.table().to_string(), batch.count(kind))).collect();
    RunManifest {
        schema_version: SCHEMA_VERSION,
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
