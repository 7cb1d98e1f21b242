//! Where `export` writes: whole files, never through a link.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_file_is_replaced_as_a_whole_and_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (run, elsewhere) = (dir.path().join("run"), dir.path().join("elsewhere"));
    let run_arg = run.to_str().unwrap();
    ok(&["profile", "--out", run_arg, "--max-new-tokens", "2", "--repeats", "1", "--warmup", "0"]);
    fs::write(&elsewhere, "precious").unwrap();
    let named = dir.path().join("named.json");
    let there = |link: &std::path::Path| fs::symlink_metadata(link).unwrap().is_symlink();

    // The default name in the run, a given name, and a dangling link.
    for (link, target) in [(run.join("trace.json"), &elsewhere), (named.clone(), &elsewhere), (named, &run.join("x"))] {
        let _ = fs::remove_file(&link);
        symlink(target, &link).unwrap();
        let said = fails(&["export", "chrome", run_arg, "--out", link.to_str().unwrap()]);
        assert!(said.contains(link.to_str().unwrap()) && said.contains("symbolic link"), "{said}");
        assert!(said.contains("--out"), "names the remedy: {said}");
        assert!(there(&link) && fs::read(&elsewhere).unwrap() == b"precious" && !run.join("x").exists());
    }
    let said = fails(&["export", "chrome", run_arg]);
    assert!(said.contains("symbolic link"), "{said}");

    // A reader that has the old file open can still read all of it.
    let file = dir.path().join("trace.pftrace");
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut before = fs::File::open(&file).unwrap();
    ok(&["export", "perfetto", run_arg, "--out", file.to_str().unwrap()]);
    let mut read = String::new();
    std::io::Read::read_to_string(&mut before, &mut read).unwrap();
    assert_eq!(read, "before");
    assert!(fs::metadata(&file).unwrap().len() > 1000);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "who may read it stays");

    let said = fails(&["export", "chrome", run_arg, "--out", dir.path().to_str().unwrap()]);
    assert!(said.contains("a directory stands there"), "{said}");
    let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(!names.into_iter().any(|name| name.ends_with(".tmp")), "temporary files are left");
}
