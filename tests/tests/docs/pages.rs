//! Checks hand-written pages against what they describe.
//!
//! Their Rust is compiled as documentation tests of this package (`src/lib.rs`), their commands are checked against
//! `--help` in `cli/tests/docs.rs`, their SQL and Python run in `notebooks`.

use candlescope::env::{EnvOption, OPTIONS};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("the workspace")
}

/// Files of the repository that end in `ending`, except built or fetched ones.
fn files(ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().expect("its kind");
            if kind.is_dir() && !name.starts_with('.') && !matches!(name.as_str(), "target" | "runs" | "node_modules") {
                folders.push(path);
            } else if kind.is_file() && name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).expect("a file of the repository")
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    let mut inside = false;
    let outside = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// The names by which GitHub links to a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let heading = |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let name = |heading: String| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let times = seen.entry(name.clone()).and_modify(|n| *n += 1).or_insert(0);
        if *times == 0 { name } else { format!("{name}-{times}") }
    };
    prose(page).lines().filter_map(heading).map(name).collect()
}

/// Targets of the links in a text: `[words](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

/// How addresses of this repository's files begin.
const OURS: [&str; 2] = [
    "https://github.com/candlescope/candlescope/blob/main/",
    "https://raw.githubusercontent.com/candlescope/candlescope/main/",
];

/// It is also the page of a package whose folder is another: there, links by path lead nowhere.
#[test]
fn the_readme_has_no_links_by_path() {
    let manifest = read("sdk/candlescope/Cargo.toml");
    assert!(manifest.contains("readme = \"../../README.md\""));
    let readme = read("README.md");
    let by_path: Vec<&str> = links(&readme).filter(|link| !link.contains("://") && !link.starts_with('#')).collect();
    assert!(by_path.is_empty(), "{by_path:?}");
    assert!(links(&readme).filter(|link| OURS.iter().any(|start| link.starts_with(start))).count() > 10);
}

#[test]
fn every_link_inside_the_repository_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in files(".md") {
        let text = fs::read_to_string(&page).expect("a page");
        let ours = |link: &str| OURS.iter().any(|start| link.starts_with(start));
        let inside = |link: &&str| ours(link) || !(link.contains("://") || link.starts_with("mailto:"));
        for link in links(&prose(&text)).filter(inside) {
            let absolute = OURS.iter().find_map(|start| link.strip_prefix(start));
            let (page, link) = absolute.map_or((page.clone(), link), |inside| (root().join("README.md"), inside));
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let known = match anchor.filter(|_| target.extension().is_some_and(|e| e == "md")) {
                Some(anchor) => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
                None => target.exists(),
            };
            if !known {
                wrong.push(format!("{}: {link}", page.strip_prefix(root()).expect("inside").display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links to nothing:\n{}", wrong.join("\n"));
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# The variable `CANDLESCOPE`\n## A, b: c\n```sh\n# no heading\n```\n## A, b: c\n";
    let expected = ["the-variable-candlescope", "a-b-c", "a-b-c-1"].map(String::from);
    assert_eq!(anchors(page), BTreeSet::from(expected));
    assert_eq!(links("[a](b.md#c) and ![d](e.png \"title\")").collect::<Vec<_>>(), ["b.md#c", "e.png"]);
}

/// The part of a page below a heading, to the next one of the same level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    let level = heading.split(' ').next().unwrap_or_default();
    rest.split(&format!("\n{level} ")).next().unwrap_or_default()
}

/// What `make book` shows: a page that is not listed is not in the book.
#[test]
fn the_summary_has_every_page_once() {
    let folder = root().join("docs");
    let name = |page: PathBuf| page.strip_prefix(&folder).ok().map(|page| page.to_string_lossy().into_owned());
    let mut pages: Vec<String> =
        files(".md").into_iter().filter_map(name).filter(|page| page != "SUMMARY.md").collect();
    let summary = read("docs/SUMMARY.md");
    let mut listed: Vec<String> = links(&summary).map(str::to_string).collect();
    pages.sort();
    listed.sort();
    let missing: Vec<&String> = pages.iter().filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
    assert_eq!(listed, pages, "docs/SUMMARY.md names a page twice, or one that is not there");
}

#[test]
fn newcomers_are_shown_the_same_five_pages() {
    let five = |page: &str, heading: &str| {
        let text = read(page);
        let names = links(section(&text, heading)).take(5).filter_map(|link| link.rsplit('/').next());
        let names: Vec<String> = names.map(str::to_string).collect();
        names
    };
    let expected = five("docs/SUMMARY.md", "# Five pages to begin with");
    assert_eq!(expected.len(), 5);
    assert_eq!(five("docs/README.md", "## Five pages to begin with"), expected);
    assert_eq!(five("README.md", "## Where to go next"), expected);
}

/// The cells of a table's rows, without its head.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The inline code in a cell.
fn codes(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_readme_has_every_feature() {
    let manifest = read("sdk/candlescope/Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let features: BTreeMap<&str, &str> =
        features.split("\n[").next().unwrap_or_default().lines().filter_map(|line| line.split_once(" = ")).collect();
    let on: BTreeSet<&str> = features["default"].split('"').skip(1).step_by(2).collect();

    let readme = read("README.md");
    let rows = rows(section(&readme, "## Use it in your program"));
    let said: BTreeSet<&str> = rows.iter().filter_map(|row| codes(row[0]).next()).collect();
    assert_eq!(said, features.keys().copied().filter(|name| *name != "default").collect());
    for row in rows {
        let name = codes(row[0]).next().expect("a feature");
        assert_eq!(row[1] == "yes", on.contains(name), "whether `{name}` is on by default");
    }
}

/// The methods of the builder say which keys of the variable are the same.
#[test]
fn the_reference_has_a_method_for_every_key_of_the_variable() {
    let page = read("docs/reference.md");
    let rows = rows(section(&page, "## Options in code"));
    let same = rows.iter().filter_map(|row| row.get(2)).flat_map(|cell| codes(cell));
    // A cell with `|` in it is cut: it is about methods without a key.
    let said: BTreeSet<&str> = same.map(|code| code.trim_end_matches('=')).filter(|code| !code.is_empty()).collect();
    assert_eq!(said, OPTIONS.iter().map(EnvOption::key).collect());
}

/// `cargo binstall` takes an archive by a name and a program by a place in it: both are those of what a release makes.
#[test]
fn archives_are_called_as_binstall_looks_for_them() {
    let manifest = read("cli/Cargo.toml");
    let (_, binstall) = manifest.split_once("[package.metadata.binstall]").expect("says where archives are");
    let name = "candlescope-{ version }-{ target }";
    assert!(binstall.contains(&format!("/releases/download/v{{ version }}/{name}{{ archive-suffix }}")), "{binstall}");
    assert!(binstall.contains(&format!("bin-dir = \"{name}/{{ bin }}{{ binary-ext }}\"")), "{binstall}");
    let script = read("scripts/dist.sh");
    assert!(script.contains("name=candlescope-$version-$target\n"));
    assert!(script.contains("$name.tar.gz") && script.contains("$name.zip"));
    assert!(read(".github/workflows/release.yml").contains("dist/candlescope-*"));
}
