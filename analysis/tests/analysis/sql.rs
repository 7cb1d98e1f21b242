//! SQL over runs: what docs/sql.md promises.

use crate::common::scenario::{Scenario, make};
use crate::common::{T0, kernel, manifest, step, write_run};
use candlescope_reader::ReadLimits;
use candlescope_schema::{HostNs, SampleRecord, metric};
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

/// Tokens of a batch come out together: between two of a sequence lies what a step takes.
#[test]
fn time_per_token_of_a_batch_is_that_of_a_sequence() {
    let made = |n: u64, batch: Option<u32>, tokens: u64| {
        candlescope_testkit::with(crate::common::request(n, 0, 3_200_000_000), |r| {
            (r.batch, r.output_tokens, r.ttft_ns) = (batch, Some(tokens), Some(100_000_000));
        })
    };
    let requests =
        vec![made(1, Some(4), 128), made(2, Some(4), 4), made(3, None, 32), made(4, None, 1), made(5, Some(4), 130)];
    let mut batch = candlescope_schema::Batch::default();
    batch.requests = requests;
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 100);
    let analysis = candlescope_figures::Analysis::of(&candlescope_reader::Run::open(dir.path()).unwrap());
    let told: Vec<SqlValue> = analysis
        .latency
        .requests
        .iter()
        .map(|request| request.tpot_ns.map_or(SqlValue::Null, SqlValue::Float))
        .collect();
    assert_eq!(told[..3], [SqlValue::Float(1e8), SqlValue::Null, SqlValue::Float(1e8)]);
    let sources = Sources::open([dir.path()], &ReadLimits::default()).unwrap();
    let sql = "SELECT tpot_ns FROM request_latency ORDER BY request";
    let found = query(sql, &sources, &ReadLimits::default(), 0).unwrap();
    assert_eq!(found.rows.concat(), told);
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
            SqlValue::Bool(true),
            SqlValue::Text("decode/block/x".into()),
            SqlValue::Text("decode/model.layers.*.mlp".into()),
        ]
    );
    assert_eq!(ask("SELECT median(host_dur_ns) FROM steps WHERE step < 0").rows, [[SqlValue::Null]]);
}

#[test]
fn figures_are_exact_where_the_engines_own_are_not() {
    let sql = "SELECT median(x) AS m, sum(y) AS s, sum(y) / 1e18 AS f FROM (VALUES (1, 9000000000000000000), (2, \
               9000000000000000000)) AS t (x, y)";
    assert_eq!(ask(sql).rows, [[SqlValue::Float(1.5), SqlValue::Float(1.8e19), SqlValue::Float(18.0)]]);
    assert_eq!(
        ask("SELECT sum(x), sum(x) / count(*) FROM (VALUES (1), (2)) AS t (x)").rows[0],
        [SqlValue::Int(3), SqlValue::Float(1.5)]
    );
    // Intervals that overlap, touch and lie apart; one that is empty.
    let merged = "SELECT merged_ns(s, e) FROM (VALUES (0, 10), (5, 12), (12, 13), (20, 25), (30, 30)) AS t (s, e)";
    assert_eq!(ask(merged).rows, [[SqlValue::Int(18)]]);
    let interval =
        "SELECT median_low(x), median_high(x) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS t (x)";
    assert_eq!(ask(interval).rows, [[SqlValue::Float(2.0), SqlValue::Float(8.0)]]);
    assert_eq!(ask("SELECT median_low(x) FROM (VALUES (1), (2)) AS t (x)").rows, [[SqlValue::Null]]);
}

