//! Batches → events as Kineto writes them. Pure.
//!
//! Format: `output_json.cpp` of <https://github.com/pytorch/kineto>, and what HolisticTraceAnalysis reads
//! (`hta/common/trace_parser.py`, `trace_symbol_table.py`).

use crate::kernel_tracks::{CallPlace, KernelTracks};
use crate::trace_file::TraceFormat;
use candlescope_core::run::{RunManifest, env_key, model_key};
use candlescope_core::{Batch, KernelKind, KernelRecord, Ran, SpanRecord, thread_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::sync::Arc;

/// Thread numbers begin here: a run on disk does not have the system's.
const THREADS: u64 = 1000;
/// Here those of launch calls outside every interval begin, above any thread's.
const OUTSIDE: u64 = 1 << 30;

/// A step that waits until it is known whether it has kernels.
#[derive(Debug, Clone, Copy)]
struct Step {
    number: u64,
    thread: u64,
    start: i64,
    ns: u64,
    ran: Option<Ran>,
}

/// How many events of each kind were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceCounts {
    /// Kernels, copies and memsets.
    pub kernels: u64,
    /// Calls that launched these kernels.
    pub launches: u64,
    /// Those of them that lie outside every interval; on a track of their own, because a run does not say which thread
    /// made them.
    pub launches_outside: u64,
    /// Intervals, all in steps with kernels.
    pub intervals: u64,
    /// Steps with recorded kernels: others are left out.
    pub steps: u64,
}

/// Converts the batches of one run.
#[derive(Debug)]
pub struct Kineto {
    pid: u64,
    head: Value,
    /// Unix time that is zero in the file.
    origin: i64,
    /// Number of each device, by UUID.
    devices: HashMap<Arc<str>, u64>,
    known: BTreeMap<String, u64>,
    started: bool,
    named: HashSet<u64>,
    steps: Vec<Step>,
    with_kernels: HashSet<u64>,
    calls: KernelTracks,
    written: TraceCounts,
}

impl TraceFormat for Kineto {
    const FOOTER: &'static [u8] = b"\n]}\n";

    fn new(run: &RunManifest) -> Self {
        let gpus = run.gpus();
        let known = gpus.iter().enumerate().filter_map(|(at, gpu)| {
            Some((gpu["uuid"].as_str()?.to_string(), gpu["index"].as_u64().unwrap_or(at as u64)))
        });
        Self {
            pid: env_key::PID.of(&run.environment).unwrap_or(1),
            origin: run.started_ns,
            known: known.collect(),
            head: json!({
                "schemaVersion": 1,
                "deviceProperties": gpus.iter().enumerate().map(properties).collect::<Vec<_>>(),
                "distributedInfo": { "rank": run.rank, "world_size": run.world_size.unwrap_or(1) },
                "baseTimeNanoseconds": run.started_ns,
                "displayTimeUnit": "ms",
                "trace_id": run.run_id,
                "candlescope": { "run_id": run.run_id, "host": run.host, "model": model_key::NAME.raw(&run.model) },
            }),
            devices: HashMap::new(),
            started: false,
            named: HashSet::new(),
            steps: Vec::new(),
            with_kernels: HashSet::new(),
            calls: KernelTracks::default(),
            written: TraceCounts::default(),
        }
    }

    fn header(&mut self, out: &mut Vec<u8>) {
        // With spaces: HolisticTraceAnalysis looks for one before the rank, and takes every file without it for that of
        // rank 0.
        let _ = serde_json::to_writer_pretty(&mut *out, &self.head);
        // The object goes on with its events.
        out.pop();
        out.extend_from_slice(b",\"traceEvents\":[");
    }

