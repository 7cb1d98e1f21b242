//! Batches → JSON trace events. Pure.
//!
//! Format: "Trace Event Format", <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use crate::kernel_tracks::{self, CallPlace, KernelTracks, kernel_name, kernel_numbers, kernel_words, span_numbers};
use crate::nesting::{Edge, crossing, edges};
use crate::step_runs::StepRuns;
use crate::trace_file::{LiveFormat, TraceFormat};
use candlescope_core::run::{RunManifest, env_key, model_key};
use candlescope_core::{Batch, KernelRecord, SpanRecord, thread_of};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Converts the batches of one run.
#[derive(Debug)]
pub struct Chrome {
    pid: u64,
    process_name: String,
    other: Map<String, Value>,
    /// Unix time that is zero in the file.
    origin: Option<i64>,
    /// Thread numbers that have their name.
    named: HashSet<u64>,
    /// Whether an event was written before, so that a comma is needed.
    started: bool,
    kernels: KernelTracks,
    runs: StepRuns,
    /// Product names by UUID.
    gpus: HashMap<String, (u64, String)>,
    /// Track of each thread's intervals, by the thread's number.
    tids: HashMap<u64, u64>,
    /// Track of each thread whose launch calls came before its intervals.
    called: HashMap<u64, u64>,
}

/// Thread numbers of device tracks start here, above any thread's.
const GPU_THREADS: u64 = 1 << 32;
/// Thread numbers of streams start here.
const STREAMS: u64 = 1 << 33;
/// Threads that are known by their launch calls only, so far, start here.
const UNNAMED: u64 = 100_000;
/// Tracks of launch calls outside every interval start here.
const OUTSIDE: u64 = 1 << 34;

impl TraceFormat for Chrome {
    const FOOTER: &'static [u8] = b"\n]}\n";

    fn new(run: &RunManifest) -> Self {
        let model = model_key::NAME.of(&run.model);
        let other = json!({
            "tool": concat!("candlescope ", env!("CARGO_PKG_VERSION")),
            "run_id": run.run_id,
            "host": run.host,
            "rank": run.rank,
            "origin_unix_ns": run.started_ns,
        });
        Self {
            pid: env_key::PID.of(&run.environment).unwrap_or(1),
            process_name: format!("candlescope {}", model.unwrap_or(&run.run_id)),
            other: other.as_object().cloned().unwrap_or_default(),
            origin: (run.started_ns > 0).then_some(run.started_ns),
            named: HashSet::new(),
            started: false,
            kernels: KernelTracks::default(),
            runs: StepRuns::default(),
            gpus: kernel_tracks::gpus(run),
            tids: HashMap::new(),
            called: HashMap::new(),
        }
    }

