//! `tune`, `query` and `analyze --full` with the embedded model, as a user runs them.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::ranks::MadeRanks;
use common::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const SHORT: &[&str] = &["--prompt-tokens", "4", "--output-tokens", "4", "--runs", "2", "--time-limit", "1"];

fn tune<'a>(out: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["tune", "batch", "--no-progress", "--out", out.to_str().unwrap()], SHORT, more].concat()
}

fn rows(answer: &str) -> Vec<Value> {
    json(answer)["rows"].as_array().expect("rows").clone()
}

#[test]
fn a_batch_is_tuned_with_few_points_and_the_study_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let asked = ["--start", "1", "--end", "64", "--points", "6", "--price-per-hour", "3.6", "--json"];
    let tuned = json(&ok(&tune(&out, &asked)));
    let points = tuned["points"].as_array().unwrap();
    let measured: BTreeSet<u64> = points.iter().map(|point| point["batch"].as_u64().unwrap()).collect();
    assert!(measured.contains(&1) && measured.contains(&64), "both ends: {measured:?}");
    assert!((2..=6).contains(&measured.len()), "few of 64: {measured:?}");
    let best = tuned["best"].as_u64().unwrap();
    let tps = |point: &Value| point["found"]["output_tps"].as_f64().unwrap();
    let of_best = points.iter().find(|point| point["batch"] == best).unwrap();
    assert!(points.iter().all(|point| tps(point) <= tps(of_best)), "{tuned}");
    assert!(["settled", "points"].contains(&tuned["stop"].as_str().unwrap()), "{}", tuned["stop"]);
    assert!(points.iter().all(|point| point["why"].is_string() && point["need_bytes"].as_u64().unwrap() > 0));
    assert!(tuned["memory"]["weight_bytes"].as_u64().unwrap() > 0 && tuned["memory"]["largest_found"] == 64);
    assert!(tuned["knee"].as_u64().unwrap() <= best);

    // 1,000 tokens/s are 3.6 million an hour.
    for point in points {
        let usd = point["usd_per_million_output_tokens"].as_f64().unwrap();
        assert!((usd * tps(point) / 1000.0 - 1.0).abs() < 1e-9, "{point}");
    }
    assert_eq!((&tuned["cheapest"], tuned["usd_per_hour"].as_f64()), (&tuned["best"], Some(3.6)));
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("cost least at a batch of "));

    let table = fs::read_to_string(out.join("throughput_results.csv")).unwrap();
    assert!(table.lines().next().unwrap().ends_with(",usd_per_million_output_tokens"), "{table}");
    for file in ["report.html", "report.md", "tune.json", "study.json", "results.parquet", "throughput_results.csv"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    for chart in ["throughput", "latency_against_throughput", "memory"] {
        assert!(fs::read_to_string(out.join(format!("charts/{chart}.svg"))).unwrap().contains("<svg"), "{chart}");
    }
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(
        report.contains("Best batch for the highest throughput: ") && report.contains("stopped because"),
        "{report}"
    );

    // The study's samples in SQL: each repetition has a number of its own.
    let study = out.to_str().unwrap();
    let sql = "SELECT batch, count(*) AS n, count(DISTINCT repetition) AS numbers, median(output_tps) AS tps FROM results \
               WHERE verdict = 'ok' GROUP BY batch ORDER BY batch";
    let asked = rows(&ok(&["query", sql, study, "--format", "json"]));
    assert_eq!(asked.iter().map(|row| row["batch"].as_u64().unwrap()).collect::<BTreeSet<_>>(), measured);
    assert!(asked.iter().all(|row| row["n"] == row["numbers"] && row["n"].as_u64() >= Some(2)), "{asked:?}");
    assert!(asked.iter().any(|row| row["n"].as_u64() > Some(2)), "the best ones were measured again: {asked:?}");
    let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    let row = asked.iter().find(|row| row["batch"] == best).unwrap();
    assert!(close(row["tps"].as_f64().unwrap(), tps(of_best)), "{row} {of_best}");
    // A study is not written over.
    assert!(fails(&tune(&out, &[])).contains("is not empty"));
}

