//! Group files: those of the user, and those that are part of the program.

use super::keys::GROUPS;
use super::nearest;
use super::origin::Origin;
use super::text::{Entry, read, toml};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder of configurations in the directory where the command is called.
const HERE: &str = "conf";

macro_rules! built_in {
    ($($group:literal: $($name:literal),+;)+) => {
        /// Group, name and text of every file that is part of the program.
        const BUILT_IN: &[(&str, &str, &str)] = &[
            $($(($group, $name, include_str!(concat!("../../conf/", $group, "/", $name, ".toml"))),)+)+
        ];
    };
}

built_in! {
    "model": "embedded", "gpt2", "llama-3-8b", "qwen2.5-0.5b", "qwen3-0.6b", "smollm2", "smollm2-random", "t5-small";
    "dataset": "default", "random", "samples";
    "runtime": "default", "long", "sampled", "short";
    "hardware": "a100", "cpu", "h100", "h200";
    "profiling": "default", "full", "kernels", "off", "steps";
}

/// Where group files are looked for.
#[derive(Debug)]
pub(super) struct Folders {
    given: Option<PathBuf>,
}

/// A group file.
#[derive(Debug)]
pub(super) struct GroupFile {
    entries: Vec<Entry>,
    place: ConfSource,
}

#[derive(Debug, Clone)]
enum ConfSource {
    File(PathBuf),
    BuiltIn { group: &'static str, name: &'static str },
}

impl Folders {
    /// `given`, which has to be there, then `./conf`, then what is part of the program.
    pub(super) fn new(given: Option<&Path>) -> Result<Self> {
        if let Some(missing) = given.filter(|folder| !folder.is_dir()) {
            bail!("--config-dir {} is no directory; it holds the folders {}", missing.display(), GROUPS.join(", "));
        }
        Ok(Self { given: given.map(Path::to_path_buf) })
    }

    fn on_disk(&self) -> impl Iterator<Item = &Path> {
        self.given.as_deref().into_iter().chain(std::iter::once(Path::new(HERE)))
    }

    /// The file of a group that is called `name`.
    pub(super) fn open(&self, group: &str, name: &str) -> Result<GroupFile> {
        // The name is a part of a path: it stays inside its folder.
        let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':']);
        for folder in self.on_disk().filter(|_| is_name) {
            let path = folder.join(group).join(format!("{name}.toml"));
            if path.is_file() {
                return Ok(GroupFile { entries: read(&path)?, place: ConfSource::File(path) });
            }
        }
        if let Some(&(group, name, text)) = BUILT_IN.iter().find(|(g, n, _)| *g == group && *n == name) {
            let entries = toml(text).with_context(|| format!("in the built-in conf/{group}/{name}.toml"))?;
            return Ok(GroupFile { entries, place: ConfSource::BuiltIn { group, name } });
        }
        let names = self.names(group);
        let path = match group {
            _ if name.contains(',') => "; -m takes several values".to_string(),
            "model" => format!("; for a file, a directory or a hub id, write model.path={name}"),
            "dataset" => format!("; for a file or a directory, write dataset.path={name}"),
            _ => String::new(),
        };
        bail!(
            "the group {group} has no `{name}`{}; it has {} (looked in {}, and in what is built in){path}",
            nearest::suggestion(name, names.iter().map(String::as_str)),
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
            self.on_disk().map(|folder| folder.join(group).display().to_string()).collect::<Vec<_>>().join(", ")
        )
    }

    /// The names that a group has anywhere.
    fn names(&self, group: &str) -> BTreeSet<String> {
        let built_in = BUILT_IN.iter().filter(|(g, ..)| *g == group).map(|(_, name, _)| (*name).to_string());
        let listed = self.on_disk().filter_map(|folder| std::fs::read_dir(folder.join(group)).ok());
        let files = listed.flatten().flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
        files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_string())).chain(built_in).collect()
    }
}

impl GroupFile {
    /// Where the line is.
    pub(super) fn origin(&self, line: usize) -> Origin {
        match &self.place {
            ConfSource::File(path) => Origin::File { path: path.clone(), line },
            ConfSource::BuiltIn { group, name } => Origin::BuiltIn { group, name, line },
        }
    }

    /// Its values, in the order of its lines.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
        for group in GROUPS {
            let names = |list: &mut dyn Iterator<Item = String>| list.collect::<BTreeSet<String>>();
            let files = std::fs::read_dir(folder.join(group)).unwrap().flatten().map(|entry| entry.path());
            let files = files.filter(|path| path.extension().is_some_and(|e| e == "toml"));
            let there = names(&mut files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string()));
            let built = BUILT_IN.iter().filter(|(g, ..)| *g == group).map(|(_, name, _)| (*name).to_string());
            assert_eq!(there, names(&mut built.into_iter()), "{group}");
        }
    }
}