    fn header(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"displayTimeUnit\":\"ns\",\"otherData\":");
        put(out, &Value::Object(self.other.clone()));
        out.extend_from_slice(b",\"traceEvents\":[");
        self.event(out, "M", "process_name", 0);
        out.extend_from_slice(b",\"args\":{\"name\":");
        put(out, &self.process_name);
        out.extend_from_slice(b"}}");
    }

    fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let first = batch.spans.iter().map(|s| s.host_start.0).chain(batch.requests.iter().map(|r| r.host_start.0));
        let first = first.chain(batch.samples.iter().map(|s| s.time.0));
        let first = first.chain(batch.kernels.iter().map(|k| k.launch_start.unwrap_or(k.gpu_start).0)).min();
        self.origin = self.origin.or(first);
        self.kernels.expect(batch);
        self.runs.add(batch);

        for edge in edges(&batch.spans, |s| s.host_time().map(|(start, ns)| (start.0, ns))) {
            if let Edge::Begin { index, start, end } = edge {
                let span = &batch.spans[index];
                let tid = self.thread(out, span, false);
                self.slice(out, span, tid, start, end);
                if self.kernels.begins_arrow(span.seq) {
                    self.arrow(out, "s", kernel_tracks::arrow_of_interval(span.seq), tid, start);
                }
            }
        }
        for edge in edges(&batch.spans, |s| s.gpu.map(|g| (g.start.0, g.dur_ns))) {
            if let Edge::Begin { index, start, end } = edge {
                let tid = self.thread(out, &batch.spans[index], true);
                self.slice(out, &batch.spans[index], tid, start, end);
            }
        }
        self.runs.drawn(batch);
        for range in crossing(&batch.spans) {
            let end = range.host_start.plus_ns(range.host_dur_ns);
            for (ph, time) in [("b", range.host_start.0), ("e", end.0)] {
                let tid = self.thread(out, range, false);
                self.event(out, ph, &range.path.name, tid);
                self.time(out, "ts", time);
                // Writing to a vector does not fail, here and below.
                let _ = write!(out, ",\"cat\":\"start_end\",\"id\":{}", range.seq);
                if ph == "b" {
                    out.extend_from_slice(b",\"args\":");
                    put(out, &json!({"target": &*range.path.target, "began_in": range.parent_seq}));
                }
                out.push(b'}');
            }
        }
        for request in &batch.requests {
            let name = format!("{} {}", request.operation, request.model);
            let end = request.host_start.plus_ns(request.host_dur_ns);
            for (ph, time) in [("b", request.host_start.0), ("e", end.0)] {
                self.event(out, ph, &name, 0);
                self.time(out, "ts", time);
                let _ = write!(out, ",\"cat\":\"request\",\"id\":{}", request.request);
                if ph == "b" {
                    out.extend_from_slice(b",\"args\":");
                    put(
                        out,
                        &json!({
                            "trace_id": request.trace_id.to_string(),
                            "prompt_tokens": request.prompt_tokens,
                            "output_tokens": request.output_tokens,
                            "ttft_ns": request.ttft_ns,
                            "batch": request.batch,
                        }),
                    );
                }
                out.push(b'}');
            }
        }
        for sample in &batch.samples {
            let name = match &*sample.device {
                "host" => sample.metric.to_string(),
                device => format!("{} {device}", sample.metric),
            };
            self.event(out, "C", &name, 0);
            self.time(out, "ts", sample.time.0);
            out.extend_from_slice(b",\"args\":{");
            put(out, sample.unit);
            out.push(b':');
            put(out, &sample.value);
            out.extend_from_slice(b"}}");
        }
        for at in KernelTracks::in_order(batch) {
            self.kernel(out, &batch.kernels[at]);
        }
    }
}

impl LiveFormat for Chrome {
    const NAME: &'static str = "chrome";

    fn forget(&mut self) {
        self.named.clear();
    }
}

/// Appends a value as JSON. Writing these values to a vector does not fail.
fn put<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

impl Chrome {
    /// Begins an event; the caller adds the rest and closes the brace.
    fn event(&mut self, out: &mut Vec<u8>, ph: &str, name: &str, tid: u64) {
        out.extend_from_slice(if std::mem::replace(&mut self.started, true) { b",\n" } else { b"\n" });
        let _ = write!(out, "{{\"ph\":\"{ph}\",\"pid\":{},\"tid\":{tid},\"name\":", self.pid);
        put(out, name);
    }

    fn time(&self, out: &mut Vec<u8>, key: &str, ns: i64) {
        put_micros(out, key, ns - self.origin.unwrap_or(0));
    }

    fn thread(&mut self, out: &mut Vec<u8>, span: &SpanRecord, gpu: bool) -> u64 {
        let thread = &span.thread;
        // A run read from disk does not have the system's thread ids.
        let own = if thread.os_id > 0 { thread.os_id } else { 1000 + u64::from(thread.index) };
        // If its launch calls came first, they are on this track.
        let tid = match gpu {
            true => GPU_THREADS + u64::from(thread.index),
            false => self.called.get(&thread_of(span.seq)).copied().unwrap_or(own),
        };
        if !gpu {
            self.tids.insert(thread_of(span.seq), tid);
        }
        self.name(out, tid, || match gpu {
            true => format!("GPU: stream of {}", thread.name),
            false => thread.name.to_string(),
        });
        tid
    }

    /// Names a track the first time it is used.
    fn name(&mut self, out: &mut Vec<u8>, tid: u64, name: impl FnOnce() -> String) {
        if self.named.insert(tid) {
            self.event(out, "M", "thread_name", tid);
            out.extend_from_slice(b",\"args\":{\"name\":");
            put(out, &name());
            out.extend_from_slice(b"}}");
        }
    }

