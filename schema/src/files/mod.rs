//! Access to files whose paths and contents may come from others: opened without waiting, read within a limit, written
//! completely or not at all.
//!
//! A path that somebody else chose can name a pipe that nobody writes to, an endless device, or a directory. To open or
//! read such a thing like a file hangs or fills memory, so it is refused by its type before a byte is read.

mod append;
mod whole;

pub use append::open_append;
pub use whole::{remove_unfinished, write_whole};

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Opens the regular file at `path` for reading; links are followed.
///
/// # Errors
/// If it cannot be opened, or is a pipe, a socket, a device or a directory; the error says which. Never waits for the
/// other end of a pipe.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // The type is checked before opening, because opening alone has effects on some devices; and afterwards, because
    // the file may have been replaced in between.
    regular(std::fs::metadata(path)?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    }
    let file = options.open(path)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// All bytes of the regular file at `path`, if there are at most `limit`.
///
/// # Errors
/// Those of [`open_regular`] and of reading; [`ErrorKind::FileTooLarge`] if there are more bytes, whatever size the
/// file system states.
pub fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= limit {
        bytes.try_reserve_exact(size as usize).map_err(|_| ErrorKind::OutOfMemory)?;
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    }
    let found = size.max(bytes.len() as u64);
    if found > limit {
        let text = format!("it has {found} bytes, more than the limit of {limit}");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// All text of the regular file at `path`, if there are at most `limit` bytes.
///
/// # Errors
/// Those of [`read_limited`]; [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text_limited(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_limited(path, limit)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// Creates the file at `path`, or empties the regular file that is there, for this process alone to write to. Returns
/// whether the file was created. Nothing is written through a link; a device is opened as it is.
///
/// # Errors
/// If it cannot be opened, is a pipe, a socket or a directory, or is still being written by another process that opened
/// it with this function. What is there is then left unchanged.
pub fn create_alone(path: &Path) -> io::Result<(File, bool)> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => {
            let text = "a symbolic link stands there, and links are not followed";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        // A device, such as /dev/null, keeps nothing that two writers could mix up.
        Ok(there) if kind(there.file_type()) == Some(DEVICE) => {
            return OpenOptions::new().write(true).open(path).map(|file| (file, false));
        }
        Ok(there) => regular(there.file_type())?,
        // It does not exist and is created below, or opening it fails with the reason.
        Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32);
    }
    let (file, made) = match options.clone().create_new(true).open(path) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => (options.open(path)?, false),
        Err(error) => return Err(error),
    };
    regular(file.metadata()?.file_type())?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io::Error::new(ErrorKind::ResourceBusy, "another process is writing it"));
        }
        // Some file systems have no locks; the file is then used without one.
        Err(TryLockError::Error(_)) => {}
    }
    file.set_len(0)?;
    Ok((file, made))
}

/// Locks the directory at `path` against other processes that lock it as well, until the file is dropped. The lock is on
/// the directory itself, so that nothing is left of it. `None` where directories cannot be locked.
///
/// # Errors
/// [`ErrorKind::ResourceBusy`] if another process has it.
pub fn lock_directory(path: &Path) -> io::Result<Option<File>> {
    let Ok(dir) = File::open(path) else { return Ok(None) };
    match dir.try_lock() {
        Ok(()) => Ok(Some(dir)),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(ErrorKind::ResourceBusy, "another process is writing into it"))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

fn regular(found: FileType) -> io::Result<()> {
    let what = match kind(found) {
        None => return Ok(()),
        Some(what) => what,
    };
    let kind = if found.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
    Err(io::Error::new(kind, format!("it is {what}, not a regular file")))
}

const DEVICE: &str = "a device";

/// What it is, if it is not a regular file.
fn kind(found: FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if found.is_fifo() {
            return Some("a named pipe");
        }
        if found.is_socket() {
            return Some("a socket");
        }
        if found.is_char_device() || found.is_block_device() {
            return Some(DEVICE);
        }
    }
    match found {
        _ if found.is_file() => None,
        _ if found.is_dir() => Some("a directory"),
        _ => Some("something else"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    #[test]
    fn limits_are_inclusive() {
        let path = std::env::temp_dir().join(format!("candlescope-files-{}", std::process::id()));
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_limited(&path, 5).unwrap(), b"12345");
        let error = read_limited(&path, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 5 bytes, more than the limit of 4");
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_text_limited(&path, 4).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open_regular(&path).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_has_one_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, "before").unwrap();
        let (first, made) = create_alone(&path).unwrap();
        assert!(!made && std::fs::read(&path).unwrap().is_empty());
        std::fs::write(&path, "first").unwrap();
        // A lock belongs to an open file, so a second open file of this process behaves like another process's.
        assert_eq!(create_alone(&path).unwrap_err().kind(), ErrorKind::ResourceBusy);
        assert_eq!(std::fs::read(&path).unwrap(), b"first", "what the other wrote is left");
        drop(first);
        assert!(!create_alone(&path).unwrap().1);
        #[cfg(unix)]
        {
            let link = dir.path().join("link");
            std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
            assert!(create_alone(&link).unwrap_err().to_string().contains("symbolic link"));
            assert!(!dir.path().join("elsewhere").exists());
        }
        assert!(create_alone(&dir.path().join("new")).unwrap().1);
        assert_eq!(create_alone(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_is_locked_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock_directory(dir.path()).unwrap();
        assert!(first.is_some());
        assert_eq!(lock_directory(dir.path()).unwrap_err().kind(), ErrorKind::ResourceBusy);
        drop(first);
        assert!(lock_directory(dir.path()).unwrap().is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let began = Instant::now();
        let dir = std::env::temp_dir().join(format!("candlescope-pipes-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (pipe, socket) = (dir.join("pipe"), dir.join("socket"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, what) in [
            (pipe, "a named pipe"),
            (socket, "a socket"),
            (dir.clone(), "a directory"),
            (PathBuf::from("/dev/zero"), "a device"),
        ] {
            let error = read_limited(&path, u64::MAX).unwrap_err().to_string();
            assert_eq!(error, format!("it is {what}, not a regular file"));
        }
        drop(listener);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
