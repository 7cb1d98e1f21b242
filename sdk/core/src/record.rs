//! What a record *is*: the resolved forms that leave the pipeline and reach exporters.
//!
//! Data is converted once per boundary: the hot path writes a fixed-size raw record, the pipeline resolves it into the
//! types here, and every exporter turns these into its own form. Nothing here depends on the `tracing` registry.

mod unrecorded;

pub use unrecorded::UnrecordedStep;

use crate::host_ns::HostNs;
use crate::served::Served;
use crate::vocabulary::{DType, GpuSource, KernelKind, Outcome, Phase, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A W3C trace id: sixteen bytes, never all zero. Displays as 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u128);

/// A W3C span id: eight bytes, never zero. Displays as 16 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u64);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}
impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// The lower bits of a `seq`, which number intervals within a thread; the other bits are the thread.
pub(crate) const SEQ_BITS: u32 = 40;

/// Number of the thread that entered the interval with this `seq`.
pub fn thread_of(seq: u64) -> u64 {
    seq >> SEQ_BITS
}

/// An interval's place in the tree of names. Interned: equal paths share one allocation and one `id`.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// Dense number of this path within one session, from 0. Exporters index tables with it instead of hashing strings.
    pub id: u32,
    /// Names from the step down, with a sibling ordinal where names repeat: `decode/block[12]/attn/linear[2]`.
    pub path: String,
    /// What intervals are grouped by in tables of operators and in metrics: the path without ordinals,
    /// `decode/block/attn/linear`. If the span stands for a module, it is the step's name and the module without
    /// numbers, `decode/model.layers.*.self_attn.q_proj`, which tells apart what candle gives the same name; of a step
    /// that is a module itself, as in a program that marks no phases, it is the module alone.
    pub rollup: String,
    /// Dense number of the rollup within one session, from 0. Many paths share one rollup.
    pub rollup_id: u32,
    /// The interval's own name, the last element of the path without its ordinal.
    pub name: Arc<str>,
    /// The `tracing` target (module path) of the span.
    pub target: Arc<str>,
    /// The module of the model that the span stands for, for example `model.layers.7.mlp.down_proj`, if the names of
    /// the weights were passed to [`modules`](crate::modules) while they were loaded. If two models are loaded, equal
    /// path texts can belong to different modules.
    pub module: Option<Arc<str>>,
}

impl PathInfo {
    /// A path that stands for itself: its rollup has this number, too, and it belongs to no module.
    pub fn new(id: u32, path: impl Into<String>, name: impl Into<Arc<str>>, target: impl Into<Arc<str>>) -> Self {
        let path = path.into();
        let rollup = Self::rollup_of(&path, None);
        Self { id, path, rollup, rollup_id: id, name: name.into(), target: target.into(), module: None }
    }

    /// The [`rollup`](Self::rollup) of a path, and of the module that its span stands for, if any.
    ///
    /// ```
    /// use candlescope_core::PathInfo;
    /// assert_eq!(PathInfo::rollup_of("decode/block[12]/attn/linear[2]", None), "decode/block/attn/linear");
    /// let module = Some("model.layers.12.self_attn.v_proj");
    /// let rollup = PathInfo::rollup_of("decode/block[12]/attn/linear[2]", module);
    /// assert_eq!(rollup, "decode/model.layers.*.self_attn.v_proj");
    /// ```
    pub fn rollup_of(path: &str, module: Option<&str>) -> String {
        let mut elements = path.split('/').map(without_ordinal);
        let Some(step) = elements.next() else { return String::new() };
        let mut out = String::with_capacity(path.len());
        if let Some(module) = module {
            // A step that is a module is called by it: its span's name is that of hundreds.
            if path.contains('/') {
                out.push_str(step);
                out.push('/');
            }
            let numbered = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            for (i, part) in module.split('.').enumerate() {
                out.push_str(if i == 0 { "" } else { "." });
                out.push_str(if numbered(part) { "*" } else { part });
            }
            return out;
        }
        out.push_str(step);
        for element in elements {
            out.push('/');
            out.push_str(element);
        }
        out
    }

    /// Name of the path above intervals whose parent's record never came.
    pub(crate) const LOST: &str = "(lost)";

    /// Whether the interval's place in its step is unknown, because its parent's record never came.
    pub(crate) fn is_orphan(&self) -> bool {
        self.path.strip_prefix(Self::LOST).and_then(|rest| rest.strip_prefix('/')) == Some(&*self.name)
    }
}