#[test]
fn pairs_are_looked_up_in_queries() {
    let all = int(&ask("SELECT count(*) FROM steps"));
    let odd = "SELECT run, step FROM steps WHERE step % 2 = 1";
    let (some, rest) = (
        int(&ask(&format!("SELECT count(*) FROM steps WHERE (run, step) IN ({odd})"))),
        int(&ask(&format!("SELECT count(*) FROM steps WHERE (run, step) NOT IN ({odd}) OR phase IS NULL"))),
    );
    assert!(some > 0 && rest > 0 && some + rest == all, "{some} + {rest} of {all}");
    // A column that a join shares, within pairs and beside them.
    let joined = format!("SELECT count(*) FROM steps JOIN runs USING (run) WHERE asked > 0 AND (run, step) IN ({odd})");
    assert_eq!(int(&ask(&joined)), some);
    // A pair with a null is in no list, and not outside of one.
    let none = "SELECT count(*) FROM steps WHERE (run, request) NOT IN (SELECT run, step FROM steps WHERE step < 0)";
    assert_eq!(int(&ask(none)), int(&ask("SELECT count(*) FROM steps WHERE request IS NOT NULL")));
}

/// What another engine answers to the same text.
#[test]
fn quotients_and_pairs_are_those_of_other_engines() {
    let one = |sql: &str| ask(sql).rows[0][0].clone();
    assert_eq!(one("SELECT 7 / 2"), SqlValue::Float(3.5));
    assert_eq!(one("SELECT 1 / 0"), SqlValue::Null);
    assert_eq!(one("SELECT sum(a) / sum(b) FROM (VALUES (1, 3), (0, 4)) AS t (a, b)"), SqlValue::Float(1.0 / 7.0));
    assert_eq!(one("SELECT 12 / 2 / 3 * 2"), SqlValue::Float(4.0));
    // A pair with a null may be any: SQL does not say that another is not among those with it.
    let inside = |list: &str, condition: &str| {
        int(&ask(&format!(
            "WITH i (a, b) AS (VALUES {list}), t (a, b) AS (VALUES (1, 1), (1, 2), (2, 2), (NULL, 1)) SELECT count(*) FROM t WHERE {condition}"
        )))
    };
    assert_eq!(inside("(1, 1)", "(a, b) IN (SELECT a, b FROM i)"), 1);
    assert_eq!(inside("(1, 1)", "(a, b) NOT IN (SELECT a, b FROM i)"), 2);
    assert_eq!(inside("(1, 1)", "NOT (a, b) IN (SELECT a, b FROM i)"), 2);
    assert_eq!(inside("(1, 1)", "NOT ((a, b) IN (SELECT a, b FROM i)) AND a = 1"), 1);
    assert_eq!(inside("(1, 1), (2, NULL)", "(a, b) NOT IN (SELECT a, b FROM i)"), 1, "(2, 2) may be in it");
    assert_eq!(inside("(1, 1), (5, NULL)", "(a, b) NOT IN (SELECT a, b FROM i)"), 2);
    ask("EXPLAIN SELECT count(*) FROM steps WHERE (run, step) IN (SELECT run, step FROM measured_steps)");
}

#[test]
fn columns_without_a_name_are_called_as_they_were_written() {
    let answer = ask("SELECT count(*), median(host_dur_ns), (SELECT count(*) FROM spans), count(*), 1 + 1 FROM steps");
    let expected = ["count(*)", "median(host_dur_ns)", "(SELECT count(*) FROM spans)", "count(*)_2", "1 + 1"];
    assert_eq!(answer.columns, expected);
    let ordered = ask("SELECT phase, count(*) FROM steps GROUP BY phase ORDER BY count(*) DESC, phase");
    assert!(ordered.rows.len() > 1 && ordered.columns == ["phase", "count(*)"]);
}