    /// A kernel on the track of its stream, its call on the track of the thread, and an arrow between them.
    fn kernel(&mut self, out: &mut Vec<u8>, kernel: &KernelRecord) {
        let arrow = kernel_tracks::arrow(kernel);
        if let Some(call) = self.kernels.new_call(kernel) {
            let tid = match call.place {
                CallPlace::Thread(thread) => {
                    let known = self.tids.get(&thread).copied();
                    known.unwrap_or_else(|| *self.called.entry(thread).or_insert(UNNAMED + thread))
                }
                CallPlace::Outside(lane) => {
                    self.name(out, OUTSIDE + lane, || call.place.name());
                    OUTSIDE + lane
                }
            };
            self.event(out, "X", call.name, tid);
            self.time(out, "ts", call.start.0);
            put_micros(out, "dur", i64::try_from(call.ns).unwrap_or(i64::MAX));
            let _ = write!(out, ",\"cat\":\"launch\",\"args\":{{\"correlation\":{}}}}}", kernel.correlation);
            arrow.into_iter().for_each(|id| self.arrow(out, "s", id, tid, call.start.0));
        }
        let track = self.kernels.place(kernel);
        let tid = STREAMS + track.number;
        let (gpus, stream) = (&self.gpus, kernel.stream);
        let device =
            gpus.get(&*kernel.device).map_or_else(|| kernel.device.to_string(), |(n, name)| format!("{n} {name}"));
        let more = if track.lane > 0 { " (overlapping)" } else { "" };
        self.name(out, tid, || format!("GPU {device}: stream {stream}{more}"));
        self.event(out, "X", &kernel_name(kernel), tid);
        self.time(out, "ts", kernel.gpu_start.0);
        put_micros(out, "dur", i64::try_from(kernel.gpu_dur_ns).unwrap_or(i64::MAX));
        let _ = write!(out, ",\"cat\":\"{}\",\"args\":{{\"stream\":{stream}", kernel.kind.as_str());
        for (name, value) in kernel_numbers(kernel) {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":{value}");
            }
        }
        for (name, word) in kernel_words(kernel) {
            if let Some(word) = word {
                let _ = write!(out, ",\"{name}\":");
                put(out, &word);
            }
        }
        out.extend_from_slice(b"}}");
        arrow.into_iter().for_each(|id| self.arrow(out, "f", id, tid, kernel.gpu_start.0));
    }

    /// One end of an arrow, which is drawn from and to the slice that is open there.
    fn arrow(&mut self, out: &mut Vec<u8>, ph: &str, id: u64, tid: u64, time: i64) {
        self.event(out, ph, "launch", tid);
        self.time(out, "ts", time);
        // A number of 64 bits does not survive in JavaScript.
        let _ = write!(out, ",\"cat\":\"launch\",\"bp\":\"e\",\"id\":\"{id:#x}\"}}");
    }

    fn slice(&mut self, out: &mut Vec<u8>, span: &SpanRecord, tid: u64, start: i64, end: i64) {
        self.event(out, "X", &span.path.name, tid);
        self.time(out, "ts", start);
        put_micros(out, "dur", end - start);
        out.extend_from_slice(b",\"cat\":");
        put(out, &*span.path.target);
        out.extend_from_slice(b",\"args\":{\"path\":");
        put(out, &span.path.path);
        if let Some(module) = &span.path.module {
            out.extend_from_slice(b",\"module\":");
            put(out, &**module);
        }
        let _ = write!(out, ",\"seq\":{}", span.seq);
        for (name, value) in span_numbers(span) {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":{value}");
            }
        }
        // JSON has no other numbers.
        if let Some(payload) = span.payload.filter(|payload| payload.is_finite()) {
            let _ = write!(out, ",\"payload\":{payload}");
        }
        let words = [
            ("phase", span.phase.map(|p| p.as_str())),
            ("ran", self.runs.of(span.seq)),
            ("dtype", span.dtype.map(|d| d.as_str())),
        ];
        for (name, word) in words {
            if let Some(word) = word {
                let _ = write!(out, ",\"{name}\":\"{word}\"");
            }
        }
        if let Some(shape) = span.shape {
            let _ = write!(out, ",\"shape\":\"{shape}\"");
        }
        out.extend_from_slice(b"}}");
    }
}

/// Microseconds with three decimals: a float would lose the nanoseconds.
fn put_micros(out: &mut Vec<u8>, key: &str, ns: i64) {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    let _ = write!(out, ",\"{key}\":{sign}{}.{:03}", ns / 1000, ns % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_survive() {
        let mut out = Vec::new();
        for ns in [0, 7, 1_234_567, -5, 1_760_000_000_000_000_001] {
            put_micros(&mut out, "t", ns);
        }
        let text = String::from_utf8(out).unwrap_or_default();
        assert_eq!(text, ",\"t\":0.000,\"t\":0.007,\"t\":1234.567,\"t\":-0.005,\"t\":1760000000000000.001");
    }
}