fn without_ordinal(element: &str) -> &str {
    let Some(open) = element.strip_suffix(']').and_then(|e| e.rfind('[')) else { return element };
    let digits = &element[open + 1..element.len() - 1];
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) { &element[..open] } else { element }
}

/// A thread that produced intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// Dense number within one session, from 1.
    pub index: u32,
    /// The operating system's thread id; 0 if it is not known.
    pub os_id: u64,
    /// The thread's name, or `thread-<index>` for unnamed threads; with `#<index>` appended if an earlier thread has
    /// the same name.
    pub name: Arc<str>,
}

/// Whether spans of this target belong to a model wherever they are entered: those of candle's crates, and of ours.
/// Spans of other targets may be a model's, too, or a handler's: they count as the model's inside a phase.
///
/// ```
/// use candlescope_core::is_of_model;
/// assert!(is_of_model("candle_transformers::models::qwen2") && !is_of_model("tower_http::trace::make_span"));
/// ```
pub fn is_of_model(target: &str) -> bool {
    target.starts_with("candle")
}

/// An interval's time on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuTime {
    /// Start on the host's time line (Unix epoch), after clock correlation.
    pub start: HostNs,
    /// Duration in nanoseconds; what it includes depends on `source`.
    pub dur_ns: u64,
    /// What measured the time.
    pub source: GpuSource,
}

/// One interval: one enter/exit pair of a span.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SpanRecord {
    /// Number of the interval, unique in a run; ascending in enter order within one thread.
    pub seq: u64,
    /// The interval that was open on the same thread when this one was entered.
    pub parent_seq: Option<u64>,
    /// Trace that this interval belongs to: its request's, or else its step's own.
    pub trace_id: TraceId,
    /// Span id, the same in OTLP, NVTX payloads and Parquet.
    pub span_id: SpanId,
    /// Number of the step that this interval is part of; `None` for an entry of a request's span, which stands above
    /// steps.
    pub step: Option<u64>,
    /// Innermost phase that this interval is part of.
    pub phase: Option<Phase>,
    /// Path, name and target.
    pub path: Arc<PathInfo>,
    /// Number of intervals open on the thread when this one was entered; 0 is outermost.
    pub depth: u16,
    /// The thread that entered it.
    pub thread: Arc<ThreadInfo>,
    /// Start, nanoseconds since the Unix epoch.
    pub host_start: HostNs,
    /// Duration on the host in nanoseconds.
    pub host_dur_ns: u64,
    /// Device time, if it was measured.
    pub gpu: Option<GpuTime>,
    /// Floating-point operations annotated on this interval itself (analytic); those of its children are not included.
    pub flops: Option<u64>,
    /// Floating-point operations that are executed, annotated on this interval itself: `flops` and what the model does
    /// not need, for example the masked half of a prompt's attention. `None` if nobody stated them; the number is then
    /// taken to be `flops`.
    pub flops_executed: Option<u64>,
    /// Bytes of weights and KV cache moved, annotated on this interval itself, analytic lower bound.
    pub bytes: Option<u64>,
    /// `bytes` with the activations that go into and come out of the operation. Arithmetic intensity and an operation's
    /// GB/s are computed from it.
    pub io_bytes: Option<u64>,
    /// Tokens processed.
    pub tokens: Option<u32>,
    /// Context length after the step, in tokens.
    pub context_len: Option<u32>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// Element type of the operation.
    pub dtype: Option<DType>,
    /// Shape of the operation's output or principal operand.
    pub shape: Option<Shape>,
}

