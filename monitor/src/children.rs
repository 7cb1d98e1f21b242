//! The processes that a process has started, and those that they have. On Linux; elsewhere none are known.

use std::collections::{BTreeMap, BTreeSet};

/// More are not followed.
const MOST: usize = 4096;

/// All processes below `pid`, without itself, in the order of their numbers.
pub(crate) fn descendants(pid: u32) -> BTreeSet<u32> {
    let parents = Parents::default();
    let mut found = BTreeSet::new();
    let mut open = vec![pid];
    while let Some(one) = open.pop() {
        for child in children(one, &parents) {
            // A number may be given anew while this looks.
            if child != pid && found.len() < MOST && found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

/// The children of a process, as the kernel lists them for each thread; not every kernel does.
fn children(pid: u32, parents: &Parents) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => found.extend(text.split_whitespace().filter_map(|number| number.parse::<u32>().ok())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && thread.path().exists() => {
                return parents.children(pid);
            }
            // The thread has ended.
            Err(_) => {}
        }
    }
    found
}

/// All processes by their parent, looked at once and only where the kernel lists no children.
#[derive(Default)]
struct Parents(std::cell::OnceCell<BTreeMap<u32, Vec<u32>>>);

impl Parents {
    fn children(&self, pid: u32) -> Vec<u32> {
        let all = self.0.get_or_init(|| {
            let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
                let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                if let Some(parent) = parent_process(pid) {
                    all.entry(parent).or_default().push(pid);
                }
            }
            all
        });
        all.get(&pid).cloned().unwrap_or_default()
    }
}

/// The process that started `pid`: field 4 of `/proc/PID/stat`; the second one is the program's name in parentheses, which
/// may contain anything. `None` if there is no such process, and on systems other than Linux.
pub fn parent_process(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text[text.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn children_of_children_are_found_both_ways() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 1000 & wait"]).spawn().expect("a shell");
        let begun = std::time::Instant::now();
        while descendants(shell.id()).is_empty() && begun.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let below = descendants(shell.id());
        assert_eq!(below.len(), 1, "{below:?}");
        assert!(descendants(std::process::id()).is_superset(&below));
        assert_eq!(Parents::default().children(shell.id()), below.iter().copied().collect::<Vec<_>>());
        for pid in below {
            let _ = std::process::Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = shell.wait();
    }
}
