//! What is kept of an interval while its parent or children may still come. Pure.

use super::super::usual_steps::UsualPlace;
use candlescope_schema::{GpuSource, SpanRecord};

/// An interval that may still get children.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenInterval {
    /// Its path, as an index into the list of nodes.
    pub(super) node: u32,
    pub(super) parent_seq: Option<u64>,
    pub(super) dur_ns: u64,
    pub(super) end_ns: i64,
    /// Sums of its direct children.
    pub(super) inside: InsideSums,
    /// Sums of the outermost warm-up intervals anywhere in it.
    pub(super) warm: InsideSums,
    /// Whether it is the entry of a request's span.
    pub(super) above_steps: bool,
    /// Whether it is warm-up itself.
    pub(super) is_warmup: bool,
    /// Whether a graph replayed it: it has no time on the host.
    pub(super) is_replayed: bool,
    pub(super) gpu: Option<(GpuSource, u64)>,
    /// Whether its step's kernels were recorded.
    pub(super) kernels_recorded: bool,
    /// The group of steps that its GPU time is sampled in.
    pub(super) group: u8,
    /// The place of its step among the usual ones, if it is one.
    pub(super) usual: Option<UsualPlace>,
    /// The generation in which it came: see `Relatives::let_go`.
    pub(super) generation: u32,
}

/// Children seen before their parent.
#[derive(Debug, Default, Clone)]
pub(super) struct WaitingChildren {
    pub(super) inside: InsideSums,
    /// Sums of the outermost warm-up intervals anywhere in it.
    pub(super) warm: InsideSums,
    /// Their nodes, which get their parent when it comes.
    pub(super) nodes: Vec<u32>,
    /// How many of them were entered in the parent directly, not in a request inside it.
    pub(super) count: u64,
}

impl WaitingChildren {
    pub(super) fn take(&mut self, inside: &InsideSums, nodes: &[u32]) {
        self.inside.add(inside);
        for node in nodes {
            if !self.nodes.contains(node) {
                self.nodes.push(*node);
            }
        }
    }
}

/// Sums over some intervals directly inside another one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InsideSums {
    pub(super) n: u64,
    pub(super) ns: u64,
    /// By source of GPU time: how many of them have it, and how much.
    pub(super) gpu: [(u64, u64); 2],
}

impl InsideSums {
    #[inline]
    pub(super) fn of(span: &SpanRecord) -> Self {
        let mut inside = Self { n: 1, ns: span.host_dur_ns, ..Self::default() };
        if let Some(gpu) = span.gpu {
            inside.gpu[gpu.source as usize] = (1, gpu.dur_ns);
        }
        inside
    }

    /// The same without the time on the host.
    pub(super) fn gpu_only(&self) -> Self {
        Self { ns: 0, ..*self }
    }

    #[inline]
    pub(super) fn add(&mut self, more: &InsideSums) {
        self.n += more.n;
        self.ns = self.ns.saturating_add(more.ns);
        for (mine, theirs) in self.gpu.iter_mut().zip(more.gpu) {
            mine.0 += theirs.0;
            mine.1 = mine.1.saturating_add(theirs.1);
        }
    }
}
