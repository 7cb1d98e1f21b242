//! Names that one crate of ours shows of another.

use crate::library::{Library, shown};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a name is, as far as lists are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Type,
    Function,
    Constant,
    Module,
}

/// Where something is defined: the crate, as code names it, and the path there.
pub(crate) type Definer = (String, String);

/// Whether what the crate of that name defines is described in the list of a crate that shows it.
pub(crate) type Describes<'a> = &'a dyn Fn(&str, Kind) -> bool;

/// A public name of a crate, with its lines in the list.
pub(crate) struct Name {
    /// Where it is defined; `None` if that is hidden, or no crate of ours.
    pub(crate) of: Option<Definer>,
    pub(crate) lines: Vec<String>,
}

/// Crates by the names that code has for them, such as `candlescope_core`.
pub(crate) struct Crates(BTreeMap<String, Library>);

impl Crates {
    /// Reads crates: their names in `Cargo.toml`, and their directories.
    pub(crate) fn read<'a>(crates: impl IntoIterator<Item = (&'a str, PathBuf)>) -> Self {
        let read = |dir: &Path| Library::read(&dir.join("src/lib.rs"));
        Self(crates.into_iter().map(|(name, dir)| (in_code(name), read(&dir))).collect())
    }

    /// Where the item is defined that `path` names in `of`.
    pub(crate) fn definer(&self, of: &str, path: &str) -> Option<Definer> {
        self.followed(of, path, 0)
    }

    fn followed(&self, of: &str, path: &str, depth: usize) -> Option<Definer> {
        let library = self.0.get(of).filter(|_| depth < 20)?;
        let origin = library.origin(path);
        if origin != path {
            let (of, origin) = self.split(of, &origin);
            return self.followed(&of, &origin, depth + 1);
        }
        if library.items.contains_key(path) || library.made.contains(path) {
            return Some((of.to_string(), path.to_string()));
        }
        let (module, name) = path.rsplit_once("::")?;
        let globs = library.globs.iter().filter(|(of, _)| of == module);
        let mut in_globs = globs.map(|(module, target)| {
            // A crate is named from where it stands.
            let target =
                target.strip_prefix(&format!("{module}::")).filter(|t| self.0.contains_key(*t)).unwrap_or(target);
            self.split(of, &format!("{target}::{name}"))
        });
        if let Some(found) = in_globs.find_map(|(of, path)| self.followed(&of, &path, depth + 1)) {
            return Some(found);
        }
        // The module may be another crate's.
        let (of_module, module_there) = self.followed(of, module, depth + 1)?;
        if of_module == of && module_there == module {
            return None;
        }
        self.followed(&of_module, &format!("{module_there}::{name}"), depth + 1)
    }

    /// A path with the crate that it is of.
    fn split(&self, of: &str, path: &str) -> Definer {
        match path.split_once("::") {
            Some((first, rest)) if self.0.contains_key(first) => (first.to_string(), format!("crate::{rest}")),
            None if self.0.contains_key(path) => (path.to_string(), "crate".to_string()),
            _ => (of.to_string(), path.to_string()),
        }
    }

    /// What the definition is; a word of a macro's input is a type.
    pub(crate) fn kind(&self, of: &Definer) -> Kind {
        let head = self.0[&of.0].lines(&of.1).into_iter().next().unwrap_or_default();
        let mut head = head.as_str();
        // The feature that it needs.
        while let Some((_, rest)) = head.split_once("] ").filter(|_| head.starts_with(['[', '#'])) {
            head = rest;
        }
        match head {
            "mod" => Kind::Module,
            "" => Kind::Type,
            _ if ["struct", "enum", "trait", "type "].iter().any(|word| head.starts_with(word)) => Kind::Type,
            _ if head.starts_with("static ") || (head.starts_with("const ") && !head.starts_with("const fn")) => {
                Kind::Constant
            }
            _ => Kind::Function,
        }
    }

    /// The public names of a crate. `describes` says whether what it shows of another crate has its lines here.
    pub(crate) fn names(&self, of: &str, describes: Describes<'_>) -> Vec<Name> {
        let mut names = Vec::new();
        for (path, target) in &self.0[of].public {
            let library = &self.0[of];
            let origin = library.origin(path);
            let definer = self.definer(of, path);
            match &definer {
                Some((there, _)) if there == of => {
                    // An item with a public path of its own is described there.
                    let elsewhere = target.is_some() && library.public.contains_key(&origin);
                    let lines = if elsewhere { Vec::new() } else { library.lines(&origin) };
                    names.push(Name { lines: shown(path, &origin, &lines), of: definer });
                }
                Some(definer) => self.of_another(path, definer, describes, &mut names),
                None => names.push(Name { lines: shown(path, &origin, &[]), of: None }),
            }
        }
        names
    }

    fn of_another(&self, path: &str, definer: &Definer, describes: Describes<'_>, names: &mut Vec<Name>) {
        let (there, inside) = definer;
        let kind = self.kind(definer);
        let library = &self.0[there];
        let described = names.iter().any(|name| name.of.as_ref() == Some(definer));
        let lines = if describes(there, kind) && !described { library.lines(inside) } else { Vec::new() };
        // By its shortest path that is public.
        let public = library.public.keys().filter(|known| library.origin(known) == *inside);
        let best = public.min_by_key(|known| known.len()).unwrap_or(inside);
        let named = format!("{there}{}", best.strip_prefix("crate").unwrap_or(best));
        names.push(Name { lines: shown(path, &named, &lines), of: Some(definer.clone()) });
        if kind == Kind::Module && describes(there, kind) {
            let below = format!("{inside}::");
            for name in library.public.keys().filter_map(|known| known.strip_prefix(&below)) {
                if let Some(definer) = self.definer(there, &format!("{below}{name}")) {
                    self.of_another(&format!("{path}::{name}"), &definer, describes, names);
                }
            }
        }
    }
}

/// The name that code has for a crate.
pub(crate) fn in_code(name: &str) -> String {
    name.replace('-', "_")
}
