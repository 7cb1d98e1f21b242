//! Opens a file that grows by lines.

use super::regular;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Opens the regular file at `path` to read it and to add to its end, and creates it if there is none. Nothing is
/// written through a link: a directory that came from others, such as a repository, may hold one that leads anywhere.
///
/// # Errors
/// If it cannot be opened, or is a link, a pipe, a socket, a device or a directory; the error says which. Never waits
/// for the other end of a pipe.
pub fn open_append(path: &Path) -> io::Result<File> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => {
            let text = "a symbolic link stands there, and links are not followed";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(there) => regular(there.file_type())?,
        // It does not exist and is created below, or opening it fails with the reason.
        Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32);
    }
    let file = options.open(path)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_are_added_to_a_regular_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        for _ in 0..2 {
            open_append(&path).unwrap().write_all(b"line\n").unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"line\nline\n");
        assert_eq!(open_append(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        #[cfg(unix)]
        {
            let (link, pipe) = (dir.path().join("link"), dir.path().join("pipe"));
            for target in [path.clone(), dir.path().join("nothing")] {
                std::os::unix::fs::symlink(&target, &link).unwrap();
                assert!(open_append(&link).unwrap_err().to_string().contains("symbolic link"));
                std::fs::remove_file(&link).unwrap();
            }
            assert_eq!(std::fs::read(&path).unwrap().len(), 10, "nothing was written through the link");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            assert!(open_append(&pipe).unwrap_err().to_string().contains("a named pipe"));
        }
    }
}
