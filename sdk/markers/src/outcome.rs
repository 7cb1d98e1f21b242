//! How a request ended.

/// How a request ended, as the program says: see [`Request::outcome`](crate::Request::outcome).
///
/// candlescope's own `Outcome`, which records have, converts into this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It got what it asked for.
    Done,
    /// Nobody waits for it any more: its caller left, or it was withdrawn.
    Cancelled,
    /// It could not be answered.
    Failed,
}

impl Outcome {
    /// The word that stands in the span's field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Cancelled => "cancelled",
            Outcome::Failed => "failed",
        }
    }
}
