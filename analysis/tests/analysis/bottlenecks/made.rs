//! Runs of equal steps, made kernel by kernel.

use crate::common::{T0, kernel, manifest, path, request, span, step, write_run};
use candlescope_figures::advice::{Advice, AdviceCode, Diagnosis, Missing};
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_reader::Run;
use candlescope_schema::run::{GpuAccount, KernelAccount, RunManifest};
use candlescope_schema::{Batch, HostNs, KernelKind, KernelRecord, Phase, SpanRecord, StepRecord};
use candlescope_testkit::with;
use candlescope_work::estimate::Estimate;
use serde_json::json;
use tempfile::TempDir;

/// The device of these runs.
pub(super) const DEVICE: &str = "GPU-1";
/// What `seq` of thread 1 begins with.
const THREAD: u64 = 1 << 40;
/// From one step's begin to the next one's, in nanoseconds.
const PERIOD: i64 = 100_000_000;
/// Steps of a run.
pub(super) const STEPS: u64 = 8;

/// A kernel or copy of a step. Times are nanoseconds from the step's begin.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) path: &'static str,
    pub(super) name: &'static str,
    pub(super) launch: i64,
    pub(super) launch_ns: u64,
    pub(super) start: i64,
    pub(super) ns: u64,
    /// Bytes of a copy; it is a kernel without.
    pub(super) copies: Option<u64>,
    /// Which of the path's intervals in the step launches it.
    pub(super) interval: u64,
    pub(super) stream: u32,
    pub(super) grid: u32,
}

/// A kernel launched at `launch`, running for `ns` from `start` on.
pub(super) fn piece(path: &'static str, name: &'static str, launch: i64, start: i64, ns: u64) -> Piece {
    let (launch_ns, copies, interval, stream, grid) = (1_000, None, 0, 7, 1);
    Piece { path, name, launch, launch_ns, start, ns, copies, interval, stream, grid }
}

/// The same kernels one after another, 1 µs apart on the device, all launched in time: 2 µs apart, from 2 µs on.
pub(super) fn queued(list: &[(&'static str, &'static str, u64, u64)]) -> Vec<Piece> {
    let mut at = 20_000;
    let one = |(nth, (path, name, ns, interval)): (usize, &(&'static str, &'static str, u64, u64))| {
        let made = Piece { interval: *interval, ..piece(path, name, 2_000 * (nth as i64 + 1), at, *ns) };
        at += *ns as i64 + 1_000;
        made
    };
    list.iter().enumerate().map(one).collect()
}

/// With a blocking copy of the result at the end, which takes 1 µs; returns the pieces, and when the step ends.
pub(super) fn with_result(mut pieces: Vec<Piece>) -> (Vec<Piece>, u64) {
    let launch = pieces.iter().map(|piece| piece.launch).max().unwrap_or(0) + 2_000;
    let start = pieces.iter().map(|piece| piece.start + piece.ns as i64).max().unwrap_or(0) + 1_000;
    let launch_ns = (start + 1_000 - launch) as u64;
    let copy = piece("decode/sample", "dtoh", launch, start, 1_000);
    pieces.push(Piece { launch_ns, copies: Some(4), ..copy });
    (pieces, (start + 2_000) as u64)
}

/// A step's records.
fn one_step(batch: &mut Batch, number: u64, pieces: &[Piece], dur_ns: u64) {
    let begin = number as i64 * PERIOD;
    let seq = THREAD + number * 1_000_000;
    let on_step = |r: &mut SpanRecord| {
        r.step = Some(number);
        r.phase = Some(Phase::Decode);
    };
    batch.spans.push(with(span(seq, None, "decode", begin, dur_ns), on_step));
    batch.steps.push(decode(number, begin, dur_ns, 100 + number as u32));
    let mut intervals: Vec<(&str, u64, u64)> = Vec::new();
    for piece in pieces {
        let known = intervals.iter().find(|known| (known.0, known.1) == (piece.path, piece.interval));
        let own = known.map_or(seq + 1 + intervals.len() as u64, |known| known.2);
        if known.is_none() {
            intervals.push((piece.path, piece.interval, own));
            batch.spans.push(with(span(own, Some(seq), piece.path, begin + piece.launch, 10), on_step));
        }
        batch.kernels.push(record(piece, number, begin, own, batch.kernels.len() as u32));
    }
}

/// A decoding step after which the context is `context`.
pub(super) fn decode(number: u64, begin: i64, dur_ns: u64, context: u32) -> StepRecord {
    with(step(number, "decode", begin, dur_ns), |r| {
        r.seq = THREAD + number * 1_000_000;
        r.phase = Some(Phase::Decode);
        r.request = Some(1);
        r.tokens = Some(1);
        r.context_len = Some(context);
        r.batch = Some(1);
    })
}

