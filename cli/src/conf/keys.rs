//! Keys by their names.

use super::declared::KEYS;
use super::key::Key;
use super::nearest;
use anyhow::{Result, anyhow};

/// The groups, in the order in which they are shown.
pub(crate) const GROUPS: [&str; 5] = ["model", "dataset", "runtime", "hardware", "profiling"];

/// The keys for a prompt, of which one counts.
pub(super) const PROMPTS: [&str; 5] = ["prompt", "prompt_file", "prompt_tokens", "path", "prompt_sha256"];

/// Names of other tools and scripts, and the keys that they stand for.
const ALIASES: &[(&str, &str)] = &[("dataset.root", "dataset.path"), ("model.name", "model.path")];

/// Another name of the group `runtime`.
const INFER: &str = "infer.";

/// Whether values of the key called `name` must not be written where nobody asked for them: texts, and addresses that may
/// hold passwords.
pub(crate) fn is_private(name: &str) -> bool {
    find(name, None).is_ok_and(|key| key.is_private)
}

/// The key called `name`: by its path, by an alias, by its option, or by its name alone if no other group has it.
/// Within `group`, its names come first.
pub(super) fn find(name: &str, group: Option<&str>) -> Result<&'static Key> {
    let wanted = name.trim().replace('-', "_");
    let aliased = ALIASES.iter().find(|(alias, _)| *alias == wanted).map(|(_, path)| (*path).to_string());
    let wanted = aliased.unwrap_or_else(|| match wanted.strip_prefix(INFER) {
        Some(rest) => format!("runtime.{rest}"),
        None => wanted,
    });
    if let Some(group) = group {
        let of_group = || KEYS.iter().filter(move |key| key.group == group);
        let root = if group == "dataset" && wanted == "root" { "path" } else { wanted.as_str() };
        return of_group().find(|key| key.name == root || key.path() == root).ok_or_else(|| {
            let names: Vec<&str> = of_group().map(|key| key.name).collect();
            anyhow!(
                "`{name}` is no key of the group {group}{}; its keys are {}",
                nearest::suggestion(&wanted, names.iter().copied()),
                names.join(", ")
            )
        });
    }
    let by = |fits: &dyn Fn(&Key) -> bool| {
        let mut fitting = KEYS.iter().filter(|key| fits(key));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    by(&|key| key.path() == wanted)
        .or_else(|| by(&|key| !key.flag.is_empty() && key.option().replace('-', "_") == wanted))
        .or_else(|| by(&|key| key.name == wanted))
        .ok_or_else(|| unknown(name, &wanted))
}

/// The error that there is no such key, with the nearest ones.
fn unknown(name: &str, wanted: &str) -> anyhow::Error {
    let paths: Vec<String> = KEYS.iter().map(Key::path).collect();
    // It may have been written with its group or without, or be a group.
    let names = KEYS.iter().map(|key| key.name).chain(GROUPS);
    let known = paths.iter().map(String::as_str).chain(names);
    let suggestion = nearest::suggestion(wanted, known);
    match wanted.split_once('.').filter(|(group, _)| GROUPS.contains(group)) {
        Some((group, _)) => {
            let names: Vec<&str> = KEYS.iter().filter(|key| key.group == group).map(|key| key.name).collect();
            anyhow!("`{name}` is no key{suggestion}; the group {group} has {}", names.join(", "))
        }
        None => {
            anyhow!("`{name}` is no key{suggestion}; keys are {}; groups are {}", paths.join(", "), GROUPS.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_key_finds_it() {
        let found = |name: &str| find(name, None).map(Key::path).map_err(|e| e.to_string());
        for name in ["runtime.max_new_tokens", "runtime.max-new-tokens", "max-new-tokens", "max_new_tokens"] {
            assert_eq!(found(name).unwrap(), "runtime.max_new_tokens");
        }
        assert_eq!(found("infer.max_new_tokens").unwrap(), "runtime.max_new_tokens");
        assert_eq!(found("dataset.root").unwrap(), "dataset.path");
        assert_eq!(found("device").unwrap(), "hardware.device");
        assert_eq!(found("model").unwrap(), "model.path", "as the flag");
        assert_eq!(found("out").unwrap(), "out");
        assert!(found("path").unwrap_err().contains("is no key"), "two groups have one");
        let error = found("runtime.max_new_token").unwrap_err();
        assert!(error.contains("did you mean `runtime.max_new_tokens`") && error.contains("temperature"), "{error}");
        assert_eq!(find("root", Some("dataset")).unwrap().path(), "dataset.path");
        assert!(find("device", Some("model")).unwrap_err().to_string().contains("its keys are path, engine"));
    }
}
