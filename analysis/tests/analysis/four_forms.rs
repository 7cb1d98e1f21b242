//! What a page and Markdown show of recorded runs is in JSON, too.

use candlescope_compare::{CompareOptions, RunFacts, Side, compare};
use candlescope_document::{Document, html, json, markdown};
use candlescope_figures::RequestAccount;
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_predict::roofline::{RunRoofline, Thresholds};
use candlescope_reader::Run;
use candlescope_report::{ReportOptions, overview, roofline, write_report_of, write_request};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Runs of a GPU with marks, kernels, replays, call stacks and several threads, and one of a CPU.
fn recorded() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["decode", "host", "replays", "threads", "unmodified"];
    let runs = names.map(|name| here.join("../cli/tests/recorded/gpu").join(name));
    runs.into_iter().chain([here.join("tests/fixtures/schema-v1")]).collect()
}

/// Words of the drawers.
const OF_FORMS: &[&str] = &[
    "verdict",
    "candlescope",
    "expand all",
    "collapse",
    "evidence",
    "of a step",
    "gross",
    "recorded steps",
    "there is nothing to draw",
    // The heading of what JSON has with the verdict.
    "findings",
    // Where the findings are that a page leaves out; JSON has all of them.
    "candlescope analyze --top 0",
];
/// What stands before a text that JSON has.
const BEFORE: &[&str] = &["n ", "step ", "confidence ", "rests on "];
/// Between texts that one line of a form has together.
const BETWEEN: &[&str] = &[": ", " (", "(", ")", ". ", ", ", "; ", "…", "\u{2003}"];

/// Every line of a text of the object, and what forms put together of two.
fn said(object: &Value, out: &mut BTreeSet<String>) {
    match object {
        Value::String(text) => out.extend(text.lines().map(plain)),
        Value::Array(list) => list.iter().for_each(|one| said(one, out)),
        Value::Object(fields) => {
            for behind in ["remark", "percent"] {
                let two = fields.get("name").and_then(Value::as_str).zip(fields.get(behind).and_then(Value::as_str));
                out.extend(two.map(|(name, behind)| plain(&format!("{name} {behind}"))));
            }
            fields.values().for_each(|one| said(one, out));
        }
        _ => {}
    }
}

/// Without what marks code and emphasis.
fn plain(text: &str) -> String {
    text.replace(['`', '*', 'ˋ'], "").to_lowercase()
}

fn unescaped(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&emsp;", "\u{2003}"), ("&amp;", "&")];
    entities.iter().fold(text.to_string(), |text, (entity, letter)| text.replace(entity, letter))
}

/// Texts of Markdown: of lines, and of the cells of tables.
fn of_markdown(text: &str) -> Vec<String> {
    let (mut out, mut fixed) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            fixed = !fixed;
        } else if fixed {
            out.push(line.to_string());
        } else {
            // A bar of a text has a backslash before it.
            let line = line.replace("\\|", "\u{1}");
            let line = line.trim_start_matches('#').trim_start();
            let line = line.strip_prefix("- ").unwrap_or(line);
            let numbered = line.split_once(". ").filter(|(number, _)| number.parse::<u32>().is_ok());
            let line = numbered.map_or(line, |(_, rest)| rest);
            for cell in line.split('|') {
                // A link, whose target JSON has as it is.
                let text = cell.split_once("](").map_or(cell.to_string(), |(text, rest)| {
                    text.replacen('[', "", 1) + rest.split_once(')').map_or("", |(_, after)| after)
                });
                out.push(unescaped(
                    &text.replace('\u{1}', "|").replace("\\\\", "\u{2}").replace('\\', "").replace('\u{2}', "\\"),
                ));
            }
        }
    }
    out
}

/// Texts of a page between its tags, without drawings.
fn of_page(page: &str) -> Vec<String> {
    let (_, page) = page.split_once("<header>").unwrap();
    let (page, _) = page.rsplit_once("<footer").unwrap();
    let mut text = page.to_string();
    while let Some((before, rest)) = text.split_once("<svg") {
        text = format!("{before}{}", rest.split_once("</svg>").unwrap().1);
    }
    text.split('<').filter_map(|tag| tag.split_once('>')).flat_map(|(_, text)| text.lines().map(unescaped)).collect()
}

