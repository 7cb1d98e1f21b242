//! What is promised: the public names of the crates that promise theirs, taken from their sources, are those of the lists in
//! `docs/api`, they are few, and every other crate says that it promises nothing. `UPDATE_DOCS=1` updates the lists.
#![allow(missing_docs, reason = "a test")]
#[path = "public_api/across.rs"]
mod across;
#[path = "public_api/items.rs"]
mod items;
#[path = "public_api/library.rs"]
mod library;

use across::{Crates, Definer, Kind, in_code};
use cargo_metadata::{MetadataCommand, Package};
use library::Library;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Those that promise what they show, with the most types, traits and functions that each may promise. A new one is kept
/// until a version that may break programs: raise a number only for what users need.
const PROMISED: [(&str, usize); 5] = [
    ("candlescope", 62),
    ("candlescope-markers", 16),
    ("candlescope-schema", 42),
    ("candlescope-models", 52),
    ("candlescope-analysis", 18),
];

/// Those that show what the facade names of them, which is promised under the facade's name, and hide the rest.
const BEHIND: [&str; 3] = ["candlescope-core", "candlescope-collectors", "candlescope-exporters"];

/// What every other crate says of itself: in the first paragraphs of its README and of its documentation, and in `Cargo.toml`.
const PART: &str = "may change with every release";

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The crates that can be published.
fn published() -> Vec<Package> {
    let metadata = MetadataCommand::new().manifest_path(workspace().join("Cargo.toml")).no_deps().exec();
    let packages = metadata.expect("metadata").packages.into_iter();
    packages.filter(|package| package.publish != Some(Vec::new())).collect()
}

fn dir(package: &Package) -> PathBuf {
    package.manifest_path.parent().expect("a directory").as_std_path().to_path_buf()
}

fn crates() -> Crates {
    let packages = published();
    Crates::read(packages.iter().map(|package| (package.name.as_str(), dir(package))))
}

/// What stands behind the facade is described under the facade's names, what layers say of their work under theirs, and a
/// function where it is promised.
fn is_described(of: &str, kind: Kind) -> bool {
    let has_list = PROMISED.iter().any(|(name, _)| in_code(name) == of);
    BEHIND.iter().chain(&["candlescope-work"]).any(|name| in_code(name) == of) || (kind == Kind::Function && !has_list)
}

/// Holds a file of `docs/api` to what it should be: the lines that differ.
fn differences(name: &str, found: &str) -> String {
    let file = workspace().join("docs/api").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, found).expect("docs/api can be written");
    }
    let listed = std::fs::read_to_string(&file).unwrap_or_default();
    let (found, listed): (BTreeSet<_>, BTreeSet<_>) = (found.lines().collect(), listed.lines().collect());
    let added = found.difference(&listed).map(|line| format!("{name}: + {line}\n"));
    added.chain(listed.difference(&found).map(|line| format!("{name}: - {line}\n"))).collect()
}

/// What a crate promises that no other list has, each once.
fn promised(crates: &Crates, name: &str) -> BTreeSet<Definer> {
    let others: Vec<String> =
        PROMISED.iter().map(|(other, _)| in_code(other)).filter(|o| *o != in_code(name)).collect();
    let names = crates.names(&in_code(name), &is_described).into_iter().filter_map(|name| name.of);
    names.filter(|(there, _)| !others.contains(there)).collect()
}

fn counts(crates: &Crates, name: &str) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for of in promised(crates, name) {
        *counts.entry(crates.kind(&of)).or_default() += 1;
    }
    counts
}

#[test]
fn public_names_are_those_of_the_list() {
    let crates = crates();
    let mut changed = String::new();
    for (name, _) in PROMISED {
        let names = crates.names(&in_code(name), &is_described);
        let lines: Vec<String> = names.into_iter().flat_map(|name| name.lines).collect();
        changed += &differences(&format!("{name}.txt"), &(lines.join("\n") + "\n"));
    }
    assert!(
        changed.is_empty(),
        "the public API changed; if that is meant, UPDATE_DOCS=1 lists it in docs/api:\n{changed}"
    );
    let files = std::fs::read_dir(workspace().join("docs/api")).expect("docs/api");
    let files = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let lists: BTreeSet<String> = files.filter(|file| file.ends_with(".txt")).collect();
    let known: BTreeSet<String> = PROMISED.iter().map(|(name, _)| format!("{name}.txt")).collect();
    assert_eq!(lists, known, "what has no promise has no list");
}

