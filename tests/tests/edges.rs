//! Data flows one way: which crate may depend on which, read from `cargo metadata`.
#![allow(missing_docs, reason = "a test")]
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crate → crates of ours that it may depend on in a normal build. Everything else is an edge against the flow.
const ALLOWED: &[(&str, &[&str])] = &[
    ("candlescope-work", &[]),
    ("candlescope-schema", &["candlescope-work"]),
    ("candlescope-core", &["candlescope-schema", "candlescope-work"]),
    ("candlescope-collectors", &["candlescope-core", "candlescope-work"]),
    ("candlescope-exporters", &["candlescope-core", "candlescope-work"]),
    // Loads candle's own models under `observe`, as any program does.
    ("candlescope-models", &["candlescope", "candlescope-core", "candlescope-work"]),
    // Reader and writer of runs share the contract and nothing else.
    ("candlescope-reader", &["candlescope-schema"]),
    ("candlescope-sql", &["candlescope-figures", "candlescope-reader", "candlescope-schema"]),
    ("candlescope-figures", &["candlescope-reader", "candlescope-schema", "candlescope-work"]),
    ("candlescope-compare", &["candlescope-figures", "candlescope-reader", "candlescope-schema"]),
    ("candlescope-predict", &["candlescope-figures", "candlescope-reader", "candlescope-schema", "candlescope-work"]),
    (
        "candlescope-findings",
        &["candlescope-figures", "candlescope-predict", "candlescope-reader", "candlescope-schema", "candlescope-work"],
    ),
    // What is shown of all of these, and how: computes nothing.
    (
        "candlescope-report",
        &[
            "candlescope-compare",
            "candlescope-document",
            "candlescope-figures",
            "candlescope-findings",
            "candlescope-predict",
            "candlescope-reader",
            "candlescope-schema",
            "candlescope-work",
        ],
    ),
    // Names of these for programs.
    (
        "candlescope-analysis",
        &[
            "candlescope-compare",
            "candlescope-figures",
            "candlescope-findings",
            "candlescope-reader",
            "candlescope-report",
        ],
    ),
    // What reports show and what draws it: no run, no model, no GPU.
    ("candlescope-document", &[]),
    ("candlescope-prompts", &["candlescope-schema"]),
    ("candlescope-charts", &[]),
    // Watches and asks programs that run: neither knows a model, and the lab needs none of them.
    ("candlescope-monitor", &["candlescope-collectors", "candlescope-core", "candlescope-exporters"]),
    (
        "candlescope-load",
        &[
            "candlescope-charts",
            "candlescope-collectors",
            "candlescope-core",
            "candlescope-exporters",
            "candlescope-figures",
            "candlescope-prompts",
            "candlescope-work",
        ],
    ),
    (
        "candlescope-lab",
        &[
            "candlescope",
            "candlescope-charts",
            "candlescope-collectors",
            "candlescope-compare",
            "candlescope-core",
            "candlescope-document",
            "candlescope-figures",
            "candlescope-models",
            "candlescope-predict",
            "candlescope-reader",
            "candlescope-report",
            "candlescope-work",
        ],
    ),
    ("candlescope", &["candlescope-collectors", "candlescope-core", "candlescope-exporters", "candlescope-work"]),
];
/// Crates that wire others together and may use them all.
const WIRING: &[&str] = &[
    "candlescope-cli",
    "candlescope-examples",
    "candlescope-server",
    "candlescope-tests",
    "candlescope-testkit",
    "candlescope-bench",
    "candlescope-fuzz",
];

#[test]
fn crates_depend_along_the_flow_only() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED.iter().map(|(name, deps)| (*name, deps.iter().copied().collect())).collect();
    let mut seen = BTreeSet::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        seen.insert(name.to_string());
        let ours: BTreeSet<&str> = package
            .dependencies
            .iter()
            .filter(|d| d.kind == DependencyKind::Normal && d.path.is_some())
            .map(|d| d.name.as_str())
            .collect();
        match allowed.get(name) {
            Some(allowed) => {
                let wrong: Vec<_> = ours.difference(allowed).collect();
                assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
            }
            None => assert!(WIRING.contains(&name), "{name} has no place in the flow: add it to this test"),
        }
    }
    for (name, _) in ALLOWED {
        assert!(seen.contains(*name), "{name} is gone");
    }
}

