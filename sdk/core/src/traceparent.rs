//! The W3C `traceparent` header, by which a request states whose trace it belongs to.

use crate::record::{SpanId, TraceId};
use candlescope_markers::recorder;
use std::fmt;
use std::str::FromStr;

/// A W3C `traceparent` header, <https://www.w3.org/TR/trace-context/>.
///
/// ```
/// use candlescope_core::Traceparent;
/// let caller: Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
/// assert_eq!(caller.trace_id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// assert!(caller.sampled);
/// # Ok::<(), candlescope_core::TraceparentError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    /// The caller's trace, which the request's spans join; never all zeros.
    pub trace_id: TraceId,
    /// The caller's span, of which the request's span is a child; never 0.
    pub parent_id: SpanId,
    /// Whether the caller's trace is recorded.
    pub sampled: bool,
}

/// The text is not a `traceparent` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent header such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
pub struct TraceparentError;

impl FromStr for Traceparent {
    type Err = TraceparentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (trace_id, parent_id, sampled) = recorder::parts(text).ok_or(TraceparentError)?;
        Ok(Self { trace_id: TraceId(trace_id), parent_id: SpanId(parent_id), sampled })
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.parent_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_survives_the_round_trip() {
        let parsed: Traceparent = GOOD.parse().unwrap();
        assert_eq!(parsed.parent_id, SpanId(0x00f0_67aa_0ba9_02b7));
        assert_eq!(parsed.to_string(), GOOD);
        assert!(!GOOD.replace("-01", "-00").parse::<Traceparent>().unwrap().sampled);
        // A future version with a further part.
        assert_eq!(format!("cc{}-more", &GOOD[2..]).parse::<Traceparent>(), Ok(parsed));
    }

    #[test]
    fn anything_else_is_refused() {
        let bad = [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ];
        for text in bad {
            assert_eq!(text.parse::<Traceparent>(), Err(TraceparentError), "{text}");
        }
    }
}
