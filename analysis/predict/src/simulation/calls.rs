//! Calls of the host, and when what they launched ran.

/// A call of the host with the works that it launched.
#[derive(Debug)]
pub(super) struct Call {
    /// Nanoseconds from the step's begin.
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) place: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    /// It returned only when its copy to the host had ended.
    pub(super) blocks: bool,
}

/// When a work ran, as measured: nanoseconds from the step's begin.
pub(super) type Times = Vec<(f64, f64)>;
