//! The pipeline behind the layer: drain → order → resolve → enrich → fan-out, on its own threads.

mod accounts;
pub(crate) mod ask_filters;
pub(crate) mod attribute;
pub(crate) mod capture_run;
pub(crate) mod collect;
pub(crate) mod drain;
pub(crate) mod enrich;
pub(crate) mod fanout;
mod graph_patterns;
pub(crate) mod in_place;
mod kernel_alignment;
pub(crate) mod kernel_thread;
mod mark_times;
pub(crate) mod paths;
mod replay_sizes;
mod replays;
pub(crate) mod resolve;
mod resolved;
pub(crate) mod stack_join;
pub(crate) mod stack_thread;
mod thread_infos;
mod thread_places;
mod thread_time;
pub(crate) mod threads;

use crate::diagnostics::Diagnostics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// CPU time of all background threads of a session.
#[derive(Debug, Default)]
pub(crate) struct BackgroundCpu {
    total_ns: AtomicU64,
}

impl BackgroundCpu {
    /// A meter for the calling thread.
    pub(crate) fn meter(self: &Arc<Self>) -> CpuMeter {
        CpuMeter { last: std::cell::Cell::new(thread_cpu_ns()), total: self.clone() }
    }

    /// Nanoseconds so far; `None` on platforms that do not report it.
    pub(crate) fn total_ns(&self) -> Option<u64> {
        cfg!(target_os = "linux").then(|| self.total_ns.load(Ordering::Relaxed))
    }
}

/// Adds one thread's CPU time to the total.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    last: std::cell::Cell<u64>,
    total: Arc<BackgroundCpu>,
}

impl CpuMeter {
    pub(crate) fn update(&self) {
        let now = thread_cpu_ns();
        self.total.total_ns.fetch_add(now.saturating_sub(self.last.replace(now)), Ordering::Relaxed);
    }
}

fn thread_cpu_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
    #[cfg(not(target_os = "linux"))]
    {
        0
    }
}

/// Prepares a background thread: its own spans are not recorded, it runs at a lower priority than the application's
/// threads, and its problems are reported to its session.
pub(crate) fn prepare_background_thread(diagnostics: &Diagnostics) {
    crate::layer::thread::mute_this_thread();
    diagnostics.adopt_thread();
    #[cfg(target_os = "linux")]
    {
        // On Linux each thread has its own nice value. Failure to lower the priority is ignored.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10);
    }
}
