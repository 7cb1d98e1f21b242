//! Kernels, copies and memsets through CUPTI's Activity API, each with the interval and the call that launched it.
//!
//! The library is loaded on demand, so this builds and runs anywhere; if something is missing, [`Cupti`] says what, and
//! how to get it. CUPTI of CUDA 12 and 13 is supported.
//!
//! | file | does |
//! |---|---|
//! | `search`, `errors` | where the library may be; what prevents recording |
//! | `sys` | C functions, and our callbacks, which CUPTI calls |
//! | `detach`, `in_flight` | when CUPTI leaves the process, and who may call it meanwhile |
//! | `buffers`, `lanes` | what application threads hand over: full buffers, launch calls |
//! | `records`, `names`, `numbers`, `clock` | bytes to records, symbols to names, ids to unique ones, CUPTI's time to the host's |
//! | `join` | kernels to their calls and intervals |
//! | `backend`, `kernel_recorder` | what is switched on in a window, and the kernels that come of it |
//!
//! # What it costs
//!
//! Measured on an H200 in a VM, CUDA 13.0, driver 580 (`docs/measurements/gpu.md`); nanoseconds of the launching thread
//! per kernel:
//!
//! | | ns |
//! |---|---|
//! | without CUPTI | 2,600 |
//! | CUPTI attached, nothing recorded | 2,950 |
//! | kernels recorded, in a window | 3,180–3,390 |
//!
//! So recording is for windows of a few steps, and between windows CUPTI is detached: while attached it slows down
//! every call of the driver, even with everything switched off, by 9 to 12 % of a decode step of a small model. While it
//! is attached calls stay followed, as in a window.
//!
//! Kernels find their intervals through callbacks at launch calls. CUPTI's external correlation ids would be another
//! way, but they cost one or two more records per launch; and with records of selected calls only
//! (`cuptiActivityEnableDriverApi`), which would be the cheap way to get them, no kernel could be tied to an interval
//! on the same machine.

mod backend;
mod buffers;
mod calls;
mod clock;
mod detach;
mod errors;
mod in_flight;
mod join;
mod kernel_recorder;
mod lanes;
mod names;
mod numbers;
mod records;
mod search;
mod sys;

use candlescope_core::gpu::{Activity, ActivityError, ActivitySink, Correlator};
use candlescope_core::{HostNs, SpanId};
use kernel_recorder::KernelRecorder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How kernels find the interval and the call that launched them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Correlate {
    /// CUPTI calls us at the beginning and end of each launch call, on the thread that makes it. The interval is the
    /// top of that thread's stack, and CUPTI writes records of the work itself only.
    #[default]
    Callbacks,
    /// Kernels alone, without interval or call: the cheapest way to record.
    Nothing,
}

impl Correlate {
    /// Short stable name, as in `run.json`.
    pub fn name(self) -> &'static str {
        match self {
            Correlate::Callbacks => "callbacks",
            Correlate::Nothing => "nothing",
        }
    }
}

/// How kernels are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuptiOptions {
    correlate: Correlate,
    library: Option<PathBuf>,
    runtime_calls: bool,
    keep_attached: bool,
    attach_late: bool,
    buffer_bytes: usize,
    max_buffers: usize,
    ring_calls: usize,
    device_buffer_bytes: Option<usize>,
}

impl Default for CuptiOptions {
    fn default() -> Self {
        Self {
            correlate: Correlate::default(),
            library: None,
            runtime_calls: false,
            keep_attached: false,
            attach_late: false,
            buffer_bytes: 4 << 20,
            max_buffers: 64,
            ring_calls: 65_536,
            device_buffer_bytes: None,
        }
    }
}

impl CuptiOptions {
    /// How kernels find their intervals.
    #[must_use]
    pub fn correlate(mut self, correlate: Correlate) -> Self {
        self.correlate = correlate;
        self
    }

    /// The library's file. Without it: the file that `CANDLESCOPE_CUPTI` names, else `libcupti.so.13`, `.12` and
    /// `libcupti.so` by the loader's own search, else those below `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda`.
    #[must_use]
    pub fn library(mut self, library: impl Into<PathBuf>) -> Self {
        self.library = Some(library.into());
        self
    }

    /// Whether calls of the CUDA runtime are followed too; off by default. cuBLAS and cuDNN launch through it. Their
    /// kernels get their interval either way, because the runtime calls the driver; only the name of the call differs
    /// (`cudaLaunchKernelExC` instead of `cuLaunchKernelEx`), and each such launch costs two more callbacks.
    #[must_use]
    pub fn runtime_calls(mut self, runtime_calls: bool) -> Self {
        self.runtime_calls = runtime_calls;
        self
    }

    /// Whether CUPTI stays in the process between windows and after the last; off by default. While attached it costs
    /// up to 0.8 µs per launch, as in a window, because calls are followed all the time. Detaching it and attaching it
    /// again take milliseconds per window, in the middle of the program's launches. `CANDLESCOPE_CUPTI_KEEP_ATTACHED=1` does the same for a program
    /// that cannot be rebuilt. CUPTI before CUDA 12.6 always stays, because detaching it crashed programs with CUDA
    /// graphs.
    #[must_use]
    pub fn keep_attached(mut self, keep_attached: bool) -> Self {
        self.keep_attached = keep_attached;
        self
    }

