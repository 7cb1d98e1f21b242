//! Data flows one way: which crate may depend on which, read from `cargo metadata`.
#![allow(missing_docs, reason = "a test")]
use candlescope_core::run::CANDLE_VERSION;
use cargo_metadata::{DependencyKind, MetadataCommand};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree, Visibility};

/// Crate → crates of ours that it may depend on in a normal build. Everything else is an edge against the flow.
const ALLOWED: &[(&str, &[&str])] = &[
    // Goes into libraries of others: it names nobody.
    ("candlescope-markers", &[]),
    ("candlescope-work", &[]),
    ("candlescope-schema", &["candlescope-markers", "candlescope-work"]),
    ("candlescope-core", &["candlescope-markers", "candlescope-schema", "candlescope-work"]),
    ("candlescope-collectors", &["candlescope-core", "candlescope-work"]),
    ("candlescope-exporters", &["candlescope-core", "candlescope-work"]),
    // Loads candle's own models under `observe`, as any program does.
    ("candlescope-models", &["candlescope", "candlescope-core", "candlescope-work"]),
    // Reader and writer of runs share the contract and nothing else.
    ("candlescope-reader", &["candlescope-schema"]),
    ("candlescope-sql", &["candlescope-figures", "candlescope-reader", "candlescope-schema"]),
    ("candlescope-archive", &["candlescope-reader", "candlescope-schema", "candlescope-sql"]),
    ("candlescope-ranks", &["candlescope-figures", "candlescope-reader", "candlescope-schema", "candlescope-work"]),
    (
        "candlescope-trends",
        &[
            "candlescope-charts",
            "candlescope-compare",
            "candlescope-document",
            "candlescope-reader",
            "candlescope-schema",
            "candlescope-sql",
        ],
    ),
    ("candlescope-figures", &["candlescope-reader", "candlescope-schema", "candlescope-work"]),
    ("candlescope-compare", &["candlescope-figures", "candlescope-reader", "candlescope-schema", "candlescope-work"]),
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
            "candlescope-ranks",
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
    ("candlescope-charts", &["candlescope-document"]),
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
    // Goes into programs of others.
    ("candlescope-inject", &["candlescope", "candlescope-collectors", "candlescope-core", "candlescope-work"]),
    // Starts programs, and knows no model.
    (
        "candlescope-optimise",
        &[
            "candlescope-charts",
            "candlescope-compare",
            "candlescope-core",
            "candlescope-figures",
            "candlescope-findings",
            "candlescope-lab",
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
fn the_candle_version_in_runs_is_the_one_linked_and_the_one_whose_spans_are_known() {
    let metadata =
        MetadataCommand::new().manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).exec().unwrap();
    for name in ["candle-core", "candle-nn", "candle-transformers"] {
        let candle = metadata.packages.iter().find(|p| p.name.as_str() == name).expect(name);
        assert_eq!(candle.version.to_string(), CANDLE_VERSION, "{name}");
    }
    let known = metadata.workspace_root.join(format!("sdk/core/src/modules/candle-transformers-{CANDLE_VERSION}.txt"));
    assert!(known.exists(), "{known}");
}

/// No circle of modules inside a crate, a parent with its child included. Modules are files; the rules:
///
/// - A file uses another when its code, or an import of its own, names something that is *defined* there. A name that
///   comes by way of a re-export or of another file's import is followed to the file that defines it. A module's own
///   name is no item: what is taken from it counts.
/// - `mod child;` and re-exports (`pub use`, `pub(crate) use`) use nothing, unless the file's own code says the name.
/// - So a folder's file may show what its children have, and a child may use what that file shows; but a child that
///   uses what the folder's file defines, whose code uses the child, is a circle of two.
/// - Code under `#[cfg(test)]` does not count. Methods and macros without a path are not followed.
#[test]
fn no_modules_of_a_crate_use_each_other_in_a_circle() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let mut found = BTreeMap::new();
    for package in &metadata.packages {
        let dir = package.manifest_path.parent().expect("a folder");
        let mut modules = Modules::new();
        collect(dir.join("src").as_std_path(), &[], &mut modules);
        let circles = circles(&uses(&modules));
        if !circles.is_empty() {
            found.insert(package.name.to_string(), circles);
        }
    }
    assert!(found.is_empty(), "move what these modules share to one of its own: {found:#?}");
}

/// Files that have the same name wherever they are, because it says what they are: a folder's own, its tests, and what calls the
/// system or a C library.
const OF_EVERY_FOLDER: [&str; 3] = ["mod.rs", "tests.rs", "sys.rs"];

#[test]
fn a_files_name_says_which_of_its_crate_it_is() {
    fn collect(dir: &std::path::Path, into: &mut BTreeMap<String, Vec<std::path::PathBuf>>) {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                collect(&path, into);
            } else if !OF_EVERY_FOLDER.contains(&&*name) {
                into.entry(name).or_default().push(path);
            }
        }
    }
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    for package in metadata.packages.iter().filter(|package| !WIRING[1..].contains(&package.name.as_str())) {
        let mut files = BTreeMap::new();
        collect(package.manifest_path.parent().expect("a folder").join("src").as_std_path(), &mut files);
        files.retain(|_, places| places.len() > 1);
        assert!(files.is_empty(), "{}: files of one name: {files:#?}", package.name);
    }
}

