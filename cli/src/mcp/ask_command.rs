//! Runs a command of this program as a process of its own, for so long and with so much of an answer.

use candlescope::env::VARIABLE;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// The longest answer that is read, before it is cut to what a client gets.
const MOST_BYTES: u64 = 16 << 20;
/// The most that is read of errors and warnings.
const MOST_NOTES: u64 = 16 << 10;
/// How often is looked whether it has ended.
const EVERY: Duration = Duration::from_millis(10);

/// What is asked.
#[derive(Debug)]
pub(super) struct CommandCall {
    /// Arguments of the command.
    pub(super) args: Vec<OsString>,
    /// What it reads.
    pub(super) stdin: Option<String>,
    /// Exit statuses that are answers.
    pub(super) fine: &'static [i32],
}

/// What came of it.
#[derive(Debug)]
pub(super) struct CommandAnswer {
    /// Standard output.
    pub(super) text: String,
    /// Lines of standard error.
    pub(super) notes: Vec<String>,
    /// The exit status.
    pub(super) status: i32,
}

/// Asks, and waits for the answer; ends the process where it takes longer than it may, or nobody waits any more.
///
/// # Errors
/// A text for whoever asked: what the command said, or why there is no answer.
pub(super) fn ask(
    program: &Path,
    root: &Path,
    asked: CommandCall,
    time: Duration,
    stop: &AtomicBool,
) -> Result<CommandAnswer, String> {
    let mut child = Command::new(program)
        .args(&asked.args)
        .current_dir(root)
        .env_remove(VARIABLE)
        .stdin(if asked.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if let (Some(text), Some(mut to)) = (asked.stdin, child.stdin.take()) {
        // A command that does not read it says why.
        spawn(move || to.write_all(text.as_bytes()));
    }
    let full = Arc::new(AtomicBool::new(false));
    let out = child.stdout.take().map(|out| read(out, MOST_BYTES, Some(Arc::clone(&full))));
    let notes = child.stderr.take().map(|notes| read(notes, MOST_NOTES, None));
    let ended = wait(&mut child, time, stop, &full);
    let text = |of: Option<JoinHandle<Vec<u8>>>| {
        let bytes = of.and_then(|reader| reader.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (text, notes) = (text(out), text(notes));
    let status = ended?;
    if !asked.fine.contains(&status) {
        return Err(failed(&notes, status));
    }
    Ok(CommandAnswer { text, notes: notes.lines().map(str::to_string).collect(), status })
}

/// The status, or why it was ended.
fn wait(child: &mut Child, time: Duration, stop: &AtomicBool, full: &AtomicBool) -> Result<i32, String> {
    let began = Instant::now();
    let why = loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return status.code().ok_or_else(|| {
                    format!(
                        "the command was ended by the system ({status}), as for want of memory: ask for less at once"
                    )
                });
            }
            Ok(None) if stop.load(Ordering::Relaxed) => break "it was cancelled".to_string(),
            Ok(None) if full.load(Ordering::Relaxed) => {
                break format!("the answer is longer than {} MiB: ask for fewer rows or columns", MOST_BYTES >> 20);
            }
            Ok(None) if began.elapsed() > time => {
                break format!(
                    "it took longer than {} s: ask a smaller part, or raise the limit query-seconds",
                    time.as_secs()
                );
            }
            Ok(None) => sleep(EVERY),
            Err(error) => break format!("the command cannot be waited for: {error}"),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(why)
}

/// Reads to the end, and keeps so much. What is more is dropped, so that nobody waits to write it.
fn read(mut from: impl Read + Send + 'static, most: u64, full: Option<Arc<AtomicBool>>) -> JoinHandle<Vec<u8>> {
    spawn(move || {
        let mut kept = Vec::new();
        let _ = from.by_ref().take(most).read_to_end(&mut kept);
        if kept.len() as u64 == most
            && let Some(full) = full
        {
            full.store(true, Ordering::Relaxed);
        }
        let _ = std::io::copy(&mut from, &mut std::io::sink());
        kept
    })
}

/// The error that a command told, without what is about the terminal.
fn failed(notes: &str, status: i32) -> String {
    let error = notes.lines().find_map(|line| line.strip_prefix("error: "));
    match error {
        // What is wrong with arguments takes several lines.
        Some(error) if status != 2 => error.to_string(),
        _ if !notes.trim().is_empty() => notes.trim().to_string(),
        _ => format!("the command ended with status {status} and said nothing"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str, stdin: Option<&str>, seconds: f64, stop: bool) -> Result<CommandAnswer, String> {
        let args = ["-c", script].map(OsString::from).to_vec();
        let asked = CommandCall { args, stdin: stdin.map(str::to_string), fine: &[0, 1] };
        ask(Path::new("/bin/sh"), Path::new("/"), asked, Duration::from_secs_f64(seconds), &AtomicBool::new(stop))
    }

    #[test]
    fn an_answer_is_read_with_its_notes_and_status() {
        let found = sh("cat; echo a note >&2; exit 1", Some("asked"), 60.0, false).unwrap();
        assert_eq!((found.text.as_str(), found.notes, found.status), ("asked", vec!["a note".to_string()], 1));
        let wrong = sh("echo some; echo error: no such run >&2; exit 3", None, 60.0, false).unwrap_err();
        assert_eq!(wrong, "no such run");
    }

    #[test]
    fn what_does_not_end_is_ended() {
        let began = Instant::now();
        assert!(sh("exec sleep 60", None, 0.1, false).unwrap_err().contains("took longer than"));
        assert!(sh("exec sleep 60", None, 60.0, true).unwrap_err().contains("cancelled"));
        assert!(sh("exec yes", None, 60.0, false).unwrap_err().contains("longer than 16 MiB"));
        assert!(sh("kill -9 $$", None, 60.0, false).unwrap_err().contains("ended by the system"));
        assert!(began.elapsed() < Duration::from_secs(50));
    }
}
