//! What the clock asks of the CUDA driver, as a trait: the logic above it is tested with a scripted driver.

use std::num::NonZeroUsize;

/// A device context; a handle of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Context(pub(super) NonZeroUsize);

/// A stream; a handle of the driver's, or one of its special values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StreamId(pub(super) usize);

impl StreamId {
    /// `CU_STREAM_PER_THREAD`: another stream on each thread. candle launches into it by default.
    pub(super) const PER_THREAD: StreamId = StreamId(2);
}

/// A timing event; a handle of the driver's. Made by [`Driver::create`] only, and valid as long as its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Event(pub(super) NonZeroUsize);

/// A kernel; a handle of the driver's. Made by [`Driver::load_wait`] only, and valid as long as its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kernel(pub(super) NonZeroUsize);

/// An error the driver answered: a `CUresult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fault(pub(super) u32);

impl Fault {
    /// The call met a stream that captures a graph: `CUDA_ERROR_STREAM_CAPTURE_*` and `CUDA_ERROR_CAPTURED_EVENT`.
    pub(super) fn is_capture(self) -> bool {
        matches!(self.0, 900..=908)
    }

    /// Nothing in this context will work any more: it was destroyed, the driver is shutting down, or a kernel left it
    /// in a permanent error.
    pub(super) fn is_lost(self) -> bool {
        matches!(
            self.0,
            3 | 4 // not initialized, deinitialized: the process is ending
            | 201 | 709 // invalid context, context is destroyed
            | 400 // invalid handle: events live as long as their context
            | 214 | 220 | 226 // uncorrectable memory or NVLink error, contained error
            | 700 | 702 | 710 | 714
                ..=719 | 721 // a kernel failed; the context stays in this state
            | 999
        )
    }
}

/// How strictly the rules of graph capture apply to the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaptureMode {
    /// Unsafe calls on any thread break a capture begun in global mode anywhere. The mode that threads start with.
    Global,
    /// Unsafe calls break captures of this thread.
    ThreadLocal,
    /// Calls of this thread break no capture.
    Relaxed,
}

/// The calls. None waits for the device, but [`load_wait`](Driver::load_wait) may.
pub(super) trait Driver: Clone + Send + Sync + 'static {
    /// The calling thread's current context. Hot path.
    fn current(&self) -> Option<Context>;

    /// Whether `stream` captures a graph. Hot path.
    fn capturing(&self, stream: StreamId) -> Result<bool, Fault>;

    /// Records `event` into `stream`; what it recorded before is forgotten. Hot path.
    fn record(&self, event: Event, stream: StreamId) -> Result<(), Fault>;

    /// Whether the device has passed the event.
    fn query(&self, event: Event) -> Result<bool, Fault>;

    /// Milliseconds between two events of one context; `None` while the device has not passed both.
    fn elapsed_ms(&self, from: Event, to: Event) -> Result<Option<f32>, Fault>;

    /// Makes a timing event in the current context.
    fn create(&self) -> Result<Event, Fault>;

    /// Ends an event, also one the device has not passed.
    fn destroy(&self, event: Event);

    /// Loads the kernel that only waits into the current context, where it stays.
    fn load_wait(&self) -> Result<Kernel, Fault>;

    /// Launches it into `stream`, to wait for `ns` nanoseconds.
    fn launch_wait(&self, kernel: Kernel, stream: StreamId, ns: u64) -> Result<(), Fault>;

    /// Makes `context` current until [`leave`](Driver::leave).
    fn enter(&self, context: Context) -> Result<(), Fault>;

    /// Makes the context current again that was current before [`enter`](Driver::enter).
    fn leave(&self);

    /// Sets the calling thread's capture mode and gives the mode it had.
    fn capture_mode(&self, mode: CaptureMode) -> CaptureMode;

    /// Ordinal of the current context's device.
    fn ordinal(&self) -> Result<usize, Fault>;

    /// If `context` is the device's primary context, keeps it from ending until [`release`](Driver::release). Returns
    /// whether it is.
    fn retain(&self, ordinal: usize, context: Context) -> bool;

    /// Ends what [`retain`](Driver::retain) began.
    fn release(&self, ordinal: usize);

    /// Whether the device's primary context exists.
    fn primary_active(&self, ordinal: usize) -> bool;
}

/// Runs `f` with the calling thread's capture mode relaxed, so that nothing in it breaks a graph capture of the
/// application's, and puts the mode back.
pub(super) fn relaxed<D: Driver, T>(driver: &D, f: impl FnOnce() -> T) -> T {
    let before = driver.capture_mode(CaptureMode::Relaxed);
    let outcome = f();
    if before != CaptureMode::Relaxed {
        driver.capture_mode(before);
    }
    outcome
}

/// Runs `f` with `context` current, and puts the thread's context back.
pub(super) fn within<D: Driver, T>(
    driver: &D,
    context: Context,
    f: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    driver.enter(context)?;
    let outcome = f();
    driver.leave();
    outcome
}