    fn batch(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.steps.extend(batch.steps.iter().map(|step| Step {
            number: step.step,
            thread: thread_of(step.seq),
            start: step.host_start.0,
            ns: step.host_dur_ns,
            ran: step.ran,
        }));
        for kernel in &batch.kernels {
            self.with_kernels.extend(kernel.step);
            self.kernel(kernel, out);
        }
        if !batch.spans.is_empty() {
            self.steps(out);
        }
        for span in &batch.spans {
            if span.step.is_some_and(|step| self.with_kernels.contains(&step)) {
                self.span(span, out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.steps(out);
        out.extend_from_slice(Self::FOOTER);
    }
}

impl Kineto {
    /// What was written, so far.
    pub fn written(&self) -> TraceCounts {
        self.written
    }

    /// Writes the steps that have kernels, once all kernels are known.
    fn steps(&mut self, out: &mut Vec<u8>) {
        for step in std::mem::take(&mut self.steps) {
            if self.with_kernels.contains(&step.number) {
                self.written.steps += 1;
                let name = format!("ProfilerStep#{}", step.number);
                self.event(out, "user_annotation", &name, self.pid, THREADS + step.thread, step.start, step.ns);
                if let Some(ran) = step.ran {
                    let _ = write!(out, "\"ran\":\"{}\"", ran.as_str());
                }
                out.extend_from_slice(b"}}");
            }
        }
    }

    /// A kernel, copy or memset; the call that launched it; and the arrow between them.
    fn kernel(&mut self, kernel: &KernelRecord, out: &mut Vec<u8>) {
        self.written.kernels += 1;
        let device = self.device(&kernel.device);
        let (category, name) = match kernel.kind {
            KernelKind::Kernel => ("kernel", kernel.name.to_string()),
            KernelKind::Memcpy => ("gpu_memcpy", format!("Memcpy {}", direction(&kernel.name))),
            KernelKind::Memset => ("gpu_memset", "Memset (Device)".to_string()),
        };
        let (start, stream) = (kernel.gpu_start.0, u64::from(kernel.stream));
        self.event(out, category, &name, device, stream, start, kernel.gpu_dur_ns);
        let _ =
            write!(out, "\"device\":{device},\"context\":1,\"stream\":{stream},\"correlation\":{}", kernel.correlation);
        if let Some(seq) = kernel.seq {
            let _ = write!(out, ",\"External id\":{seq}");
        }
        axes(out, "grid", kernel.grid);
        axes(out, "block", kernel.block);
        let shared = kernel.shared_static.zip(kernel.shared_dynamic).map(|(a, b)| u64::from(a) + u64::from(b));
        let numbers = [
            ("registers per thread", kernel.registers.map(u64::from)),
            ("shared memory", shared),
            ("bytes", kernel.bytes),
            ("graph id", kernel.graph.map(u64::from)),
            ("graph node id", kernel.graph_node),
            ("derived", kernel.derived.map(u64::from)),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":{value}");
            }
        }
        if let Some(bytes) = kernel.bytes.filter(|_| kernel.gpu_dur_ns > 0) {
            let _ = write!(out, ",\"memory bandwidth (GB/s)\":{}", bytes as f64 / kernel.gpu_dur_ns as f64);
        }
        if let Some(path) = &kernel.path {
            out.extend_from_slice(b",\"path\":");
            put(out, &path.path);
        }
        out.extend_from_slice(b"}}");
        self.launch(kernel, device, out);
    }

    fn launch(&mut self, kernel: &KernelRecord, device: u64, out: &mut Vec<u8>) {
        if kernel.launch_start.is_none() {
            return;
        }
        if let Some(call) = self.calls.new_call(kernel) {
            self.written.launches += 1;
            let tid = match call.place {
                CallPlace::Thread(thread) => THREADS + thread,
                CallPlace::Outside(lane) => {
                    self.written.launches_outside += 1;
                    self.name_thread(out, OUTSIDE + lane, &call.place.name());
                    OUTSIDE + lane
                }
            };
            self.event(out, "cuda_runtime", runtime_name(call.name), self.pid, tid, call.start.0, call.ns);
            let _ = write!(out, "\"correlation\":{},\"cbid\":0", kernel.correlation);
            if let Some(seq) = kernel.seq {
                let _ = write!(out, ",\"External id\":{seq}");
            }
            out.extend_from_slice(b",\"call\":");
            put(out, call.name);
            out.extend_from_slice(b"}}");
            self.arrow(out, "s", kernel.correlation, self.pid, tid, call.start.0);
        }
        self.arrow(out, "f", kernel.correlation, device, u64::from(kernel.stream), kernel.gpu_start.0);
    }

    fn span(&mut self, span: &SpanRecord, out: &mut Vec<u8>) {
        let Some((start, dur_ns)) = span.host_time() else { return };
        self.written.intervals += 1;
        let tid = THREADS + thread_of(span.seq);
        self.name_thread(out, tid, &span.thread.name);
        self.event(out, "cpu_op", &span.path.name, self.pid, tid, start.0, dur_ns);
        let _ = write!(out, "\"External id\":{},\"path\":", span.seq);
        put(out, &span.path.path);
        if let Some(module) = &span.path.module {
            out.extend_from_slice(b",\"module\":");
            put(out, &**module);
        }
        let numbers = [("flops", span.flops), ("bytes", span.bytes), ("tokens", span.tokens.map(u64::from))];
        for (name, value) in numbers {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":{value}");
            }
        }
        out.extend_from_slice(b"}}");
    }

    fn device(&mut self, uuid: &Arc<str>) -> u64 {
        if let Some(number) = self.devices.get(uuid) {
            return *number;
        }
        // A device that the environment does not name comes after all that it does.
        let unknown = self.known.values().max().map_or(0, |most| most + 1);
        let number = self.known.get(&**uuid).copied().unwrap_or(unknown + self.devices.len() as u64);
        self.devices.insert(uuid.clone(), number);
        number
    }

    /// Names a thread the first time.
    fn name_thread(&mut self, out: &mut Vec<u8>, tid: u64, name: &str) {
        if self.named.insert(tid) {
            self.begin(out, "M", "thread_name", self.pid, tid);
            out.extend_from_slice(b",\"args\":{\"name\":");
            put(out, name);
            out.extend_from_slice(b"}}");
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>, ph: &str, name: &str, pid: u64, tid: u64) {
        out.extend_from_slice(if std::mem::replace(&mut self.started, true) { b",\n" } else { b"\n" });
        let _ = write!(out, "{{\"ph\":\"{ph}\",\"pid\":{pid},\"tid\":{tid},\"name\":");
        put(out, name);
    }

    /// A complete event up to its arguments; the caller adds them and closes both braces.
    #[allow(clippy::too_many_arguments)]
    fn event(&mut self, out: &mut Vec<u8>, cat: &str, name: &str, pid: u64, tid: u64, start: i64, ns: u64) {
        self.begin(out, "X", name, pid, tid);
        let (from, to) = (self.parts(start), self.parts(start.saturating_add_unsigned(ns)));
        let (ts, dur) = (micros(from), micros(to - from));
        let _ = write!(out, ",\"cat\":\"{cat}\",\"ts\":{ts},\"dur\":{dur},\"args\":{{");
    }

    #[allow(clippy::too_many_arguments)]
    fn arrow(&mut self, out: &mut Vec<u8>, ph: &str, id: u32, pid: u64, tid: u64, time: i64) {
        self.begin(out, ph, "ac2g", pid, tid);
        let ts = micros(self.parts(time));
        let _ = write!(out, ",\"cat\":\"ac2g\",\"id\":{id},\"bp\":\"e\",\"ts\":{ts}}}");
    }

    /// A time since the origin in parts of a microsecond.
    fn parts(&self, time: i64) -> i128 {
        let ns = i128::from(time) - i128::from(self.origin);
        (ns * PARTS + 500).div_euclid(1000)
    }
}

