//! Data flows one way: which crate may depend on which, read from `cargo metadata`.
#![allow(missing_docs, reason = "a test")]
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

/// Crate → crates of ours that it may depend on in a normal build. Everything else is an edge against the flow.
const ALLOWED: &[(&str, &[&str])] = &[
    ("candlescope-core", &[]),
    ("candlescope-collectors", &["candlescope-core"]),
    ("candlescope-exporters", &["candlescope-core"]),
    ("candlescope-models", &["candlescope-core"]),
    // The run contract is a module of core; the writer of runs stays out of the reader.
    ("candlescope-analysis", &["candlescope-core"]),
    ("candlescope", &["candlescope-collectors", "candlescope-core", "candlescope-exporters"]),
];
/// Crates that wire others together and may use them all.
const WIRING: &[&str] = &[
    "candlescope-cli",
    "candlescope-examples",
    "candlescope-server",
    "candlescope-tests",
    "candlescope-testkit",
    "candlescope-bench",
    "candlescope-fuzz",
];

#[test]
fn crates_depend_along_the_flow_only() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, deps)| (*name, deps.iter().copied().collect())).collect();
    let mut seen = BTreeSet::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        seen.insert(name.to_string());
        let ours: BTreeSet<&str> = package
            .dependencies
            .iter()
            .filter(|d| d.kind == DependencyKind::Normal && d.path.is_some())
            .map(|d| d.name.as_str())
            .collect();
        match allowed.get(name) {
            Some(allowed) => {
                let wrong: Vec<_> = ours.difference(allowed).collect();
                assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
            }
            None => assert!(WIRING.contains(&name), "{name} has no place in the flow: add it to this test"),
        }
    }
    for (name, _) in ALLOWED {
        assert!(seen.contains(*name), "{name} is gone");
    }
}

#[test]
fn candle_is_named_by_models_and_wiring_only() {
    // The SDK itself must not pull candle in: it serves any program with spans.
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    for package in &metadata.packages {
        let uses_candle =
            package.dependencies.iter().any(|d| d.kind == DependencyKind::Normal && d.name.starts_with("candle-"));
        let may = package.name.as_str() == "candlescope-models" || WIRING.contains(&package.name.as_str());
        assert!(may || !uses_candle, "{} must not depend on candle", package.name);
    }
}

#[test]
fn the_candle_version_in_runs_is_the_one_linked() {
    let metadata =
        MetadataCommand::new().manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).exec().unwrap();
    let candle = metadata.packages.iter().find(|p| p.name.as_str() == "candle-core").expect("candle-core");
    assert_eq!(candle.version.to_string(), candlescope_models::CANDLE_VERSION);
}
