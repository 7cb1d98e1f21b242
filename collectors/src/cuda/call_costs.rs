//! What the calls of a mark cost on this machine, measured in the calling thread's current context.

use super::driver_calls::{CaptureMode, Driver, Event, Fault, StreamId};
use super::error::CudaError;
use super::sys::Cuda;
use std::time::Instant;

/// Median costs, nanoseconds. A mark makes the first three calls; reading it back takes a share of a query and one
/// `elapsed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCosts {
    /// `cuCtxGetCurrent`, once for each mark.
    pub current_context: u64,
    /// `cuStreamIsCapturing`, once for each mark.
    pub is_capturing: u64,
    /// `cuEventRecord`, once for each mark.
    pub record: u64,
    /// `cuEventQuery` of an event the device has passed.
    pub query: u64,
    /// `cuEventElapsedTime` of two such events.
    pub elapsed: u64,
    /// `cuEventCreate`, once for each event of a pool, not for each mark.
    pub create: u64,
    /// Reading the clock, which is in each of the others.
    pub timer: u64,
}

/// Measures the calls in the calling thread's current context and per-thread default stream, with `rounds` events of
/// its own.
///
/// # Errors
/// No driver, no current context, or a call failed.
pub fn call_costs(rounds: usize) -> Result<CallCosts, CudaError> {
    let cuda = Cuda::load()?;
    measure(&cuda, rounds.max(2)).map_err(|(call, fault)| CudaError::of(call, fault.0, cuda.fault_name(fault)))
}

/// The calling thread's capture mode: `global`, `thread_local` or `relaxed`; none without a driver. For tests that
/// check that it is not changed.
pub fn capture_mode() -> Option<&'static str> {
    let cuda = Cuda::load().ok()?;
    let mode = cuda.capture_mode(CaptureMode::Relaxed);
    cuda.capture_mode(mode);
    Some(match mode {
        CaptureMode::Global => "global",
        CaptureMode::ThreadLocal => "thread_local",
        CaptureMode::Relaxed => "relaxed",
    })
}

pub(super) fn measure<D: Driver>(driver: &D, rounds: usize) -> Result<CallCosts, (&'static str, Fault)> {
    driver.current().ok_or(("cuCtxGetCurrent", Fault(201)))?;
    let mut events: Vec<Event> = Vec::with_capacity(rounds);
    let make = |_| driver.create().map(|event| events.push(event));
    let create = median(rounds, make).map_err(|fault| ("cuEventCreate", fault));
    let costs = create.and_then(|create| measure_with(driver, &events, create));
    events.into_iter().for_each(|event| driver.destroy(event));
    costs
}

fn measure_with<D: Driver>(driver: &D, events: &[Event], create: u64) -> Result<CallCosts, (&'static str, Fault)> {
    const STREAM: StreamId = StreamId::PER_THREAD;
    let rounds = events.len();
    let named = |call| move |fault| (call, fault);
    let pick = |i: usize| events.get(i % rounds.max(1)).copied().ok_or(Fault(400));
    let current = |_| driver.current().map(|_| ()).ok_or(Fault(201));
    let capturing = |_| driver.capturing(STREAM).map(|_| ());
    let record = |i| driver.record(pick(i)?, STREAM);
    let query = |i| driver.query(pick(i)?).map(|_| ());
    let elapsed = |i| driver.elapsed_ms(pick(i)?, pick(i + 1)?).map(|_| ());
    let timer = median(rounds, |_| Ok(())).map_err(named("clock"))?;
    let current_context = median(rounds, current).map_err(named("cuCtxGetCurrent"))?;
    let is_capturing = median(rounds, capturing).map_err(named("cuStreamIsCapturing"))?;
    let record = median(rounds, record).map_err(named("cuEventRecord"))?;
    // A query of an event that is not passed takes another path in the driver; let the device catch up first.
    pick(rounds.saturating_sub(1)).and_then(|last| wait(driver, last)).map_err(named("cuEventQuery"))?;
    let query = median(rounds, query).map_err(named("cuEventQuery"))?;
    let elapsed = median(rounds, elapsed).map_err(named("cuEventElapsedTime"))?;
    Ok(CallCosts { current_context, is_capturing, record, query, elapsed, create, timer })
}

/// Asks until the device has passed the event, for a second at most.
fn wait<D: Driver>(driver: &D, event: Event) -> Result<(), Fault> {
    let began = Instant::now();
    while !driver.query(event)? {
        if began.elapsed().as_secs() >= 1 {
            return Err(Fault(600));
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn median(rounds: usize, mut call: impl FnMut(usize) -> Result<(), Fault>) -> Result<u64, Fault> {
    let mut costs = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let began = Instant::now();
        call(round)?;
        costs.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    costs.sort_unstable();
    Ok(costs.get(rounds / 2).copied().unwrap_or(0))
}
