//! What a record *is*: the resolved forms that leave the pipeline and reach exporters.
//!
//! Data is converted once per boundary: the hot path writes a fixed-size raw record, the pipeline resolves it into the
//! types here, and every exporter turns these into its own form. Nothing here depends on the `tracing` registry.

mod kernel;
mod request;
mod sample;
mod span;
mod step;
mod unrecorded;

pub use kernel::KernelRecord;
pub use request::RequestRecord;
pub use sample::SampleRecord;
pub use span::SpanRecord;
pub use step::StepRecord;
pub use unrecorded::UnrecordedStep;

use crate::host_ns::HostNs;
use crate::vocabulary::GpuSource;
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
pub const SEQ_BITS: u32 = 40;

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
    /// the weights were passed to `candlescope::modules` while they were loaded. If two models are loaded, equal
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
    /// use candlescope_schema::PathInfo;
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
    pub const LOST: &str = "(lost)";

    /// Whether the interval's place in its step is unknown, because its parent's record never came.
    pub fn is_orphan(&self) -> bool {
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
/// use candlescope_schema::is_of_model;
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

// Records are made by the pipeline and by readers of runs. Their constructors take what every record of the kind has; the
// rest is absent until it is set.

impl ThreadInfo {
    /// A thread.
    pub fn new(index: u32, os_id: u64, name: impl Into<Arc<str>>) -> Self {
        Self { index, os_id, name: name.into() }
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
