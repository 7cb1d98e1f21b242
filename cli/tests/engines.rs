//! Every view, every query of the documents and of findings gives the same rows here, in DuckDB and in Spark SQL.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The SQL blocks of a page.
fn blocks(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap();
    let blocks =
        text.split("```sql\n").skip(1).map(|part| part.split("```").next().unwrap().trim().trim_end_matches(';'));
    blocks.map(str::to_string).collect()
}

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
fn alike(a: &Row, b: &Row) -> bool {
    let same = |(a, b): (&Value, &Value)| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 2e-8 * a.abs().max(b.abs()),
        _ => a == b,
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Those of either side that have none like them on the other.
fn differences(ours: Vec<Row>, theirs: Vec<Row>) -> (Vec<String>, Vec<String>) {
    let mut by_text: std::collections::HashMap<String, Vec<Row>> = std::collections::HashMap::new();
    theirs.into_iter().for_each(|row| by_text.entry(written(&row)).or_default().push(row));
    let mut left: Vec<Row> = Vec::new();
    for row in ours {
        if by_text.get_mut(&written(&row)).and_then(Vec::pop).is_none() {
            left.push(row);
        }
    }
    let mut others: Vec<Row> = by_text.into_values().flatten().collect();
    left.retain(|row| match others.iter().position(|other| alike(row, other)) {
        Some(at) => {
            others.swap_remove(at);
            false
        }
        None => true,
    });
    (left.iter().map(written).collect(), others.iter().map(written).collect())
}

/// Asks all three, and returns how many rows each query has.
fn compare(runs: &[&Path], queries: &Map<String, Value>) -> Vec<(String, usize)> {
    let paths: Vec<&str> = runs.iter().map(|run| run.to_str().unwrap()).collect();
    let Some(theirs) = in_other_engines(&paths, queries) else { return Vec::new() };
    let mut counts = Vec::new();
    for (name, sql) in queries {
        let sql = sql.as_str().unwrap();
        let ours = json(&ok(&[&["query", sql], &paths[..], &["--json", "--limit", "0"]].concat()));
        let columns: Vec<&str> =
            ours["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let of = |of: &Value| -> Row { columns.iter().map(|name| of[*name].clone()).collect() };
        let rows: Vec<Row> = ours["rows"].as_array().unwrap().iter().map(of).collect();
        for engine in ["duckdb", "spark"] {
            let answer = &theirs[engine][name];
            assert!(answer["error"].is_null(), "{name} in {engine}: {}\n{sql}", answer["error"]);
            let found: Vec<Row> =
                answer["rows"].as_array().unwrap().iter().map(|row| row.as_array().unwrap().clone()).collect();
            assert_eq!(answer["columns"].as_array().unwrap().len(), columns.len(), "{name} in {engine}");
            let (here, there) = differences(rows.clone(), found);
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

fn everything(runs: &[&Path]) -> Map<String, Value> {
    let mut queries = Map::new();
    for view in candlescope_sql::VIEWS {
        queries.insert(view.name.to_string(), format!("SELECT * FROM {}", view.name).into());
    }
    for name in ["served", "stacks", "stack_samples", "requests", "steps", "kernels"] {
        queries.insert(name.to_string(), format!("SELECT * FROM {name}").into());
    }
    for (at, sql) in blocks("docs/sql.md").into_iter().enumerate() {
        queries.insert(format!("docs/sql.md {at}"), sql.into());
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
    let new = dir.path().join("it's new");
    let args =
        ["profile", "--model", "embedded", "--max-new-tokens", "6", "--repeats", "3", "--warmup", "1", "--no-progress"];
    ok(&[&args[..], &["--stacks", "--out", new.to_str().unwrap()]].concat());
    // One of an earlier version beside it, which lacks columns and tables.
    let old = Path::new(ROOT).join("analysis/tests/fixtures/schema-v1");
    let runs = [new.as_path(), old.as_path()];
    let counts = compare(&runs, &everything(&[&new]));
    for (name, rows) in counts {
        let may_be_empty = [
            "application_steps",
            "served",
            "recorded_steps",
            "gpu_",
            "device_time",
            "stragglers",
            "kernels",
            "docs",
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
    for (name, rows) in counts {
        let has_rows = ["gpu_time", "recorded_steps", "device_time", "kernels", "finding"];
        assert!(rows > 0 || !has_rows.iter().any(|part| name.starts_with(part)), "{name}");
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
