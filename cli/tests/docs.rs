//! This program accepts the commands that the documentation shows.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn pages() -> Vec<PathBuf> {
    let folders = [
        "",
        "docs",
        "docs/measurements",
        "cli",
        "examples",
        "examples/server",
        "examples/notebooks",
        "grafana",
        "docs/agents/candlescope",
    ];
    let all = folders.iter().flat_map(|folder| fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder").flatten());
    all.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
}

/// Lines of code on a page, and inline code in its text.
fn code(page: &str) -> Vec<String> {
    let (mut found, mut fence) = (Vec::new(), None::<bool>);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(matches!(language, "" | "sh")),
            (Some(_), Some(_)) => fence = None,
            (None, Some(true)) => found.push(line.to_string()),
            (None, Some(false)) => {}
            (None, None) => found.extend(line.split('`').skip(1).step_by(2).map(str::to_string)),
        }
    }
    found
}

/// The words of each call of `candlescope` in a line, without the name: `candlescope nsys -- candlescope doctor` has
/// two.
fn calls(line: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let mut open = false;
    for word in line.split_whitespace() {
        if word == "candlescope" || word.ends_with("/candlescope") {
            calls.push(Vec::new());
            open = true;
        } else if word.starts_with('#') {
            break;
        } else if matches!(word, "--" | "|" | "&&" | ";" | ">") {
            open = false;
        } else if let Some(call) = calls.last_mut().filter(|_| open) {
            call.push(word.trim_matches(['(', ')', ',', '.', ';']).to_string());
        }
    }
    calls
}

/// Options in a text of help, with their dashes.
fn options(help: &str) -> BTreeSet<String> {
    let words = help.split(|c: char| c.is_whitespace() || matches!(c, ',' | '=' | '[' | '`'));
    words.filter(|word| word.starts_with('-') && word.len() > 1 && *word != "--").map(str::to_string).collect()
}

/// Options by command; those of `bench` are those of its suites together.
fn taken() -> BTreeMap<&'static str, BTreeSet<String>> {
    let commands = [
        "profile",
        "report",
        "overview",
        "analyze",
        "explain",
        "export",
        "record",
        "nsys",
        "ncu",
        "query",
        "views",
        "mcp",
        "archive",
        "prune",
        "summary",
        "demo",
        "completions",
        "man",
        "trend",
        "roofline",
        "load",
        "compare",
        "gate",
        "monitor",
        "doctor",
        "optimise",
        "journey",
    ];
    let suites = ["latency", "throughput", "seqlen", "suite", "variants", "kernels", "peaks"];
    let help = |command: &[&str]| {
        let help = ok(&[command, &["--help"]].concat());
        let (_, list) = help.split_once("Options:").expect("options");
        // Examples of `nsys` have options of other programs.
        let list = list.split("Examples:").next().unwrap_or_default();
        // An option is at the beginning of its line; its description may name others.
        options(&list.lines().filter(|line| line.trim_start().starts_with('-')).collect::<Vec<_>>().join("\n"))
    };
    let bench = suites.iter().flat_map(|suite| help(&["bench", suite])).collect();
    let several = [("bench", bench), ("tune", &help(&["tune", "batch"]) | &help(&["tune", "threads"]))];
    commands.into_iter().map(|command| (command, help(&[command]))).chain(several).collect()
}

#[test]
fn every_command_of_the_pages_is_taken() {
    let taken = taken();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for line in code(&text) {
            for call in calls(&line) {
                // The name alone, or a placeholder such as `COMMAND`.
                let Some(command) = call.first().filter(|word| word.chars().all(|c| c.is_ascii_lowercase())) else {
                    continue;
                };
                seen += 1;
                let used = options(&call[1..].join(" "));
                let known = taken.get(command.as_str());
                if !known.is_some_and(|known| used.is_subset(known)) {
                    wrong.push(format!("{}: {line}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not taken:\n{}", wrong.join("\n"));
    assert!(seen > 30, "commands are found on the pages: {seen}");
}

#[test]
fn calls_are_found() {
    let found =
        calls("CANDLESCOPE=a candlescope nsys -o x -- candlescope profile --cupti=5/500 # candlescope is not --this");
    assert_eq!(found[0], ["nsys", "-o", "x"]);
    assert_eq!(options(&found[1].join(" ")), BTreeSet::from(["--cupti".to_string()]));
}