/// Texts that JSON does not have.
fn lacking(texts: &BTreeSet<String>, all: &str) -> Vec<String> {
    let has = |text: &str| all.contains(text) || OF_FORMS.contains(&text);
    let lacks = |text: &String| {
        let text = plain(text);
        let text = text.trim();
        // Of rows that a form leaves out it says how many there are; a rule has dashes.
        let more = text
            .split_once(" more")
            .is_some_and(|(number, _)| number.trim_start_matches("… and ").replace(',', "").parse::<u64>().is_ok());
        if has(text) || more || text.chars().all(|c| "-: –".contains(c)) {
            return false;
        }
        let parts =
            BETWEEN.iter().fold(vec![text], |parts, at| parts.into_iter().flat_map(|part| part.split(at)).collect());
        !parts
            .into_iter()
            .map(|part| part.trim().trim_end_matches([':', '.', ',', ';']))
            .all(|part| has(part) || BEFORE.iter().any(|before| part.strip_prefix(before).is_some_and(has)))
    };
    texts.iter().filter(|text| lacks(text)).cloned().collect()
}

/// Holds what people read against the JSON, which it returns.
fn held(name: &str, document: &Document) -> Value {
    let object = json::draw(document);
    let mut all = BTreeSet::new();
    said(&object, &mut all);
    let all = all.into_iter().collect::<Vec<_>>().join("\n");
    for (form, texts) in
        [("Markdown", of_markdown(&markdown::draw(document))), ("page", of_page(&html::page(document)))]
    {
        let texts: BTreeSet<String> = texts.into_iter().collect();
        assert!(texts.len() > 5, "{name}, {form}: {texts:?}");
        assert_eq!(lacking(&texts, &all), Vec::<String>::new(), "{name}, {form}: what JSON lacks");
    }
    object
}

/// How many objects have a field.
fn with(object: &Value, key: &str) -> usize {
    match object {
        Value::Array(list) => list.iter().map(|one| with(one, key)).sum(),
        Value::Object(fields) => {
            usize::from(fields.contains_key(key)) + fields.values().map(|one| with(one, key)).sum::<usize>()
        }
        _ => 0,
    }
}

#[test]
fn what_is_shown_of_recorded_runs_is_in_every_form() {
    let out = tempfile::tempdir().unwrap();
    let options = ReportOptions { out: Some(out.path().into()), ..ReportOptions::default() };
    let mut requests = 0;
    let mut of_all = [0; 3];
    for dir in recorded() {
        let run = Run::open(&dir).unwrap();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let report = held(&name, &write_report_of(&run, &options).unwrap().document);
        assert!(with(&report, "unit") > 20, "{name}: {report}");
        for (all, key) in of_all.iter_mut().zip(["gauge", "stacks", "plots"]) {
            *all += with(&report, key);
        }
        let analysis = analyze(&run, &AnalyzeOptions::default()).analysis;
        held(&name, &overview::document(&overview::overview(&analysis)));
        let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
        held(&name, &roofline::dynamic_document(std::slice::from_ref(&measured), None));
        let last = analysis.latency.requests.last();
        if let Some(account) = last.and_then(|last| RequestAccount::of(&run, last.request).ok()) {
            held(&name, &write_request(&run, &account, &options).unwrap().document);
            requests += 1;
        }
    }
    assert!(requests > 0 && of_all.iter().all(|n| *n > 1), "{requests} {of_all:?}");
}

#[test]
fn what_is_shown_of_a_comparison_is_in_every_form() {
    let side =
        |dir: &Path| Side { name: dir.display().to_string(), runs: vec![RunFacts::of(&Run::open(dir).unwrap())] };
    let runs = recorded();
    let options = CompareOptions::default().allow(vec!["all".to_string()]);
    let comparison = compare(&side(&runs[0]), &side(&runs[2]), &options).unwrap();
    let object = held("decode and replays", &candlescope_report::compare::document(&comparison));
    assert_eq!(with(&object, "stacks"), 3, "A, B and the difference: {object}");
}

#[test]
fn a_text_that_json_lacks_is_noticed() {
    let all = "a path\n12.5 ms\n";
    let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<BTreeSet<_>>();
    let none = texts(&["A path (12.5 ms)", "3 more paths, in metrics.json.", "–", "---:", "step a path"]);
    assert_eq!(lacking(&none, all), Vec::<String>::new());
    assert_eq!(lacking(&texts(&["a path", "a path (13 ms)", "another"]), all), ["a path (13 ms)", "another"]);
    assert_eq!(of_markdown("| a \\| b | [c](d.html) |\n1. One. Two"), ["", " a | b ", " c ", "", "One. Two"]);
    assert_eq!(of_page("<header><h1>a &amp; b</h1><svg><text>no</text></svg><footer>"), ["a & b"]);
}