#[test]
fn circles_are_found_also_through_parents_and_re_exports() {
    let found = |files: &[(&str, &str)]| -> Vec<Vec<String>> {
        let mut modules = Modules::new();
        for (path, text) in files {
            let path: Path = path.split("::").filter(|part| !part.is_empty()).map(String::from).collect();
            add(text.parse().expect("Rust"), &path, &path, &mut modules);
        }
        circles(&uses(&modules)).into_keys().collect()
    };
    // Siblings, one of them through a parent's re-export, one without an import.
    let siblings = [
        ("", "mod a; mod b; mod d; pub use b::B;"),
        ("a", "use crate::{B, d::{self, D as E}}; pub struct A;\n#[cfg(test)] mod tests { use crate::b::c::C; }"),
        ("b", "mod c; pub use c::B;"),
        ("b::c", "// use crate::z::Z;\npub struct B; fn f() -> super::super::d::D { loop {} }"),
        ("d", "pub struct D; macro_rules! m { () => { $crate::a::A } }"),
    ];
    assert_eq!(found(&siblings), [["a", "b::c", "d"]]);
    assert!(found(&siblings[..4]).is_empty(), "without what closes it");
    // A parent whose code uses its child, which uses what the parent defines.
    let (child, alone) = (("p::c", "use super::P; pub struct C(P);"), ("p", "mod c; pub use c::C; pub struct P;"));
    assert!(found(&[("", "mod p;"), alone, child]).is_empty(), "the parent shows its child, and uses nothing of it");
    let using = ("p", "mod c; pub use c::C; pub struct P; impl P { fn f(&self) -> C { loop {} } }");
    assert_eq!(found(&[("", "mod p;"), using, child]), [["p", "p::c"]]);
}

/// Names of a module, from the crate's root, which is the empty path.
type Path = Vec<String>;
type Modules = BTreeMap<Path, Module>;

/// A module: a file, or a `mod` in braces of that file.
#[derive(Default)]
struct Module {
    file: Path,
    defined: BTreeSet<String>,
    /// Whether a macro defines more in it.
    has_macros: bool,
    imports: Vec<Import>,
    /// Paths in its code.
    named: BTreeSet<Path>,
}

/// One path of a `use`; the name is `*` for everything.
struct Import {
    name: String,
    path: Path,
    shown: bool,
}

/// Modules below a folder, without tests and programs.
fn collect(dir: &std::path::Path, at: &[String], into: &mut Modules) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let below = [at, std::slice::from_ref(&name)].concat();
        if path.is_dir() && !["tests", "bin"].contains(&name.as_str()) {
            collect(&path, &below, into);
        } else if name == "main" && dir.join("lib.rs").exists() {
            // Another crate, which names this one.
        } else if path.extension().is_some_and(|e| e == "rs") && !name.ends_with("tests") {
            let file = if ["mod", "lib", "main"].contains(&name.as_str()) { at } else { &below };
            let text = std::fs::read_to_string(&path).expect("readable");
            add(text.parse().expect("Rust"), file, file, into);
        }
    }
}

