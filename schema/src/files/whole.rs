//! Writes a file completely or not at all.

use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes `path` through a temporary file beside it, which is synced and then renamed: a reader sees either the old
/// content or all of the new, also after a crash. If there is something other than a regular file at `path`, such as a
/// symbolic link, it is refused: nothing is written through a link. The temporary file has a new name: two processes
/// that write `path` at the same time do not write into each other's file, and the last to finish wins. What killed
/// processes left of the same attempt is removed ([`remove_unfinished`]).
///
/// # Errors
/// If there is something other than a regular file at `path`, if the directory cannot be written to, and those of
/// `write`. Then only what was there before is left.
pub fn write_whole<T>(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>) -> io::Result<T> {
    let before = ordinary(path)?;
    remove_unfinished(path);
    let (temporary, file) = beside(path)?;
    let written = fill(file, before.as_ref(), write).and_then(|value| {
        fs::rename(&temporary, path)?;
        sync_parent(path).map(|()| value)
    });
    if written.is_err() {
        // Half a file is worse than none. After a successful rename there is no file of this name any more.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes the temporary files of [`write_whole`] for `path` whose process was killed before it was done, and returns how
/// many there were. Those of a process that runs stay, and so does everything under another name.
pub fn remove_unfinished(path: &Path) -> usize {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return 0 };
    let left = |entry: &fs::DirEntry| {
        let is_ours = entry.file_name().to_str().and_then(|there| writer(name, there)).is_some_and(has_ended);
        // A lock tells of a writer that has a number of another kind, such as one in a container.
        is_ours && super::open_regular(&entry.path()).is_ok_and(|file| file.try_lock().is_ok())
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter(left).filter(|entry| is_file(&entry.path()) && fs::remove_file(entry.path()).is_ok()).count()
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_file())
}

/// The process that writes `name` through a file called `there`.
fn writer(name: &str, there: &str) -> Option<i32> {
    let middle = there.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")?;
    let (process, attempt) = middle.split_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(process) && digits(attempt)).then(|| process.parse().ok()).flatten()
}

#[cfg(unix)]
fn has_ended(process: i32) -> bool {
    let found = rustix::process::Pid::from_raw(process).map(rustix::process::test_kill_process);
    found == Some(Err(rustix::io::Errno::SRCH))
}

/// Here nothing tells.
#[cfg(not(unix))]
fn has_ended(_: i32) -> bool {
    false
}

/// Metadata of the file that is there, if any.
fn ordinary(path: &Path) -> io::Result<Option<Metadata>> {
    let what = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(there) if there.is_file() => return Ok(Some(there)),
        Ok(there) if there.is_symlink() => "a symbolic link stands there, and links are not followed",
        Ok(there) if there.is_dir() => "a directory stands there",
        Ok(_) => "what stands there is no ordinary file",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Creates a new file in the same directory, under a name that does not exist yet.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    for attempt in 0..100 {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}-{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        match File::create_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                // Nobody else has it; where there are no locks, it is not needed either.
                return made.map(|file| {
                    let _ = file.try_lock();
                    (temporary, file)
                });
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "temporary files of earlier tries lie beside it: remove *.tmp"))
}

fn fill<T>(
    file: File,
    before: Option<&Metadata>,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    if let Some(before) = before {
        // The new content keeps the old file's permissions.
        file.set_permissions(before.permissions())?;
    }
    let mut out = BufWriter::new(file);
    let value = write(&mut out)?;
    out.into_inner()?.sync_all()?;
    Ok(value)
}

/// Makes the rename durable, if the directory can be opened.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(parent) {
        Ok(dir) if cfg!(unix) => dir.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_failure_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.json");
        write_whole(&file, |out| out.write_all(b"first")).unwrap();
        let failed = write_whole(&file, |out| {
            out.write_all(&[b'x'; 100_000])?;
            Err::<(), _>(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&file).unwrap(), b"first");
        write_whole(&file, |out| out.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let ended = (ended.id(), ended.wait().unwrap()).0;
        let at = |name: String| dir.path().join(name);
        let left = [at(format!("a.json.{ended}-0.tmp")), at(format!("a.json.{ended}-12.tmp"))];
        let stays = [
            at(format!("b.json.{ended}-0.tmp")),
            at(format!("a.json.{}-7.tmp", std::process::id())),
            at("a.json.1-0.tmp".to_string()),
            at("a.json.old.tmp".to_string()),
            at(format!("a.json.{ended}-0.tmp.txt")),
        ];
        left.iter().chain(&stays).for_each(|path| fs::write(path, "half").unwrap());
        // One that is locked is being written, whatever its number says.
        let written = fs::File::open(&left[1]).unwrap();
        written.lock().unwrap();
        assert_eq!(remove_unfinished(&at("a.json".to_string())), 1);
        assert!(!left[0].exists() && left[1].exists() && stays.iter().all(|path| path.exists()));
        drop(written);
        write_whole(&at("a.json".to_string()), |out| out.write_all(b"whole")).unwrap();
        assert!(!left[1].exists() && stays.iter().all(|path| path.exists()));
    }

    #[test]
    fn a_file_that_has_the_temporary_name_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.json");
        let theirs = dir.path().join(format!("trace.json.{}-0.tmp", std::process::id()));
        fs::write(&theirs, "theirs").unwrap();
        write_whole(&file, |out| out.write_all(b"ours")).unwrap();
        assert_eq!((fs::read(&theirs).unwrap(), fs::read(&file).unwrap()), (b"theirs".to_vec(), b"ours".to_vec()));
    }
}