/// As deep as it is long: a stack that is too small would end the program.
#[test]
fn a_long_query_is_answered_or_refused() {
    let chain = |n: usize| vec!["1"; n].join(" + ");
    assert_eq!(int(&ask(&format!("SELECT {}", chain(900)))), 900);
    assert!(fails(&format!("SELECT {}", chain(20_000))).contains("more than 2000 operators"));
    let either = |n: usize| (0..n).map(|step| format!("step = {step}")).collect::<Vec<_>>().join(" OR ");
    ask(&format!("SELECT count(*) FROM steps WHERE {}", either(400)));
    let list = (0..20_000).map(|step| step.to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(
        int(&ask(&format!("SELECT count(*) FROM steps WHERE step IN ({list})"))),
        int(&ask("SELECT count(*) FROM steps"))
    );
    let unions = vec!["SELECT 1"; 300].join(" UNION ALL ");
    let joins =
        format!("SELECT count(*) FROM steps{}", (0..30).map(|n| format!(", steps AS s{n}")).collect::<String>());
    for long in [unions, joins, format!("SELECT 1{}", "::BIGINT".repeat(900))] {
        let _ = query(&long, &sources(), &ReadLimits::default().with(candlescope_reader::Limit::QuerySeconds, 1), 0);
    }
}

/// Paths and texts of somebody's choice.
#[test]
fn scripts_for_other_engines_mean_these_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("a[1]*;--");
    std::fs::create_dir(&odd).unwrap();
    for entry in std::fs::read_dir(FIXTURE).unwrap().flatten() {
        let to = odd.join(entry.file_name());
        match entry.path().is_dir() {
            true => {
                std::fs::create_dir(&to).unwrap();
                for file in std::fs::read_dir(entry.path()).unwrap().flatten() {
                    std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
                }
            }
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
    let path = odd.join("run.json");
    let mut manifest: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    manifest["model"]["name"] = "x;\nDROP TABLE spans".into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let limits = ReadLimits::default();
    let slash = format!("{}/", odd.display());
    let sources = Sources::open([&slash], &limits).unwrap();
    let run = query("SELECT DISTINCT run FROM spans", &sources, &limits, 0).unwrap();
    assert_eq!(run.rows, [[SqlValue::Text(odd.display().to_string())]]);
    let duckdb = candlescope_sql::script(candlescope_sql::Engine::DuckDb, &sources, &limits);
    assert!(duckdb.contains("a[[]1][*];") && !duckdb.contains("//spans"), "{duckdb}");
    let spark = candlescope_sql::script(candlescope_sql::Engine::Spark, &sources, &limits);
    assert!(spark.contains(r"/a[\[]1][\*];--/spans/part-") && !spark.contains("/a[1]*;--/spans/part-"), "{spark}");
    assert!(spark.contains(r"'x;\nDROP TABLE spans' AS `model_name`") && !spark.contains("\nDROP"), "{spark}");
}

#[test]
fn queries_only_read() {
    for sql in [
        "DELETE FROM runs",
        "DELETE FROM spans",
        "INSERT INTO runs (run) VALUES ('a')",
        "DROP VIEW spans",
        "COPY spans TO '/tmp/candlescope-attached.db' STORED AS CSV",
        "CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/tmp/a.csv'",
        "SET datafusion.catalog.information_schema = true",
        "EXPLAIN DELETE FROM spans",
        "WITH a AS (SELECT 1) INSERT INTO runs SELECT * FROM a",
        "ATTACH '/tmp/candlescope-attached.db' AS a",
        "PRAGMA writable_schema = 1",
        "VACUUM INTO '/tmp/candlescope-vacuum.db'",
        "CREATE TABLE a (b)",
    ] {
        let error = fails(sql);
        assert!(error.contains("queries only read") || error.contains("Expected: "), "{sql}: {error}");
    }
    assert!(!std::path::Path::new("/tmp/candlescope-attached.db").exists());
    // No file is read but those that are asked.
    for sql in ["SELECT * FROM '/etc/passwd'", "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM \"a.parquet\""] {
        let error = fails(sql);
        assert!(error.contains("no table") || error.contains("table function"), "{sql}: {error}");
    }
    // How a query is run may be asked.
    assert!(!ask("EXPLAIN SELECT count(*) FROM spans").rows.is_empty());
    assert!(matches!(query("SELECT 1; SELECT 2", &sources(), &ReadLimits::default(), 0), Err(QueryError::NotOne)));
    assert!(matches!(query("", &sources(), &ReadLimits::default(), 0), Err(QueryError::NotOne)));
}

#[test]
fn mistakes_say_what_there_is() {
    let error = fails("SELECT * FROM span");
    assert!(
        error.contains("no table `span`") && error.contains("measured_steps") && error.contains("spans"),
        "{error}"
    );
    assert!(fails("SELECT host_dur FROM steps").contains("docs/run-format.md"));
    assert!(fails("SELECT frobnicate(1)").contains("functions"));
    assert!(fails("SELEC 1").contains("Expected: an SQL statement, found: SELEC"));
    let none = tempfile::tempdir().unwrap();
    let error = Sources::open([none.path()], &ReadLimits::default()).unwrap_err().to_string();
    assert!(error.contains("neither a run nor a study"), "{error}");
}

#[test]
fn a_limit_is_told_and_names_are_distinct() {
    let answer = query(
        "SELECT a.step, b.step FROM steps AS a JOIN steps AS b USING (run)",
        &sources(),
        &ReadLimits::default(),
        2,
    )
    .unwrap();
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
    // Files of another program, above one of them.
    std::fs::create_dir(dir.path().join("deep/samples")).unwrap();
    std::fs::write(dir.path().join("deep/samples/part-00000-8f1c2d.c000.snappy.parquet"), "PAR1").unwrap();
    let sources = Sources::open([dir.path(), &dir.path().join("a")], &ReadLimits::default()).unwrap();
    assert_eq!(sources.runs().len(), 2, "named twice, counted once");
    assert!(sources.left_out().is_empty(), "{:?}", sources.left_out());
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

/// Stretches by hand: kernels that overlap, touch and are alike, a step without recorded kernels, one of a kind that launches
/// none, steps without rows, and kernels of no step: at the end, and between others, where no rows are missing and where some are.
#[test]
fn the_time_line_of_a_device_says_when_it_was_busy_idle_or_not_known() {
    let mut batch = candlescope_schema::Batch::default();
    batch.steps = [(0, "decode", 0), (1, "decode", 100), (2, "decode", 200), (3, "sample", 300), (4, "decode", 350)]
        .into_iter()
        .chain([(7, "decode", 600)])
        .map(|(number, name, start)| step(number, name, start, if name == "sample" { 50 } else { 100 }))
        .collect();
    let of = |device, number, start, dur| {
        let mut kernel = kernel(device, start, dur);
        kernel.step = number;
        kernel
    };
    batch.kernels = vec![
        of("a", Some(0), 10, 10),
        of("a", Some(0), 15, 15),
        of("a", Some(0), 30, 10),
        of("a", Some(0), 60, 10),
        of("a", Some(2), 210, 20),
        of("a", None, 300, 10),
        of("a", Some(4), 360, 20),
        of("a", Some(7), 610, 10),
        of("a", Some(7), 610, 10),
        of("a", None, 650, 10),
        of("b", Some(0), 50, 5),
        of("b", Some(7), 630, 10),
        of("c", Some(4), 370, 10),
        of("c", None, 450, 10),
        of("c", None, 500, 10),
        of("c", Some(7), 640, 10),
        of("d", None, 500, 10),
        of("d", Some(7), 640, 10),
    ];
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 100);
    let limits = ReadLimits::default();
    let sources = Sources::open([dir.path()], &limits).unwrap();
    let sql = format!(
        "SELECT device, state, start_ns - {T0}, end_ns - {T0}, dur_ns, activities, first_step, last_step FROM device_timeline \
         ORDER BY device, start_ns"
    );
    let told = query(&sql, &sources, &limits, 0).unwrap();
    let word = |value: &SqlValue| match value {
        SqlValue::Int(n) => n.to_string(),
        SqlValue::Text(text) => text.clone(),
        _ => "–".to_string(),
    };
    let rows: Vec<String> = told.rows.iter().map(|row| row.iter().map(word).collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "a busy 10 40 30 3 0 0",
        "a idle 40 60 20 0 0 0",
        "a busy 60 70 10 1 0 0",
        "a unrecorded 70 210 140 0 0 2",
        "a busy 210 230 20 1 2 2",
        "a idle 230 300 70 0 2 –",
        "a busy 300 310 10 1 – –",
        "a idle 310 360 50 0 – 4",
        "a busy 360 380 20 1 4 4",
        "a unrecorded 380 610 230 0 4 7",
        "a busy 610 620 10 2 7 7",
        "a idle 620 650 30 0 7 –",
        "a busy 650 660 10 1 – –",
        "b busy 50 55 5 1 0 0",
        "b unrecorded 55 630 575 0 0 7",
        "b busy 630 640 10 1 7 7",
        "c busy 370 380 10 1 4 4",
        "c unrecorded 380 450 70 0 4 –",
        "c busy 450 460 10 1 – –",
        "c unrecorded 460 500 40 0 – –",
        "c busy 500 510 10 1 – –",
        "c unrecorded 510 640 130 0 – 7",
        "c busy 640 650 10 1 7 7",
        "d busy 500 510 10 1 – –",
        "d unrecorded 510 640 130 0 – 7",
        "d busy 640 650 10 1 7 7",
    ];
    assert_eq!(rows, expected);
}

/// A counter that is reset once: what it counted is what it counted before and after.
#[test]
fn the_accounts_of_a_device_are_held_against_its_counter_between_resets() {
    let mut batch = candlescope_schema::Batch::default();
    let sample = |at: i64, metric, value| SampleRecord::new(HostNs(T0 + at), "GPU-x", metric, value, "joules");
    let counted = [900.0, 950.0, 960.0, 10.0, 30.0].into_iter().zip(0..);
    batch.samples = counted.map(|(joules, at)| sample(at, metric::GPU_ENERGY, joules)).collect();
    let of = [
        (metric::ENERGY_OF_REQUESTS, 10.0),
        (metric::ENERGY_OF_OTHER_STEPS, 0.0),
        (metric::ENERGY_OF_IDLE, 10.0),
        (metric::ENERGY_UNATTRIBUTED, 60.0),
    ];
    batch.samples.extend(of.map(|(metric, joules)| sample(4, metric, joules)));
    // Another device that is only sampled.
    batch.samples.push(SampleRecord::new(HostNs(T0), "GPU-y", metric::GPU_ENERGY, 7.0, "joules"));
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 100);
    let limits = ReadLimits::default();
    let sources = Sources::open([dir.path()], &limits).unwrap();
    let told =
        query("SELECT device, accounted_joules, counted_joules FROM device_accounts", &sources, &limits, 0).unwrap();
    assert_eq!(told.rows, [[SqlValue::Text("GPU-x".into()), SqlValue::Float(80.0), SqlValue::Float(80.0)]]);
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
    // Functions that make a value of any size are not there; what others hold, and an answer, are counted.
    for makes in ["repeat('x', 999999999)", "lpad('x', 999999999)", "range(0, 999999999)", "array_repeat(1, 999999999)"]
    {
        assert!(fails(&format!("SELECT {makes}")).contains("functions"), "{makes}");
    }
    let (little, many) =
        (limit("query-bytes=20000000"), "SELECT row_number() OVER () AS x FROM spans AS a, spans AS b");
    for holds in ["median(x)", "quantile_cont(x, 0.9)", "median_low(x)"] {
        let error = within(&little, &format!("SELECT {holds} FROM ({many}) AS n"), &sources);
        assert!(error.contains("limit `query-bytes`"), "{holds}: {error}");
    }
    // Groups are put aside on disk where that helps: whether it does in time depends on when the threads come to it.
    match query(&format!("SELECT count(DISTINCT x) FROM ({many} LIMIT 2000000) AS n"), &sources, &little, 0) {
        Ok(answer) => assert_eq!(int(&answer), 2_000_000),
        Err(error) => assert!(error.to_string().contains("limit `query-bytes`"), "{error}"),
    }
    let error = within(&little, many, &sources);
    assert!(error.contains("limit `query-bytes`"), "{error}");
    // A sort puts aside on disk what it cannot hold, which has a limit of its own.
    let several = format!("({many} LIMIT 3000000)");
    let sorted = format!("SELECT x, y FROM (SELECT x, x * 7 % 1000003 AS y FROM {several} AS n) AS m ORDER BY y, x");
    let last = format!(
        "SELECT max(x * place) FROM (SELECT *, row_number() OVER (ORDER BY y, x) AS place FROM ({sorted}) AS s) AS p"
    );
    // Merging what lies on disk takes some memory as well: how much depends on when the threads come to it.
    let some = limit("query-bytes=100000000");
    assert!(int(&query(&last, &sources, &some, 0).unwrap()) > 1_000_000);
    let error = within(&some.clone().parse("query-spill=1000000").unwrap(), &last, &sources);
    assert!(error.contains("limit `query-spill`"), "{error}");
    // What a join holds in a table of hashes cannot be put aside: its sides are sorted then.
    let some_of = format!("({many} LIMIT 2000000)");
    let joined = format!("SELECT count(*) FROM {some_of} AS a JOIN {some_of} AS b ON a.x = b.x");
    assert_eq!(int(&query(&joined, &sources, &little, 0).unwrap()), 2_000_000);
    let error = within(&limit("query-rows=3"), "SELECT count(seq) FROM spans", &sources);
    assert!(error.contains("more than 3 rows that a query reads"), "{error}");
    // What many groups hold one after another is not added up.
    let groups = "SELECT count(m) FROM (SELECT step, median(host_dur_ns) AS m FROM spans GROUP BY step) AS g";
    assert!(query(groups, &sources, &limit("query-bytes=4000000"), 0).is_ok());
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
    let wide_one = query("SELECT count(*), sum(c2499) FROM results", &open(&defaults), &defaults, 0).unwrap();
    assert_eq!(wide_one.rows, [[SqlValue::Int(4), SqlValue::Int(28)]]);
    // The limit on columns is the one that was given.
    let few = defaults.clone().parse("columns=100").unwrap();
    let answer = query("SELECT count(*) FROM results", &open(&few), &few, 0).unwrap();
    assert!(answer.findings()[0].message().contains("limit `columns` of 100"), "{:?}", answer.findings());

    study(&long, 1, 1_500_000);
    let answer =
        query("SELECT count(*) FROM results", &Sources::open([&long], &defaults).unwrap(), &defaults, 0).unwrap();
    assert_eq!((int(&answer), answer.findings().len()), (0, 1), "six million rows in a few kilobytes");
    assert!(answer.findings()[0].message().contains("rows-per-byte"), "{:?}", answer.findings());
}

/// Sixteen times as many rows for each byte are plausible, whoever reads them: values of samples repeat.
#[test]
fn samples_may_have_many_rows_for_each_byte() {
    use arrow_array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
    use candlescope_reader::Limit;
    use candlescope_schema::run::{Column, ColumnType, columns};
    use std::sync::Arc;
    const ROWS: usize = 300_000;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("samples")).unwrap();
    let column = |of: &Column| -> (&'static str, ArrayRef) {
        let values: ArrayRef = match of.kind {
            ColumnType::Int64 => Arc::new(Int64Array::from(vec![7; ROWS])),
            ColumnType::Int32 => Arc::new(Int32Array::from(vec![0; ROWS])),
            ColumnType::Float64 => Arc::new(Float64Array::from(vec![0.5; ROWS])),
            ColumnType::Utf8 => Arc::new(StringArray::from(vec!["x"; ROWS])),
        };
        (of.name, values)
    };
    let of_samples = columns(candlescope_schema::RecordKind::Sample);
    let batch = RecordBatch::try_from_iter(of_samples.iter().map(column)).unwrap();
    let path = dir.path().join("samples/part-00000.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let few_pages = parquet::file::properties::WriterProperties::builder().set_data_page_row_count_limit(ROWS);
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(few_pages.build())).unwrap();
    (0..4).for_each(|_| writer.write(&batch).unwrap());
    writer.close().unwrap();
    // A million rows are free.
    let per_byte = (4 * ROWS as u64 - 1_000_000) / std::fs::metadata(&path).unwrap().len();
    assert!(per_byte > 8, "{per_byte}");
    let limits = ReadLimits::default().with(Limit::RowsPerByte, per_byte / 4);
    let sources = Sources::open([dir.path()], &limits).unwrap();
    let answer = query("SELECT count(value) FROM samples", &sources, &limits, 0).unwrap();
    assert!(answer.findings().is_empty(), "{:?}", answer.findings());
    assert_eq!(int(&answer), 4 * ROWS as i64);
}
