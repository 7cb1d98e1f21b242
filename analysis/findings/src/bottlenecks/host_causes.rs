//! What functions that compute nothing are called for: a small table of known causes, and the time of each in a step.

use candlescope_figures::ThreadTimes;
use candlescope_figures::host_time::{CallTree, FrameName, PlaceTime, counting_error};
use candlescope_figures::stats::total;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A cause that the names of functions tell, without the arguments of generics: a list that memory is taken for may
/// stand in the name of any function.
pub(super) struct HostCause {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Parts of the names of functions below which time is its.
    below: &'static [&'static str],
    /// Names of functions below which time is its, whoever calls them.
    within: &'static [&'static str],
    /// Part of the names of functions whose own time is none of its, and parts of the names of those that they call for
    /// it.
    called_by: Option<(&'static str, &'static [&'static str])>,
    /// Parts of the names of functions below which time is its on threads of pools.
    on_pools: &'static [&'static str],
}

/// One that nothing tells.
const UNTOLD: HostCause = HostCause { name: "", below: &[], within: &[], called_by: None, on_pools: &[] };

/// candle asks for the number of cores at each product.
pub(super) const THREAD_COUNT: &str = "thread_count";
/// Threads of a pool are woken, waited for, and look for work.
pub(super) const POOL_SYNC: &str = "pool_sync";
/// Crates that a pool's synchronisation consists of, beside those of crossbeam.
const POOL_SYNC_USES: [&str; 4] = ["rayon_core", "core", "std", "alloc"];
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

/// Whether below a pool's synchronisation a function is none of it, but what the pool is there for: a job of rayon's,
/// which a thread that waits also takes on, or a function of a crate that has no part in a pool, such as the closure
/// that candle's pool calls on each thread.
fn leaves_pool_sync(crate_name: Option<&str>, path: &str) -> bool {
    let is_pools = |name: &str| {
        POOL_SYNC_USES.contains(&name) || name.starts_with("crossbeam") || path.contains("candle_core::utils::Barrier")
    };
    path.contains("rayon_core::job::") || crate_name.is_some_and(|name| !is_pools(name))
}

/// All causes; of several that fit, the first.
pub(super) const CAUSES: &[HostCause] = &[
    HostCause { name: THREAD_COUNT, below: &["num_cpus::", "default_num_threads"], ..UNTOLD },
    HostCause {
        name: RECORDING,
        below: &["candlescope_core::", "tracing_subscriber::", "tracing_core::", "tracing::span"],
        ..UNTOLD
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
            // candle's pool of quantised products, whose caller waits for the other threads here.
            "utils::BarrierGuard",
        ],
        within: &["sched_yield", "__sched_yield"],
        // The caller computes its share in here, in a function of its own or, without one, in this one's own time.
        called_by: Some(("utils::BarrierPool::execute", &["futex", "unpark", "Mutex"])),
        // candle's threads wait for work in a loop of their own, which is mostly part of the function that begins them.
        on_pools: &["utils::BarrierPool::new", "__rust_begin_short_backtrace", "futex"],
    },
    HostCause { name: "environment", below: &["std::env::"], within: &["getenv"], ..UNTOLD },
    HostCause { name: "formatting", below: &["core::fmt::", "alloc::fmt::"], ..UNTOLD },
    HostCause { name: "hashing", below: &["core::hash::", "SipHasher"], ..UNTOLD },
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
        ..UNTOLD
    },
    HostCause {
        name: COPIES,
        // `Tensor::cat` is in an `impl` of another module:
        // `candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat`.
        below: &["Tensor::contiguous", "tensor_cat::", "copy_strided_src", "::copy2d", "Tensor::force_contiguous"],
        ..UNTOLD
    },
];

impl HostCause {
    /// Whether a function of this path, called by `caller`, begins it.
    fn begins(&self, path: &str, caller: Option<&str>, on_pool: bool) -> bool {
        let has = |parts: &[&str]| parts.iter().any(|part| path.contains(part));
        let is_called = |(by, parts): (&str, &[&str])| caller.is_some_and(|caller| caller.contains(by)) && has(parts);
        has(self.below)
            || self.within.contains(&path)
            || self.called_by.is_some_and(is_called)
            || (on_pool && has(self.on_pools))
    }
}

