//! A build without CUDA hands what needs a GPU to the build that has it.
#![allow(missing_docs, reason = "a test")]
#![cfg(all(unix, not(feature = "cuda")))]
mod common;
use candlescope_testkit::text;
use common::BINARY;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;
use tempfile::tempdir;

/// The program in a folder of its own, with a build beside it that says how it was called and ends with status 7.
fn two_builds(folder: &Path) {
    fs::copy(BINARY, folder.join("candlescope")).unwrap();
    let other = folder.join("candlescope-cuda");
    fs::write(&other, "#!/bin/sh\nfor word in \"$@\"; do echo \"[$word]\"; done\nexit 7\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(folder.join("candlescope"));
    command.args(args).current_dir(folder).env("PATH", "/usr/bin:/bin");
    loop {
        match command.output() {
            // The other test's child may have been born while this one wrote the program, and holds it open until it starts.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(Duration::from_millis(10)),
            output => return output.unwrap(),
        }
    }
}

#[test]
fn a_model_on_a_gpu_runs_in_the_build_that_has_cuda() {
    let folder = tempdir().unwrap();
    two_builds(folder.path());
    let handed = run(folder.path(), &["profile", "--device", "cuda:1", "--prompt", "two words", "--out", "r"]);
    assert_eq!(handed.status.code(), Some(7), "{}", text(&handed.stderr));
    assert_eq!(text(&handed.stdout), "[profile]\n[--device]\n[cuda:1]\n[--prompt]\n[two words]\n[--out]\n[r]\n");
    assert!(!folder.path().join("r").exists(), "nothing was begun here");
    // From a file of options as well.
    fs::write(folder.path().join("options.toml"), "device = \"cuda:0\"\n").unwrap();
    assert_eq!(run(folder.path(), &["profile", "--config", "options.toml"]).status.code(), Some(7));
    // What needs no GPU stays here.
    let missing = run(folder.path(), &["report", "nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    let doctor = run(folder.path(), &["doctor"]);
    assert!(text(&doctor.stdout).contains("candlescope-cuda"), "{}", text(&doctor.stdout));
}

#[test]
fn without_such_a_build_the_error_says_how_to_make_one() {
    let folder = tempdir().unwrap();
    two_builds(folder.path());
    // One that hands over again would never end.
    let twice = Command::new(folder.path().join("candlescope"))
        .args(["profile", "--device", "cuda:0"])
        .env("CANDLESCOPE_HANDED_OVER", "1")
        .output()
        .unwrap();
    assert!(text(&twice.stderr).contains("cuda:0"), "{}", text(&twice.stderr));
    fs::remove_file(folder.path().join("candlescope-cuda")).unwrap();
    let alone = run(folder.path(), &["profile", "--device", "cuda:0"]);
    let said = text(&alone.stderr);
    assert!(said.contains("--features cuda --bin candlescope-cuda"), "{said}");
    // One that is there and does not start.
    let other = folder.path().join("candlescope-cuda");
    fs::write(&other, "no program").unwrap();
    let no_program = run(folder.path(), &["profile", "--device", "cuda:0"]);
    assert!(text(&no_program.stderr).contains("--bin candlescope-cuda"), "{}", text(&no_program.stderr));
    fs::write(&other, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let broken = run(folder.path(), &["profile", "--device", "cuda:0"]);
    assert!(text(&broken.stderr).contains("candlescope-cuda cannot be started"), "{}", text(&broken.stderr));
}