/// The page that says how much is promised, with the most that may be.
#[test]
fn promised_names_are_counted_and_few() {
    let crates = crates();
    let mut rows = String::new();
    let mut sums = [0; 3];
    let mut too_many = Vec::new();
    for (name, most) in PROMISED {
        let counts = counts(&crates, name);
        let of = |kind| counts.get(&kind).copied().unwrap_or(0);
        let row = [Kind::Type, Kind::Function, Kind::Constant].map(of);
        for (sum, n) in sums.iter_mut().zip(row) {
            *sum += n;
        }
        let _ = writeln!(rows, "| [{name}]({name}.txt) | {} | {} | {} |", row[0], row[1], row[2]);
        if row[0] + row[1] > most {
            too_many.push(format!("{name} promises {} types and functions, {most} at most", row[0] + row[1]));
        }
    }
    let _ = writeln!(rows, "| together | {} | {} | {} |", sums[0], sums[1], sums[2]);
    let parts = published().len() - PROMISED.len() - BEHIND.len() - 1;
    let page = format!(
        "# What is promised\n\nA list for each crate that promises its public names, and below a type its public parts and methods. \
         A test holds the\nlists to the sources (`tests/tests/public_api.rs`), keeps the number of promised names from growing \
         unnoticed, and made\nthis table:\n\n| list | types and traits | functions | constants |\n|---|---|---|---|\n{rows}\n\
         What the facade shows of `candlescope-core`, `candlescope-collectors` and `candlescope-exporters` is in its list, under \
         the\nfacade's names; all else in these three is hidden from documentation. `candlescope-analysis` promises its names and \
         the\nsignatures of its functions, and not the fields of what they return: figures that must keep their names are the keys of \
         the\nJSON. Of the command line, its commands and options are promised. The other {parts} crates that are published are parts \
         of\ncandlescope without promises of their own, and say so.\n\nHidden names (`#[doc(hidden)]`) are for crates of this \
         workspace: they may change or go with every release.\n"
    );
    let changed = differences("README.md", &page);
    assert!(changed.is_empty(), "docs/api/README.md is out of date, UPDATE_DOCS=1 writes it:\n{changed}");
    assert!(too_many.is_empty(), "{}", too_many.join("\n"));
}

/// Users need few names daily; the rest is in modules, each at one path.
#[test]
fn the_crate_that_users_name_has_few_names_at_its_root_and_each_once() {
    let list = Library::read(&workspace().join("sdk/candlescope/src/lib.rs")).list();
    let lines = list.lines().filter(|line| !line.contains(": .. "));
    let paths: Vec<&str> = lines.filter_map(|line| line.split(": ").next()?.split(" = ").next()).collect();
    let at_root = paths.iter().filter(|path| !path.contains("::")).count();
    assert!(at_root <= 29, "{at_root} names at the root: put new ones into a module");
    let mut seen = BTreeSet::new();
    for name in paths.iter().filter_map(|path| path.rsplit("::").next()) {
        assert!(seen.insert(name), "`{name}` has two paths");
    }
}

#[test]
fn what_stands_behind_the_facade_shows_what_the_facade_names_and_no_more() {
    let crates = crates();
    let facade = crates.names("candlescope", &is_described);
    let hidden = facade.iter().filter(|name| name.of.is_none()).map(|name| name.lines.join("\n"));
    let hidden: Vec<String> = hidden.filter(|line| line.contains("= candlescope")).collect();
    assert!(hidden.is_empty(), "the facade shows what is hidden where it is defined:\n{}", hidden.join("\n"));
    let named: BTreeSet<Definer> = facade.into_iter().filter_map(|name| name.of).collect();
    let mut more = Vec::new();
    for of in BEHIND.map(in_code) {
        let shown = crates.names(&of, &|_, _| false).into_iter().filter_map(|name| name.of);
        let own = shown.filter(|shown| shown.0 == of && crates.kind(shown) != Kind::Module);
        more.extend(own.filter(|own| !named.contains(own)).map(|(of, path)| format!("{of} {path}")));
    }
    assert!(more.is_empty(), "`#[doc(hidden)]`, `pub(crate)`, or a name in `candlescope`:\n{}", more.join("\n"));
}

/// The first paragraph of a text in which lines begin with `mark`, without titles.
fn first_paragraph(text: &str, mark: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix(mark)).map(str::trim);
    let lines = lines.skip_while(|line| line.is_empty() || line.starts_with('#'));
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_other_crate_says_that_it_promises_nothing() {
    let promised: BTreeSet<&str> = PROMISED.iter().map(|(name, _)| *name).chain(BEHIND).collect();
    let mut wrong = Vec::new();
    for package in published() {
        let name = package.name.as_str();
        let readme = read(package.readme().unwrap_or_else(|| panic!("{name} has no README")));
        let source = read(dir(&package).join("src/lib.rs"));
        let is_readme = source.starts_with("#![doc = include_str!(\"../README.md\")]");
        let docs = if is_readme { first_paragraph(&readme, "") } else { first_paragraph(&source, "//!") };
        let mut places = vec![("src/lib.rs", docs)];
        // Of the command line, the library alone is a part: its commands and options are promised.
        if name != "candlescope-cli" {
            places.push(("README.md", first_paragraph(&readme, "")));
            places.push(("Cargo.toml", package.description.clone().unwrap_or_default()));
        }
        let wrongly = places.into_iter().filter(|(_, text)| text.contains(PART) == promised.contains(name));
        wrong.extend(wrongly.map(|(place, text)| format!("{place} of {name}: {text}")));
    }
    assert!(wrong.is_empty(), "parts say that each {PART}, and only they:\n{}", wrong.join("\n"));
}

