//! Which source takes the samples on this machine, and what it cannot see.

use super::perf::{self, PerfMode};
use super::signals;
use super::stack_options::{SourceChoice, StackOptions};
use super::stacks_probe::{SourceProbe, StackProbe};
use super::sys;
use candlescope_core::stacks::StackError;
use std::io;
use std::time::Duration;

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
        let refused = |error| StackError(format!("no stacks by perf: {}", perf_refused(&error)));
        let by_perf = || Self::by_perf(options, true).or_else(|_| Self::by_perf(options, false)).map_err(refused);
        if options.source == SourceChoice::Perf {
            return by_perf();
        }
        let by_signals = Self::by_signals(options);
        let failed = |error| StackError(format!("no stacks by signals: a handler cannot be installed: {error}"));
        match (by_signals, options.source) {
            (Ok(mode), _) => Ok(mode),
            (Err(error), SourceChoice::Auto) => by_perf().map_err(|_| failed(error)),
            (Err(error), _) => Err(failed(error)),
        }
    }

    /// Samples by perf events, of the kernel too or of the program's own code alone.
    pub(super) fn by_perf(options: &StackOptions, kernel: bool) -> io::Result<Self> {
        let mode = PerfMode {
            samples: true,
            kernel,
            off_cpu: options.off_cpu,
            hz: options.hz,
            stack_bytes: options.stack_bytes,
        };
        perf::is_allowed(mode)?;
        Ok(Mode { perf: Some(mode), signals: false })
    }

    /// Samples by signals, with perf's switches where there are any.
    pub(super) fn by_signals(options: &StackOptions) -> io::Result<Self> {
        signals::install()?;
        let (off_cpu, hz, stack_bytes) = (options.off_cpu, options.hz, options.stack_bytes);
        let switches = [true, false].map(|kernel| PerfMode { samples: false, kernel, off_cpu, hz, stack_bytes });
        let perf = switches.into_iter().filter(|_| off_cpu).find(|mode| perf::is_allowed(*mode).is_ok());
        Ok(Mode { perf, signals: true })
    }

    pub(super) fn name(self) -> &'static str {
        if self.signals { "signals" } else { "perf" }
    }

    /// Samples in a second of CPU time.
    pub(super) fn hz(self, options: &StackOptions) -> u32 {
        let ticks = sys::tick_ns().map_or(u32::MAX, |tick| (1_000_000_000 / tick) as u32);
        if self.signals { options.hz.min(ticks) } else { options.hz }
    }

    /// Longest time between two readings for which there is room.
    pub(super) fn longest_pause(self, options: &StackOptions) -> Duration {
        let by_perf = self.perf.map_or(Duration::MAX, PerfMode::longest_pause);
        if self.signals { by_perf.min(signals::room_for(self.hz(options))) } else { by_perf }
    }

    /// Whether it is known when threads are on a CPU.
    pub(super) fn tells_switches(self) -> bool {
        self.perf.is_some_and(|perf| perf.off_cpu)
    }

    /// What samples do not show.
    pub(super) fn blind_to(self) -> Vec<&'static str> {
        let with_kernel = self.perf.is_some_and(|perf| perf.samples && perf.kernel);
        let mut blind = Vec::new();
        if self.signals {
            blind.push("threads that block the sampler's signal");
            blind.push("the kernel's time that no call of the program asked for, as page faults: it is the function's own");
        } else if !with_kernel {
            blind.push("the kernel: time there has no samples");
        }
        if !self.tells_switches() {
            blind.push("time off the CPU");
        } else if !self.perf.is_some_and(|perf| perf.kernel) {
            blind.push("where waiting threads wait: their time has no stacks");
        }
        blind
    }
}

/// What each way gives on this machine.
pub(super) fn try_each() -> StackProbe {
    let options = StackOptions::default();
    let perf = Mode::by_perf(&options, true).map_err(|error| perf_refused(&error));
    let user = Mode::by_perf(&options, false).map_err(|error| perf_refused(&error));
    let signals = Mode::by_signals(&options).map_err(|error| error.to_string());
    let tells = |mode: &Result<Mode, String>| mode.as_ref().is_ok_and(|mode| mode.tells_switches());
    let switches = tells(&perf) || tells(&signals);
    let source = |name, mode: Result<Mode, String>| SourceProbe {
        name,
        available: mode.is_ok(),
        blind_to: mode.as_ref().map(|mode| mode.blind_to()).unwrap_or_default(),
        cause: mode.err(),
    };
    StackProbe {
        sources: vec![source("perf", perf), source("perf_user", user), source("signals", signals)],
        switches,
        perf_event_paranoid: perf_event_paranoid().parse().ok(),
        tick_ns: sys::tick_ns(),
    }
}

fn perf_event_paranoid() -> String {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    paranoid.trim().to_string()
}

/// Why perf events cannot be had, and the remedy.
fn perf_refused(error: &io::Error) -> String {
    let paranoid = perf_event_paranoid();
    let allow = "`sysctl kernel.perf_event_paranoid=1` allows it";
    match error.raw_os_error() {
        Some(libc::EACCES) => format!("kernel.perf_event_paranoid is {paranoid}; {allow}"),
        Some(libc::EPERM) => format!(
            "refused: by a sandbox (a container's `--cap-add PERFMON --security-opt seccomp=unconfined` allows it), or \
             because kernel.perf_event_paranoid is {paranoid} ({allow})"
        ),
        Some(libc::ENOSYS) => "this kernel, or a sandbox, has no perf_event_open".to_string(),
        Some(libc::ENOENT | libc::EOPNOTSUPP) => "this kernel has no such event".to_string(),
        Some(libc::EMFILE | libc::ENFILE) => "too few files may be open; `ulimit -n 4096` allows more".to_string(),
        _ => error.to_string(),
    }
}
