//! What an interval's kernels add up to.

use crate::HostNs;
use crate::gpu::RawKernel;
use crate::record::GpuTime;
use crate::vocabulary::GpuSource;

/// First start and last end on the host.
pub(crate) type Extent = (HostNs, HostNs);

/// Sum and extent of the kernels launched inside one interval, including its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct KernelsInside {
    /// Whether the interval's kernels were recorded.
    pub(crate) recorded: bool,
    /// Whether the record of one of them was lost.
    pub(super) incomplete: bool,
    /// Sum of the kernels' durations.
    pub(crate) sum_ns: u64,
    /// First start and last end.
    pub(crate) extent: Option<(HostNs, HostNs)>,
}

/// The kernels of each span of a batch, in the order of the spans.
pub(crate) struct Attribution(pub(super) Vec<KernelsInside>);

impl Attribution {
    pub(crate) fn per_span(&self) -> impl Iterator<Item = &KernelsInside> {
        self.0.iter()
    }
}

impl KernelsInside {
    pub(super) fn of(kernel: &RawKernel) -> Self {
        let extent = Some((kernel.start, kernel.start.plus_ns(kernel.dur_ns)));
        Self { recorded: true, incomplete: false, sum_ns: kernel.dur_ns, extent }
    }

    /// As an interval's time on the device.
    pub(crate) fn gpu_time(&self) -> Option<GpuTime> {
        let (start, _) = self.extent?;
        Some(GpuTime { start, dur_ns: self.sum_ns, source: GpuSource::Cupti })
    }

    pub(super) fn add(&mut self, other: KernelsInside) {
        self.recorded |= other.recorded;
        self.incomplete |= other.incomplete;
        self.sum_ns += other.sum_ns;
        self.extent = join(self.extent, other.extent);
    }
}

/// The extent that covers both.
pub(super) fn join(one: Option<Extent>, other: Option<Extent>) -> Option<Extent> {
    match (one, other) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (one, other) => one.or(other),
    }
}