#[test]
fn limits_memory_and_wrong_ranges_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let range = fails(&tune(&at("a"), &["--start", "9", "--end", "4"]));
    assert!(range.contains("starts at 9 and ends at 4") && !at("a").exists(), "{range}");
    let goodput = fails(&tune(&at("b"), &["--metric", "goodput"]));
    assert!(goodput.contains("--slo ttft=200ms") && !at("b").exists(), "{goodput}");
    assert!(fails(&tune(&at("b"), &["--slo", "tpot=fast"])).contains("is no time"));

    // No batch answers in a nanosecond.
    let unmet = fails(&tune(&at("c"), &["--end", "8", "--slo", "tpot=1ns"]));
    assert!(unmet.contains("comes nearest with") && unmet.contains("TPOT ≤"), "{unmet}");
    assert!(at("c").join("report.html").is_file() && at("c").join("tune.json").is_file(), "what was measured is kept");

    // Keys and values take 512 KiB a sequence: 8 MiB hold a batch of eight, and not one of 64.
    let out = at("d");
    let text = ok(&tune(&out, &["--end", "64", "--memory-limit", "8", "--points", "12"]));
    assert!(text.contains("did not fit") && text.contains("8.0 MiB are available"), "{text}");
    let tuned = json(&fs::read_to_string(out.join("tune.json")).unwrap());
    let (largest, first) = (&tuned["memory"]["largest_found"], &tuned["memory"]["first_without"]);
    assert!(largest.as_u64().unwrap() < first.as_u64().unwrap() && first.as_u64().unwrap() <= 64, "{tuned}");
    assert!(tuned["best"].as_u64().unwrap() <= largest.as_u64().unwrap());
    let rows = rows(&ok(&[
        "query",
        "SELECT batch, verdict FROM results WHERE verdict = 'refused'",
        out.to_str().unwrap(),
        "--json",
    ]));
    assert!(rows.iter().any(|row| row["batch"] == *first), "{rows:?}");

    let none = fails(&tune(&at("e"), &["--memory-limit", "1"]));
    assert!(none.contains("the model does not fit") && none.contains("weights need"), "{none}");
    assert!(!at("e").exists(), "an empty study is in nobody's way");
}

#[test]
fn everything_in_one_folder_and_every_finding_finds_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("full");
    let path = out.to_str().unwrap();
    let args = ["analyze", "--full", "embedded", "--duration", "1.5", "--gpu", "EPYC-9654", "--no-progress"];
    let set = ["--set", "prompt-tokens=16", "--set", "max-new-tokens=8"];
    let object = json(&ok(&[args.as_slice(), &set, &["--out", path, "--json"]].concat()));
    assert!(object["static"].is_object(), "{}", object["static_missing"]);
    assert!(object["dynamic"].is_object() && object["findings"].is_array() && object["metrics"].is_object());
    for file in [
        "report.html",
        "report.md",
        "static_analysis.json",
        "dynamic_analysis.json",
        "roofline.html",
        "findings.json",
        "run/report.html",
        "run/run.json",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    for part in ["What the device allows", "What was measured", "Measured against predicted", "What to change"] {
        assert!(report.contains(part), "{part}");
    }
    assert!(report.contains("run/report.html") && report.contains("roofline.html"));
    // The page begins with sentences, what to change, and the charts; what a terminal shows is folded below them.
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}: {page}"));
    let summary = page[at("<p class=\"outcome\">")..].split("</p>").next().unwrap();
    assert_eq!(summary.split(". ").count(), 5, "five sentences: {summary}");
    assert!(
        summary.contains("measured request") && summary.contains("request decodes") && summary.contains("predicted"),
        "{summary}"
    );
    // On a busy machine there may be nothing to change that is the program's.
    let changes = "<ol class=\"changes\">";
    let order = ["class=\"outcome\"", changes, "<svg class=\"plot wide\"", "<iframe class=\"flame\"", "<pre>"];
    let places: Vec<usize> =
        order.into_iter().filter(|part| *part != changes || page.contains(changes)).map(at).collect();
    assert!(places.is_sorted() && (places.len() == order.len() || page.contains("the machine was busy")), "{places:?}");
    let told = !page.contains(changes) || page[at(changes)..].contains("confidence ");
    assert!(!summary.contains('`') && told, "{summary}");
    assert_eq!(page.matches("<pre>").count(), page.matches("<summary>As a terminal shows it").count());
    // The run lasted as long as asked, in whole requests.
    let run = out.join("run");
    let asked = rows(&ok(&[
        "query",
        "SELECT count(*) AS n, (max(host_start_ns + host_dur_ns) - min(host_start_ns)) / 1e9 AS s, \
         max(host_dur_ns) / 1e9 AS longest FROM measured_requests",
        run.to_str().unwrap(),
        "--json",
    ]));
    let number = |key: &str| asked[0][key].as_f64().unwrap();
    assert!(number("n") >= 1.0 && number("s") > 1.4 - number("longest"), "{asked:?}");

    let findings = object["findings"].as_array().unwrap();
    assert!(!findings.is_empty(), "the built-in model on a CPU has some: {}", object["abstained"]);
    for finding in findings {
        let found = rows(&ok(&["query", finding["query"].as_str().unwrap(), run.to_str().unwrap(), "--json"]));
        assert!(!found.is_empty(), "{finding}");
    }
    assert!(fails(&["analyze", "--full", "embedded", "--out", path]).contains("is not empty"));
    assert!(fails(&["analyze", "--full", "embedded", "--duration", "0"]).contains("above 0"));
    assert!(fails(&["analyze", "--duration", "3", path]).contains("--full"));
}