/// One step: the outermost interval on a thread, or a marked phase.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepRecord {
    /// Number of the step, from 0 in order of start over all threads.
    pub step: u64,
    /// `seq` of the interval that is the step.
    pub seq: u64,
    /// Trace of the step.
    pub trace_id: TraceId,
    /// Phase, if the step is one.
    pub phase: Option<Phase>,
    /// Number of the request that this step works for.
    pub request: Option<u64>,
    /// The requests that the step serves, if it states them: [`llm::serves`](crate::llm::serves). In order of request.
    pub serves: Vec<Served>,
    /// Path of the step's interval (its own name).
    pub path: Arc<PathInfo>,
    /// Thread that ran it.
    pub thread: Arc<ThreadInfo>,
    /// Start, nanoseconds since the Unix epoch.
    pub host_start: HostNs,
    /// Duration on the host in nanoseconds.
    pub host_dur_ns: u64,
    /// Device time of the whole step, if it was measured.
    pub gpu: Option<GpuTime>,
    /// Energy in millijoules, if the time was long enough to measure it.
    pub energy_mj: Option<f64>,
    /// Tokens processed, all sequences of the batch together.
    pub tokens: Option<u32>,
    /// Context length after the step.
    pub context_len: Option<u32>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// Tokens that are new in this step and belong to a sequence that goes on; `tokens` also counts padding and ended
    /// sequences.
    pub new_tokens: Option<u32>,
    /// Sum of the context lengths after the step over the sequences that go on.
    pub context_sum: Option<u64>,
    /// Sequences that go on.
    pub sequences: Option<u32>,
    /// Sum of analytic FLOPs over the step.
    pub flops: Option<u64>,
    /// Sum of executed FLOPs over the step; intervals that do not state any count with their `flops`.
    pub flops_executed: Option<u64>,
    /// Sum of analytic bytes (weights, KV cache) over the step.
    pub bytes: Option<u64>,
    /// Sum of analytic bytes with activations over the step.
    pub io_bytes: Option<u64>,
    /// Intervals recorded in the step, itself included.
    pub intervals: u64,
    /// Intervals of the step that were dropped because its thread's ring was full: if this is not 0, layers are missing
    /// from the step. 65,535 stands for that many or more; `None` if the run does not record it.
    pub intervals_lost: Option<u64>,
    /// Steps without a record that rates of recorded steps need, as far as they became known since the step recorded
    /// before; they need not have run beside this one. `None` if the run does not record them.
    pub unrecorded: Option<Vec<UnrecordedStep>>,
}

impl StepRecord {
    /// Whether the step is a span of the application, such as that of a handler: where phases are marked, it is in no
    /// figure. Of a step whose target is not known that is not said.
    pub fn is_application(&self) -> bool {
        let stated = self.phase.is_some() || self.flops.is_some() || self.bytes.is_some() || self.tokens.is_some();
        let target = &*self.path.target;
        !stated && self.path.module.is_none() && !target.is_empty() && !is_of_model(target)
    }
}

impl StepRecord {
    /// The requests that the step works for: those that it states, or else the one that it was begun under.
    pub fn requests(&self) -> impl Iterator<Item = u64> {
        let under = self.request.filter(|_| self.serves.is_empty());
        self.serves.iter().map(|served| served.request).chain(under)
    }
}

/// One inference request, from the creation of its span to its close.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// Number of the request, from 1.
    pub request: u64,
    /// Trace of the request and of all its steps.
    pub trace_id: TraceId,
    /// Span id of the request itself.
    pub span_id: SpanId,
    /// The caller's span, in another process, if the request was given one.
    pub parent_span_id: Option<SpanId>,
    /// Whether the caller's trace is recorded, if the caller says so.
    pub caller_sampled: Option<bool>,
    /// `gen_ai.operation.name`, for example `text_completion` or `chat`.
    pub operation: Arc<str>,
    /// `gen_ai.request.model`.
    pub model: Arc<str>,
    /// Start, nanoseconds since the Unix epoch.
    pub host_start: HostNs,
    /// Duration in nanoseconds.
    pub host_dur_ns: u64,
    /// Time from the request's start to its first output token on the host, in nanoseconds.
    pub ttft_ns: Option<u64>,
    /// Time from the request's start to its last output token on the host, in nanoseconds.
    pub last_token_ns: Option<u64>,
    /// Time from the request's start to the start of its first phase, recorded or not, in nanoseconds; to that of its
    /// first step if it has no phase.
    pub queue_ns: Option<u64>,
    /// Prompt tokens of one sequence.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, all sequences of the batch together.
    pub output_tokens: Option<u64>,
    /// Sequences in the batch.
    pub batch: Option<u32>,
    /// How it ended; `None` if the program does not say.
    pub outcome: Option<Outcome>,
}

impl RequestRecord {
    /// Prompt tokens of all sequences of the batch together, to match how output tokens are counted.
    pub fn input_tokens(&self) -> Option<u64> {
        self.prompt_tokens.map(|tokens| tokens.saturating_mul(u64::from(self.batch.unwrap_or(1).max(1))))
    }
}

