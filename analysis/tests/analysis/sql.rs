//! SQL over runs: what docs/sql.md promises.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_reader::ReadLimits;
use candlescope_sql::{Answer, QueryError, Sources, SqlValue, query};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/schema-v1");

fn sources() -> Sources {
    Sources::open([FIXTURE], &ReadLimits::default()).unwrap()
}

fn ask(sql: &str) -> Answer {
    query(sql, &sources(), &ReadLimits::default(), 0).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn fails(sql: &str) -> String {
    query(sql, &sources(), &ReadLimits::default(), 0).expect_err(sql).to_string()
}

fn int(answer: &Answer) -> i64 {
    match answer.rows[0][0] {
        SqlValue::Int(value) => value,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn every_table_has_the_rows_of_the_run() {
    let sources = sources();
    let run = &sources.runs()[0];
    for kind in candlescope_schema::RecordKind::ALL {
        let rows = int(&ask(&format!("SELECT count(*) FROM {}", kind.table())));
        assert_eq!(rows as u64, run.rows(kind), "{}", kind.table());
        // Every column can be read, those that this old run lacks as null.
        ask(&format!("SELECT * FROM {} LIMIT 3", kind.table()));
    }
    assert!(run.rows(candlescope_schema::RecordKind::Span) > 0);
    assert_eq!(ask("SELECT run, complete, model ->> 'name' FROM runs").rows.len(), 1);
    let text = ask("SELECT DISTINCT run FROM spans");
    assert_eq!(text.rows, [[SqlValue::Text(FIXTURE.to_string())]]);
}

#[test]
fn the_views_leave_the_warm_up_out_and_count_nothing_twice() {
    let all = int(&ask("SELECT count(*) FROM steps"));
    let measured = int(&ask("SELECT count(*) FROM measured_steps"));
    let warmup =
        int(&ask("SELECT count(*) FROM steps WHERE (run, step) NOT IN (SELECT run, step FROM measured_steps)"));
    assert!(measured > 0 && warmup > 0 && measured + warmup == all, "{measured} + {warmup} of {all}");
    // A column that only a condition in a view reads is loaded as well.
    let direct = int(&ask(
        "SELECT count(*) FROM spans WHERE step IN (SELECT step FROM steps WHERE request IS NULL OR request > \
         (SELECT asked FROM runs))",
    ));
    assert_eq!(int(&ask("SELECT count(*) FROM measured_spans")), direct);
    let slow = ask("SELECT operator, count(*) AS calls FROM measured_spans GROUP BY operator ORDER BY calls DESC");
    assert!(slow.rows.len() > 2 && slow.columns == ["operator", "calls"]);
    assert!(slow.rows.iter().all(|row| matches!(&row[0], SqlValue::Text(path) if !path.contains('['))), "{slow:?}");
}

#[test]
fn functions_are_those_of_duckdb() {
    let answer =
        ask("WITH v (x) AS (VALUES (1), (2), (10), (NULL)) SELECT median(x), quantile_cont(x, 1.0), stddev_samp(x), \
         greatest(1, 3, 2), least(2, NULL, 1.5), starts_with('abc', 'ab'), operator_of('decode/block[12]/x[1]', NULL), \
         operator_of('decode[3]/y', 'model.layers.7.mlp') FROM v");
    let SqlValue::Float(deviation) = answer.rows[0][2] else { panic!("{answer:?}") };
    assert!((deviation - 4.932_882_862_316_247).abs() < 1e-12);
    let rest: Vec<SqlValue> =
        answer.rows[0].iter().enumerate().filter(|(at, _)| *at != 2).map(|(_, v)| v.clone()).collect();
    assert_eq!(
        rest,
        [
            SqlValue::Float(2.0),
            SqlValue::Float(10.0),
            SqlValue::Int(3),
            SqlValue::Float(1.5),
            SqlValue::Int(1),
            SqlValue::Text("decode/block/x".into()),
            SqlValue::Text("decode/model.layers.*.mlp".into()),
        ]
    );
    assert_eq!(ask("SELECT median(host_dur_ns) FROM steps WHERE step < 0").rows, [[SqlValue::Null]]);
}

#[test]
fn queries_only_read() {
    for sql in [
        "DELETE FROM runs",
        "DELETE FROM spans",
        "INSERT INTO runs (run) VALUES ('a')",
        "DROP VIEW spans",
        "ATTACH '/tmp/candlescope-attached.db' AS a",
        "PRAGMA writable_schema = 1",
        "VACUUM INTO '/tmp/candlescope-vacuum.db'",
        "CREATE TABLE a (b)",
    ] {
        let error = fails(sql);
        assert!(
            error.contains("queries only read") || error.contains("a single SELECT") || error.contains("is a view"),
            "{sql}: {error}"
        );
    }
    assert!(!std::path::Path::new("/tmp/candlescope-attached.db").exists());
    assert!(fails("SELECT load_extension('x')").contains("queries only read"));
    assert!(matches!(query("SELECT 1; SELECT 2", &sources(), &ReadLimits::default(), 0), Err(QueryError::NotOne)));
    assert!(matches!(query("", &sources(), &ReadLimits::default(), 0), Err(QueryError::NotOne)));
}

#[test]
fn mistakes_say_what_there_is() {
    let error = fails("SELECT * FROM span");
    assert!(
        error.contains("no such table: span") && error.contains("measured_steps") && error.contains("spans"),
        "{error}"
    );
    assert!(fails("SELECT host_dur FROM steps").contains("docs/run-format.md"));
    assert!(fails("SELECT frobnicate(1)").contains("functions"));
    assert!(fails("SELEC 1").contains("syntax error"));
    let none = tempfile::tempdir().unwrap();
    let error = Sources::open([none.path()], &ReadLimits::default()).unwrap_err().to_string();
    assert!(error.contains("neither a run nor a study"), "{error}");
}

#[test]
fn a_limit_is_told_and_names_are_distinct() {
    let answer = query("SELECT step, step FROM steps", &sources(), &ReadLimits::default(), 2).unwrap();
    assert_eq!((answer.rows.len(), answer.truncated, answer.columns), (2, true, vec!["step".into(), "step_2".into()]));
    let answer = query("SELECT 1", &sources(), &ReadLimits::default(), 1).unwrap();
    assert!(!answer.truncated);
}

#[test]
fn a_folder_of_runs_is_one_data_set_and_damage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::on_gpu());
    for name in ["a", "deep/er/b"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
        write_run(&dir.path().join(name), &batch, &manifest, 100_000);
    }
    let sources = Sources::open([dir.path(), &dir.path().join("a")], &ReadLimits::default()).unwrap();
    assert_eq!(sources.runs().len(), 2, "named twice, counted once");
    let answer = query("SELECT count(DISTINCT run), count(*) FROM spans", &sources, &ReadLimits::default(), 0).unwrap();
    let spans = batch.spans.len() as i64;
    assert_eq!(answer.rows, [[SqlValue::Int(2), SqlValue::Int(2 * spans)]]);
    assert!(answer.findings().is_empty());

    // A page that is overwritten after the run was opened.
    let segment = sources.runs()[0].segments().iter().find(|s| s.kind == candlescope_schema::RecordKind::Span).unwrap();
    let mut bytes = std::fs::read(&segment.path).unwrap();
    let middle = bytes.len() / 2;
    bytes[4..middle].fill(0xAA);
    std::fs::write(&segment.path, bytes).unwrap();
    let answer = query("SELECT count(host_dur_ns + seq) FROM spans", &sources, &ReadLimits::default(), 0).unwrap();
    assert!(!answer.findings().is_empty(), "{answer:?}");
}

fn within(limits: &ReadLimits, sql: &str, sources: &Sources) -> String {
    query(sql, sources, limits, 0).expect_err(sql).to_string()
}

#[test]
fn a_query_has_limits_on_time_memory_and_rows() {
    let limit = |text: &str| ReadLimits::default().parse(text).unwrap();
    let (sources, endless) = (sources(), "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)");
    let error = within(&limit("query-seconds=1"), &format!("{endless} SELECT max(x) FROM n"), &sources);
    assert!(error.contains("more than 1 seconds") && error.contains("CANDLESCOPE_LIMITS=query-seconds=4"), "{error}");
    // A text that a function makes, values that one holds, and an answer.
    let error = fails("SELECT length(printf('%999999999d', 1))");
    assert!(error.contains("too big") && error.contains("64 MiB"), "{error}");
    let little = limit("query-bytes=1000000");
    for holds in ["median(x)", "quantile_cont(x, 0.9)", "stddev_samp(x)"] {
        let error = within(&little, &format!("{endless} SELECT {holds} FROM (SELECT x FROM n LIMIT 200000)"), &sources);
        assert!(error.contains("limit `query-bytes`"), "{holds}: {error}");
    }
    let error = within(&little, &format!("{endless} SELECT x FROM n LIMIT 100000"), &sources);
    assert!(error.contains("limit `query-bytes`"), "{error}");
    let error = within(&limit("query-rows=3"), "SELECT count(*) FROM spans", &sources);
    assert!(error.contains("more than 3 rows that a query loads"), "{error}");
    // What many groups hold one after another is not added up.
    let groups = format!(
        "{endless} SELECT count(m) FROM (SELECT median(x) AS m FROM (SELECT x FROM n LIMIT 300000) GROUP BY x / 1000)"
    );
    assert!(query(&groups, &sources, &little, 0).is_ok());
}

/// A study's table with so many columns and equal rows.
fn study(dir: &std::path::Path, columns: usize, rows: usize) {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    let column = |_| std::sync::Arc::new(Int64Array::from(vec![7; rows])) as ArrayRef;
    let batch = RecordBatch::try_from_iter((0..columns).map(|n| (format!("c{n}"), column(n)))).unwrap();
    std::fs::create_dir_all(dir).unwrap();
    let file = std::fs::File::create(dir.join("results.parquet")).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    (0..4).for_each(|_| writer.write(&batch).unwrap());
    writer.close().unwrap();
}

#[test]
fn studies_are_held_against_the_limits_of_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (wide, long) = (dir.path().join("wide"), dir.path().join("long"));
    study(&wide, 2500, 1);
    let open = |limits: &ReadLimits| Sources::open([&wide], limits).unwrap();
    let defaults = ReadLimits::default();
    let error = within(&defaults, "SELECT count(*) FROM results", &open(&defaults));
    assert!(error.contains("2501 columns together") && !error.contains("TMPDIR"), "{error}");
    // What reads no study is answered all the same, and the limit on columns is the one that was given.
    assert_eq!(query("SELECT count(*) FROM runs", &open(&defaults), &defaults, 0).unwrap().rows.len(), 1);
    let few = defaults.clone().parse("columns=100").unwrap();
    let answer = query("SELECT count(*) FROM results", &open(&few), &few, 0).unwrap();
    assert!(answer.findings()[0].message().contains("limit `columns` of 100"), "{:?}", answer.findings());

    study(&long, 1, 1_500_000);
    let answer =
        query("SELECT count(*) FROM results", &Sources::open([&long], &defaults).unwrap(), &defaults, 0).unwrap();
    assert_eq!((int(&answer), answer.findings().len()), (0, 1), "six million rows in a few kilobytes");
    assert!(answer.findings()[0].message().contains("rows-per-byte"), "{:?}", answer.findings());
}
