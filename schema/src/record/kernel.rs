//! A kernel, copy or memset, recorded in a window.

use crate::record::{PathInfo, SpanId};
use crate::vocabulary::{KernelKind, Phase};
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_kernel
    /// One kernel, copy or memset, recorded in a window.
    KernelRecord, Kernel, Kernels {
        /// seq of the innermost interval open on the launching thread at the launch; joins spans.seq.
        seq: Option<u64> => Int,
        /// Span id of that interval.
        span_id: Option<SpanId> => Int,
        /// Step of that interval.
        step: Option<u64> => Int,
        /// Phase of that interval: prefill, decode, sample, encode or vision; null outside a marked phase.
        phase: Option<Phase> => Word,
        /// Path and module of that interval.
        path: Option<Arc<PathInfo>> => Launcher,
        /// kernel, memcpy or memset.
        kind: KernelKind => Word,
        /// Kernel's demangled name; a copy's direction (htod, dtoh, dtod, ...); memset.
        name: Arc<str> => Text,
        /// UUID of the GPU.
        device: Arc<str> => Text,
        /// Number of the stream, as the driver counts them.
        stream: u32 => Int,
        /// Start on the device, nanoseconds since the Unix epoch.
        gpu_start: HostNs => Int "gpu_start_ns",
        /// Duration on the device, nanoseconds.
        gpu_dur_ns: u64 => Int,
        /// Blocks in this dimension; null for copies and memsets.
        grid: Option<[u32; 3]> => Axes,
        /// Threads of a block in this dimension; null for copies and memsets.
        block: Option<[u32; 3]> => Axes,
        /// Registers of a thread.
        registers: Option<u32> => Int,
        /// Static shared memory of a block, bytes.
        shared_static: Option<u32> => Int,
        /// Dynamic shared memory of a block, bytes.
        shared_dynamic: Option<u32> => Int,
        /// Bytes copied or set; null for kernels.
        bytes: Option<u64> => Int,
        /// Name of the call that launched it.
        launch: Option<&'static str> => Word,
        /// Start of that call on the host, nanoseconds since the Unix epoch.
        launch_start: Option<HostNs> => Int "launch_start_ns",
        /// Duration of that call on the host, nanoseconds.
        launch_dur_ns: Option<u64> => Int,
        /// End of that call to start on the device, nanoseconds, 0 where the device was quicker.
        queue_delay_ns: Option<u64> => Int,
        /// Number that ties the call to what it launched, unique in the process.
        correlation: u32 => Int,
        /// CUDA graph it was launched by.
        graph: Option<u32> => Int,
        /// Node of that graph; with it, seq and path are those of the interval in which it was captured, and launch is
        /// the graph's.
        graph_node: Option<u64> => Int,
        /// 1 if nobody saw the graph's capture, and seq and path follow from what ran: the same kernels in the same
        /// order as in layers that are known. Null otherwise.
        derived: Option<bool> => Narrow,
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
            seq: None,
            span_id: None,
            step: None,
            phase: None,
            path: None,
            kind,
            name: name.into(),
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
            graph_node: None,
            derived: None,
        }
    }
}
