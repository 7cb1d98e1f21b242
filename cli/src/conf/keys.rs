//! Every key of a configuration: its group, the option that it stands for, its kind and its default.

use super::nearest;
use anyhow::{Result, anyhow, bail};
use toml::Value;

/// The groups, in the order in which they are shown.
pub(crate) const GROUPS: [&str; 5] = ["model", "dataset", "runtime", "hardware", "profiling"];

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Number,
    Flag,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Whole => "a whole number, 0 or more",
            Kind::Number => "a number",
            Kind::Flag => "true or false",
        }
    }
}

/// One key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its group; empty for a key that stands above them.
    pub(super) group: &'static str,
    /// Its name in the group.
    pub(super) name: &'static str,
    /// The flag of the same meaning, without its dashes; empty if there is none.
    pub(super) option: &'static str,
    pub(super) kind: Kind,
    /// As TOML; `None` if the value is absent unless set, or depends on other options.
    pub(super) default: Option<&'static str>,
}

const fn key(
    group: &'static str,
    name: &'static str,
    option: &'static str,
    kind: Kind,
    default: Option<&'static str>,
) -> Key {
    Key { group, name, option, kind, default }
}

/// All keys, group by group.
pub(super) const KEYS: &[Key] = &[
    key("model", "path", "model", Kind::Text, Some("\"embedded\"")),
    key("model", "engine", "engine", Kind::Text, Some("\"auto\"")),
    key("model", "dtype", "dtype", Kind::Text, None),
    key("model", "dequantize", "dequantize", Kind::Flag, Some("false")),
    key("dataset", "path", "dataset", Kind::Text, None),
    key("dataset", "variant", "variant", Kind::Text, None),
    key("dataset", "limit", "", Kind::Whole, None),
    key("dataset", "shuffle", "", Kind::Flag, None),
    key("dataset", "max_prompt_tokens", "", Kind::Whole, None),
    key("dataset", "prompt", "prompt", Kind::Text, None),
    key("dataset", "prompt_file", "prompt-file", Kind::Text, None),
    key("dataset", "prompt_tokens", "prompt-tokens", Kind::Whole, None),
    key("dataset", "prompt_sha256", "", Kind::Text, None),
    key("dataset", "image", "image", Kind::Text, None),
    key("dataset", "keep_text", "", Kind::Flag, Some("false")),
    key("runtime", "max_new_tokens", "max-new-tokens", Kind::Whole, Some("64")),
    key("runtime", "ignore_eos", "ignore-eos", Kind::Flag, Some("false")),
    key("runtime", "batch", "batch", Kind::Whole, Some("1")),
    key("runtime", "repeats", "repeats", Kind::Whole, None),
    key("runtime", "warmup", "warmup", Kind::Whole, Some("1")),
    key("runtime", "chat", "chat", Kind::Flag, Some("false")),
    key("runtime", "seed", "seed", Kind::Whole, Some("42")),
    key("runtime", "temperature", "temperature", Kind::Number, Some("0.0")),
    key("runtime", "top_k", "top-k", Kind::Whole, None),
    key("runtime", "top_p", "top-p", Kind::Number, None),
    key("hardware", "device", "device", Kind::Text, Some("\"cpu\"")),
    key("hardware", "threads", "threads", Kind::Whole, None),
    key("hardware", "price_per_hour", "price-per-hour", Kind::Number, None),
    key("profiling", "gpu_timing", "gpu-timing", Kind::Text, None),
    key("profiling", "gpu_budget", "gpu-budget", Kind::Number, None),
    key("profiling", "cupti", "cupti", Kind::Text, None),
    key("profiling", "overhead_probe", "overhead-probe", Kind::Whole, None),
    key("profiling", "ring_capacity", "ring-capacity", Kind::Whole, None),
    key("profiling", "queue_records", "queue-records", Kind::Whole, None),
    key("profiling", "nvtx", "nvtx", Kind::Flag, None),
    key("profiling", "otlp", "otlp", Kind::Text, None),
    key("profiling", "prometheus", "prometheus", Kind::Text, None),
    key("profiling", "perfetto", "perfetto", Kind::Text, None),
    key("profiling", "disk_budget_mb", "disk-budget-mb", Kind::Whole, None),
    key("", "out", "out", Kind::Text, None),
];

