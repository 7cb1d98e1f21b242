//! What functions that compute nothing are called for: a small table of known causes, and the time of each in a step.

use candlescope_figures::ThreadTimes;
use candlescope_figures::host_time::{CallTree, FrameName, PlaceTime};
use candlescope_figures::stats::total;
use std::collections::BTreeMap;

/// A cause that the names of functions tell.
pub(super) struct HostCause {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Parts of the names of functions below which time is its.
    below: &'static [&'static str],
    /// Names of innermost functions whose time is its, whoever calls them.
    within: &'static [&'static str],
}

/// candle asks for the number of cores at each product.
pub(super) const THREAD_COUNT: &str = "thread_count";
/// Threads of a pool are woken, waited for, and look for work.
pub(super) const POOL_SYNC: &str = "pool_sync";
/// Tensors are copied: to be joined, or to lie in order.
pub(super) const COPIES: &str = "copies";

/// candlescope and `tracing` record.
pub(super) const RECORDING: &str = "recording";
/// Crates that recording calls, beside its own. What another crate does below it is a closure inside an interval.
const RECORDING_USES: [&str; 17] = [
    "core",
    "std",
    "alloc",
    "tracing",
    "tracing_core",
    "tracing_subscriber",
    "candlescope_core",
    "candlescope_collectors",
    "candlescope_exporters",
    "rtrb",
    "quanta",
    "hashbrown",
    "rustc_hash",
    "thread_local",
    "sharded_slab",
    "once_cell",
    "parking_lot",
];

/// Whether below recording a function of this crate is none of it: it is in a closure inside an interval.
pub(super) fn leaves_recording(crate_name: Option<&str>) -> bool {
    crate_name.is_some_and(|name| !RECORDING_USES.contains(&name))
}

/// All causes; of several that fit, the first.
pub(super) const CAUSES: &[HostCause] = &[
    HostCause { name: THREAD_COUNT, below: &["num_cpus::", "default_num_threads"], within: &[] },
    HostCause {
        name: RECORDING,
        below: &["candlescope_core::", "tracing_subscriber::", "tracing_core::", "tracing::span"],
        within: &[],
    },
    HostCause {
        name: POOL_SYNC,
        below: &[
            "rayon_core::latch",
            "rayon_core::sleep",
            "rayon_core::registry::Registry::in_worker_cold",
            "rayon_core::registry::WorkerThread::wait_until",
            "rayon_core::registry::Registry::inject",
            "crossbeam_deque::",
            "crossbeam_epoch::",
            "BarrierPool",
        ],
        within: &["sched_yield", "__sched_yield"],
    },
    HostCause { name: "environment", below: &["std::env::"], within: &["getenv"] },
    HostCause { name: "formatting", below: &["core::fmt::", "alloc::fmt::"], within: &[] },
    HostCause { name: "hashing", below: &["core::hash::", "SipHasher"], within: &[] },
    HostCause {
        name: "allocation",
        below: &["alloc::alloc::", "RawVec", "__rust_alloc", "__rust_dealloc", "__rdl_alloc"],
        within: &[
            "malloc",
            "_int_malloc",
            "free",
            "_int_free",
            "cfree",
            "calloc",
            "realloc",
            "malloc_consolidate",
            "unlink_chunk",
        ],
    },
    HostCause {
        name: COPIES,
        // `Tensor::cat` is in an `impl` of another module:
        // `candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat`.
        below: &["Tensor::contiguous", "tensor_cat::", "copy_strided_src", "::copy2d", "Tensor::force_contiguous"],
        within: &[],
    },
];

/// The time of a cause in the steps of a kind.
#[derive(Debug, Default, Clone)]
pub(super) struct CauseTime {
    /// On the CPU, on the threads that entered the intervals, nanoseconds.
    pub(super) own_ns: f64,
    /// Waiting, likewise.
    pub(super) blocked_ns: f64,
    /// Samples of the time on the CPU.
    pub(super) samples: u64,
    /// By rollup path.
    pub(super) places: BTreeMap<String, f64>,
    /// By innermost function.
    pub(super) functions: BTreeMap<FrameName, f64>,
}

impl CauseTime {
    pub(super) fn ns(&self) -> f64 {
        self.own_ns + self.blocked_ns
    }

    /// The path with most of it.
    pub(super) fn place(&self) -> Option<&str> {
        most(&self.places).map(String::as_str)
    }

    /// The function with most of it.
    pub(super) fn function(&self) -> Option<&FrameName> {
        most(&self.functions)
    }
}

