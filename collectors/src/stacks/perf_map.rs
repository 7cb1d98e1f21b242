//! Names of code that is made at run time, from the file that a program writes of it for `perf`: `/tmp/perf-PID.map`,
//! as Python does with `-X perf` and compilers at run time do if they are asked.
//!
//! The file grows while the program runs. What came since is read when code appears that is in no file and has no name yet.

use candlescope_core::cut_text;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the file that are read, and functions that are kept (some 100 MB with names of usual length).
///
/// Overload policy: what comes after that has no names. A program that makes code without end makes most of it early.
const MOST_BYTES: u64 = 64 << 20;
const MOST_FUNCTIONS: usize = 500_000;
/// Bytes of a name that are kept.
const MOST_NAME: usize = 1_024;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Begins the names of Python's functions.
const PYTHON: &str = "py::";
/// Python puts the code of its functions side by side, with no more than this between them.
const NEAR: u64 = 64;
/// Stretches of Python's code that are told apart.
const MOST_STRETCHES: usize = 4_096;

/// See the module's text.
pub(super) struct PerfMap {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that were read.
    read: u64,
    /// The beginning of a line whose end was not there yet.
    rest: Vec<u8>,
    /// By first address: the end, and the name.
    functions: BTreeMap<u64, (u64, Arc<str>)>,
    /// Where Python's functions are.
    python: Vec<Range<u64>>,
    /// There is something else at its place.
    is_refused: bool,
}

impl PerfMap {
    /// That of this process, once it writes one.
    pub(super) fn of_this_process() -> Self {
        Self::at(format!("/tmp/perf-{}.map", std::process::id()).into())
    }

    fn at(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            read: 0,
            rest: Vec::new(),
            functions: BTreeMap::new(),
            python: Vec::new(),
            is_refused: false,
        }
    }

    /// The name of the function that holds this address.
    pub(super) fn name(&self, address: u64) -> Option<&Arc<str>> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Stretches of memory in which Python's functions are.
    pub(super) fn python(&self) -> &[Range<u64>] {
        &self.python
    }

    /// Reads what was written since. Whether that was anything.
    pub(super) fn follow(&mut self) -> bool {
        if self.file.is_none() && !self.is_refused {
            match open(&self.path) {
                Ok(Some(file)) => self.file = Some(file),
                Ok(None) => self.is_refused = true,
                Err(error) => self.is_refused = error.kind() != ErrorKind::NotFound,
            }
        }
        let Some(file) = self.file.take() else { return false };
        let before = self.read;
        while self.read < MOST_BYTES && !self.is_refused && self.read_piece(&file) {}
        self.file = Some(file).filter(|_| !self.is_refused);
        self.read > before
    }

    /// Whether there was any.
    fn read_piece(&mut self, file: &File) -> bool {
        let mut piece = std::mem::take(&mut self.rest);
        let had = piece.len();
        piece.resize(had + PIECE, 0);
        let got = file.read_at(&mut piece[had..], self.read).unwrap_or(0);
        piece.truncate(had + got);
        self.read += got as u64;
        let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        String::from_utf8_lossy(&piece[..whole]).lines().for_each(|line| self.add(line));
        self.rest = piece.split_off(whole);
        if self.rest.len() >= PIECE {
            // Not what it should be.
            self.rest = Vec::new();
            self.is_refused = true;
        }
        got > 0
    }

    /// `7f8b7872aab3 b py::outer:/srv/work.py`: address and bytes, both hexadecimal, and the name.
    fn add(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        let (Some(start), Some(bytes)) = (number(), number()) else { return };
        let (Some(end), Some(name)) = (start.checked_add(bytes), words.next()) else { return };
        if bytes == 0 || name.is_empty() {
            return;
        }
        // Code was made anew where other code had been.
        loop {
            let overlapping = self.functions.range(..end).next_back().filter(|(_, (its_end, _))| *its_end > start);
            let Some(other) = overlapping.map(|(other, _)| *other) else { break };
            self.functions.remove(&other);
        }
        if self.functions.len() >= MOST_FUNCTIONS {
            return;
        }
        self.functions.insert(start, (end, cut_text(name, MOST_NAME).into()));
        if name.starts_with(PYTHON) {
            self.add_python(start..end);
        }
    }

    fn add_python(&mut self, code: Range<u64>) {
        let is_near = |known: &&mut Range<u64>| {
            code.start <= known.end.saturating_add(NEAR) && code.end.saturating_add(NEAR) >= known.start
        };
        // Nearly always the latest one goes on.
        if let Some(known) = self.python.iter_mut().rev().find(is_near) {
            *known = known.start.min(code.start)..known.end.max(code.end);
        } else if self.python.len() < MOST_STRETCHES {
            self.python.push(code);
        }
    }
}

