//! Makes directories durably, and keeps track of those that were made.

use super::file_system::{Disk, Files};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Makes a directory and those above it that are missing, as [`std::fs::create_dir_all`] does, and syncs the directory
/// above each. Directories that were made here, and not by another process at the same time, are added to `made`,
/// innermost first, even if a later one fails; so [`remove_dirs`] can remove them again.
///
/// # Errors
/// As for [`std::fs::create_dir_all`], or if the directory above cannot be synced.
pub fn create_dirs(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    create_dirs_with(&Disk, path, made)
}

/// As [`create_dirs`], on the file system `files`.
pub(super) fn create_dirs_with(files: &dyn Files, path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let missing = |p: &&Path| !p.as_os_str().is_empty() && !p.is_dir();
    let missing: Vec<&Path> = path.ancestors().take_while(missing).collect();
    for dir in missing.into_iter().rev() {
        match files.create_dir(dir) {
            Ok(()) => {
                made.retain(|known| known != dir);
                made.insert(0, dir.to_path_buf());
                sync_parent(files, dir)?;
            }
            // Another process was faster, or `dir` ends in `..` of a directory that has just been made.
            Err(_) if dir.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes the directories that [`create_dirs`] made, as far as they are empty.
pub fn remove_dirs(made: &[PathBuf]) {
    for dir in made {
        // Fails for a directory that is not empty, as intended.
        let _ = fs::remove_dir(dir);
    }
}

/// Makes the directory entry of `path` durable.
fn sync_parent(files: &dyn Files, path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match files.sync_dir(parent) {
        // A directory that can be written but not read cannot be synced, and some file systems do not support it.
        Err(error) if refuses_sync(&error) => Ok(()),
        outcome => outcome,
    }
}

fn refuses_sync(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_known_and_goes_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(dir.path().join("there")).expect("a directory");
        let (inner, mut made) = (dir.path().join("there/a/b"), Vec::new());
        create_dirs(&inner, &mut made).expect("made");
        assert_eq!(made, [inner.clone(), dir.path().join("there/a")]);
        create_dirs(&inner, &mut made).expect("it is there");
        assert_eq!(made.len(), 2, "nothing was made the second time");
        fs::write(dir.path().join("there/a/notes.txt"), "somebody's").expect("written");
        remove_dirs(&made);
        assert!(!inner.exists() && dir.path().join("there/a/notes.txt").exists());
    }

    #[test]
    fn a_file_in_the_way_is_an_error_that_keeps_what_was_made() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::write(dir.path().join("file"), "in the way").expect("written");
        let mut made = Vec::new();
        assert!(create_dirs(&dir.path().join("file/run"), &mut made).is_err());
        assert!(made.is_empty() && dir.path().join("file").is_file());
    }
}
