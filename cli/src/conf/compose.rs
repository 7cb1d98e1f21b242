//! Layers of a configuration, composed.

use super::declared::KEYS;
use super::flags::Flags;
use super::groups::Folders;
use super::key::Key;
use super::keys::{GROUPS, PROMPTS, find};
use super::origin::{Origin, Setting};
use super::sweep;
use super::text::{Entry, is_yaml, read};
use crate::conf_args::ConfArgs;
use anyhow::{Context, Result, anyhow, bail};
use candlescope::env::{ConfigError, EnvConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Value;

/// What only a data set has.
const OF_DATASETS: [&str; 4] = ["variant", "limit", "shuffle", "max_prompt_tokens"];
/// The table of a configuration file that chooses group files.
const CHOICES: &str = "groups.";

/// A configuration: every key that has a value, by its place among the keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Composition {
    settings: BTreeMap<usize, Setting>,
    /// The group files that were chosen, as `group=name`.
    groups: Vec<String>,
    /// What tells this combination of several from the others, as `key=value`.
    swept: Vec<String>,
}

/// The layers above the defaults, as given.
#[derive(Debug)]
pub(crate) struct Layers<'a> {
    folders: Folders,
    /// Group files that the file chooses.
    chosen: Vec<(&'static str, String)>,
    file: Option<(PathBuf, Vec<Entry>)>,
    sets: &'a [String],
    arguments: &'a [String],
    multirun: bool,
    flags: &'a Flags,
}

/// `group=name` or `key=value`.
enum Argument<'a> {
    Group(&'static str, &'a str),
    Key(&'static Key, &'a str),
}

impl<'a> Layers<'a> {
    /// Reads the file, if there is one, and takes the arguments apart.
    pub(crate) fn of(flags: &'a Flags, args: &'a ConfArgs, config: Option<&Path>, sets: &'a [String]) -> Result<Self> {
        let (mut chosen, mut file) = (Vec::new(), None);
        if let Some(path) = config {
            let (choices, entries): (Vec<_>, Vec<_>) =
                read(path)?.into_iter().partition(|entry| entry.key.starts_with(CHOICES));
            for Entry { key, value, line } in choices {
                let name = value.as_str().map(str::to_string);
                let group = group(key.trim_start_matches(CHOICES));
                let place = || format!("{}:{line}", path.display());
                let (Some(name), Some(group)) = (name, group) else {
                    bail!("{}: `{key}` chooses no group file; write {CHOICES}model = \"NAME\"", place())
                };
                chosen.push((group, name));
            }
            // A run whose configuration is not known has such a file; it would run something else.
            if entries.is_empty() && chosen.is_empty() && is_yaml(path) {
                bail!("the configuration {} sets nothing; it needs a key such as model or repeats", path.display());
            }
            file = Some((path.to_path_buf(), entries));
        }
        Ok(Self {
            folders: Folders::new(args.config_dir.as_deref())?,
            chosen,
            file,
            sets,
            arguments: &args.settings,
            multirun: args.multirun,
            flags,
        })
    }

    /// Every combination of the values that were given; without `-m`, one.
    pub(crate) fn combinations(&self) -> Result<Vec<Composition>> {
        if !self.multirun {
            let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
            return Ok(vec![self.compose(&arguments)?]);
        }
        let combinations = sweep::combinations(self.arguments)?;
        let composed = combinations.iter().map(|combination| {
            let arguments: Vec<&str> = combination.arguments.iter().map(String::as_str).collect();
            Ok(Composition { swept: combination.swept.clone(), ..self.compose(&arguments)? })
        });
        composed.collect()
    }

    fn compose(&self, arguments: &[&str]) -> Result<Composition> {
        let arguments = arguments.iter().map(|text| argument(text)).collect::<Result<Vec<_>>>()?;
        let mut composed = Composition::default();
        for (index, key) in KEYS.iter().enumerate() {
            if let Some(default) = key.default {
                let value = key.parsed(default)?;
                composed.settings.insert(index, Setting { value, origin: Origin::Default });
            }
        }
        for (group, name) in self.choices(&arguments) {
            composed.group(&self.folders, group, &name)?;
        }
        if let Some((path, entries)) = &self.file {
            let origin = |line| Origin::File { path: path.clone(), line };
            composed.lay(layer(entries, None, origin)?);
        }
        let mut sets = Vec::new();
        for text in self.sets {
            let (name, value) = text.split_once('=').ok_or_else(|| anyhow!("--set wants KEY=VALUE, not `{text}`"))?;
            let key = find(name, None).with_context(|| format!("in --set {text}"))?;
            let value = key.parsed(value.trim()).with_context(|| format!("in --set {text}"))?;
            sets.push((key, Setting { value, origin: Origin::Set }));
        }
        composed.lay(last_prompt(sets));
        // One layer, whatever the order: a data set's variant may stand before its path.
        let mut given = Vec::new();
        for argument in &arguments {
            if let Argument::Key(key, text) = argument {
                given.push((*key, Setting { value: key.parsed(text)?, origin: Origin::Argument }));
            }
        }
        composed.lay(last_prompt(given));
        let flags = self
            .flags
            .iter()
            .map(|(key, value)| (*key, Setting { value: value.clone(), origin: Origin::Flag(key.option()) }));
        composed.lay(flags.collect());
        composed.repeats()?;
        Ok(composed)
    }

