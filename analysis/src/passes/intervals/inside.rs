//! What intervals took that stand inside another one.

use candlescope_core::SpanRecord;

/// What some intervals directly inside another one took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inside {
    pub(super) n: u64,
    pub(super) ns: u64,
    /// By source of GPU time: how many of them have it, and how much.
    pub(super) gpu: [(u64, u64); 2],
}

impl Inside {
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

    pub(super) fn add(&mut self, more: &Inside) {
        self.n += more.n;
        self.ns = self.ns.saturating_add(more.ns);
        for (mine, theirs) in self.gpu.iter_mut().zip(more.gpu) {
            mine.0 += theirs.0;
            mine.1 = mine.1.saturating_add(theirs.1);
        }
    }
}
