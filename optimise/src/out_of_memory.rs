//! Whether a program that failed had no memory left: by what it printed.

use candlescope_lab::hardware::is_out_of_memory;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The end of what a program printed that is looked at, in bytes.
const MOST_BYTES: u64 = 64 << 10;
/// Lines at the end, empty ones aside, that are looked at: what was said before did not end the program.
const MOST_LINES: usize = 12;
/// Characters of a line that are shown.
const MOST_SHOWN: usize = 200;

/// The last line that says that memory ended, of what is at the end of a file; `None` if none does, or there is no such file.
pub(crate) fn line_in(printed: &Path) -> Option<String> {
    let mut file = File::open(printed).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    line(&String::from_utf8_lossy(&bytes))
}

/// The last line that says so, of the last few.
fn line(printed: &str) -> Option<String> {
    let says = |line: &&str| is_out_of_memory(line) || is_of_the_host(line);
    let mut last = printed.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(MOST_LINES);
    let line = last.find(says)?;
    Some(line.chars().take(MOST_SHOWN).collect())
}

/// What Rust's allocator says before it ends a program: `memory allocation of 8 bytes failed`.
fn is_of_the_host(line: &str) -> bool {
    line.contains("memory allocation of ") && line.contains(" failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_ended_is_told_from_other_errors() {
        let cuda = "loading\nerror: generation failed: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")\n";
        assert!(line(cuda).is_some_and(|line| line.starts_with("error: generation failed: DriverError(CUDA")));
        assert!(
            line("Cublas error: CublasError(CUBLAS_STATUS_ALLOC_FAILED)\nnote: run with RUST_BACKTRACE=1").is_some()
        );
        assert!(line("memory allocation of 17179869184 bytes failed").is_some());
        assert_eq!(line("error: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory access\")"), None);
        assert_eq!(line(""), None);
    }

    #[test]
    fn memory_that_ended_long_before_the_end_is_not_what_ended_it() {
        let after = |lines: usize| line(&format!("CUDA out of memory, trying less\n{}", "step\n\n".repeat(lines)));
        assert!(after(MOST_LINES - 1).is_some(), "empty lines are none");
        assert_eq!(after(MOST_LINES), None);
    }

    #[test]
    fn the_end_of_a_long_file_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let printed = dir.path().join("printed.txt");
        std::fs::write(&printed, format!("out of memory\n{}", "x\n".repeat(40_000))).unwrap();
        assert_eq!(line_in(&printed), None, "what it said long before did not end it");
        std::fs::write(&printed, format!("{}CUDA out of memory\n", "x\n".repeat(40_000))).unwrap();
        assert_eq!(line_in(&printed).as_deref(), Some("CUDA out of memory"));
        assert_eq!(line_in(&dir.path().join("nothing")), None);
    }
}