/// The time of a cause in the steps of a kind.
#[derive(Debug, Default, Clone)]
pub(super) struct CauseTime {
    /// On the CPU, on the threads that entered the intervals, nanoseconds.
    pub(super) own_ns: f64,
    /// Waiting, likewise.
    pub(super) blocked_ns: f64,
    /// Samples of the time on the CPU.
    pub(super) samples: u64,
    /// Waits that were recorded with what they were in.
    pub(super) waits: u64,
    /// How many waits, each known whole, would tell as much of it: of more of them it is known how long they took than what they
    /// were in.
    pub(super) counted_waits: f64,
    /// By rollup path.
    pub(super) places: BTreeMap<String, f64>,
    /// By innermost function.
    pub(super) functions: BTreeMap<FrameName, f64>,
}

impl CauseTime {
    pub(super) fn ns(&self) -> f64 {
        self.own_ns + self.blocked_ns
    }

    /// In how many samples, each standing for as much, it would be known as well. A wait counts as one: it is measured,
    /// but is one of those that this run happened to have.
    pub(super) fn counts(&self) -> f64 {
        let variance = |ns: f64, n: f64| if ns > 0.0 { ns * ns / n.max(1.0) } else { 0.0 };
        let all = variance(self.own_ns, self.samples as f64) + variance(self.blocked_ns, self.counted_waits);
        if all > 0.0 { self.ns() * self.ns() / all } else { 0.0 }
    }

    /// Standard error of counting it, in nanoseconds, of `elapsed_ns` that passed.
    pub(super) fn error_ns(&self, elapsed_ns: f64) -> f64 {
        if self.ns() <= 0.0 || elapsed_ns <= 0.0 {
            return 0.0;
        }
        let share = self.ns() / elapsed_ns;
        counting_error(share, self.counts() / share) * elapsed_ns
    }