/// Adds a module's items to those known.
fn add(tokens: TokenStream, path: &[String], file: &[String], into: &mut Modules) {
    let mut module = Module { file: file.to_vec(), ..Module::default() };
    for item in syn::parse2::<syn::File>(without_tests(tokens)).expect("Rust").items {
        let name = match &item {
            Item::Use(item) => {
                let shown = !matches!(item.vis, Visibility::Inherited);
                import(&item.tree, &[], shown, &mut module.imports);
                continue;
            }
            Item::Mod(item) => {
                if let Some((_, items)) = &item.content {
                    let within = [path, &[item.ident.to_string()]].concat();
                    add(items.iter().map(ToTokens::to_token_stream).collect(), &within, file, into);
                }
                continue;
            }
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        module.has_macros |= matches!(&item, Item::Macro(item) if item.ident.is_none());
        module.defined.extend(name.map(ToString::to_string));
        named(item.to_token_stream(), &mut module);
    }
    into.insert(path.to_vec(), module);
}

/// Without what stands under `#[cfg(test)]`.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut tokens = tokens.into_iter();
    let is_test = |token: &TokenTree| {
        let TokenTree::Group(group) = token else { return false };
        let text = || group.stream().to_string().replace(' ', "");
        group.delimiter() == Delimiter::Bracket && (text() == "cfg(test)" || text().starts_with("cfg(all(test,"))
    };
    while let Some(token) = tokens.next() {
        if is_test(&token) {
            kept.pop();
            // Its other attributes go, too.
            while let [.., TokenTree::Punct(mark), TokenTree::Group(_)] = kept.as_slice()
                && mark.as_char() == '#'
            {
                kept.truncate(kept.len() - 2);
            }
            let mut of_use = false;
            for skipped in tokens.by_ref() {
                match &skipped {
                    TokenTree::Ident(word) => of_use |= word == "use",
                    TokenTree::Punct(mark) if mark.as_char() == ';' => break,
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !of_use => break,
                    _ => {}
                }
            }
        } else if let TokenTree::Group(group) = token {
            kept.push(Group::new(group.delimiter(), without_tests(group.stream())).into());
        } else {
            kept.push(token);
        }
    }
    kept.into_iter().collect()
}

/// The paths of a `use` tree: `a::{b::c, d}` gives `a::b::c` and `a::d`.
fn import(tree: &UseTree, head: &[String], shown: bool, into: &mut Vec<Import>) {
    let mut leaf = |name: String, path: Path| into.push(Import { name, path, shown });
    let with = |ident: &syn::Ident| match ident.to_string() {
        own if own == "self" && !head.is_empty() => head.to_vec(),
        name => [head, &[name]].concat(),
    };
    match tree {
        UseTree::Path(tree) => import(&tree.tree, &[head, &[tree.ident.to_string()]].concat(), shown, into),
        UseTree::Group(tree) => tree.items.iter().for_each(|tree| import(tree, head, shown, into)),
        UseTree::Glob(_) => leaf("*".into(), head.to_vec()),
        UseTree::Rename(tree) => leaf(tree.rename.to_string(), with(&tree.ident)),
        UseTree::Name(tree) => leaf(with(&tree.ident).last().expect("a name").clone(), with(&tree.ident)),
    }
}

