//! What pages say to people: the one for who decides, and the slow requests.

use super::common::*;
use super::{analysed, findings, is_whole, metrics_of, recorded, stalls};
use serde_json::Value;
use std::path::Path;

pub(super) fn page(run: &Path, name: &str) -> String {
    // A program of its own writes no reports.
    if !run.join(name).exists() {
        ok(&["report", run.to_str().expect("UTF-8")]);
    }
    std::fs::read_to_string(run.join(name)).unwrap_or_else(|e| panic!("{}: {e}", run.join(name).display()))
}

/// A text without what stands in parentheses, or between backticks.
fn without_asides(text: &str) -> String {
    let (mut depth, mut code, mut out) = (0, false, String::new());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '`' => code = !code,
            _ if depth == 0 && !code => out.push(c),
            _ => {}
        }
    }
    out
}

#[test]
fn the_page_for_who_decides_says_what_to_change() {
    let mut with_changes = 0;
    for run in recorded().all() {
        let text = page(run, "stakeholder_summary.md");
        let todo = text.split("## What to do\n").nth(1).expect("the part");
        let object = analysed(run);
        let found = findings(&object);
        assert!(found.is_empty() || !todo.contains("no finding asks for anything"), "{todo}");
        let changes: Vec<&str> = todo.lines().filter(|line| line.contains("; confidence ")).collect();
        assert_eq!(changes.len(), found.len().min(3), "{}: {todo}", run.display());
        for (line, finding) in changes.iter().zip(found) {
            with_changes += 1;
            // The gain with its range, how sure it is, and no path that only who knows the code understands.
            let level = finding["confidence"]["level"].as_str().unwrap();
            assert!(line.contains(" % (") && line.contains(" to ") && line.ends_with(level), "{line}");
            assert!(!line.contains("NaN"), "{line}");
            let plain = without_asides(line);
            assert!(!plain.contains('/') && !plain.contains('_'), "{plain}");
        }
        // What limits it is said in words, too.
        let limit = text.split("## What limits it\n").nth(1).unwrap().split("\n## ").next().unwrap();
        assert!(!without_asides(limit.lines().find(|line| line.starts_with("- ")).unwrap()).contains('/'), "{limit}");
    }
    assert!(with_changes >= 3, "{with_changes}");
    let unset = page(&recorded().unset, "stakeholder_summary.md");
    assert!(unset.contains("RAYON_NUM_THREADS") && unset.contains("off the time of each further token"), "{unset}");
}

/// The bottleneck says what bounds a phase; the tables say which roof is the lower one, however far below it a point stays.
#[test]
fn a_phase_is_bound_by_one_thing() {
    let text = ok(&["roofline", recorded().batch.to_str().expect("UTF-8")]);
    let (before, after) = text.split_once("\nPhases\n").unwrap_or_else(|| panic!("{text}"));
    assert!(before.contains("Bottleneck") && before.contains("bound by"), "{text}");
    let phases = after.split("\nOperators").next().unwrap();
    assert!(phases.contains("lower roof") && !phases.contains("bound by"), "{text}");
    // The sentence may be too long for one line.
    let lines = before.split("Bottleneck").nth(1).unwrap().lines();
    let lines = lines.skip_while(|line| !line.trim_start().starts_with("decode")).take_while(|line| !line.is_empty());
    let row = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    assert!(row.contains("mostly that of "), "{text}");
}

#[test]
fn slow_requests_are_named_and_taken_apart() {
    let mut with_stalls = 0;
    for run in [&recorded().unset, &recorded().one, &recorded().batch, &recorded().stalled] {
        let metrics = metrics_of(run);
        let rows = metrics["requests"]["rows"].as_array().unwrap();
        let whole = |row: &&Value| !row["parts"].is_null();
        assert!(is_whole(run), "{}", run.display());
        for row in rows.iter().filter(whole) {
            let parts = &row["parts"];
            let sum: u64 = ["queue_ns", "prefill_ns", "decode_ns", "other_steps_ns", "between_ns"]
                .iter()
                .map(|part| parts[part].as_u64().unwrap_or_else(|| panic!("{row}")))
                .sum();
            assert_eq!(Some(sum), row["dur_ns"].as_u64(), "{row}");
            assert!(parts["decode_ns"].as_u64() > Some(0) && parts["prefill_ns"].as_u64() > Some(0), "{row}");
        }
        // The slowest of those that count, the slowest first.
        let duration = |row: &Value| row["dur_ns"].as_u64().unwrap();
        let measured = rows.iter().filter(whole).filter(|row| row["warmup"] == false);
        let mut all: Vec<u64> = measured.map(duration).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let slow = metrics["slow_requests"]["rows"].as_array().unwrap();
        assert_eq!(slow.iter().map(duration).collect::<Vec<_>>(), all[..slow.len()], "{slow:?}");
        assert_eq!(slow.len(), 5.min(all.len()));
        with_stalls += stalls(run);
        let (html, markdown) = (page(run, "report.html"), page(run, "report.md"));
        for text in [&html, &markdown] {
            assert!(text.contains("Slow requests"), "{}", run.display());
        }
    }
    // While other threads kept all processors busy, single steps stalled.
    assert!(with_stalls > 0);
}

/// What a reader sees of a page: no styles, scripts, frames or attributes, and no text as a terminal shows it.
fn seen(html: &str) -> String {
    let mut text = html.to_string();
    for (from, to) in
        [("<style>", "</style>"), ("<script>", "</script>"), ("<pre>", "</pre>"), ("<iframe", "</iframe>")]
    {
        while let Some(start) = text.find(from) {
            let end = text[start..].find(to).expect("its end") + start + to.len();
            text.replace_range(start..end, "");
        }
    }
    text
}

#[test]
fn gains_are_drawn_on_one_scale_and_names_are_no_backticks() {
    let mut drawn = 0;
    for run in recorded().all() {
        let html = seen(&page(run, "report.html"));
        assert!(!html.contains('`'), "{}: {}", run.display(), html.split('`').nth(1).unwrap_or_default());
        let Some(section) = html.split("<ol class=\"advice\">").nth(1) else { continue };
        let bars = section.split("</ol>").next().unwrap().split("<i class=\"own\" style=\"width:").skip(1);
        let widths = bars.map(|bar| bar.split('%').next().unwrap().parse::<f64>().unwrap());
        for (width, finding) in widths.zip(findings(&analysed(run))) {
            let of = |key: &str, part: &str| finding[key][part].as_f64().unwrap();
            let expected = of("gain", "mid") * of("coverage", "share_of_time") * 100.0;
            assert!((width - expected).abs() < 0.5, "{width} for {expected}: {finding}");
            drawn += 1;
        }
    }
    assert!(drawn > 0);
}
