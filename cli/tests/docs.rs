//! This program accepts the commands that the documentation shows.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every page of the repository: those that lie in folders which tools make, and what reports of recorded runs wrote, are none.
fn pages() -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![Path::new(ROOT).to_path_buf(), Path::new(ROOT).join(".github")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let made = ["target", "runs", "results", "dist", "candlescope-demo", "recorded"].contains(&name.as_str());
            if entry.file_type().expect("its kind").is_dir() && !name.starts_with('.') && !made {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// Lines of code on a page, and inline code in its text.
fn code(page: &str) -> Vec<String> {
    let (mut found, mut fence) = (Vec::new(), None::<bool>);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(language), None) => fence = Some(matches!(language, "" | "sh" | "yaml")),
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

/// Options by command; those of `bench` and `tune` are those of the commands below them together.
fn taken() -> BTreeMap<String, BTreeSet<String>> {
    let help = |command: &[&str]| {
        let help = ok(&[command, &["--help"]].concat());
        let (_, list) = help.split_once("Options:").expect("options");
        // Examples of `nsys` have options of other programs.
        let list = list.split("Examples:").next().unwrap_or_default();
        // An option is at the beginning of its line; its description may name others.
        options(&list.lines().filter(|line| line.trim_start().starts_with('-')).collect::<Vec<_>>().join("\n"))
    };
    let of = |command: String| {
        let below = commands(&[command.as_str()]);
        let options = match below.is_empty() {
            true => help(&[command.as_str()]),
            false => below.iter().flat_map(|one| help(&[command.as_str(), one.as_str()])).collect(),
        };
        (command, options)
    };
    commands(&[]).into_iter().map(of).collect()
}

#[test]
fn every_command_of_the_pages_is_taken() {
    let taken = taken();
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for line in code(&text) {
            for call in calls(&line) {
                // The name alone, one of its own options, or a placeholder such as `COMMAND`.
                let is_command =
                    |word: &str| !word.starts_with('-') && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                let Some(command) = call.first().filter(|word| is_command(word)) else {
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
    assert!(seen > 200 && taken.len() > 25, "commands are found on the pages: {seen}, and in the help: {taken:?}");
}

#[test]
fn calls_are_found() {
    let found =
        calls("CANDLESCOPE=a candlescope nsys -o x -- candlescope profile --cupti=5/500 # candlescope is not --this");
    assert_eq!(found[0], ["nsys", "-o", "x"]);
    assert_eq!(options(&found[1].join(" ")), BTreeSet::from(["--cupti".to_string()]));
}
