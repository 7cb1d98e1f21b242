//! Compares the public names of each published library, taken from its sources, with the list in `docs/api`, so that no
//! name is added or removed unnoticed. `UPDATE_DOCS=1` updates the lists.
//!
//! It reads sources because rustdoc's JSON needs a nightly compiler. Trait implementations are not seen, and of items
//! made by macros the records of `record!`, the options of `options!` and the keys of `keys!` only.
#![allow(missing_docs, reason = "a test")]
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::parse::ParseStream;
use syn::{Attribute, Fields, Ident, ImplItem, Item, LitStr, Token, TraitItem, Type, UseTree, Visibility};

/// Those that promise what they show (RELEASING.md).
const LIBRARIES: [(&str, &str); 9] = [
    ("candlescope", "sdk/candlescope"),
    ("candlescope-markers", "sdk/markers"),
    ("candlescope-work", "work"),
    ("candlescope-schema", "schema"),
    ("candlescope-core", "sdk/core"),
    ("candlescope-collectors", "collectors"),
    ("candlescope-exporters", "exporters"),
    ("candlescope-models", "instrumented-models"),
    ("candlescope-analysis", "analysis"),
];

#[test]
fn public_names_are_those_of_the_list() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut changed = String::new();
    for (name, dir) in LIBRARIES {
        let found = Library::read(&workspace.join(dir).join("src/lib.rs")).list();
        let file = workspace.join("docs/api").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("docs/api");
            std::fs::write(&file, &found).expect("docs/api can be written");
        }
        let listed = std::fs::read_to_string(&file).unwrap_or_default();
        let (found, listed): (BTreeSet<_>, BTreeSet<_>) = (found.lines().collect(), listed.lines().collect());
        for line in found.difference(&listed) {
            changed += &format!("{name}: + {line}\n");
        }
        for line in listed.difference(&found) {
            changed += &format!("{name}: - {line}\n");
        }
    }
    assert!(
        changed.is_empty(),
        "the public API changed; if that is meant, UPDATE_DOCS=1 lists it in docs/api:\n{changed}"
    );
}

/// Users need few names daily; the rest is in modules, each at one path.
#[test]
fn the_crate_that_users_name_has_few_names_at_its_root_and_each_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/candlescope/src/lib.rs");
    let list = Library::read(&root).list();
    let lines = list.lines().filter(|line| !line.contains(": .. "));
    let paths: Vec<&str> = lines.filter_map(|line| line.split(": ").next()?.split(" = ").next()).collect();
    let at_root = paths.iter().filter(|path| !path.contains("::")).count();
    assert!(at_root <= 28, "{at_root} names at the root: put new ones into a module");
    let mut seen = BTreeSet::new();
    for name in paths.iter().filter_map(|path| path.rsplit("::").next()) {
        assert!(seen.insert(name), "`{name}` has two paths");
    }
}

/// The items of a crate, whether they can be reached from outside or not.
#[derive(Default)]
struct Library {
    /// Full path → the definition's lines.
    items: BTreeMap<String, Vec<String>>,
    /// Names in a public module: path → the path that it refers to, if that is another one.
    public: BTreeMap<String, Option<String>>,
    /// Type → its public methods.
    methods: BTreeMap<String, Vec<String>>,
    /// Names that a module imports for itself: path → the path that it refers to.
    imports: BTreeMap<String, String>,
    /// Public modules' globs: (module, path).
    globs: Vec<(String, String)>,
}

