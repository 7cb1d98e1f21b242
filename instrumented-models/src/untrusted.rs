//! Handling of untrusted files and texts of models: they are read within limits, and a library's panic on them becomes
//! an error.

pub(crate) use candlescope_core::caught::caught;
use candlescope_core::files::read_text_limited;
use std::io::ErrorKind;
use std::path::Path;

/// The text of a regular file of at most `limit` bytes.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, String> {
    read_text_limited(path, limit).map_err(|e| match e.kind() {
        ErrorKind::FileTooLarge => format!("is larger than the limit of {limit} bytes"),
        _ => format!("cannot be read: {e}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_text(&path, 5).unwrap(), "12345");
        assert_eq!(read_text(&path, 4).unwrap_err(), "is larger than the limit of 4 bytes");
        assert!(read_text(directory.path(), 4).unwrap_err().contains("it is a directory, not a regular file"));
    }
}
