//! Folders by day and machine, as Hive writes them: engines that read many files skip what a question does not need.
//!
//! They are called `machine=`, not `host=`: some engines refuse folders that are called as a column of the files (Sail 0.7:
//! "duplicate column names").

use crate::numbers::day;
use std::path::{Path, PathBuf};

/// What the name of a day's folder begins with.
pub const DATE: &str = "date=";
/// What the name of a machine's folder begins with.
pub const MACHINE: &str = "machine=";

/// `date=2026-11-27/machine=gpu-07` for what began at a time (nanoseconds since 1970, UTC) on a host.
pub fn folders(started_ns: i64, host: &str) -> PathBuf {
    let host = if host.is_empty() { "unknown".to_string() } else { escaped(host) };
    Path::new(&format!("{DATE}{}", day(started_ns))).join(format!("{MACHINE}{host}"))
}

/// Bytes of a host's name in a path: of longer ones the rest does not count, and several may share a folder.
const LONGEST: usize = 120;

/// A host's name as Hive writes values in paths: what could mean something there as `%` and two digits.
fn escaped(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut escaped = String::new();
    for (at, c) in text.chars().enumerate() {
        if escaped.len() > LONGEST {
            break;
        }
        if plain(c) || (c == '.' && at > 0) {
            escaped.push(c);
        } else {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|byte| escaped += &format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stay_within_their_folder() {
        let of = |host: &str| folders(0, host).display().to_string();
        assert_eq!(of("gpu-07.example"), "date=1970-01-01/machine=gpu-07.example");
        assert_eq!(of("../../etc"), "date=1970-01-01/machine=%2E.%2F..%2Fetc");
        assert!(of(&"é".repeat(300)).len() < 200);
        assert_eq!(of(""), "date=1970-01-01/machine=unknown");
    }
}
