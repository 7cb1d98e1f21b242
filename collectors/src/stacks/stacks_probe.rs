//! What this machine lets be sampled: for `candlescope doctor`.

use serde_json::{Value, json};

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use super::{mode, stack_options::StackOptions, sys};

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

/// What [`probe`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackProbe {
    /// The ways, best first: [`SourceChoice::Auto`](super::SourceChoice::Auto) takes `perf`, else `signals`.
    pub sources: Vec<SourceProbe>,
    /// Whether it can be told when threads are on a CPU, and what page faults they have.
    pub switches: bool,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// Time between two ticks of the kernel, nanoseconds: signals come at most once in that time.
    pub tick_ns: Option<u64>,
}

impl StackProbe {
    /// Name of the way that is taken by default; `None` if there is none.
    pub fn source(&self) -> Option<&'static str> {
        let of = |name| self.sources.iter().find(|source| source.name == name && source.available);
        of("perf").or_else(|| of("signals")).map(|source| source.name)
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

/// Tries each way. A signal's handler stays installed; nothing else remains.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn probe() -> StackProbe {
    let options = StackOptions::default();
    let perf = mode::Mode::by_perf(&options, true).map_err(|error| mode::perf_refused(&error));
    let user = mode::Mode::by_perf(&options, false).map_err(|error| mode::perf_refused(&error));
    let signals = mode::Mode::by_signals(&options).map_err(|error| error.to_string());
    let tells = |mode: &Result<mode::Mode, String>| mode.as_ref().is_ok_and(|mode| mode.tells_switches());
    let switches = tells(&perf) || tells(&signals);
    let source = |name, mode: Result<mode::Mode, String>| SourceProbe {
        name,
        available: mode.is_ok(),
        blind_to: mode.as_ref().map(|mode| mode.blind_to()).unwrap_or_default(),
        cause: mode.err(),
    };
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    StackProbe {
        sources: vec![source("perf", perf), source("perf_user", user), source("signals", signals)],
        switches,
        perf_event_paranoid: paranoid.and_then(|p| p.trim().parse().ok()),
        tick_ns: sys::tick_ns(),
    }
}

/// Nothing can be sampled here.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub fn probe() -> StackProbe {
    StackProbe::default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn signals_are_to_be_had_and_what_is_lacking_has_a_cause() {
        let probe = probe();
        assert!(probe.sources.iter().all(|source| source.available == source.cause.is_none()), "{probe:?}");
        assert!(probe.sources.iter().any(|source| source.name == "signals" && source.available));
        assert!(probe.source().is_some() && probe.tick_ns.is_some_and(|tick| tick >= 1_000_000));
        assert_eq!(probe.to_json()["sources"].as_array().unwrap().len(), 3);
    }
}