    /// Whether CUPTI is attached by the first window instead of by [`prepare`](Activity::prepare), and detached again
    /// by the next launch; off by default. If on, the program is not slowed down before the first window, but that
    /// window takes longer to open, and what prevents recording (another tool, missing rights) is known only then.
    #[must_use]
    pub fn attach_late(mut self, attach_late: bool) -> Self {
        self.attach_late = attach_late;
        self
    }

    /// Bytes of a buffer for records, by default 4 MiB: some 19,000 kernels. CUDA 13 gives each launching thread a
    /// buffer of its own.
    #[must_use]
    pub fn buffer_bytes(mut self, buffer_bytes: usize) -> Self {
        self.buffer_bytes = buffer_bytes;
        self
    }

    /// Buffers that may exist at a time, 64 by default.
    ///
    /// Overload policy: when all are in use, CUPTI drops records and counts them. Recording must not use up the memory
    /// of the program that it records.
    #[must_use]
    pub fn max_buffers(mut self, max_buffers: usize) -> Self {
        self.max_buffers = max_buffers;
        self
    }

    /// Launch calls that a thread's ring holds between two deliveries, 65,536 (3 MiB) by default; used with
    /// [`Correlate::Callbacks`] only.
    ///
    /// Overload policy: a full ring drops the newest call and counts it; what it launched is recorded without an
    /// interval.
    #[must_use]
    pub fn ring_calls(mut self, ring_calls: usize) -> Self {
        self.ring_calls = ring_calls;
        self
    }

    /// Bytes of each of CUPTI's own buffers on the device; without it, CUPTI's default of 3 MB, or 100,000 kernels.
    /// Takes effect for contexts that are made later.
    #[must_use]
    pub fn device_buffer_bytes(mut self, device_buffer_bytes: usize) -> Self {
        self.device_buffer_bytes = Some(device_buffer_bytes);
        self
    }
}

/// The library that would be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuptiFacts {
    /// Its file.
    pub library: PathBuf,
    /// The API version that it reports, as in `cupti_version.h`.
    pub api_version: u32,
    /// The CUDA toolkit of that version, such as `13.0`.
    pub toolkit: String,
}

/// Finds the library without using it.
///
/// # Errors
/// If there is none that can be used in this process, with the remedy. Whether there is a GPU is not checked.
pub fn probe() -> Result<CuptiFacts, ActivityError> {
    let driver = sys::Driver::load().ok().and_then(|driver| driver.version());
    let cupti = load(None, driver)?;
    let api_version = cupti.version();
    if !search::understood(api_version) {
        return Err(errors::version(cupti.path(), api_version));
    }
    Ok(CuptiFacts { library: cupti.path().into(), api_version, toolkit: search::toolkit(api_version) })
}

fn load(given: Option<&std::path::Path>, driver: Option<u32>) -> Result<sys::Cupti, ActivityError> {
    let environment = |name: &str| std::env::var(name).ok();
    if let Some(obstacle) = search::obstacle(&environment) {
        return Err(obstacle);
    }
    sys::Cupti::load(&search::candidates(given, &environment, driver))
}

/// Sets [`CuptiOptions::keep_attached`] from outside.
const KEEP_ATTACHED: &str = "CANDLESCOPE_CUPTI_KEEP_ATTACHED";

/// Records kernels through CUPTI. There can be one at a time in a process, because CUPTI serves one client.
///
/// If a program makes its CUDA context before [`prepare`](Activity::prepare), that call takes up to seconds; if it
/// makes the context later, opening the first window does. Between windows CUPTI is not in the process: after
/// [`release`](Activity::release) the next launch detaches it, and [`enable`](Activity::enable) attaches it again.
#[derive(Debug)]
pub struct Cupti {
    options: CuptiOptions,
    threads: Arc<Threads>,
    /// Dropped in this order: the recorder releases CUPTI first, then another one may claim it.
    recorder: Option<KernelRecorder<backend::Real>>,
    claim: Option<Claim>,
    pace: Pace,
}

impl Default for Cupti {
    fn default() -> Self {
        Self::new(CuptiOptions::default())
    }
}

impl Cupti {
    /// A recorder with these options. Nothing is loaded before [`prepare`](Activity::prepare).
    pub fn new(options: CuptiOptions) -> Self {
        let threads = Threads { correlate: options.correlate };
        Self { options, threads: Arc::new(threads), recorder: None, claim: None, pace: Pace::default() }
    }

    fn recorder(&mut self) -> Result<&mut KernelRecorder<backend::Real>, ActivityError> {
        self.recorder.as_mut().ok_or_else(|| {
            ActivityError("kernels cannot be recorded before `prepare` has succeeded: call it first".to_string())
        })
    }
}

