//! Every view, every query of the documents and of findings, and the aggregates of our own give the same rows here, in DuckDB
//! and in Spark SQL.
#![allow(missing_docs, unreachable_pub, reason = "a test")]
#[path = "engines/aggregate_queries.rs"]
mod aggregate_queries;
mod common;
#[path = "engines/page_queries.rs"]
mod page_queries;
use aggregate_queries::aggregate_queries;
use common::*;
use page_queries::{Of, PageQuery, page_queries};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;

type Row = Vec<Value>;

/// A row such that most equal rows of different engines are equal: yes and no as they have them, numbers to eight digits.
fn written(row: &Row) -> String {
    let value = |value: &Value| match value {
        Value::Number(n) => format!("{:.7e}", n.as_f64().unwrap()),
        other => other.to_string(),
    };
    row.iter().map(value).collect::<Vec<_>>().join(" | ")
}

/// Engines round in different orders: what is the same to eight digits may be written with another last one.
fn alike(a: &Row, b: &Row, within: f64) -> bool {
    let same = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= within * a.abs().max(b.abs()),
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Rows with their texts, which are made once: the rows of a query are held against those of two engines.
fn with_texts(rows: Vec<Row>) -> Vec<(String, Row)> {
    rows.into_iter().map(|row| (written(&row), row)).collect()
}

/// Those of either side that have none like them on the other.
fn differences(ours: &[(String, Row)], theirs: Vec<Row>, within: f64) -> (Vec<String>, Vec<String>) {
    let mut by_text: std::collections::HashMap<String, Vec<Row>> = std::collections::HashMap::new();
    theirs.into_iter().for_each(|row| by_text.entry(written(&row)).or_default().push(row));
    let mut left: Vec<&(String, Row)> = Vec::new();
    for row in ours {
        if by_text.get_mut(&row.0).and_then(Vec::pop).is_none() {
            left.push(row);
        }
    }
    let mut others: Vec<Row> = by_text.into_values().flatten().collect();
    left.retain(|(_, row)| match others.iter().position(|other| alike(row, other, within)) {
        Some(at) => {
            others.swap_remove(at);
            false
        }
        None => true,
    });
    (left.iter().map(|(text, _)| text.clone()).collect(), others.iter().map(written).collect())
}

/// Asks all three, and returns how many rows each query has.
fn compare(runs: &[&Path], queries: &Map<String, Value>) -> Vec<(String, usize)> {
    let paths: Vec<&str> = runs.iter().map(|run| run.to_str().unwrap()).collect();
    let Some(theirs) = in_other_engines(&paths, queries) else { return Vec::new() };
    let mut counts = Vec::new();
    for (name, sql) in queries {
        let sql = sql.as_str().unwrap();
        // DataFusion, here and in Sail, takes the place between two values in whole millionths of their distance.
        let within = if sql.contains("percentile_cont") { 2e-6 } else { 2e-8 };
        let ours = json(&ok(&[&["query", sql], &paths[..], &["--json", "--limit", "0"]].concat()));
        let columns: Vec<&str> =
            ours["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let of = |of: &Value| -> Row { columns.iter().map(|name| of[*name].clone()).collect() };
        let rows = with_texts(ours["rows"].as_array().unwrap().iter().map(of).collect());
        for engine in ["duckdb", "spark"] {
            let answer = &theirs[engine][name];
            assert!(answer["error"].is_null(), "{name} in {engine}: {}\n{sql}", answer["error"]);
            let found: Vec<Row> =
                answer["rows"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().clone()).collect();
            assert_eq!(answer["columns"].as_array().unwrap().len(), columns.len(), "{name} in {engine}");
            let (here, there) = differences(&rows, found, within);
            assert!(
                here.is_empty() && there.is_empty(),
                "{name} in {engine}: only here {:#?}, only there {:#?}\n{sql}",
                &here[..here.len().min(3)],
                &there[..there.len().min(3)]
            );
        }
        counts.push((name.clone(), rows.len()));
    }
    counts
}

/// Findings of a run, their queries by code.
fn findings(run: &Path) -> Map<String, Value> {
    let analysis = json(&ok(&["analyze", run.to_str().unwrap(), "--json"]));
    let found = analysis["findings"].as_array().unwrap();
    found.iter().map(|found| (format!("finding {}", found["code"].as_str().unwrap()), found["query"].clone())).collect()
}

/// What is asked of rows that come in another way, or of another kind, as runs of a CPU and of a GPU are asked all: one
/// question in three, and those that are about these rows; all of them with `CANDLESCOPE_ENGINES=all` (`make test-slow`).
fn asked_again(of: &[Of], is_about_these: impl Fn(&PageQuery) -> bool) -> Map<String, Value> {
    let is_all = std::env::var("CANDLESCOPE_ENGINES").is_ok_and(|which| which == "all");
    let of_pages = page_queries().into_iter().filter(|query| of.contains(&query.of)).enumerate();
    let is_asked = |(at, query): &(usize, PageQuery)| is_all || at % 3 == 0 || is_about_these(query);
    asked_of_these(of_pages.filter(is_asked).map(|(_, query)| query))
}

/// Questions of the pages, and those that use our aggregates.
fn asked_of_these(of_pages: impl Iterator<Item = PageQuery>) -> Map<String, Value> {
    let of_pages = of_pages.map(|query| (query.name, query.sql.into()));
    of_pages.chain(aggregate_queries().into_iter().map(|(name, sql)| (name.to_string(), sql.into()))).collect()
}

/// The rows of one of them; `None` where other engines were not asked.
fn rows_of(counts: &[(String, usize)], name: &str) -> Option<usize> {
    let found = counts.iter().find(|(of, _)| of == name).map(|(_, rows)| *rows);
    assert!(found.is_some() || counts.is_empty(), "{name} was asked");
    found
}

/// Whether a text is what a view stands for: it is on the page of the views word by word, which a test of that page holds.
fn is_of_a_view(sql: &str) -> bool {
    candlescope_sql::VIEWS.iter().any(|view| view.query().trim() == sql.trim())
}

fn everything(runs: &[&Path]) -> Map<String, Value> {
    // What views stand for is asked by their names.
    let of_pages = page_queries().into_iter().filter(|query| query.of == Of::Runs && !is_of_a_view(&query.sql));
    let mut queries = asked_of_these(of_pages);
    for view in candlescope_sql::VIEWS {
        queries.insert(view.name.to_string(), format!("SELECT * FROM {}", view.name).into());
    }
    for name in ["served", "stacks", "stack_samples", "requests", "steps", "kernels"] {
        queries.insert(name.to_string(), format!("SELECT * FROM {name}").into());
    }
    runs.iter().for_each(|run| queries.extend(findings(run)));
    queries
}

fn recorded(name: &str) -> PathBuf {
    Path::new(ROOT).join("cli/tests/recorded/gpu").join(name)
}

#[test]
fn three_engines_agree_on_runs_of_a_cpu() {
    let dir = tempfile::tempdir().unwrap();
    // What engines take for a pattern as well.
    let new = dir.path().join("it's new [1]");
    let args =
        ["profile", "--model", "embedded", "--max-new-tokens", "6", "--repeats", "3", "--warmup", "1", "--no-progress"];
    ok(&[&args[..], &["--stacks", "--out", new.to_str().unwrap()]].concat());
    let perturbed = dir.path().join("perturbed");
    let experiment = ["--perturb", "path=mlp:+50%", "--perturb-pairs", "5", "--perturb-budget", "60%"];
    ok(&[&args[..], &experiment, &["--out", perturbed.to_str().unwrap()]].concat());
    // One of an earlier version beside them, which lacks columns and tables, and two ranks of a program.
    let old = Path::new(ROOT).join("analysis/tests/fixtures/schema-v1");
    record_ranks(&dir.path().join("ranks"));
    let ranks = ["ranks/rank-0", "ranks/rank-1"].map(|rank| dir.path().join(rank));
    let runs = [new.as_path(), perturbed.as_path(), old.as_path(), ranks[0].as_path(), ranks[1].as_path()];
    let counts = compare(&runs, &everything(&[&new]));
    assert_eq!(rows_of(&counts, "phases by merged_ns"), rows_of(&counts, "phases"));
    for (name, rows) in counts {
        let may_be_empty = [
            "application_steps",
            "served",
            "recorded_steps",
            "gpu_",
            "device_time",
            "device_accounts",
            "kernels",
            "docs/sql.md",
            "docs/host.md",
            "docs/record.md",
            "no group",
            "finding",
            "stack",
        ];
        assert!(rows > 0 || may_be_empty.iter().any(|part| name.starts_with(part)), "{name}");
    }
}

#[test]
fn three_engines_agree_on_runs_of_a_gpu() {
    let (replays, unmodified) = (recorded("replays"), recorded("unmodified"));
    let runs = [replays.as_path(), unmodified.as_path()];
    let counts = compare(&runs, &everything(&runs));
    for view in ["phases", "device_time"] {
        assert_eq!(rows_of(&counts, &format!("{view} by merged_ns")), rows_of(&counts, view));
    }
    assert_eq!(rows_of(&counts, "device_time by device_timeline"), rows_of(&counts, "device_time"));
    for (name, rows) in counts {
        let has_rows = ["gpu_time", "recorded_steps", "device_time", "kernels", "finding", "aggregates"];
        assert!(rows > 0 || !has_rows.iter().any(|part| name.starts_with(part)), "{name}");
    }
}

#[test]
fn three_engines_agree_on_runs_with_stacks() {
    let (host, threads) = (recorded("host"), recorded("threads"));
    let mut queries = asked_again(&[Of::Runs], |query| query.sql.contains("stack"));
    for name in ["stacks", "stack_samples"] {
        queries.insert(name.to_string(), format!("SELECT * FROM {name}").into());
    }
    let counts = compare(&[&host, &threads], &queries);
    for name in ["stacks", "stack_samples", "docs/host.md 0"] {
        assert_ne!(rows_of(&counts, name), Some(0), "{name}");
    }
}

#[test]
fn three_engines_agree_on_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, archive) = (dir.path().join("runs"), dir.path().join("archive"));
    for name in ["decode", "unmodified"] {
        copy(&recorded(name), &runs.join(name));
    }
    ok(&["archive", runs.to_str().unwrap(), "--to", archive.to_str().unwrap()]);
    let counts = compare(&[&archive], &asked_again(&[Of::Archive, Of::Runs], |query| query.of == Of::Archive));
    for query in page_queries().iter().filter(|query| query.of == Of::Archive) {
        assert_ne!(rows_of(&counts, &query.name), Some(0), "{query:?}");
    }
    assert_ne!(rows_of(&counts, "aggregates of operators"), Some(0));
}