    /// `ns` divided among its paths as the time is. Nothing where there is no time.
    pub(super) fn spread(&self, ns: f64) -> impl Iterator<Item = (String, f64)> + '_ {
        self.places.iter().map(move |(place, of)| (place.clone(), ns * of / self.ns()))
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
    /// The share of the steps' time in which each wait was measured, where it began and ended, from 0 to 1.
    pub(super) waits_measured: f64,
    /// In the kernel for memory.
    pub(super) memory: CauseTime,
    /// What the threads that entered the intervals computed on the CPU, no known cause's, by path.
    pub(super) alone: BTreeMap<String, CauseTime>,
    /// What threads of pools computed, by the path that they computed for.
    pub(super) computed: BTreeMap<String, CauseTime>,
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
        all.waits_measured = threads.map_or(0.0, |threads| (threads.known_ns as f64 / total_ns.max(1) as f64).min(1.0));
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
        let waits = WaitsOfPlace::of(place, &of);
        let mut idle = 0;
        for (node, cause) in place.calls.nodes.iter().zip(&of) {
            if node.pool {
                let computed = CountedTime::of(node.own.pool_ns as f64, node.own.samples);
                match *cause == Some(POOL_SYNC) {
                    true => idle += node.own.pool_ns,
                    false => self.computed.entry(rollup.to_string()).or_default().add(rollup, None, computed),
                }
                continue;
            }
            let name = &node.name;
            let own = CountedTime::of(node.own.own_ns as f64, node.own.samples);
            let counted = node.own.waits as f64 * waits.each_counts_as(*cause);
            let blocked = CountedTime::blocked(node.own.blocked_ns as f64 * scale, node.own.waits, counted);
            match cause {
                Some(cause) => {
                    let of_cause = self.causes.entry(cause).or_default();
                    of_cause.add(rollup, Some(name), own);
                    of_cause.add(rollup, Some(name), blocked);
                }
                None => {
                    self.waits.add(rollup, Some(name), blocked);
                    let alone = self.alone.entry(rollup.to_string()).or_default();
                    alone.add(rollup, Some(place.calls.body_of(node)), own);
                }
            }
            if is_for_memory(name, self.sees_faults) {
                // As many of its samples as were in the kernel.
                let in_kernel = node.own.kernel_ns as f64 / node.own.own_ns.max(1) as f64;
                let samples = (node.own.samples as f64 * in_kernel.min(1.0)).round() as u64;
                self.memory.add(rollup, Some(name), CountedTime::of(node.own.kernel_ns as f64, samples));
            }
        }
        if known == 0 && place.all.blocked_ns > 0 {
            // No stack of a wait is known. Where threads of a pool compute for the path, it waits for them.
            let blocked = CountedTime::blocked(blocked_ns, place.all.waits, place.all.waits as f64);
            match place.all.pool_ns > idle {
                true => self.causes.entry(POOL_SYNC).or_default().add(rollup, None, blocked),
                false => self.waits.add(rollup, None, blocked),
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

/// Time of one kind, nanoseconds, and in how many samples or waits it was seen.
#[derive(Debug, Clone, Copy, Default)]
struct CountedTime {
    own_ns: f64,
    samples: u64,
    blocked_ns: f64,
    waits: u64,
    counted_waits: f64,
}

impl CountedTime {
    /// On the CPU.
    fn of(own_ns: f64, samples: u64) -> Self {
        Self { own_ns, samples, ..Self::default() }
    }

    /// Waiting.
    fn blocked(blocked_ns: f64, waits: u64, counted_waits: f64) -> Self {
        Self { blocked_ns, waits, counted_waits, ..Self::default() }
    }
}

/// The waits of a place, of some of which it is known what they were in, at random.
struct WaitsOfPlace {
    all: f64,
    known: f64,
    by_cause: BTreeMap<Option<&'static str>, f64>,
}

impl WaitsOfPlace {
    fn of(place: &PlaceTime, causes: &[Option<&'static str>]) -> Self {
        let mut by_cause: BTreeMap<Option<&'static str>, f64> = BTreeMap::new();
        for (node, cause) in place.calls.nodes.iter().zip(causes).filter(|(node, _)| !node.pool) {
            *by_cause.entry(*cause).or_default() += node.own.waits as f64;
        }
        let known = by_cause.values().sum();
        Self { all: (place.all.waits as f64).max(known), known, by_cause }
    }

    /// How many waits one of this cause counts as. Of `n` known ones a share `p` is of it, of `N` in all: that share has a
    /// relative variance of (1 − p)(1 − n/N)/(pn), and the number of waits one of 1/(pN). Where all known ones are of one cause,
    /// `p` is as if one more of each kind had been seen (Laplace).
    fn each_counts_as(&self, cause: Option<&'static str>) -> f64 {
        let of_cause = self.by_cause.get(&cause).copied().unwrap_or(0.0);
        if of_cause <= 0.0 || self.known <= 0.0 {
            return 1.0;
        }
        let share = of_cause / self.known;
        let smoothed = (of_cause + 1.0) / (self.known + 2.0);
        let of_share = (1.0 - smoothed) * (1.0 - self.known / self.all) / (smoothed * self.known);
        1.0 / ((1.0 / (share * self.all) + of_share) * of_cause)
    }
}

impl CauseTime {
    fn add(&mut self, rollup: &str, function: Option<&FrameName>, time: CountedTime) {
        let ns = time.own_ns + time.blocked_ns;
        if ns <= 0.0 {
            return;
        }
        self.own_ns += time.own_ns;
        self.blocked_ns += time.blocked_ns;
        self.samples += time.samples;
        self.waits += time.waits;
        self.counted_waits += time.counted_waits;
        *self.places.entry(rollup.to_string()).or_default() += ns;
        if let Some(function) = function {
            *self.functions.entry(function.clone()).or_default() += ns;
        }
    }
}

/// The cause of each node: its own, or that of its callers.
fn causes(calls: &CallTree) -> Vec<Option<&'static str>> {
    let paths: Vec<Cow<'_, str>> = calls.nodes.iter().map(|node| node.name.path()).collect();
    let mut of: Vec<Option<&'static str>> = Vec::with_capacity(calls.nodes.len());
    for (node, path) in calls.nodes.iter().zip(&paths) {
        let crate_name = node.name.crate_name.as_deref();
        let leaves = |cause: &&'static str| match *cause {
            RECORDING => leaves_recording(crate_name),
            POOL_SYNC => leaves_pool_sync(crate_name, path),
            _ => false,
        };
        let above = node.parent.and_then(|parent| of[parent]).filter(|cause| !leaves(cause));
        let caller = node.parent.map(|parent| &*paths[parent]);
        let own = || CAUSES.iter().find(|cause| cause.begins(path, caller, node.pool)).map(|cause| cause.name);
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
    use candlescope_figures::host_time::{CallNode, Weights};

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
        let found: Vec<_> = names.iter().map(|name| causes_of(&[(*name, None)], false)[0]).collect();
        assert_eq!(found, [Some(COPIES), Some(COPIES), Some(COPIES), Some(COPIES), None, None]);
    }

    /// The cause of each function of a stack, outermost first, each with its crate.
    fn causes_of(stack: &[(&str, Option<&str>)], pool: bool) -> Vec<Option<&'static str>> {
        let node = |(nth, (function, crate_name)): (usize, &(&str, Option<&str>))| CallNode {
            name: FrameName { function: (*function).into(), crate_name: crate_name.map(Into::into) },
            parent: nth.checked_sub(1),
            pool,
            own: Weights { own_ns: 1, samples: 1, ..Weights::default() },
        };
        causes(&CallTree { nodes: stack.iter().enumerate().map(node).collect() })
    }

    const CANDLE: Option<&str> = Some("candle_core");
    const STD: Option<&str> = Some("std");
    const RAYON: Option<&str> = Some("rayon_core");
    const CORE: Option<&str> = Some("core");
    const SYNC: Option<&str> = Some(POOL_SYNC);
    const NONE: Option<&str> = None;
    const EXECUTE: &str = "candle_core::utils::BarrierPool::execute_chunked";
    const GUARD: &str = "<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop";

    #[test]
    fn what_a_pool_was_given_to_compute_is_none_of_its_synchronisation() {
        // Products of Q4_1 by candle 0.11, as stacks of runs have them: the caller's own share, and its waiting.
        let matmul = ("candle_core::quantized::k_quants::matmul", CANDLE);
        let closure = ("candle_core::quantized::k_quants::matmul::{{closure}}::{{closure}}", CANDLE);
        let dot = ("candle_core::quantized::k_quants::GgmlType::vec_dot_2", CANDLE);
        let execute = (EXECUTE, CANDLE);
        let zip = ("<core::iter::adapters::zip::Zip<A,B> as core::iter::adapters::zip::ZipImpl<A,B>>::new", CORE);
        assert_eq!(causes_of(&[matmul, execute, closure, dot, zip], false), [NONE; 5]);
        assert_eq!(causes_of(&[matmul, execute, (GUARD, CANDLE)], false), [None, None, SYNC]);
        let wake = ("std::sys::pal::unix::futex::futex_wake", STD);
        assert_eq!(causes_of(&[execute, wake, ("syscall", None)], false), [None, SYNC, SYNC]);
        assert_eq!(causes_of(&[wake, ("syscall", None)], false), [NONE; 2], "not for the pool");
        // A thread that waits for its half takes on another job meanwhile, in which it may wait again.
        let wait = ("rayon_core::registry::WorkerThread::wait_until_cold", RAYON);
        let job = ("<rayon_core::job::StackJob<L,F,R> as rayon_core::job::Job>::execute", RAYON);
        let rows = ("rayon::iter::plumbing::bridge_producer_consumer::helper", Some("rayon"));
        let own = ("<candle_nn::ops::SoftmaxLastDim as candle_core::custom_op::CustomOp1>::cpu_fwd", Some("candle_nn"));
        assert_eq!(causes_of(&[wait, ("sched_yield", None)], false), [SYNC; 2]);
        assert_eq!(causes_of(&[wait, job, rows, own], false), [SYNC, None, None, None]);
        assert_eq!(causes_of(&[wait, job, rows, wait], false), [SYNC, None, None, SYNC]);
    }

    #[test]
    fn a_pool_s_thread_that_looks_for_work_computes_nothing() {
        // Its loop is mostly part of the function that begins it; a job is called there.
        let begin = ("std::sys::backtrace::__rust_begin_short_backtrace", STD);
        let call = ("candle_core::utils::call_trampoline", CANDLE);
        assert_eq!(causes_of(&[begin], true), [SYNC]);
        assert_eq!(causes_of(&[begin, call], true), [SYNC, None]);
        let loops = ("candle_core::utils::BarrierPool::new::{{closure}}", CANDLE);
        assert_eq!(causes_of(&[loops, call], true), [SYNC, None]);
        // In a thread of the program that function is the program's.
        assert_eq!(causes_of(&[begin], false), [NONE]);
    }

    #[test]
    fn what_a_function_is_used_with_brings_about_nothing() {
        // As runs of `profile` have them: around everything, and around the wait of a softmax.
        let names = [
            "catch_unwind<core::result::Result<alloc::vec::Vec<candlescope_cli::work::Output, alloc::alloc::Global>>>",
            "<std::collections::hash::map::HashMap<K, V, core::hash::BuildHasherDefault<S>> as core::ops::Drop>::drop",
        ];
        names.iter().for_each(|name| assert_eq!(causes_of(&[(*name, STD)], false), [NONE], "{name}"));
        let taken = "<alloc::alloc::Global as core::alloc::Allocator>::allocate";
        assert_eq!(causes_of(&[(names[0], STD), (taken, Some("alloc"))], false), [None, Some("allocation")]);
        let waits = [(names[0], STD), ("rayon_core::sleep::Sleep::sleep", RAYON), ("syscall", None)];
        assert_eq!(causes_of(&waits, false), [None, SYNC, SYNC]);
    }

    #[test]
    fn time_is_known_as_well_as_it_was_counted() {
        let time = |own_ns, samples, blocked_ns, waits| CauseTime {
            own_ns,
            samples,
            blocked_ns,
            waits,
            counted_waits: waits as f64,
            ..CauseTime::default()
        };
        assert_eq!(time(80.0, 36, 0.0, 0).counts(), 36.0);
        assert_eq!(time(0.0, 0, 80.0, 2).counts(), 2.0);
        // Two halves, one of which rests on four.
        assert!((time(40.0, 400, 40.0, 4).counts() - 15.84).abs() < 0.01);
        assert_eq!(CauseTime::default().counts(), 0.0);
        // A tenth in 36 of 360 samples: two standard errors are a third of it, a little less as it is no small part.
        assert!((time(100.0, 36, 0.0, 0).error_ns(1_000.0) - 15.81).abs() < 0.01);
        assert_eq!(CauseTime::default().error_ns(1_000.0), 0.0);
    }

    #[test]
    fn waits_whose_stack_is_not_known_tell_how_long_they_took() {
        let of = |all, by_cause: &[(Option<&'static str>, f64)]| WaitsOfPlace {
            all,
            known: by_cause.iter().map(|(_, waits)| waits).sum(),
            by_cause: by_cause.iter().copied().collect(),
        };
        // 22 of 92 are known, all of one cause: nearly as good as 92.
        let one = of(92.0, &[(None, 22.0)]);
        assert!((22.0 * one.each_counts_as(None) - 82.0).abs() < 2.0, "{}", 22.0 * one.each_counts_as(None));
        // Half of them: what they are is known by 22, and of these by 11.
        let two = of(92.0, &[(None, 11.0), (Some(POOL_SYNC), 11.0)]);
        let counted = 11.0 * two.each_counts_as(None);
        assert!(counted > 11.0 && counted < 22.0, "{counted}");
        // Where each is known, each counts as one.
        let all = of(22.0, &[(None, 11.0), (Some(POOL_SYNC), 11.0)]);
        assert!((all.each_counts_as(None) - 1.0).abs() < 1e-9);
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