/// What `make check-package` packs and `RELEASING.md` publishes: the same crates, each after those that it depends on.
#[test]
fn crates_are_published_after_those_they_depend_on() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let read = |name: &str| std::fs::read_to_string(format!("{root}/{name}")).expect("a file of the repository");
    let makefile = read("Makefile");
    let line = makefile.lines().find_map(|line| line.strip_prefix("PUBLISHED = ")).expect("the Makefile lists them");
    let published: Vec<&str> = line.split_whitespace().collect();
    let releasing = read("RELEASING.md");
    let table = releasing.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        cells.next()?.parse::<u8>().ok()?;
        cells.next()?.strip_prefix('`')?.strip_suffix('`')
    });
    assert_eq!(table.collect::<Vec<_>>(), published, "RELEASING.md and the Makefile");
    let metadata =
        MetadataCommand::new().manifest_path(format!("{root}/Cargo.toml")).no_deps().exec().expect("metadata");
    for package in metadata.packages.iter().filter(|package| package.publish != Some(Vec::new())) {
        let name = package.name.as_str();
        let at = published.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| panic!("{name} can be published and is not in the list"));
        let ours = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development && d.path.is_some());
        for needed in ours {
            assert!(published[..at].contains(&needed.name.as_str()), "{name} comes before {}", needed.name);
        }
    }
}

#[test]
fn candle_is_named_by_models_and_wiring_only() {
    // The SDK itself must not pull candle in: it serves any program with spans.
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    for package in &metadata.packages {
        let uses_candle =
            package.dependencies.iter().any(|d| d.kind == DependencyKind::Normal && d.name.starts_with("candle-"));
        // A program that wants its model's modules by name asks for a feature.
        let optional = package.name.as_str() == "candlescope"
            && package.dependencies.iter().filter(|d| d.name.starts_with("candle-")).all(|d| d.optional);
        let runs_models = ["candlescope-models", "candlescope-lab"].contains(&package.name.as_str());
        let may = optional || runs_models || WIRING.contains(&package.name.as_str());
        assert!(may || !uses_candle, "{} must not depend on candle", package.name);
    }
}

#[test]
fn the_candle_version_in_runs_is_the_one_linked() {
    let metadata =
        MetadataCommand::new().manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).exec().unwrap();
    let candle = metadata.packages.iter().find(|p| p.name.as_str() == "candle-core").expect("candle-core");
    assert_eq!(candle.version.to_string(), candlescope_models::CANDLE_VERSION);
}

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_circle() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let mut found = BTreeSet::new();
    for package in &metadata.packages {
        let dir = package.manifest_path.parent().expect("a folder");
        let mut modules = Modules::new();
        collect(dir.join("src").as_std_path(), &[], &mut modules);
        let at = dir.strip_prefix(&metadata.workspace_root).expect("in the workspace").to_string();
        found.extend(circles(&imports(&modules)).into_iter().map(|circle| (at.clone(), circle)));
    }
    assert!(found.is_empty(), "move what these modules share to one of its own: {found:#?}");
}

#[test]
fn a_circle_is_found_and_a_parent_with_its_child_is_none() {
    let text = |path: &[&str], text: &str| (path.iter().map(|p| p.to_string()).collect::<Vec<_>>(), text.to_string());
    let modules = Modules::from([
        text(&[], "use crate::a::A; pub use b::B;"),
        text(&["a"], "use crate::{b::{self, c::C}, X};"),
        text(
            &["b"],
            "mod c; use c::C; // use crate::a::A;\nuse super::d;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
        text(&["b", "c"], "fn f() -> super::super::e::E { crate::X }"),
        text(&["d"], ""),
        text(&["e"], "use crate::a::{A as Z};"),
    ]);
    let found = circles(&imports(&modules));
    assert_eq!(found, BTreeSet::from([["a", "b::c", "e"].map(String::from).to_vec()]));
}

/// Text of each module of a crate by its path, the crate's root being the empty one.
type Modules = BTreeMap<Vec<String>, String>;

/// Modules below a folder, without tests and programs.
fn collect(dir: &Path, at: &[String], into: &mut Modules) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let below = [at, std::slice::from_ref(&name)].concat();
        if path.is_dir() && !["tests", "bin"].contains(&name.as_str()) {
            collect(&path, &below, into);
        } else if path.extension().is_some_and(|e| e == "rs") && !name.ends_with("tests") {
            let is_root = ["mod", "lib", "main"].contains(&name.as_str());
            *into.entry(if is_root { at.to_vec() } else { below }).or_default() +=
                &std::fs::read_to_string(&path).expect("readable");
        }
    }
}

