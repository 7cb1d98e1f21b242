//! Runs the command with limits on memory and time; a process beyond them is ended before it harms the machine.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries")]

use crate::common::{candlescope, text};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a command ended, and the memory and time it took.
#[derive(Debug)]
pub struct CommandOutcome {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    /// The most memory that it had resident, as the kernel counts it (`VmHWM`).
    pub peak_mb: u64,
    pub took: Duration,
}

/// Runs the command with `args`.
///
/// # Panics
/// If it takes more than `seconds`, has more than `ceiling_mb` resident at once, ends by a signal, or panics.
#[track_caller]
pub fn bounded(args: &[&str], ceiling_mb: u64, seconds: u64) -> CommandOutcome {
    let mut command = candlescope();
    command.args(args).env_remove("CANDLESCOPE").env_remove("RUST_LOG").env_remove("CANDLESCOPE_LIMITS");
    within(command, ceiling_mb, seconds)
}

/// The same for a command made by the caller.
#[track_caller]
pub fn within(mut command: Command, ceiling_mb: u64, seconds: u64) -> CommandOutcome {
    let began = Instant::now();
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let file = |path| Stdio::from(std::fs::File::create(path).unwrap());
    let mut child = command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&err)).spawn().unwrap();
    let mut peak_mb = 0;
    let status = loop {
        peak_mb = peak_mb.max(resident_mb(child.id()));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if peak_mb > ceiling_mb || began.elapsed() > Duration::from_secs(seconds) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?}: {peak_mb} MB of {ceiling_mb} after {:?} of {seconds} s", began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let read = |path| text(&std::fs::read(path).unwrap());
    let ended =
        CommandOutcome { code: status.code(), out: read(&out), err: read(&err), peak_mb, took: began.elapsed() };
    assert!(ended.code.is_some(), "{command:?} was ended by a signal: {status:?}\n{}", ended.err);
    assert!(!ended.err.contains("panicked"), "{command:?}: {}", ended.err);
    eprintln!("{peak_mb:>5} MB {:>6.2} s  {command:?}", ended.took.as_secs_f64());
    ended
}

/// Resident megabytes of a process, 0 if not known.
fn resident_mb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    mark.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