/// Times are whole multiples of this part of a microsecond, a quarter of a nanosecond. Tools add starts and durations
/// as doubles, in which such multiples are exact: with decimal fractions, an interval would end after the next one
/// began, and HolisticTraceAnalysis would take them for nested. Rounding to nanoseconds gives the run's own times.
const PARTS: i128 = 4096;

fn micros(parts: i128) -> f64 {
    parts as f64 / PARTS as f64
}

/// What is known of a device, under the profiler's names.
fn properties((at, gpu): (usize, &Value)) -> Value {
    let mut out = json!({ "id": gpu["index"].as_u64().unwrap_or(at as u64), "uuid": gpu["uuid"], "name": gpu["name"] });
    let capability = gpu["compute_capability"].as_str().and_then(|text| text.split_once('.'));
    if let (Some((major, minor)), Some(out)) = (capability, out.as_object_mut()) {
        let number = |text: &str| text.parse::<u64>().ok();
        out.extend(number(major).map(|major| ("computeMajor".to_string(), json!(major))));
        out.extend(number(minor).map(|minor| ("computeMinor".to_string(), json!(minor))));
    }
    if let (Some(bytes), Some(out)) = (gpu["memory_bytes"].as_u64(), out.as_object_mut()) {
        out.insert("totalGlobalMem".to_string(), json!(bytes));
    }
    out
}

/// `htod` as `HtoD`.
fn direction(name: &str) -> String {
    match name.split_once("to") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            format!("{}to{}", from.to_uppercase(), to.to_uppercase())
        }
        _ => name.to_string(),
    }
}

/// A call of the driver under the name of the runtime's that does the same: the tools know no others.
fn runtime_name(call: &str) -> &str {
    // Without the suffix of a variant: `cuMemcpyDtoHAsync_v2`.
    let plain = call.split('_').next().unwrap_or(call);
    let asynchronous = plain.ends_with("Async");
    match plain {
        "cuLaunchKernel" => "cudaLaunchKernel",
        "cuLaunchKernelEx" => "cudaLaunchKernelExC",
        "cuLaunchCooperativeKernel" => "cudaLaunchCooperativeKernel",
        "cuGraphLaunch" => "cudaGraphLaunch",
        _ if call.starts_with("cuMemcpy") => {
            if asynchronous {
                "cudaMemcpyAsync"
            } else {
                "cudaMemcpy"
            }
        }
        _ if call.starts_with("cuMemset") => {
            if asynchronous {
                "cudaMemsetAsync"
            } else {
                "cudaMemset"
            }
        }
        _ => call,
    }
}

fn axes(out: &mut Vec<u8>, name: &str, axes: Option<[u32; 3]>) {
    if let Some([x, y, z]) = axes {
        let _ = write!(out, ",\"{name}\":[{x},{y},{z}]");
    }
}

/// Appends a value as JSON. Writing these values to a vector does not fail, here and elsewhere.
fn put<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_that_tools_look_for() {
        for (call, expected) in [
            ("cuLaunchKernel", "cudaLaunchKernel"),
            ("cuMemcpyHtoDAsync", "cudaMemcpyAsync"),
            ("cuMemcpyDtoH", "cudaMemcpy"),
            ("cuMemcpyDtoHAsync_v2", "cudaMemcpyAsync"),
            ("cuMemsetD8Async", "cudaMemsetAsync"),
            ("cudaLaunchKernelExC", "cudaLaunchKernelExC"),
        ] {
            assert_eq!(runtime_name(call), expected);
        }
        assert_eq!(["htod", "dtoh", "ptop", "atod", "other"].map(direction), ["HtoD", "DtoH", "PtoP", "AtoD", "other"]);
    }
}