#[test]
fn three_engines_agree_on_a_study() {
    let study = Path::new(ROOT).join("docs/gallery/study");
    let queries = page_queries().into_iter().filter(|query| query.of == Of::Study);
    let queries = queries.map(|query| (query.name, query.sql.into())).collect();
    for (name, rows) in compare(&[&study], &queries) {
        assert!(rows > 0, "{name}");
    }
}

/// The script that starts workers, as a reader of the page would run it.
#[test]
fn the_cluster_of_the_page_answers() {
    let Some(python) = require(&PYTHON) else { return };
    let run = Path::new(ROOT).join("cli/tests/recorded/gpu/decode");
    let sql = "SELECT count(*) AS spans, count(DISTINCT operator) AS operators FROM spans";
    let ours = json(&ok(&["query", sql, run.to_str().unwrap(), "--json"]))["rows"][0].clone();
    let output = std::process::Command::new(Path::new(ROOT).join("examples/fleet/cluster.sh"))
        .args([run.to_str().unwrap(), sql])
        .env("CANDLESCOPE", BINARY)
        .env("PYTHON", python)
        .env("WORKERS", "2")
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let numbers: Vec<i64> = said.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let expected = [&ours["spans"], &ours["operators"]].map(|of| of.as_i64().unwrap());
    assert_eq!(numbers, expected, "{said}{}", text(&output.stderr));
}

