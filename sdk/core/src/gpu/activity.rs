//! The contract of a recorder of kernels, which connects each kernel with the interval that launched it.

use crate::HostNs;
use crate::record::SpanId;
use crate::vocabulary::KernelKind;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Kernels cannot be recorded. The message gives the reason and the remedy; the run goes on without them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActivityError(pub String);

/// Passed to [`Correlator::push`] by a step that is in no window, so that its launches can be told from launches
/// outside all steps. No interval has this id.
pub const OUTSIDE_WINDOW: SpanId = SpanId(u64::MAX);

/// Tells the recorder, on the application's own thread, which interval is the innermost. Hot path, called for every
/// interval of a step in a window, and once, with [`OUTSIDE_WINDOW`], for any other step, or for each of its intervals
/// where [graphs are followed](Self::follows_graphs): must not allocate once warm,
/// lock, wait or panic. Calls balance on each thread.
pub trait Correlator: Send + Sync + 'static {
    /// An interval begins: launches from now on belong to it.
    fn push(&self, span: SpanId);
    /// The innermost interval ends.
    fn pop(&self);

    /// Whether the recorder wants to know the intervals of all steps, because a graph of whose nodes it tells may be
    /// captured in any of them: those of steps outside of windows then come by
    /// [`push_outside_window`](Self::push_outside_window). Asked once.
    fn follows_graphs(&self) -> bool {
        false
    }

    /// An interval of a step begins that is in no window. What it launches is [outside](OUTSIDE_WINDOW); nodes that are
    /// captured in it are its own.
    fn push_outside_window(&self, span: SpanId) {
        let _ = span;
        self.push(OUTSIDE_WINDOW);
    }

    /// Hands over the nodes of graphs that were made since this was last called. Called by the drain's thread, outside
    /// of the hot path.
    fn graph_nodes(&self, into: &mut Vec<GraphNode>) {
        let _ = into;
    }
}

/// A kernel, copy or memset became part of a graph. Nodes do not say how many kernels a replay runs: on an H200, CUPTI
/// 13.0 told of three times as many nodes of kernels as ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphNode {
    /// Its number, unique in the process, by which what it runs later is [known](RawKernel::graph_node).
    pub node: u64,
    /// The node that it is a copy of, as all those of a graph that can be launched are. CUPTI tells of a copy twice:
    /// that it was made, where the graph is instantiated, and then of what it is a copy.
    pub original: Option<u64>,
    /// The innermost interval of the thread that made it, as given to [`Correlator::push`] or
    /// [`Correlator::push_outside_window`].
    pub span: Option<SpanId>,
}

/// A kernel, copy or memset as the recorder saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawKernel {
    /// Whether it is a kernel, a copy or a memset.
    pub kind: KernelKind,
    /// Demangled name of a kernel, direction of a copy (`htod`, `dtoh`, `dtod`, …), or `memset`.
    pub name: Arc<str>,
    /// Id of the innermost interval open on the launching thread at the launch, as given to [`Correlator::push`], which
    /// may be [`OUTSIDE_WINDOW`].
    pub span: Option<SpanId>,
    /// UUID of the device.
    pub device: Arc<str>,
    /// Number of the stream, as the driver numbers them.
    pub stream: u32,
    /// Start on the host's time line.
    pub start: HostNs,
    /// Duration on the device in nanoseconds.
    pub dur_ns: u64,
    /// Blocks in x, y, z; only for kernels.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z; only for kernels.
    pub block: Option<[u32; 3]>,
    /// Registers per thread; only for kernels.
    pub registers: Option<u32>,
    /// Static shared memory per block in bytes.
    pub shared_static: Option<u32>,
    /// Dynamic shared memory per block in bytes.
    pub shared_dynamic: Option<u32>,
    /// Bytes copied or set.
    pub bytes: Option<u64>,
    /// Name of the call that launched it, for example `cuLaunchKernel`.
    pub launch: Option<&'static str>,
    /// Start of that call on the host's time line.
    pub launch_start: Option<HostNs>,
    /// Duration of that call on the host in nanoseconds.
    pub launch_dur_ns: Option<u64>,
    /// Number that connects the call with what it launched, unique in the process.
    pub correlation: u32,
    /// The CUDA graph that launched it, if any.
    pub graph: Option<u32>,
    /// The node of that graph, as the recorder numbers [nodes](GraphNode).
    pub graph_node: Option<u64>,
}

