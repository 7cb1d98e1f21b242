//! Samples, switches and page faults of one thread by the kernel's perf events.

mod event_kinds;
mod off_cpu;
mod perf_thread;
mod ring_records;
mod switch_budget;
mod sys;

pub(super) use perf_thread::{PerfMode, PerfThread, Reading, is_allowed};