/// One sample of a metric of the host or a device.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SampleRecord {
    /// When it was taken, nanoseconds since the Unix epoch.
    pub time: HostNs,
    /// `host`, or a GPU's UUID.
    pub device: Arc<str>,
    /// Name of the metric in base units, for example `process_resident_memory_bytes`.
    pub metric: &'static str,
    /// The value, in `unit`.
    pub value: f64,
    /// Its unit: `bytes`, `ratio`, `watts`, `count`, …
    pub unit: &'static str,
}

/// One kernel, copy or memset, recorded in a window.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KernelRecord {
    /// Whether it is a kernel, a copy or a memset.
    pub kind: KernelKind,
    /// Demangled name of a kernel, direction of a copy, or `memset`.
    pub name: Arc<str>,
    /// `seq` of the innermost interval open on the launching thread at the launch; `None` if no recorded interval was
    /// open.
    pub seq: Option<u64>,
    /// Span id of that interval.
    pub span_id: Option<SpanId>,
    /// Step of that interval.
    pub step: Option<u64>,
    /// Phase of that interval.
    pub phase: Option<Phase>,
    /// Path of that interval.
    pub path: Option<Arc<PathInfo>>,
    /// UUID of the device.
    pub device: Arc<str>,
    /// Number of the stream, as the driver numbers them.
    pub stream: u32,
    /// Start on the host's time line (Unix epoch).
    pub gpu_start: HostNs,
    /// Duration on the device in nanoseconds.
    pub gpu_dur_ns: u64,
    /// Blocks in x, y, z; only for kernels.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z; only for kernels.
    pub block: Option<[u32; 3]>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block in bytes.
    pub shared_static: Option<u32>,
    /// Dynamic shared memory per block in bytes.
    pub shared_dynamic: Option<u32>,
    /// Bytes copied or set.
    pub bytes: Option<u64>,
    /// Name of the call that launched it.
    pub launch: Option<&'static str>,
    /// Start of that call on the host.
    pub launch_start: Option<HostNs>,
    /// Duration of that call on the host in nanoseconds.
    pub launch_dur_ns: Option<u64>,
    /// Time from the end of that call to the start on the device in nanoseconds; 0 if the device started before the
    /// call returned.
    pub queue_delay_ns: Option<u64>,
    /// Number that connects the call with what it launched, unique in the process.
    pub correlation: u32,
    /// The CUDA graph that launched it, if any.
    pub graph: Option<u32>,
}

// Records are made by the pipeline and by readers of runs. The constructors take what every record of the kind has; the
// rest is absent until it is set.

impl ThreadInfo {
    /// A thread.
    pub fn new(index: u32, os_id: u64, name: impl Into<Arc<str>>) -> Self {
        Self { index, os_id, name: name.into() }
    }
}

impl SpanRecord {
    /// An interval without parent, step, device time and work.
    pub fn new(
        seq: u64,
        trace_id: TraceId,
        span_id: SpanId,
        path: Arc<PathInfo>,
        thread: Arc<ThreadInfo>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            seq,
            parent_seq: None,
            trace_id,
            span_id,
            step: None,
            phase: None,
            path,
            depth: 0,
            thread,
            host_start,
            host_dur_ns,
            gpu: None,
            flops: None,
            flops_executed: None,
            bytes: None,
            io_bytes: None,
            tokens: None,
            context_len: None,
            batch: None,
            dtype: None,
            shape: None,
        }
    }
}

impl StepRecord {
    /// A step of one interval, without phase, request, device time and work.
    pub fn new(
        step: u64,
        seq: u64,
        trace_id: TraceId,
        path: Arc<PathInfo>,
        thread: Arc<ThreadInfo>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            step,
            seq,
            trace_id,
            phase: None,
            request: None,
            serves: Vec::new(),
            path,
            thread,
            host_start,
            host_dur_ns,
            gpu: None,
            energy_mj: None,
            tokens: None,
            context_len: None,
            batch: None,
            new_tokens: None,
            context_sum: None,
            sequences: None,
            flops: None,
            flops_executed: None,
            bytes: None,
            io_bytes: None,
            intervals: 1,
            intervals_lost: None,
            unrecorded: None,
        }
    }
}