/// `measure.py` compares answers as this test does, but for whole numbers: these are equal or not.
#[test]
fn the_rows_of_measurements_are_compared_as_these() {
    let Some(python) = require(&PYTHON) else { return };
    let rows = |value: &Value| -> Vec<Row> {
        value.as_array().unwrap().iter().map(|row| row.as_array().unwrap().clone()).collect()
    };
    let in_python = |ours: &Value, theirs: &Value| -> [usize; 2] {
        let mut child = std::process::Command::new(&python)
            .arg(Path::new(ROOT).join("tests/python/same_rows.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asked = json!({"ours": ours, "theirs": theirs, "within": 1e-6});
        tell(&mut child, &asked);
        let found: [Vec<Row>; 2] = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        found.map(|rows| rows.len())
    };
    let same = json!([["a", 1, 2.5, null, true], ["b", 2, 1e15, 7.0, false]]);
    let cases = [
        (same.clone(), same),
        // In another order, with another last digit; a number that is written in two ways.
        (json!([[1, 0.1], [2, 0.2]]), json!([[2, 0.200_000_000_01], [1, 0.1]])),
        (json!([[3.0]]), json!([[3]])),
        (json!([[1, 0.1]]), json!([[1, 0.100_1]])),
        (json!([["a"]]), json!([["b"]])),
        (json!([[null]]), json!([[0]])),
        (json!([[true]]), json!([[1]])),
        (json!([[1]]), json!([[1, 2]])),
        // Each row has one like it.
        (json!([[1], [1], [2]]), json!([[1], [2], [2]])),
        (json!([]), json!([[1]])),
    ];
    for (ours, theirs) in &cases {
        let (here, there) = differences(&with_texts(rows(ours)), rows(theirs), 1e-6);
        assert_eq!(in_python(ours, theirs), [here.len(), there.len()], "{ours} and {theirs}");
    }
    let count = |n: u64| json!([["all", n]]);
    assert_eq!(in_python(&count(100_000_000), &count(100_000_001)), [1, 1]);
}