fn most<K>(of: &BTreeMap<K, f64>) -> Option<&K> {
    of.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(name, _)| name)
}

/// From this share of the steps' time on, what threads did in it is taken for what they did in all of it.
const LEAST_RECORDED: f64 = 0.05;

/// What the host did in the steps of a kind.
#[derive(Debug, Default)]
pub(super) struct HostOfStep {
    /// Whether samples tell of page faults.
    pub(super) sees_faults: bool,
    /// Time that passed on the threads that entered the intervals, as sampled, nanoseconds.
    pub(super) elapsed_ns: f64,
    /// By the name of the cause.
    pub(super) causes: BTreeMap<&'static str, CauseTime>,
    /// Waiting for no known cause.
    pub(super) waits: CauseTime,
    /// In the kernel for memory.
    pub(super) memory: CauseTime,
    /// What the threads that entered the intervals computed on the CPU, no known cause's, by path.
    pub(super) alone: BTreeMap<String, CauseTime>,
    /// What threads of pools computed, by the path that they computed for.
    pub(super) computed: BTreeMap<String, f64>,
}

impl HostOfStep {
    /// Of steps that took `total_ns` in all, by their paths; `None` if no stacks were sampled in them. `source` is what
    /// sampled them, `threads` what is known of the steps' threads.
    ///
    /// A thread that waits very often has its waits recorded a part of the time only, and its samples all of the time:
    /// samples of waits stand for as much as is known to be waited.
    pub(super) fn of<'p>(
        places: impl Iterator<Item = (&'p String, &'p PlaceTime)>,
        total_ns: u64,
        source: Option<&str>,
        threads: Option<&ThreadTimes>,
    ) -> Option<Self> {
        let places: Vec<_> = places.collect();
        let sampled = total(places.iter().map(|(_, place)| place.all.blocked_ns)) as f64;
        let waits_scale = threads.map_or(1.0, |threads| waits_scale(sampled, threads, total_ns as f64));
        let mut all = Self { sees_faults: source == Some("perf"), ..Self::default() };
        places.into_iter().for_each(|(rollup, place)| all.add(rollup, place, waits_scale));
        if all.elapsed_ns <= 0.0 {
            return None;
        }
        // Where waits are not recorded, what was sampled is less than the time that passed.
        all.elapsed_ns = all.elapsed_ns.max(total_ns as f64);
        Some(all)
    }

    /// A sample of waiting stands for `waits_scale` times what it says.
    fn add(&mut self, rollup: &str, place: &PlaceTime, waits_scale: f64) {
        self.elapsed_ns += place.all.elapsed_ns() as f64;
        let of = causes(&place.calls);
        let known = total(place.calls.nodes.iter().map(|node| node.own.blocked_ns));
        // Of some waits the stack is known; the others are taken to be like them.
        let blocked_ns = place.all.blocked_ns as f64 * waits_scale;
        let scale = if known > 0 { blocked_ns / known as f64 } else { 0.0 };
        for (node, cause) in place.calls.nodes.iter().zip(&of) {
            let (own, blocked) = (node.own.own_ns as f64, node.own.blocked_ns as f64 * scale);
            if node.pool {
                if *cause != Some(POOL_SYNC) {
                    *self.computed.entry(rollup.to_string()).or_default() += node.own.pool_ns as f64;
                }
                continue;
            }
            let name = &node.name;
            match cause {
                Some(cause) => {
                    self.causes.entry(cause).or_default().add(rollup, Some(name), own, blocked, node.own.samples);
                }
                None => {
                    self.waits.add(rollup, Some(name), 0.0, blocked, 0);
                    let alone = self.alone.entry(rollup.to_string()).or_default();
                    alone.add(rollup, Some(place.calls.body_of(node)), own, 0.0, node.own.samples);
                }
            }
            let kernel = node.own.kernel_ns as f64;
            if kernel > 0.0 && is_for_memory(name, self.sees_faults) {
                self.memory.add(rollup, Some(name), kernel, 0.0, node.own.samples);
            }
        }
        if known == 0 && place.all.blocked_ns > 0 {
            // No stack of a wait is known. Where threads of a pool compute for the path, it waits for them.
            match place.all.pool_ns > 0 {
                true => self.causes.entry(POOL_SYNC).or_default().add(rollup, None, 0.0, blocked_ns, 0),
                false => self.waits.add(rollup, None, 0.0, blocked_ns, 0),
            }
        }
    }
}