impl Activity for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn correlator(&self) -> Arc<dyn Correlator> {
        Arc::clone(&self.threads) as Arc<dyn Correlator>
    }

    fn prepare(&mut self) -> Result<(), ActivityError> {
        if self.recorder.is_some() {
            return Ok(());
        }
        let claim = Claim::take()?;
        let driver = sys::Driver::load()?;
        let cupti = load(self.options.library.as_deref(), driver.version())?;
        let mut options = self.options.clone();
        options.keep_attached |= std::env::var(KEEP_ATTACHED).is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
        self.recorder = Some(KernelRecorder::new(backend::Real::new(cupti, driver), &options)?);
        self.claim = Some(claim);
        Ok(())
    }

    fn describe(&mut self) -> BTreeMap<String, Value> {
        self.recorder.as_ref().map(KernelRecorder::describe).unwrap_or_default()
    }

    fn wait(&self) -> Duration {
        if self.options.keep_attached { Duration::ZERO } else { self.pace.wait(Instant::now()) }
    }

    fn enable(&mut self) -> Result<(), ActivityError> {
        self.pace.window(Instant::now());
        self.recorder()?.enable()
    }

    fn disable(&mut self) -> Result<(), ActivityError> {
        self.recorder()?.disable()
    }

    fn collect(&mut self, all: bool, host: &dyn Fn() -> HostNs, into: &mut ActivitySink) -> Result<(), ActivityError> {
        self.recorder()?.collect(all, host, into)
    }

    fn release(&mut self) -> Result<(), ActivityError> {
        // Without a recorder there is nothing to release.
        self.recorder.iter_mut().for_each(KernelRecorder::release);
        Ok(())
    }
}

/// When windows may come.
///
/// CUPTI keeps about half a MiB of the device's memory each time it is detached (measured: 40 MiB after 85 windows,
/// none without detaching). So the first windows come as requested, and later ones keep a minimum distance: 3 MiB per
/// hour at most.
#[derive(Debug, Default)]
struct Pace {
    windows: u64,
    last: Option<Instant>,
}

impl Pace {
    const FREE: u64 = 64;
    const APART: Duration = Duration::from_secs(600);

    fn window(&mut self, now: Instant) {
        self.windows += 1;
        self.last = Some(now);
    }

    fn wait(&self, now: Instant) -> Duration {
        match self.last {
            Some(last) if self.windows >= Self::FREE => Self::APART.saturating_sub(now.saturating_duration_since(last)),
            _ => Duration::ZERO,
        }
    }
}

/// What application threads call to announce their intervals.
#[derive(Debug)]
struct Threads {
    correlate: Correlate,
}

impl Correlator for Threads {
    #[inline]
    fn push(&self, span: SpanId) {
        if self.correlate == Correlate::Callbacks {
            lanes::push(span);
        }
    }

    #[inline]
    fn pop(&self) {
        if self.correlate == Correlate::Callbacks {
            lanes::pop();
        }
    }
}

/// The claim to be the only user of CUPTI through this library in the process.
#[derive(Debug)]
struct Claim;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Claim {
    fn take() -> Result<Self, ActivityError> {
        if TAKEN.swap(true, Ordering::AcqRel) { Err(errors::taken()) } else { Ok(Claim) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, because the claim belongs to the process.
    #[test]
    fn there_is_one_client_at_a_time() {
        let first = Claim::take().expect("nobody else has it");
        let error = Cupti::default().prepare().expect_err("it is taken");
        assert!(error.0.contains("already being recorded") && error.0.contains("drop it"), "{error}");
        drop(first);
        drop(Claim::take().expect("it was given back"));

        // A recorder that cannot be prepared gives the claim back too, whatever the reason.
        let options = CuptiOptions { library: Some("/nonexistent/libcupti.so".into()), ..CuptiOptions::default() };
        let mut cupti = Cupti::new(options);
        let error = cupti.prepare().expect_err("there is no such library");
        assert!(error.0.contains(": "), "{error}");
        drop(Claim::take().expect("it was given back"));
        assert!(cupti.enable().is_err() && cupti.describe().is_empty());
        let error = cupti.collect(true, &|| HostNs(1), &mut ActivitySink::default()).expect_err("not prepared");
        assert!(error.0.contains("call it first"), "{error}");
    }

    #[test]
    fn many_windows_keep_a_distance() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for _ in 0..Pace::FREE {
            assert_eq!(pace.wait(now), Duration::ZERO);
            pace.window(now);
            now += Duration::from_secs(1);
        }
        assert_eq!(pace.wait(now), Pace::APART - Duration::from_secs(1));
        now += Pace::APART;
        assert_eq!(pace.wait(now), Duration::ZERO);
        pace.window(now);
        assert_eq!(pace.wait(now), Pace::APART);
    }

    #[test]
    fn intervals_can_be_told_before_anything_is_loaded() {
        for correlate in [Correlate::Callbacks, Correlate::Nothing] {
            let cupti = Cupti::new(CuptiOptions { correlate, ..CuptiOptions::default() });
            assert_eq!((cupti.name(), cupti.options.correlate), ("cupti", correlate));
            cupti.correlator().push(SpanId(1));
            cupti.correlator().pop();
        }
        assert_eq!(Correlate::default().name(), "callbacks");
    }
}