    /// One file for each group that was chosen: on the command line, or else in the file.
    fn choices(&self, arguments: &[Argument<'_>]) -> Vec<(&'static str, String)> {
        let given = arguments.iter().filter_map(|argument| match argument {
            Argument::Group(group, name) => Some((*group, (*name).to_string())),
            Argument::Key(..) => None,
        });
        let mut chosen = BTreeMap::new();
        for (group, name) in self.chosen.iter().cloned().chain(given) {
            chosen.insert(GROUPS.iter().position(|g| *g == group), (group, name));
        }
        chosen.into_values().collect()
    }
}

/// Of settings that were given one after the other, the last one that names a prompt, and all others.
fn last_prompt(given: Vec<(&'static Key, Setting)>) -> Vec<(&'static Key, Setting)> {
    let is_prompt = |key: &Key| key.group == "dataset" && PROMPTS.contains(&key.name);
    let last = given.iter().rposition(|(key, _)| is_prompt(key));
    let kept = given.into_iter().enumerate().filter(|(at, (key, _))| !is_prompt(key) || Some(*at) == last);
    kept.map(|(_, setting)| setting).collect()
}

impl Composition {
    /// Lays a group's file over what there is.
    fn group(&mut self, folders: &Folders, group: &'static str, name: &str) -> Result<()> {
        let file = folders.open(group, name)?;
        self.lay(layer(file.entries(), Some(group), |line| file.origin(line))?);
        self.groups.push(format!("{group}={name}"));
        Ok(())
    }

    /// Lays `layer` over what there is. Whatever it says about the prompt replaces what the layers below say.
    fn lay(&mut self, layer: Vec<(&'static Key, Setting)>) {
        let names = |names: &[&str]| layer.iter().any(|(key, _)| key.group == "dataset" && names.contains(&key.name));
        if names(&PROMPTS) {
            let is_dataset = names(&["path"]);
            self.settings.retain(|index, _| {
                let key = &KEYS[*index];
                let of_another = key.name == "variant" || !is_dataset;
                let goes = PROMPTS.contains(&key.name) || (OF_DATASETS.contains(&key.name) && of_another);
                key.group != "dataset" || !goes
            });
        }
        self.settings.extend(layer.into_iter().map(|(key, setting)| (index(key), setting)));
    }

    /// `runtime.repeats` is one by default if a data set is run.
    fn repeats(&mut self) -> Result<()> {
        let is_dataset = self.at("dataset", "path").is_some();
        let repeats = self.settings.get_mut(&index(find("runtime.repeats", None)?));
        if let Some(setting) = repeats.filter(|setting| is_dataset && setting.origin == Origin::Default) {
            setting.value = Value::Integer(1);
        }
        Ok(())
    }

    /// The value of a key.
    pub(crate) fn at(&self, group: &str, name: &str) -> Option<&Value> {
        let found = self.iter().find(|(key, _)| key.group == group && key.name == name);
        found.map(|(_, setting)| &setting.value)
    }

    /// What files say, but for those that are part of the program: of each the keys and values that stand.
    #[cfg(feature = "lab")]
    pub(crate) fn of_files(&self) -> BTreeMap<&Path, String> {
        let mut files: BTreeMap<&Path, String> = BTreeMap::new();
        for (key, setting) in self.iter() {
            if let Origin::File { path, .. } = &setting.origin {
                let line = format!("{}.{} = {}\n", key.group, key.name, setting.value);
                files.entry(path).or_default().push_str(&line);
            }
        }
        files
    }

    /// What is set, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static Key, &Setting)> {
        self.settings.iter().map(|(index, setting)| (&KEYS[*index], setting))
    }

    /// The group files that were chosen, as `group=name`.
    pub(crate) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// What tells this combination from the others, as `key=value`.
    pub(crate) fn swept(&self) -> &[String] {
        &self.swept
    }

    /// The options of the SDK.
    ///
    /// # Errors
    /// If one does not accept its value.
    pub(crate) fn of_sdk(&self) -> Result<EnvConfig> {
        let mut config = EnvConfig::default();
        for (key, setting) in self.iter().filter(|(key, _)| key.of_sdk().is_some()) {
            let text = setting.value.as_str().map_or_else(|| setting.value.to_string(), str::to_string);
            config.set(key.option(), &text).map_err(|error| match error {
                ConfigError::Value { wanted, value, .. } => {
                    // What has an `@` may be an address with a password.
                    let value = if value.contains('@') { "***" } else { &value };
                    anyhow!("--{} is {value}; it must be {wanted}", key.option())
                }
                other => other.into(),
            })?;
        }
        Ok(config)
    }
}

/// A key's place among all.
fn index(key: &'static Key) -> usize {
    KEYS.iter().position(|other| std::ptr::eq(other, key)).unwrap_or_default()
}

/// Keys and values of a file's entries.
fn layer(
    entries: &[Entry],
    group: Option<&str>,
    origin: impl Fn(usize) -> Origin,
) -> Result<Vec<(&'static Key, Setting)>> {
    let one = |entry: &Entry| {
        let origin = origin(entry.line);
        let key = find(&entry.key, group).with_context(|| format!("in {origin}"))?;
        let value = key.checked(entry.value.clone()).with_context(|| format!("in {origin}"))?;
        Ok((key, Setting { value, origin }))
    };
    entries.iter().map(one).collect()
}

fn group(name: &str) -> Option<&'static str> {
    GROUPS.into_iter().find(|group| *group == name)
}

fn argument(text: &str) -> Result<Argument<'_>> {
    let Some((name, value)) = text.split_once('=') else {
        bail!(
            "`{text}` is no KEY=VALUE; an option has dashes, --model {text}, and a group file is chosen by its group, \
             model={text}"
        )
    };
    match group(name) {
        Some(group) => Ok(Argument::Group(group, value)),
        None => Ok(Argument::Key(find(name, None)?, value)),
    }
}
