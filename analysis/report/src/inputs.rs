//! `inputs.yaml`: the configuration of a run as it was composed, from which it can be made again.

use super::format::{printable, utc};
use candlescope_schema::run::{RunManifest, env_key, option_key};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Deepest nesting that is written out; below, values are on one line.
const DEEPEST: usize = 3;

/// The text of `inputs.yaml`; of a run that does not say its configuration, comments with what it recorded of it.
pub fn inputs(manifest: &RunManifest) -> String {
    let mut out = String::new();
    let when = if manifest.started_ns > 0 { format!(", {}", utc(manifest.started_ns)) } else { String::new() };
    let _ = writeln!(out, "# Configuration of the run {}{when}", printable(&manifest.run_id));
    match option_key::INPUTS.of(&manifest.options) {
        Some(groups) => {
            out.push_str("# Make it again: candlescope profile --config inputs.yaml --out NEW_RUN\n");
            if groups.get("dataset").is_some_and(|dataset| dataset.get("prompt_sha256").is_some()) {
                out.push_str("# The prompt's text was not recorded: add --prompt TEXT.\n");
            }
            mapping(&mut out, groups, 0);
        }
        None => {
            out.push_str(
                "# The run does not say: it was made by another program than `candlescope profile`, or by an older one.\n",
            );
            if !manifest.options.is_empty() {
                out.push_str("# Options that it recorded:\n");
            }
            for (key, value) in &manifest.options {
                let _ = writeln!(out, "#   {}: {}", printable(key), scalar(value));
            }
            let threads = [
                env_key::COMPUTE_THREADS.name(),
                env_key::COMPUTE_THREADS_FROM.name(),
                env_key::RAYON_NUM_THREADS.name(),
                env_key::CANDLE_NUM_THREADS.name(),
            ];
            let known = threads.iter().filter_map(|key| Some((key, manifest.environment.get(*key)?)));
            let lines: Vec<String> = known.map(|(key, value)| format!("#   {key}: {}\n", scalar(value))).collect();
            if !lines.is_empty() {
                out.push_str("# Threads that it computed with (null: the variable was not set):\n");
                out.extend(lines);
            }
        }
    }
    out
}

fn mapping(out: &mut String, map: &Map<String, Value>, depth: usize) {
    for (key, value) in map {
        let indent = "  ".repeat(depth);
        match value.as_object().filter(|inner| !inner.is_empty() && depth < DEEPEST) {
            Some(inner) => {
                let _ = writeln!(out, "{indent}{}:", name(key));
                mapping(out, inner, depth + 1);
            }
            None => {
                let _ = writeln!(out, "{indent}{}: {}", name(key), scalar(value));
            }
        }
    }
}

/// A key: in quotes unless it is a plain word.
fn name(key: &str) -> String {
    let is_plain = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { key.to_string() } else { scalar(&Value::String(key.to_string())) }
}

/// JSON is YAML, on one line; what would steer a terminal is escaped.
fn scalar(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c == '\u{fffd}' || printable(c.encode_utf8(&mut [0; 4])) != "\u{fffd}" {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_configuration_is_yaml_and_an_unknown_one_says_so() {
        let mut manifest = RunManifest { run_id: "r".into(), ..RunManifest::default() };
        manifest.options.insert("seed".into(), json!(42));
        let text = inputs(&manifest);
        assert!(text.lines().all(|line| line.starts_with('#')) && text.contains("#   seed: 42"), "{text}");
        let groups = json!({ "model": { "path": "a: b\u{9b}\n" }, "runtime": { "temperature": 0.5, "odd key": true } });
        manifest.options.insert(option_key::INPUTS.name().into(), groups);
        let text = inputs(&manifest);
        let body: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected =
            ["model:", "  path: \"a: b\\u009b\\n\"", "runtime:", "  \"odd key\": true", "  temperature: 0.5"];
        assert_eq!(body, expected);
    }
}
