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

/// The record after a change: records of the SDK take no struct update outside it.
pub fn with<T>(mut record: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut record);
    record
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
    let made = Arc::new(with(
        PathInfo::new(id, text.to_string(), names[names.len() - 1].as_str(), "candle_transformers::models::llama"),
        |r| {
            r.rollup_id = *rollups.entry(rollup.clone()).or_insert(id);
            r.rollup = rollup;
        },
    ));
    paths.insert(text.to_string(), made.clone());
    made
}

/// A thread.
pub fn thread(index: u32, name: &str) -> Arc<ThreadInfo> {
    Arc::new(ThreadInfo::new(index, 4000 + u64::from(index), name))
}

/// A span of `dur` ns at `start` ns after [`T0`], step 0, thread `main`.
pub fn span(seq: u64, parent: Option<u64>, text: &str, start: i64, dur: u64) -> SpanRecord {
    with(
        SpanRecord::new(seq, TraceId(7), SpanId(seq + 1), path(text), thread(1, "main"), HostNs(T0 + start), dur),
        |r| {
            r.parent_seq = parent;
            r.step = Some(0);
            r.depth = text.matches('/').count() as u16;
        },
    )
}

/// A step of `dur` ns at `start` ns after [`T0`] on thread `main`.
pub fn step(number: u64, name: &str, start: i64, dur: u64) -> StepRecord {
    with(StepRecord::new(number, number, TraceId(7), path(name), thread(1, "main"), HostNs(T0 + start), dur), |r| {
        r.intervals = 1;
        r.intervals_lost = Some(0);
    })
}

/// A request of `dur` ns at `start` ns after [`T0`].
pub fn request(number: u64, start: i64, dur: u64) -> RequestRecord {
    RequestRecord::new(
        number,
        TraceId(u128::from(number)),
        SpanId(number),
        "text_completion",
        "smollm2-135m",
        HostNs(T0 + start),
        dur,
    )
}

/// A kernel of `dur` ns at `start` ns after [`T0`], without an interval.
pub fn kernel(device: &str, start: i64, dur: u64) -> KernelRecord {
    KernelRecord::new(KernelKind::Kernel, "gemm", device, 7, HostNs(T0 + start), dur, 1)
}

/// A kernel that `span` launched as it began.
pub fn kernel_of(span: &SpanRecord, device: &str, dur: u64) -> KernelRecord {
    with(kernel(device, 0, dur), |r| {
        r.seq = Some(span.seq);
        r.span_id = Some(span.span_id);
        r.step = span.step;
        r.phase = span.phase;
        r.path = Some(span.path.clone());
        r.gpu_start = span.host_start;
    })
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
        all.stacks.extend(batch.stacks);
        all.stack_samples.extend(batch.stack_samples);
        all.perturbations.extend(batch.perturbations);
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