/// Every path in the tokens of an item, and every `use` inside a function.
fn named(tokens: TokenStream, module: &mut Module) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, c: char| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == c);
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            // Not `pub(in crate::a)`.
            TokenTree::Group(_) if at > 0 && tokens[at - 1].to_string() == "pub" => {}
            TokenTree::Group(group) => named(group.stream(), module),
            TokenTree::Ident(word) if word == "use" => {
                let end = at + tokens[at..].iter().position(|t| t.to_string() == ";").unwrap_or(0);
                if let Ok(item) = syn::parse2::<syn::ItemUse>(tokens[at..=end].iter().cloned().collect()) {
                    import(&item.tree, &[], false, &mut module.imports);
                    at = end;
                }
            }
            // Not fields and methods.
            TokenTree::Ident(word) if at == 0 || !is(at - 1, '.') || (at > 1 && is(at - 2, '.')) => {
                let mut path = vec![word.to_string()];
                while let (true, true, Some(TokenTree::Ident(word))) =
                    (is(at + 1, ':'), is(at + 2, ':'), tokens.get(at + 3))
                {
                    path.push(word.to_string());
                    at += 3;
                }
                module.named.insert(path);
            }
            _ => {}
        }
        at += 1;
    }
}

/// Which file defines what a path names, seen from a module. `None` for what is not of this crate.
fn definer<'a>(modules: &'a Modules, from: &[String], path: &[String], seen: &mut BTreeSet<Path>) -> Option<&'a Path> {
    let module = modules.get(from)?;
    // A module by itself is nothing that is used: what is taken from it has a path of its own.
    let (first, rest) = path.split_first()?;
    let below = [from, std::slice::from_ref(first)].concat();
    match first.as_str() {
        "crate" => return definer(modules, &[], rest, seen),
        "self" => return definer(modules, from, rest, seen),
        "super" => return definer(modules, &from[..from.len().saturating_sub(1)], rest, seen),
        _ if modules.contains_key(&below) => return definer(modules, &below, rest, seen),
        name if module.defined.contains(name) => return Some(&module.file),
        // A circle of globs.
        _ if !seen.insert(below) => return None,
        _ => {}
    }
    let through = |import: &Import, rest: &[String], seen: &mut BTreeSet<Path>| {
        definer(modules, from, &[&import.path, rest].concat(), seen)
    };
    let (globs, imports): (Vec<_>, Vec<_>) = module.imports.iter().partition(|import| import.name == "*");
    match imports.into_iter().find(|import| import.name == *first && import.path != *path) {
        Some(import) => through(import, rest, seen),
        None => globs.iter().find_map(|glob| through(glob, path, seen)).or(module.has_macros.then_some(&module.file)),
    }
}

/// Which files each one uses, and by which path.
fn uses(modules: &Modules) -> BTreeMap<&Path, BTreeMap<&Path, String>> {
    let mut all = BTreeMap::<_, BTreeMap<_, _>>::new();
    for (path, module) in modules {
        let edges = all.entry(&module.file).or_default();
        let imported = module.imports.iter().filter(|import| !import.shown).map(|import| &import.path);
        for used in imported.chain(&module.named) {
            let to = definer(modules, path, used, &mut BTreeSet::new());
            if let Some(to) = to.filter(|to| **to != module.file) {
                edges.entry(to).or_insert_with(|| used.join("::"));
            }
        }
    }
    all
}

/// Modules that reach each other, sorted, with the paths by which they do.
fn circles(edges: &BTreeMap<&Path, BTreeMap<&Path, String>>) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut reach = BTreeMap::<&Path, BTreeSet<&Path>>::new();
    for from in edges.keys() {
        let (mut seen, mut open) = (BTreeSet::new(), vec![*from]);
        while let Some(module) = open.pop() {
            open.extend(edges[module].keys().filter(|next| seen.insert(**next)));
        }
        reach.insert(from, seen);
    }
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for (module, reached) in &reach {
        let name = |path: &&Path| path.join("::");
        let circle: Vec<&Path> = reached.iter().filter(|other| reach[*other].contains(module)).copied().collect();
        if circle.len() > 1 {
            let within = edges[module].iter().filter(|(to, _)| circle.contains(to));
            let told = within.map(|(to, by)| format!("{} -> {} ({by})", name(module), name(to)));
            found.entry(circle.iter().map(name).collect()).or_default().extend(told);
        }
    }
    found
}