/// Names of other tools and scripts, and the keys that they stand for.
const ALIASES: &[(&str, &str)] = &[("dataset.root", "dataset.path"), ("model.name", "model.path")];

/// Another name of the group `runtime`.
const INFER: &str = "infer.";

impl Key {
    /// `runtime.max_new_tokens`.
    pub(super) fn path(&self) -> String {
        if self.group.is_empty() { self.name.to_string() } else { format!("{}.{}", self.group, self.name) }
    }

    /// Its place in [`KEYS`].
    pub(super) fn index(&'static self) -> usize {
        KEYS.iter().position(|key| std::ptr::eq(key, self)).unwrap_or_default()
    }

    /// `value` if it is of the right kind; a whole number is a number.
    pub(super) fn checked(&self, value: Value) -> Result<Value> {
        Ok(match (self.kind, value) {
            (Kind::Text, value @ Value::String(_)) | (Kind::Flag, value @ Value::Boolean(_)) => value,
            (Kind::Whole, Value::Integer(n)) if n >= 0 => Value::Integer(n),
            (Kind::Number, value @ Value::Float(_)) => value,
            (Kind::Number, Value::Integer(n)) => Value::Float(n as f64),
            (kind, value) => bail!("`{}` is {value}; it must be {}", self.path(), kind.name()),
        })
    }

    /// The value of a text that has no quotes, as on a command line: `model.path=embedded`.
    pub(super) fn parsed(&self, text: &str) -> Result<Value> {
        let value = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
        match value {
            Some(Value::String(text)) if self.kind == Kind::Text => Ok(Value::String(text)),
            _ if self.kind == Kind::Text => Ok(Value::String(text.to_string())),
            Some(value) => self.checked(value),
            None => self.checked(Value::String(text.to_string())),
        }
    }
}

/// Whether values of this key must not be written where nobody asked for them: texts, and addresses that may hold
/// passwords.
pub(super) fn is_private(name: &str) -> bool {
    let private = ["dataset.prompt", "profiling.otlp", "profiling.prometheus"];
    find(name, None).is_ok_and(|key| private.contains(&key.path().as_str()))
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
        .or_else(|| by(&|key| !key.option.is_empty() && key.option.replace('-', "_") == wanted))
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

    #[test]
    fn defaults_are_of_their_kind_and_options_are_unique() {
        for key in KEYS {
            if let Some(default) = key.default {
                let value = format!("v = {default}").parse::<toml::Table>().unwrap().remove("v").unwrap();
                assert_eq!(key.checked(value.clone()).unwrap(), value, "{}", key.path());
            }
            assert_eq!(find(&key.path(), None).unwrap(), key);
            assert!(key.option.is_empty() || find(key.option, None).unwrap() == key, "{}", key.option);
        }
    }

    #[test]
    fn values_are_read_by_kind() {
        let parsed = |name: &str, text: &str| find(name, None).unwrap().parsed(text).map_err(|e| e.to_string());
        assert_eq!(parsed("model.path", "7").unwrap(), Value::String("7".into()));
        assert_eq!(parsed("model.path", "\"a b\"").unwrap(), Value::String("a b".into()));
        assert_eq!(parsed("temperature", "1").unwrap(), Value::Float(1.0));
        assert_eq!(parsed("chat", "true").unwrap(), Value::Boolean(true));
        assert_eq!(
            parsed("repeats", "x").unwrap_err(),
            "`runtime.repeats` is \"x\"; it must be a whole number, 0 or more"
        );
        assert!(parsed("repeats", "-1").unwrap_err().contains("it must be a whole number"));
    }
}
