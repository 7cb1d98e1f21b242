//! Time by what threads did.

/// Time by what threads did, nanoseconds, and the samples that it comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weights {
    /// On a CPU, on the threads that entered the intervals.
    pub own_ns: u64,
    /// On a CPU, on threads of pools that computed for them.
    pub pool_ns: u64,
    /// Waiting, on the threads that entered the intervals.
    pub blocked_ns: u64,
    /// Ready, while another thread had the CPU; likewise.
    pub preempted_ns: u64,
    /// The part of `own_ns` and `pool_ns` in the operating system's kernel.
    pub kernel_ns: u64,
    /// Samples of time on a CPU.
    pub samples: u64,
    /// Waits that were recorded, of which `blocked_ns` tells.
    pub waits: u64,
}

impl Weights {
    /// Time on a CPU, of all threads.
    pub fn cpu_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.pool_ns)
    }

    /// Time that passed on the threads that entered the intervals.
    pub fn elapsed_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.blocked_ns).saturating_add(self.preempted_ns)
    }

    /// The sums of both, field by field.
    #[must_use]
    pub fn plus(mut self, other: &Weights) -> Self {
        self.add(other);
        self
    }

    /// What is left without a part of it.
    pub(crate) fn less(&self, part: &Weights) -> Self {
        Self {
            own_ns: self.own_ns.saturating_sub(part.own_ns),
            pool_ns: self.pool_ns.saturating_sub(part.pool_ns),
            blocked_ns: self.blocked_ns.saturating_sub(part.blocked_ns),
            preempted_ns: self.preempted_ns.saturating_sub(part.preempted_ns),
            kernel_ns: self.kernel_ns.saturating_sub(part.kernel_ns),
            samples: self.samples.saturating_sub(part.samples),
            waits: self.waits.saturating_sub(part.waits),
        }
    }

    pub(super) fn raise_off_cpu(&mut self, by: f64) {
        for part in [&mut self.blocked_ns, &mut self.preempted_ns] {
            *part = (*part as f64 * by) as u64;
        }
    }

    pub(super) fn add(&mut self, other: &Weights) {
        let sum = |into: &mut u64, more: u64| *into = into.saturating_add(more);
        sum(&mut self.own_ns, other.own_ns);
        sum(&mut self.pool_ns, other.pool_ns);
        sum(&mut self.blocked_ns, other.blocked_ns);
        sum(&mut self.preempted_ns, other.preempted_ns);
        sum(&mut self.kernel_ns, other.kernel_ns);
        sum(&mut self.samples, other.samples);
        sum(&mut self.waits, other.waits);
    }
}
