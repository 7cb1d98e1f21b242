//! Prompts from files: JSONL, ShareGPT's JSON, plain text, and directories of them.

use super::{Content, Prompt};
use candlescope_core::files::read_text_limited;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file.
const MOST_BYTES: u64 = 1 << 30;
/// Describes a directory: its variants, and which of them is the default.
const METADATA: &str = "metadata.json";

/// The prompts of a data set cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// It cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line or an entry is not what it should be.
    #[error("{}, {place}: {why}", .path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// Line or number of the entry.
        place: String,
        /// What is wrong, and what it should be.
        why: String,
    },
    /// There is nothing in it.
    #[error("{} has no prompts: {why}", .path.display())]
    Empty {
        /// The file or directory.
        path: PathBuf,
        /// What was looked for.
        why: String,
    },
    /// A variant has to be named, or does not exist.
    #[error("{} has the variants {}: {why}", .path.display(), .variants.join(", "))]
    Variant {
        /// The directory.
        path: PathBuf,
        /// Those there are.
        variants: Vec<String>,
        /// What to do.
        why: String,
    },
}

pub(super) fn read(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    if path.is_dir() {
        return directory(path, variant);
    }
    if let Some(variant) = variant {
        let why = format!("it is a file, which has no variant {variant}");
        return Err(DatasetError::Empty { path: path.to_path_buf(), why });
    }
    file(path)
}

fn text_of(path: &Path) -> Result<String, DatasetError> {
    read_text_limited(path, MOST_BYTES).map_err(|cause| DatasetError::Read { path: path.to_path_buf(), cause })
}

fn empty(path: &Path, why: impl Into<String>) -> DatasetError {
    DatasetError::Empty { path: path.to_path_buf(), why: why.into() }
}

fn file(path: &Path) -> Result<Vec<Prompt>, DatasetError> {
    let text = text_of(path)?;
    let kind = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let prompts = match kind.as_str() {
        "jsonl" | "ndjson" => lines(path, &text)?,
        "json" => share_gpt(path, &text)?,
        _ => {
            let kept = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
            kept.map(|(n, line)| Prompt { id: n as u64 + 1, content: Content::Text(line.into()), max_tokens: None })
                .collect()
        }
    };
    if prompts.is_empty() {
        return Err(empty(path, "write a prompt a line"));
    }
    Ok(prompts)
}

/// An object a line.
fn lines(path: &Path, text: &str) -> Result<Vec<Prompt>, DatasetError> {
    let kept = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    kept.map(|(n, line)| {
        let wrong =
            |why: String| DatasetError::Entry { path: path.to_path_buf(), place: format!("line {}", n + 1), why };
        let value: Value = serde_json::from_str(line).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
        entry(n as u64 + 1, &value).map_err(wrong)
    })
    .collect()
}

/// `{"prompt": "…"}`, `{"messages": […]}`, or a conversation of ShareGPT; with `max_tokens` where answers are to have
/// lengths of their own.
fn entry(id: u64, value: &Value) -> Result<Prompt, String> {
    let max_tokens = value.get("max_tokens").and_then(Value::as_u64).filter(|n| *n > 0);
    let content = if let Some(prompt) = value.get("prompt") {
        Content::Text(prompt.as_str().ok_or("`prompt` is no text")?.to_string())
    } else if let Some(messages) = value.get("messages") {
        let messages = messages.as_array().filter(|m| !m.is_empty()).ok_or("`messages` is no list with a message")?;
        if let Some(odd) = messages.iter().find(|m| m.get("role").and_then(Value::as_str).is_none()) {
            return Err(format!("a message has no `role`: {odd}"));
        }
        Content::Messages(messages.clone())
    } else if value.get("conversations").is_some() || value.get("conversation").is_some() {
        opening(value).ok_or("its conversation has nothing said by a person")?
    } else {
        return Err("it has neither `prompt` nor `messages`".to_string());
    };
    let is_blank = matches!(&content, Content::Text(text) if text.trim().is_empty());
    if is_blank { Err("its prompt is empty".to_string()) } else { Ok(Prompt { id, content, max_tokens }) }
}

