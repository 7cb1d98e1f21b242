//! The corpus and some mutations of it through every target. `CANDLESCOPE_FUZZ_INPUTS` says how many; `make fuzz` runs
//! them by the hour.
#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "a test")]
use candlescope_fuzz::supervise::{self, HEAD};
use candlescope_fuzz::targets;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

#[test]
fn every_input_ends_within_bounds() {
    let inputs = std::env::var("CANDLESCOPE_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(100u64);
    let exe = Path::new(env!("CARGO_BIN_EXE_fuzz"));
    eprintln!("{HEAD}");
    for target in targets::ALL {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty() && seeds.iter().all(|seed| seed.len() < 40_000), "{}: seeds are small", target.name);
        let inputs = seeds.len() as u64 + inputs * target.weight / 100;
        let count = supervise::run(exe, target.name, 1, inputs, Duration::from_secs(600)).unwrap();
        eprintln!("| {:<16} | {count} |", target.name);
        assert!(count.is_clean(), "{}: {:#?}", target.name, count.findings);
        assert!(count.accepted > 0, "{}: not even the seeds are accepted", target.name);
    }
}

/// `make fuzz-coverage` takes its targets from the folders of the corpus.
#[test]
fn every_target_has_a_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders: BTreeSet<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let names: BTreeSet<_> = targets::ALL.iter().map(|target| target.name.into()).collect();
    assert_eq!(folders, names);
    assert!(targets::APART.iter().all(|name| names.contains(std::ffi::OsStr::new(name))));
}

/// The supervisor detects every kind of failure.
#[test]
fn what_goes_wrong_is_seen() {
    let exe = Path::new(env!("CARGO_BIN_EXE_fuzz"));
    let count = |name| supervise::run(exe, name, 1, 3, Duration::from_secs(60)).unwrap();
    let panics = count("self-panic");
    assert_eq!((panics.inputs, panics.panics, panics.aborts), (3, 3, 0), "{panics:?}");
    assert!(panics.findings[0].contains("as it should") && panics.findings[0].contains("--only 0"), "{panics:?}");
    let aborts = count("self-abort");
    assert_eq!((aborts.inputs, aborts.aborts), (3, 3), "{aborts:?}");
    let memory = supervise::run(exe, "self-memory", 1, 1, Duration::from_secs(60)).unwrap();
    assert_eq!((memory.inputs, memory.over_memory), (1, 1), "{memory:?}");
}
