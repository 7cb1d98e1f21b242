//! Whether `watch` runs this command: it shows what a command prints once that has ended.

use candlescope_monitor::parent_process;

/// `watch` runs a shell that runs the command, or the command itself.
const LEVELS: usize = 2;

/// Whether one of the processes above this one is `watch`. Not on systems other than Linux.
pub(super) fn is_above() -> bool {
    let mut pid = std::process::id();
    for _ in 0..LEVELS {
        let Some(above) = parent_process(pid) else { return false };
        pid = above;
        if std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "watch") {
            return true;
        }
    }
    false
}
