//! The look of reports, and that they agree with each other.

use crate::common::scenario::{Scenario, make};
use crate::common::write_run;
use candlescope_figures::Analysis;
use candlescope_figures::Price;
use candlescope_figures::definitions::{DEFINITIONS, Definition};
use candlescope_reader::Run;
use candlescope_report::{ReportOptions, TerminalOptions, write_report};
use candlescope_report::{html, json, markdown, terminal};
use candlescope_schema::run::{Code, Finding};
use candlescope_schema::{SampleRecord, metric};
use candlescope_testkit::with;
use tempfile::tempdir;

fn analysis(scenario: &Scenario) -> Analysis {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(scenario);
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let mut analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    // Facts about the machine that runs the test are kept out of the snapshots.
    analysis.dir = "runs/example".into();
    for (table, bytes) in &mut analysis.file_bytes {
        *bytes = if analysis.rows[table] > 0 { 100_000 } else { 0 };
    }
    analysis
}

#[test]
fn terminal_summary() {
    insta::assert_snapshot!(terminal::summary(&analysis(&Scenario::default()), &TerminalOptions::default()));
}

#[test]
fn terminal_summary_of_a_run_with_gpu_and_trouble() {
    let mut analysis = analysis(&Scenario { gpu: true, requests: 2, ..Scenario::default() });
    analysis.verdict.add(Finding::new(
        Code::SegmentCorrupt,
        "`runs/example/spans/part-00007.parquet` is not a readable Parquet file (EOF: file size of 12 is less than footer); its rows are missing",
        "Copy the file again from where the run was made, or delete it to accept the loss",
    ));
    insta::assert_snapshot!(terminal::summary(
        &analysis,
        &TerminalOptions { tree: 6, operators: 4, ..Default::default() }
    ));
}

#[test]
fn terminal_summary_on_a_gpu() {
    insta::assert_snapshot!(terminal::summary(&analysis(&Scenario::on_gpu()), &TerminalOptions::default()));
}

#[test]
fn report_markdown_on_a_gpu() {
    // Two layers and the part about the GPU; the rest is in the report without a GPU.
    let report = markdown::report(&analysis(&Scenario { layers: 2, ..Scenario::on_gpu() }));
    let (from, to) = (report.find("\n## Operators").unwrap(), report.find("\n## Memory and other samples").unwrap());
    insta::assert_snapshot!(report[from..to]);
}

#[test]
fn operators_markdown() {
    insta::assert_snapshot!(markdown::operators(&analysis(&Scenario { layers: 2, ..Scenario::default() })));
}

#[test]
fn report_markdown() {
    insta::assert_snapshot!(markdown::report(&analysis(&Scenario { layers: 2, ..Scenario::default() })));
}

#[test]
fn stakeholder_summary() {
    insta::assert_snapshot!(markdown::stakeholder_summary(&analysis(&Scenario { layers: 2, ..Scenario::default() })));
}

#[test]
fn stakeholder_summary_on_a_gpu_with_a_price() {
    let mut analysis = analysis(&Scenario { layers: 2, ..Scenario::on_gpu() });
    analysis.price = Price::given(3.5);
    analysis.verdict.add(Finding::new(Code::RingFull, "7 were dropped", "enlarge it"));
    insta::assert_snapshot!(markdown::stakeholder_summary(&analysis));
}

#[test]
fn assumptions() {
    insta::assert_snapshot!(markdown::assumptions(&analysis(&Scenario { layers: 2, ..Scenario::default() })));
}

#[test]
fn a_page_of_an_empty_run_says_what_is_not_known() {
    let mut empty = analysis(&Scenario { requests: 0, ..Scenario::default() });
    empty.manifest = Default::default();
    let page = markdown::stakeholder_summary(&empty);
    assert!(page.lines().count() < 60, "one page: {page}");
    assert_eq!(page.matches("ot known").count(), 9, "{page}");
    assert!(!page.contains("NaN") && !page.contains("| 0 |"), "{page}");
}

