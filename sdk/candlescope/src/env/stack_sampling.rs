//! How call stacks are sampled, as an option says it.

use super::read::switch;
use candlescope_core::stacks::USUAL_HZ;

/// How call stacks are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackSampling {
    /// Samples a second of each thread's CPU time; 0: none.
    pub hz: u32,
    /// Whether perf events take them (`true`), or timers and signals; the best that the machine has if it is not said.
    pub perf: Option<bool>,
}

impl StackSampling {
    /// So many samples a second, by what the machine has.
    pub fn hz(hz: u32) -> Self {
        Self { hz, perf: None }
    }

    /// Has the session sample so.
    #[cfg(feature = "stacks")]
    pub(super) fn on(self, builder: crate::builder::Builder) -> crate::builder::Builder {
        use candlescope_collectors::stacks::{SourceChoice, StackOptions};
        let source = match self.perf {
            None => SourceChoice::Auto,
            Some(true) => SourceChoice::Perf,
            Some(false) => SourceChoice::Signals,
        };
        match self.hz {
            0 => builder.stacks(0),
            hz => builder.stacks_with(StackOptions::default().hz(hz).source(source)),
        }
    }

    /// `499`, `perf:499`, `signals`, `on`, `off`; `None` for any other text.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (source, rest) = text.split_once(':').unwrap_or((text, ""));
        let (perf, hz) = match source {
            "perf" => (Some(true), rest),
            "signals" => (Some(false), rest),
            _ => (None, text),
        };
        let hz = match hz.parse::<u32>() {
            Ok(hz) => Some(hz).filter(|hz| (1..=10_000).contains(hz)),
            Err(_) => switch(hz).map(|on| if on { USUAL_HZ } else { 0 }),
        };
        hz.map(|hz| Self { hz, perf })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sources_are_read() {
        let read = |text| StackSampling::read(text).map(|stacks| (stacks.hz, stacks.perf));
        assert_eq!((read(""), read("on")), (Some((499, None)), Some((499, None))));
        assert_eq!(read("99"), Some((99, None)));
        assert_eq!(read("perf:99"), Some((99, Some(true))));
        assert_eq!(read("signals"), Some((499, Some(false))));
        assert_eq!(read("off"), Some((0, None)));
        assert_eq!((read("0"), read("10001"), read("dtrace"), read("99:perf")), (None, None, None, None));
    }
}