/// Takes a recorder's deliveries.
#[derive(Debug, Default)]
pub struct ActivitySink {
    /// Kernels, copies and memsets, in any order.
    pub kernels: Vec<RawKernel>,
    /// Records that the recorder itself lost since the last delivery.
    pub dropped: u64,
    /// Of these, the ones of which it is known which interval launched them: that interval's kernels are incomplete.
    pub dropped_of: Vec<SpanId>,
    /// Records without usable times (no end, or one before the start) of work that steps outside of windows had launched.
    /// Nobody misses them.
    pub outside_unfinished: u64,
    /// The same of work that was launched outside all intervals: when that was. Those launched in a window are lost.
    pub stray_unfinished: Vec<HostNs>,
    /// What was launched inside intervals and has not been delivered.
    pub undelivered: UndeliveredWork,
    /// How far the recorder's clock may be off from the host's in nanoseconds, by its readings of both; `None` before
    /// the first reading.
    pub clock_bound_ns: Option<u64>,
}

/// What a recorder knows of work that was launched inside intervals and has not been delivered.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UndeliveredWork {
    /// The recorder does not follow launches.
    #[default]
    Unknown,
    /// Everything has been delivered.
    Nothing,
    /// There is some; the earliest call that launched it ended then.
    Since(HostNs),
}

/// A recorder of kernels. Lives on a thread of its own, because switching one on can take seconds.
///
/// Calls come in this order: `prepare` once, then any number of windows, each `enable`, `collect`…, `disable`,
/// `collect`, `release`.
pub trait Activity: Send + 'static {
    /// Short stable name: `cupti`.
    fn name(&self) -> &'static str;

    /// What application threads call inside windows.
    fn correlator(&self) -> Arc<dyn Correlator>;

    /// Does what is slow the first time, outside any window.
    ///
    /// # Errors
    /// If kernels cannot be recorded on this machine at all; nothing else is called then.
    fn prepare(&mut self) -> Result<(), ActivityError> {
        Ok(())
    }

    /// Facts for `run.json`'s `environment`; called after `prepare`.
    fn describe(&mut self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// How long the next window has to wait; a window that is asked for begins that much later.
    fn wait(&self) -> Duration {
        Duration::ZERO
    }

    /// Begins recording.
    ///
    /// # Errors
    /// If the driver refuses; the window is given up.
    fn enable(&mut self) -> Result<(), ActivityError>;

    /// Ends recording. Kernels that were launched before still arrive through [`collect`](Activity::collect).
    ///
    /// # Errors
    /// If the driver refuses.
    fn disable(&mut self) -> Result<(), ActivityError>;

    /// Delivers what is known of finished kernels. With `all`, nothing more is waited for: a record that is not complete
    /// is lost, and counted. Without it no record is lost, and the recorder may keep finished ones back because of
    /// others that are not. `host` reads the host's clock, to correlate the recorder's with it.
    ///
    /// # Errors
    /// If the driver refuses; what was delivered so far stays.
    fn collect(&mut self, all: bool, host: &dyn Fn() -> HostNs, into: &mut ActivitySink) -> Result<(), ActivityError>;

    /// Called when a window has ended and its kernels are delivered: releases what would slow the program down until
    /// the next `enable`.
    ///
    /// # Errors
    /// If the driver refuses.
    fn release(&mut self) -> Result<(), ActivityError> {
        Ok(())
    }
}