impl Library {
    fn read(root: &Path) -> Self {
        let mut library = Self::default();
        let text = std::fs::read_to_string(root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        library.module("crate", true, &file.items, root.parent().expect("src"));
        library
    }

    /// Reads a module whose children's files are in `dir`.
    fn module(&mut self, path: &str, public: bool, items: &[Item], dir: &Path) {
        for item in items {
            let (attributes, visibility) = head(item);
            let said: Vec<String> = attributes.iter().map(text).collect();
            // A hidden module counts as a private one: what is re-exported from it is public.
            let is_hidden = said.iter().any(|a| a.contains("doc(hidden)"));
            if said.iter().any(|a| a.contains("cfg(test)")) || (is_hidden && !matches!(item, Item::Mod(_))) {
                continue;
            }
            let is_public = matches!(visibility, Some(Visibility::Public(_))) && !is_hidden;
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let inner = format!("{path}::{name}");
                    if is_public && public {
                        self.public.insert(inner.clone(), None);
                        self.items.insert(inner.clone(), vec![format!("{}mod", feature(&said))]);
                    }
                    let own = dir.join(&name);
                    match &module.content {
                        Some((_, items)) => self.module(&inner, public && is_public, items, &own),
                        None => {
                            let file =
                                [dir.join(format!("{name}.rs")), own.join("mod.rs")].into_iter().find(|f| f.is_file());
                            // Files elsewhere (`#[path]`) are tests.
                            let Some(file) = file else { continue };
                            let text = std::fs::read_to_string(&file).expect("a source");
                            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                            self.module(&inner, public && is_public, &parsed.items, &own);
                        }
                    }
                }
                Item::Use(use_) => self.import(path, is_public.then_some(public), "", &use_.tree),
                Item::Macro(declared) if ["record", "options"].iter().any(|name| declared.mac.path.is_ident(name)) => {
                    let (name, lines) = record(declared);
                    let full = format!("{path}::{name}");
                    self.items.insert(full.clone(), lines);
                    if public {
                        self.public.insert(full, None);
                    }
                }
                Item::Macro(declared) if declared.mac.path.is_ident("keys") => {
                    let (module, consts) = keys(declared);
                    let inner = format!("{path}::{module}");
                    let all = [(inner.clone(), "mod".to_string())].into_iter();
                    for (full, line) in all.chain(consts.into_iter().map(|(name, of)| (format!("{inner}::{name}"), of)))
                    {
                        self.items.insert(full.clone(), vec![line]);
                        if public {
                            self.public.insert(full, None);
                        }
                    }
                }
                Item::Impl(block) if block.trait_.is_none() => {
                    let of = text(&block.self_ty);
                    let of = of.split(['<', ' ']).next().unwrap_or_default().to_string();
                    let key = format!("{path}::{of}");
                    for item in &block.items {
                        let (visibility, line) = match item {
                            ImplItem::Fn(f) => (&f.vis, text(&f.sig)),
                            ImplItem::Const(c) => (&c.vis, format!("const {}: {}", c.ident, text(&c.ty))),
                            _ => continue,
                        };
                        if matches!(visibility, Visibility::Public(_)) {
                            self.methods.entry(key.clone()).or_default().push(line);
                        }
                    }
                }
                _ if is_public => {
                    let Some((name, lines)) = definition(item) else { continue };
                    let full = format!("{path}::{name}");
                    let cfg = feature(&said);
                    let exhaustive =
                        if said.iter().any(|a| a.contains("non_exhaustive")) { "#[non_exhaustive] " } else { "" };
                    let lines = lines.into_iter().enumerate();
                    let lines = lines.map(|(i, line)| if i == 0 { format!("{cfg}{exhaustive}{line}") } else { line });
                    self.items.entry(full.clone()).or_default().extend(lines);
                    if public {
                        self.public.insert(full, None);
                    }
                }
                _ => {}
            }
        }
    }

    /// An import that is re-exported, from a public module or a private one, or for the module itself alone.
    fn import(&mut self, module: &str, shown: Option<bool>, prefix: &str, tree: &UseTree) {
        let (name, target) = match tree {
            UseTree::Path(p) => {
                return self.import(module, shown, &format!("{prefix}{}::", p.ident), &p.tree);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(module, shown, prefix, tree);
                }
                return;
            }
            UseTree::Glob(_) => {
                let target = format!("{module}::{}", prefix.trim_end_matches("::"));
                self.globs.extend(shown.map(|_| (module.to_string(), target)));
                return;
            }
            UseTree::Name(n) => (n.ident.to_string(), format!("{prefix}{}", n.ident)),
            UseTree::Rename(r) => (r.rename.to_string(), format!("{prefix}{}", r.ident)),
        };
        let target = target.strip_prefix("self::").unwrap_or(&target);
        let target = match target.strip_prefix("super::") {
            Some(rest) => format!("{}::{rest}", module.rsplit_once("::").map_or(module, |(parent, _)| parent)),
            None if target.starts_with("crate::") || target.starts_with("candle") => target.to_string(),
            None => format!("{module}::{target}"),
        };
        let full = format!("{module}::{name}");
        match shown {
            Some(true) => _ = self.public.insert(full, Some(target)),
            // A private module's re-export, which another re-export may refer to.
            Some(false) => _ = self.items.entry(full).or_insert_with(|| vec![format!("use {target}")]),
            None => _ = self.imports.insert(full, target),
        }
    }

    /// What a private module's re-export refers to.
    fn reexported(&self, path: &str) -> Option<String> {
        self.items.get(path)?.first()?.strip_prefix("use ").map(String::from)
    }

    /// Where the type that a module calls by this path is defined.
    fn definer(&self, path: String) -> String {
        let public = || self.public.get(&path).cloned().flatten();
        let next = self.imports.get(&path).cloned().or_else(public).or_else(|| self.reexported(&path));
        next.map_or(path, |next| self.definer(next))
    }

    /// A line for each public name, and below a type its members.
    fn list(mut self) -> String {
        // A type may have methods in other files, which import it.
        for (of, lines) in std::mem::take(&mut self.methods) {
            self.methods.entry(self.definer(of)).or_default().extend(lines);
        }
        for (module, target) in std::mem::take(&mut self.globs) {
            let inside = format!("{target}::");
            let known = self.items.keys().chain(self.public.keys());
            let names: Vec<String> = known.filter_map(|k| k.strip_prefix(&inside)).map(String::from).collect();
            for name in names.iter().filter(|name| !name.contains("::")) {
                self.public.entry(format!("{module}::{name}")).or_insert_with(|| Some(format!("{inside}{name}")));
            }
        }
        let mut lines = Vec::new();
        for (path, target) in &self.public {
            let mut origin = target.as_deref().unwrap_or(path).to_string();
            while let Some(next) = self.reexported(&origin) {
                origin = next;
            }
            let shown = path.strip_prefix("crate::").unwrap_or(path);
            // An item with a public path of its own is described there.
            let elsewhere = target.is_some() && self.public.contains_key(&origin);
            match self.items.get(&origin).filter(|_| !elsewhere) {
                None => lines.push(format!("{shown} = {}", origin.strip_prefix("crate::").unwrap_or(&origin))),
                Some(definition) => {
                    let methods = self.methods.get(&origin).into_iter().flatten();
                    lines.push(format!("{shown}: {}", definition.first().map_or("", String::as_str)));
                    let mut below: Vec<String> = definition.iter().skip(1).cloned().collect();
                    below.extend(methods.cloned());
                    lines.extend(below.into_iter().map(|line| format!("{shown}: .. {line}")));
                }
            }
        }
        lines.join("\n") + "\n"
    }
}

