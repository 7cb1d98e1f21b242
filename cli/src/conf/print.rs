//! A composed configuration as people read it, and as a run keeps it.

use super::DEFAULT_PROMPT;
use super::compose::Composition;
use super::declared::KEYS;
use super::key::{Key, RunPlace};
use super::keys::GROUPS;
use super::origin::Setting;
use candlescope_core::RedactedUrl;
use candlescope_prompts::sha256;
use serde_json::{Map, Value as Json, json};
use toml::Value;

/// For which column comments are lined up.
const WIDTH: usize = 40;

impl Composition {
    /// TOML with where each value comes from, for `--print-config`.
    pub(crate) fn to_toml(&self) -> String {
        let mut out = String::from("# later ones win: default < group file < --config file < key=value < flag\n");
        if !self.groups().is_empty() {
            out.push_str(&format!("# group files: {}\n", self.groups().join(" ")));
        }
        for group in [""].into_iter().chain(GROUPS) {
            let of_group = |key: &&Key| key.group == group;
            let set: Vec<_> = self.iter().filter(|(key, _)| key.group == group).collect();
            if group.is_empty() {
                set.iter().for_each(|(key, setting)| out.push_str(&line(key, setting)));
                continue;
            }
            out.push_str(&format!("\n[{group}]\n"));
            set.iter().for_each(|(key, setting)| out.push_str(&line(key, setting)));
            let unset = KEYS.iter().filter(of_group).filter(|key| set.iter().all(|(known, _)| known != key));
            let unset: Vec<&str> = unset.map(|key| key.name).collect();
            if !unset.is_empty() {
                out.push_str(&format!("# not set: {}\n", unset.join(", ")));
            }
        }
        out
    }

    /// The same as an object: for each key its value and origin.
    pub(crate) fn to_json(&self) -> Json {
        let keys = self.iter().map(|(key, setting)| {
            let value = json!({ "value": shown(key, &setting.value), "origin": setting.origin.to_string() });
            (key.path(), value)
        });
        json!({ "groups": self.groups(), "keys": keys.collect::<Map<_, _>>() })
    }

    /// What a run keeps under `options`, by flag; null for what is not set.
    pub(crate) fn kept(&self) -> Map<String, Json> {
        let kept = KEYS.iter().filter(|key| key.kept == RunPlace::Options);
        kept.map(|key| (key.option().to_string(), json!(self.at(key.group, key.name)))).collect()
    }

    /// What a run keeps, by group, so that it can be made again. It has no places, of which the address of a service may
    /// be a secret, and of a prompt only its hash, unless `dataset.keep_text` is on.
    pub(crate) fn inputs(&self) -> Json {
        let keep_text = self.at("dataset", "keep_text").and_then(Value::as_bool).unwrap_or(false);
        let mut groups = Map::new();
        for (key, setting) in self.iter().filter(|(key, _)| key.kept != RunPlace::Nowhere) {
            let (name, value) = match (key.name, &setting.value) {
                // What is run without any prompt.
                ("prompt", Value::String(text)) if text == DEFAULT_PROMPT => continue,
                ("prompt", Value::String(text)) if !keep_text => ("prompt_sha256", json!(sha256(text))),
                (name, value) => (name, json!(value)),
            };
            let group = groups.entry(key.group).or_insert_with(|| json!({}));
            group[name] = value;
        }
        Json::Object(groups)
    }
}

/// A value without credentials.
fn shown(key: &Key, value: &Value) -> Value {
    match (key.name, value) {
        ("otlp", Value::String(url)) => Value::String(RedactedUrl::new(url.as_str()).to_string()),
        _ => value.clone(),
    }
}

fn line(key: &Key, setting: &Setting) -> String {
    let text = format!("{} = {}", key.name, shown(key, &setting.value));
    format!("{text:<WIDTH$}  # {}\n", setting.origin)
}
