//! `trace-candle-nn` against candle-nn's source as cargo has it. Whether the result compiles and names what it should is
//! shown by `make test-models-without-spans`.
#![allow(missing_docs, reason = "a test")]

mod common;
use cargo_metadata::MetadataCommand;
use common::copy;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn trace(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candlescope"));
    command.arg("trace-candle-nn").args(arguments).arg("--out").arg(out).current_dir(WORKSPACE);
    command.output().expect("it runs")
}

/// candle-nn as published.
fn source() -> PathBuf {
    let metadata = MetadataCommand::new()
        .manifest_path(Path::new(WORKSPACE).join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", "host-tuple"].map(String::from))
        .exec()
        .expect("cargo metadata");
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "candle-nn").expect("a dependency");
    package.manifest_path.parent().expect("a folder").into()
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn refusal(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn every_layer_gets_a_span_where_it_is_made_and_enters_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("candle-nn");
    let done = trace(&[], &out);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout).expect("text");
    assert!(said.contains("[patch.crates-io]\ncandle-nn = { path = "), "{said}");

    let published = source();
    for (file, layers, made, tracked) in [
        ("linear.rs", 1, 3, 4),
        ("embedding.rs", 1, 2, 2),
        // Once with a mean and once without; a norm without a mean enters the span of the layer inside.
        ("layer_norm.rs", 1, 5, 7),
        ("group_norm.rs", 1, 1, 2),
        ("batch_norm.rs", 1, 5, 5),
        ("conv.rs", 4, 4, 12),
    ] {
        let (before, after) = (text(published.join("src").join(file)), text(out.join("src").join(file)));
        let count = |what: &str| after.matches(what).count();
        assert_eq!(count("span: tracing::Span,"), layers, "{file}");
        assert_eq!(count("let _entered = "), layers + usize::from(file == "layer_norm.rs"), "{file}");
        assert_eq!(count("crate::candlescope::"), made, "{file}");
        assert_eq!(count("#[track_caller]"), tracked, "{file}: functions that make a layer for somebody else");
        assert!(after.len() > before.len(), "{file}");
    }
    assert!(text(out.join("Cargo.toml")).ends_with("default-features = false\n"));
    assert!(text(out.join("src/lib.rs")).contains("\nmod candlescope;\n"));

    // Again, into the same folder: nothing changes, and cargo has nothing to build.
    let made = fs::metadata(out.join("src/linear.rs")).expect("a file").modified().expect("a time");
    assert!(trace(&[], &out).status.success());
    assert_eq!(fs::metadata(out.join("src/linear.rs")).expect("a file").modified().expect("a time"), made);
    // The result is no source.
    let again = refusal(trace(&["--source", out.to_str().expect("a name")], &folder.path().join("b")));
    assert!(again.contains("has its spans already"), "{again}");
}

#[test]
fn source_that_is_not_what_was_expected_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (changed, out) = (folder.path().join("changed"), folder.path().join("out"));
    copy(&source(), &changed);
    let with = |file: &str, from: &str, to: &str| {
        let path = changed.join(file);
        let before = text(path.clone());
        assert!(before.contains(from), "{file}: {from}");
        fs::write(&path, before.replace(from, to)).expect("written");
        let refused = refusal(trace(&["--source", changed.to_str().expect("a name")], &out));
        assert!(!out.exists(), "{file}");
        fs::write(&path, before).expect("written");
        refused
    };
    let refused = with("src/conv.rs", "pub struct Conv2d {", "pub struct Conv2D {");
    assert!(refused.contains("src/conv.rs") && refused.contains("pub struct Conv2d {"), "{refused}");
    let refused = with("src/linear.rs", "Self { weight, bias }", "Self { bias, weight }");
    assert!(refused.contains("\"Self { weight, bias }\" is not there"), "{refused}");
    let refused = with("Cargo.toml", "version = \"0.11.1\"\nbuild", "version = \"0.11.2\"\nbuild");
    assert!(refused.contains("candle-nn 0.11.2: the edits are for candle-nn 0.11.1"), "{refused}");
    let done = trace(&["--source", changed.to_str().expect("a name")], &out);
    assert!(done.status.success(), "as it was: {done:?}");
}

#[test]
fn a_folder_with_other_files_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("mine"), "").expect("written");
    let refused = refusal(trace(&[], folder.path()));
    assert!(refused.contains("has other files"), "{refused}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let refused = refusal(trace(&["--source", "/nowhere"], &folder.path().join("out")));
    assert!(refused.contains("name the folder of candle-nn's source"), "{refused}");
}