fn head(item: &Item) -> (&[syn::Attribute], Option<&Visibility>) {
    match item {
        Item::Const(i) => (&i.attrs, Some(&i.vis)),
        Item::Enum(i) => (&i.attrs, Some(&i.vis)),
        Item::Fn(i) => (&i.attrs, Some(&i.vis)),
        Item::Mod(i) => (&i.attrs, Some(&i.vis)),
        Item::Static(i) => (&i.attrs, Some(&i.vis)),
        Item::Struct(i) => (&i.attrs, Some(&i.vis)),
        Item::Trait(i) => (&i.attrs, Some(&i.vis)),
        Item::Type(i) => (&i.attrs, Some(&i.vis)),
        Item::Use(i) => (&i.attrs, Some(&i.vis)),
        Item::Impl(i) => (&i.attrs, None),
        _ => (&[], None),
    }
}

/// Name and lines of a record that `record!` declares: `[$] each_name Name, Kind, Rows { field: Type => Cells, … }`.
fn record(declared: &syn::ItemMacro) -> (String, Vec<String>) {
    let parser = |input: ParseStream<'_>| {
        if input.peek(syn::token::Bracket) {
            let dollar;
            syn::bracketed!(dollar in input);
            dollar.parse::<Token![$]>()?;
            input.parse::<Ident>()?;
        }
        Attribute::parse_outer(input)?;
        let name = input.parse::<Ident>()?.to_string();
        while input.parse::<Option<Token![,]>>()?.is_some() {
            input.parse::<Ident>()?;
        }
        let body;
        syn::braced!(body in input);
        let mut lines = vec!["#[non_exhaustive] struct".to_string()];
        while !body.is_empty() {
            Attribute::parse_outer(&body)?;
            let field = body.parse::<Ident>()?;
            body.parse::<Token![:]>()?;
            lines.push(format!("{field}: {}", text(&body.parse::<Type>()?)));
            // What makes an option of it.
            if body.peek(syn::token::Brace) {
                body.step(|at| at.token_tree().map(|(_, rest)| ((), rest)).ok_or_else(|| at.error("a brace")))?;
                continue;
            }
            body.parse::<Token![=>]>()?;
            body.parse::<Ident>()?;
            body.parse::<Option<LitStr>>()?;
            body.parse::<Token![,]>()?;
        }
        Ok((name, lines))
    };
    declared.mac.parse_body_with(parser).expect("a record's declaration")
}