#[test]
fn a_report_opens_with_its_conclusion() {
    let opening = |analysis: &Analysis| {
        let report = markdown::report(analysis);
        let mut lines = report.lines().filter(|line| !line.is_empty()).map(str::to_string);
        (lines.next().unwrap(), lines.next().unwrap())
    };
    let (title, conclusion) = opening(&analysis(&Scenario { layers: 2, ..Scenario::default() }));
    assert_eq!(title, "# smollm2-135m on Example CPU @ 2.0 GHz, 2026-01-31");
    assert_eq!(
        conclusion,
        "**A request decodes 276 tokens/s, and the first token comes after 26.3 ms; 78.5 % of a usual step `decode` is \
         in `decode/lm_head`; the data can be trusted.**"
    );
    let (title, conclusion) = opening(&analysis(&Scenario { layers: 2, ..Scenario::on_gpu() }));
    assert_eq!(title, "# smollm2-135m on Example GPU, 2026-01-31");
    assert!(conclusion.contains("78.7 % of the known GPU time is in `decode/lm_head`"), "{conclusion}");
    let mut doubtful = analysis(&Scenario { requests: 0, ..Scenario::default() });
    doubtful.verdict.add(Finding::new(Code::RingFull, "7 were dropped", "enlarge it"));
    (doubtful.manifest.started_ns, doubtful.manifest.model) = (0, Default::default());
    doubtful.manifest.environment.clear();
    let (title, conclusion) = opening(&doubtful);
    assert_eq!(title, "# Run synthetic");
    assert!(conclusion.starts_with("**The data cannot be trusted: "), "{conclusion}");
}

#[test]
fn a_report_defines_what_it_shows_and_nothing_else() {
    let keys = |scenario: &Scenario| {
        let report = markdown::report(&analysis(scenario));
        let (_, table) = report.split_once("\n## Definitions\n").unwrap();
        let is_shown = |d: &&Definition| table.contains(&format!("| {} | {} |", d.title, d.label));
        DEFINITIONS.iter().filter(is_shown).map(|d| d.key).collect::<Vec<_>>()
    };
    let on_cpu = keys(&Scenario::default());
    for key in ["ttft", "tpot", "peak_memory", "self", "share", "gflops", "overhead", "background"] {
        assert!(on_cpu.contains(&key), "{key}");
    }
    for key in ["gpu", "gpu_share", "launch_bound", "queue_delay", "launches", "mfu", "energy", "power"] {
        assert!(!on_cpu.contains(&key), "{key} without a GPU");
    }
    let on_gpu = keys(&Scenario::on_gpu());
    let missing: Vec<&str> = DEFINITIONS.iter().map(|d| d.key).filter(|key| !on_gpu.contains(key)).collect();
    let of_slots = ["kv_allocated", "kv_used", "kv_allocated_per_used"];
    let untold = [&["queue"][..], &of_slots, &["hfu", "usd_per_million_output_tokens"]].concat();
    assert_eq!(missing, untold, "this run does not tell them, and shows all the others");
}

#[test]
fn metrics_keys_are_stable() {
    insta::assert_snapshot!(keys(&Scenario::default()));
}

#[test]
fn metrics_keys_on_a_gpu_are_stable() {
    let plain = keys(&Scenario::default());
    let known: Vec<&str> = plain.lines().collect();
    let keys = keys(&Scenario::on_gpu());
    assert!(known.iter().all(|key| keys.lines().any(|k| k == *key)), "a GPU takes no key away");
    let more: Vec<&str> = keys.lines().filter(|key| !known.contains(key)).collect();
    insta::assert_snapshot!(more.join("\n"));
}

fn keys(scenario: &Scenario) -> String {
    let mut analysis = analysis(scenario);
    let finding = Finding::new(Code::RingFull, "{n:raw} records were lost", "Enlarge the rings");
    analysis.verdict.add(finding.count("n", 7));
    let metrics = json::metrics(&analysis);
    let mut keys = Vec::new();
    collect("", &metrics, &mut keys);
    keys.sort();
    keys.dedup();
    keys.join("\n")
}

/// Paths of all keys; for a list, those of its first element; none for maps with arbitrary keys.
fn collect(prefix: &str, value: &serde_json::Value, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{prefix}.{key}");
                keys.push(path.clone());
                if !matches!(path.as_str(), ".model" | ".environment" | ".options" | ".results" | ".exporters") {
                    collect(&path, value, keys);
                }
            }
        }
        serde_json::Value::Array(items) => {
            if let Some(first) = items.first() {
                collect(&format!("{prefix}[]"), first, keys);
            }
        }
        _ => {}
    }
}