/// What a conversation begins with, up to the first words of a person.
fn opening(value: &Value) -> Option<Content> {
    let turns = value.get("conversations").or_else(|| value.get("conversation"))?.as_array()?;
    let mut messages = Vec::new();
    for turn in turns {
        let from = turn.get("from").or_else(|| turn.get("role"))?.as_str()?;
        let said = turn.get("value").or_else(|| turn.get("content"))?.as_str()?;
        match from {
            "system" => messages.push(json!({ "role": "system", "content": said })),
            "human" | "user" if said.trim().is_empty() => return None,
            "human" | "user" if messages.is_empty() => return Some(Content::Text(said.to_string())),
            "human" | "user" => {
                messages.push(json!({ "role": "user", "content": said }));
                return Some(Content::Messages(messages));
            }
            _ => return None,
        }
    }
    None
}

/// A list of conversations, as ShareGPT's files have it, or of the objects that JSONL has one a line. Conversations
/// that do not begin with a person are left out, as other tools do.
fn share_gpt(path: &Path, text: &str) -> Result<Vec<Prompt>, DatasetError> {
    let wrong = |place: String, why: String| DatasetError::Entry { path: path.to_path_buf(), place, why };
    let value: Value = serde_json::from_str(text)
        .map_err(|e| wrong(format!("line {}", e.line()), format!("it is no JSON: {e}; is it JSONL? Call it .jsonl")))?;
    let entries = value.as_array().ok_or_else(|| empty(path, "it is no list of conversations or prompts"))?;
    let mut prompts = Vec::new();
    for (n, value) in entries.iter().enumerate() {
        let id = n as u64 + 1;
        if value.get("conversations").is_some() || value.get("conversation").is_some() {
            prompts.extend(opening(value).map(|content| Prompt { id, content, max_tokens: None }));
        } else {
            prompts.push(entry(id, value).map_err(|why| wrong(format!("entry {id}"), why))?);
        }
    }
    if prompts.is_empty() && !entries.is_empty() {
        return Err(empty(path, "none of its conversations begins with a person"));
    }
    Ok(prompts)
}

/// A directory: with metadata, the file of a variant; else its one file of JSON, or its texts, each of them a prompt.
fn directory(path: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    let metadata = path.join(METADATA);
    if metadata.is_file() {
        return described(path, &metadata, variant);
    }
    let cause = |cause| DatasetError::Read { path: path.to_path_buf(), cause };
    let mut files = BTreeMap::new();
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cause)? {
        let file = entry.map_err(cause)?.path();
        let kind = file.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        match kind.as_str() {
            "jsonl" | "ndjson" | "json" => drop(files.insert(stem, file)),
            "txt" => texts.push(file),
            _ => {}
        }
    }
    if files.is_empty() && variant.is_none() {
        texts.sort();
        return whole_texts(path, &texts);
    }
    chosen(path, &files, variant, None).and_then(|at| file(&at))
}

/// The file of the variant that is wanted, or of the only one.
fn chosen(
    path: &Path,
    files: &BTreeMap<String, PathBuf>,
    variant: Option<&str>,
    default: Option<&str>,
) -> Result<PathBuf, DatasetError> {
    let complaint = |why: String| DatasetError::Variant {
        path: path.to_path_buf(),
        variants: files.keys().cloned().collect(),
        why,
    };
    match variant.or(default) {
        Some(name) => files.get(name).cloned().ok_or_else(|| complaint(format!("{name} is none of them"))),
        None if files.len() == 1 => Ok(files.values().next().cloned().unwrap_or_default()),
        None => Err(complaint("name one with --variant".to_string())),
    }
}

/// `{"default": "short", "variants": {"short": "short.jsonl", "long": {"file": "long.jsonl"}}}`.
fn described(path: &Path, metadata: &Path, variant: Option<&str>) -> Result<Vec<Prompt>, DatasetError> {
    let wrong = |why: String| DatasetError::Entry { path: metadata.to_path_buf(), place: "metadata".to_string(), why };
    let value: Value = serde_json::from_str(&text_of(metadata)?).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
    let listed = value.get("variants").and_then(Value::as_object);
    let listed = listed.ok_or_else(|| wrong("it has no `variants`, an object of names and files".to_string()))?;
    let mut files = BTreeMap::new();
    for (name, entry) in listed {
        let file = entry.as_str().or_else(|| entry.get("file")?.as_str());
        let file = file.ok_or_else(|| wrong(format!("variant {name} names no `file`")))?;
        files.insert(name.clone(), path.join(file));
    }
    if files.is_empty() {
        return Err(empty(path, "its metadata lists no variants"));
    }
    let default = value.get("default").and_then(Value::as_str);
    file(&chosen(path, &files, variant, default)?)
}