/// Module and constants that `keys!` declares: `module { NAME: Type = "key"; … }`.
fn keys(declared: &syn::ItemMacro) -> (String, Vec<(String, String)>) {
    let parser = |input: ParseStream<'_>| {
        Attribute::parse_outer(input)?;
        let module = input.parse::<Ident>()?.to_string();
        let body;
        syn::braced!(body in input);
        let mut all = vec![("ALL".to_string(), "const &[Declared]".to_string())];
        while !body.is_empty() {
            Attribute::parse_outer(&body)?;
            let name = body.parse::<Ident>()?.to_string();
            body.parse::<Token![:]>()?;
            let of = text(&body.parse::<Type>()?);
            body.parse::<Token![=]>()?;
            let key = body.parse::<LitStr>()?.value();
            body.parse::<Token![;]>()?;
            all.push((name, format!("const Key<{of}> = {key:?}")));
        }
        Ok((module, all))
    };
    declared.mac.parse_body_with(parser).expect("a declaration of keys")
}

/// Name and lines of a definition: its head, then its public parts.
fn definition(item: &Item) -> Option<(String, Vec<String>)> {
    Some(match item {
        Item::Const(i) => (i.ident.to_string(), vec![format!("const {}", text(&i.ty))]),
        Item::Static(i) => (i.ident.to_string(), vec![format!("static {}", text(&i.ty))]),
        Item::Fn(i) => (i.sig.ident.to_string(), vec![text(&i.sig)]),
        Item::Type(i) => (i.ident.to_string(), vec![format!("type {}", text(&i.ty))]),
        Item::Struct(i) => {
            let mut lines = vec![format!("struct{}", text(&i.generics))];
            lines.extend(fields(&i.fields, true));
            (i.ident.to_string(), lines)
        }
        Item::Enum(i) => {
            let mut lines = vec![format!("enum{}", text(&i.generics))];
            for variant in &i.variants {
                let fields = fields(&variant.fields, false).collect::<Vec<_>>().join(", ");
                lines.push(if fields.is_empty() {
                    variant.ident.to_string()
                } else {
                    format!("{} {{ {fields} }}", variant.ident)
                });
            }
            (i.ident.to_string(), lines)
        }
        Item::Trait(i) => {
            let bounds = text(&i.supertraits);
            let mut lines =
                vec![format!("trait{}{}{bounds}", text(&i.generics), if bounds.is_empty() { "" } else { ": " })];
            lines.extend(i.items.iter().filter_map(|item| match item {
                TraitItem::Fn(f) => Some(text(&f.sig)),
                TraitItem::Type(t) => Some(format!("type {}", t.ident)),
                TraitItem::Const(c) => Some(format!("const {}: {}", c.ident, text(&c.ty))),
                _ => None,
            }));
            (i.ident.to_string(), lines)
        }
        _ => return None,
    })
}

fn fields(fields: &Fields, public_only: bool) -> impl Iterator<Item = String> {
    let seen = fields.iter().enumerate().filter(move |(_, f)| !public_only || matches!(f.vis, Visibility::Public(_)));
    seen.map(|(i, f)| {
        let name = f.ident.as_ref().map_or(i.to_string(), ToString::to_string);
        format!("{name}: {}", text(&f.ty))
    })
}

/// The feature that an item needs, in brackets.
fn feature(attributes: &[String]) -> String {
    let needs =
        attributes.iter().filter_map(|a| a.split_once("cfg(")).map(|(_, rest)| rest.trim_end_matches([']', ')', ' ']));
    let needs: Vec<String> = needs.map(|cfg| cfg.replace("feature = ", "").replace('"', "")).collect();
    if needs.is_empty() { String::new() } else { format!("[{}] ", needs.join(", ")) }
}

fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
    ] {
        text = text.replace(from, to);
    }
    text
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
