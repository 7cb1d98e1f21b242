//! Findings with gains in reports, and their queries.

use super::made::{diagnose, gpu_run, piece, queued, with_result};
use crate::common::scenario::{Scenario, make};
use crate::common::{T0, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::advice::{Advice, AdviceCode, Diagnosis, LEAST_GAIN, Missing};
use candlescope_reader::{ReadLimits, Run};
use candlescope_report::advice::{json, text};
use candlescope_report::{ReportOptions, write_report};
use candlescope_schema::{GpuSource, HostNs, SampleRecord, metric};
use candlescope_testkit::tools::{PYTHON, require};
use serde_json::Value;
use std::process::Command;

/// A run with much to find.
fn rich() -> (candlescope_schema::Batch, candlescope_schema::run::RunManifest) {
    let mut list = Vec::new();
    for n in 0..20 {
        list.push(("decode/norm", "usqr_f32", 30_000, n));
        list.push(("decode/norm", "bmul_f32", 30_000, n));
        list.push(("decode/attn/softmax", "cast_bf16_f32", 20_000, n));
        list.push(("decode/linear", "gemm", 50_000, n));
        list.push(("decode/attn", "ucopy_bf16", 20_000, n));
    }
    let (mut pieces, ns) = with_result(queued(&list));
    let mut copy = piece("decode/embed", "htod", 1_000, 10, 19_000);
    copy.copies = Some(10_000);
    pieces.insert(0, copy);
    let (mut batch, manifest) = gpu_run(&pieces, ns);
    for span in batch.spans.iter_mut().filter(|span| span.path.path == "decode/linear") {
        (span.flops, span.bytes, span.io_bytes) = (Some(1_000), Some(5_000_000), Some(5_000_000));
    }
    // A table of each kind, without which the views of docs/sql.md cannot be made.
    batch.samples.push(SampleRecord::new(HostNs(T0), "host", metric::CPU_RATIO, 1.0, "1"));
    (batch, manifest)
}

#[test]
fn findings_are_ranked_and_bounded_and_name_their_place() {
    let found = diagnose(&rich());
    let diagnosis = &found.diagnosis;
    assert!(diagnosis.findings.len() >= 4, "{:?}", found.codes());
    let order: Vec<f64> = diagnosis.findings.iter().map(|advice| advice.of_run().mid).collect();
    assert!(order.is_sorted_by(|a, b| a >= b), "{order:?}");
    for advice in &diagnosis.findings {
        let gain = advice.gain;
        assert!(
            gain.mid >= LEAST_GAIN && gain.low <= gain.mid && gain.mid <= gain.high && gain.high <= 1.0,
            "{advice:?}"
        );
        assert!(!advice.query.is_empty() && !advice.evidence.is_empty() && advice.coverage.steps > 0, "{advice:?}");
        assert!(advice.confidence.reason.len() > 10, "{advice:?}");
    }
    assert_eq!(diagnosis.clone().top(2).findings.len(), 2);
    assert_eq!(diagnosis.clone().top(0).findings.len(), diagnosis.findings.len());
    let object = json(diagnosis);
    let first = &object["findings"][0];
    for key in [
        "code",
        "severity",
        "place",
        "gain",
        "gain_of_run",
        "coverage",
        "confidence",
        "message",
        "remedy",
        "evidence",
        "query",
    ] {
        assert!(!first[key].is_null(), "{key}: {first}");
    }
    for key in ["low", "mid", "high"] {
        assert!(first["gain"][key].is_f64(), "{first}");
    }
    let mut said = String::new();
    for (advice, one) in diagnosis.findings.iter().zip(object["findings"].as_array().unwrap()) {
        let remedy = one["remedy"].as_str().unwrap();
        let place = advice.place.path.as_deref().unwrap_or(&advice.place.phase);
        assert!(remedy.contains(place) || advice.code == AdviceCode::BetweenSteps, "{remedy}");
        said.push_str(remedy);
        said.push_str(one["message"].as_str().unwrap());
    }
    assert!(!said.contains("NaN") && !said.contains('–'), "all that is named is known: {said}");
    let text = text(diagnosis);
    assert!(text.contains("1. ") && text.contains("Not judged:") && !text.contains("NaN"), "{text}");
}

/// `candlescope query` finds them as well as DuckDB does.
#[test]
fn every_query_finds_rows_in_our_own_engine() {
    use candlescope_figures::advice::{AdviceFigure, FigureSource};
    use candlescope_reader::ReadLimits;
    use candlescope_sql::{SqlValue, query};
    let found = diagnose(&rich());
    let sources = candlescope_sql::Sources::open([found.dir.path()], &ReadLimits::default()).unwrap();
    assert!(found.diagnosis.findings.len() >= 4);
    for advice in &found.diagnosis.findings {
        let answer = query(&advice.query, &sources, &ReadLimits::default(), 0);
        let answer = answer.unwrap_or_else(|error| panic!("{}: {error}: {}", advice.code, advice.query));
        assert!(!answer.rows.is_empty(), "{}: {}", advice.code, advice.query);
        // A column with a figure's name is that figure.
        // A peak is in `run.json`.
        let of_tables = |figure: &&AdviceFigure| figure.source == FigureSource::Measured && figure.name != "bandwidth";
        let measured = advice.evidence.iter().filter(of_tables);
        for figure in measured {
            let at = answer.columns.iter().position(|column| column == figure.name);
            let at = at.unwrap_or_else(|| panic!("{}: no column {}: {}", advice.code, figure.name, advice.query));
            let value = |row: &Vec<SqlValue>| match row[at] {
                SqlValue::Int(value) => value as f64,
                SqlValue::Float(value) => value,
                _ => f64::NAN,
            };
            let sum: f64 = answer.rows.iter().map(value).sum();
            let (code, name, sql) = (advice.code, figure.name, &advice.query);
            assert!(
                (sum - figure.value).abs() <= 1e-6 * figure.value.abs(),
                "{code} {name}: {} {sum}: {sql}",
                figure.value
            );
        }
    }
}

#[test]
fn every_query_finds_rows() {
    let Some(python) = require(&PYTHON) else { return };
    let made = rich();
    let found = diagnose(&made);
    let limits = ReadLimits::default();
    let sources = candlescope_sql::Sources::open([found.dir.path()], &limits).unwrap();
    let views = candlescope_sql::script(candlescope_sql::Engine::DuckDb, &sources, &limits);
    let script = "import duckdb, json, sys\nviews, queries = json.load(sys.stdin)\ndb = duckdb.connect()\ndb.execute(views)\n\
                  for query in queries:\n    print(len(db.sql(query).fetchall()))\n";
    let queries: Vec<&str> = found.diagnosis.findings.iter().map(|advice| advice.query.as_str()).collect();
    let asked = (views, queries);
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(child.stdin.take().unwrap(), &asked).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<usize> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(rows.len(), found.diagnosis.findings.len());
    for (advice, rows) in found.diagnosis.findings.iter().zip(rows) {
        assert!(rows > 0, "{}: {}", advice.code, advice.query);
    }
}

#[test]
fn reports_show_them() {
    let dir = tempfile::tempdir().unwrap();
    let (batch, manifest) = rich();
    write_run(dir.path(), &batch, &manifest, 100_000);
    let report = write_report(dir.path(), &ReportOptions::default()).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (page, markdown) = (read("report.html"), read("report.md"));
    let findings = report.metrics["diagnosis"]["findings"].as_array().unwrap().clone();
    assert!(page.contains("<section id=\"advice\">") && markdown.contains("## What to change"));
    for finding in &findings {
        let code = finding["code"].as_str().unwrap();
        assert!(page.contains(code) && markdown.contains(code), "{code}");
    }
    // 100 kernels and 2 copies a step, on one stream.
    let (_, line) = page.split_once("<figure class=\"timeline\">").unwrap();
    let line = line.split("</figure>").next().unwrap();
    assert_eq!((line.matches("class=\"kernel\"").count(), line.matches("class=\"copy\"").count()), (100, 2));
    assert!(line.matches("class=\"interval\"").count() >= 20 && line.contains("softmax"), "{line}");
    let remedy = findings[0]["remedy"].as_str().unwrap();
    let words: String = report.summary.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.summary.contains("What to change") && words.contains(remedy), "{remedy}\n{}", report.summary);
}

