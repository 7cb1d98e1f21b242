//! Which events of the kernel are counted, and what their records hold.

use super::ring_records::REGISTERS;
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_DUMMY, PERF_COUNT_SW_PAGE_FAULTS,
    PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_READ, PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER, PERF_SAMPLE_TID,
    PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE, perf_event_attr,
};

/// Page faults of a thread that get a record of their own in a second; beyond, one record stands for several. A thread that
/// reads a model's weights has hundreds of thousands.
const FAULTS_HZ: u64 = 1_000;

/// An event of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A sample each so many nanoseconds of the thread's CPU time, with so many bytes of its stack.
    CpuClock { period_ns: u64, stack_bytes: usize },
    /// Nothing counted: carries the records of switches where no samples are taken.
    Carrier,
    /// Some of the switches off the CPU, at most so many a second, with the stack.
    Switches { hz: u32, stack_bytes: usize },
    PageFaults,
}

impl EventKind {
    /// Whether it copies registers and stack.
    pub(super) fn copies(self) -> bool {
        matches!(self, EventKind::CpuClock { .. } | EventKind::Switches { .. })
    }

    /// Opened disabled. `kernel`: what happens in the kernel is counted too.
    pub(super) fn attributes(self, kernel: bool) -> perf_event_attr {
        let mut attributes = perf_event_attr { type_: PERF_TYPE_SOFTWARE, ..Default::default() };
        let config = match self {
            EventKind::CpuClock { .. } => PERF_COUNT_SW_CPU_CLOCK,
            EventKind::Carrier => PERF_COUNT_SW_DUMMY,
            EventKind::Switches { .. } => PERF_COUNT_SW_CONTEXT_SWITCHES,
            EventKind::PageFaults => PERF_COUNT_SW_PAGE_FAULTS,
        };
        attributes.config = config.into();
        let sample = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_READ;
        attributes.sample_type = sample.into();
        attributes.set_disabled(1);
        attributes.set_exclude_kernel(u64::from(!kernel));
        attributes.set_exclude_hv(1);
        attributes.set_sample_id_all(1);
        attributes.set_use_clockid(1);
        attributes.clockid = libc::CLOCK_MONOTONIC;
        match self {
            EventKind::CpuClock { period_ns, .. } => attributes.sample_period = period_ns,
            EventKind::Carrier => {}
            EventKind::Switches { hz, .. } => {
                attributes.set_freq(1);
                attributes.sample_freq = hz.into();
            }
            EventKind::PageFaults => {
                attributes.set_freq(1);
                attributes.sample_freq = FAULTS_HZ;
            }
        }
        if let EventKind::CpuClock { stack_bytes, .. } | EventKind::Switches { stack_bytes, .. } = self {
            attributes.sample_type |= u64::from(PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER);
            attributes.sample_regs_user = REGISTERS;
            attributes.sample_stack_user = stack_bytes as u32;
        }
        // The first event of each thread tells also of switches, new names and the thread's end.
        if matches!(self, EventKind::CpuClock { .. } | EventKind::Carrier) {
            attributes.set_context_switch(1);
            attributes.set_comm(1);
            attributes.set_task(1);
        }
        attributes
    }
}