/// The source file of a function whose name says it: `py::name:file`.
pub(super) fn file_of(name: &str) -> Option<&str> {
    let (_, file) = name.strip_prefix(PYTHON)?.rsplit_once(':')?;
    (!file.is_empty()).then_some(file)
}

/// The file, if this user wrote it: anybody may put something at that place. `None` for what is no file of his.
fn open(path: &Path) -> std::io::Result<Option<File>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (it, us) = (file.metadata()?, std::fs::metadata("/proc/self")?);
    Ok(Some(file).filter(|_| it.is_file() && it.uid() == us.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A directory for one test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("candlescope-perf-map-{}-{name}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn name(map: &PerfMap, address: u64) -> Option<&str> {
        map.name(address).map(|name| &**name)
    }

    #[test]
    fn functions_are_named_as_they_come_and_the_last_one_at_an_address_counts() {
        let dir = Directory::new("named");
        let path = dir.0.join("perf-1.map");
        let mut map = PerfMap::at(path.clone());
        assert!(!map.follow(), "it is not there yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"1000 b py::main:/srv/a b.py\n100b b py::step.<locals>.f:<string>\nnonsense\n5000 0 empty\n20")
            .unwrap();
        assert!(map.follow() && !map.follow());
        assert_eq!(
            (name(&map, 0x1000), name(&map, 0x100a)),
            (Some("py::main:/srv/a b.py"), Some("py::main:/srv/a b.py"))
        );
        assert_eq!(name(&map, 0x100b), Some("py::step.<locals>.f:<string>"));
        assert_eq!([0xfff, 0x1016, 0x5000, 0x2000].map(|at| name(&map, at)), [None; 4]);
        file.write_all(b"00 100 LazyCompile:~f\n0x1005 8 other code\nffffffffffffffff 2 beyond\n").unwrap();
        assert!(map.follow());
        assert_eq!((name(&map, 0x20ff), name(&map, 0x1008)), (Some("LazyCompile:~f"), Some("other code")));
        assert_eq!((name(&map, 0x1000), name(&map, 0x100d)), (None, None), "what was there is gone");
        let [only] = map.python() else { panic!("{:?}", map.python()) };
        assert_eq!(*only, 0x1000..0x1016);
        assert_eq!((file_of("py::f:/a:b.py"), file_of("py::f"), file_of("f:/a.py")), (Some("b.py"), None, None));
    }

    #[test]
    fn only_a_file_of_this_user_is_read() {
        let dir = Directory::new("whose");
        let real = dir.0.join("real");
        std::fs::write(&real, "1000 b f\n").unwrap();
        let link = dir.0.join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for path in [link, dir.0.clone()] {
            let mut map = PerfMap::at(path);
            assert!(!map.follow() && name(&map, 0x1000).is_none() && map.is_refused);
        }
        assert!(PerfMap::at(real).follow());
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let dir = Directory::new("line");
        let path = dir.0.join("map");
        std::fs::write(&path, vec![b'a'; 2 * PIECE]).unwrap();
        let mut map = PerfMap::at(path);
        map.follow();
        assert!(map.rest.is_empty() && map.is_refused && !map.follow());
    }
}