impl RequestRecord {
    /// A request of which only its begin and end are known.
    pub fn new(
        request: u64,
        trace_id: TraceId,
        span_id: SpanId,
        operation: impl Into<Arc<str>>,
        model: impl Into<Arc<str>>,
        host_start: HostNs,
        host_dur_ns: u64,
    ) -> Self {
        Self {
            request,
            trace_id,
            span_id,
            parent_span_id: None,
            caller_sampled: None,
            operation: operation.into(),
            model: model.into(),
            host_start,
            host_dur_ns,
            ttft_ns: None,
            last_token_ns: None,
            queue_ns: None,
            prompt_tokens: None,
            output_tokens: None,
            batch: None,
            outcome: None,
        }
    }
}

impl SampleRecord {
    /// A sample.
    pub fn new(
        time: HostNs,
        device: impl Into<Arc<str>>,
        metric: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self { time, device: device.into(), metric, value, unit }
    }
}

impl KernelRecord {
    /// A kernel, copy or memset that no interval is known to have launched.
    pub fn new(
        kind: KernelKind,
        name: impl Into<Arc<str>>,
        device: impl Into<Arc<str>>,
        stream: u32,
        gpu_start: HostNs,
        gpu_dur_ns: u64,
        correlation: u32,
    ) -> Self {
        Self {
            kind,
            name: name.into(),
            seq: None,
            span_id: None,
            step: None,
            phase: None,
            path: None,
            device: device.into(),
            stream,
            gpu_start,
            gpu_dur_ns,
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
            correlation,
            graph: None,
        }
    }
}

/// What the pipeline hands to every exporter: shared, never copied for each exporter.
///
/// Spans of one step follow each other in enter order (ascending `seq`).
#[derive(Debug, Default, Clone, PartialEq)]
#[non_exhaustive]
pub struct Batch {
    /// Intervals that ended.
    pub spans: Vec<SpanRecord>,
    /// Steps that ended.
    pub steps: Vec<StepRecord>,
    /// Requests that ended.
    pub requests: Vec<RequestRecord>,
    /// Samples of metrics.
    pub samples: Vec<SampleRecord>,
    /// Kernels, copies and memsets.
    pub kernels: Vec<KernelRecord>,
}

impl Batch {
    /// Number of records of one kind.
    pub fn count(&self, kind: RecordKind) -> u64 {
        (match kind {
            RecordKind::Span => self.spans.len(),
            RecordKind::Step => self.steps.len(),
            RecordKind::Request => self.requests.len(),
            RecordKind::Sample => self.samples.len(),
            RecordKind::Kernel => self.kernels.len(),
        }) as u64
    }

    /// Number of records of all kinds.
    pub fn len(&self) -> usize {
        self.spans.len() + self.steps.len() + self.requests.len() + self.samples.len() + self.kernels.len()
    }

    /// Whether it holds no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The kinds of record, one table each in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// [`SpanRecord`]
    Span,
    /// [`StepRecord`]
    Step,
    /// [`RequestRecord`]
    Request,
    /// [`SampleRecord`]
    Sample,
    /// [`KernelRecord`]
    Kernel,
}

impl RecordKind {
    /// All kinds, in table order.
    pub const ALL: [RecordKind; 5] =
        [RecordKind::Span, RecordKind::Step, RecordKind::Request, RecordKind::Sample, RecordKind::Kernel];

    /// Name of the kind's table, which is its folder in a run: `spans`, `steps`, `requests`, `samples`, `kernels`.
    pub const fn table(self) -> &'static str {
        match self {
            RecordKind::Span => "spans",
            RecordKind::Step => "steps",
            RecordKind::Request => "requests",
            RecordKind::Sample => "samples",
            RecordKind::Kernel => "kernels",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollups_have_no_numbers() {
        let rollup = PathInfo::rollup_of;
        assert_eq!(rollup("decode/block[12]/attn/linear[2]", None), "decode/block/attn/linear");
        assert_eq!(rollup("block[x]/a[]/b[1", None), "block[x]/a[]/b[1");
        assert_eq!(rollup("", None), "");
        assert_eq!(rollup("step/linear[3]", Some("h.11.mlp.c_fc")), "step/h.*.mlp.c_fc");
        assert_eq!(rollup("step/linear[3]", Some("experts.2x")), "step/experts.2x");
        assert_eq!(rollup("linear", Some("h.11.mlp.c_fc")), "h.*.mlp.c_fc", "it is a step");
    }
}
