//! Whose code a launching thread runs: told by the names and crates of the functions on its stack.

use super::host_causes::{RECORDING, leaves_recording};
use candlescope_figures::host_time::{CallTree, FrameName, PlaceTime, Weights};
use candlescope_figures::stats::total;
use std::collections::BTreeMap;

/// Waiting for the device: spinning in the driver until a copy or the stream is done.
const WAITING: &str = "waiting";
/// Functions below which a thread waits for the device.
const WAITS: [&str; 5] = ["memcpy_dtoh", "synchronize", "Synchronize", "stream_wait", "event_query"];
/// Work of the driver itself, not waiting.
const DRIVER: &str = "driver";
/// Allocation on the host.
const ALLOCATION: &str = "allocation";
/// cuBLAS.
const CUBLAS: &str = "cublas";
/// The bindings to the driver.
const CUDARC: &str = "cudarc";
/// candle.
const CANDLE: &str = "candle";
/// The program's own code: the model above candle.
const MODEL: &str = "model";
/// Crates that record.
const RECORDS: [&str; 4] = ["candlescope_core", "candlescope_collectors", "candlescope_exporters", "tracing"];
/// Parts of the names of functions that take and give back locks.
const LOCKS: [&str; 5] = ["pthread_mutex", "pthread_rwlock", "pthread_cond", "lll_lock", "futex"];
/// Less than this share of the steps' time without samples is the samples' own error.
const LEAST_OFF_CPU: f64 = 0.05;
/// Names of functions that allocate, and parts of such names.
const ALLOCATES: [&str; 10] = [
    "malloc",
    "_int_malloc",
    "cfree",
    "free",
    "_int_free",
    "realloc",
    "calloc",
    "malloc_consolidate",
    "unlink_chunk",
    "posix_memalign",
];

/// The time of the threads that entered a kind of steps, by whose code it was.
#[derive(Debug, Default)]
pub(super) struct LaunchParts {
    /// All of it, on the CPU and waiting, nanoseconds of all steps, as sampled.
    pub(super) all_ns: f64,
    /// What no sample stands for of these steps' time: their thread was off the CPU, and switches, which would say why, were
    /// not recorded.
    pub(super) off_cpu_ns: f64,
    /// Time on the CPU in locks of the driver, the kernel's part of them included.
    pub(super) locks_ns: f64,
    /// Samples on the CPU.
    pub(super) samples: u64,
    parts: BTreeMap<&'static str, f64>,
    functions: BTreeMap<FrameName, f64>,
}

impl LaunchParts {
    /// Of steps that took `total_ns` and had these places in them; `None` without samples.
    pub(super) fn of<'h>(places: impl Iterator<Item = &'h PlaceTime>, total_ns: u64) -> Option<Self> {
        let mut all = Self::default();
        for place in places {
            all.add(&place.calls);
            // Waits whose stack is not known are in no node.
            let known = total(place.calls.nodes.iter().map(|node| node.own.blocked_ns));
            let unknown = place.all.blocked_ns.saturating_sub(known) as f64;
            all.all_ns += unknown;
            *all.parts.entry(WAITING).or_default() += unknown;
        }
        let off_cpu_ns = total_ns as f64 - all.all_ns;
        if off_cpu_ns > LEAST_OFF_CPU * total_ns as f64 {
            all.off_cpu_ns = off_cpu_ns;
        }
        (all.all_ns > 0.0).then_some(all)
    }

    /// The steps' time: what was sampled, and what no sample stands for.
    pub(super) fn whole_ns(&self) -> f64 {
        self.all_ns + self.off_cpu_ns
    }

    fn add(&mut self, calls: &CallTree) {
        let mut of: Vec<Option<&'static str>> = Vec::with_capacity(calls.nodes.len());
        let mut in_lock: Vec<bool> = Vec::with_capacity(calls.nodes.len());
        for node in &calls.nodes {
            let above = node.parent.and_then(|parent| of[parent]);
            let own = part_of(&node.name);
            // What is called on behalf of a part belongs to it: the driver's locks, the kernel below it. Only who waits,
            // records or allocates is told apart within another's code.
            let part = match (above, own) {
                // A closure inside an interval is called through `tracing`. Marks go through cudarc, too.
                (Some(RECORDING), own) if own != Some(CUDARC) && leaves_recording(node.name.crate_name.as_deref()) => {
                    own
                }
                (Some(WAITING | RECORDING), _) => above,
                (_, Some(WAITING | RECORDING | ALLOCATION)) => own,
                (Some(DRIVER | ALLOCATION), _) => above,
                (_, Some(_)) => own,
                _ => above,
            };
            of.push(part);
            let locks = node.parent.is_some_and(|parent| in_lock[parent]) || is_lock(&node.name);
            in_lock.push(locks);
            if node.pool {
                continue;
            }
            if part == Some(DRIVER) {
                // What the driver asks of the system while it launches is to wait for a lock and to wake who waits.
                let Weights { own_ns, blocked_ns, kernel_ns, .. } = node.own;
                self.locks_ns += if locks { own_ns + blocked_ns } else { kernel_ns } as f64;
            }
            let (own_ns, blocked) = (node.own.own_ns as f64, node.own.blocked_ns as f64);
            self.all_ns += own_ns + blocked;
            self.samples += node.own.samples;
            *self.parts.entry(part.unwrap_or("other")).or_default() += own_ns + blocked;
            if part != Some(WAITING) {
                *self.functions.entry(node.name.clone()).or_default() += own_ns + blocked;
            }
        }
    }

    /// By part, waiting left out, in order of their names.
    pub(super) fn by_part(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.parts.iter().filter(|(part, _)| **part != WAITING).map(|(part, ns)| (*part, *ns))
    }

    /// Waiting for the device.
    pub(super) fn waiting_ns(&self) -> f64 {
        self.part(WAITING)
    }

    /// All of it without recording: what the unobserved step consists of.
    pub(super) fn unobserved_ns(&self) -> f64 {
        self.all_ns - self.part(RECORDING)
    }

    /// Allocation on the host, for which remedies are known.
    pub(super) fn allocation_ns(&self) -> f64 {
        self.part(ALLOCATION)
    }

    /// Everything of the unobserved step that is neither waiting nor the driver's or cuBLAS's.
    pub(super) fn all_but_driver_ns(&self) -> f64 {
        self.unobserved_ns() - self.part(WAITING) - self.part(DRIVER) - self.part(CUBLAS)
    }

    /// The function with most of the time that is no waiting.
    pub(super) fn top(&self) -> Option<&FrameName> {
        self.functions.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(name, _)| name)
    }

    fn part(&self, part: &str) -> f64 {
        self.parts.get(part).copied().unwrap_or(0.0)
    }
}

