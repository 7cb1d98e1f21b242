//! What this machine lets be sampled: for `candlescope doctor`.

use serde_json::{Value, json};

/// A way to take samples.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceProbe {
    /// `perf`: with the kernel's side. `perf_user`: the program's own code alone. `signals`.
    pub name: &'static str,
    /// Whether it is to be had.
    pub available: bool,
    /// What it cannot see.
    pub blind_to: Vec<&'static str>,
    /// Why it is not to be had, with the command that would allow it.
    pub cause: Option<String>,
}

/// What [`probe`](super::probe) found when it tried each way of taking samples on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackProbe {
    /// The ways; [`SourceChoice::Auto`](super::SourceChoice::Auto) takes `signals`, else `perf`.
    pub sources: Vec<SourceProbe>,
    /// Whether it can be told when threads are on a CPU, and what page faults they have.
    pub switches: bool,
    /// The kernel's setting `kernel.perf_event_paranoid`; `None` if it cannot be read.
    pub perf_event_paranoid: Option<i64>,
    /// Time between two ticks of the kernel, nanoseconds: signals come at most once in that time.
    pub tick_ns: Option<u64>,
}

impl StackProbe {
    /// Name of the way that is taken by default; `None` if there is none.
    pub fn source(&self) -> Option<&'static str> {
        let of = |name| self.sources.iter().find(|source| source.name == name && source.available);
        of("signals").or_else(|| of("perf")).map(|source| source.name)
    }

    /// `{"source": …, "sources": […], "switches": …, "perf_event_paranoid": …, "tick_ns": …}`.
    pub fn to_json(&self) -> Value {
        let source = |s: &SourceProbe| json!({ "name": s.name, "available": s.available, "blind_to": s.blind_to, "cause": s.cause });
        json!({
            "source": self.source(),
            "sources": self.sources.iter().map(source).collect::<Vec<_>>(),
            "switches": self.switches,
            "perf_event_paranoid": self.perf_event_paranoid,
            "tick_ns": self.tick_ns,
        })
    }
}