/// What samples of waiting stand for, in times of what they say: as much as the share of the time in which waits were
/// recorded accounts for, and 1 where that is too little to go by.
fn waits_scale(sampled: f64, threads: &ThreadTimes, total_ns: f64) -> f64 {
    let recorded = threads.known_ns as f64 / total_ns;
    let Some(share) = threads.share(threads.blocked_ns).filter(|_| recorded >= LEAST_RECORDED && sampled > 0.0) else {
        return 1.0;
    };
    (share * total_ns / sampled).clamp(1.0, 1.5 / recorded)
}

impl CauseTime {
    fn add(&mut self, rollup: &str, function: Option<&FrameName>, own: f64, blocked: f64, samples: u64) {
        if own + blocked <= 0.0 {
            return;
        }
        self.own_ns += own;
        self.blocked_ns += blocked;
        self.samples += samples;
        *self.places.entry(rollup.to_string()).or_default() += own + blocked;
        if let Some(function) = function {
            *self.functions.entry(function.clone()).or_default() += own + blocked;
        }
    }
}

/// The cause of each node: its own, or that of its callers.
fn causes(calls: &CallTree) -> Vec<Option<&'static str>> {
    let mut of: Vec<Option<&'static str>> = Vec::with_capacity(calls.nodes.len());
    for node in &calls.nodes {
        let is_closure = |cause: &&str| *cause == RECORDING && leaves_recording(node.name.crate_name.as_deref());
        let above = node.parent.and_then(|parent| of[parent]).filter(|cause| !is_closure(cause));
        let name = &*node.name.function;
        let own = || {
            let fits =
                |cause: &&HostCause| cause.below.iter().any(|part| name.contains(part)) || cause.within.contains(&name);
            CAUSES.iter().find(fits).map(|cause| cause.name)
        };
        of.push(above.or_else(own));
    }
    of
}

/// Whether its time in the kernel is for memory: it asks for some, or it called nothing, so that it touched a page that
/// was not there.
///
/// Where samples come by signals, only calls are told: a page that was not there is none.
fn is_for_memory(name: &FrameName, sees_faults: bool) -> bool {
    const ASK: [&str; 8] = ["mmap", "munmap", "madvise", "mremap", "brk", "sbrk", "__mmap", "__munmap"];
    const CALLS: [&str; 22] = [
        "syscall",
        "read",
        "write",
        "open",
        "openat",
        "close",
        "futex",
        "sched_yield",
        "ioctl",
        "poll",
        "ppoll",
        "epoll_wait",
        "nanosleep",
        "clock_nanosleep",
        "lseek",
        "stat",
        "fstat",
        "clone",
        "clone3",
        "recv",
        "send",
        "fsync",
    ];
    let plain = name.function.trim_start_matches('_').trim_start_matches("libc_");
    ASK.contains(&&*name.function)
        || (sees_faults && !CALLS.contains(&plain) && !plain.starts_with("pthread_") && !name.is_unknown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_candle_joins_tensors_with_is_copying() {
        // As symbols of candle 0.11 stand in runs.
        let names = [
            "candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat",
            "candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat_contiguous",
            "candle_core::storage::Storage::copy2d",
            "candle_core::tensor::Tensor::contiguous",
            "candle_core::layout::Layout::is_contiguous",
            "gemm_f32::gemm::f32::fma::gemm_basic",
        ];
        let cause = |name: &str| CAUSES.iter().find(|cause| cause.below.iter().any(|part| name.contains(part)));
        let found: Vec<_> = names.iter().map(|name| cause(name).map(|cause| cause.name)).collect();
        assert_eq!(found, [Some(COPIES), Some(COPIES), Some(COPIES), Some(COPIES), None, None]);
    }

    #[test]
    fn waits_stand_for_all_where_a_part_was_recorded() {
        let threads = |known_ns, blocked_ns| ThreadTimes { known_ns, blocked_ns, ..ThreadTimes::default() };
        // A quarter was recorded, half of which was waiting: samples have 125 of what are 500.
        assert_eq!(waits_scale(125.0, &threads(250, 125), 1_000.0), 4.0);
        assert_eq!(waits_scale(500.0, &threads(1_000, 500), 1_000.0), 1.0);
        // One short sample does not stand for everything, and little that was recorded for nothing.
        assert_eq!(waits_scale(1.0, &threads(250, 125), 1_000.0), 6.0);
        assert_eq!(waits_scale(10.0, &threads(20, 10), 1_000.0), 1.0);
    }
}
