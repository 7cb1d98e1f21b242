//! Configuration files as lists of entries with their lines: TOML, and YAML as runs keep it.

use anyhow::{Context, Result, anyhow, bail};
use candlescope_core::files::read_text_limited;
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::path::Path;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Largest configuration, in bytes. One that sets every option has less than two kilobytes.
const MAX_BYTES: u64 = 1 << 20;

/// One value of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    /// Names of the tables around it, and its own, joined by dots.
    pub(super) key: String,
    pub(super) value: Value,
    /// Counted from 1.
    pub(super) line: usize,
}

/// The entries of the file at `path`: YAML if its name says so, else TOML.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = read_text_limited(path, MAX_BYTES)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let yaml = is_yaml(path);
    if yaml { self::yaml(&text) } else { self::toml(&text) }
        .with_context(|| format!("{} is not valid {}", path.display(), if yaml { "YAML" } else { "TOML" }))
}

/// Whether the file's name says that it is YAML.
pub(super) fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"))
}

/// The entries of a text of TOML.
pub(super) fn toml(text: &str) -> Result<Vec<Entry>> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        anyhow!("line {line}: {}", error.message().trim().replace('\n', " "))
    })?;
    let mut entries = Vec::new();
    flatten("", table.get_ref(), text, &mut entries)?;
    Ok(entries)
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

fn flatten(prefix: &str, table: &DeTable<'_>, text: &str, entries: &mut Vec<Entry>) -> Result<()> {
    for (name, value) in table {
        let line = line_at(text, name.span().start);
        let key = joined(prefix, name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&key, inner, text, entries)?,
            other => entries.push(Entry { value: plain(&key, line, other)?, key, line }),
        }
    }
    // As in the file, not by name.
    entries.sort_by_key(|entry| entry.line);
    Ok(())
}

fn plain(key: &str, line: usize, value: &DeValue<'_>) -> Result<Value> {
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(on) => Value::Boolean(*on),
        DeValue::Integer(number) => Value::Integer(
            i64::from_str_radix(number.as_str(), number.radix())
                .with_context(|| format!("line {line}: `{key}` is too large a number"))?,
        ),
        DeValue::Float(number) => {
            Value::Float(number.as_str().parse().with_context(|| format!("line {line}: `{key}` is no number"))?)
        }
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            bail!("line {line}: `{key}` is {}; options are texts, numbers, true and false", value.type_str())
        }
    })
}

fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

/// The entries of a text of YAML: mappings of scalars. Anchors, lists and tags have no meaning in a configuration.
pub(super) fn yaml(text: &str) -> Result<Vec<Entry>> {
    let mut reading = Yaml::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| anyhow!("line {}: {}", error.marker().line(), error.info()))?;
        reading.take(&event, span.start.line())?;
    }
    Ok(reading.entries)
}

/// Most mappings inside each other: a group, and what is in it.
const MOST_DEPTH: usize = 4;

/// What has been read so far.
#[derive(Default)]
struct Yaml {
    /// The key of each open mapping; empty for the outermost.
    open: Vec<String>,
    /// A key whose value is to come.
    key: Option<(String, usize)>,
    entries: Vec<Entry>,
}

impl Yaml {
    fn take(&mut self, event: &Event<'_>, line: usize) -> Result<()> {
        match event {
            Event::MappingStart(..) if self.open.len() >= MOST_DEPTH => bail!("line {line}: it is nested too deeply"),
            Event::MappingStart(_, None) => {
                let key = self.key.take().map_or_else(String::new, |(key, _)| key);
                self.open.push(key);
            }
            Event::MappingEnd => {
                self.open.pop();
            }
            Event::Scalar(text, style, 0, None) => match self.key.take() {
                // `key:` without a value leaves the key unset.
                Some((key, line)) => {
                    self.entries.extend(scalar(text, *style).map(|value| Entry { key, value, line }));
                }
                None => {
                    let Some(prefix) = self.open.last() else {
                        // An empty file is a document with an empty scalar.
                        if text.is_empty() {
                            return Ok(());
                        }
                        bail!("line {line}: `{text}` is no `key: value`");
                    };
                    self.key = Some((joined(prefix, text), line));
                }
            },
            Event::SequenceStart(..) => bail!("line {line}: it has a list; options are texts, numbers, true and false"),
            Event::Alias(_) | Event::Scalar(..) | Event::MappingStart(..) => {
                bail!("line {line}: anchors, aliases and tags are not read; write the values out")
            }
            _ => {}
        }
        Ok(())
    }
}

/// The value of a scalar, by YAML's core schema; `None` for null.
fn scalar(text: &str, style: ScalarStyle) -> Option<Value> {
    if style != ScalarStyle::Plain {
        return Some(Value::String(text.to_string()));
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return None,
        "true" | "True" | "TRUE" => return Some(Value::Boolean(true)),
        "false" | "False" | "FALSE" => return Some(Value::Boolean(false)),
        _ => {}
    }
    let integer = text.parse().ok().map(Value::Integer);
    // `inf` and `nan`, which Rust reads, are words in YAML.
    let is_number = || text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    let float = || text.parse::<f64>().ok().filter(|v| v.is_finite() && is_number()).map(Value::Float);
    Some(integer.or_else(float).unwrap_or_else(|| Value::String(text.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entries: Vec<Entry>) -> Vec<String> {
        entries.iter().map(|e| format!("{}: {} = {}", e.line, e.key, e.value)).collect()
    }

    #[test]
    fn toml_and_yaml_give_the_same_entries() {
        let toml =
            self::toml("repeats = 3\n[model]\npath = \"a b\"\n\n[runtime]\ntemperature = 0.5\nchat = true\n").unwrap();
        assert_eq!(
            shown(toml),
            ["1: repeats = 3", "3: model.path = \"a b\"", "6: runtime.temperature = 0.5", "7: runtime.chat = true"]
        );
        let yaml = yaml(
            "# a comment\nrepeats: 3\nmodel:\n  path: \"a b\"\n  dtype:\nruntime:\n  temperature: 0.5\n  chat: true\n",
        );
        assert_eq!(
            shown(yaml.unwrap()),
            ["2: repeats = 3", "4: model.path = \"a b\"", "7: runtime.temperature = 0.5", "8: runtime.chat = true"]
        );
        assert_eq!(self::yaml("# nothing\n").unwrap(), []);
        assert_eq!(
            shown(self::yaml("a: \"7\"\nb: inf\nc: -1.5e3\n").unwrap()),
            ["1: a = \"7\"", "2: b = \"inf\"", "3: c = -1500.0"]
        );
    }

    #[test]
    fn what_a_configuration_cannot_hold_is_named_with_its_line() {
        let toml = |text: &str| format!("{:#}", self::toml(text).unwrap_err());
        assert!(toml("a = 1\nb = [1]\n").contains("line 2: `b` is array"), "{}", toml("a = 1\nb = [1]\n"));
        assert!(toml("a = 1\nb = \n").contains("line 2"));
        assert!(toml("a = 99999999999999999999\n").contains("too large a number"));
        let yaml = |text: &str| format!("{:#}", self::yaml(text).unwrap_err());
        assert!(yaml("a: 1\nb:\n  - 1\n").contains("it has a list"));
        assert!(yaml("a: &x 1\nb: *x\n").contains("anchors"));
        assert!(yaml("a: {b: {c: {d: {e: 1}}}}\n").contains("nested too deeply"));
        assert!(yaml("just words\n").contains("is no `key: value`"));
        assert!(yaml("a: \"unended\n").contains("line "));
    }
}
