//! What the file of a program says of it: whether a library can be loaded into it before all others (`LD_PRELOAD`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Scripts that name scripts are followed so far.
const MOST_SCRIPTS: usize = 4;
/// The longest first line of a script, and the longest path of a loader.
const MOST_LINE: u64 = 4_096;
/// The largest table of names that is looked through: more than any program has.
const MOST_NAMES: u64 = 64 << 20;
/// More segments, and entries of what is for the loader, than any program has.
const MOST_SEGMENTS: u64 = 1_024;
const MOST_ENTRIES: usize = 4_096;

/// `PT_LOAD`, `PT_DYNAMIC` and `PT_INTERP`.
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;
const LOADER: u32 = 3;

/// Why it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It has AddressSanitizer, which ends a program in which another library comes first.
    Sanitised,
    /// It is of 32 bits.
    Narrow,
    /// It is of another C library.
    OtherLoader,
}

impl Obstacle {
    /// As a sentence goes on that begins with the program's name.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Sanitised => "has AddressSanitizer, which has to come before all other libraries",
            Self::Narrow => "is a program of 32 bits",
            Self::OtherLoader => "has another C library than glibc",
        }
    }
}

/// What stands against it in the program of this command; `None` also where the file cannot be read.
pub(super) fn obstacle(command: &OsStr) -> Option<Obstacle> {
    let mut file = found(command)?;
    for _ in 0..MOST_SCRIPTS {
        match interpreter(&file) {
            Some(next) => file = next,
            None => break,
        }
    }
    of_elf(&mut File::open(file).ok()?)
}

/// The file that a command names, as a shell finds it.
fn found(command: &OsStr) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(command.into());
    }
    let runs =
        |file: &PathBuf| file.metadata().is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(command)).find(runs)
}

/// The program that runs a script, by its first line (`#!`).
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(File::open(script).ok()?.take(MOST_LINE)).read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut words = words.map(|word| OsString::from_vec(word.to_vec()));
    let program = PathBuf::from(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program);
    }
    // What `env` starts, behind its options and variables.
    let named = |word: &OsString| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    found(&words.find(named)?)
}

/// The same of a program's own file; `None` of any other.
fn of_elf(file: &mut (impl Read + Seek)) -> Option<Obstacle> {
    let head = read(file, 0, 64)?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head[4] == 1 {
        return Some(Obstacle::Narrow);
    }
    // Of a machine with the other order of bytes: it does not run here.
    if (head[4], head[5]) != (2, 1) {
        return None;
    }
    let (at, size, count) = (word(&head, 32)?, half(&head, 54)?, half(&head, 56)?);
    let mut segments = Vec::new();
    for n in 0..count.min(MOST_SEGMENTS) {
        let segment = read(file, at.checked_add(n * size)?, 56)?;
        let kind = u32::from_le_bytes(segment.get(..4)?.try_into().ok()?);
        // Its kind; its place in the file, in memory; its length in the file.
        segments.push((kind, word(&segment, 8)?, word(&segment, 16)?, word(&segment, 32)?));
    }
    let of_kind = |kind: u32| segments.iter().find(|segment| segment.0 == kind).copied();
    // Without a loader nothing is preloaded.
    let (_, at, _, length) = of_kind(LOADER)?;
    let path = read(file, at, length.min(MOST_LINE))?;
    if contains(&path, b"musl") {
        return Some(Obstacle::OtherLoader);
    }
    let (_, at, _, length) = of_kind(DYNAMIC)?;
    let entries = read(file, at, length.min(MOST_ENTRIES as u64 * 16))?;
    // `DT_STRTAB` and `DT_STRSZ`: names of the libraries that it needs, and of what it takes from them or has for them.
    let entry = |tag: u64| word(entries.chunks_exact(16).find(|entry| word(entry, 0) == Some(tag))?, 8);
    let (address, length) = (entry(5)?, entry(10)?);
    let holds = |segment: &&(u32, u64, u64, u64)| {
        segment.0 == LOADED && address.checked_sub(segment.2).is_some_and(|within| within < segment.3)
    };
    let (_, at, begins, _) = *segments.iter().find(holds)?;
    let names = read(file, at.checked_add(address - begins)?, length.min(MOST_NAMES))?;
    contains(&names, b"\0__asan_init\0").then_some(Obstacle::Sanitised)
}