/// A host that waits for the device leads no table of a run on a GPU.
#[test]
fn operators_of_a_gpu_run_are_ordered_by_time_on_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let (mut batch, manifest) = rich();
    // The host waits in `sample` for nearly all of the step.
    for span in batch.spans.iter_mut().filter(|span| span.path.path == "decode/sample") {
        let step = batch.steps.iter().find(|step| Some(step.step) == span.step).unwrap();
        span.host_dur_ns = step.host_dur_ns - span.host_start.since(step.host_start);
    }
    let times: std::collections::HashMap<u64, u64> =
        batch.kernels.iter().fold(Default::default(), |mut sums, kernel| {
            *sums.entry(kernel.seq.unwrap()).or_insert(0) += kernel.gpu_dur_ns;
            sums
        });
    for span in &mut batch.spans {
        let whole = || times.iter().filter(|(seq, _)| *seq / 1_000_000 == span.seq / 1_000_000).map(|(_, ns)| ns).sum();
        let ns = times.get(&span.seq).copied().unwrap_or_else(whole);
        let (start, source) = (span.host_start, GpuSource::Cupti);
        span.gpu = Some(candlescope_schema::GpuTime { start, dur_ns: ns, source });
    }
    write_run(dir.path(), &batch, &manifest, 100_000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let first = &analysis.operators[0];
    assert_eq!(first.path, "decode/norm", "2 × 30 µs of kernels, 20 times a step");
    let sample = analysis.operators.iter().find(|operator| operator.path == "decode/sample").unwrap();
    let longest = analysis.operators.iter().map(|operator| operator.self_ns).max().unwrap();
    assert_eq!(sample.self_ns, longest, "by the host's time it would be the first");
    let waited = sample.host_wait_ns.unwrap() / sample.self_ns as f64;
    assert!(waited > 0.9 && waited <= 1.0, "{waited}");
    assert_eq!(first.host_wait_ns, Some(0.0));
}

/// The built-in model on the processor of this machine gets no finding of a GPU.
#[test]
fn synthetic_decoder_on_a_cpu() {
    let (batch, manifest) = make(&Scenario::default());
    let found = diagnose(&(batch, manifest));
    let of_gpu = [AdviceCode::LaunchBound, AdviceCode::KernelCount, AdviceCode::SyncDrain, AdviceCode::WaveTail];
    let is = |advice: &&Advice| of_gpu.contains(&advice.code);
    assert_eq!(found.diagnosis.findings.iter().find(is), None);
    assert!(!found.diagnosis.steps.is_empty());
}

#[test]
fn names_are_stable_words_and_each_stands_once() {
    let is_word = |name: &str| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let mut names: Vec<&str> = AdviceCode::ALL.iter().map(|code| code.as_str()).collect();
    names.extend(Missing::ALL.iter().map(|missing| missing.as_str()));
    assert!(names.iter().all(|name| is_word(name)), "{names:?}");
    let once: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(once.len(), names.len());
    for missing in Missing::ALL {
        assert_eq!(serde_json::to_value(missing).unwrap(), Value::from(missing.as_str()));
    }
    assert_eq!(json(&Diagnosis::default())["findings"], Value::Array(Vec::new()));
}