/// A prompt a file.
fn whole_texts(path: &Path, texts: &[PathBuf]) -> Result<Vec<Prompt>, DatasetError> {
    let mut prompts = Vec::new();
    for (n, at) in texts.iter().enumerate() {
        let text = text_of(at)?;
        if !text.trim().is_empty() {
            prompts.push(Prompt { id: n as u64 + 1, content: Content::Text(text), max_tokens: None });
        }
    }
    if prompts.is_empty() {
        let why = "it needs metadata.json with variants, a file .jsonl or .json, or files .txt with a prompt each";
        return Err(empty(path, why));
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn text(prompt: &Prompt) -> &str {
        match &prompt.content {
            Content::Text(text) => text,
            Content::Messages(_) => "messages",
        }
    }

    fn texts(path: &Path, variant: Option<&str>) -> Result<Vec<String>, String> {
        read(path, variant).map(|p| p.iter().map(|p| text(p).to_string()).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn every_form_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let jsonl = "{\"prompt\":\"a\",\"max_tokens\":5}\n\n{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}\n";
        let path = write("p.jsonl", jsonl);
        assert_eq!(texts(&path, None).unwrap(), ["a", "messages"]);
        assert_eq!(read(&path, None).unwrap()[0].max_tokens, Some(5));
        assert_eq!(texts(&write("p.txt", "one\n\n two \n"), None).unwrap(), ["one", "two"]);
        let shared = r#"[{"id":"x","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ho"}]},
            {"conversations":[{"from":"gpt","value":"ho"}]},{"conversations":[{"from":"system","value":"s"},{"from":"human","value":"q"}]}]"#;
        assert_eq!(texts(&write("s.json", shared), None).unwrap(), ["hi", "messages"]);
        for (name, content, told) in [
            ("a.jsonl", "{\"prompt\":\"a\"}\n{\"text\":\"b\"}\n", "line 2: it has neither `prompt` nor `messages`"),
            ("b.jsonl", "{\"prompt\":\"a\"\n", "line 1: it is no JSON"),
            ("c.jsonl", "{\"prompt\":\" \"}\n", "its prompt is empty"),
            ("d.jsonl", "\n", "has no prompts"),
            ("e.txt", " \n", "has no prompts: write a prompt a line"),
            ("f.json", "[]", "has no prompts"),
            ("g.json", "{}", "has no prompts: it is no list"),
            ("h.json", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}", "is it JSONL? Call it .jsonl"),
            ("i.json", "[{\"conversations\":[]}]", "none of its conversations begins with a person"),
        ] {
            let error = texts(&write(name, content), None).unwrap_err();
            assert!(error.contains(told) && error.contains(name), "{name}: {error}");
        }
        assert!(texts(&dir.path().join("none.jsonl"), None).unwrap_err().contains("cannot read"));
    }

    #[test]
    fn directories_with_and_without_metadata() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert!(texts(dir.path(), None).unwrap_err().contains("needs metadata.json"));
        fs::write(at("a.txt"), "whole\nfile").unwrap();
        fs::write(at("image.png"), "no text").unwrap();
        assert_eq!(texts(dir.path(), None).unwrap(), ["whole\nfile"]);
        fs::write(at("short.jsonl"), "{\"prompt\":\"s\"}").unwrap();
        assert_eq!(texts(dir.path(), None).unwrap(), ["s"]);
        fs::write(at("long.jsonl"), "{\"prompt\":\"l\"}").unwrap();
        assert!(texts(dir.path(), None).unwrap_err().contains("variants long, short: name one with --variant"));
        assert_eq!(texts(dir.path(), Some("long")).unwrap(), ["l"]);
        let metadata =
            r#"{"name":"x","default":"s","variants":{"s":"short.jsonl","l":{"file":"long.jsonl","tokens":9}}}"#;
        fs::write(at("metadata.json"), metadata).unwrap();
        assert_eq!(
            (texts(dir.path(), None).unwrap(), texts(dir.path(), Some("l")).unwrap()),
            (vec!["s".into()], vec!["l".into()])
        );
        assert!(texts(dir.path(), Some("m")).unwrap_err().contains("m is none of them"));
        fs::write(at("metadata.json"), "{}").unwrap();
        assert!(texts(dir.path(), None).unwrap_err().contains("no `variants`"));
    }
}