fn read(file: &mut (impl Read + Seek), at: u64, length: u64) -> Option<Vec<u8>> {
    file.seek(SeekFrom::Start(at)).ok()?;
    let mut bytes = Vec::new();
    file.by_ref().take(length).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == length).then_some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A program's file with this loader and these names.
    fn elf(loader: &[u8], names: &[u8]) -> Vec<u8> {
        const HEADS: u64 = 64 + 3 * 56;
        let segment = |kind: u32, at: u64, memory: u64, length: u64| {
            let flags = 4_u32.to_le_bytes();
            let words = [at, memory, memory, length, length, 8].map(u64::to_le_bytes).concat();
            [&kind.to_le_bytes()[..], &flags, &words].concat()
        };
        let (at_loader, at_names) = (HEADS, HEADS + loader.len() as u64);
        let at_entries = at_names + names.len() as u64;
        let entries: Vec<u8> =
            [1, 1, 5, 0x1000 + at_names, 10, names.len() as u64, 0, 0].map(u64::to_le_bytes).concat();
        let all = at_entries + entries.len() as u64;
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&3_u16.to_le_bytes());
        file.extend(segment(1, 0, 0x1000, all));
        file.extend(segment(3, at_loader, 0x1000 + at_loader, loader.len() as u64));
        file.extend(segment(2, at_entries, 0x1000 + at_entries, entries.len() as u64));
        [&file[..], loader, names, &entries].concat()
    }

    fn of(bytes: &[u8]) -> Option<Obstacle> {
        of_elf(&mut Cursor::new(bytes))
    }

    #[test]
    fn a_program_says_what_stands_against_a_library_before_all_others() {
        let (glibc, musl) = (b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0");
        assert_eq!(of(&elf(glibc, b"\0libc.so.6\0main\0")), None);
        assert_eq!(of(&elf(glibc, b"\0libasan.so.8\0__asan_init\0")), Some(Obstacle::Sanitised));
        assert_eq!(of(&elf(musl, b"\0libc.so\0")), Some(Obstacle::OtherLoader));
        let mut narrow = elf(glibc, b"\0");
        narrow[4] = 1;
        assert_eq!(of(&narrow), Some(Obstacle::Narrow));
        // Damaged files, and those that are no programs.
        let whole = elf(glibc, b"\0__asan_init\0");
        (0..whole.len()).for_each(|length| assert!(of(&whole[..length]).is_none(), "{length}"));
        assert_eq!((of(b""), of(b"#!/bin/sh\n")), (None, None));
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0xff;
            of(&other);
        }
    }

    #[test]
    fn scripts_are_followed_to_the_program_that_runs_them() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let file = dir.path().join(name);
            std::fs::write(&file, bytes).unwrap();
            file
        };
        let sanitised = write("sanitised", &elf(b"/lib64/ld-linux-x86-64.so.2\0", b"\0__asan_init\0"));
        let first = write("first", format!("#! {} -x\nrest", sanitised.display()).as_bytes());
        let second = write("second", format!("#!{}\n", first.display()).as_bytes());
        assert_eq!(obstacle(second.as_os_str()), Some(Obstacle::Sanitised));
        let turns = dir.path().join("turns");
        std::fs::write(&turns, format!("#!{}\n", turns.display())).unwrap();
        assert_eq!(obstacle(turns.as_os_str()), None);
        let by_env = write("by_env", format!("#!/usr/bin/env -S A=1 {}\n", sanitised.display()).as_bytes());
        assert_eq!(obstacle(by_env.as_os_str()), Some(Obstacle::Sanitised));
        assert_eq!((obstacle(OsStr::new("sh")), obstacle(OsStr::new("/no/such/program"))), (None, None));
    }
}
