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
    // The text is held to the limit, which is said.
    let said = ["bytes of one text, more than the limit `text-bytes`", "1 values are cut", "text-bytes=3900000"];
    assert!(said.iter().all(|said| table.err.contains(said)), "{}", table.err);
    for format in ["table", "csv", "json"] {
        let mut command = crate::common::candlescope();
        command.args(["query", "SELECT * FROM runs", run, "--format", format]);
        command.env("CANDLESCOPE_LIMITS", "text-bytes=4000000");
        let whole = crate::bounded::within(command, MB, SECONDS);
        assert!(whole.code == Some(0) && whole.err.is_empty(), "{format}: {}", whole.err);
        let is_whole = whole.out.len() > 3_900_000;
        assert_eq!(is_whole, format != "table", "{format}: {} bytes", whole.out.len());
    }
}

/// One call of a function is one piece of work of the engine, which can be stopped between pieces.
#[test]
fn a_call_without_end_ends() {
    let dir = tempdir().unwrap();
    run(dir.path(), 1_000_000);
    let run = dir.path().to_str().unwrap();
    let call = |sql: &str, limits: &str| {
        let mut command = crate::common::candlescope();
        command.args(["query", sql, run]).env("CANDLESCOPE_LIMITS", limits);
        crate::bounded::within(command, MB, SECONDS)
    };
    let ended =
        call("SELECT levenshtein(environment, environment || 'x') FROM runs", "query-seconds=1,query-bytes=67108864");
    let said = [
        "more than 1 seconds of a query",
        "`query-seconds`",
        "ended from outside: the engine does not stop within a call",
    ];
    assert!(ended.code == Some(1) && said.iter().all(|said| ended.err.contains(said)), "{}", ended.err);
    // A text of a million bytes in place of each of its own, which the engine does not count.
    for makes in ["replace(environment, ' ', environment)", "regexp_replace(environment, ' ', environment, 'g')"] {
        let ended = call(&format!("SELECT length({makes}) FROM runs"), "query-bytes=67108864,text-bytes=1000000");
        assert!(ended.code == Some(1) && ended.err.contains("query-bytes"), "{makes}: {}", ended.err);
    }
}

#[test]
fn many_rows_are_shown_in_bounded_memory() {
    let dir = tempdir().unwrap();
    run(dir.path(), 8);
    let sql = "WITH n AS (SELECT row_number() OVER () AS x FROM spans AS a, spans AS b LIMIT 100000) SELECT x AS a, x AS b, x AS c, \
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
    for question in [
        format!("{endless} SELECT max(x) FROM n"),
        "SELECT count(*) FROM spans a, spans b, spans c, spans d".to_string(),
    ] {
        let mut command = crate::common::candlescope();
        command.args(["query", &question, run]).env("CANDLESCOPE_LIMITS", "query-seconds=2");
        let ended = crate::bounded::within(command, MB, SECONDS);
        assert!(
            ended.code == Some(1) && ended.err.contains("more than 2 seconds of a query"),
            "{question}: {}",
            ended.err
        );
    }
    let many = "SELECT row_number() OVER () AS x FROM spans AS a, spans AS b, spans AS c";
    for sql in [format!("SELECT median(x) FROM ({many}) AS n"), many.to_string()] {
        let mut command = crate::common::candlescope();
        command.args(["query", &sql, run, "--limit", "0"]).env("CANDLESCOPE_LIMITS", "query-bytes=67108864");
        // A list that grows has a copy of itself for a moment.
        let ended = crate::bounded::within(command, MB, 120);
        assert!(ended.code == Some(1) && ended.err.contains("query-bytes"), "{sql}: {}", ended.err);
    }
    // Nesting without end is told, and ends nothing.
    let deep = format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    let ended = crate::bounded::bounded(&["query", &deep, run], MB, SECONDS);
    assert!(ended.code == Some(1) && ended.err.contains("cannot be run"), "{}", ended.err);
}
