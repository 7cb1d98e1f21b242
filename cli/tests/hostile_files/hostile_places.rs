//! Pipes, devices, sockets and directories where a file should be are refused at once, by name.

use crate::bounded::bounded;
use crate::tables::Table;
use candlescope_core::RecordKind;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// Longest time for refusing something that is not a file.
const SECONDS: u64 = 10;
/// Pages of the program's own file, of 300 MB with its line tables, are among them.
const MB: u64 = 340;

/// Puts each kind of thing that is not a file at `path`, one after the other.
fn for_each_kind(path: &Path, mut attack: impl FnMut(&str)) {
    let remove = || {
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    };
    remove();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    attack("a named pipe");
    remove();
    for device in ["/dev/zero", "/dev/stdin"] {
        symlink(device, path).unwrap();
        attack("a device");
        remove();
    }
    let socket = UnixListener::bind(path).unwrap();
    attack("a socket");
    drop(socket);
    remove();
    fs::create_dir(path).unwrap();
    attack("a directory");
    remove();
}

#[track_caller]
fn refused(args: &[&str], parts: &[&str]) {
    let ended = bounded(args, MB, SECONDS);
    assert_ne!(ended.code, Some(0), "{args:?}: {}", ended.out);
    for part in parts {
        assert!(ended.err.contains(part), "`{part}` is not in: {}", ended.err);
    }
}

#[test]
fn in_place_of_a_manifest_or_a_segment() {
    let dir = tempdir().unwrap();
    let run = dir.path().to_str().unwrap();
    Table::new(RecordKind::Step, 10).write(dir.path());
    for (name, code) in [("run.json", "manifest_unreadable"), ("spans/part-00000.parquet", "segment_corrupt")] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for_each_kind(&path, |what| {
            let ended = bounded(&["report", run, "--json"], MB, SECONDS);
            assert_eq!(ended.code, Some(0), "{}", ended.err);
            // A folder among segments is ignored.
            if what != "a directory" || name == "run.json" {
                let said = format!("it is {what}, not a regular file");
                assert!(ended.out.contains(code) && ended.out.contains(&said), "{what}: {}", ended.out);
            }
            bounded(&["export", "chrome", run, "--out", dir.path().join("x").to_str().unwrap()], MB, SECONDS);
        });
    }
    // Without other files it is not a run.
    let alone = tempdir().unwrap();
    let manifest = alone.path().join("run.json");
    assert!(Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    refused(&["report", alone.path().to_str().unwrap()], &["holds no run"]);
}

#[test]
fn in_place_of_a_profile_or_beside_it() {
    let dir = tempdir().unwrap();
    let run = dir.path().to_str().unwrap();
    Table::new(RecordKind::Step, 10).write(dir.path());
    for name in ["p.nsys-rep", "p.sqlite"] {
        let profile = dir.path().join(name);
        for_each_kind(&profile, |what| {
            let said = format!("it is {what}, not a regular file");
            refused(&["report", run, "--nsys", profile.to_str().unwrap()], &[name, &said]);
        });
    }
    let profile = dir.path().join("p.sqlite");
    let profile_arg = profile.to_str().unwrap();
    // A journal that SQLite would open to roll it back.
    crate::hostile_profiles::export(&profile, "");
    for name in ["p.sqlite-journal", "p.sqlite-wal"] {
        let pipe = dir.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let ended = bounded(&["report", run, "--nsys", profile_arg, "--json"], MB, SECONDS);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        fs::remove_file(pipe).unwrap();
    }
}

#[test]
fn in_place_of_what_a_profile_is_made_from() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("run");
    let start = ["profile", "--no-progress", "--out", out.to_str().unwrap()];
    for option in ["--config", "--prompt-file", "--model", "--perfetto"] {
        let path = dir.path().join("thing.gguf");
        for_each_kind(&path, |what| {
            // A model may be a directory.
            let said = match (option, what) {
                ("--model", "a directory") => "config.json is missing".to_string(),
                ("--model", _) => "neither a file nor a directory".to_string(),
                // Nothing is written through a link, wherever it points.
                ("--perfetto", "a device") => "a symbolic link".to_string(),
                _ => format!("it is {what}, not a regular file"),
            };
            refused(&[&start[..], &[option, path.to_str().unwrap()]].concat(), &["thing.gguf", &said]);
        });
    }
    // Files that are larger than such files ever are.
    for (option, bytes) in [("--config", (1u64 << 20) + 1), ("--prompt-file", (64 << 20) + 1)] {
        let path = dir.path().join("large");
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let said = format!("it has {bytes} bytes, more than the limit of {}", bytes - 1);
        refused(&[&start[..], &[option, path.to_str().unwrap()]].concat(), &["large", &said]);
    }
    assert!(!out.exists(), "nothing is left of what was refused");
}

#[test]
fn limits_that_are_none() {
    refused(&["report", "run", "--limit", "stepps=1"], &["--limit stepps=1", "there is no limit `stepps`", "steps"]);
    refused(&["report", "run", "--limit", "steps=many"], &["wants a whole number", "`many`"]);
    let help = bounded(&["report", "--help"], MB, SECONDS).out;
    for limit in candlescope_reader::Limit::ALL {
        assert!(help.contains(limit.name()), "{} is not in: {help}", limit.name());
    }
    let mut command = crate::common::candlescope();
    command.args(["report", "run"]).env("CANDLESCOPE_LIMITS", "nonsense");
    let ended = crate::bounded::within(command, MB, SECONDS);
    assert!(ended.err.contains("in the variable CANDLESCOPE_LIMITS"), "{}", ended.err);
}

/// Only the first process may write a timeline: two in one file would both be unusable.
#[test]
fn a_timeline_that_another_process_writes() {
    let dir = tempdir().unwrap();
    let timeline = dir.path().join("t.pftrace");
    let run = dir.path().join("run");
    let mut args = vec!["profile", "--no-progress", "--max-new-tokens", "2", "--repeats", "1", "--out"];
    args.extend([run.to_str().unwrap(), "--perfetto", timeline.to_str().unwrap()]);
    let (other, _) = candlescope_core::files::create_alone(&timeline).unwrap();
    fs::write(&timeline, "the other's").unwrap();
    refused(&args, &["t.pftrace", "another process is writing it: wait for it, or name another file"]);
    assert_eq!(fs::read(&timeline).unwrap(), b"the other's");
    assert!(!run.exists(), "the same command can be given again");
    drop(other);
    assert_eq!(bounded(&args, 2 * MB, SECONDS).code, Some(0));
    assert!(fs::metadata(&timeline).unwrap().len() > 1000);
}