#[test]
fn every_line_fits_the_terminal() {
    for (scenario, width) in [
        (Scenario::default(), 100),
        (Scenario { gpu: true, layers: 30, requests: 12, ..Scenario::default() }, 100),
        (Scenario { layers: 30, requests: 12, ..Scenario::on_gpu() }, 100),
    ] {
        let mut analysis = analysis(&scenario);
        let finding = Finding::new("x", "{words}", "{other}").text("other", "another one ".repeat(20));
        let words = "a long sentence ".repeat(20) + &"x".repeat(300);
        analysis.verdict.findings.push(finding.text("words", words));
        let text = terminal::summary(&analysis, &TerminalOptions::default());
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
        }
        assert!(!text.contains('\u{1b}'), "no colours unless asked for");
        let colored = terminal::summary(&analysis, &TerminalOptions { color: true, ..Default::default() });
        assert!(colored.contains("\u{1b}["));
    }
}

#[test]
fn peak_memory_says_who_saw_it() {
    let shown = |with_mark: bool| {
        let dir = tempdir().unwrap();
        let (mut batch, manifest) = make(&Scenario::default());
        batch.samples.retain(|s| s.metric != "process_resident_memory_bytes");
        let at = batch.samples[0].clone();
        let mut sample = |metric, value| {
            batch.samples.push(with(at.clone(), |r| (r.metric, r.value, r.unit) = (metric, value, "bytes")));
        };
        // The largest of 40 samples, and the high-water mark, which includes a peak between two of them.
        (0..40).for_each(|i| sample("process_resident_memory_bytes", 582_164_480.0 - f64::from(i)));
        if with_mark {
            sample("process_peak_resident_memory_bytes", 583_065_600.0);
        }
        write_run(dir.path(), &batch, &manifest, 1_000_000);
        Analysis::of(&Run::open(dir.path()).unwrap())
    };
    for (with_mark, bytes, source) in
        [(true, 583_065_600.0, "kernel's peak mark"), (false, 582_164_480.0, "largest sample")]
    {
        let analysis = shown(with_mark);
        let figure = &json::metrics(&analysis)["figures"]["peak_memory"];
        assert_eq!((figure["value"].as_f64(), figure["source"].as_str()), (Some(bytes), Some(source)));
        assert_eq!(figure["n"], 1, "one peak, not 40 samples");
        let text = terminal::summary(&analysis, &TerminalOptions::default());
        assert!(text.contains(source) && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(markdown::report(&analysis).contains(source));
        assert!(html::page(&analysis).contains(&source.replace('\'', "&#x27;")));
    }
}

#[test]
fn memory_for_keys_and_values_is_held_against_what_was_used_of_it() {
    let of = |used: &[f64]| {
        let dir = tempdir().unwrap();
        let (mut batch, manifest) = make(&Scenario::default());
        let at = batch.samples[0].clone();
        let mut sample = |metric, value| {
            let host =
                |r: &mut SampleRecord| (r.metric, r.value, r.unit, r.device) = (metric, value, "bytes", "host".into());
            batch.samples.push(with(at.clone(), host));
        };
        for used in used {
            sample(metric::KV_ALLOCATED, f64::from(96 << 20));
            sample(metric::KV_USED, *used);
        }
        write_run(dir.path(), &batch, &manifest, 1_000_000);
        Analysis::of(&Run::open(dir.path()).unwrap())
    };
    let mib = f64::from(1 << 20);
    let analysis = of(&[0.0, 12.0 * mib, 3.0 * mib]);
    let figures = &json::metrics(&analysis)["figures"];
    let value = |key: &str| (figures[key]["value"].as_f64(), figures[key]["n"].as_u64());
    assert_eq!(value("kv_allocated"), (Some(96.0 * mib), Some(3)));
    assert_eq!((value("kv_used"), value("kv_allocated_per_used").0), ((Some(12.0 * mib), Some(3)), Some(8.0)));
    let said = "at most 12.0 MiB held tokens: allocated ÷ used is 8.00.";
    for text in [markdown::report(&analysis), html::page(&analysis)] {
        assert!(text.contains(said), "{text}");
    }
    let text = terminal::summary(&analysis, &TerminalOptions::default());
    assert!(text.contains("allocated ÷ used"), "{text}");
    // Nothing was ever held; and without slots there is nothing to say.
    let (idle, plain) = (of(&[0.0]), of(&[]));
    assert_eq!(json::metrics(&idle)["figures"]["kv_used"]["value"], 0.0);
    assert!(json::metrics(&idle)["figures"].get("kv_allocated_per_used").is_none());
    for analysis in [&analysis, &idle, &plain] {
        let text = terminal::summary(analysis, &TerminalOptions::default());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
    assert!(markdown::report(&idle).contains("of which none held tokens"));
    assert!(
        json::metrics(&plain)["figures"].get("kv_allocated").is_none()
            && !markdown::report(&plain).contains("held tokens")
    );
}

#[test]
fn a_range_is_never_called_an_interval_of_95_percent() {
    // Five measured requests: no figure has an interval, each has a range.
    let analysis = analysis(&Scenario::default());
    let metrics = json::metrics(&analysis);
    for key in ["ttft", "tpot", "itl", "e2e"] {
        let figure = &metrics["figures"][key];
        assert!(figure["median_ci95"].is_null() && figure["range"].is_array(), "{figure}");
        assert_eq!(figure["range_of"], if key == "itl" { "unit_medians" } else { "samples" });
        assert_eq!((figure["units"].as_u64(), figure["p90"].is_null()), (Some(5), key != "itl"));
    }
    let texts =
        [terminal::summary(&analysis, &TerminalOptions::default()), markdown::report(&analysis), html::page(&analysis)];
    for text in &texts {
        assert!(!text.contains("95 %:") && text.contains("range: "), "{text}");
    }
    let six = self::analysis(&Scenario { requests: 7, ..Scenario::default() });
    let metrics = json::metrics(&six);
    assert!(metrics["figures"]["ttft"]["median_ci95"].is_array() && metrics["figures"]["ttft"]["range"].is_null());
    assert!(markdown::report(&six).contains("95 %: ") && !markdown::report(&six).contains("range: "));
}

#[test]
fn figures_agree_between_reports() {
    let analysis = analysis(&Scenario::default());
    let metrics = json::metrics(&analysis);
    let ttft = analysis.latency.ttft.as_ref().unwrap();
    assert_eq!(metrics["figures"]["ttft"]["median"], ttft.median);
    assert_eq!(metrics["figures"]["ttft"]["n"], 5, "six requests, one of them warm-up");
    assert_eq!(metrics["figures"]["ttft"]["label"], "measured");
    assert_eq!(metrics["figures"]["tpot"]["label"], "derived");
    assert!(metrics["figures"]["ttft"]["p99"].is_null(), "too few samples");
    assert_eq!(metrics["figures"]["itl"]["n"], 5 * 47);
    assert!(metrics["figures"]["itl"]["p99"].is_number());
    assert_eq!(metrics["figures"]["itl"]["samples"].as_array().unwrap().len(), 5 * 47);
    let shown = candlescope_schema::numbers::duration(ttft.median);
    assert!(terminal::summary(&analysis, &TerminalOptions::default()).contains(&shown));
    assert!(markdown::report(&analysis).contains(&shown));
    let page = html::page(&analysis);
    let (number, _) = shown.split_once(' ').unwrap();
    assert!(page.contains(number));
    let shares: f64 = metrics["operators"].as_array().unwrap().iter().map(|o| o["self_share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
}

#[test]
fn every_report_tells_the_layer_from_the_background_threads() {
    let analysis = analysis(&Scenario::default());
    let metrics = json::metrics(&analysis);
    let overhead = &metrics["overhead"];
    let whole = overhead["wall_ns"].as_f64().unwrap() * overhead["cores"].as_f64().unwrap();
    assert_eq!(overhead["background_cpu_share"], 3e6 / whole, "3 ms of wall time × cores");
    let texts =
        [terminal::summary(&analysis, &TerminalOptions::default()), markdown::report(&analysis), html::page(&analysis)];
    for text in texts {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("(estimate: registry and layer in a warm loop, 41 ns an interval"), "{text}");
        assert!(
            text.contains("in place it is two to three times that, and up to nine beside other programs)")
                && !text.contains("own part")
        );
        assert!(text.contains("3.00 ms CPU time of the background threads (measured), 0.1 % of 1.89 s × 2 cores"));
        assert!(text.contains("(TTFT)") && text.contains("(TPOT)") && text.contains("(ITL)"));
    }
    let mut unknown = analysis;
    unknown.manifest.overhead.background_cpu_ns = None;
    assert!(!terminal::summary(&unknown, &TerminalOptions::default()).contains("CPU time of the background"));
}

#[test]
fn the_page_shows_the_gpu_where_there_is_one() {
    let page = html::page(&analysis(&Scenario::on_gpu()));
    for id in ["gpu", "gpu-steps", "gpu-busy", "kernels", "kernel-paths", "copies", "energy", "devices"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    for id in ["operators", "gpu-steps", "gpu-busy", "kernels", "kernel-paths", "copies", "energy", "devices"] {
        let (_, section) = page.split_once(&format!("id=\"{id}\"")).unwrap();
        assert!(section.split_once("<table").unwrap().1.starts_with(" class=\"numbers sortable\""), "{id}");
    }
    assert!(page.contains("title=\"GPU self time ÷ GPU time of the outermost steps\""), "in the tree");
    // As many cells as headers, in every row of every sortable table.
    for table in page.split("class=\"numbers sortable\"").skip(1).map(|rest| rest.split("</table>").next().unwrap()) {
        let (head, body) = table.split_once("<tbody>").unwrap();
        let columns = head.matches("<th").count() - head.matches("<thead").count();
        for row in body.split("<tr>").skip(1) {
            assert_eq!(row.matches("<td").count() + row.matches("<th ").count(), columns, "{row}");
        }
    }
    let plain = html::page(&analysis(&Scenario::default()));
    for absent in ["id=\"gpu\"", "href=\"#gpu\"", "title=\"GPU self time", "GPU busy share</h3>"] {
        assert!(!plain.contains(absent), "{absent} without a GPU");
    }
}

#[test]
fn gpu_figures_agree_between_reports() {
    let analysis = analysis(&Scenario::on_gpu());
    let metrics = json::metrics(&analysis);
    let busy = analysis.gpu.busy.as_ref().unwrap().busy_share().unwrap();
    assert_eq!(metrics["figures"]["gpu_busy"]["value"], busy);
    assert_eq!(metrics["figures"]["gpu_busy"]["n"], 8, "recorded steps");
    assert_eq!(metrics["gpu"]["all"]["busy_share"], busy);
    let shown = candlescope_schema::numbers::percent(busy);
    let (gross, _) = analysis.energy.per_output_token().unwrap();
    assert_eq!(metrics["energy"]["joules_per_output_token"], gross);
    let token = candlescope_schema::numbers::joules(gross);
    let account = "adaptive within 2.0 % of step time: every interval of 72 steps, 216 steps in part, 0 not at all";
    for text in [
        terminal::summary(&analysis, &TerminalOptions { width: 400, ..Default::default() }),
        markdown::report(&analysis),
        html::page(&analysis),
    ] {
        for expected in [&shown, &token, account, "stream elapsed / wall", "launch-bound"] {
            let expected = expected.replace('/', "&#x2f;");
            let found = text.replace('/', "&#x2f;").contains(&expected);
            assert!(found, "{expected}");
        }
    }
    assert_eq!(metrics["gpu"]["account"]["timing"], "adaptive");
    let operator = &metrics["operators"][0];
    assert_eq!((operator["gpu_calls"].as_u64(), operator["calls"].as_u64()), (Some(53), Some(235)));
    // Its parent's total, divided in proportion to the measured intervals: close to mean × calls, and never above the
    // parent's.
    let alone = operator["gpu_total_ns"].as_f64().unwrap() / 53.0 * 235.0;
    assert!((operator["gpu_total_estimate_ns"].as_f64().unwrap() / alone - 1.0).abs() < 0.2, "{operator}");
    let shares: f64 =
        metrics["operators"].as_array().unwrap().iter().filter_map(|o| o["gpu_self_share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
}

#[test]
fn a_run_timed_by_marks_alone_claims_no_busy_share() {
    let analysis = analysis(&Scenario { recorded: 0, sensors: false, ..Scenario::on_gpu() });
    let metrics = json::metrics(&analysis);
    assert!(
        metrics["figures"]["gpu_busy"].is_null() && metrics["gpu"]["all"].is_null() && metrics["kernels"].is_null()
    );
    assert!(metrics["energy"].is_null() && metrics["devices"].is_null(), "not sampled is not zero");
    let text = terminal::summary(&analysis, &TerminalOptions::default());
    assert!(text.contains("stream elapsed / wall") && !text.contains("busy"), "{text}");
}

#[test]
fn a_report_is_whole_files() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::default());
    write_run(dir.path(), &batch, &manifest, 1_000_000);
    let report = write_report(dir.path(), &ReportOptions::default()).unwrap();
    let names: Vec<_> = report.files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    let expected =
        "report.html report.md operators.md metrics.json stakeholder_summary.md assumptions.md env.json inputs.yaml";
    assert_eq!(names.join(" "), expected);
    assert!(std::fs::read_to_string(&report.files[0]).unwrap().trim_end().ends_with("</html>"));
    let leftovers = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|e| e == "tmp"));
    assert_eq!(leftovers.count(), 0);
    // Making the report again changes nothing: it is the same run.
    let again = write_report(dir.path(), &ReportOptions::default()).unwrap();
    assert_eq!(again.metrics, report.metrics);
}