fn is_lock(name: &FrameName) -> bool {
    LOCKS.iter().any(|lock| name.function.contains(lock))
}

/// Whose a function is by its own name; `None` where it is its caller's.
fn part_of(name: &FrameName) -> Option<&'static str> {
    let function = &*name.function;
    let is = |part: &str| function.contains(part);
    let in_crate = |prefix: &str| name.crate_name.as_deref().is_some_and(|name| name.starts_with(prefix));
    if in_crate("candlescope_models") || in_crate("candle_transformers") {
        return Some(MODEL);
    }
    if RECORDS.iter().any(|name| in_crate(name)) || is("libcupti") {
        return Some(RECORDING);
    }
    if ALLOCATES.contains(&function) || is("__rust_alloc") || is("__rdl_alloc") {
        return Some(ALLOCATION);
    }
    if in_crate("cudarc") {
        return Some(if WAITS.iter().any(|wait| is(wait)) { WAITING } else { CUDARC });
    }
    if is("libcublas") {
        return Some(CUBLAS);
    }
    if is("libcuda") || is("libcudart") || is("[nvidia") {
        return Some(DRIVER);
    }
    // `candlescope_cli` and the like begin so, too, and are around the model.
    (in_crate("candle_") || name.crate_name.as_deref() == Some("candle")).then_some(CANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_figures::host_time::CallNode;

    #[test]
    fn time_belongs_to_whose_code_it_is() {
        let node = |function: &str, crate_name: Option<&str>, parent, own_ns| CallNode {
            name: FrameName { function: function.into(), crate_name: crate_name.map(Into::into) },
            parent,
            pool: false,
            own: Weights { own_ns, samples: 1, ..Weights::default() },
        };
        let nodes = vec![
            node("candle_core::Tensor::matmul", Some("candle_core"), None, 5),
            node("cudarc::driver::result::launch_kernel", Some("cudarc"), Some(0), 3),
            node("[libcuda.so.1]", None, Some(1), 20),
            node("malloc", None, Some(2), 2),
            node("malloc", None, Some(0), 7),
            node("cudarc::driver::result::memcpy_dtoh_sync", Some("cudarc"), Some(0), 0),
            node("[libcuda.so.1]", None, Some(5), 40),
            node("candlescope_core::layer::on_enter", Some("candlescope_core"), Some(0), 4),
            node("alloc::vec::Vec<T>::push", Some("alloc"), Some(0), 1),
            node("candlescope_cli::profile::record", Some("candlescope_cli"), None, 2),
            node("tracing::span::Span::in_scope", Some("tracing"), Some(9), 1),
            node("candle_nn::ops::softmax", Some("candle_nn"), Some(10), 6),
            node("candlescope_core::gpu::mark", Some("candlescope_core"), Some(9), 0),
            node("[libcuda.so.1]", None, Some(12), 8),
            node("my_server::step::{closure}", Some("my_server"), Some(10), 5),
        ];
        let mut parts = LaunchParts::default();
        parts.add(&CallTree { nodes });
        let all: Vec<(&str, f64)> = parts.by_part().collect();
        let wanted = [
            ("allocation", 9.0),
            ("candle", 12.0),
            ("cudarc", 3.0),
            ("driver", 20.0),
            ("other", 7.0),
            ("recording", 13.0),
        ];
        assert_eq!(all, wanted);
        assert_eq!((parts.waiting_ns(), parts.all_ns, parts.unobserved_ns()), (40.0, 104.0, 91.0));
        assert_eq!((parts.allocation_ns(), parts.all_but_driver_ns()), (9.0, 31.0));
        assert_eq!(parts.top().map(|name| &*name.function), Some("[libcuda.so.1]"));
    }
}
