//! The table of rules has every span of candle-transformers, and nothing else: a new version has to be read anew.

use cargo_metadata::MetadataCommand;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sdk/core/src/modules");

/// The version, and where its source is.
fn candle() -> (String, PathBuf) {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        // What other platforms need may not be there.
        .other_options(["--locked", "--filter-platform", "host-tuple"].map(String::from))
        .exec()
        .expect("cargo metadata");
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "candle-transformers");
    let package = package.expect("a dependency");
    let source = package.manifest_path.parent().expect("a folder").join("src");
    (package.version.to_string(), source.into_std_path_buf())
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Line and name of every span that is made in a source: `span!` in all its forms.
fn spans(source: &str) -> Vec<(usize, String)> {
    let mut spans = Vec::new();
    let mut start = 0;
    for (number, line) in (1..).zip(source.split_inclusive('\n')) {
        let code = line.split("//").next().unwrap_or_default();
        for (at, _) in code.match_indices("span!(") {
            // The name is the first text after it, on this line or one of the next.
            let name = source[start + at..].split('"').nth(1).expect("a name");
            spans.push((number, name.to_owned()));
        }
        assert!(!code.contains("instrument]") && !code.contains("instrument("), "a span by attribute: {line}");
        start += line.len();
    }
    spans
}

#[test]
fn the_table_is_of_the_version_in_use_and_complete() {
    let (version, folder) = candle();
    let table = Path::new(TABLE).join(format!("candle-transformers-{version}.txt"));
    let table = fs::read_to_string(&table).unwrap_or_else(|error| panic!("{}: {error}", table.display()));
    let listed: BTreeSet<String> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let mut made = BTreeSet::new();
    for file in files {
        let name = file.strip_prefix(&folder).expect("below").to_string_lossy().replace('\\', "/");
        let source = fs::read_to_string(&file).expect("a source");
        made.extend(spans(&source).into_iter().map(|(line, span)| format!("{name}:{line} {span}")));
    }
    assert!(made.len() > 200, "{} spans found", made.len());
    let missing: Vec<_> = made.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&made).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not in the table: {missing:#?}; not in candle: {gone:#?}");
}

#[test]
fn a_span_is_found_however_it_is_written() {
    let source = "fn f() {\n    let a = tracing::span!(tracing::Level::TRACE, \"a\");\n    // span!(\"no\")\n    let b = \
                  tracing::info_span!(\n        \"b\",\n        x = 1\n    );\n}\n";
    assert_eq!(spans(source), [(2, "a".to_owned()), (4, "b".to_owned())]);
}
