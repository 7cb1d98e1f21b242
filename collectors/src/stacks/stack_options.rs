//! How stacks are sampled, as the user says it.

use candlescope_core::stacks::USUAL_HZ;

/// What takes the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SourceChoice {
    /// Timers and signals, and perf events where there can be none. Perf's own timer is set at every switch, which costs a
    /// program of many switches half its time on a virtual machine.
    #[default]
    Auto,
    /// Perf events, at the rate asked for, and with the kernel's time apart. Where they may not see the kernel, samples
    /// are of the program's own code alone.
    Perf,
    /// A timer on each thread's CPU clock, whose signal takes the sample. Allowed everywhere. Time in the kernel goes to the
    /// function that called it.
    Signals,
}

/// How stacks are sampled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackOptions {
    pub(super) hz: u32,
    pub(super) source: SourceChoice,
    pub(super) stack_bytes: usize,
    pub(super) max_threads: usize,
    pub(super) off_cpu: bool,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self { hz: USUAL_HZ, source: SourceChoice::Auto, stack_bytes: 16 << 10, max_threads: 256, off_cpu: true }
    }
}

impl StackOptions {
    /// Samples per second of CPU time of each thread, 1 to 10,000; 499 by default, which keeps out of step with what a
    /// program does a hundred times a second. Signals come at most once in a tick of the kernel (100 to 1,000 times a
    /// second), whatever is asked for; each sample says how much time it stands for.
    #[must_use]
    pub fn hz(mut self, hz: u32) -> Self {
        self.hz = hz.clamp(1, 10_000);
        self
    }

    /// What takes the samples.
    #[must_use]
    pub fn source(mut self, source: SourceChoice) -> Self {
        self.source = source;
        self
    }

    /// Bytes of a thread's stack that are copied with each sample, 1 to 60 KiB; 16 KiB by default. What is further out is
    /// missing from the sample's stack, which then begins with a frame `[cut]`.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes.clamp(1 << 10, 60 << 10) & !7;
        self
    }

    /// Threads that are sampled at a time; 256 by default. Others are left out, for each costs buffers of up to 0.75 MiB and
    /// three open files; the run's facts say how many were.
    #[must_use]
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = threads;
        self
    }

    /// Whether time off the CPU and page faults are recorded, where perf events are allowed; on by default.
    #[must_use]
    pub fn off_cpu(mut self, off_cpu: bool) -> Self {
        self.off_cpu = off_cpu;
        self
    }
}
