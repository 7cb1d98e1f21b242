//! Which source takes the samples on this machine, and what it cannot see.

use super::perf::{self, PerfMode};
use super::stack_options::{SourceChoice, StackOptions};
use super::signals;
use candlescope_core::stacks::StackError;
use std::io;

/// What records each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    /// Samples, or switches alone, by perf events.
    pub(super) perf: Option<PerfMode>,
    /// Samples by signals.
    pub(super) signals: bool,
}

impl Mode {
    /// Tries what is wanted.
    pub(super) fn choose(options: &StackOptions) -> Result<Self, StackError> {
        let sampling = |kernel| PerfMode {
            samples: true,
            kernel,
            off_cpu: options.off_cpu,
            hz: options.hz,
            stack_bytes: options.stack_bytes,
        };
        let by_perf = |kernel| Mode { perf: Some(sampling(kernel)), signals: false };
        if options.source != SourceChoice::Signals && perf::is_allowed(sampling(true)).is_ok() {
            return Ok(by_perf(true));
        }
        if options.source == SourceChoice::Perf {
            return match perf::is_allowed(sampling(false)) {
                Ok(()) => Ok(by_perf(false)),
                Err(error) => Err(StackError(format!("no stacks by perf: {}", perf_refused(&error)))),
            };
        }
        if let Err(error) = signals::install() {
            return Err(StackError(format!("no stacks by signals: a handler cannot be installed: {error}")));
        }
        let switches = [true, false].map(|kernel| PerfMode { samples: false, ..sampling(kernel) });
        let perf = switches.into_iter().filter(|m| m.off_cpu).find(|mode| perf::is_allowed(*mode).is_ok());
        Ok(Mode { perf, signals: true })
    }

    pub(super) fn name(self) -> &'static str {
        if self.signals { "signals" } else { "perf" }
    }

    /// What samples do not show.
    pub(super) fn blind_to(self) -> Vec<&'static str> {
        let mut blind = Vec::new();
        if self.signals {
            blind.push("page faults' time apart from their function's");
            blind.push("threads that block the sampler's signal");
        }
        match self.perf {
            Some(PerfMode { samples: true, kernel: false, .. }) => blind.push("the kernel: time there has no samples"),
            Some(PerfMode { off_cpu: true, .. }) => {}
            Some(_) | None => blind.push("time off the CPU"),
        }
        if self.perf.is_some_and(|p| p.off_cpu && (!p.kernel || !p.samples)) {
            blind.push("stacks of waiting threads");
        }
        blind
    }
}

/// Why perf events cannot be had, and the remedy.
pub(super) fn perf_refused(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES) => {
            "kernel.perf_event_paranoid forbids it here: sysctl kernel.perf_event_paranoid=1 allows it".to_string()
        }
        Some(libc::EPERM) => "a sandbox refuses perf_event_open, or kernel.perf_event_paranoid forbids it: sysctl \
             kernel.perf_event_paranoid=1, and in a container --security-opt seccomp=unconfined or --cap-add PERFMON"
            .to_string(),
        Some(libc::ENOSYS) => "this kernel or sandbox has no perf_event_open".to_string(),
        Some(libc::ENOENT | libc::EOPNOTSUPP) => "this kernel has no such event".to_string(),
        Some(libc::EMFILE | libc::ENFILE) => "too few files may be open: raise it with ulimit -n".to_string(),
        _ => error.to_string(),
    }
}