/// Which modules each one names, without those above and below it.
fn imports(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let owner = |path: &[String]| (0..=path.len()).rev().find_map(|n| modules.get_key_value(&path[..n]));
    let mut all = BTreeMap::new();
    for (module, text) in modules.iter().map(|(module, text)| (module.as_slice(), text)) {
        let named = paths(text).into_iter().filter_map(|(used, mut path)| {
            let ups = path.iter().take_while(|p| *p == "super" || *p == "self").count();
            let base = match path[0].as_str() {
                "crate" => Vec::new(),
                "super" | "self" => {
                    let levels = path[..ups].iter().filter(|p| *p == "super").count();
                    module[..module.len().saturating_sub(levels)].to_vec()
                }
                // A child module; anything else is in another crate.
                _ if used && modules.contains_key(&[module, &path[..1]].concat()) => module.to_vec(),
                _ => return None,
            };
            path.drain(..if path[0] == "crate" { 1 } else { ups });
            let (named, _) = owner(&[base, path].concat())?;
            let related = named.starts_with(module) || module.starts_with(named);
            (!related).then_some(named.as_slice())
        });
        all.insert(module, named.collect());
    }
    all
}

/// Every path of a `use` (true), and every other path that begins with `crate` or `super` (false).
fn paths(text: &str) -> Vec<(bool, Vec<String>)> {
    let tested =
        text.match_indices("#[cfg(test)]").find(|(at, mark)| text[at + mark.len()..].trim_start().starts_with("mod "));
    let code = &text[..tested.map_or(text.len(), |(at, _)| at)];
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default().to_string() + "\n").collect();
    // Words, `::` and single other characters.
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in code.chars() {
        let is_word = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if (is_word && in_word) || (c == ':' && last == ":") => last.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(c.to_string()),
        }
        in_word = is_word;
    }
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let rest = &tokens[at..];
        // Not `impl Trait + use<'_>`.
        if rest[0] == "use" && rest.get(1).is_some_and(|t| t != "<") {
            let end = rest.iter().position(|t| t == ";").unwrap_or(rest.len());
            expand(&mut rest[1..end].iter(), &[], &mut found);
            at += end;
        } else if ["crate", "super"].contains(&rest[0].as_str()) && rest.get(1).is_some_and(|t| t == "::") {
            let path = rest.chunks(2).take_while(|pair| is_name(&pair[0])).map(|pair| (pair[0].clone(), pair.get(1)));
            let mut whole = Vec::new();
            for (name, then) in path {
                whole.push(name);
                if then.is_none_or(|t| t != "::") {
                    break;
                }
            }
            at += 2 * whole.len() - 1;
            found.push((false, whole));
        } else {
            at += 1;
        }
    }
    found
}

fn is_name(token: &str) -> bool {
    token.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The paths of a `use` tree: `a::{b::c, d}` gives `a::b::c` and `a::d`. Stops after its `,` or `}`.
fn expand(tokens: &mut std::slice::Iter<'_, String>, head: &[String], into: &mut Vec<(bool, Vec<String>)>) {
    let (mut path, mut renamed, mut group) = (head.to_vec(), false, false);
    let whole = |path: &mut Vec<String>, group: bool, into: &mut Vec<(bool, Vec<String>)>| {
        if !group && path.len() > head.len() {
            into.push((true, path.clone()));
        }
        path.truncate(head.len());
    };
    while let Some(token) = tokens.next() {
        match token.as_str() {
            "::" => {}
            "as" => renamed = true,
            "{" => {
                expand(tokens, &path, into);
                group = true;
            }
            "," => {
                whole(&mut path, group, into);
                (renamed, group) = (false, false);
            }
            "}" => break,
            name if !renamed => path.push(name.to_string()),
            _ => {}
        }
    }
    whole(&mut path, group, into);
}

/// Modules that reach each other, sorted.
fn circles(edges: &BTreeMap<&[String], BTreeSet<&[String]>>) -> BTreeSet<Vec<String>> {
    let reached = |from: &[String]| {
        let (mut seen, mut open) = (BTreeSet::new(), edges[from].iter().copied().collect::<Vec<_>>());
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(&edges[module]);
            }
        }
        seen
    };
    let reach: BTreeMap<&[String], BTreeSet<&[String]>> =
        edges.keys().map(|module| (*module, reached(module))).collect();
    let circle = |module: &&[String]| {
        let others = reach[module].iter().filter(|other| reach[*other].contains(module));
        others.map(|other| other.join("::")).collect::<Vec<_>>()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}