/// What is compared with the newest release: names that are promised, and no others.
#[test]
fn the_check_of_versions_looks_at_what_is_promised() {
    let makefile = read(workspace().join("Makefile"));
    let line = makefile.lines().find_map(|line| line.strip_prefix("PROMISED = ")).expect("the Makefile lists them");
    let checked: BTreeSet<&str> = line.split_whitespace().collect();
    assert_eq!(checked, PROMISED.iter().map(|(name, _)| *name).chain(BEHIND).collect());
    assert!(makefile.contains("cargo semver-checks $(foreach c,$(PROMISED),-p $(c))"));
}

#[test]
fn the_list_sees_what_is_public() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(PathBuf::from(dir.path()).join(name), text).unwrap();
    write(
        "lib.rs",
        "mod a;\npub mod b { pub struct Far { pub x: u8, y: u8 } impl Far { pub fn go(&self) {} fn no(&self) {} } struct Hidden; }\n\
         pub use a::{Near, Other as Another};\n#[cfg(feature = \"f\")] pub use candle_core::Tensor;\n#[cfg(test)] pub mod tests {}\n\
         #[doc(hidden)] pub fn secret() {}\npub fn plain(a: &str) -> Vec<u8> { vec![] }",
    );
    write(
        "a.rs",
        "#[non_exhaustive] pub enum Near { A, B { c: u8 } }\npub struct Other;\npub struct Unreached;\nimpl Near { pub fn new() -> Self { Near::A } }\nmod c;",
    );
    std::fs::create_dir(dir.path().join("a")).unwrap();
    write("a/c.rs", "use crate::a::Near;\nimpl Near { pub fn elsewhere() {} }");
    let list = Library::read(&dir.path().join("lib.rs")).list();
    let expected = "Another: struct\nNear: #[non_exhaustive] enum\nNear: .. A\nNear: .. B { c: u8 }\nNear: .. fn new() -> Self\nNear: .. fn elsewhere()\n\
        Tensor = candle_core::Tensor\nb: mod\nb::Far: struct\nb::Far: .. x: u8\nb::Far: .. fn go(&self)\n\
        plain: fn plain(a: &str) -> Vec<u8>\n";
    assert_eq!(list, expected);
}

#[test]
fn a_crate_shows_what_another_defines_unless_it_is_hidden_there() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write(
        "core/src/lib.rs",
        "mod a;\n#[doc(hidden)] pub use a::Ours;\npub use a::Theirs;\n\
         pub mod m { pub fn f() {} #[doc(hidden)] pub fn g() {} }\n#[doc(hidden)] pub mod n { pub const N: u8 = 1; }",
    );
    write(
        "core/src/a.rs",
        "pub struct Ours;\npub struct Theirs { pub x: u8, #[doc(hidden)] pub y: u8 }\n\
         impl Theirs { pub fn go() {} #[doc(hidden)] pub fn no() {} }",
    );
    write("facade/src/lib.rs", "pub use candlescope_core::{Ours as Hidden, Theirs, m};");
    let crates = [("candlescope-core", "core"), ("candlescope", "facade")];
    let crates = Crates::read(crates.map(|(name, folder)| (name, dir.path().join(folder))));
    let names = crates.names("candlescope", &|_, _| true);
    let lines: Vec<&str> = names.iter().flat_map(|name| name.lines.iter().map(String::as_str)).collect();
    let expected = ["Hidden = candlescope_core::Ours", "Theirs: struct", "Theirs: .. x: u8", "Theirs: .. fn go()"];
    assert_eq!(lines, [&expected[..], &["m: mod", "m::f: fn f()"]].concat());
    assert!(names[0].of.is_none(), "it is hidden where it is defined");
    let kinds: Vec<Kind> = names.iter().filter_map(|name| Some(crates.kind(name.of.as_ref()?))).collect();
    assert_eq!(kinds, [Kind::Type, Kind::Module, Kind::Function]);
    let elsewhere = crates.names("candlescope", &|_, _| false).into_iter().flat_map(|name| name.lines);
    let elsewhere: Vec<String> = elsewhere.collect();
    let expected = ["Hidden = candlescope_core::Ours", "Theirs = candlescope_core::Theirs", "m = candlescope_core::m"];
    assert_eq!(elsewhere, expected);
}
