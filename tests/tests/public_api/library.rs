//! The items of one crate, read from its sources, because rustdoc's JSON needs a nightly compiler. Trait implementations are
//! not seen, and of items made by macros only the records of `record!`, the type of `options!`, the keys of `keys!`, and of
//! others that there is a type of that name.

use crate::items::{definition, feature, head, is_hidden, keys, record, text};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::{ImplItem, Item, UseTree, Visibility};

/// The items of a crate, whether they can be reached from outside or not.
#[derive(Default)]
pub(crate) struct Library {
    /// Full path → the definition's lines.
    pub(crate) items: BTreeMap<String, Vec<String>>,
    /// Names in a public module: path → the path that it refers to, if that is another one.
    pub(crate) public: BTreeMap<String, Option<String>>,
    /// Type → its public methods.
    methods: BTreeMap<String, Vec<String>>,
    /// Names that a module imports for itself: path → the path that it refers to.
    imports: BTreeMap<String, String>,
    /// Public modules' globs: (module, path).
    pub(crate) globs: Vec<(String, String)>,
    /// Full paths of types that macros may have made: every word of theirs that could be one.
    pub(crate) made: BTreeSet<String>,
}

impl Library {
    pub(crate) fn read(root: &Path) -> Self {
        let mut library = Self::default();
        let text = std::fs::read_to_string(root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        library.module("crate", true, &file.items, root.parent().expect("src"));
        library.settle();
        library
    }

    /// Reads a module whose children's files are in `dir`.
    fn module(&mut self, path: &str, public: bool, items: &[Item], dir: &Path) {
        for item in items {
            let (attributes, visibility) = head(item);
            let said: Vec<String> = attributes.iter().map(text).collect();
            // A hidden module counts as a private one: what is re-exported from it is public.
            let is_hidden = is_hidden(attributes);
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
                Item::Macro(declared) if declared.ident.is_none() => self.declared(path, public, declared),
                Item::Impl(block) if block.trait_.is_none() => {
                    let of = text(&block.self_ty);
                    let of = of.split(['<', ' ']).next().unwrap_or_default().to_string();
                    let key = format!("{path}::{of}");
                    for item in &block.items {
                        let (attributes, visibility, line) = match item {
                            ImplItem::Fn(f) => (&f.attrs, &f.vis, text(&f.sig)),
                            ImplItem::Const(c) => (&c.attrs, &c.vis, format!("const {}: {}", c.ident, text(&c.ty))),
                            _ => continue,
                        };
                        if matches!(visibility, Visibility::Public(_)) && !self::is_hidden(attributes) {
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

    /// Reads what a macro declares.
    fn declared(&mut self, path: &str, public: bool, declared: &syn::ItemMacro) {
        let is = |name: &str| declared.mac.path.is_ident(name);
        let all = if let Some((name, mut lines)) = (is("record") || is("options")).then(|| record(declared)).flatten() {
            // The macro hides the fields of options.
            lines.truncate(if is("options") { 1 } else { lines.len() });
            vec![(format!("{path}::{name}"), lines)]
        } else if let Some((module, consts)) = is("keys").then(|| keys(declared)).flatten() {
            let consts = consts.into_iter().map(|(name, of)| (format!("{path}::{module}::{name}"), vec![of]));
            std::iter::once((format!("{path}::{module}"), vec!["mod".to_string()])).chain(consts).collect()
        } else {
            self.made.extend(names_in(declared.mac.tokens.clone()).map(|name| format!("{path}::{name}")));
            Vec::new()
        };
        for (full, lines) in all {
            self.items.insert(full.clone(), lines);
            if public {
                self.public.insert(full, None);
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

    /// Gives methods to their types and public modules what their globs name.
    fn settle(&mut self) {
        // A type may have methods in other files, which import it.
        for (of, lines) in std::mem::take(&mut self.methods) {
            self.methods.entry(self.definer(of)).or_default().extend(lines);
        }
        for (module, target) in self.globs.clone() {
            let inside = format!("{target}::");
            let known = self.items.keys().chain(self.public.keys());
            let names: Vec<String> = known.filter_map(|k| k.strip_prefix(&inside)).map(String::from).collect();
            for name in names.iter().filter(|name| !name.contains("::")) {
                self.public.entry(format!("{module}::{name}")).or_insert_with(|| Some(format!("{inside}{name}")));
            }
        }
    }

    /// Where what a public path names is defined, as far as this crate's own re-exports tell.
    pub(crate) fn origin(&self, path: &str) -> String {
        let mut origin = self.public.get(path).cloned().flatten().unwrap_or_else(|| path.to_string());
        while let Some(next) = self.reexported(&origin) {
            origin = next;
        }
        origin
    }

    /// The lines of a definition: its head, its public parts, its public methods. Empty if it is not seen.
    pub(crate) fn lines(&self, origin: &str) -> Vec<String> {
        let Some(definition) = self.items.get(origin) else { return Vec::new() };
        let mut lines = definition.clone();
        lines.extend(self.methods.get(origin).into_iter().flatten().cloned());
        lines
    }

    /// A line for each public name, and below a type its members.
    pub(crate) fn list(&self) -> String {
        let mut lines = Vec::new();
        for (path, target) in &self.public {
            let origin = self.origin(path);
            // An item with a public path of its own is described there.
            let elsewhere = target.is_some() && self.public.contains_key(&origin);
            let definition = if elsewhere { Vec::new() } else { self.lines(&origin) };
            lines.extend(shown(path, &origin, &definition));
        }
        lines.join("\n") + "\n"
    }
}

/// The lines of a list for one name: its definition, or what it stands for.
pub(crate) fn shown(path: &str, origin: &str, definition: &[String]) -> Vec<String> {
    let short = |path: &str| path.strip_prefix("crate::").unwrap_or(path).to_string();
    let path = short(path);
    let Some((head, below)) = definition.split_first() else { return vec![format!("{path} = {}", short(origin))] };
    let below = below.iter().map(|line| format!("{path}: .. {line}"));
    std::iter::once(format!("{path}: {head}")).chain(below).collect()
}

/// Words of a macro's input that can be names of types.
fn names_in(tokens: TokenStream) -> Box<dyn Iterator<Item = String>> {
    Box::new(tokens.into_iter().flat_map(|token| match token {
        TokenTree::Ident(name) => {
            let name = name.to_string();
            let is_type = name.starts_with(|first: char| first.is_ascii_uppercase());
            Box::new(is_type.then_some(name).into_iter()) as Box<dyn Iterator<Item = String>>
        }
        TokenTree::Group(group) => names_in(group.stream()),
        _ => Box::new(std::iter::empty()),
    }))
}
