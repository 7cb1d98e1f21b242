//! Questions in SQL on the pages of the documents: blocks of SQL, and what `candlescope query` is asked in blocks of a shell.

use crate::common::ROOT;
use std::path::{Path, PathBuf};

/// What a question is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Runs,
    Archive,
    Study,
}

#[derive(Debug)]
pub struct PageQuery {
    /// Its page and its number there: `docs/load.md 0`.
    pub name: String,
    pub sql: String,
    pub of: Of,
}

/// Questions that other engines are not asked: the page, what is in no other question there, why.
const LEFT_OUT: [(&str, &str, &str); 2] = [
    ("docs/monitor.md", "from 'use.csv'", "it is of a file that the monitor writes, in words that only DuckDB has"),
    ("docs/agents/candlescope/SKILL.md", "FROM columns", "scripts make no table of the columns"),
];

/// All of them.
pub fn page_queries() -> Vec<PageQuery> {
    let (mut found, mut left_out) = (Vec::new(), [0; LEFT_OUT.len()]);
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        let page = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        let of_page = blocks(&text).into_iter().flat_map(|(language, text)| match language.as_str() {
            "sql" => vec![text.trim().trim_end_matches(';').to_string()],
            "sh" | "" => asked(&text),
            _ => Vec::new(),
        });
        for (at, sql) in of_page.enumerate() {
            if let Some(known) = LEFT_OUT.iter().position(|(of, part, _)| *of == page && sql.contains(part)) {
                left_out[known] += 1;
                continue;
            }
            let of = match () {
                () if sql.contains("FROM archived") => Of::Archive,
                () if sql.contains("FROM results") => Of::Study,
                () => Of::Runs,
            };
            found.push(PageQuery { name: format!("{page} {at}"), sql: unlimited(&sql).to_string(), of });
        }
    }
    assert_eq!(left_out, [1; LEFT_OUT.len()], "each of {LEFT_OUT:?} is on its page once");
    found
}

/// The pages of `docs` and of folders in it, and the first page of the repository.
fn pages() -> Vec<PathBuf> {
    let (mut found, mut folders) = (vec![Path::new(ROOT).join("README.md")], vec![Path::new(ROOT).join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Blocks of code with their languages.
fn blocks(page: &str) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), None::<(String, String)>);
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language.trim().to_string(), String::new())),
            (Some(_), Some(block)) => found.push(block),
            (None, Some((language, text))) => open = Some((language, format!("{text}{line}\n"))),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block without an end: {open:?}");
    found
}

/// What `candlescope query` is asked in a block of a shell. What it reads from its input is no text of the page.
fn asked(shell: &str) -> Vec<String> {
    let texts = shell.split("candlescope query ").skip(1).filter(|rest| !rest.starts_with("- "));
    let sql = texts.map(|rest| {
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let found = quote.and_then(|quote| rest[1..].split_once(quote));
        let (sql, _) = found.unwrap_or_else(|| panic!("no text in quotes: {rest}"));
        assert!(!sql.contains(['$', '`', '\\']), "the shell changes this text: {sql}");
        sql.to_string()
    });
    sql.collect()
}

/// Without a limit at its end: which of several equal rows it leaves is each engine's own.
fn unlimited(sql: &str) -> &str {
    let limited = sql.rsplit_once("LIMIT ").filter(|(_, n)| n.chars().all(|c| c.is_ascii_digit()));
    limited.map_or(sql, |(before, _)| before.trim_end())
}

#[test]
fn questions_of_the_pages_are_found() {
    let all = page_queries();
    for page in ["agents/candlescope/SKILL", "analysis", "criticality", "fleet", "host", "load", "sql"] {
        let page = format!("docs/{page}.md ");
        assert!(all.iter().any(|query| query.name.starts_with(&page)), "{page}: {all:#?}");
    }
    for of in [Of::Runs, Of::Archive, Of::Study] {
        assert!(all.iter().any(|query| query.of == of), "{of:?}: {all:#?}");
    }
    let shell = "candlescope query \"SELECT 'a'\n FROM b\" runs  # no\nx | candlescope query - runs\ncandlescope query 'SELECT 1' a";
    assert_eq!(asked(shell), ["SELECT 'a'\n FROM b", "SELECT 1"]);
    assert_eq!(
        blocks("a\n```sh\nb\n```\nc\n  ```\n  d\n  ```"),
        [("sh", "b\n"), ("", "  d\n")].map(|(a, b)| (a.into(), b.into()))
    );
    assert_eq!(["SELECT 1 LIMIT 10", "SELECT 1\nLIMIT n"].map(unlimited), ["SELECT 1", "SELECT 1\nLIMIT n"]);
}