/// A run of a CPU that is kept in the repository.
const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../analysis/tests/fixtures/schema-v1");

#[test]
fn an_answer_in_three_forms() {
    let sql = "SELECT phase, count(*) AS steps, sum(host_dur_ns) / 1e6 AS ms, NULL AS absent FROM measured_steps GROUP BY phase \
               ORDER BY phase";
    let object = json(&ok(&["query", sql, RUN, "--format", "json"]));
    assert_eq!(object["columns"], serde_json::json!(["phase", "steps", "ms", "absent"]));
    let rows = object["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["phase"] == "decode") && rows[0]["absent"].is_null());
    let csv = ok(&["query", sql, RUN, "--format", "csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines[0], lines.len()), ("phase,steps,ms,absent", rows.len() + 1));
    assert!(lines[1].starts_with("decode,") && lines[1].ends_with(','), "{csv}");
    let table = ok(&["query", sql, RUN]);
    assert!(table.contains("phase") && table.contains(&format!("({} rows)", rows.len())), "{table}");
    let one = run(&["query", "SELECT step FROM steps", RUN, "--limit", "1"]);
    assert!(text(&one.stdout).contains("(1 row)") && text(&one.stderr).contains("--limit 0 gives all"));
    assert!(fails(&["query", "SELECT * FROM nowhere", RUN]).contains("tables and views are"));
    let swapped = fails(&["query", RUN, "SELECT count(*) FROM spans"]);
    assert!(
        swapped.contains("where the question is expected") && swapped.contains(&format!("spans' {RUN}")),
        "{swapped}"
    );
}

/// Every query of docs/sql.md but its views for DuckDB runs here, unchanged, on a run with all tables.
#[test]
fn the_queries_of_the_docs_run_here_too() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/sql.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    write_ranks(dir.path(), &MadeRanks { steps: 12, ..MadeRanks::default() }.make());
    let mut ran = 0;
    for section in page.split("\n## ").skip(1).filter(|section| !section.starts_with("Views")) {
        for block in section.split("```sql\n").skip(1) {
            let sql = block.split("```").next().unwrap();
            // A run of one process on a CPU without continuous batching has none of these, and this one is older than accounts.
            let none = ["FROM served", "FROM gpu_time", "FROM device_timeline", "FROM request_accounts"];
            let has_none = none.iter().any(|part| sql.contains(part));
            let of = if sql.contains("FROM stragglers") { dir.path().to_str().unwrap() } else { RUN };
            let shown = json(&ok(&["query", sql, of, "--json"]));
            assert_eq!(shown["rows"].as_array().unwrap().is_empty(), has_none, "{sql}");
            ran += 1;
        }
    }
    assert!(ran >= 7, "{ran}");
}
