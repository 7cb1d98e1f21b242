//! The process that inputs run in.

use crate::dice::Dice;
use crate::targets::Target;
use std::fs::File;
use std::io::{Write, stdout};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The input of that number: the corpus itself first, then mutations of it.
pub fn input(seeds: &[Vec<u8>], seed: u64, index: u64) -> Vec<u8> {
    match usize::try_from(index).ok().and_then(|index| seeds.get(index)) {
        Some(whole) => whole.clone(),
        None => Dice::new(seed, index).mutated(seeds),
    }
}

/// Runs inputs `from..to` of a target. The number of the current input is in the file `at`; standard output has a line
/// for each panic, and one at the end.
///
/// # Errors
/// When the files cannot be written.
pub fn work(target: &Target, seed: u64, from: u64, to: u64, at: &File, scratch: &Path) -> std::io::Result<()> {
    // A panic that a library catches itself is not a failure, and printing each one would hide the real ones.
    std::panic::set_hook(Box::new(|_| {}));
    let seeds = (target.seeds)();
    let mut accepted = 0u64;
    for index in from..to {
        at.write_all_at(&index.to_le_bytes(), 0)?;
        let bytes = input(&seeds, seed, index);
        match catch_unwind(AssertUnwindSafe(|| (target.run)(scratch, &bytes))) {
            Ok(yes) => accepted += u64::from(yes),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string())).unwrap_or_default();
                writeln!(stdout(), "panic {index} {}", text.replace('\n', " "))?;
            }
        }
    }
    writeln!(stdout(), "peak {}", peak_mb("self"))?;
    writeln!(stdout(), "done {accepted}")
}

/// The most megabytes that a process has had resident, as the kernel counts it; 0 if it is not known.
pub fn peak_mb(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    mark.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
