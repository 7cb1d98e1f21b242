//! Runs a child to its end, passing on signals and its exit status.

use std::io;
use std::process::{Command, ExitStatus};

/// The status that a shell would report.
pub(crate) fn run(command: &mut Command) -> io::Result<u8> {
    wait(command).map(code)
}

#[cfg(unix)]
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
fn wait(command: &mut Command) -> io::Result<ExitStatus> {
    command.status()
}

/// Signals and the child's end come through the same queue, so that none is sent to a process that has ended.
#[cfg(unix)]
fn wait(command: &mut Command) -> io::Result<ExitStatus> {
    use rustix::process::{Pid, Signal, kill_process};
    use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    use signal_hook::iterator::SignalsInfo;
    use signal_hook::iterator::exfiltrator::origin::WithOrigin;
    use signal_hook::low_level::siginfo::Cause;

    let mut signals = SignalsInfo::<WithOrigin>::new([SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for origin in signals.wait() {
            // A terminal sends its signals to the child as well.
            let from_terminal = origin.cause == Cause::Kernel;
            if origin.signal != SIGCHLD
                && !from_terminal
                && child.try_wait()?.is_none()
                && let Some(signal) = Signal::from_named_raw(origin.signal)
            {
                let _ = kill_process(Pid::from_child(&child), signal);
            }
        }
    }
}