fn record(piece: &Piece, step: u64, begin: i64, seq: u64, nth: u32) -> KernelRecord {
    with(kernel(DEVICE, begin + piece.start, piece.ns), |r| {
        r.seq = Some(seq);
        r.step = Some(step);
        r.phase = Some(Phase::Decode);
        r.path = Some(path(piece.path));
        r.name = piece.name.into();
        r.stream = piece.stream;
        r.launch = Some("cuLaunchKernel");
        r.launch_start = Some(HostNs(T0 + begin + piece.launch));
        r.launch_dur_ns = Some(piece.launch_ns);
        r.correlation = nth + 1;
        if piece.copies.is_some() {
            (r.kind, r.bytes) = (KernelKind::Memcpy, piece.copies);
        } else {
            (r.grid, r.block, r.registers) = (Some([piece.grid, 1, 1]), Some([1024, 1, 1]), Some(32));
        }
    })
}

/// A run of equal steps on a GPU: a measured bandwidth of 1 TB/s, 10 TFLOP/s in bf16.
pub(super) fn gpu_run(pieces: &[Piece], dur_ns: u64) -> (Batch, RunManifest) {
    gpu_run_of(STEPS, pieces, dur_ns)
}

/// The same of so many steps.
pub(super) fn gpu_run_of(steps: u64, pieces: &[Piece], dur_ns: u64) -> (Batch, RunManifest) {
    let mut batch = Batch::default();
    (0..steps).for_each(|number| one_step(&mut batch, number, pieces, dur_ns));
    let mut manifest = manifest(&batch);
    let kernels = KernelAccount { clock_bound_ns: Some(0), ..KernelAccount::default() };
    manifest.gpu = Some(GpuAccount { kernels: Some(kernels), ..GpuAccount::default() });
    manifest.options.insert("device".into(), "cuda:0".into());
    manifest.model.insert("dtype".into(), "bf16".into());
    manifest
        .environment
        .insert("gpus".into(), json!([{ "uuid": DEVICE, "name": "Example", "compute_capability": "9.0" }]));
    manifest.environment.insert("measured_peaks".into(), measured_peaks(1e13, 1e12));
    (batch, manifest)
}

/// Peaks that were measured, in FLOP/s of f32 and bf16, and B/s.
pub(super) fn measured_peaks(flops: f64, bandwidth: f64) -> serde_json::Value {
    json!([
        { "kind": "flops", "value": flops, "label": "measured", "source": "test", "dtype": "bf16" },
        { "kind": "flops", "value": flops, "label": "measured", "source": "test", "dtype": "f32" },
        { "kind": "bandwidth", "value": bandwidth, "label": "measured", "source": "test" },
    ])
}

/// A request around all steps.
pub(super) fn one_request(batch: &Batch) -> candlescope_schema::RequestRecord {
    let last = batch.steps.last().expect("a step");
    let end = last.host_start.0 - T0 + last.host_dur_ns as i64;
    with(request(1, 0, end as u64), |r| {
        r.ttft_ns = Some(1);
        r.output_tokens = Some(batch.steps.len() as u64);
    })
}

/// A run on disk and what was found in it.
pub(super) struct Diagnosed {
    pub(super) dir: TempDir,
    pub(super) diagnosis: Diagnosis,
}

pub(super) fn diagnose((batch, manifest): &(Batch, RunManifest)) -> Diagnosed {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), batch, manifest, 100_000);
    let diagnosis = analyze(&Run::open(dir.path()).unwrap(), &AnalyzeOptions::default()).analysis.diagnosis.unwrap();
    Diagnosed { dir, diagnosis }
}

impl Diagnosed {
    /// The findings of one kind.
    pub(super) fn all(&self, code: AdviceCode) -> Vec<&Advice> {
        self.diagnosis.findings.iter().filter(|advice| advice.code == code).collect()
    }

    /// The one finding of its kind.
    #[track_caller]
    pub(super) fn one(&self, code: AdviceCode) -> &Advice {
        match self.all(code)[..] {
            [one] => one,
            ref list => panic!("{} × {code} among {:#?}", list.len(), self.codes()),
        }
    }

    pub(super) fn codes(&self) -> Vec<String> {
        let line = |one: &Advice| format!("{} {:?} {:?}", one.code, one.place, one.gain);
        self.diagnosis.findings.iter().map(line).collect()
    }

    #[track_caller]
    pub(super) fn none(&self, code: AdviceCode) {
        assert!(self.all(code).is_empty(), "{:#?}", self.codes());
    }

    /// What it lacks.
    pub(super) fn lacks(&self, code: AdviceCode) -> Option<Missing> {
        self.diagnosis.abstained.iter().find(|abstention| abstention.code == code).map(|abstention| abstention.missing)
    }
}

/// Checks a gain against the shares of a step that are right, within `within`.
#[track_caller]
pub(super) fn near(gain: Estimate, low: f64, mid: f64, high: f64, within: f64) {
    for (is, right) in [(gain.low, low), (gain.mid, mid), (gain.high, high)] {
        assert!((is - right).abs() <= within, "{gain:?} is not {low:.4}, {mid:.4}, {high:.4}");
    }
}
