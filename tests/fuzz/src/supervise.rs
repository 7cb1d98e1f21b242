//! Runs workers, watches their time and memory, and counts failures.

use crate::worker;
use anyhow::{Context, Result};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for one input.
pub const HANG: Duration = Duration::from_secs(20);

/// Most resident megabytes of a worker.
pub const CEILING_MB: u64 = 512;

/// Inputs for one process, so that what they leave behind does not accumulate.
const CHUNK: u64 = 4000;

/// Results for some inputs.
#[derive(Debug, Default)]
pub struct Count {
    /// Inputs that ran.
    pub inputs: u64,
    /// Those that were accepted.
    pub accepted: u64,
    /// Panics that reached the target's caller.
    pub panics: u64,
    /// Processes that ended abnormally.
    pub aborts: u64,
    /// Inputs that took longer than [`HANG`].
    pub hangs: u64,
    /// Inputs for which a process had more than [`CEILING_MB`] resident.
    pub over_memory: u64,
    /// The most megabytes that a process had.
    pub peak_mb: u64,
    /// The longest time for one input, to a fiftieth of a second.
    pub slowest: Duration,
    /// Wall time.
    pub took: Duration,
    /// Failures, with the command that repeats each.
    pub findings: Vec<String>,
}

impl Count {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.panics + self.aborts + self.hangs + self.over_memory == 0
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Count) {
        self.inputs += other.inputs;
        self.accepted += other.accepted;
        self.panics += other.panics;
        self.aborts += other.aborts;
        self.hangs += other.hangs;
        self.over_memory += other.over_memory;
        self.peak_mb = self.peak_mb.max(other.peak_mb);
        self.slowest = self.slowest.max(other.slowest);
        self.took += other.took;
        self.findings.extend(other.findings.iter().cloned());
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8} | {:>8} | {:>6} | {:>6} | {:>5} | {:>11} | {:>7} | {:>7.2} | {:>7.1}",
            self.inputs,
            self.accepted,
            self.panics,
            self.aborts,
            self.hangs,
            self.over_memory,
            self.peak_mb,
            self.slowest.as_secs_f64(),
            self.took.as_secs_f64()
        )
    }
}

/// The head of a table of [`Count`]s.
pub const HEAD: &str =
    "| target           |   inputs | accepted | panics | aborts | hangs | over 512 MB | peak MB | slowest |       s |";

/// Runs `inputs` inputs of `target` in processes of `exe`, or as many as `seconds` allow.
///
/// # Errors
/// When a process cannot be started.
pub fn run(exe: &Path, target: &str, seed: u64, inputs: u64, seconds: Duration) -> Result<Count> {
    let began = Instant::now();
    let mut count = Count::default();
    let mut from = 0;
    while from < inputs && began.elapsed() < seconds {
        from = chunk(exe, target, seed, (from, inputs.min(from + CHUNK)), began + seconds, &mut count)?;
    }
    count.took = began.elapsed();
    Ok(count)
}

/// Runs one process; the number of the input to go on with.
fn chunk(exe: &Path, target: &str, seed: u64, range: (u64, u64), end: Instant, count: &mut Count) -> Result<u64> {
    let scratch = tempfile::tempdir()?;
    let file = |name: &str| -> PathBuf { scratch.path().join(name) };
    let at = File::options().read(true).write(true).create_new(true).open(file("at"))?;
    let mut child = Command::new(exe)
        .args(["--worker", target, &seed.to_string(), &range.0.to_string(), &range.1.to_string()])
        .arg(scratch.path())
        .stdin(Stdio::null())
        .stdout(File::create(file("out"))?)
        .stderr(File::create(file("err"))?)
        .spawn()
        .with_context(|| format!("cannot start {}", exe.display()))?;
    let (mut index, mut since, mut peak_mb) = (range.0, Instant::now(), 0);
    let ended = loop {
        peak_mb = peak_mb.max(worker::peak_mb(&child.id().to_string()));
        let ended = child.try_wait()?;
        let now = under_way(&at).unwrap_or(range.0);
        if now != index {
            (index, since) = (now, Instant::now());
        }
        count.slowest = count.slowest.max(since.elapsed());
        match ended {
            Some(status) => break Ended::Status(status.success(), status.to_string()),
            None if since.elapsed() > HANG => break Ended::Hung,
            None if peak_mb > CEILING_MB => break Ended::TooLarge,
            None if Instant::now() > end => break Ended::TimeIsUp,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // It has ended already, or has to.
    let _ = child.kill();
    child.wait()?;
    let said = String::from_utf8_lossy(&std::fs::read(file("out"))?).into_owned();
    let mut done: Option<u64> = None;
    let repeat = |index: u64| format!("fuzz --target {target} --seed {seed} --only {index}");
    for line in said.lines() {
        match line.split_once(' ') {
            Some(("panic", rest)) => {
                count.panics += 1;
                let (index, text) = rest.split_once(' ').unwrap_or((rest, ""));
                count.findings.push(format!("panic: {text} ({})", repeat(index.parse().unwrap_or(0))));
            }
            // What came between the last check and the end.
            Some(("peak", mb)) => peak_mb = peak_mb.max(mb.parse().unwrap_or(0)),
            Some(("done", accepted)) => done = accepted.parse().ok(),
            _ => {}
        }
    }
    count.peak_mb = count.peak_mb.max(peak_mb);
    if let Some(accepted) = done {
        count.accepted += accepted;
        count.inputs += range.1 - range.0;
        return Ok(range.1);
    }
    count.inputs += index + 1 - range.0;
    match ended {
        Ended::TimeIsUp => return Ok(u64::MAX),
        Ended::Hung => count.hangs += 1,
        Ended::TooLarge => count.over_memory += 1,
        Ended::Status(..) => count.aborts += 1,
    }
    let err = String::from_utf8_lossy(&std::fs::read(file("err"))?).lines().last().unwrap_or_default().to_string();
    count.findings.push(format!("{ended:?} {err} ({})", repeat(index)));
    Ok(index + 1)
}

#[derive(Debug)]
enum Ended {
    #[allow(dead_code, reason = "shown by Debug")]
    Status(bool, String),
    Hung,
    TooLarge,
    TimeIsUp,
}

fn under_way(at: &File) -> Option<u64> {
    let mut bytes = [0u8; 8];
    at.read_exact_at(&mut bytes, 0).ok()?;
    Some(u64::from_le_bytes(bytes))
}
