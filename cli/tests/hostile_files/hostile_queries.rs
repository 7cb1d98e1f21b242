//! Runs and questions that would take a query's time and memory.

use crate::bounded::bounded;
use std::fs;
use std::path::Path;
use tempfile::tempdir;

/// Megabytes that a query of a small run may take; the engine's own pages are among them.
const MB: u64 = 400;
const SECONDS: u64 = 60;

/// A run of an earlier version with a value of so many bytes in its environment.
fn run(dir: &Path, bytes: usize) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests/fixtures/schema-v1");
    for table in ["", "spans", "steps", "requests", "samples"] {
        fs::create_dir_all(dir.join(table)).unwrap();
        for entry in
            fs::read_dir(from.join(table)).into_iter().flatten().flatten().filter(|entry| entry.path().is_file())
        {
            fs::copy(entry.path(), dir.join(table).join(entry.file_name())).unwrap();
        }
    }
    let path = dir.join("run.json");
    let mut manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    manifest["environment"]["long"] = "x y ".repeat(bytes / 4).into();
    fs::write(path, manifest.to_string()).unwrap();
}

#[test]
fn a_long_text_is_shown_in_time_that_grows_with_its_length() {
    let dir = tempdir().unwrap();
    run(dir.path(), 3_900_000);
    let run = dir.path().to_str().unwrap();
    let table = bounded(&["query", "SELECT * FROM runs", run], MB, SECONDS);
    // The cell is folded, so that its last words stand apart.
    assert!(table.code == Some(0) && table.out.len() < 1_000_000 && table.out.contains('…'), "{}", table.err);
    for format in ["csv", "json"] {
        let whole = bounded(&["query", "SELECT * FROM runs", run, "--format", format], MB, SECONDS);
        assert!(whole.code == Some(0) && whole.out.len() > 3_900_000, "{format}: {}", whole.err);
    }
}

#[test]
fn many_rows_are_shown_in_bounded_memory() {
    let dir = tempdir().unwrap();
    run(dir.path(), 8);
    let sql = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100000) SELECT x AS a, x AS b, x AS c, \
               x AS d, x AS e, x AS f, x AS g, x AS h FROM n";
    let table = bounded(&["query", sql, dir.path().to_str().unwrap(), "--limit", "0"], MB, SECONDS);
    assert_eq!((table.code, table.out.lines().last()), (Some(0), Some("(100000 rows)")), "{}", table.err);
}

#[test]
fn a_question_without_end_ends() {
    let dir = tempdir().unwrap();
    run(dir.path(), 8);
    let run = dir.path().to_str().unwrap();
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)";
    let mut command = crate::common::candlescope();
    command
        .args(["query", &format!("{endless} SELECT max(x) FROM n"), run])
        .env("CANDLESCOPE_LIMITS", "query-seconds=2");
    let ended = crate::bounded::within(command, MB, SECONDS);
    assert!(ended.code == Some(1) && ended.err.contains("more than 2 seconds of a query"), "{}", ended.err);
    for (sql, said) in [
        ("SELECT length(printf('%999999999d', 1))".to_string(), "64 MiB"),
        (format!("{endless} SELECT median(x) FROM n"), "query-bytes"),
        (format!("{endless} SELECT x FROM n"), "query-bytes"),
    ] {
        let mut command = crate::common::candlescope();
        command.args(["query", &sql, run, "--limit", "0"]).env("CANDLESCOPE_LIMITS", "query-bytes=67108864");
        // A list that grows has a copy of itself for a moment.
        let ended = crate::bounded::within(command, MB, 120);
        assert!(ended.code == Some(1) && ended.err.contains(said), "{sql}: {}", ended.err);
    }
}
